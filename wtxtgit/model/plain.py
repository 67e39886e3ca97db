"""Reports as plain data: the JSON objects that `--json` prints and `as_dict` returns.

Each report's class declares its keys, their order and which fields they come from. The plan
for that is computed once per class, since a report may have an object for each of a hundred
thousand tensors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from operator import attrgetter
from typing import Any, NamedTuple

# Types whose values JSON takes as they are.
_LEAVES = frozenset({int, float, str, bool, type(None)})


class JsonObject:
    """A dataclass that becomes a JSON object: with all of its fields, or with those in KEYS.

    KEYS is words: the name of a field or property; `key=name` if the key is another one (`name` may
    be dotted); `name?` to leave the key out if the value is None; `*name` to put the entries of
    another object here. Bytes are taken for a path; `name:hex` is for bytes of a hash.
    """

    __slots__ = ()
    KEYS = ""

    def entries(self) -> Iterator[tuple[str, object]]:
        """Yield keys in order, with values: leaves, tuples, mappings and other JsonObjects."""
        kind = type(self)
        # setdefault: threads may come here at once, and any plan of a class is as good.
        keys, marks, get = _PLANS.get(kind) or _PLANS.setdefault(kind, _planned(kind))
        for key, mark, value in zip(keys, marks, get(self), strict=False):
            if mark == "*":
                yield from (
                    value.entries() if isinstance(value, JsonObject) else (value or {}).items()
                )
            elif value is None and mark == "?":
                continue
            elif type(value) in _LEAVES:
                yield key, value
            else:
                yield key, value.hex() if mark == ":hex" else _spelled(value)

    def as_dict(self) -> dict[str, Any]:
        """Return the object as plain data."""
        return {key: _plain(value) for key, value in self.entries()}


def _spelled(value: Any) -> object:
    """Return a value with paths and enumeration members spelled as str."""
    if isinstance(value, tuple) and value and isinstance(value[0], bytes):
        return tuple(map(os.fsdecode, value))
    if isinstance(value, bytes | os.PathLike):
        return os.fsdecode(value)
    return str(value) if isinstance(value, Enum) else value


def _plain(value: object) -> Any:
    if type(value) in _LEAVES:
        return value
    if isinstance(value, JsonObject):
        return value.as_dict()
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return list(map(_plain, value))
    return _spelled(value)


class _ObjectPlan(NamedTuple):
    """How objects of a class are converted: keys, the mark of each, and a getter of all values."""

    keys: tuple[str, ...]
    marks: tuple[str, ...]
    get: Callable[[JsonObject], tuple[Any, ...]]


_PLANS: dict[type[JsonObject], _ObjectPlan] = {}


def _planned(kind: Any) -> _ObjectPlan:
    words = kind.KEYS.split() or [one.name for one in fields(kind)]
    marks = tuple(next((m for m in ("*", "?", ":hex") if m in word), "") for word in words)
    pairs = [word.strip("*?").removesuffix(":hex").partition("=") for word in words]
    names = [name or key for key, _, name in pairs]
    # attrgetter returns a tuple only for two or more names: a single name is passed twice.
    return _ObjectPlan(tuple(key for key, *_ in pairs), marks, attrgetter(*names, names[0]))


def equal_values(a: object, b: object) -> bool:
    """Whether two values are the same, including their types: 1 is not 1.0, and NaN equals NaN.

    The order of an object's keys does not matter.
    """
    if a is b:
        return True
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(equal_values(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(equal_values, a, b))
    if type(a) is not type(b):
        return False
    # NaN is the only value that differs from itself.
    return a == b or (a != a and b != b)


def pointer_part(key: str) -> str:
    """Return a key as it is escaped in a JSON pointer: RFC 6901, section 3."""
    return key.replace("~", "~0").replace("/", "~1")
