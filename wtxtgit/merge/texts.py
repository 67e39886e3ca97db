"""The merge of three contents as git stores them: each is merged as the file that it stands for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from wtxtgit.filter.clean import Cleaned, clean, clean_keeping
from wtxtgit.filter.smudge import smudge
from wtxtgit.git.repository import Repository
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView
from wtxtgit.merge.container import Merger
from wtxtgit.merge.policy import stored_side_taken
from wtxtgit.model.array import PayloadSource
from wtxtgit.report.merge import MergeReport
from wtxtgit.store.place import store_of
from wtxtgit.text.grammar import is_detached, is_text


def merge_texts(
    base: ByteView,
    ours: ByteView,
    theirs: ByteView,
    merger: Merger,
    *,
    repo: Repository | None = None,
    becomes_detached: Callable[[], bool] = lambda: False,
    threads: int | None = None,
) -> tuple[MergeReport, ByteView]:
    """Merge three contents as git stores them; `base` is empty where both sides added the file.

    Gives the report and the merged content: a text where ours is one, ours
    itself where there are conflicts. A change of one side alone is taken as it
    is. Raises nothing because of content.

    The payload of detached texts is in the store of `repo`. What is merged is a text as
    the driver `wtxt-detached` makes it where ours is detached, or `becomes_detached` says so.
    """
    side = stored_side_taken(base, ours, theirs)
    if side is not None:
        return MergeReport("", side), ours if side == "ours" else theirs
    stored = {"base": base, "ours": ours, "theirs": theirs}
    files = []
    for name, content in stored.items():
        smudged = smudge(content, threads=threads, payload=partial(_payload, repo))
        if smudged.layout is None and is_text(content):
            # It stands for no file, or for none that can be trusted: a side is all there is.
            reason = f"{name} is {_fault(smudged.warning)}"
            merged = merger.by_side(base if len(base) else None, ours, theirs, reason)
            return merged, merged.data
        files.append(content if smudged.layout is None else spooled(smudged.pieces()))
    merged = merger.merge(files[0] if len(base) else None, files[1], files[2])
    if merged.conflicts:
        return merged, ours
    whole = stored.get(merged.taken or "")
    # An empty ours is stored as it is, and says nothing of what is stored besides.
    form = ours if len(ours) else theirs
    if whole is not None and is_text(whole) == is_text(form):
        return merged, whole
    if not is_text(form):
        return merged, merged.data
    made: Cleaned
    if repo is not None and (is_detached(form) or becomes_detached()):
        from wtxtgit.filter.payload import keeping

        before = form if is_detached(form) else None
        made = clean_keeping(merged.data, lambda: keeping(repo, lambda: before), threads=threads)
    else:
        made = clean(merged.data, threads=threads)
    return merged, spooled(made.pieces())


def _payload(repo: Repository | None) -> PayloadSource | None:
    return None if repo is None else store_of(repo)


def _fault(warning: str | None) -> str:
    """Why there is no file that a text stands for, by the warning that smudge gives of it."""
    if warning is not None:
        return f"no text of a file: {warning.replace(', left as text', '', 1)}"
    return "a native text, which has a generation and maybe a signature of its own"
