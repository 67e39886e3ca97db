"""What the opcodes of a pickle make here: values that do nothing.

Containers are classes of their own, compared by identity alone: hashing or
comparing what a file holds could call for time or depth without bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Global:
    """The name of a class or function. Nothing is imported."""

    module: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True, slots=True, eq=False)
class LongInteger:
    """An integer of so many bytes that nothing is done with it."""

    nbytes: int


@dataclass(slots=True, eq=False)
class List:
    """A list."""

    items: list[object] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Set:
    """A set or frozenset, items as written."""

    items: list[object] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Dict:
    """A dict, pairs as written: a key may be there twice, then the last one counts."""

    pairs: list[tuple[object, object]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Made:
    """What a call of `callee` with `args` would have made, had anything been called.

    `states` are what would have been given to its `__setstate__`, `items`
    and `pairs` what would have been added to it as to a list or a dict.
    """

    callee: object
    args: tuple[object, ...]
    kwargs: object = None
    states: list[object] = field(default_factory=list)
    items: list[object] = field(default_factory=list)
    pairs: list[tuple[object, object]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Pickle:
    """A pickle that was read: the value, the globals it names, where it ends."""

    root: object
    protocol: int
    opcodes: frozenset[int]
    globals: tuple[Global, ...]
    end: int
