"""The order of what two sides hold together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

_Key = TypeVar("_Key", bound=Hashable)


def in_order(mine: Iterable[_Key], other: Iterable[_Key]) -> Iterator[_Key]:
    """The keys of one side in its order, each followed by what the other one has behind it."""
    held = dict.fromkeys(mine)
    behind: dict[_Key | None, list[_Key]] = {}
    last: _Key | None = None
    for key in other:
        if key in held:
            last = key
        else:
            behind.setdefault(last, []).append(key)
    yield from behind.get(None, ())
    for key in held:
        yield key
        yield from behind.get(key, ())
