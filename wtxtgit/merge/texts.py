"""The merge of three contents as git stores them: each is merged as the file that it stands for."""

from __future__ import annotations

from pathlib import Path

from wtxtgit.checkpoint.open import OpenedTarget, as_checked_out, file_of, read
from wtxtgit.filter.clean import clean
from wtxtgit.io.files import replace_file, write_output
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView, pieces, write_all
from wtxtgit.merge import side_taken
from wtxtgit.merge.container import Merged, Merger
from wtxtgit.merge.policy import check_takes
from wtxtgit.report.merge import MergeReport
from wtxtgit.text.grammar import MAGIC


def merge_texts(
    base: ByteView,
    ours: ByteView,
    theirs: ByteView,
    merger: Merger,
    *,
    threads: int | None = None,
) -> tuple[MergeReport, ByteView]:
    """Merge three contents as git stores them; `base` is empty where both sides added the file.

    Gives the report and the merged content: a text where ours is one, ours
    itself where there are conflicts. A change of one side alone is taken as it
    is. Raises nothing because of content.
    """
    side = side_taken(base, ours, theirs)
    if side is not None:
        return MergeReport("", side), ours if side == "ours" else theirs
    files = []
    for name, content in (("base", base), ("ours", ours), ("theirs", theirs)):
        target = as_checked_out(name, content, threads)
        if (fault := _fault(target)) is not None:
            reason = f"{name} is {fault}"
            merged = merger.by_side(base if len(base) else None, ours, theirs, reason)
            return _report(merged), merged.data
        files.append(target.data)
    merged = merger.merge(files[0] if len(base) else None, files[1], files[2])
    report = _report(merged)
    if merged.conflicts:
        return report, ours
    whole = {"ours": ours, "theirs": theirs, "base": base}.get(merged.taken or "")
    # An empty ours is stored as it is, and says nothing of what is stored besides.
    is_text = _is_text(ours if len(ours) else theirs)
    if whole is not None and _is_text(whole) == is_text:
        return report, whole
    if not is_text:
        return report, merged.data
    return report, spooled(clean(merged.data, threads=threads).pieces())


def _is_text(content: ByteView) -> bool:
    return content[: len(MAGIC)] == MAGIC


def _fault(target: OpenedTarget) -> str | None:
    """Why there is no file that a content stands for, where there is none."""
    if target.report is None:
        return None
    if target.warning is not None:
        return f"no text of a file: {target.warning.replace(', left as text', '', 1)}"
    return "a native text, which has a generation and maybe a signature of its own"


def _report(merged: Merged) -> MergeReport:
    return MergeReport(merged.format, merged.taken, merged.settled, merged.conflicts, merged.notes)


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
    write = write_output
    if out is None:
        out, write = file_of(ours, "-o FILE says where the result goes"), replace_file
    contents = [read(one, threads=threads) for one in (base, ours, theirs)]
    report, merged = merge_texts(contents[0], contents[1], contents[2], merger, threads=threads)
    # Before anything is written: a name that nothing has is most likely misspelled.
    check_takes(merger.policy.takes, report)
    if report.ok and out == STDOUT:
        write_all(1, pieces(merged))
    elif report.ok and not (out == Path(ours) and report.taken == "ours"):
        write(out, lambda descriptor: write_all(descriptor, pieces(merged)))
    return report
