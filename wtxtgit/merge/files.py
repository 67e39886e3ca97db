"""Merging three files by hand, outside of git's merges."""

from __future__ import annotations

from pathlib import Path

from wtxtgit.checkpoint.open import is_blob, read
from wtxtgit.errors import UsageError
from wtxtgit.io.files import replace_file, write_all
from wtxtgit.io.view import pieces
from wtxtgit.merge.container import Merger
from wtxtgit.merge.policy import check_takes
from wtxtgit.merge.texts import merge_texts
from wtxtgit.report.merge import MergeReport

STDOUT = Path("-")


def merge_files(
    base: str,
    ours: str,
    theirs: str,
    out: Path | None,
    merger: Merger,
    *,
    threads: int | None = None,
) -> MergeReport:
    """Merge three checkpoints, each a file or REV:PATH; the result goes to `out`, or to `ours`.

    `out` may be `-` for standard output. An empty base stands for none. The
    result is a text where ours is one. With conflicts nothing is written.
    Raises UsageError, InputError and EnvironmentFailure.
    """
    if out is None:
        if is_blob(ours):
            raise UsageError(f"{ours!a} is in a commit: -o FILE says where the result goes")
        out = Path(ours)
    contents = read(base), read(ours), read(theirs)
    report, merged = merge_texts(*contents, merger, threads=threads)
    check_takes(merger.policy.takes, report)
    if report.ok and out == STDOUT:
        write_all(1, pieces(merged))
    elif report.ok and not (out == Path(ours) and report.taken == "ours"):
        replace_file(out, lambda descriptor: write_all(descriptor, pieces(merged)))
    return report
