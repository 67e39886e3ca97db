"""Edits of one character, as somebody makes them by hand."""

from __future__ import annotations

from collections.abc import Iterator

from wtxtgit.text import grammar

# What takes the place of a character: one that is next to it, and some that change its kind.
_OTHERS = b"01af \n"


def edits(text: bytes) -> Iterator[bytes]:
    """All texts with one character of a line that is no armor changed, dropped or doubled."""
    at = 0
    for line in text.splitlines(keepends=True):
        if len(line) != grammar.LINE_TEXT:
            for place in range(at, at + len(line)):
                before, one, after = text[:place], text[place], text[place + 1 :]
                for other in {*_OTHERS, one ^ 1, one ^ 0x20} - {one}:
                    yield before + bytes((other,)) + after
                yield before + after
                yield before + bytes((one, one)) + after
        at += len(line)
