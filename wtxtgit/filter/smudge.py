"""Smudge: what git puts into the work tree for a blob. It never breaks a checkout.

A container's text that verifies becomes the file; everything else is passed through: native texts,
what is no text, and, with a warning, what is damaged. A detached text becomes what its attached
form does, if all of its payload is at hand. No byte of an unverified text is ever yielded; if a
file is written while its text is verified the caller has to name it, or discard it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wtxtgit.errors import TextError
from wtxtgit.io.progress import Progress, expect
from wtxtgit.io.view import Buffer, ByteView, Windowed, counted, pieces, write_all
from wtxtgit.model.array import (
    NO_PAYLOAD,
    PAYLOAD_DAMAGED,
    PAYLOAD_MISSING,
    FindPayload,
    Layout,
    PayloadSource,
)
from wtxtgit.text.file import assumed_layout, file_pieces, first_bytes
from wtxtgit.text.grammar import DETACHED_MAGIC, MAGIC, is_detached, is_text
from wtxtgit.text.index import TextIndex, index
from wtxtgit.text.verify import TextReport, verify

if TYPE_CHECKING:
    from wtxtgit.filter.proved import ProvedTexts
    from wtxtgit.io.pieces import PieceWindows


FindProved = Callable[[], "ProvedTexts | None"]
"""Returns the texts that were proved before, None if unknown; only used for detached texts."""


def _source_of(text: ByteView, payload: FindPayload) -> PayloadSource:
    source = payload() if is_detached(text) else None
    return NO_PAYLOAD if source is None else source


@dataclass(frozen=True, slots=True)
class Smudged:
    """The result of smudging a blob; `layout` is None if it is passed through.

    A detached text that stands for no file becomes the attached text, by the report `attached`.
    `lacks_payload` marks one that is passed through for that reason alone, and `damaged_payload`
    one whose data is damaged in the store.
    """

    text: ByteView
    index: TextIndex | None = None
    layout: Layout | None = None
    threads: int | None = None
    warning: str | None = None
    attached: TextReport | None = None
    lacks_payload: bool = False
    damaged_payload: bool = False

    def pieces(self, *, may_fork: bool = False) -> Iterable[Buffer]:
        """Yield the result; `may_fork` as in `file_pieces`."""
        if (detached := self.attached) is not None:
            from wtxtgit.text.detached import attached

            return attached(self.text, detached.index, detached.layout, threads=self.threads)
        if self.layout is None or self.index is None:
            return pieces(self.text)
        return file_pieces(
            self.text, self.index, self.layout, threads=self.threads, may_fork=may_fork
        )


def smudge(
    text: ByteView,
    *,
    threads: int | None = None,
    payload: FindPayload = lambda: None,
    proved: FindProved = lambda: None,
    indexed: TextIndex | None = None,
) -> Smudged:
    """Smudge a blob's content, given as a flat view of its bytes.

    `payload` returns where a detached text's payload is, `proved` the texts that were proved
    before. `indexed` is the text's index with that payload, if it exists already.
    """
    if not is_text(text):
        return Smudged(text)
    indexed = indexed or index(text, payload=_source_of(text, payload))
    known = _proved(text, indexed, proved, threads)
    # Decided before the first byte is yielded, because git can't be asked to discard it later. The
    # states are taken before packs are read, since they may be modified meanwhile.
    states = _states(indexed, proved)
    if known is not None and (own := proved()) is not None and own.are_sound(text, states):
        return known
    report = verify(text, threads=threads, indexed=indexed)
    _take_down(text, report, proved, states)
    return smudge_verified(text, report, threads=threads)


def smudge_into(
    descriptor: int,
    text: ByteView,
    *,
    threads: int | None = None,
    payload: FindPayload = lambda: None,
    proved: FindProved = lambda: None,
    indexed: TextIndex | None = None,
    progress: Progress | None = None,
) -> Smudged:
    """Write what smudge makes of a blob into an empty file; returns the result.

    Arguments are as for `smudge`; `progress` gets counts of the bytes of its arrays. Raises OSError
    if the file can't be written.
    """
    if not is_text(text):
        write_all(descriptor, pieces(text))
        return Smudged(text)
    is_whole = False
    indexed = indexed or index(text, payload=_source_of(text, payload))
    known = _proved(text, indexed, proved, threads)
    if known is not None:
        expect(progress, sum(array.nbytes for array in indexed.arrays))
        try:
            write_all(descriptor, counted(known.pieces(may_fork=True), progress))
            return known
        except TextError:
            # A chunk is damaged or missing.
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
    states = _states(indexed, proved)
    layout = assumed_layout(text, indexed)
    if layout is None:
        report = verify(text, indexed=indexed, threads=threads, progress=progress)
    else:
        # Imported here: git's filter, which yields pieces, does not need it.
        from wtxtgit.text.restoring import verify_into

        report, is_whole = verify_into(
            descriptor, text, indexed, layout, threads=threads, progress=progress
        )
    _take_down(text, report, proved, states)
    smudged = smudge_verified(text, report, threads=threads)
    if is_whole and smudged.layout is None:
        # The file is one that no blob may stand for.
        os.ftruncate(descriptor, 0)
        is_whole = False
    if not is_whole:
        write_all(descriptor, smudged.pieces(may_fork=True))
    return smudged


def smudge_arriving(descriptor: int, blob: PieceWindows, *, threads: int | None = None) -> bool:
    """Smudge a blob into an empty file while its pieces arrive; returns whether that was possible.

    If not the file is empty, and `smudge_into` has to be given the whole blob. Raises
    EnvironmentFailure if pieces don't arrive, OSError if what is no text can't be written.
    """
    head = Windowed(blob)
    # A detached text is small, and its payload may be missing.
    if is_detached(head):
        return False
    if head[: len(MAGIC)] == MAGIC:
        from wtxtgit.text.restoring import verify_arriving

        return verify_arriving(descriptor, blob, threads=threads)
    write_all(descriptor, blob.passing())
    return True


def _proved(
    text: ByteView, indexed: TextIndex, proved: FindProved, threads: int | None
) -> Smudged | None:
    """Return the result for a detached text that stands for a file and was proved before.

    Returns None for any other text. Whether its payload is at hand is not checked.
    """
    if indexed.payload is NO_PAYLOAD:
        return None
    known = proved()
    if known is None or not known.holds(text):
        return None
    layout = assumed_layout(text, indexed)
    try:
        if layout is None or _stands_for_text(text, indexed, layout):
            return None
    except TextError:
        # The first chunk is missing.
        return None
    return Smudged(text, indexed, layout, threads)


def _states(indexed: TextIndex, proved: FindProved) -> Collection[bytes]:
    """Return the states of what holds the payload of a detached text.

    Empty if nobody records them.
    """
    if indexed.payload is NO_PAYLOAD or proved() is None:
        return ()
    return indexed.payload.states(indexed.payload_names)


def _take_down(
    text: ByteView, report: TextReport, proved: FindProved, states: Collection[bytes]
) -> None:
    if report.ok and report.index.is_detached and (known := proved()):
        known.put(pieces(text))
        known.put_sound(text, states)


def _stands_for_text(text: ByteView, indexed: TextIndex, layout: Layout) -> bool:
    head = first_bytes(text, indexed, layout, len(DETACHED_MAGIC))
    # An attached text may stand for a file that is itself a detached text: clean of the driver
    # `wtxt` makes that of such a file, which it does not take for a text.
    return head.startswith(MAGIC) or (indexed.is_detached and is_text(head))


def smudge_verified(text: ByteView, report: TextReport, *, threads: int | None = None) -> Smudged:
    """Smudge a text, given the report of its verification."""
    if not report.ok:
        if report.is_pending:
            return Smudged(text)
        if report.lacks_payload:
            warning = f"left as a detached text: {report.problems[0].message}"
            return Smudged(text, warning=warning, lacks_payload=True)
        if all(problem.kind in (PAYLOAD_MISSING, PAYLOAD_DAMAGED) for problem in report.problems):
            warning = f"left as a detached text: {report.problems[0]}"
            return Smudged(text, warning=warning, damaged_payload=True)
        return Smudged(text, warning=f"damaged, left as text: {report.problems[0]}")
    layout = report.layout
    if layout is None or not layout.is_container:
        if not report.index.is_detached:
            return Smudged(text)
        return Smudged(text, threads=threads, attached=report)
    if _stands_for_text(text, report.index, layout):
        return Smudged(text, warning="it stands for another text, left as text")
    return Smudged(text, report.index, layout, threads)
