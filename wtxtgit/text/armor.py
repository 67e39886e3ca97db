"""Armor: raw bytes as base64 lines of 79 bytes, and back.

`docs/spec/wtxt.md`, section "Armor". A line is 76 base64 characters, a
space, a parity nibble and LF; it holds 57 raw bytes, the last line of a chunk
the rest, filled with `=`. All work is done on whole blocks of lines with
numpy: a block is `count` chunks of `size` bytes each whose lines start
`stride` bytes apart in the text. There is no Python loop over lines except
in `diagnose`, which looks for the first bad line of a damaged chunk.
"""

from __future__ import annotations

import re
from binascii import Error as Base64Error
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pybase64
from numpy.typing import NDArray

from wtxtgit.text.grammar import LINE_BASE64, LINE_RAW, LINE_TEXT

U1 = NDArray[np.uint8]

_RECORD = np.dtype([("base64", f"V{LINE_BASE64}"), ("parity", "<u2"), ("end", "u1")])
"""A line as numpy sees it; `parity` is the space and the nibble."""
_FILL = ord("=")
_ZERO = ord("A")
"""The base64 character of six zero bits, which stands in for a fill while (de)coding."""
_FILL_PARITY = (_FILL ^ _ZERO) & 0xF
"""What one fill character in the place of an `A` changes in a line's parity."""
_WORDS = LINE_BASE64 // 4
_HEX_DIGITS = b"0123456789abcdef"
_PARITY_FIELDS = np.array([ord(" ") | digit << 8 for digit in _HEX_DIGITS], dtype="<u2")
_LF = ord("\n")
_LINE = re.compile(rb"([A-Za-z0-9+/]*)(=*) ([0-9a-f])\n")


def line_count(size: int) -> int:
    """Lines of a chunk of `size` raw bytes; an empty chunk has one."""
    return max(1, -(-size // LINE_RAW))


def fill_count(size: int) -> int:
    """How many `=` end the last line of a chunk of `size` raw bytes."""
    tail = size - (line_count(size) - 1) * LINE_RAW
    return LINE_BASE64 - characters(tail)


def characters(raw: int) -> int:
    """Base64 characters, padding aside, that hold `raw` bytes."""
    return (raw * 4 + 2) // 3


def encode(raw: memoryview, count: int, size: int, text: U1, start: int, stride: int) -> None:
    """Armor `count` chunks of `size` bytes, back to back in `raw`, into `text`.

    `text` is the flat uint8 array to write into; the lines of the first chunk
    go to `start`, those of the next `stride` bytes further.
    """
    lines = line_count(size)
    padded = lines * LINE_RAW
    source = np.frombuffer(raw, dtype=np.uint8, count=count * size).reshape(count, size)
    if padded != size:
        filled = np.empty((count, padded), dtype=np.uint8)
        filled[:, :size] = source
        filled[:, size:] = 0
        source = filled
    encoded = np.frombuffer(pybase64.b64encode(source.data.cast("B")), dtype=np.uint8)
    parity = _parity(encoded).reshape(count, lines)
    fill = fill_count(size)
    if fill & 1:
        parity[:, -1] ^= _FILL_PARITY
    records: Any = np.ndarray(
        (count, lines), dtype=_RECORD, buffer=text, offset=start, strides=(stride, LINE_TEXT)
    )
    records["base64"] = encoded.view(f"V{LINE_BASE64}").reshape(count, lines)
    records["parity"] = _PARITY_FIELDS.take(parity)
    records["end"] = _LF
    if fill:
        _fill_view(text, count, lines, fill, start, stride)[...] = _FILL


def decode(text: U1, count: int, size: int, start: int, stride: int) -> U1 | None:
    """Take `count` chunks of `size` bytes out of the armor in `text`.

    Returns contiguous uint8 of shape (count, size), or None where any line is not
    exactly what `encode` writes: `diagnose` then says which and why.
    """
    lines = line_count(size)
    records: Any = np.ndarray(
        (count, lines), dtype=_RECORD, buffer=text, offset=start, strides=(stride, LINE_TEXT)
    )
    encoded = np.array(records["base64"]).view(np.uint8).reshape(count, lines, LINE_BASE64)
    parity = _parity(encoded.reshape(-1)).reshape(count, lines)
    if not (records["parity"] == _PARITY_FIELDS.take(parity)).all():
        return None
    if not (records["end"] == _LF).all():
        return None
    fill = fill_count(size)
    if fill:
        end = encoded[:, -1, LINE_BASE64 - fill :]
        if not (end == _FILL).all():
            return None
        end[...] = _ZERO
    try:
        raw = pybase64.b64decode(encoded.reshape(-1).data, validate=True)
    except (Base64Error, ValueError):
        return None
    padded = lines * LINE_RAW
    if len(raw) != count * padded:
        return None
    chunks = np.frombuffer(raw, dtype=np.uint8).reshape(count, padded)
    if padded != size:
        if chunks[:, size:].any():
            return None
        chunks = np.ascontiguousarray(chunks[:, :size])
    return chunks


@dataclass(frozen=True, slots=True)
class LineFault:
    """What is wrong with line `index` (from 0) of a chunk.

    `kind` is syntax, base64 or parity; `stops` tells that what follows can't
    be read on.
    """

    kind: str
    index: int
    message: str
    stops: bool


def diagnose(text: memoryview, size: int) -> tuple[list[LineFault], bytes]:
    """Read a damaged chunk line by line.

    `text` are the chunk's lines. Returns the faults, at most the first of each
    kind and none after one that stops, and the raw bytes of the lines that
    could be read.
    """
    faults: dict[str, LineFault] = {}
    raw = bytearray()
    lines = line_count(size)
    for index in range(lines):
        line = bytes(text[index * LINE_TEXT : (index + 1) * LINE_TEXT])
        held = LINE_RAW if index < lines - 1 else size - index * LINE_RAW
        found = list(_line_faults(line, index, held))
        for fault in found:
            faults.setdefault(fault.kind, fault)
        if any(fault.stops for fault in found):
            break
        body = line[: characters(held)]
        raw += pybase64.b64decode(body + b"A" * (LINE_BASE64 - len(body)))[:held]
    return list(faults.values()), bytes(raw)


def _line_faults(line: bytes, index: int, held: int) -> Iterator[LineFault]:
    if (m := _LINE.fullmatch(line)) is None or len(line) != LINE_TEXT:
        shown = ascii(line[:24].decode("latin-1"))
        yield LineFault("syntax", index, f"not 76 base64 characters and a parity: {shown}", True)
        return
    body = m[1]
    if len(body) != characters(held):
        wanted = characters(held)
        message = f"{len(body)} base64 characters, {held} bytes take {wanted}"
        yield LineFault("base64", index, message, True)
        return
    unused = len(body) * 6 - held * 8
    if unused and _sextet(body[-1]) & ((1 << unused) - 1):
        message = "unused low bits of the last character are set"
        yield LineFault("base64", index, message, False)
    parity = 0
    for byte in line[:LINE_BASE64]:
        parity ^= byte
    if _HEX_DIGITS[parity & 0xF] != m[3][0]:
        message = f"parity is {parity & 0xF:x}, the line says {m[3].decode()}"
        yield LineFault("parity", index, message, False)


@lru_cache(maxsize=64)
def _sextet(character: int) -> int:
    return pybase64.b64decode(bytes((character,)) + b"AAA")[0] >> 2


def _parity(encoded: U1) -> NDArray[np.uint32]:
    """Parity nibble, 0 to 15, of each 76 characters of `encoded`."""
    words = encoded.view(np.uint32)
    folded: NDArray[np.uint32] = np.bitwise_xor.reduceat(words, _line_starts(words.size))
    folded ^= folded >> 16
    folded ^= folded >> 8
    folded &= 0xF
    return folded


@lru_cache(maxsize=8)
def _line_starts(words: int) -> NDArray[np.intp]:
    return np.arange(0, words, _WORDS)


def _fill_view(text: U1, count: int, lines: int, fill: int, start: int, stride: int) -> U1:
    offset = start + (lines - 1) * LINE_TEXT + LINE_BASE64 - fill
    return np.ndarray(
        (count, fill), dtype=np.uint8, buffer=text, offset=offset, strides=(stride, 1)
    )
