"""The tensors of a pickle's value, by the paths that lead to them.

A path is made of keys, indexes and attribute names. Plain data (dicts,
lists, tuples) is walked wherever it is referred to, unless there were no
tensors in it, an object of any other class once, so that objects which refer
to one another end somewhere.
Spec: `docs/spec/torch.md`, "Names".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from wtxtgit.containers import json_limits
from wtxtgit.containers.cursor import fail
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.containers.torch.children import (
    FROM_TYPE,
    ORDERED_DICT,
    PARAMETERS,
    Child,
    calls,
    children_of,
    state_children,
)
from wtxtgit.containers.torch.pickle_values import Dict, List, Made, Pickle, Set
from wtxtgit.containers.torch.views import View, view

MAX_DEPTH = 1000
"""Values inside one another."""
LEAST_STEPS = 65_536
STEPS_A_BYTE = 16
MAX_STEPS = 32 * MAX_TENSORS
"""Values visited: sharing may make them more than a pickle has bytes, within bounds."""
LEAST_NAMES = 2**20
NAMES_A_BYTE = 64
"""Characters of all names together, in the same way."""
MAX_TAG = 4096
"""Characters of a text that other formats can take."""
ROOT_NAME = "tensor"
"""What a tensor is called that is the whole value."""
UNTOLD_VALUE = "values that are no tensors"
MAX_UNTOLD = 100

_Counts = tuple[int, int, int]
"""Tensors, other values, and values not walked again inside of themselves, so far."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Tensors in the order of the pickle; `tags` and `untold` as in a Description.

    One tensor may have several names: the view is the same object then.
    """

    tensors: tuple[tuple[str, View], ...]
    tags: dict[str, str]
    untold: tuple[str, ...]


def list_tensors(pickle: Pickle, start: int, what: str) -> Listing:
    """The tensors of a pickle that stands at `start`; raises FormatError (structure or limit)."""
    walk = _Walk(pickle, start, what)
    walk.run(pickle.root)
    return Listing(tuple(walk.tensors), walk.tags, tuple(walk.untold))


class _Walk:
    """One walk over a value, depth first, with the path to where it is."""

    def __init__(self, pickle: Pickle, start: int, what: str) -> None:
        size = pickle.end - start
        self.start = start
        self.what = what
        self.steps_left = min(max(STEPS_A_BYTE * size, LEAST_STEPS), MAX_STEPS)
        self.characters_left = min(max(NAMES_A_BYTE * size, LEAST_NAMES), MAX_JSON)
        self.has_keys = isinstance(pickle.root, Dict) or calls(pickle.root, ORDERED_DICT)
        self.path: list[str] = []
        self.tensors: list[tuple[str, View]] = []
        self.tags: dict[str, str] = {}
        self.untold: dict[str, None] = {}
        self.views: dict[int, View] = {}
        self.inner: dict[int, Made] = {}
        self.without: dict[int, bool] = {}
        self.noted = 0
        self.cycles = 0

    def run(self, root: object) -> None:
        visited: dict[int, object] = {}
        open_ids: set[int] = set()
        first: Iterator[Child] = iter([(None, root)])
        frames: list[tuple[Iterator[Child], object, bool, _Counts]] = [
            (first, None, False, self._counts())
        ]
        while frames:
            children, parent, has_part, before = frames[-1]
            child = next(children, None)
            if child is None:
                frames.pop()
                open_ids.discard(id(parent))
                self._close(parent, before)
                if has_part:
                    self.path.pop()
                continue
            part, value = child
            made = self._view(value)
            if made is not None:
                self._add(part, made)
            elif not isinstance(value, List | Dict | Set | Made | tuple):
                self._note(part, value)
                continue
            if id(value) in visited:
                continue
            if id(value) in open_ids:
                self.cycles += 1
                continue
            if id(value) in self.without:
                if self.without[id(value)]:
                    self._note(part, value)
                continue
            self._count(1 + _size(value), len(frames))
            if _is_object(value):
                visited[id(value)] = value
            open_ids.add(id(value))
            children = self._children(value, made is not None)
            frames.append((children, value, part is not None, self._counts()))
            if part is not None:
                self.path.append(part)

    def _counts(self) -> _Counts:
        return len(self.tensors), self.noted, self.cycles

    def _close(self, value: object, before: _Counts) -> None:
        """Keep in mind that a value has no tensors, and whether it has others.

        What is inside of itself would have other tensors elsewhere.
        """
        tensors, noted, cycles = before
        if len(self.tensors) == tensors and self.cycles == cycles:
            self.without[id(value)] = self.noted > noted

    def _view(self, value: object) -> View | None:
        """The tensor that a value is: the same one each time that the value is met."""
        made = self.views.get(id(value))
        if made is None:
            made = view(value, self.start)
            if made is not None:
                self.views[id(value)] = made
        return made

    def _children(self, value: object, is_tensor: bool) -> Iterator[Child]:
        if calls(value, *FROM_TYPE) and isinstance(value, Made) and len(value.args) == 4:
            function, _, args, state = value.args
            if isinstance(args, tuple):
                if id(value) not in self.inner:
                    self.inner[id(value)] = Made(function, args)
                yield None, self.inner[id(value)]
            yield from state_children(state)
            for more in value.states:
                yield from state_children(more)
        else:
            yield from children_of(value, is_tensor)

    def _count(self, steps: int, depth: int) -> None:
        self.steps_left -= steps
        if self.steps_left < 0:
            self._fail("refers to its values too often")
        if depth > MAX_DEPTH:
            self._fail("is nested too deeply")

    def _fail(self, message: str) -> NoReturn:
        fail(f"{self.what} {message}", offset=self.start, field=self.what, kind="limit")

    def _add(self, part: str | None, made: View) -> None:
        parts = self.path if part is None else [*self.path, part]
        self.characters_left -= sum(map(len, parts)) + len(parts)
        if self.characters_left < 0 or len(self.tensors) == MAX_TENSORS:
            self._fail("has too many tensors")
        name = ".".join(parts) if parts else ROOT_NAME
        json_limits.check_name(name, "tensor name", offset=self.start)
        self.tensors.append((name, made))

    def _note(self, part: str | None, value: object) -> None:
        """Note a value that is no tensor: a text at the top is a tag, all else is untold."""
        top = self.path[0] if self.path else part
        if value is None:
            return
        self.noted += 1
        if top is None or not self.has_keys:
            self.untold.setdefault(UNTOLD_VALUE)
        elif not _is_short_text(top):
            return
        elif not self.path and _is_short_text(value):
            self.tags[top] = str(value)
        elif len(self.untold) < MAX_UNTOLD:
            self.untold.setdefault(top)


def _is_short_text(value: object) -> bool:
    if not isinstance(value, str) or len(value) > MAX_TAG:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_object(value: object) -> bool:
    """Whether a value is an object of a class that is not understood here."""
    return isinstance(value, Made) and not calls(value, ORDERED_DICT, *PARAMETERS, *FROM_TYPE)


def _size(value: object) -> int:
    """How many values are looked at for the children of a value, at most."""
    if isinstance(value, Made):
        inner = sum(map(_length, value.args)) + sum(map(_length, value.states))
        return len(value.args) + len(value.states) + inner + _length(value)
    return _length(value)


def _length(value: object) -> int:
    if isinstance(value, tuple):
        return len(value)
    if isinstance(value, Made):
        return len(value.items) + len(value.pairs)
    if isinstance(value, List | Set):
        return len(value.items)
    return len(value.pairs) if isinstance(value, Dict) else 0
