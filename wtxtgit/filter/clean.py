"""Clean: what git stores for a file, and what is to be known of such a content.

`docs/spec/containers.md`, section "What clean gives". Clean is a pure function
of the file's bytes. It never fails because of content, and never loses a byte:
what can't be cut is stored whole, and a text that can't be read is stored as
it is, with a warning. `examine` is as pure: what it finds of a blob holds in
every commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from wtxtgit import containers
from wtxtgit.containers.ranges import whole
from wtxtgit.errors import MAX_MESSAGE, clipped
from wtxtgit.filter.content import ArtifactFacts
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.text.file import file_pieces, first_bytes
from wtxtgit.text.grammar import MAGIC
from wtxtgit.text.layout import snapshot_of
from wtxtgit.text.verify import Report, verify
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
    made = text_of(data, threads=threads, progress=progress)
    if made.writer is not None and not len(made.source):
        # Git takes an empty file for changed unless its blob is empty: `ce_match_stat_basic`.
        return Cleaned(None, made.source)
    return made


def text_of(
    data: ByteView, *, threads: int | None = None, progress: Progress | None = None
) -> Cleaned:
    """What clean gives, but of the empty file its text."""
    if data[: len(MAGIC)] != MAGIC:
        return _cut(data, threads, progress)
    report = verify(data, threads=threads)
    if is_pending(report):
        return Cleaned(None, data, warning="a pending text, its root is not sealed yet")
    if not report.ok:
        return Cleaned(None, data, warning=f"not a valid text: {report.problems[0]}")
    if report.layout is None or not report.is_container:
        return Cleaned(None, data)
    if first_bytes(data, report.index, report.layout, len(MAGIC)) == MAGIC:
        return Cleaned(None, data, warning="a text that stands for another text")
    restored = spooled(file_pieces(data, report.index, report.layout, threads=threads))
    return _cut(restored, threads, progress)


def is_pending(report: Report) -> bool:
    """Whether nothing is wrong with a text but that its root is pending."""
    return bool(report.problems) and all(p.kind == "pending" for p in report.problems)


def _cut(data: ByteView, threads: int | None, progress: Progress | None) -> Cleaned:
    cut = containers.split(data)
    writer = TextWriter(snapshot_of(cut), threads=threads, progress=progress)
    return Cleaned(writer, data, reason=cut.reason)


_OPAQUE = "opaque/v1"


def examine(data: ByteView, *, threads: int | None = None, opaque: bool = False) -> ArtifactFacts:
    """Find out what a content is; raises nothing because of it.

    With `opaque` the hash of its opaque text, too: what seals a content that a
    checkout writes as it is. A native text is written so wherever it stands.
    """
    facts = _examine(data, threads)
    if not (opaque or facts.is_native):
        return facts
    if facts.schema == _OPAQUE and not facts.is_text:
        return replace(facts, opaque=facts.sha256_all)
    return replace(facts, opaque=opaque_hash(data, threads=threads))


def opaque_hash(data: ByteView, *, threads: int | None = None) -> bytes:
    """The sha256_all of the opaque text of a content: 32 bytes that bind each of its bytes."""
    cut = whole(data, "sealed as it is")
    root = TextWriter(snapshot_of(cut), threads=threads).root
    return root.sha256_all


def _examine(data: ByteView, threads: int | None) -> ArtifactFacts:
    if data[: len(MAGIC)] != MAGIC:
        snapshot = snapshot_of(containers.split(data))
        root = TextWriter(snapshot, threads=threads).root
        return ArtifactFacts(len(data), False, root.sha256_all, snapshot.meta.schema)
    report = verify(data, threads=threads)
    schema = report.index.meta.schema
    if not report.ok:
        fault = clipped(str(report.problems[0]), MAX_MESSAGE)
        return ArtifactFacts(len(data), True, None, schema, fault=fault)
    sha256_all = report.sha256_all
    if not report.is_container:
        index = report.index
        signed = None
        if index.signature is not None:
            signed = bytes(data[: index.covered]), index.signature
        return ArtifactFacts(len(data), True, sha256_all, schema, meta=index.meta, signed=signed)
    is_canonical = _is_canonical(data, report, threads)
    return ArtifactFacts(len(data), True, sha256_all, schema, is_canonical)


def _is_canonical(text: ByteView, report: Report, threads: int | None) -> bool:
    """Whether clean gives the text again for the file that it stands for.

    The text verified, and its arrays give the file: where the file is cut into
    the same arrays in the same order, their bytes are the same.
    """
    index, layout = report.index, report.layout
    if layout is None or index.root is None:
        return False
    if first_bytes(text, index, layout, len(MAGIC)) in (MAGIC, b""):
        return False
    restored = spooled(file_pieces(text, index, layout, threads=threads))
    wanted = snapshot_of(containers.split(restored))
    arrays = [(a.name, a.claim.dtype, a.claim.shape, a.rows) for a in index.arrays]
    return (
        wanted.layout == layout
        and (wanted.meta, wanted.cap, wanted.prev)
        == (index.meta, index.cap, index.root.merkle_prev)
        and [(a.name, a.dtype, a.shape, a.rows) for a in wanted.arrays] == arrays
        and not any(array.has_hmac for array in index.arrays)
        and index.signature is None
        and index.audit is None
    )
