"""Edits of one character, as somebody makes them by hand, and where many come to the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TypeVar

from tests.kit.changes import is_nightly
from wtxtgit.text import grammar

# What takes the place of a character: one that is next to it, and some that change its kind.
_OTHERS = b"01af \n"
WORD = re.compile(rb"[0-9A-Za-z+/]{12,}")
"""What a hash, a signature or a chunk is spelled in."""
_EDGE = 2
"""Characters of such a word, at either end, that are tried as those beside it are."""
# Tests don't see what the variables of this run say.
IS_NIGHTLY = is_nightly()

T = TypeVar("T")


@cache
def inside_of_words(text: bytes) -> frozenset[int]:
    """Where a character stands among many of its kind, and nothing but its place tells it apart.

    Every night there is no such place: each character is tried in every way.
    """
    words = [] if IS_NIGHTLY else WORD.finditer(text)
    return frozenset(at for word in words for at in range(word.start() + _EDGE, word.end() - _EDGE))


def in_turn(ways: Sequence[T], at: int) -> tuple[T, T]:
    """Two of the ways in which a character is changed; those beside it have others."""
    return ways[at % len(ways)], ways[(at + 3) % len(ways)]


def edits(text: bytes) -> Iterator[bytes]:
    """All texts with one character of a line that is no armor changed, dropped or doubled.

    Inside of a word each character is edited in two of these ways, which take turns.
    """
    at = 0
    for line in text.splitlines(keepends=True):
        if len(line) != grammar.LINE_TEXT:
            for place in range(at, at + len(line)):
                before, one, after = text[:place], text[place], text[place + 1 :]
                others = sorted({*_OTHERS, one ^ 1, one ^ 0x20} - {one})
                made = [before + bytes((other,)) + after for other in others]
                made += [before + after, before + bytes((one, one)) + after]
                yield from in_turn(made, place) if place in inside_of_words(text) else made
        at += len(line)
