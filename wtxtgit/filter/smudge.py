"""Smudge: what git puts in the work tree for a blob. It never breaks a checkout.

A container's text that verifies becomes the file; everything else is passed
through as it is: native texts, what is no text, and, with a warning, what is
damaged. No byte of an unverified text is ever given; a file that is written
while its text is verified is the caller's to name, or to drop.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wtxtgit.io.view import Buffer, ByteView, Windowed, pieces, write_all
from wtxtgit.model.array import Layout
from wtxtgit.text.file import assumed_layout, file_pieces, first_bytes
from wtxtgit.text.grammar import MAGIC
from wtxtgit.text.index import TextIndex, index
from wtxtgit.text.verify import TextReport, verify

if TYPE_CHECKING:
    from wtxtgit.io.pieces import PieceWindows


@dataclass(frozen=True, slots=True)
class Smudged:
    """What smudge makes of a blob; `layout` is None where it is passed through."""

    text: ByteView
    index: TextIndex | None = None
    layout: Layout | None = None
    threads: int | None = None
    warning: str | None = None

    def pieces(self) -> Iterable[Buffer]:
        if self.layout is None or self.index is None:
            return pieces(self.text)
        return file_pieces(self.text, self.index, self.layout, threads=self.threads)


def smudge(text: ByteView, *, threads: int | None = None) -> Smudged:
    """Smudge a blob's content, given as a flat view of its bytes."""
    if text[: len(MAGIC)] != MAGIC:
        return Smudged(text)
    return smudge_verified(text, verify(text, threads=threads), threads=threads)


def smudge_into(descriptor: int, text: ByteView, *, threads: int | None = None) -> str | None:
    """Write what smudge makes of a blob into an empty file; gives the warning, if any.

    Raises OSError where it can't be written.
    """
    is_whole = False
    if text[: len(MAGIC)] != MAGIC:
        made = Smudged(text)
    else:
        indexed = index(text)
        layout = assumed_layout(text, indexed)
        if layout is None:
            report = verify(text, indexed=indexed, threads=threads)
        else:
            # Git's filter gives pieces, and does without.
            from wtxtgit.text.restoring import verify_into

            report, is_whole = verify_into(descriptor, text, indexed, layout, threads=threads)
        made = smudge_verified(text, report, threads=threads)
    if is_whole and made.layout is None:
        # A file that no blob may stand for.
        os.ftruncate(descriptor, 0)
        is_whole = False
    if not is_whole:
        write_all(descriptor, made.pieces())
    return made.warning


def smudge_arriving(descriptor: int, blob: PieceWindows, *, threads: int | None = None) -> bool:
    """Write what smudge makes of a blob whose pieces come into an empty file, if that is simple.

    Otherwise the file is empty, and `smudge_into` tells, given the whole blob. Raises
    EnvironmentFailure where pieces don't come, OSError for what is no text and can't be written.
    """
    if Windowed(blob)[: len(MAGIC)] == MAGIC:
        from wtxtgit.text.restoring import verify_arriving

        return verify_arriving(descriptor, blob, threads=threads)
    write_all(descriptor, blob.passing())
    return True


def smudge_verified(text: ByteView, report: TextReport, *, threads: int | None = None) -> Smudged:
    """Smudge a text, given what its verification found."""
    if not report.ok:
        if report.is_pending:
            return Smudged(text)
        return Smudged(text, warning=f"damaged, left as text: {report.problems[0]}")
    layout = report.layout
    if layout is None or not layout.is_container:
        return Smudged(text)
    if first_bytes(text, report.index, layout, len(MAGIC)) == MAGIC:
        return Smudged(text, warning="the file it stands for is a text itself, left as text")
    return Smudged(text, report.index, layout, threads)
