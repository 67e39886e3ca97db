"""Clean: what git stores for a file.

`docs/spec/containers.md`, section "What clean gives". Clean is a pure function of the file's bytes.
It never fails because of content, and never loses a byte: what can't be cut is stored whole, and a
text that can't be read is stored as it is, with a warning. `clean_detached` is the clean of the
driver `wtxt-detached`: `docs/spec/detached.md`, section "What the driver gives".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

from wtxtgit.containers.any_format import split
from wtxtgit.io.progress import Progress
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.model.array import PAYLOAD_MISSING, Keep, Snapshot
from wtxtgit.text.grammar import COMPANION_MAGICS, LFS_MAGIC, MAGIC, MOST_ATTACHED, is_detached
from wtxtgit.text.layout import snapshot_of
from wtxtgit.text.write import TextWriter


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The result of cleaning a file.

    `writer` writes the text; it is None if the file is stored as it is, because it is a text
    already. `reason` says why a file is stored whole (opaque), `warning` what is wrong with a text,
    or that the file stands for another one.
    """

    writer: TextWriter | None
    source: ByteView
    reason: str | None = None
    warning: str | None = None

    def pieces(self) -> Iterable[Buffer]:
        return pieces(self.source) if self.writer is None else self.writer.stream()


def clean(
    data: ByteView, *, threads: int | None = None, progress: Progress | None = None
) -> Cleaned:
    """Clean a file's content, given as a flat view of its bytes."""
    return _without_pointers(text_of(data, threads=threads, progress=progress))


def _without_pointers(cleaned: Cleaned) -> Cleaned:
    """Have empty files, and git-lfs pointers, stored as they are."""
    if cleaned.writer is None:
        return cleaned
    if not len(cleaned.source):
        # Git treats an empty file as changed unless its blob is empty: `ce_match_stat_basic`.
        return Cleaned(None, cleaned.source)
    if any(cleaned.source[: len(magic)] == magic for magic in COMPANION_MAGICS):
        # A pattern for a folder also matches the ledgers in it, which git has to keep as they are.
        return Cleaned(None, cleaned.source)
    if cleaned.source[: len(LFS_MAGIC)] == LFS_MAGIC:
        # Imported here: most files are no pointers of git-lfs.
        from wtxtgit.remotes.lfs_pointer import POINTER, read_pointer

        if read_pointer(cleaned.source) is not None:
            return Cleaned(None, cleaned.source, warning=f"{POINTER} (wtxtgit fetch)")
    return cleaned


def clean_detached(
    data: ByteView,
    keep: Keep | None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Cleaned:
    """Clean a file's content for the driver `wtxt-detached`.

    `keep` gets the payload of a detached text while it is hashed: for a file when its writer's root
    is asked for, for a text before this returns.
    """
    if is_detached(data):
        return Cleaned(None, data, warning=_fault_of_detached(data, threads))
    # A file with that much data surely has a larger text: no attached one is planned first.
    writing = partial(_detached_if_large, keep, threads=threads, progress=progress)
    cleaned = _without_pointers(_text_of(data, threads, writing))
    writer = cleaned.writer
    if writer is not None and writer.is_detached:
        return cleaned
    size = len(cleaned.source) if writer is None else writer.size
    if size <= MOST_ATTACHED:
        return cleaned
    if writer is None:
        return detached_text(cleaned, keep, threads=threads, progress=progress)
    return replace(cleaned, writer=writer.detached(keep))


def clean_keeping(
    data: ByteView,
    keeping: Callable[[], AbstractContextManager[Keep]],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Cleaned:
    """Do the same, with all payload stored when it returns: when the context of `keeping` ends."""
    with keeping() as keep:
        cleaned = clean_detached(data, keep, threads=threads, progress=progress)
        if cleaned.writer is not None and cleaned.writer.is_detached:
            _ = cleaned.writer.root
    return cleaned


def detached_text(
    cleaned: Cleaned,
    keep: Keep | None,
    *,
    needs_layout: bool = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Cleaned:
    """Detach a text that is stored as it is, if it is valid and, if required, has a layout."""
    from wtxtgit.text.detached import rewritten
    from wtxtgit.text.verify import verify

    data = cleaned.source
    report = verify(data, threads=threads)
    if not report.ok or (needs_layout and report.layout is None):
        return cleaned
    with rewritten(
        data,
        report.index,
        report.layout,
        detached=True,
        keep=keep,
        threads=threads,
        progress=progress,
    ) as writer:
        return replace(cleaned, source=spooled(writer.stream()))


def _fault_of_detached(data: ByteView, threads: int | None) -> str | None:
    from wtxtgit.text.verify import verify

    # Verified without payload: whether it is at hand must not affect what clean gives.
    problems = verify(data, threads=threads).problems
    wrong = [problem for problem in problems if problem.kind != PAYLOAD_MISSING]
    return f"not a valid detached text: {wrong[0]}" if wrong else None


def text_of(
    data: ByteView, *, threads: int | None = None, progress: Progress | None = None
) -> Cleaned:
    """Do what clean does, but also make texts of empty files and git-lfs pointers."""
    return _text_of(data, threads, partial(TextWriter, threads=threads, progress=progress))


def _detached_if_large(
    keep: Keep | None, snapshot: Snapshot, *, threads: int | None, progress: Progress | None
) -> TextWriter:
    nbytes = sum(array.data.nbytes for array in snapshot.arrays)
    writing = partial(TextWriter, snapshot, threads=threads, progress=progress)
    return writing(detached=True, keep=keep) if nbytes > MOST_ATTACHED else writing()


def _text_of(
    data: ByteView, threads: int | None, writing: Callable[[Snapshot], TextWriter]
) -> Cleaned:
    if data[: len(MAGIC)] != MAGIC:
        return _cut(data, writing)
    # Imported here: most files are no texts.
    from wtxtgit.text.file import file_pieces, first_bytes
    from wtxtgit.text.verify import verify

    report = verify(data, threads=threads)
    if report.is_pending:
        return Cleaned(None, data, warning="a pending text, not finalized yet")
    if not report.ok:
        return Cleaned(None, data, warning=f"not a valid text: {report.problems[0]}")
    if report.layout is None or not report.is_container:
        return Cleaned(None, data)
    if first_bytes(data, report.index, report.layout, len(MAGIC)) == MAGIC:
        return Cleaned(None, data, warning="a text that stands for another text")
    restored = spooled(file_pieces(data, report.index, report.layout, threads=threads))
    return _cut(restored, writing)


def _cut(data: ByteView, writing: Callable[[Snapshot], TextWriter]) -> Cleaned:
    cut = split(data)
    reason, snapshot = cut.reason, snapshot_of(cut)
    # Its arrays are in the snapshot as well, as objects of their own.
    del cut
    return Cleaned(writing(snapshot), data, reason=reason)
