"""What a diff in git shows of a checkpoint.

Git already provides both sides as smudged files: reading those takes a tenth of the time that the
blobs would take (docs/performance.md).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from wtxtgit.checkpoint.contents import NoCheckpoint, Side, open_side, refuse_part, to_read
from wtxtgit.checkpoint.open import payload_for
from wtxtgit.comparison.compare import compare, form_note, is_empty, listed
from wtxtgit.errors import InputError
from wtxtgit.git.external_diff import DiffFile, Pair
from wtxtgit.io.files import (
    NOT_REGULAR,
    failures,
    opened_regular,
    read_view,
    shown,
    shown_path,
)
from wtxtgit.io.progress import Progress, expect
from wtxtgit.io.view import ByteView, Pages
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.report.diff import DiffReport, TensorStatus
from wtxtgit.tensors.tensor_bytes import content_size


@dataclass(frozen=True, slots=True)
class DtypeTotal:
    """The tensors of one dtype; `nbytes` is the size of their items."""

    dtype: str
    tensors: int
    elements: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Inventory:
    """A checkpoint that is on one side only; `size` in bytes, the largest dtype first."""

    format: str
    size: int
    dtypes: tuple[DtypeTotal, ...]
    notes: tuple[str, ...]

    @property
    def tensors(self) -> int:
        return sum(total.tensors for total in self.dtypes)

    @property
    def elements(self) -> int:
        return sum(total.elements for total in self.dtypes)


def compare_pair(
    pair: Pair,
    options: ReadOptions,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> DiffReport | Inventory:
    """Compare two files of checkpoints, or list the only one.

    Messages call the sides "before" and "after". Texts are compared as what they stand for. Raises
    InputError, CheckError and EnvironmentFailure.
    """
    pages = Pages(progress)
    sides = (pair.old, "before"), (pair.new, "after")
    alone = shown_path(pair.path) if None in (pair.old, pair.new) else None
    contents = {
        side: _content(file.file, alone or side) for file, side in sides if file is not None
    }
    try:
        return _compared(pair, contents, options, pages, threads, progress)
    except NoCheckpoint:
        # Encrypted files have their own message.
        from wtxtgit.checkpoint.encrypted import refuse_encrypted

        refuse_encrypted(contents.get("before"), contents.get("after"))
        raise


def _compared(
    pair: Pair,
    contents: Mapping[str, ByteView],
    options: ReadOptions,
    pages: Pages,
    threads: int | None,
    progress: Progress | None,
) -> DiffReport | Inventory:
    refuse_part(os.fsdecode(pair.path))
    with ExitStack() as until:

        def opened(side: str, name: str | None = None) -> Side:
            data = contents[side]
            # Git's temporary files do not lie in the repository.
            payload = payload_for(None, data)
            return open_side(name or side, data, _no_member, pages, threads, until, payload)

        if pair.old is not None and pair.new is not None:
            before, after = opened("before"), opened("after")
            expect(progress, to_read((before, after)))
            report = compare(before, after, options, pages, threads).report
            # git only calls this for files that differ: an empty report would be confusing.
            if not is_empty(report):
                return report
            note = _stored_forms(pair)
            return report if note is None else replace(report, notes=(*report.notes, note))
        # Only one side: a file that was added or removed is listed, not compared.
        name = shown_path(pair.path)
        if pair.new is not None:
            return _inventory(opened("after", name), TensorStatus.ADDED, options, pages)
        if pair.old is not None:
            return _inventory(opened("before", name), TensorStatus.REMOVED, options, pages)
        raise InputError(f"{name}: exists on neither side")


def _inventory(side: Side, status: TensorStatus, options: ReadOptions, pages: Pages) -> Inventory:
    report, checkpoint = listed(side, status, options, pages)
    tensors: Counter[str] = Counter()
    elements: Counter[str] = Counter()
    nbytes: Counter[str] = Counter()
    for row, tensor in zip(report.tensors, checkpoint.tensors, strict=True):
        tensors[row.dtype] += 1
        elements[row.dtype] += prod(row.shape)
        nbytes[row.dtype] += 0 if tensor.absent is not None else content_size(tensor)
    totals = [DtypeTotal(name, n, elements[name], nbytes[name]) for name, n in tensors.items()]
    totals.sort(key=lambda total: (-total.nbytes, total.dtype))
    return Inventory(checkpoint.format, side.size, tuple(totals), report.notes)


def _stored_forms(pair: Pair) -> str | None:
    """Describe the forms in which git stores a file that is equal on both sides, if they differ."""
    from wtxtgit.git.repository import DETACHED_DRIVER, FILTERS, Repository
    from wtxtgit.git.store.reader import blob_heads
    from wtxtgit.text.grammar import DETACHED_MAGIC, MAGIC

    repo = Repository.find()
    if repo is None or pair.old is None or pair.new is None:
        return None
    sides = [(pair.old, pair.path), (pair.new, pair.new_path or pair.path)]
    heads = blob_heads(repo, {side.oid for side, _ in sides if side.oid is not None})

    def head(side: DiffFile, path: bytes) -> bytes:
        if side.oid is not None:
            return heads[side.oid].head
        # The form in which git would store the file in the work tree.
        driver = repo.attributes([path], ["filter"])[path]["filter"]
        return (
            b"" if driver not in FILTERS else DETACHED_MAGIC if driver == DETACHED_DRIVER else MAGIC
        )

    return form_note(*(memoryview(head(side, path)) for side, path in sides))


def _content(file: Path, name: str) -> ByteView:
    """Return the content of a file that git gave; raises InputError and EnvironmentFailure."""
    with failures(Path(name)):
        # Git writes the target of a link to a regular file, so a link here does not come from git.
        try:
            with opened_regular(file) as (descriptor, _):
                return read_view(descriptor, Path(name))
        except OSError as error:
            if error.strerror != NOT_REGULAR:
                raise
            raise InputError(f"{name}: {NOT_REGULAR}") from None


def _no_member(path: str) -> ByteView:
    """Refuse to open files of a set: git gives the index alone, others may be of another commit."""
    raise InputError(
        f"{shown(Path(path))} is not part of this diff; wtxtgit diff REV:PATH PATH compares sets"
    )
