"""The chunks of a damaged text's arrays: which are whole, mended, healed or lost.

A chunk counts only with bytes that its SHA-256 names. Where that can't be read, its
CRC-32C makes it likely, and the array's own SHA-256 has to prove it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from hashlib import sha256
from typing import Protocol

import numpy as np

from wtxtgit.model.array import (
    ITEM_SIZE,
    MAX_CHUNKS,
    Rows,
    bounded_product,
    chunk_count,
    default_rows,
)
from wtxtgit.model.checksum import crc32c
from wtxtgit.text import armor, grammar
from wtxtgit.text.grammar import LINE_TEXT
from wtxtgit.text.recovery.chunk import (
    ChunkClaim,
    is_near,
    lines_of,
    mend,
    mend_more,
    rearrange,
)
from wtxtgit.text.recovery.lines import KEYS, fields
from wtxtgit.text.recovery.reading import FoundArray, FoundChunk

_HEX = frozenset("0123456789abcdef")
_MOST_SPARE = 16_384
"""Lines of damaged chunks that may belong to another one."""
_MOST_SEARCHED = 64
"""Chunks for which the searches that take long are made."""


class ChunkState(StrEnum):
    """What became of a chunk."""

    INTACT = "intact"
    MENDED = "mended"
    HEALED = "healed"
    LOST = "lost"


class OtherCopies(Protocol):
    """Other places that may have what is lost."""

    def bytes_of(self, digest: str, nbytes: int) -> tuple[bytes, str] | None:
        """The bytes with a SHA-256, in hex, and a length, and where they are from."""

    def array(self, name: str) -> tuple[grammar.ArrayLine, Rows | None, bytes, str] | None:
        """An array of a name: what is said of it, its bytes, and where they are from."""


@dataclass(slots=True)
class Slot:
    """A chunk as an array wants it: number, bytes, and what was found for it."""

    ix: int
    size: int
    found: Sequence[FoundChunk] = ()
    state: ChunkState = ChunkState.LOST
    raw: bytes | None = None
    source: str | None = None
    is_proved: bool = False
    """Whether its own SHA-256 says so, and not its CRC-32C alone."""

    def put(self, raw: bytes, state: ChunkState, *, proved: bool = True) -> None:
        self.raw, self.state, self.is_proved = raw, state, proved


@dataclass(slots=True)
class ArrayPieces:
    """An array's lines as found, its size in bytes, and its chunks.

    `nbytes` is None where neither the `arr` line nor the chunks tell it.
    """

    found: FoundArray
    claim: grammar.ArrayLine | None
    rows: Rows | None
    nbytes: int | None = None
    chunk_size: int = 0
    slots: list[Slot] = field(default_factory=list)
    sha256: bytes | None = None
    """Of all its bytes, where they are there."""

    @property
    def is_whole(self) -> bool:
        return self.nbytes is not None and all(slot.raw is not None for slot in self.slots)

    @property
    def is_proved(self) -> bool:
        """Whether hashes of the text name all of its bytes."""
        return self.is_whole and (all(slot.is_proved for slot in self.slots) or self.fits_line())

    def fits_line(self) -> bool:
        """Whether its bytes have the SHA-256 of the `arr` line."""
        return self.sha256 is not None and is_near(self.sha256.hex(), self.claimed_sha256)

    @property
    def claimed_sha256(self) -> str | None:
        """What the `arr` line says, wrong characters and all."""
        line = self.found.line
        if line is None or len(line) < _HASHES:
            return None
        return line[len(line) - _HASHES + 8 :][:64].decode("latin-1")

    def data(self) -> Iterator[bytes]:
        """Its bytes in order, zeros for those that are lost."""
        for slot in self.slots:
            yield bytes(slot.size) if slot.raw is None else slot.raw


# ` sha256=` to the end of an `arr` line, its LF aside, with the space before it.
_HASHES = len(grammar.format_array_hashes(bytes(32), bytes(32), bytes(8)))


def pieces_of(found: FoundArray) -> ArrayPieces:
    """What an array should have, as far as its lines tell."""
    line = b"" if found.line is None else found.line + b"\n"
    parsed = grammar.parse_array(line, 0)
    claim = None if parsed is None or grammar.check_bytes(parsed[0]) is not None else parsed[0]
    rows_line = b"" if found.rows_line is None else found.rows_line + b"\n"
    parsed_rows = grammar.parse_rows(rows_line, 0)
    pieces = ArrayPieces(found, claim, None if parsed_rows is None else parsed_rows[0])
    _measure(pieces)
    return pieces


def _measure(pieces: ArrayPieces) -> None:
    """Find out the array's size and that of its chunks, and make a slot for each of them."""
    by_ix: dict[int, list[FoundChunk]] = {}
    for chunk in pieces.found.chunks:
        by_ix.setdefault(chunk.ix, []).append(chunk)
    sizes = {ix: _size_of(chunks) for ix, chunks in by_ix.items()}
    last = max(by_ix, default=-1)
    chunk_size = _chunk_size(pieces, sizes, last)
    if chunk_size is None:
        return
    nbytes = None if pieces.claim is None else pieces.claim.nbytes
    tail = sizes.get(last)
    # The shape goes with it: one wrong digit would show. Else the chunks tell.
    if nbytes is None:
        nbytes = _told_bytes(pieces.found.line)
    if nbytes is None and tail is not None:
        nbytes = last * chunk_size + tail
    if nbytes is None or chunk_count(nbytes, chunk_size) > MAX_CHUNKS:
        return
    # Memory is taken for what is there, not for what a wrong digit claims.
    if chunk_count(nbytes, chunk_size) > 2 * len(by_ix) + 1024:
        return
    pieces.nbytes, pieces.chunk_size = nbytes, chunk_size
    pieces.slots = _slots(nbytes, chunk_size, by_ix)


def _told_bytes(line: bytes | None) -> int | None:
    """The `bytes` of an `arr` line where dtype and shape give as many, whatever else is wrong."""
    values = None if line is None else fields(line, KEYS)
    if values is None:
        return None
    _, dtype, shape, told, *_ = values
    kind = grammar.parse_kind(b"dtype=%b shape=%b order=C bytes=%b" % (dtype, shape, told))
    if kind is None or bounded_product(ITEM_SIZE[kind[0]], kind[1], kind[2]) != kind[2]:
        return None
    return kind[2]


def _slots(nbytes: int, chunk_size: int, by_ix: Mapping[int, Sequence[FoundChunk]]) -> list[Slot]:
    return [
        Slot(ix, max(0, min(chunk_size, nbytes - ix * chunk_size)), by_ix.get(ix, ()))
        for ix in range(chunk_count(nbytes, chunk_size))
    ]


def healed_array(
    claim: grammar.ArrayLine, rows: Rows | None, raw: bytes, source: str
) -> ArrayPieces:
    """An array that is from another place altogether."""
    line = grammar.format_array(claim)[:-1]
    rows_line = None if rows is None else grammar.format_rows(rows)[:-1]
    size = armor.chunk_size(rows)
    slots = _slots(len(raw), size, {})
    for slot in slots:
        slot.put(raw[slot.ix * size :][: slot.size], ChunkState.HEALED)
        slot.source = source
    digest = sha256(raw).digest()
    return ArrayPieces(FoundArray(line, rows_line), claim, rows, len(raw), size, slots, digest)


def _size_of(chunks: Sequence[FoundChunk]) -> int | None:
    """The bytes of a chunk, by its `ch` line: `len` and `lines` have to go together."""
    for chunk in chunks:
        if chunk.size is not None and chunk.lines in (None, armor.line_count(chunk.size)):
            return chunk.size
    return None


def _chunk_size(pieces: ArrayPieces, sizes: dict[int, int | None], last: int) -> int | None:
    whole = [size for ix, size in sizes.items() if ix != last and size is not None]
    if whole:
        # Most of them: one may have a wrong digit that fits its lines by chance.
        return max(set(whole), key=whole.count)
    least = sizes.get(last) or 0
    if pieces.rows is not None or pieces.found.rows_line is None:
        size = armor.chunk_size(pieces.rows)
        if size >= max(least, 1):
            return size
    if pieces.claim is not None:
        size = armor.chunk_size(default_rows(pieces.claim.dtype, pieces.claim.shape))
        if size >= least:
            return size
    return least or None


def settle(arrays: Sequence[ArrayPieces], text: memoryview, heal: OtherCopies | None) -> None:
    """Find the bytes of all chunks: as they stand, else mended, else from elsewhere."""
    slots = [slot for pieces in arrays for slot in pieces.slots]
    damaged = [slot for slot in slots if not _take_intact(slot, text)]
    _mend_all(damaged, text, mend)
    damaged = [slot for slot in damaged if slot.raw is None]
    # Lines of one may stand in another.
    spare = _lines(damaged, text)
    _mend_all(damaged[:_MOST_SEARCHED], text, partial(rearrange, spare=spare))
    if heal is not None:
        for pieces in arrays:
            _heal(pieces, heal)
    damaged = [slot for slot in damaged if slot.raw is None]
    _mend_all(damaged[:_MOST_SEARCHED], text, mend_more)
    for pieces in arrays:
        _hash(pieces)
        if heal is not None and not pieces.is_proved:
            _heal_whole(pieces, heal)
        if heal is not None and not pieces.is_whole:
            _heal_by_name(pieces, heal)


def decoded(text: memoryview, chunk: FoundChunk, size: int) -> bytes | None:
    """The `size` bytes of a chunk, None where its lines are not as a writer writes them."""
    start, end = chunk.body
    if end - start != armor.line_count(size) * LINE_TEXT:
        return None
    raw = armor.decode(np.frombuffer(text[start:end], np.uint8), 1, size, 0, 0)
    return None if raw is None else raw.tobytes()


def _take_intact(slot: Slot, text: memoryview) -> bool:
    for chunk in slot.found:
        raw = decoded(text, chunk, slot.size)
        if raw is None:
            continue
        if _claim(slot, chunk).proves(raw):
            slot.put(raw, ChunkState.INTACT)
            return True
        if not _is_hex(chunk.sha256) and is_near(f"{crc32c(raw):08x}", chunk.crc32c):
            slot.put(raw, ChunkState.INTACT, proved=False)
            return True
    return False


def _mend_all(
    slots: Sequence[Slot], text: memoryview, way: Callable[[bytes, ChunkClaim], bytes | None]
) -> None:
    for slot in slots:
        for chunk in slot.found:
            start, end = chunk.body
            # A chunk of another length than its lines is not looked at for long.
            if end - start > 2 * armor.line_count(slot.size) * LINE_TEXT + _MOST_EXTRA:
                continue
            raw = way(bytes(text[start:end]), _claim(slot, chunk))
            if raw is not None:
                slot.put(raw, ChunkState.MENDED)
                break


# Bytes that may stand among a chunk's lines and are none of them.
_MOST_EXTRA = 64 * 1024


def _claim(slot: Slot, chunk: FoundChunk) -> ChunkClaim:
    return ChunkClaim(slot.size, chunk.sha256, chunk.crc32c)


def _lines(slots: Sequence[Slot], text: memoryview) -> list[bytes]:
    lines: list[bytes] = []
    for slot in slots:
        for chunk in slot.found:
            start, end = chunk.body
            lines += lines_of(bytes(text[start:end]), slot.size)
            if len(lines) > _MOST_SPARE:
                return lines
    return lines


def _heal(pieces: ArrayPieces, heal: OtherCopies) -> None:
    for slot in pieces.slots:
        if slot.raw is not None:
            continue
        for chunk in slot.found:
            if (
                _is_hex(chunk.sha256)
                and (given := heal.bytes_of(chunk.sha256, slot.size)) is not None
            ):
                slot.put(given[0], ChunkState.HEALED)
                slot.source = given[1]
                break


def _heal_whole(pieces: ArrayPieces, heal: OtherCopies) -> None:
    """Take the whole array from elsewhere, by the SHA-256 of its `arr` line."""
    digest = pieces.claimed_sha256
    if digest is None or not _is_hex(digest) or pieces.claim is None:
        return
    given = heal.bytes_of(digest, pieces.claim.nbytes)
    if given is None:
        return
    raw, source = given
    if not pieces.slots:
        rows = pieces.rows or default_rows(pieces.claim.dtype, pieces.claim.shape)
        pieces.nbytes, pieces.chunk_size = len(raw), armor.chunk_size(rows)
        pieces.slots = _slots(len(raw), pieces.chunk_size, {})
    if len(raw) != pieces.nbytes:
        return
    for slot in pieces.slots:
        part = raw[slot.ix * pieces.chunk_size :][: slot.size]
        if slot.raw != part:
            slot.put(part, ChunkState.HEALED)
            slot.source = source
        slot.is_proved = True
    _hash(pieces)


def _heal_by_name(pieces: ArrayPieces, heal: OtherCopies) -> None:
    """Take chunks whose hashes are lost from an array of the same name: the whole proves them."""
    given = None if pieces.claim is None else heal.array(pieces.claim.name)
    if given is None or len(given[2]) != pieces.nbytes:
        return
    lost = [slot for slot in pieces.slots if slot.raw is None]
    for slot in lost:
        slot.put(given[2][slot.ix * pieces.chunk_size :][: slot.size], ChunkState.HEALED)
        slot.source = given[3]
    _hash(pieces)
    if not pieces.fits_line():
        pieces.sha256 = None
        for slot in lost:
            slot.raw, slot.source, slot.state = None, None, ChunkState.LOST


def _hash(pieces: ArrayPieces) -> None:
    if not pieces.is_whole:
        return
    whole = sha256()
    for raw in pieces.data():
        whole.update(raw)
    pieces.sha256 = whole.digest()


def _is_hex(digits: str) -> bool:
    return len(digits) == 64 and _HEX.issuperset(digits)
