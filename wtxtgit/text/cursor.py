"""A cursor over the lines of a text, of which a part is at hand at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from wtxtgit.errors import TextError
from wtxtgit.io.view import ByteView, mapped, pieces
from wtxtgit.text import armor, grammar

_T = TypeVar("_T")

_SHOWN = 40
"""How many bytes of a wrong line a message quotes."""
HELD = 1024 * 1024
"""Bytes of a large text that are at hand at a time."""
LEAST = 4096
"""At least so many of them follow: most lines are shorter."""


class LineCursor:
    """A cursor over a text's lines; `line` is the number of the line at `pos`.

    Faults are raised as TextError with the line, and the array and chunk that
    the cursor is in.
    """

    def __init__(self, text: ByteView) -> None:
        self._text = text
        self._held = text if isinstance(text, memoryview) else mapped(text[:HELD])
        self._first = 0
        self._pos = 0
        self._line = 1
        self._array: str | None = None
        self._chunk: int | None = None

    def _find_bad_line(self, start: int, first: int, lines: int) -> None:
        """A chunk's lines do not end where they should: fail at the first that is off."""
        faults, _ = armor.diagnose(self._text[start:], lines * grammar.LINE_RAW)
        # Lines that are whole but of the wrong count of characters are another fault.
        bad = next((fault for fault in faults if fault.kind == "syntax"), None)
        at = lines if bad is None else bad.index
        self._pos = min(len(self._text), start + at * grammar.LINE_TEXT)
        self._line = first + at
        if bad is not None and self._pos < len(self._text):
            if len(self._text) - self._pos < grammar.LINE_TEXT and self._no_more_lines():
                self._fail("syntax", "the text ends inside a chunk")
            self._fail("syntax", bad.message)
        if self._pos == len(self._text):
            self._fail("syntax", "the text ends inside a chunk")

    def _no_more_lines(self) -> bool:
        return b"\n" not in bytes(self._text[self._pos :])

    def _at(self, start: bytes) -> bool:
        held, at = self._near()
        return held[at : at + len(start)] == start

    def _expect(self, line: bytes) -> None:
        if not self._at(line):
            self._fail("syntax", f"{line.decode().rstrip()} is wanted, there is {self._shown()}")
        self._pos += len(line)
        self._line += 1

    def _take(self, parse: Callable[[memoryview, int], tuple[_T, int] | None], label: str) -> _T:
        held, at = self._near()
        parsed = parse(held, at)
        if parsed is None and not self._holds_line():
            parsed = parse(self._whole_line(), 0)
            at = 0
        if parsed is None:
            self._fail("syntax", f"not a proper {label} line: {self._shown()}")
        value, end = parsed
        self._pos += end - at
        self._line += 1
        return value

    def _near(self) -> tuple[memoryview, int]:
        """The text from here on, as far as it is at hand, and where in that this is."""
        at = self._pos - self._first
        end = self._first + len(self._held)
        if self._pos + LEAST > end and end < len(self._text):
            self._first, at = self._pos, 0
            self._held = mapped(self._text[self._pos : self._pos + HELD])
        return self._held, at

    def _holds_line(self) -> bool:
        """Whether what is at hand goes on to the end of the line."""
        held, at = self._near()
        return self._first + len(held) == len(self._text) or b"\n" in bytes(held[at:])

    def _whole_line(self) -> memoryview:
        """The line here, however long it is."""
        end = self._pos
        for piece in pieces(self._text[self._pos :]):
            found = bytes(piece).find(b"\n")
            end += len(piece) if found < 0 else found + 1
            if found >= 0:
                break
        return mapped(self._text[self._pos : end])

    def _shown(self) -> str:
        if self._pos >= len(self._text):
            return "the end of the text"
        rest = bytes(self._text[self._pos : self._pos + _SHOWN + 1])
        line = rest.split(b"\n", 1)[0]
        return quote(line[:_SHOWN]) + ("..." if len(line) > _SHOWN else "")

    def _fail(self, kind: str, message: str, *, line: int | None = None) -> NoReturn:
        raise TextError(
            kind, message, line=line or self._line, array=self._array, chunk=self._chunk
        )


def quote(raw: bytes) -> str:
    """Bytes in double quotes, everything but printable ASCII escaped."""
    return '"' + ascii(raw.decode("latin-1"))[1:-1].replace('"', '\\"') + '"'
