"""Armor of whole blocks of lines, all of them together, with numpy.

`docs/spec/wtxt.md`, section "Armor". A block is `count` chunks of `size` bytes each whose lines
start `stride` bytes apart in the text. There is no Python loop over lines. It is a module of its
own as texts of few lines, such as detached ones, do without numpy, whose import takes longer.
"""

from __future__ import annotations

import threading
from binascii import Error as Base64Error
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pybase64
from numpy.typing import NDArray

from wtxtgit.text import grammar
from wtxtgit.text.grammar import (
    FILLS,
    HEX_DIGITS,
    LINE_BASE64,
    LINE_RAW,
    LINE_TEXT,
    PASS_LINES,
    ZEROS,
    chunk_line_size,
    chunk_text_size,
    fill_count,
    line_count,
)

U1 = NDArray[np.uint8]

# A line as numpy sees it; `parity` is the space and the nibble.
_RECORD = np.dtype([("base64", f"V{LINE_BASE64}"), ("parity", "<u2"), ("end", "u1")])
_FILL = ord("=")
_ZERO = ord("A")
# What one fill character in the place of an `A` changes in a line's parity.
_FILL_PARITY = (_FILL ^ _ZERO) & 0xF
_WORDS = LINE_BASE64 // 4
_LINE_TYPE = f"V{LINE_BASE64}"
_PASS_RAW = PASS_LINES * LINE_RAW
# For the exclusive or of a line's characters, the space and the nibble that end it.
_PARITY_FIELDS = np.array(
    [ord(" ") | HEX_DIGITS[byte & 0xF] << 8 for byte in range(256)], dtype="<u2"
)
_LF = ord("\n")


def encode(raw: memoryview, count: int, size: int, text: U1, start: int, stride: int) -> None:
    """Armor `count` chunks of `size` bytes, back to back in `raw`, into `text`.

    `text` is the flat uint8 array to write into; the lines of the first chunk
    go to `start`, those of the next `stride` bytes further.
    """
    for chunks, length, at, place in _passes(count, size, stride):
        piece = raw[at : at + chunks * length]
        _encode(piece, chunks, length, text, start + place, stride)


def _passes(count: int, size: int, stride: int) -> Iterator[tuple[int, int, int, int]]:
    """What is worked on at a time: chunks, the bytes of each, where these and their lines are.

    Of a chunk that is too long for one pass a piece of whole lines is (de)coded as a
    chunk of its own would be.
    """
    lines = line_count(size)
    if lines > PASS_LINES:
        for k in range(count):
            for first in range(0, lines, PASS_LINES):
                length = min(_PASS_RAW, size - first * LINE_RAW)
                yield 1, length, k * size + first * LINE_RAW, k * stride + first * LINE_TEXT
        return
    step = PASS_LINES // lines
    for k in range(0, count, step):
        yield min(step, count - k), size, k * size, k * stride


def _encode(raw: memoryview, count: int, size: int, text: U1, start: int, stride: int) -> None:
    lines = line_count(size)
    padded = lines * LINE_RAW
    scratch = _scratch()
    # Filled up with zeros to whole lines: their characters, `A`, are replaced by `=` at the end,
    # and parities are of the `A` until `_FILL_PARITY` corrects them.
    if padded != size:
        source = np.frombuffer(raw, dtype=np.uint8, count=count * size).reshape(count, size)
        filled = scratch.raw[: count * padded].reshape(count, padded)
        filled[:, :size] = source
        filled[:, size:] = 0
        raw = scratch.raw.data[: count * padded]
    encoded = np.frombuffer(pybase64.b64encode(raw), dtype=np.uint8)
    fill = fill_count(size)
    records = _records(text, count, lines, start, stride)
    records["base64"] = encoded.view(_LINE_TYPE).reshape(count, lines)
    fields = _parity_fields(encoded, _last_lines(lines, fill), scratch)
    records["parity"] = fields.reshape(count, lines)
    records["end"] = _LF
    if fill:
        _fill_view(text, count, lines, fill, start, stride)[...] = _FILL


def decode(text: U1 | memoryview, count: int, size: int, start: int, stride: int) -> U1 | None:
    """Take `count` chunks of `size` bytes out of the armor in `text`.

    Returns contiguous uint8 of shape (count, size), not to be written to, or None
    where any line is not exactly what `encode` writes: `diagnose` then says which and why.
    """
    if count == 1 and line_count(size) <= PASS_LINES:
        return _decode(text, 1, size, start, stride)
    chunks = np.empty(count * size, dtype=np.uint8)
    for some, length, at, place in _passes(count, size, stride):
        raw = _decode(text, some, length, start + place, stride)
        if raw is None:
            return None
        # Bytes of the fill lie between the chunks of `raw`, so that it has to be copied anyway.
        chunks[at : at + some * length].reshape(some, length)[...] = raw
    return chunks.reshape(count, size)


def _decode(text: U1 | memoryview, count: int, size: int, start: int, stride: int) -> U1 | None:
    """As `decode`, of chunks that are done in one pass; they may lie apart from each other."""
    lines = line_count(size)
    records = _records(text, count, lines, start, stride)
    characters = _scratch().base64[: count * lines * LINE_BASE64]
    characters.view(_LINE_TYPE).reshape(count, lines)[...] = records["base64"]
    fill = fill_count(size)
    if fill:
        # As encoded: the fill is compared here, the rest of the characters decoded.
        end = characters.reshape(count, lines, LINE_BASE64)[:, -1, LINE_BASE64 - fill :]
        if not (end == _FILL).all():
            return None
        end[...] = _ZERO
    raw = _decoded(records, characters, _last_lines(lines, fill))
    if raw is None:
        return None
    # What stands behind the chunk came from fills and unused bits, which are zeros in the one
    # spelling.
    chunks = np.frombuffer(raw, dtype=np.uint8).reshape(count, lines * LINE_RAW)
    return None if chunks[:, size:].any() else chunks[:, :size]


def _decoded(records: Any, characters: U1, odd: slice | list[int]) -> bytes | None:
    """The raw bytes of lines, `A` in the place of a fill; None where a line is not as encoded.

    `characters` are those of `records`; `odd` as for `_parity_fields`.
    """
    fields = _parity_fields(characters, odd, _scratch())
    if not (records["parity"] == fields.reshape(records.shape)).all():
        return None
    if not (records["end"] == _LF).all():
        return None
    try:
        raw = pybase64.b64decode(characters.data, validate=True)
    except (Base64Error, ValueError):
        return None
    # A fill within the characters ends what is decoded.
    return raw if len(raw) == records.size * LINE_RAW else None


def encode_short(raws: Sequence[memoryview]) -> bytearray:
    """The lines of chunks of any sizes, one after another: for many that are short.

    They have at most `PASS_LINES` lines together.
    """
    padded = bytearray()
    fills: list[tuple[int, int]] = []
    for raw in raws:
        padded += raw
        if len(padded) % LINE_RAW or not raw.nbytes:
            padded += bytes(line_count(raw.nbytes) * LINE_RAW - raw.nbytes)
        fills.append((len(padded) // LINE_RAW - 1, fill_count(raw.nbytes)))
    encoded = np.frombuffer(pybase64.b64encode(padded), dtype=np.uint8)
    lines = len(padded) // LINE_RAW
    text = bytearray(lines * LINE_TEXT)
    records = _records(text, 1, lines, 0, 0)[0]
    records["base64"] = encoded.view(_LINE_TYPE)
    records["parity"] = _parity_fields(encoded, _odd_lines(fills), _scratch())
    records["end"] = _LF
    for line, fill in fills:
        end = line * LINE_TEXT + LINE_BASE64
        text[end - fill : end] = FILLS[:fill]
    return text


def decode_short(armored: Sequence[tuple[memoryview, int]]) -> list[memoryview] | None:
    """Chunks of any sizes, each given by its lines and its size.

    They have at most `PASS_LINES` lines together. None where any line is not
    exactly what `encode` writes.
    """
    text = bytearray()
    fills: list[tuple[int, int]] = []
    for lines, size in armored:
        text += lines
        end = len(text) - LINE_TEXT + LINE_BASE64
        fill = fill_count(size)
        if text[end - fill : end] != FILLS[:fill]:
            return None
        text[end - fill : end] = ZEROS[:fill]
        fills.append((len(text) // LINE_TEXT - 1, fill))
    records = _records(text, 1, len(text) // LINE_TEXT, 0, 0)[0]
    characters = np.array(records["base64"]).view(np.uint8)
    raw = _decoded(records, characters, _odd_lines(fills))
    if raw is None:
        return None
    chunks: list[memoryview] = []
    whole = memoryview(raw)
    position = 0
    for (line, _), (_, size) in zip(fills, armored, strict=True):
        end = (line + 1) * LINE_RAW
        # As in `_decode`: unused bits are zeros.
        if any(raw[position + size : end]):
            return None
        chunks.append(whole[position : position + size])
        position = end
    return chunks


def _odd_lines(fills: Sequence[tuple[int, int]]) -> list[int]:
    """The lines whose fill changes their parity."""
    return [line for line, fill in fills if fill & 1]


class _Scratch(threading.local):
    """What a thread needs for one pass, kept: fresh pages cost as much as hashing them."""

    def __init__(self) -> None:
        # Not cleared: every pass writes what it reads.
        self.raw: U1 = np.empty(_PASS_RAW, dtype=np.uint8)
        self.base64: U1 = np.empty(PASS_LINES * LINE_BASE64, dtype=np.uint8)
        pairs = PASS_LINES // 2
        self.two = np.empty(pairs * _WORDS, dtype=np.uint64)
        self.four = np.empty(pairs * _WORDS, dtype=np.uint64)
        self.sums = np.empty((pairs, 2), dtype=np.uint64)
        self.middle = np.empty(pairs, dtype=np.uint64)
        self.quarters = np.empty(PASS_LINES, dtype=np.uint32)
        self.last = np.empty(PASS_LINES, dtype=np.uint16)
        self.folded = np.empty(PASS_LINES, dtype=np.uint8)


@cache
def _scratch() -> _Scratch:
    return _Scratch()


def _records(
    text: U1 | bytearray | memoryview, count: int, lines: int, start: int, stride: int
) -> Any:
    return np.ndarray(
        (count, lines), dtype=_RECORD, buffer=text, offset=start, strides=(stride, LINE_TEXT)
    )


def _last_lines(lines: int, fill: int) -> slice:
    """The last lines of chunks of `lines` lines where their fill changes the parity."""
    return slice(lines - 1, None, lines) if fill & 1 else slice(0)


def _parity_fields(encoded: U1, odd: slice | list[int], scratch: _Scratch) -> NDArray[np.uint16]:
    """The space and nibble of every line.

    `encoded` has zeros (`A`) in the place of a fill; `odd` are the lines in
    which an odd number of characters are.
    """
    count = encoded.size // LINE_BASE64
    pairs, rest = divmod(count, 2)
    folded: U1 = scratch.folded[:count]
    if pairs:
        _fold_pairs(encoded[: pairs * 2 * LINE_BASE64], folded[: 2 * pairs], scratch)
    if rest:
        folded[-1] = np.bitwise_xor.reduce(encoded[-LINE_BASE64:])
    folded[odd] ^= _FILL_PARITY
    return _PARITY_FIELDS.take(folded)


def _fold_pairs(encoded: U1, folded: U1, scratch: _Scratch) -> None:
    """Put the exclusive or of every line's characters into `folded`; their number is even.

    Two lines are 19 words of 8 bytes, the middle one of which belongs to both.
    Words are joined with what follows them, by four, in two goes over all; of
    every line's then two results are taken, and its last word. Few calls that
    are long let other threads get on: numpy gives the interpreter's lock away
    in each, and `reduceat`, as fast as all of them, never does.
    """
    pairs = folded.size // 2
    words = encoded.view(np.uint64)
    two, four = scratch.two[: words.size], scratch.four[: words.size]
    np.bitwise_xor(words[:-1], words[1:], out=two[:-1])
    np.bitwise_xor(two[:-2], two[2:], out=four[:-2])
    sums = scratch.sums[:pairs]
    # Without an order numpy would take the shorter axis for its inner loop.
    lines = sums.T
    np.bitwise_xor(_of_lines(four, 0, pairs), _of_lines(four, 4, pairs), out=lines, order="C")
    np.bitwise_xor(lines, _of_lines(words, 8, pairs), out=lines, order="C")
    halves = sums.reshape(-1).view(np.uint32)
    quarters = scratch.quarters[: 2 * pairs]
    np.bitwise_xor(halves[::2], halves[1::2], out=quarters)
    middle = scratch.middle[:pairs]
    middle[:] = words[_WORDS // 2 :: _WORDS]
    np.bitwise_xor(quarters, middle.view(np.uint32), out=quarters)
    eighths = quarters.view(np.uint16)
    last = scratch.last[: 2 * pairs]
    np.bitwise_xor(eighths[::2], eighths[1::2], out=last)
    characters = last.view(np.uint8)
    np.bitwise_xor(characters[::2], characters[1::2], out=folded)


def _of_lines(words: NDArray[np.uint64], first: int, pairs: int) -> NDArray[np.uint64]:
    """Word `first` after the start of each line, of shape (2, pairs); a second one starts later."""
    size = words.itemsize
    strides = ((_WORDS // 2 + 1) * size, _WORDS * size)
    return np.ndarray((2, pairs), np.uint64, words.data, first * size, strides)


def _fill_view(text: U1, count: int, lines: int, fill: int, start: int, stride: int) -> U1:
    offset = start + (lines - 1) * LINE_TEXT + LINE_BASE64 - fill
    return np.ndarray(
        (count, fill), dtype=np.uint8, buffer=text, offset=offset, strides=(stride, 1)
    )


def render_chunks(
    text: U1,
    start: int,
    raw: memoryview,
    first: int,
    offset: int,
    sha256: Sequence[bytes],
    crc32c: Sequence[int],
) -> int:
    """Write chunks of one size into `text` from `start` on; returns where they end.

    `raw` holds the chunks back to back, one for each of `sha256` and `crc32c`.
    The first of them is number `first` of its array and stands at `offset` there.
    """
    count = len(sha256)
    size = raw.nbytes // count
    head, stride, lines = chunk_line_size(size), chunk_text_size(size), line_count(size)
    view = text.data
    position = start
    for k in range(count):
        line = grammar.ChunkLine(first + k, offset + k * size, size, sha256[k], crc32c[k], lines)
        view[position : position + head] = grammar.format_chunk(line)
        position += stride
        view[position - len(grammar.END_CHUNK) : position] = grammar.END_CHUNK
    encode(raw, count, size, text, start + head, stride)
    return position
