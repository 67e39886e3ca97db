"""The tensors of a pickle's value, named by the paths that lead to them.

A path consists of keys, indexes and attribute names. Plain data (dicts, lists, tuples) is walked at
every reference to it, unless it contained no tensors; an object of any other class is walked once,
so that cycles of such objects end. Spec: `docs/spec/torch.md`, "Names".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from wtxtgit.containers import json_text
from wtxtgit.containers.cursor import ListingBudget, fail
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.containers.torch.pickle_read import (
    CallResult,
    Dict,
    Global,
    List,
    LongInteger,
    Pickle,
    Set,
)
from wtxtgit.containers.torch.views import UTILS, View, view

# Greatest depth of values: the path to a tensor is a text of all keys on the way.
MAX_DEPTH = 1000
# Values visited, per byte of the pickle and in total: a value may be referred to any number of
# times, at two bytes each, and is walked each time if it contains tensors.
LEAST_STEPS = 65_536
STEPS_A_BYTE = 16
MAX_STEPS = 32 * MAX_TENSORS
# Total length of all names in characters, bounded in the same way.
LEAST_NAMES = 2**20
NAMES_A_BYTE = 64
# Longest text in characters that becomes a tag in other formats.
MAX_TAG = 4096
ROOT_NAME = "tensor"
"""The name of a tensor that is the whole value."""
UNTOLD_VALUE = "values that are not tensors"
MAX_UNTOLD = 100

_Counts = tuple[int, int, int]
"""Tensors, other values, and values that contain themselves, so far."""
# Equal keys are recognised up to this many characters: one long key may be referred to any number
# of times, and would be compared each time.
MAX_COMPARED = 256
# The most items of a tuple key that a path shows: a tuple can have millions.
MAX_INNER = 8
ORDERED_DICT = Global("collections", "OrderedDict")
PARAMETERS = (
    Global(UTILS, "_rebuild_parameter"),
    Global(UTILS, "_rebuild_parameter_with_state"),
    Global(UTILS, "_rebuild_device_tensor_from_cpu_tensor"),
)
"""Calls whose first argument is the tensor, and a fourth one, if any, its attributes."""
STATE_OF_PARAMETER = 3
QUANTIZER = 4
"""Positions of a parameter's attributes, and of a quantised tensor's quantizer."""
FROM_TYPE = (
    Global("torch._tensor", "_rebuild_from_type"),
    Global("torch._tensor", "_rebuild_from_type_v2"),
)
"""Calls of (function, class, arguments, state): the tensor is what the function returns."""
MODULE_METADATA = "_metadata"
"""Attribute of state dicts in which torch keeps the versions of modules."""
Child = tuple[str | None, object]
"""A value and its part of the path, None if it has the path of its parent."""


@dataclass(frozen=True, slots=True)
class PickledTensors:
    """Tensors in the order of the pickle; `tags` and `untold` are as in a Description.

    One tensor may have several names: then the view is the same object.
    """

    tensors: tuple[tuple[str, View], ...]
    tags: dict[str, str]
    untold: tuple[str, ...]


def list_tensors(
    pickle: Pickle, start: int, what: str, counts: ListingBudget | None = None
) -> PickledTensors:
    """Return the tensors of a pickle at `start`; raises FormatError (structure or limit).

    They count in the listing of the file.
    """
    walk = _DepthWalk(pickle, start, what, counts or ListingBudget(pickle.end - start))
    walk.run(pickle.root)
    return PickledTensors(tuple(walk.tensors), walk.tags, tuple(walk.untold))


class _DepthWalk:
    """A depth-first walk over a value, with the path to the current place."""

    def __init__(self, pickle: Pickle, start: int, what: str, counts: ListingBudget) -> None:
        self.counts = counts
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
        self.inner: dict[int, CallResult] = {}
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
            tensor = self._view(value)
            if tensor is not None:
                self._add(part, tensor)
            elif not isinstance(value, List | Dict | Set | CallResult | tuple):
                self._note(part, value)
                continue
            # An object of an unknown class is listed at its first occurrence.
            if id(value) in visited:
                continue
            # It contains itself: going on would not end.
            if id(value) in open_ids:
                self.cycles += 1
                continue
            # Already walked, without a tensor in it: sharing would make the walk exponential.
            if id(value) in self.without:
                if self.without[id(value)]:
                    self._note(part, value)
                continue
            # Counted before the children are visited: their number is only the file's claim.
            self._count(1 + _size(value), len(frames))
            if _is_object(value):
                visited[id(value)] = value
            open_ids.add(id(value))
            children = self._children(value, tensor is not None)
            frames.append((children, value, part is not None, self._counts()))
            if part is not None:
                self.path.append(part)

    def _counts(self) -> _Counts:
        return len(self.tensors), self.noted, self.cycles

    def _close(self, value: object, before: _Counts) -> None:
        """Remember that a value has no tensors, and whether it has other values.

        Not for a value in a cycle, which would have other tensors elsewhere.
        """
        tensors, noted, cycles = before
        if len(self.tensors) == tensors and self.cycles == cycles:
            self.without[id(value)] = self.noted > noted

    def _view(self, value: object) -> View | None:
        """Return the tensor that a value is: the same object at each occurrence of the value."""
        tensor = self.views.get(id(value))
        if tensor is None:
            tensor = view(value, self.start)
            if tensor is not None:
                self.views[id(value)] = tensor
        return tensor

    def _children(self, value: object, is_tensor: bool) -> Iterator[Child]:
        if calls(value, *FROM_TYPE) and isinstance(value, CallResult) and len(value.args) == 4:
            function, _, args, state = value.args
            if isinstance(args, tuple):
                if id(value) not in self.inner:
                    self.inner[id(value)] = CallResult(function, args)
                yield None, self.inner[id(value)]
            yield from state_children(state)
            for more in value.states:
                yield from state_children(more)
        else:
            yield from children_of(value, is_tensor)

    def _count(self, steps: int, depth: int) -> None:
        self.steps_left -= steps
        if self.steps_left < 0:
            self._fail("refers to its values too many times")
        if depth > MAX_DEPTH:
            self._fail("is nested too deeply")

    def _fail(self, message: str) -> NoReturn:
        fail(f"{self.what} {message}", offset=self.start, field=self.what, kind="limit")

    def _add(self, part: str | None, tensor: View) -> None:
        parts = self.path if part is None else [*self.path, part]
        self.characters_left -= sum(map(len, parts)) + len(parts)
        if self.characters_left < 0 or len(self.tensors) == MAX_TENSORS:
            self._fail("has too many tensors")
        name = ".".join(parts) if parts else ROOT_NAME
        json_text.check_name(name, "tensor name", offset=self.start)
        words = (name, tensor.dtype)
        self.counts.item(words, self.start, self.what, rank=2 * len(tensor.shape))
        self.tensors.append((name, tensor))

    def _note(self, part: str | None, value: object) -> None:
        """Record a value that is not a tensor: a text at the top is a tag, all else is untold."""
        top = self.path[0] if self.path else part
        if value is None:
            return
        self.noted += 1
        if top is None or not self.has_keys:
            self.untold.setdefault(UNTOLD_VALUE)
        elif not is_short_text(top):
            return
        elif not self.path and is_short_text(value):
            self.tags[top] = str(value)
        elif len(self.untold) < MAX_UNTOLD:
            self.untold.setdefault(top)


def is_short_text(value: object) -> bool:
    """Whether a value is a text that is shown whole, as tags are."""
    return isinstance(value, str) and len(value) <= MAX_TAG and json_text.is_text(value)


def _is_object(value: object) -> bool:
    """Whether a value is an object of a class that is unknown here."""
    return isinstance(value, CallResult) and not calls(value, ORDERED_DICT, *PARAMETERS, *FROM_TYPE)


def _size(value: object) -> int:
    """Return an upper bound on the values that are visited for the children of a value."""
    if isinstance(value, CallResult):
        inner = sum(map(_length, value.args)) + sum(map(_length, value.states))
        return len(value.args) + len(value.states) + inner + _length(value)
    return _length(value)


def _length(value: object) -> int:
    if isinstance(value, tuple):
        return len(value)
    if isinstance(value, CallResult):
        return len(value.items) + len(value.pairs)
    if isinstance(value, List | Set):
        return len(value.items)
    return len(value.pairs) if isinstance(value, Dict) else 0


def calls(value: object, *callees: Global) -> bool:
    """Whether a value is the result of calling one of these.

    What a file calls may be a tuple of any depth, whose hash would never end.
    """
    return (
        isinstance(value, CallResult)
        and isinstance(value.callee, Global)
        and value.callee in callees
    )


def children_of(value: object, is_tensor: bool) -> Iterator[Child]:
    """Yield the values inside a value, in the order in which they are written."""
    if isinstance(value, tuple):
        yield from _indexed(value)
    elif isinstance(value, List | Set):
        yield from _indexed(value.items)
    elif isinstance(value, Dict):
        yield from _keyed(value.pairs)
    elif isinstance(value, CallResult):
        if is_tensor:
            # The parameters of a quantised tensor; hooks are never written.
            scheme = value.args[QUANTIZER] if len(value.args) > QUANTIZER else None
            if isinstance(scheme, tuple):
                yield str(QUANTIZER), scheme
        elif calls(value, *PARAMETERS):
            yield from ((None, data) for data in value.args[:1])
            yield from (
                child
                for state in value.args[STATE_OF_PARAMETER : STATE_OF_PARAMETER + 1]
                for child in state_children(state)
            )
        elif calls(value, ORDERED_DICT):
            # Python 2 writes the pairs as a list of lists.
            yield from _keyed([*_listed_pairs(value.args), *value.pairs])
        else:
            if not isinstance(value.callee, Global):
                yield None, value.callee
            yield from _indexed(value.args)
            if value.kwargs is not None:
                yield None, value.kwargs
            yield from _indexed(value.items)
            yield from _keyed(value.pairs)
        for state in value.states:
            yield from state_children(
                state, skip=MODULE_METADATA if calls(value, ORDERED_DICT) else None
            )


def _indexed(items: Iterable[object]) -> Iterator[Child]:
    return ((str(index), item) for index, item in enumerate(items))


def _keyed(pairs: list[tuple[object, object]]) -> Iterator[Child]:
    """Yield each key at its first place with its last value, as a dict has it."""
    last = {identity_of(key): value for key, value in pairs}
    for key, _ in pairs:
        identity = identity_of(key)
        if identity in last:
            yield word_of(key), last.pop(identity)


def identity_of(key: object) -> str:
    """Return a value that is equal for keys that are equal in Python, if they are plain and short.

    It is a text, because a file could contain integers with equal hashes. Keys must be short,
    because a long one may be referred to any number of times.
    """
    if isinstance(key, str) and len(key) <= MAX_COMPARED:
        return "s" + key
    if isinstance(key, bytes) and len(key) <= MAX_COMPARED:
        return "b" + key.hex()
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    if isinstance(key, int):
        return f"i{int(key):x}"
    if isinstance(key, float):
        return f"f{key!r}"
    return f"o{id(key)}"


def word_of(key: object) -> str:
    """Return a key as a part of a path."""
    if isinstance(key, str):
        return key
    if isinstance(key, bytes):
        return repr(key[:MAX_COMPARED])
    if key is None or isinstance(key, int | float):
        return str(key)
    if isinstance(key, tuple):
        inner = [
            "..." if isinstance(k, tuple) else word_of(k)[:MAX_COMPARED] for k in key[:MAX_INNER]
        ]
        return f"({', '.join(inner)})"
    if isinstance(key, LongInteger):
        return "int"
    if isinstance(key, CallResult):
        key = key.callee
    if isinstance(key, Global):
        return key.path
    return type(key).__name__.lower()


def _listed_pairs(args: tuple[object, ...]) -> Iterator[tuple[object, object]]:
    listed = args[0] if len(args) == 1 else None
    for item in listed.items if isinstance(listed, List) else ():
        pair = item.items if isinstance(item, List) else item
        if isinstance(pair, tuple | list) and len(pair) == 2:
            yield pair[0], pair[1]


def state_children(state: object, skip: str | None = None) -> Iterator[Child]:
    """Yield attributes, of a dict or of a tuple of two, the second for slots; omit `skip`."""
    parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)
    if all(part is None or isinstance(part, Dict) for part in parts):
        for part in parts:
            if isinstance(part, Dict):
                yield from (child for child in _keyed(part.pairs) if child[0] != skip)
    else:
        yield None, state
