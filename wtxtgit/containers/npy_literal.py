"""The Python literals that numpy writes into headers, read by a grammar of their own.

Python's own reader differs between its releases, and can be made to recurse.

value   = dict | list | tuple | string | integer | "True" | "False"
dict    = "{" [value ":" value *("," value ":" value) [","]] "}"
list    = "[" [value *("," value) [","]] "]"
tuple   = "(" ")" | "(" value "," [value *("," value) [","]] ")" | "(" value ")", the value
string  = as `repr` writes it, in either quotes
integer = ["-"] digits without a leading zero, ["L"] as Python 2 wrote it

Keys of a dict are strings, and none is there twice. Blanks may stand between
all of these.
Spec: `docs/spec/npy.md`, "Header".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from wtxtgit.containers.cursor import fail
from wtxtgit.containers.json_text import is_text

# Greatest depth of nesting, the outermost value counted as 1: the reader below recurses.
MAX_DEPTH = 32
MIN_INTEGER = -(2**63)
MAX_INTEGER = 2**64 - 1
MAX_DIGITS = len(str(MAX_INTEGER))

_BLANKS = re.compile(r"[ \t\r\n]*")
_TOKEN = re.compile(
    r"(?P<mark>[][{}(),:])|(?P<word>True|False)(?![A-Za-z0-9_])"
    r"|(?P<integer>-?(?:0|[1-9][0-9]*))(?P<long>L?)(?![A-Za-z0-9_.])"
    r"""|'(?P<single>(?:[^'\\\r\n]|\\[^\r\n])*)'|"(?P<double>(?:[^"\\\r\n]|\\[^\r\n])*)\""""
)
_ESCAPE = re.compile(
    r"\\(?:(?P<mark>[\\'\"nrt])|x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})"
    r"|U(?P<U>[0-9a-fA-F]{8})|(?P<other>.))",
    re.DOTALL,
)
_MARKS = {"n": "\n", "r": "\r", "t": "\t"}


def parse(text: str, offset: int = 0, *, long_integers: bool = False) -> object:
    """Return the value of a literal that starts at byte `offset` of its file.

    `long_integers` allows an L after an integer. Raises FormatError.
    """
    reader = _LiteralReader(text, offset, long_integers)
    value = reader.value(1)
    reader.blanks()
    if reader.pos < len(text):
        reader.fail("header goes on after its dictionary")
    return value


@dataclass(slots=True)
class _LiteralReader:
    """A position in the text that moves with each token."""

    text: str
    offset: int
    long_integers: bool
    pos: int = 0

    def value(self, depth: int) -> object:
        if depth > MAX_DEPTH:
            self.fail("header is nested too deeply", kind="limit")
        token = self._token()
        mark = token["mark"]
        if mark == "{":
            return self._dict(depth)
        if mark == "[":
            return self._items(depth, "]")[0]
        if mark == "(":
            items, is_tuple = self._items(depth, ")")
            return tuple(items) if is_tuple else items[0]
        if token["word"] is not None:
            return token["word"] == "True"
        if token["integer"] is not None:
            return self._integer(token["integer"], token["long"])
        if mark is not None:
            self.fail("header is not a Python literal")
        return self._string(token["single"] if token["double"] is None else token["double"])

    def blanks(self) -> None:
        blanks = _BLANKS.match(self.text, self.pos)
        self.pos = blanks.end() if blanks else self.pos

    def fail(self, message: str, *, kind: str = "structure") -> NoReturn:
        # Characters of the text are bytes of the file, except in version 3.0.
        fail(message, offset=self.offset + self.pos, field="header", kind=kind)

    def _token(self) -> re.Match[str]:
        self.blanks()
        token = _TOKEN.match(self.text, self.pos)
        if token is None:
            self.fail("header is not a Python literal")
        self.pos = token.end()
        return token

    def _next_is(self, mark: str) -> bool:
        """Whether `mark` comes next; if so, skip it."""
        self.blanks()
        if not self.text.startswith(mark, self.pos):
            return False
        self.pos += len(mark)
        return True

    def _items(self, depth: int, closing: str) -> tuple[list[object], bool]:
        """Read values up to the closing mark; also return whether Python would read a tuple."""
        items: list[object] = []
        has_comma = True
        while not self._next_is(closing):
            if not has_comma:
                self.fail("header is not a Python literal")
            items.append(self.value(depth + 1))
            has_comma = self._next_is(",")
        return items, has_comma or len(items) != 1

    def _dict(self, depth: int) -> dict[str, object]:
        items: dict[str, object] = {}
        has_comma = True
        while not self._next_is("}"):
            key = self.value(depth + 1) if has_comma else None
            if not isinstance(key, str) or not self._next_is(":"):
                self.fail("header is not a Python literal")
            if key in items:
                self.fail("header repeats a key")
            items[key] = self.value(depth + 1)
            has_comma = self._next_is(",")
        return items

    def _integer(self, digits: str, suffix: str) -> int:
        if suffix and not self.long_integers:
            self.fail("header is not a Python literal")
        value = int(digits) if len(digits) <= MAX_DIGITS else MAX_INTEGER + 1
        if not MIN_INTEGER <= value <= MAX_INTEGER:
            self.fail("header has an integer of over 64 bits", kind="limit")
        return value

    def _string(self, raw: str) -> str:
        text = _ESCAPE.sub(self._character, raw) if "\\" in raw else raw
        if not is_text(text):
            self.fail("header has a lone surrogate")
        return text

    def _character(self, escape: re.Match[str]) -> str:
        mark, code = escape["mark"], escape["x"] or escape["u"] or escape["U"]
        if mark is not None:
            return _MARKS.get(mark, mark)
        if code is None or int(code, 16) > 0x10FFFF:
            self.fail("header has a string that can't be read")
        return chr(int(code, 16))
