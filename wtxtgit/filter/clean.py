"""Clean: what git stores for a file.

`docs/spec/containers.md`, section "What clean gives". Clean is a pure function
of the file's bytes. It never fails because of content, and never loses a byte:
what can't be cut is stored whole, and a text that can't be read is stored as
it is, with a warning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wtxtgit.containers.any_format import split
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.text.grammar import MAGIC
from wtxtgit.text.layout import snapshot_of
from wtxtgit.text.write import Progress, TextWriter


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What clean makes of a file.

    `writer` gives the text; it is None where the file is stored as it is, a
    text already. `reason` says why a file is stored whole (opaque), `warning`
    what is wrong with a text.
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
    cleaned = text_of(data, threads=threads, progress=progress)
    if cleaned.writer is not None and not len(cleaned.source):
        # Git takes an empty file for changed unless its blob is empty: `ce_match_stat_basic`.
        return Cleaned(None, cleaned.source)
    return cleaned


def text_of(
    data: ByteView, *, threads: int | None = None, progress: Progress | None = None
) -> Cleaned:
    """What clean gives, but of the empty file its text."""
    if data[: len(MAGIC)] != MAGIC:
        return _cut(data, threads, progress)
    # Reading texts: most files are none.
    from wtxtgit.text.file import file_pieces, first_bytes
    from wtxtgit.text.verify import verify

    report = verify(data, threads=threads)
    if report.is_pending:
        return Cleaned(None, data, warning="a pending text, its root is not sealed yet")
    if not report.ok:
        return Cleaned(None, data, warning=f"not a valid text: {report.problems[0]}")
    if report.layout is None or not report.is_container:
        return Cleaned(None, data)
    if first_bytes(data, report.index, report.layout, len(MAGIC)) == MAGIC:
        return Cleaned(None, data, warning="a text that stands for another text")
    restored = spooled(file_pieces(data, report.index, report.layout, threads=threads))
    return _cut(restored, threads, progress)


def _cut(data: ByteView, threads: int | None, progress: Progress | None) -> Cleaned:
    cut = split(data)
    writer = TextWriter(snapshot_of(cut), threads=threads, progress=progress)
    return Cleaned(writer, data, reason=cut.reason)
