"""JSON from untrusted files, read within limits that no option changes.

The limits are part of the canonical form: the same bytes are read, or
refused, by every release on every machine. Depth and integers are those of
the text, so they count in a value that a later duplicate key replaces, too.
Spec: `docs/spec/containers.md`, "What is opaque".
"""

from __future__ import annotations

import json
import re
from itertools import accumulate

from wtxtgit.containers.cursor import fail, quoted
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView

MAX_DEPTH = 64
"""Containers inside one another, the outermost one counted as 1."""
MIN_INTEGER = -(2**63)
MAX_INTEGER = 2**64 - 1
MAX_INTEGER_CHARACTERS = len(str(MIN_INTEGER))
FIRST_SCAN = 256
"""Bytes looked at first for a NUL, which no JSON text holds."""

_STRING = re.compile(rb'"[^"]*"')
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""Brackets as signed bytes: what each adds to the depth."""
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[{]}")


def parse(data: ByteView, what: str, *, offset: int = 0, unique_keys: bool = False) -> object:
    """The value of a JSON text that starts at `offset` of its file.

    NaN and Infinity are read. Of equal keys the last one counts, unless
    `unique_keys` refuses them. `what` names the text in errors.

    Raises FormatError (limit or structure).
    """
    if len(data) > MAX_JSON:
        fail(f"{what} of {len(data)} bytes is too long", offset=offset, field=what, kind="limit")
    _refuse_nul(data, what, offset)
    raw = bytes(data)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        fail(f"{what} is not UTF-8", offset=offset + error.start, field=what)
    if _depth(raw) > MAX_DEPTH:
        fail(f"{what} is nested too deeply", offset=offset, field=what, kind="limit")

    def integer(digits: str) -> int:
        value = int(digits) if len(digits) <= MAX_INTEGER_CHARACTERS else MAX_INTEGER + 1
        if not MIN_INTEGER <= value <= MAX_INTEGER:
            fail(f"{what} has an integer over 64 bits", offset=offset, field=what, kind="limit")
        return value

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        value = dict(pairs)
        if len(value) < len(pairs):
            fail(f"{what} has the same key twice", offset=offset, field=what)
        return value

    try:
        value: object = json.loads(
            text, parse_int=integer, object_pairs_hook=unique if unique_keys else None
        )
    except json.JSONDecodeError as error:
        fail(f"{what} is not JSON", offset=offset + len(text[: error.pos].encode()), field=what)
    except RecursionError:
        fail(f"{what} is nested too deeply", offset=offset, field=what, kind="limit")
    return value


def check_name(name: str, what: str, *, offset: int) -> None:
    """Refuse a name that no UTF-8 text can hold (a lone surrogate)."""
    if name.isascii():
        return
    try:
        name.encode()
    except UnicodeEncodeError:
        raise FormatError(
            f"{what} {quoted(name)} has a lone surrogate", offset=offset, field=what
        ) from None


def _refuse_nul(data: ByteView, what: str, offset: int) -> None:
    """Refuse binary data after a look at the bytes before its first NUL only.

    Files may claim the same bytes as many texts; each claim must cost no
    more than what it can be read for.
    """
    start, step = 0, FIRST_SCAN
    while start < len(data):
        found = bytes(data[start : start + step]).find(0)
        if found >= 0:
            fail(f"{what} is not JSON", offset=offset + start + found, field=what)
        start, step = start + step, step * 2


def _depth(raw: bytes) -> int:
    """How deep a JSON text nests; any number if it is no JSON."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return 0
    without_escapes = raw.replace(rb"\\", b"").replace(rb"\"", b"")
    brackets = _STRING.sub(b"", without_escapes).translate(_STEPS, _NOT_BRACKETS)
    return max(accumulate(memoryview(brackets).cast("b")), default=0)
