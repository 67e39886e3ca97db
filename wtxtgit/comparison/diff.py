"""Diff: what changed from one checkpoint to another, each a file, a URL or REV:PATH.

If both are known to have one content, it is read once, and no tensor is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from wtxtgit.checkpoint.contents import NoCheckpoint, open_side, to_read
from wtxtgit.checkpoint.members import members
from wtxtgit.checkpoint.open import checkpoint_oid, is_blob, is_file, payload_for, read_checkpoint
from wtxtgit.comparison.compare import compare, distributions_of, is_empty, with_members
from wtxtgit.comparison.problems import problem_notes
from wtxtgit.containers.format import SetFolder
from wtxtgit.io.files import opened_regular, view_file
from wtxtgit.io.progress import Progress, expect
from wtxtgit.io.view import ByteView, Pages
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.report.diff import DiffReport

if TYPE_CHECKING:  # a diff starts for every file, and must not load the reports of a review
    from wtxtgit.report.review import Distributions


def diff(
    a: str,
    b: str,
    options: ReadOptions,
    *,
    key_file: Path | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> DiffReport:
    """Compare two checkpoints, `a` before and `b` after: see `pictured`."""
    return pictured(
        a,
        b,
        options,
        key_file=key_file,
        threads=threads,
        progress=progress,
        with_distributions=False,
    )[0]


def pictured(
    a: str,
    b: str,
    options: ReadOptions,
    *,
    key_file: Path | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    with_distributions: bool = True,
) -> tuple[DiffReport, dict[str, Distributions]]:
    """Compare two checkpoints, and count the values of the tensors that changed most.

    An existing file wins over a revision. A text is compared as the file that it stands for, and a
    delta as what it makes; damaged ones are refused so far as they are read. Files that
    `filter.content.ContentCache` knows, under the secret in `key_file`, are not read again.
    `progress` receives counts of bytes read. Raises InputError, CheckError and EnvironmentFailure.
    """
    same = same_content(a, b, key_file)
    contents = [read_checkpoint(name, threads=threads) if same is None else same for name in (a, b)]
    compared = partial(
        _compared,
        (a, b),
        options=options,
        threads=threads,
        progress=progress,
        with_distributions=with_distributions,
    )
    try:
        return compared(contents)
    except NoCheckpoint:
        # Encrypted files and deltas are recognised only after all other formats.
        from wtxtgit.checkpoint.encrypted import refuse_encrypted
        from wtxtgit.comparison.deltas import targets
        from wtxtgit.text.grammar import is_delta

        refuse_encrypted(*contents)
        if not any(map(is_delta, contents)):
            raise
        made, notes = targets((a, b), contents, threads=threads)
        report, counted = compared(made)
        return replace(report, notes=notes + report.notes), counted


def _compared(
    names: tuple[str, str],
    contents: Sequence[ByteView],
    *,
    options: ReadOptions,
    threads: int | None,
    progress: Progress | None,
    with_distributions: bool,
) -> tuple[DiffReport, dict[str, Distributions]]:
    pages = Pages(progress)
    with ExitStack() as until:
        before, after = (
            open_side(
                name,
                data,
                _opened_once(members(name, threads=threads)),
                pages,
                threads,
                until,
                payload_for(name, data),
            )
            for name, data in zip(names, contents, strict=True)
        )
        expect(progress, to_read((before, after)))
        compared = compare(before, after, options, pages, threads)
        counted = {}
        if with_distributions:
            counted = dict(distributions_of(compared, pages, threads))
        report = with_members(compared.report, (before, after), options, pages, threads)
        if not is_empty(report):
            notes = problem_notes(report.b, before, after, options)
            report = replace(report, notes=(*report.notes, *notes))
        return report, counted


def _opened_once(folder: SetFolder) -> SetFolder:
    """Return a folder whose files stay open: those of a set are looked at again."""
    return SetFolder(cache(folder.open), folder.index, folder.elsewhere)


def same_content(a: str, b: str, key_file: Path | None) -> ByteView | None:
    """Return the content of two targets if they are known to have the same one, else None.

    Two blobs are compared by their ids. For a file and a blob the cache may know, under the secret
    in `key_file`, that clean makes the blob from that file: checking that takes one hash of the
    file, while git would have to inflate the blob. Raises what reading a target raises.
    """
    blobs = [target for target in (a, b) if is_blob(target)]
    if not blobs:
        return None
    from wtxtgit.filter.content import ContentCache
    from wtxtgit.git.repository import Repository

    repo = Repository.discover()
    oids = [checkpoint_oid(target, repo) for target in blobs]
    # Here both are blobs.
    if len(oids) > 1:
        return read_checkpoint(a) if oids[0] == oids[1] else None
    file = b if blobs == [a] else a
    if not is_file(file):
        return None
    with ContentCache(repo, key_file) as known:
        facts = known.file_of(oids[0])
    return view_file(Path(file)) if facts is not None and _is(file, *facts) else None


def _is(file: str, digest: bytes, size: int) -> bool:
    from wtxtgit.filter.content import file_digest

    try:
        with opened_regular(Path(file), follow_links=True) as (descriptor, status):
            return status.st_size == size and file_digest(descriptor) == (digest, size)
    except OSError:
        # Reading it later raises the reason.
        return False
