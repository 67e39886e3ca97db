"""Merging what git stores: texts, each merged as the file that it stands for."""

from __future__ import annotations

from wtxtgit.model import Buffer
from wtxtgit.ops.clean import clean
from wtxtgit.ops.comparison import equal_bytes
from wtxtgit.ops.merge.container import Merged, Merger
from wtxtgit.ops.merge.policy import WHOLE
from wtxtgit.ops.smudge import smudge_verified
from wtxtgit.ops.spool import spooled
from wtxtgit.report.merge import Conflict, Kind, MergeReport, Settled, Strategy
from wtxtgit.text.grammar import MAGIC
from wtxtgit.text.verify import verify


def merge_texts(
    base: memoryview,
    ours: memoryview,
    theirs: memoryview,
    merger: Merger,
    *,
    threads: int | None = None,
) -> tuple[MergeReport, memoryview]:
    """Merge three contents as git stores them; `base` is empty where both sides added the file.

    Gives the report and the merged content: a text where ours is one, ours
    itself where there are conflicts. A change of one side alone is taken as it
    is. Raises nothing because of content.
    """
    if equal_bytes(ours, theirs) or equal_bytes(base, theirs):
        return MergeReport("", "ours"), ours
    if len(base) and equal_bytes(base, ours):
        return MergeReport("", "theirs"), theirs
    found: list[memoryview] = []
    for name, content in (("base", base), ("ours", ours), ("theirs", theirs)):
        data, fault = _file_of(content, threads)
        if fault is not None:
            return _by_side(base, ours, theirs, merger, f"{name} is {fault}")
        found.append(data)
    merged = merger.merge(found[0] if len(base) else None, found[1], found[2])
    report = _report(merged)
    if merged.conflicts:
        return report, ours
    whole = {"ours": ours, "theirs": theirs, "base": base}.get(merged.taken or "")
    if whole is not None:
        return report, whole
    if ours[: len(MAGIC)] != MAGIC:
        return report, merged.data
    return report, spooled(clean(merged.data, threads=threads).pieces())


def _file_of(content: memoryview, threads: int | None) -> tuple[memoryview, str | None]:
    """The file that a content stands for, or why there is none."""
    if content[: len(MAGIC)] != MAGIC:
        return content, None
    report = verify(content, threads=threads)
    smudged = smudge_verified(content, report, threads=threads)
    if smudged.layout is not None:
        return spooled(smudged.pieces()), None
    if smudged.warning is not None:
        return content, f"no text of a file: {smudged.warning.replace(', left as text', '', 1)}"
    return content, "a native text, which has a generation and maybe a signature of its own"


def _by_side(
    base: Buffer, ours: memoryview, theirs: memoryview, merger: Merger, reason: str
) -> tuple[MergeReport, memoryview]:
    """Settle contents that can't be looked into."""
    choice = merger.policy.choose(WHOLE)
    taken = {
        Strategy.OURS: ours,
        Strategy.THEIRS: theirs,
        Strategy.BASE: memoryview(base) if len(base) else None,
    }.get(choice)
    if taken is None:
        return MergeReport("wtxt", conflicts=(Conflict(WHOLE, Kind.FILE, reason),)), ours
    return MergeReport("wtxt", str(choice), (Settled(WHOLE, Kind.FILE, str(choice)),)), taken


def _report(merged: Merged) -> MergeReport:
    return MergeReport(merged.format, merged.taken, merged.settled, merged.conflicts, merged.notes)
