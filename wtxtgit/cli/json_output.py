"""JSON as `json.dumps` spells it with an indent of two, written as it is spelled.

The standard library's encoder takes several times as long with an indent, and
holds all of its pieces: a report can have a line for each of a million tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

_PIECES = 1 << 16
"""Pieces that are kept until they are written."""


def write_json(value: object, write: Callable[[str], object]) -> None:
    """Spell plain data as strict JSON; raises TypeError for data that is not plain.

    Numbers that JSON lacks become strings, bytes become hex.
    """
    pieces: list[str] = []

    def put(lead: str, item: object, newline: str) -> None:
        spell = _SPELL.get(type(item))
        if spell is not None:
            pieces.append(lead + spell(item))
        elif isinstance(item, dict):
            pieces.append(lead)
            put_object(item, newline)
        elif isinstance(item, list | tuple):
            pieces.append(lead)
            put_array(item, newline)
        else:
            pieces.append(lead + _spelled(item))

    def put_object(items: Mapping[object, object], newline: str) -> None:
        inner = newline + "  "
        lead = "{" + inner
        for key, item in items.items():
            put(f"{lead}{quoted(str(key))}: ", item, inner)
            lead = "," + inner
        pieces.append(newline + "}" if items else "{}")
        drain()

    def put_array(items: Sequence[object], newline: str) -> None:
        inner = newline + "  "
        lead = "[" + inner
        for item in items:
            put(lead, item, inner)
            lead = "," + inner
        pieces.append(newline + "]" if items else "[]")
        drain()

    def drain() -> None:
        if len(pieces) >= _PIECES:
            write("".join(pieces))
            pieces.clear()

    put("", value, "\n")
    pieces.append("\n")
    write("".join(pieces))


def _spelled(item: object) -> str:
    """Spell what holds nothing else, by the base of its type; raises TypeError."""
    for kind, spell in _SPELL.items():
        if isinstance(item, kind):
            return spell(item)
    raise TypeError(f"{type(item).__name__} is no plain data")


def _number(item: float) -> str:
    return float.__repr__(item) if math.isfinite(item) else quoted(str(item))


_SPELL: dict[type, Callable[[Any], str]] = {
    str: quoted,
    type(None): lambda _: "null",
    bool: lambda item: "true" if item else "false",
    int: int.__repr__,
    float: _number,
    bytes: lambda item: quoted(item.hex()),
}
"""How a value of each type is spelled, a subclass before its base."""
