"""Armor: raw bytes as base64 lines of 79 bytes, and back, for texts of few lines.

`docs/spec/wtxt.md`, section "Armor". A line is 76 base64 characters, a space, a parity nibble and
LF. It holds 57 raw bytes; the last line of a chunk holds the rest and is filled with `=`. This
module decodes lines in plain Python; `block_armor.py` works on whole blocks of lines with numpy.
"""

from __future__ import annotations

import re
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import xor

from wtxtgit.io.view import ByteView
from wtxtgit.text.grammar import (
    FILLS,
    HEX_DIGITS,
    LINE_BASE64,
    LINE_RAW,
    LINE_TEXT,
    MAX_INLINE,
    ZEROS,
    characters,
    fill_count,
    line_count,
)

_NIBBLES = HEX_DIGITS * 16
_LINE = re.compile(rb"([A-Za-z0-9+/]*)(=*) ([0-9a-f])\n")

FEW_LINES = -(-MAX_INLINE // LINE_RAW)
"""Up to this many lines of a chunk numpy would gain nothing, and importing it takes far longer."""


def decode_few(text: ByteView, size: int) -> memoryview | None:
    """Decode a chunk of `size` bytes whose lines are all of `text`; meant for few lines.

    Returns None if any line is not exactly what the writer writes: `diagnose` then says which line
    and why.
    """
    lines = line_count(size)
    armor = bytes(text)
    if len(armor) != lines * LINE_TEXT:
        return None
    spelled = b"".join(armor[at : at + LINE_BASE64] for at in range(0, len(armor), LINE_TEXT))
    # Column by column: XOR all characters of each line into one byte per line.
    columns = (spelled[place::LINE_BASE64] for place in range(LINE_BASE64))
    parity = reduce(xor, (int.from_bytes(column, "little") for column in columns))
    if (
        armor[LINE_BASE64::LINE_TEXT] != b" " * lines
        or armor[LINE_BASE64 + 1 :: LINE_TEXT]
        != parity.to_bytes(lines, "little").translate(_NIBBLES)
        or armor[LINE_BASE64 + 2 :: LINE_TEXT] != b"\n" * lines
    ):
        return None
    end = len(spelled) - fill_count(size)
    fill = spelled[end:]
    if fill != FILLS[: len(fill)]:
        return None
    try:
        raw = a2b_base64(spelled[:end] + ZEROS[: len(fill)])
    except Base64Error:
        return None
    # Characters outside base64 are skipped; unused bits must be zeros in the one valid spelling.
    if len(raw) != lines * LINE_RAW or any(raw[size:]):
        return None
    return memoryview(raw)[:size]


@dataclass(frozen=True, slots=True)
class LineFault:
    """What is wrong with line `index` (from 0) of a chunk.

    `kind` is syntax, base64 or parity; `stops` says that the lines after it can't be read.
    """

    kind: str
    index: int
    message: str
    stops: bool


def diagnose(text: ByteView, size: int) -> tuple[list[LineFault], bytes]:
    """Read a damaged chunk line by line.

    `text` is the chunk's lines. Returns the faults (only the first of each kind, and none after one
    that stops the reading) and the raw bytes of the lines that could be read.
    """
    faults: dict[str, LineFault] = {}
    raw = bytearray()
    lines = line_count(size)
    for index in range(lines):
        line = bytes(text[index * LINE_TEXT : (index + 1) * LINE_TEXT])
        length = LINE_RAW if index < lines - 1 else size - index * LINE_RAW
        for fault in _line_faults(line, index, length):
            # Only the first of a kind: thousands of damaged lines are one finding.
            faults.setdefault(fault.kind, fault)
            if fault.stops:
                return list(faults.values()), bytes(raw)
        body = line[: characters(length)]
        raw += a2b_base64(body + ZEROS[len(body) :])[:length]
    return list(faults.values()), bytes(raw)


def _line_faults(line: bytes, index: int, length: int) -> Iterator[LineFault]:
    if (m := _LINE.fullmatch(line)) is None or len(line) != LINE_TEXT:
        shown = ascii(line[:24].decode("latin-1"))
        yield LineFault("syntax", index, f"not 76 base64 characters and a parity: {shown}", True)
        return
    body = m[1]
    if len(body) != characters(length):
        expected = characters(length)
        message = f"{len(body)} base64 characters, {length} bytes take {expected}"
        yield LineFault("base64", index, message, True)
        return
    unused = len(body) * 6 - length * 8
    if unused and _sextet(body[-1]) & ((1 << unused) - 1):
        message = "unused low bits of the last character are set"
        yield LineFault("base64", index, message, False)
    parity = 0
    for byte in line[:LINE_BASE64]:
        parity ^= byte
    if HEX_DIGITS[parity & 0xF] != m[3][0]:
        message = f"parity is {parity & 0xF:x}, the line says {m[3].decode()}"
        yield LineFault("parity", index, message, False)


@lru_cache(maxsize=64)
def _sextet(character: int) -> int:
    return a2b_base64(bytes((character,)) + b"AAA")[0] >> 2
