"""Recovering the content of a damaged text, from itself and from anything else at hand.

The result is whole and proved, or it is reported what is lost. The damaged file is never
overwritten.
"""

from __future__ import annotations

import contextlib
import re
from array import array as numbers
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import final, overload

from wtxtgit.checkpoint import open as opener
from wtxtgit.checkpoint import other_copies
from wtxtgit.checkpoint.restore import TEXT_ENDING, restore_verified
from wtxtgit.errors import CheckError, EnvironmentFailure, InputError, TextError, WtxtgitError
from wtxtgit.filter.payload import keeping
from wtxtgit.io.files import read_small, write_output
from wtxtgit.io.progress import Portion, Progress, expect
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import Buffer, ByteView, Pages, counted, mapped, pieces, same_bytes, write_all
from wtxtgit.model.array import Snapshot
from wtxtgit.model.plain import JsonObject
from wtxtgit.store.place import store_of
from wtxtgit.text import ledger
from wtxtgit.text.grammar import MAX_INLINE, is_delta, is_detached
from wtxtgit.text.recovery import deltas, ledgers, transport
from wtxtgit.text.recovery.pieces import ArrayPieces, ChunkState, Slot
from wtxtgit.text.recovery.reading import distance
from wtxtgit.text.recovery.rebuilding import PartialText, recover_plain, text_of
from wtxtgit.text.recovery.transport import undone
from wtxtgit.text.verify import TextReport, read_wsum, verify
from wtxtgit.text.write import TextWriter

PARTIAL = "--partial writes what is left, with zeros for what is lost"
LEDGER_ENDING = ".wsum"


@dataclass(frozen=True, slots=True)
class ChunkFate(JsonObject):
    """What happened to a chunk that is not intact.

    `start` and `end` are byte offsets in the array, `rows` the range of rows (first dimension) that
    they touch, `source` where a healed chunk was found.
    """

    KEYS = "ix state start end rows source?"

    ix: int
    state: ChunkState
    start: int
    end: int
    rows: tuple[int, ...]
    source: str | None = None


@dataclass(frozen=True, slots=True)
class ArrayFate(JsonObject):
    """An array of a text: the number of chunks in each state, and those that are not intact."""

    name: str
    bytes: int | None
    intact: int
    mended: int
    healed: int
    lost: int
    chunks: Sequence[ChunkFate]


@dataclass(frozen=True, slots=True)
class TextRecovery(JsonObject):
    """The outcome for a damaged text.

    `state` is `intact` if nothing had to be done, `whole` if everything is there and proved,
    `partial` otherwise. `undone` lists changes by a transport that were reverted, `notes` what no
    hash covers and could not be kept, `missing` arrays of which no line is left. `lost` are ranges
    of zeros in the file `output`. `versions` are texts like this one that no branch has.
    """

    KEYS = "path state undone notes arrays missing sha256_all? lost output? versions"

    path: str
    state: str
    undone: tuple[str, ...]
    notes: tuple[str, ...]
    arrays: tuple[ArrayFate, ...]
    missing: tuple[str, ...] = ()
    sha256_all: str | None = None
    lost: tuple[tuple[int, int], ...] = ()
    output: str | None = None
    versions: tuple[other_copies.OtherVersion, ...] = ()


@dataclass(frozen=True, slots=True)
class RecoveredText:
    """The recovery of a text.

    `nbytes` is the size of the text as it was damaged; `text` is the whole text if there is one.
    """

    recovery: PartialText
    report: TextRecovery
    nbytes: int
    text: ByteView | None = None
    verified: TextReport | None = None


def recover_text(
    target: str,
    data: ByteView,
    given: Iterable[str] = (),
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> RecoveredText:
    """Recover the text `data`, which `target` names.

    `given` are files, URLs and revisions to search first. `progress` gets counts of bytes of the
    text that were decoded, of what it became, and of what was verified of that. Raises InputError
    if no line of a text is left.
    """
    plain, changes = undone(data)
    at_hand = partial(other_copies.places, target, tuple(given), threads)
    best = _recovered(target, data, plain, changes, at_hand, threads, progress)
    if best.text is not None:
        return best
    is_cut = transport.AROUND in changes
    copies = transport.copies(transport.with_surroundings(data) if is_cut else plain)
    # Another text, such as an older version that a mail quotes, is not tried as a copy of this one.
    claimed = _claimed(plain)
    copies = [copy for copy in copies if _is_near(_claimed(copy), claimed)]
    # A copy that has as much as all of it explains more.
    most = _kept(best), False
    for copy in copies:
        others = [
            other_copies.Place("another copy in it", partial(_itself, other))
            for other in copies
            if other is not copy
        ]
        places = partial(_first_of, others, at_hand)
        # What turns out not to be a text has nothing to contribute.
        with contextlib.suppress(InputError):
            done = _recovered(target, data, copy, (*changes, _COPIES), places, threads, progress)
            if done.text is not None:
                return done
            if (_kept(done), True) > most:
                best, most = done, (_kept(done), True)
    return best


def _kept(done: RecoveredText) -> int:
    """Return how many chunks are there, each of them counted once."""
    by_name = {one.name: one.intact + one.mended + one.healed for one in done.report.arrays}
    return sum(by_name.values())


_COPIES = "other copies of it"
_Places = Callable[[], Iterable[other_copies.Place]]


_NEAR_START = 64 * 1024
_HASH = re.compile(rb"=([0-9a-f]{64})[ \n]")
_MOST_WRONG = 16


def _claimed(text: ByteView) -> bytes | None:
    """Return the first hash in a text, which tells it from others: its root, base, or repository.

    Returns None if it has none near its start.
    """
    found = _HASH.search(mapped(text[:_NEAR_START]))
    return None if found is None else found[1]


def _is_near(one: bytes | None, other: bytes | None) -> bool:
    return one is None or other is None or distance(one, other) <= _MOST_WRONG


def _itself(text: ByteView) -> ByteView:
    return text


def _first_of(first: Iterable[other_copies.Place], others: _Places) -> Iterable[other_copies.Place]:
    return chain(first, others())


def _recovered(
    target: str,
    data: ByteView,
    plain: ByteView,
    changes: tuple[str, ...],
    places: _Places,
    threads: int | None,
    progress: Progress | None,
) -> RecoveredText:
    """Recover `plain`, which is `data` as it was before its transport.

    `changes` say what was undone; `places` returns the places to search for other copies.
    """
    heal = other_copies.FoundCopies(places, partial(other_copies.store_of_target, target))
    if is_delta(plain):
        return _recover_delta(target, data, bytes(plain), changes, heal)
    if plain[: len(ledger.MAGIC)] == ledger.MAGIC:
        whole, notes = ledgers.mended(bytes(plain))
        parts = PartialText([], [], undone=changes, notes=notes)
        return _as_it_is(target, data, parts, whole)
    # All three at once: a bar that was full would go back.
    decoded, made, proved = (Portion(progress, plain.nbytes) for _ in range(3))
    known = _sealed(target) | _finalized(target)
    try:
        recovery = recover_plain(plain, changes, heal, known, decoded)
    except TextError as error:
        # In the output of a compressor no line can be found.
        why = str(error) if error.kind != "syntax" else f"{error}{opener.described(data)}"
        raise InputError(f"{opener.shown_name(target)}: {why}") from None
    decoded.finish()
    text = verified = None
    if (snapshot := recovery.snapshot) is not None:
        text = spooled(_giving_up(data, counted(text_of(snapshot), made)))
        made.finish()
        if not is_detached(plain):
            # The text contains everything: very many arrays should not be in memory twice.
            recovery.snapshot = snapshot = None
        verified = verify(text, threads=threads, progress=proved)
        # What `verify` refuses is not whole; a layout may not fit, for example.
        if not verified.ok and any(p.kind != "pending" for p in verified.problems):
            text = None
        elif snapshot is not None:
            text, verified = _detached(target, snapshot, threads) or (text, verified)
    made.finish()
    proved.finish()
    state = "partial"
    if text is not None:
        state = "intact" if len(text) == len(data) and same_bytes(text, data) else "whole"
    report = _report(target, recovery, state, verified, has_payload=is_detached(plain))
    if is_detached(plain) and any(one.lost for one in report.arrays):
        report = replace(report, notes=(*report.notes, _MAY_BE_FETCHED))
    return RecoveredText(recovery, report, len(data), text, verified)


def _giving_up(data: ByteView, written: Iterable[Buffer]) -> Iterator[Buffer]:
    """Yield what is written of a damaged text, without keeping its pages in memory."""
    pages = Pages()
    pages.watch(data)
    for piece in written:
        yield piece
        pages.passed(len(piece))
    pages.give_up()


_MAY_BE_FETCHED = "the repository's remote may have its lost data: wtxtgit fetch"


def _detached(
    target: str, snapshot: Snapshot, threads: int | None
) -> tuple[ByteView, TextReport] | None:
    """Return the detached form of what was recovered, with its payload in the repository's store.

    Returns None if there is no repository: then the text keeps its data.
    """
    try:
        repo = opener.repository_of(target)
    except EnvironmentFailure:
        return None
    with keeping(repo) as keep:
        writer = TextWriter(snapshot, threads=threads, detached=True, keep=keep)
        text = spooled(writer.stream())
    return text, verify(text, payload=store_of(repo), threads=threads)


def _recover_delta(
    target: str,
    data: ByteView,
    plain: bytes,
    changes: tuple[str, ...],
    heal: other_copies.FoundCopies,
) -> RecoveredText:
    whole, blocks, names = deltas.mended(plain, heal)
    notes: tuple[str, ...] = ()
    if whole is None and all(block.slots.is_whole for block in blocks):
        notes = ("its chunks are intact, but another line is damaged: wtxtgit verify shows which",)
    return _as_it_is(target, data, PartialText(blocks, names, undone=changes, notes=notes), whole)


def _as_it_is(
    target: str, data: ByteView, parts: PartialText, whole: bytes | None
) -> RecoveredText:
    """Report on what stands for no file: a ledger or a delta."""
    state = "partial"
    if whole is not None:
        state = "intact" if same_bytes(data, memoryview(whole)) else "whole"
    report = _report(target, parts, state, None)
    return RecoveredText(parts, report, len(data), None if whole is None else memoryview(whole))


def _sealed(target: str) -> frozenset[bytes]:
    """Return the content hashes in the ledger beside a text."""
    with contextlib.suppress(WtxtgitError, OSError):
        name = target + LEDGER_ENDING
        raw = (
            read_small(Path(name), ledger.MAX_SIZE, "a ledger")
            if opener.is_file(target)
            else bytes(opener.read(name))
        )
        report = ledger.read(raw)
        if report.ledger is not None:
            return frozenset(record.sha256_all for record in report.ledger.records)
    return frozenset()


def _finalized(target: str) -> frozenset[bytes]:
    """Return the content hash in the WSUM beside a text."""
    with contextlib.suppress(WtxtgitError, OSError):
        wsum = read_wsum(opener.wsum_beside(target) or b"")
        if wsum is not None:
            return frozenset({wsum.sha256_all})
    return frozenset()


def _report(
    target: str,
    recovery: PartialText,
    state: str,
    verified: TextReport | None,
    *,
    has_payload: bool = False,
) -> TextRecovery:
    arrays = tuple(
        _array_fate(name, array, is_payload=has_payload and (array.nbytes or 0) > MAX_INLINE)
        for name, array in zip(recovery.names, recovery.arrays, strict=True)
    )
    digest = None if state == "partial" or verified is None else verified.sha256_all
    return TextRecovery(
        opener.public_name(target),
        state,
        recovery.undone,
        tuple(recovery.notes),
        arrays,
        recovery.missing,
        None if digest is None else digest.hex(),
    )


def _array_fate(name: str, array: ArrayPieces, *, is_payload: bool) -> ArrayFate:
    """Describe the state of an array; chunks found in the store count as intact for payload."""
    counts: Counter[ChunkState] = Counter()
    others = numbers("q")
    for number, slot in enumerate(array.slots):
        is_kept = is_payload and slot.source == other_copies.STORE
        state = ChunkState.INTACT if is_kept else slot.state
        counts[state] += 1
        if state != ChunkState.INTACT:
            others.append(number)
    return ArrayFate(
        name,
        array.nbytes,
        counts[ChunkState.INTACT],
        counts[ChunkState.MENDED],
        counts[ChunkState.HEALED],
        counts[ChunkState.LOST],
        _ChunkFates(array, others) if others else (),
    )


@final
class _ChunkFates(Sequence[ChunkFate]):
    """The states of some chunks of an array, computed when asked for: there may be very many."""

    def __init__(self, array: ArrayPieces, of: Sequence[int]) -> None:
        self._array, self._of = array, of

    def __len__(self) -> int:
        return len(self._of)

    @overload
    def __getitem__(self, place: int) -> ChunkFate: ...
    @overload
    def __getitem__(self, place: slice) -> list[ChunkFate]: ...
    def __getitem__(self, place: int | slice) -> ChunkFate | list[ChunkFate]:
        array = self._array
        row = _row_size(array)
        if isinstance(place, slice):
            return [_chunk_fate(array.slots[n], array.chunk_size, row) for n in self._of[place]]
        return _chunk_fate(array.slots[self._of[place]], array.chunk_size, row)


def _row_size(array: ArrayPieces) -> int | None:
    """Return the size in bytes of one step of an array's first dimension; None if unknown."""
    claim = array.claim
    if claim is None or not claim.shape or not claim.shape[0] or not claim.nbytes:
        return None
    return claim.nbytes // claim.shape[0]


def _chunk_fate(slot: Slot, chunk_size: int, row: int | None) -> ChunkFate:
    start = slot.ix * chunk_size
    end = start + slot.size
    rows = () if row is None else (start // row, -(-end // row))
    return ChunkFate(slot.ix, slot.state, start, end, rows, slot.source)


def write_whole(
    done: RecoveredText, out: Path, source: str, progress: Progress | None = None
) -> None:
    """Write a whole text to `out`: as text if its name ends so, else as its file.

    `progress` gets counts of bytes that were written. Raises CheckError if the text is not whole,
    UsageError if `out` is the damaged file itself.
    """
    opener.refuse_itself(out, source)
    if done.text is None:
        raise CheckError(
            f"{opener.shown_name(source)}: not all of it could be recovered",
            hint=PARTIAL,
        )
    if out.suffix == TEXT_ENDING or done.verified is None:
        expect(progress, done.text.nbytes)
        content = counted(pieces(done.text), progress)
        write_output(out, lambda descriptor: write_all(descriptor, content))
    else:
        name = opener.shown_name(str(source))
        restore_verified(done.text, done.verified, name, out, progress=progress)
