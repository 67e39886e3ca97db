"""Merges three contents as git stores them: texts are merged as the files that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import sha256

from wtxtgit.filter.clean import Cleaned, clean, clean_keeping
from wtxtgit.filter.smudge import smudge
from wtxtgit.git.repository import Repository
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView, hashed, pieces
from wtxtgit.merge.container import Merger
from wtxtgit.merge.policy import side_taken, stored_side_taken
from wtxtgit.model.array import NO_PAYLOAD, PayloadSource
from wtxtgit.report.merge import MergeReport
from wtxtgit.text.grammar import MOST_ATTACHED, is_detached, is_text
from wtxtgit.text.index import index, want_payload


def merge_texts(
    base: ByteView,
    ours: ByteView,
    theirs: ByteView,
    merger: Merger,
    *,
    repo: Repository | None = None,
    tracked: Callable[[], bool | None] = lambda: None,
    threads: int | None = None,
) -> tuple[MergeReport, ByteView]:
    """Merge three contents as git stores them; `base` is empty if both sides added the file.

    Returns the report and the merged content: a text if ours is one, and ours itself if there are
    conflicts. A change by only one side is taken as it is. Never raises because of content.

    The payload of detached texts is in the store of `repo`. Whether the result is a detached text
    is merged, too: `docs/merge.md`, section "Detached texts". `tracked` returns the form that
    attributes say: True for detached texts, None if they say neither.
    """
    side = stored_side_taken(base, ours, theirs)
    if side is not None:
        return MergeReport("", side), ours if side == "ours" else theirs
    stored = {"base": base, "ours": ours, "theirs": theirs}
    as_file = partial(smudge, threads=threads, payload=partial(_payload, repo))
    smudged = {name: as_file(content) for name, content in stored.items()}
    becomes_detached = _becomes_detached(base, ours, theirs, tracked)
    fits = partial(_has_form, is_detached_form=becomes_detached)
    if any(version.lacks_payload for version in smudged.values()):
        # Whether contents are equal in another form can be decided without payload.
        names = [memoryview(_detached_name(version, threads)) for version in stored.values()]
        side = side_taken(names[0] if len(base) else None, names[1], names[2])
        if side is not None:
            same = (ours, theirs) if names[1] == names[2] else (stored[side],)
            whole = next(filter(fits, same), same[0])
            taken = smudged[side]
            if fits(whole) or taken.layout is None:
                return MergeReport("", side), whole
            text = _text(spooled(taken.pieces()), repo, becomes_detached, None, threads)
            return MergeReport("", side), text
        _fetch(repo, stored.values())
        for name, content in stored.items():
            if smudged[name].lacks_payload:
                smudged[name] = as_file(content)
    files = []
    for name, version in smudged.items():
        if version.layout is None and is_text(version.text):
            # There is no file, or none that can be trusted: only a side can be taken.
            reason = f"{name} is {_fault(version.warning)}"
            if version.lacks_payload:
                reason += "; wtxtgit fetch fetches them"
            merged = merger.by_side(base if len(base) else None, ours, theirs, reason)
            return merged, merged.data
        files.append(version.text if version.layout is None else spooled(version.pieces()))
    merged = merger.merge(files[0] if len(base) else None, files[1], files[2])
    if merged.conflicts:
        return merged, ours
    # An empty ours says nothing about the form in which the result is to be stored.
    form = ours if len(ours) else theirs
    taken_whole = stored.get(merged.taken or "")
    if taken_whole is not None and is_text(taken_whole) == is_text(form) and fits(taken_whole):
        return merged, taken_whole
    if not is_text(form):
        return merged, merged.data
    previous = next(filter(is_detached, (ours, theirs)), None)
    return merged, _text(merged.data, repo, becomes_detached, previous, threads)


def stored_as(
    file: ByteView,
    versions: Sequence[ByteView],
    *,
    repo: Repository,
    tracked: Callable[[], bool | None],
    threads: int | None = None,
) -> ByteView:
    """Return a merged file as git stores it: in the form that follows from its three versions."""
    base, ours, theirs = versions
    if not is_text(ours):
        return file
    previous = next(filter(is_detached, (ours, theirs)), None)
    form = _becomes_detached(base, ours, theirs, tracked)
    return _text(file, repo, form, previous, threads)


def _form(content: ByteView) -> bool | None:
    """Whether a content is a detached text; None if both forms of it would be the same."""
    if is_detached(content):
        return True
    return False if is_text(content) and len(content) > MOST_ATTACHED else None


def _has_form(content: ByteView, *, is_detached_form: bool) -> bool:
    return _form(content) in (None, is_detached_form)


def _becomes_detached(
    base: ByteView, ours: ByteView, theirs: ByteView, tracked: Callable[[], bool | None]
) -> bool:
    forms = [_form(one) for one in (base, ours, theirs)]
    base_form, our_form, their_form = forms
    # One side switched the form, and its attributes too: the work tree may have the other's.
    if None not in forms and our_form != their_form:
        return bool(their_form if our_form == base_form else our_form)
    tracked_form = tracked()
    return next(
        (bool(one) for one in (tracked_form, our_form, their_form) if one is not None), False
    )


def _detached_name(content: ByteView, threads: int | None) -> bytes:
    """Return the SHA-256 of a text's detached form, and for any other content its own."""
    # Imported late: rarely needed, since mostly all payload is available.
    from wtxtgit.filter.content import detached_hash

    name = None if is_detached(content) else detached_hash(content, threads=threads)
    return name or hashed(sha256(), pieces(content)).digest()


def _text(
    file: ByteView,
    repo: Repository | None,
    becomes_detached: bool,
    previous: ByteView | None,
    threads: int | None,
) -> ByteView:
    """Return the text of a file; the store encodes its data as a difference from `previous`."""
    cleaned: Cleaned
    if repo is not None and becomes_detached:
        from wtxtgit.filter.payload import keeping

        cleaned = clean_keeping(file, lambda: keeping(repo, lambda: previous), threads=threads)
    else:
        cleaned = clean(file, threads=threads)
    return spooled(cleaned.pieces())


def _payload(repo: Repository | None) -> PayloadSource | None:
    if repo is None:
        return None
    # Only called for detached texts.
    from wtxtgit.remotes.payload.on_demand import FetchedPayload

    return FetchedPayload.of(repo)


def _fetch(repo: Repository | None, contents: Iterable[ByteView]) -> None:
    """Fetch the payload of texts, for all of them in one go."""
    payload = _payload(repo) or NO_PAYLOAD
    indexes = [index(content, payload=payload) for content in contents if is_detached(content)]
    want_payload(array for one in indexes if one.stop is None for array in one.arrays)


def _fault(warning: str | None) -> str:
    """Return why a text can't be turned into a file, from smudge's warning."""
    if warning is not None:
        return f"not the text of a file: {warning.replace(', left as text', '', 1)}"
    return "a native text, which has its own generation and perhaps its own signature"
