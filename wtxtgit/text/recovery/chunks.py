"""Finding the chunks of a damaged text's arrays: intact, mended, healed or lost.

A chunk counts only with bytes that match its SHA-256. If that can't be read, its CRC-32C makes the
bytes likely, and the array's own SHA-256 has to prove them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import Protocol

from wtxtgit.io.progress import Progress
from wtxtgit.io.spool import Spool
from wtxtgit.io.view import ByteView, Windowed, hashed, pieces, same_bytes
from wtxtgit.model.array import Rows, default_rows
from wtxtgit.model.checksum import crc32c
from wtxtgit.text import grammar
from wtxtgit.text.grammar import LINE_TEXT, line_count
from wtxtgit.text.recovery.chunk import (
    ChunkClaim,
    is_near,
    lines_of,
    mend,
    mend_more,
)
from wtxtgit.text.recovery.found import FoundChunk
from wtxtgit.text.recovery.order import rearrange
from wtxtgit.text.recovery.pieces import (
    ArmoredBytes,
    ArrayPieces,
    ChunkState,
    Slot,
    Slots,
    SlotTable,
    decoded,
)

_HEX = frozenset("0123456789abcdef")
_MOST_SPARE = 16_384
"""The most lines of damaged chunks that are tried in other chunks."""
_MOST_SEARCHED = 64
"""The most chunks for which slow searches are made."""


FoundElsewhere = tuple[grammar.ArrayLine, Rows | None, ByteView, str]
"""An array of another place: its line, its rows, its bytes, and the name of the place."""


class OtherCopies(Protocol):
    """Other places that may have what is lost."""

    def want(self, digests: Collection[str], names: Collection[str]) -> None:
        """Announce which SHA-256s and arrays will be requested."""

    def bytes_of(self, digest: str, nbytes: int) -> tuple[ByteView, str] | None:
        """Return the bytes with a SHA-256, in hex, and a length, and where they come from."""

    def arrays(self, name: str) -> Iterator[FoundElsewhere]:
        """Yield the intact arrays with a name, each content once, the nearest place's first."""


def settle(
    arrays: Sequence[ArrayPieces],
    table: SlotTable,
    heal: OtherCopies | None,
    progress: Progress | None = None,
) -> None:
    """Find the bytes of all chunks: as they stand, else mended, else from elsewhere.

    `progress` gets counts of the text's bytes that were decoded.
    """
    for array in arrays:
        for slot in array.slots:
            _take_intact(slot, table)
            if progress is not None:
                progress(line_count(slot.size) * LINE_TEXT)
    with _Mending(table, sum(slot.size for slot in _lost(arrays) if slot.found)) as mending:
        mending.mend_all(_lost(arrays), mend)
        # Lines of one chunk may have ended up in another.
        spare = _lines(_lost(arrays), table.text)
        searched = list(islice(_lost(arrays), _MOST_SEARCHED))
        mending.mend_all(searched, partial(rearrange, spare=spare))
        if heal is not None:
            _want(arrays, heal)
            for array in arrays:
                _heal(array, heal)
        mending.mend_all(list(islice(_lost(arrays), _MOST_SEARCHED)), mend_more)
    for array in arrays:
        if not _take_unnamed(array, table.text):
            _hash(array)
        if heal is not None and not array.is_proved:
            _heal_whole(array, heal)
        if heal is not None and not array.is_whole:
            _heal_by_name(array, heal)


def _lost(arrays: Iterable[ArrayPieces]) -> Iterator[Slot]:
    return (slot for array in arrays for slot in array.slots.lost)


def _take_intact(slot: Slot, table: SlotTable) -> None:
    for chunk in slot.found:
        raw = decoded(table.text, chunk, slot.size)
        if raw is None:
            continue
        is_proved = _claim(slot, chunk).proves(raw)
        likely = not _is_hex(chunk.sha256) and is_near(f"{crc32c(raw):08x}", chunk.crc32c)
        if is_proved or likely:
            slot.keep(chunk.body[0], ChunkState.INTACT, proved=is_proved)
            return


def _take_unnamed(array: ArrayPieces, text: ByteView) -> bool:
    """Accept chunks without `ch` lines as they stand, if the array's SHA-256 proves them.

    Returns whether there are such chunks; the array has been hashed then.
    """
    accepted = []
    for slot in array.slots.lost:
        for chunk in slot.found:
            if not chunk.has_line and decoded(text, chunk, slot.size) is not None:
                again = Windowed(ArmoredBytes(text, chunk.body[0], slot.size))
                slot.put(again, ChunkState.MENDED, proved=False)
                accepted.append(slot)
                break
    _keep_proved(array, accepted)
    return bool(accepted)


_Way = Callable[[bytes, ChunkClaim], "bytes | None"]


class _Mending:
    """Mends chunks of a text; results are kept in a spool, of at most `nbytes` bytes."""

    def __init__(self, table: SlotTable, nbytes: int) -> None:
        self._table = table
        self._text = table.text
        self._nbytes = nbytes
        self._spool: Spool | None = None
        self._used = 0

    def __enter__(self) -> _Mending:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spool is not None:
            self._spool.close()

    def mend_all(self, slots: Iterable[Slot], way: _Way) -> None:
        """Mend those chunks that a method can mend."""
        for slot in slots:
            for chunk in slot.found:
                start, end = chunk.body
                # What is far too long for the chunk is left out: searching it would take long.
                if end - start > 2 * grammar.line_count(slot.size) * LINE_TEXT + _MOST_EXTRA:
                    continue
                raw = way(bytes(self._text[start:end]), _claim(slot, chunk))
                if raw is not None:
                    self._keep(slot, raw)
                    break

    def _keep(self, slot: Slot, raw: bytes) -> None:
        if self._spool is None:
            self._spool = Spool(expected=self._nbytes)
            self._table.mended = self._spool.incoming
        self._spool.write(raw)
        start, self._used = self._used, self._used + len(raw)
        if self._table.mended is None:
            # Without space for a file they stay in memory.
            slot.put(memoryview(raw), ChunkState.MENDED)
        else:
            slot.keep(start, ChunkState.MENDED, proved=True)


# Bytes that may be among a chunk's lines without belonging to them.
_MOST_EXTRA = 64 * 1024


def _claim(slot: Slot, chunk: FoundChunk) -> ChunkClaim:
    return ChunkClaim(slot.size, chunk.sha256, chunk.crc32c)


def _lines(slots: Iterable[Slot], text: ByteView) -> list[bytes]:
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
        digests.update(chunk.sha256 for slot in array.slots.lost for chunk in slot.found)
        # Even if nothing is lost, the array may turn out not to match its line.
        if array.claimed_sha256 is not None:
            digests.add(array.claimed_sha256)
        if not array.slots.is_whole and array.claim is not None:
            names.add(array.claim.name)
    heal.want({digest for digest in digests if _is_hex(digest)}, names)


def _heal(array: ArrayPieces, heal: OtherCopies) -> None:
    for slot in array.slots.lost:
        for chunk in slot.found:
            if (
                _is_hex(chunk.sha256)
                and (copy := heal.bytes_of(chunk.sha256, slot.size)) is not None
            ):
                slot.put(copy[0], ChunkState.HEALED, copy[1])
                break


def _heal_whole(array: ArrayPieces, heal: OtherCopies) -> None:
    """Take the whole array from elsewhere, by the SHA-256 in its `arr` line."""
    digest = array.claimed_sha256
    if digest is None or not _is_hex(digest) or array.claim is None:
        return
    copy = heal.bytes_of(digest, array.claim.nbytes)
    if copy is None:
        return
    raw, source = copy
    if not array.slots:
        rows = array.rows or default_rows(array.claim.dtype, array.claim.shape)
        array.nbytes, array.chunk_size = len(raw), grammar.chunk_size(rows)
        array.slots = Slots(array.slots.table, array.found, None, len(raw), array.chunk_size)
    if len(raw) != array.nbytes:
        return
    for slot in array.slots:
        part = raw[slot.ix * array.chunk_size :][: slot.size]
        own = slot.raw
        if own is None or not same_bytes(own, part):
            slot.put(part, ChunkState.HEALED, source)
        slot.is_proved = True
    _hash(array)


def _heal_by_name(array: ArrayPieces, heal: OtherCopies) -> None:
    """Take chunks whose hashes are lost from an array of the same name; the whole proves them."""
    if array.claim is None:
        return
    for _, _, raw, source in heal.arrays(array.claim.name):
        if len(raw) != array.nbytes:
            continue
        lost = list(array.slots.lost)
        for slot in lost:
            part = raw[slot.ix * array.chunk_size :][: slot.size]
            slot.put(part, ChunkState.HEALED, source)
        _keep_proved(array, lost)
        if array.is_whole:
            return


def _keep_proved(array: ArrayPieces, unproved: Sequence[Slot]) -> None:
    """Hash an array of which only its own hash can prove some chunks; drop these if it fails."""
    if unproved:
        _hash(array)
        if not array.fits_line():
            array.sha256 = None
            for slot in unproved:
                slot.lose()


def _hash(array: ArrayPieces) -> None:
    if array.is_whole:
        digest = hashed(sha256(), pieces(array.data())).digest()
        claimed = None if array.claim is None else array.claim.sha256
        # Mostly equal: use one object for both.
        array.sha256 = claimed if claimed == digest else digest


def _is_hex(digits: str) -> bool:
    return len(digits) == 64 and _HEX.issuperset(digits)
