"""Armor of whole blocks of lines at a time, with numpy.

`docs/spec/wtxt.md`, section "Armor". A block is `count` chunks of `size` bytes each whose lines
start `stride` bytes apart in the text. There is no Python loop over lines. This is a separate
module because importing numpy takes long: texts of few lines, such as detached ones, do without.
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
# The change in a line's parity if an `A` is replaced by one fill character.
_FILL_PARITY = (_FILL ^ _ZERO) & 0xF
_WORDS = LINE_BASE64 // 4
_LINE_TYPE = f"V{LINE_BASE64}"
_PASS_RAW = PASS_LINES * LINE_RAW
# Maps the XOR of a line's characters to the space and the parity nibble that end the line.
_PARITY_FIELDS = np.array(
    [ord(" ") | HEX_DIGITS[byte & 0xF] << 8 for byte in range(256)], dtype="<u2"
)
_LF = ord("\n")


def encode(raw: memoryview, count: int, size: int, text: U1, start: int, stride: int) -> None:
    """Armor `count` chunks of `size` bytes, which lie back to back in `raw`, into `text`.

    `text` is the flat uint8 array to write into. The lines of the first chunk go to `start`, those
    of each next chunk `stride` bytes further on.
    """
    for chunks, length, at, place in _passes(count, size, stride):
        piece = raw[at : at + chunks * length]
        _encode(piece, chunks, length, text, start + place, stride)


def _passes(count: int, size: int, stride: int) -> Iterator[tuple[int, int, int, int]]:
    """Split a block into passes: chunks, bytes of each, offset in `raw`, offset in `text`.

    A chunk that is too long for one pass is cut into pieces of whole lines, each of which is
    encoded or decoded like a chunk.
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
    # Raw bytes are padded with zeros to whole lines. The padding encodes as `A`, which is replaced
    # by `=` at the end; parities count the `A` until `_FILL_PARITY` corrects them.
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
    """Decode `count` chunks of `size` bytes from the armor in `text`.

    Returns read-only contiguous uint8 of shape (count, size), or None if any line is not exactly
    what `encode` writes: `diagnose` then says which line and why.
    """
    if count == 1 and line_count(size) <= PASS_LINES:
        return _decode(text, 1, size, start, stride)
    chunks = np.empty(count * size, dtype=np.uint8)
    for number, length, at, place in _passes(count, size, stride):
        raw = _decode(text, number, length, start + place, stride)
        if raw is None:
            return None
        # Padding lies between the chunks in `raw`, so a copy is needed anyway.
        chunks[at : at + number * length].reshape(number, length)[...] = raw
    return chunks.reshape(count, size)


def _decode(text: U1 | memoryview, count: int, size: int, start: int, stride: int) -> U1 | None:
    """Decode as `decode` does, in one pass; the chunks' lines may lie apart in `text`."""
    lines = line_count(size)
    records = _records(text, count, lines, start, stride)
    characters = _scratch().base64[: count * lines * LINE_BASE64]
    characters.view(_LINE_TYPE).reshape(count, lines)[...] = records["base64"]
    fill = fill_count(size)
    if fill:
        # The fill is compared here, as `encode` writes it; all other characters are decoded.
        end = characters.reshape(count, lines, LINE_BASE64)[:, -1, LINE_BASE64 - fill :]
        if not (end == _FILL).all():
            return None
        end[...] = _ZERO
    raw = _decoded(records, characters, _last_lines(lines, fill))
    if raw is None:
        return None
    # Bytes behind the chunk come from fill and unused bits, which are zeros in the one valid
    # spelling.
    chunks = np.frombuffer(raw, dtype=np.uint8).reshape(count, lines * LINE_RAW)
    return None if chunks[:, size:].any() else chunks[:, :size]


def _decoded(records: Any, characters: U1, odd: slice | list[int]) -> bytes | None:
    """Decode lines whose fill was replaced by `A`; returns None if a line is not as encoded.

    `characters` are those of `records`; `odd` is as for `_parity_fields`.
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
    # A `=` in the middle ends the decoding early, so the length shows it.
    return raw if len(raw) == records.size * LINE_RAW else None


def encode_short(raws: Sequence[memoryview]) -> bytearray:
    """Return the lines of chunks of any sizes, one after another: for many short chunks.

    Together they must have at most `PASS_LINES` lines.
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
    """Decode chunks of any sizes, each given as its lines and its size.

    Together they must have at most `PASS_LINES` lines. Returns None if any line is not exactly what
    `encode` writes.
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
    """Return the lines with an odd number of fill characters, which changes their parity."""
    return [line for line, fill in fills if fill & 1]


class _Scratch(threading.local):
    """A thread's buffers for one pass, reused: fresh pages cost as much as hashing them."""

    def __init__(self) -> None:
        # Never cleared: every pass writes the parts that it reads.
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
    """Select the last line of each chunk of `lines` lines, if the fill changes its parity."""
    return slice(lines - 1, None, lines) if fill & 1 else slice(0)


def _parity_fields(encoded: U1, odd: slice | list[int], scratch: _Scratch) -> NDArray[np.uint16]:
    """Return the space and parity nibble of every line.

    `encoded` has `A` (zeros) in place of the fill; `odd` selects the lines with an odd number of
    fill characters.
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
    """Put the XOR of every line's characters into `folded`; the number of lines is even.

    Two lines are 19 words of 8 bytes, the middle one of which belongs to both. Two passes over all
    words XOR each word with the three that follow it; of these results each line takes two, plus
    its last word. A few long calls let other threads run: numpy releases the interpreter's lock in
    each of them, while `reduceat`, which is as fast, never releases it.
    """
    pairs = folded.size // 2
    words = encoded.view(np.uint64)
    two, four = scratch.two[: words.size], scratch.four[: words.size]
    np.bitwise_xor(words[:-1], words[1:], out=two[:-1])
    np.bitwise_xor(two[:-2], two[2:], out=four[:-2])
    sums = scratch.sums[:pairs]
    # Without `order` numpy would run its inner loop over the shorter axis.
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
    """View word `first` of each line, in shape (2, pairs): row 0 first lines, row 1 second lines.

    A second line starts inside the middle word, so its words count from the next whole word.
    """
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
    """Write chunks of one size into `text` from `start` on; returns the position after them.

    `raw` holds the chunks back to back, one for each of `sha256` and `crc32c`. The first is chunk
    number `first` of its array, at byte `offset` of the array.
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
