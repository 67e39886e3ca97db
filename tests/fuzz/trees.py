"""Values of JSON, MessagePack and Python literals, changed.

A tree can say what the texts can and Python's own values can't: a key twice,
or any bytes where a value is due.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Tree = object
"""None, a boolean, a number, str, bytes, a list, a Tuple, a Map or a Raw."""


class Tuple(list[Tree]):
    """A tuple of a Python literal."""


class Pair(list[Tree]):
    """A key and its value."""


class Map(list[Tree]):
    """Pairs, of which some may have one key."""


@dataclass(frozen=True)
class Raw:
    """Bytes that stand for themselves in every encoding."""

    content: bytes


DEEP = (1, 2, 31, 32, 33, 63, 64, 65)
"""The readers' limits are 32 and 64."""
NUMBERS = (
    *(0, 1, -1, 2, 7, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53),
    *(2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**65, 10**30, 10**400),
    *(-(2**31), -(2**63), -(2**63) - 1, 0.0, -0.0, 1.5, 1e308, 5e-324),
    *(float("nan"), float("inf"), float("-inf")),
)
TEXTS = (
    *("", "a", "\0", "\n", '"', "\\", "/", "..", "../a", "a\r\nb", "é", "\u2028", "\U0001f600"),
    *("\ud800", "x" * 300, "F32", "U8", "F8_E4M3", "C128", "<f4", "|O", "<M8[ns]", "0" * 64),
    *("rs(1)", "rs(254)", "none", "sha256:" + "0" * 64, "hmac-sha256:" + "0" * 64),
    *("True", "None", "part-000.aero", "weights.shard0"),
)


def tree_of(value: object) -> Tree:
    """The tree of what a decoder gave."""
    if isinstance(value, dict):
        return Map(Pair((tree_of(key), tree_of(held))) for key, held in value.items())
    if isinstance(value, tuple):
        return Tuple(tree_of(item) for item in value)
    if isinstance(value, list):
        return [tree_of(item) for item in value]
    return value


def mutated(tree: Tree, rng: random.Random, raws: tuple[bytes, ...]) -> Tree:
    """The tree, itself, with none to three things changed; with none its spelling may differ."""
    root: list[Tree] = [tree]
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        places: list[tuple[list[Tree], int]] = []
        _find_places(root, places)
        if not places:
            break
        parent, at = rng.choice(places)
        _change(parent, at, places, rng, raws)
    return root[0] if root else None


def _find_places(parent: list[Tree], found: list[tuple[list[Tree], int]]) -> None:
    """Where values and pairs stand: in which list, at which place."""
    for at, value in enumerate(parent):
        found.append((parent, at))
        if isinstance(value, list):
            _find_places(value, found)


def _copied(tree: Tree) -> Tree:
    return type(tree)(map(_copied, tree)) if isinstance(tree, list) else tree


def _change(
    parent: list[Tree],
    at: int,
    places: list[tuple[list[Tree], int]],
    rng: random.Random,
    raws: tuple[bytes, ...],
) -> None:
    value = parent[at]
    kind = rng.randrange(10)
    if isinstance(value, Pair) and kind > 3:
        parent, at, value = value, 1, value[1]
    can_grow = not isinstance(parent, Pair)
    if kind == 0 and can_grow:
        del parent[at]
    elif kind == 1 and can_grow:
        parent.insert(rng.randrange(len(parent) + 1), _copied(value))
    elif kind == 2:
        other, place = rng.choice(places)
        if place < len(other) and isinstance(other[place], Pair) == isinstance(value, Pair):
            parent[at] = _copied(other[place])
    elif isinstance(value, Pair):
        value[0] = _other(value[0], rng, raws)
    elif kind == 3:
        parent[at] = _nested(value, rng)
    else:
        parent[at] = _other(value, rng, raws)


def _nested(value: Tree, rng: random.Random) -> Tree:
    wrap: Callable[[Tree], Tree] = rng.choice(
        (lambda v: [v], lambda v: Map([Pair(("a", v))]), lambda v: Tuple([v]))
    )
    for _ in range(rng.choice(DEEP)):
        value = wrap(value)
    return value


def _other(value: Tree, rng: random.Random, raws: tuple[bytes, ...]) -> Tree:
    """Another value, often one of the same kind."""
    if rng.random() < 0.6:
        if isinstance(value, int) and not isinstance(value, bool):
            near = (value + 1, value - 1, value + 4, value * 2, value ^ 1, -value)
            return rng.choice((*near, float(value % 2**60)))
        if isinstance(value, str) and value:
            at = rng.randrange(len(value))
            longer = value[:at] + rng.choice(TEXTS) + value[at:]
            return rng.choice((value[:at], value + value, value[::-1], longer))
        if isinstance(value, bytes) and value:
            return rng.choice((value[:-1], value + value, bytes(len(value)), value[::-1]))
        if type(value) is list:
            return rng.choice(([], [*value, 0], [*value, *value], value * 50, [1] * 40, [0, 2**62]))
    return rng.choice(
        (
            rng.choice(NUMBERS),
            rng.choice(NUMBERS),
            rng.choice(TEXTS),
            Raw(rng.choice(raws)),
            rng.choice((None, True, False, [], Map(), Tuple(), b"", bytes(32))),
            [rng.choice(NUMBERS) for _ in range(rng.choice((1, 2, 3, 70)))],
        )
    )
