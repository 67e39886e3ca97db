"""Intervals [start, end) of bytes that may overlap: which ones do, and which lie apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Span = tuple[int, int]
"""First byte and end."""
T = TypeVar("T")


def overlaps(items: Iterable[T], span: Callable[[T], Span]) -> Iterator[tuple[T, T]]:
    """Items that start before another one's end, each with that which reaches furthest before it.

    They come by where they start; of equal starts, the shorter first.
    """
    before: T | None = None
    reached = 0
    for item in sorted(items, key=span):
        start, end = span(item)
        if before is not None and start < reached:
            yield item, before
        if before is None or end > reached:
            before, reached = item, end


def groups(items: Iterable[T], span: Callable[[T], Span]) -> Iterator[list[T]]:
    """Items by where they start, those that overlap, or overlap the same ones, together."""
    group: list[T] = []
    reached = 0
    for item in sorted(items, key=span):
        start, end = span(item)
        if group and start >= reached:
            yield group
            group = []
        group.append(item)
        reached = max(reached, end)
    if group:
        yield group
