"""Recovering what a damaged text holds, from itself and from whatever else is at hand.

What comes out is whole and proved, or it is told what is lost. The damaged file is
never written over.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from wtxtgit.checkpoint import open as opener
from wtxtgit.checkpoint import other_copies
from wtxtgit.checkpoint.restore import TEXT_ENDING, restore_verified
from wtxtgit.errors import CheckError, InputError, TextError, UsageError, WtxtgitError
from wtxtgit.git import index, staging, work_tree
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import read_small, shown, write_output
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView, mapped, pieces, same_bytes, write_all
from wtxtgit.model.plain import JsonObject
from wtxtgit.text import ledger
from wtxtgit.text.delta.index import MAGIC as DELTA_MAGIC
from wtxtgit.text.layout import literal
from wtxtgit.text.recovery import deltas, ledgers
from wtxtgit.text.recovery.chunks import ArrayPieces, ChunkState, Slot
from wtxtgit.text.recovery.rebuilding import PartialText, recover_plain, text_of
from wtxtgit.text.recovery.transport import undone
from wtxtgit.text.verify import TextReport, verify

LEDGER_ENDING = ".wsum"


@dataclass(frozen=True, slots=True)
class ChunkFate(JsonObject):
    """What became of a chunk that is not intact.

    `start` and `end` are bytes of the array, `rows` how many rows of its first dimension they are
    of, `source` where a healed one is from.
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
    """An array of a text: how many of its chunks are what, and those that are not intact."""

    KEYS = "name bytes intact mended healed lost chunks"

    name: str
    bytes: int | None
    intact: int
    mended: int
    healed: int
    lost: int
    chunks: tuple[ChunkFate, ...]


@dataclass(frozen=True, slots=True)
class TextRecovery(JsonObject):
    """What became of a damaged text.

    `state` is `intact` where nothing had to be done, `whole` where all of it is there and proved,
    `partial` otherwise. `undone` is what a transport had done to it, `notes` what no hash covers
    and could not be kept, `missing` arrays of which no line is left. `lost` are ranges of the file
    that `output` holds as zeros.
    """

    KEYS = "path state undone notes arrays missing sha256_all? lost output?"

    path: str
    state: str
    undone: tuple[str, ...]
    notes: tuple[str, ...]
    arrays: tuple[ArrayFate, ...]
    missing: tuple[str, ...] = ()
    sha256_all: str | None = None
    lost: tuple[tuple[int, int], ...] = ()
    output: str | None = None


@dataclass(frozen=True, slots=True)
class RecoveredText:
    """A recovery, and the whole text where there is one."""

    recovery: PartialText
    report: TextRecovery
    text: ByteView | None = None
    verified: TextReport | None = None


def recover_text(
    target: str, data: ByteView, given: Iterable[str] = (), *, threads: int | None = None
) -> RecoveredText:
    """Recover the text `data`, which `target` names.

    `given` are files, URLs and revisions to look in first. Raises InputError where
    nothing of a text is left.
    """
    heal = other_copies.FoundCopies(other_copies.places(target, given, threads))
    plain, changes = undone(mapped(data))
    if bytes(plain[: len(DELTA_MAGIC)]) == DELTA_MAGIC:
        return _recover_delta(target, data, bytes(plain), changes, heal)
    if bytes(plain[: len(ledger.MAGIC)]) == ledger.MAGIC:
        whole, notes = ledgers.mended(bytes(plain))
        parts = PartialText([], [], undone=changes, notes=notes)
        return _as_it_is(target, data, parts, whole)
    try:
        recovery = recover_plain(plain, changes, heal, _sealed(target))
    except TextError as error:
        raise InputError(f"{opener.shown_name(target)}: {error}") from None
    text = verified = None
    if recovery.snapshot is not None:
        text = spooled(text_of(recovery.snapshot))
        verified = verify(text, threads=threads)
        # A layout that does not fit, for one: nothing is whole that `verify` refuses.
        if not verified.ok and any(p.kind != "pending" for p in verified.problems):
            text = None
    state = "partial"
    if text is not None:
        state = "intact" if len(text) == len(data) and same_bytes(text, data) else "whole"
    return RecoveredText(recovery, _report(target, recovery, state, verified), text, verified)


def _recover_delta(
    target: str,
    data: ByteView,
    plain: bytes,
    changes: tuple[str, ...],
    heal: other_copies.FoundCopies,
) -> RecoveredText:
    whole, blocks, names = deltas.mended(plain, heal)
    notes: tuple[str, ...] = ()
    if whole is None and all(slot.raw is not None for block in blocks for slot in block.slots):
        notes = ("its chunks are whole, but another line is damaged: verify says which",)
    return _as_it_is(target, data, PartialText(blocks, names, undone=changes, notes=notes), whole)


def _as_it_is(
    target: str, data: ByteView, parts: PartialText, whole: bytes | None
) -> RecoveredText:
    """Of what stands for no file: a ledger, a delta."""
    state = "partial"
    if whole is not None:
        state = "intact" if same_bytes(data, memoryview(whole)) else "whole"
    report = _report(target, parts, state, None)
    return RecoveredText(parts, report, None if whole is None else memoryview(whole))


def _sealed(target: str) -> frozenset[bytes]:
    """What the records of the ledger beside a text say that its content is."""
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


def _report(
    target: str, recovery: PartialText, state: str, verified: TextReport | None
) -> TextRecovery:
    arrays = tuple(
        _array_fate(name, array)
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


def _array_fate(name: str, array: ArrayPieces) -> ArrayFate:
    states = [slot.state for slot in array.slots]
    row = _row_size(array)
    return ArrayFate(
        name,
        array.nbytes,
        states.count(ChunkState.INTACT),
        states.count(ChunkState.MENDED),
        states.count(ChunkState.HEALED),
        states.count(ChunkState.LOST),
        tuple(
            _chunk_fate(slot, array.chunk_size, row)
            for slot in array.slots
            if slot.state != ChunkState.INTACT
        ),
    )


def _row_size(array: ArrayPieces) -> int | None:
    """Bytes of one step of an array's first dimension."""
    claim = array.claim
    if claim is None or not claim.shape or not claim.shape[0] or not claim.nbytes:
        return None
    return claim.nbytes // claim.shape[0]


def _chunk_fate(slot: Slot, chunk_size: int, row: int | None) -> ChunkFate:
    start = slot.ix * chunk_size
    end = start + slot.size
    rows = () if row is None else (start // row, -(-end // row))
    return ChunkFate(slot.ix, slot.state, start, end, rows, slot.source)


def write_whole(done: RecoveredText, out: Path, source: str) -> None:
    """Write a text that is whole to `out`: as text where its name ends so, else as its file.

    Raises CheckError for a text that is not whole, UsageError for the damaged file itself.
    """
    refuse_itself(out, source)
    if done.text is None:
        raise CheckError(
            f"{opener.shown_name(source)}: not all of it could be recovered",
            hint="--partial writes what is there, with zeros for what is lost",
        )
    if out.suffix == TEXT_ENDING or done.verified is None:
        text = done.text
        write_output(out, lambda descriptor: write_all(descriptor, pieces(text)))
    else:
        restore_verified(done.text, done.verified, Path(source), out)


def refuse_itself(out: Path, source: str) -> None:
    """Raise UsageError where the damaged file would be written over."""
    same = False
    with contextlib.suppress(OSError):
        same = opener.is_file(source) and out.samefile(source)
    if same:
        raise UsageError(
            f"{opener.shown_name(source)} is the damaged file, which stays as it is",
            hint="-o names another file",
        )


def write_partial(done: RecoveredText, out: Path, source: str) -> TextRecovery:
    """Write the file of a text with zeros for what is lost; gives the report with these ranges.

    Raises CheckError where the text's layout is not known, UsageError for a text as output.
    """
    refuse_itself(out, source)
    if out.suffix == TEXT_ENDING:
        raise UsageError("a text with lost parts would prove nothing: name a file of another kind")
    parts = _file_parts(done.recovery)
    if parts is None:
        raise CheckError(
            f"{opener.shown_name(source)}: no file can be made of it, since its layout or "
            "sizes of arrays are lost"
        )
    lost: list[tuple[int, int]] = []
    write_output(out, lambda descriptor: write_all(descriptor, _noting_lost(parts, lost)))
    return replace(done.report, lost=tuple(lost))


def _noting_lost(
    parts: Iterable[tuple[bytes, bool]], lost: list[tuple[int, int]]
) -> Iterator[bytes]:
    """The parts in order, while the ranges of those that are lost are put into a list."""
    at = 0
    for raw, is_lost in parts:
        if is_lost and lost and lost[-1][1] == at:
            lost[-1] = lost[-1][0], at + len(raw)
        elif is_lost:
            lost.append((at, at + len(raw)))
        at += len(raw)
        yield raw


def _file_parts(recovery: PartialText) -> Iterator[tuple[bytes, bool]] | None:
    """Gives the file's bytes in order, and which of them are zeros in the place of lost ones."""
    layout = recovery.layout
    if layout is None or layout.size is None:
        return None
    by_name = dict(zip(recovery.names, recovery.arrays, strict=True))
    known = 0
    unknown = []
    for extent in layout.extents:
        array = None if extent.array is None else by_name.get(extent.array)
        if extent.array is not None and (array is None or array.nbytes is None):
            unknown.append(extent.array)
        elif array is not None and array.nbytes is not None:
            known += array.nbytes
        else:
            known += len(literal(extent) or b"")
    # Of one array the size follows from that of the file.
    if len(unknown) > 1 or known > layout.size or (known < layout.size and not unknown):
        return None
    extents, rest = layout.extents, layout.size - known

    def parts() -> Iterator[tuple[bytes, bool]]:
        for extent in extents:
            if extent.array in unknown:
                yield bytes(rest), True
            elif extent.array is not None:
                for slot in by_name[extent.array].slots:
                    yield slot.raw or bytes(slot.size), slot.raw is None
            else:
                yield literal(extent) or b"", False

    return parts()


def put_back(
    repo: Repository, path: bytes, given: Iterable[str] = (), *, threads: int | None = None
) -> RecoveredText:
    """Recover the text that the index has at a path, and stage it with its file.

    Where not all of it can be recovered nothing is changed. Raises CheckError where the
    work tree holds something else than the damaged text, UsageError for a path that is not tracked.
    """
    name = shown(os.fsdecode(path))
    entry = next((one for one in index.entries(repo) if one.path == path and not one.stage), None)
    if entry is None:
        raise UsageError(f"{name} is not tracked")
    file = repo.file(path)
    if os.path.lexists(file) and not work_tree.file_is_blob(file, entry.oid):
        raise CheckError(
            f"{name} is not the text that git has: what stands there would be lost",
            hint="-o writes what is recovered to another file",
        )
    data = opener.blob(repo, entry.oid, threads)
    done = recover_text(f":{os.fsdecode(path)}", data, given, threads=threads)
    if done.report.state == "whole" and done.text is not None:
        oid = staging.write_blob(repo, mapped(done.text))
        staging.stage(repo, [entry._replace(oid=oid)])
        staging.checkout(repo, [path])
    return done


def commit(target: str, given: Iterable[str] = (), *, threads: int | None = None) -> RecoveredText:
    """Recover a tracked file as `put_back` does, and commit that alone.

    History is not rewritten: commits of before keep the damaged text. Raises UsageError
    where something else is staged.
    """
    if not opener.is_file(target):
        raise UsageError("--as-commit wants a path of the work tree")
    repo = Repository.discover()
    path = other_copies.path_in(target, repo)
    if path is None:
        raise UsageError(f"{opener.shown_name(target)} is not in this work tree")
    if others := sorted(index.staged_paths(repo) - {path}):
        raise UsageError(
            f"{shown(os.fsdecode(others[0]))} is staged: it would be committed too",
            hint="commit it, or git restore --staged it",
        )
    done = put_back(repo, path, given, threads=threads)
    if done.report.state == "whole":
        counts = ", ".join(
            f"{sum(getattr(array, state) for array in done.report.arrays)} {state}"
            for state in (ChunkState.MENDED, ChunkState.HEALED)
        )
        message = f"Recover {os.fsdecode(path)}\n\nIts text was damaged. Chunks: {counts}."
        repo.git("commit", "--quiet", "-m", message)
    return done
