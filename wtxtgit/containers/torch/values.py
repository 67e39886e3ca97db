"""The values of a pickle that are not tensors, as plain data.

`values_of` is for comparison and shows everything. Nothing is executed: an object is shown as the
name of what would be called, and its arguments. Values are shown at every reference to them. Their
number, depth and length are limited. `plain_value` is for values of distributed checkpoints, each
pickled separately, such as a step count: it shows only short plain data. Spec:
`docs/spec/torch.md`, "Distributed checkpoints".
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from hashlib import sha256

from wtxtgit.containers import json_text
from wtxtgit.containers.torch.listing import ORDERED_DICT, calls, children_of, is_short_text
from wtxtgit.containers.torch.pickle_read import (
    CallResult,
    Dict,
    Global,
    List,
    LongInteger,
    Pickle,
    Set,
)
from wtxtgit.containers.torch.views import view
from wtxtgit.errors import FormatError, clipped

MOST_STEPS = 200_000
"""At most this many values are visited, tensors included."""
MOST_LEVELS = 32
LONGEST = 4096
"""A longer text, and bytes that are longer, are shown by their lengths and hashes."""
MOST_KEY = 256
"""The most characters of a key that are shown."""
CUT = "(more)"
"""Stands for what is beyond a limit."""
TENSOR = "(tensor)"
"""Stands for a tensor in a list of other values."""
CALL = "()"
"""The key of what an object calls."""
MOST_PARTS = 64
"""The most parts of a plain value; a longer one is only described."""
OTHER = object()
"""Stands for a value that is not short plain data."""
_NOTHING = object()
_LARGEST = 2**63
_Container = tuple[object, ...] | List | Set | Dict | CallResult


def values_of(pickle: Pickle, start: int, tags: Iterable[str]) -> object:
    """Return the values of a pickle at `start`, without tensors and those at the top in `tags`."""
    values = _PlainWalk(start).of(pickle.root, 0)
    if isinstance(values, dict):
        left_out = frozenset(tags)
        return {key: value for key, value in values.items() if key not in left_out}
    return {} if values is _NOTHING else values


def plain(value: object) -> object:
    """Return a value of a pickle as `values_of` shows it; None for one that holds tensors alone."""
    shown = _PlainWalk(0).of(value, 0)
    return None if shown is _NOTHING else shown


def tells_all(pickle: Pickle, start: int) -> bool:
    """Whether `values_of` leaves out nothing for its limits."""
    walk = _PlainWalk(start)
    walk.of(pickle.root, 0)
    return not walk.is_cut


def plain_value(pickle: Pickle) -> object:
    """Return the value as plain data that JSON has; OTHER if it is anything else, or long."""
    try:
        return _ShortValue().of(pickle.root)
    except _NotPlainError:
        return OTHER


class _PlainWalk:
    def __init__(self, start: int) -> None:
        self.start = start
        self.left = MOST_STEPS
        self.is_cut = False
        self.above: set[int] = set()
        self.hashed: dict[int, object] = {}

    def of(self, value: object, level: int) -> object:
        """Return a value as plain data, _NOTHING for tensors and what holds nothing else."""
        self.left -= 1
        if not isinstance(value, tuple | List | Set | Dict | CallResult):
            return self._leaf(value)
        if self.left < 0 or level > MOST_LEVELS or id(value) in self.above:
            self.is_cut = True
            return CUT
        self.above.add(id(value))
        try:
            return self._container(value, level + 1)
        finally:
            self.above.discard(id(value))

    def _container(self, value: _Container, level: int) -> object:
        is_tensor = self._is_tensor(value)
        is_mapping = isinstance(value, Dict | CallResult)
        parts: dict[str, object] = {}
        count = 0
        for part, child in children_of(value, is_tensor):
            if self.left < 0:
                self.is_cut = True
                parts[CUT] = CUT
                break
            plain = self.of(child, level)
            key = CALL if part is None else clipped(_text(part), MOST_KEY)
            # Keys of several types may be spelled alike.
            while key in parts:
                count += 1
                key = f"{key} ({count})"
            parts[key] = plain
        shown = {key: plain for key, plain in parts.items() if plain is not _NOTHING}
        if is_tensor:
            return shown or _NOTHING
        if isinstance(value, CallResult) and not calls(value, ORDERED_DICT):
            name = value.callee.path if isinstance(value.callee, Global) else "object"
            # Most are wrapped tensors.
            return {CALL: name, **shown} if shown or not parts else _NOTHING
        if parts and not shown:
            return _NOTHING
        if is_mapping:
            return shown
        items = [TENSOR if plain is _NOTHING else plain for plain in parts.values()]
        # The order of a set is another one in each run.
        return sorted(items, key=repr) if isinstance(value, Set) else items

    def _is_tensor(self, value: object) -> bool:
        try:
            return view(value, self.start) is not None
        except FormatError:
            return False

    def _leaf(self, value: object) -> object:
        if isinstance(value, str):
            return _text(value) if len(value) <= LONGEST else self._hash(value, "characters")
        if isinstance(value, bytes):
            return value.hex() if len(value) <= LONGEST else self._hash(value, "bytes")
        if value is None or isinstance(value, int | float):
            return _scalar(value)
        if isinstance(value, Global):
            return value.path
        if isinstance(value, LongInteger):
            return f"integer of {value.nbytes} bytes"
        # A storage.
        return _NOTHING

    def _hash(self, value: str | bytes, unit: str) -> object:
        # Kept, since a file may refer to one long text any number of times.
        if id(value) not in self.hashed:
            raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
            self.hashed[id(value)] = {unit: len(value), "sha256": sha256(raw).hexdigest()}
        return self.hashed[id(value)]


class _NotPlainError(Exception):
    """The value is not short plain data."""


class _ShortValue:
    def __init__(self) -> None:
        self._left = MOST_PARTS

    def of(self, value: object) -> object:
        """Return a value as plain data; raises _NotPlainError."""
        # Every part is counted, so the walk over a value that contains itself ends, too.
        self._left -= 1
        if self._left < 0:
            raise _NotPlainError
        match value:
            case tuple():
                return list(map(self.of, value))
            case List():
                return list(map(self.of, value.items))
            case Dict():
                return {self._key(key): self.of(item) for key, item in value.pairs}
            case None | float():
                return _scalar(value)
            case int() if -_LARGEST <= value < _LARGEST:
                return value
        if is_short_text(value):
            return value
        raise _NotPlainError

    def _key(self, key: object) -> str:
        if (type(key) is int and -_LARGEST <= key < _LARGEST) or is_short_text(key):
            return str(key)
        raise _NotPlainError


def _scalar(value: float | None) -> object:
    """Return None or a number as JSON has it."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _text(value: str) -> str:
    """Return a text that is valid in UTF-8."""
    if json_text.is_text(value):
        return value
    return value.encode("utf-8", "backslashreplace").decode()
