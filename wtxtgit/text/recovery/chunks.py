"""Finding the chunks of a damaged text's arrays: whole, mended, healed or lost.

A chunk counts only with bytes that its SHA-256 names. Where that can't be read, its
CRC-32C makes it likely, and the array's own SHA-256 has to prove it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from hashlib import sha256
from typing import Protocol

from wtxtgit.io.spool import Spool
from wtxtgit.io.view import ByteView, Windowed, hashed, pieces, same_bytes
from wtxtgit.model.array import Rows, default_rows
from wtxtgit.model.checksum import crc32c
from wtxtgit.text import armor, grammar
from wtxtgit.text.grammar import LINE_TEXT
from wtxtgit.text.recovery.chunk import (
    ChunkClaim,
    is_near,
    lines_of,
    mend,
    mend_more,
)
from wtxtgit.text.recovery.order import rearrange
from wtxtgit.text.recovery.pieces import (
    ArmoredBytes,
    ArrayPieces,
    ChunkState,
    Slot,
    decoded,
    slots_of,
)
from wtxtgit.text.recovery.reading import FoundChunk

_HEX = frozenset("0123456789abcdef")
_MOST_SPARE = 16_384
"""Lines of damaged chunks that may belong to another one."""
_MOST_SEARCHED = 64
"""Chunks for which the searches that take long are made."""


class OtherCopies(Protocol):
    """Other places that may have what is lost."""

    def want(self, digests: Collection[str], names: Collection[str]) -> None:
        """Say which SHA-256 and arrays will be asked for."""

    def bytes_of(self, digest: str, nbytes: int) -> tuple[ByteView, str] | None:
        """The bytes with a SHA-256, in hex, and a length, and where they are from."""

    def array(self, name: str) -> tuple[grammar.ArrayLine, Rows | None, ByteView, str] | None:
        """An array of a name: what is said of it, its bytes, and where they are from."""


def settle(arrays: Sequence[ArrayPieces], text: ByteView, heal: OtherCopies | None) -> None:
    """Find the bytes of all chunks: as they stand, else mended, else from elsewhere."""
    slots = [slot for array in arrays for slot in array.slots]
    damaged = [slot for slot in slots if not _take_intact(slot, text)]
    with _Mending(text, sum(slot.size for slot in damaged)) as mending:
        mending.mend_all(damaged, mend)
        damaged = _lost(damaged)
        # Lines of one may stand in another.
        spare = _lines(damaged, text)
        mending.mend_all(damaged[:_MOST_SEARCHED], partial(rearrange, spare=spare))
        if heal is not None:
            _want(arrays, heal)
            for array in arrays:
                _heal(array, heal)
        mending.mend_all(_lost(damaged)[:_MOST_SEARCHED], mend_more)
    for array in arrays:
        if not _take_unnamed(array, text):
            _hash(array)
        if heal is not None and not array.is_proved:
            _heal_whole(array, heal)
        if heal is not None and not array.is_whole:
            _heal_by_name(array, heal)


def _lost(slots: Iterable[Slot]) -> list[Slot]:
    return [slot for slot in slots if slot.raw is None]


def _take_intact(slot: Slot, text: ByteView) -> bool:
    for chunk in slot.found:
        raw = decoded(text, chunk, slot.size)
        if raw is None:
            continue
        is_proved = _claim(slot, chunk).proves(raw)
        likely = not _is_hex(chunk.sha256) and is_near(f"{crc32c(raw):08x}", chunk.crc32c)
        if is_proved or likely:
            start, end = chunk.body
            again = Windowed(ArmoredBytes(text[start:end], slot.size))
            slot.put(again, ChunkState.INTACT, proved=is_proved)
            return True
    return False


def _take_unnamed(array: ArrayPieces, text: ByteView) -> bool:
    """Take chunks whose `ch` lines are gone as they stand, where the array's SHA-256 proves them.

    Tells whether there are such; the array is hashed then.
    """
    taken = []
    for slot in _lost(array.slots):
        for chunk in slot.found:
            if not chunk.has_line and decoded(text, chunk, slot.size) is not None:
                start, end = chunk.body
                again = Windowed(ArmoredBytes(text[start:end], slot.size))
                slot.put(again, ChunkState.MENDED, proved=False)
                taken.append(slot)
                break
    if not taken:
        return False
    _hash(array)
    if not array.fits_line():
        array.sha256 = None
        for slot in taken:
            slot.lose()
    return True


_Way = Callable[[bytes, ChunkClaim], "bytes | None"]


class _Mending:
    """Mends chunks of a text; what comes out is kept in a spool, of `nbytes` bytes at most."""

    def __init__(self, text: ByteView, nbytes: int) -> None:
        self._text = text
        self._nbytes = nbytes
        self._spool: Spool | None = None
        self._used = 0

    def __enter__(self) -> _Mending:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spool is not None:
            self._spool.close()

    def mend_all(self, slots: Iterable[Slot], way: _Way) -> None:
        """Mend those chunks that a way can mend."""
        for slot in slots:
            for chunk in slot.found:
                start, end = chunk.body
                # A chunk of another length than its lines is not looked at for long.
                if end - start > 2 * armor.line_count(slot.size) * LINE_TEXT + _MOST_EXTRA:
                    continue
                raw = way(bytes(self._text[start:end]), _claim(slot, chunk))
                if raw is not None:
                    slot.put(self._kept(raw), ChunkState.MENDED)
                    break

    def _kept(self, raw: bytes) -> ByteView:
        if self._spool is None:
            self._spool = Spool(expected=self._nbytes)
        self._spool.write(raw)
        start, self._used = self._used, self._used + len(raw)
        incoming = self._spool.incoming
        # Without room for a file they stay in memory.
        return memoryview(raw) if incoming is None else Windowed(incoming, start, self._used)


# Bytes that may stand among a chunk's lines and are none of them.
_MOST_EXTRA = 64 * 1024


def _claim(slot: Slot, chunk: FoundChunk) -> ChunkClaim:
    return ChunkClaim(slot.size, chunk.sha256, chunk.crc32c)


def _lines(slots: Sequence[Slot], text: ByteView) -> list[bytes]:
    lines: list[bytes] = []
    for slot in slots:
        for chunk in slot.found:
            start, end = chunk.body
            lines += lines_of(bytes(text[start:end]), slot.size)
            if len(lines) > _MOST_SPARE:
                return lines
    return lines


def _want(arrays: Iterable[ArrayPieces], heal: OtherCopies) -> None:
    digests: set[str] = set()
    names: set[str] = set()
    for array in arrays:
        lost = _lost(array.slots)
        digests.update(chunk.sha256 for slot in lost for chunk in slot.found)
        # Where nothing is lost it may still turn out not to be what its line says.
        if array.claimed_sha256 is not None:
            digests.add(array.claimed_sha256)
        if lost and array.claim is not None:
            names.add(array.claim.name)
    heal.want({digest for digest in digests if _is_hex(digest)}, names)


def _heal(array: ArrayPieces, heal: OtherCopies) -> None:
    for slot in _lost(array.slots):
        for chunk in slot.found:
            if (
                _is_hex(chunk.sha256)
                and (given := heal.bytes_of(chunk.sha256, slot.size)) is not None
            ):
                slot.put(given[0], ChunkState.HEALED, given[1])
                break


def _heal_whole(array: ArrayPieces, heal: OtherCopies) -> None:
    """Take the whole array from elsewhere, by the SHA-256 of its `arr` line."""
    digest = array.claimed_sha256
    if digest is None or not _is_hex(digest) or array.claim is None:
        return
    given = heal.bytes_of(digest, array.claim.nbytes)
    if given is None:
        return
    raw, source = given
    if not array.slots:
        rows = array.rows or default_rows(array.claim.dtype, array.claim.shape)
        array.nbytes, array.chunk_size = len(raw), armor.chunk_size(rows)
        array.slots = slots_of(len(raw), array.chunk_size, {})
    if len(raw) != array.nbytes:
        return
    for slot in array.slots:
        part = raw[slot.ix * array.chunk_size :][: slot.size]
        if slot.raw is None or not same_bytes(slot.raw, part):
            slot.put(part, ChunkState.HEALED, source)
        slot.is_proved = True
    _hash(array)


def _heal_by_name(array: ArrayPieces, heal: OtherCopies) -> None:
    """Take chunks whose hashes are lost from an array of the same name: the whole proves them."""
    given = None if array.claim is None else heal.array(array.claim.name)
    if given is None or len(given[2]) != array.nbytes:
        return
    lost = _lost(array.slots)
    for slot in lost:
        part = given[2][slot.ix * array.chunk_size :][: slot.size]
        slot.put(part, ChunkState.HEALED, given[3])
    _hash(array)
    if not array.fits_line():
        array.sha256 = None
        for slot in lost:
            slot.lose()


def _hash(array: ArrayPieces) -> None:
    if array.is_whole:
        array.sha256 = hashed(sha256(), pieces(array.data())).digest()


def _is_hex(digits: str) -> bool:
    return len(digits) == 64 and _HEX.issuperset(digits)
