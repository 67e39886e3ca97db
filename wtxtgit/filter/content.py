"""What a content is: a text or not, and by which hash a seal knows it.

What `examine` finds of a blob is a function of its bytes alone, and so holds in
every commit; `filter.cache` keeps it. Clean says some of it without reading
its text again: `written_facts`. Spec: `docs/spec/ledger.md`, "Records".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wtxtgit.errors import MAX_MESSAGE, clipped
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView
from wtxtgit.model.array import Meta, Signature
from wtxtgit.text.grammar import MAGIC

if TYPE_CHECKING:
    from wtxtgit.text.verify import TextReport
    from wtxtgit.text.write import TextWriter

_OPAQUE = "opaque/v1"


@dataclass(frozen=True, slots=True)
class ArtifactFacts:
    """What is known of a content; nothing of it depends on trust.

    `sha256_all` (32 bytes) is that of the text which clean makes of it, None
    for a text that does not verify; `fault` then says why. `schema` is that
    text's. `is_text` tells a text from a binary, `is_canonical` one that is
    what clean gives. `meta` is a native text's own. `signed` is what a native
    text's own signature is over, and that signature. `opaque` (32 bytes) is
    sha256_all of the opaque text of the content, whatever it begins with; None
    where nobody asked for it, and it is no native text.
    """

    size: int
    is_text: bool
    sha256_all: bytes | None
    schema: str
    is_canonical: bool = True
    fault: str | None = None
    meta: Meta | None = None
    signed: tuple[bytes, Signature] | None = None
    opaque: bytes | None = None

    @property
    def is_raw(self) -> bool:
        """Whether it is no text, and clean would make one of it."""
        return not self.is_text and self.size > 0

    @property
    def is_native(self) -> bool:
        """Whether it is a text that stands for itself, which smudge gives as it is."""
        return self.meta is not None


def written_facts(writer: TextWriter) -> ArtifactFacts:
    """The facts of a text that clean makes of a file, without reading it again.

    They are what `examine` finds of that text. `writer` is that of a clean; it
    hashes the file unless it has done so.
    """
    return ArtifactFacts(writer.size, True, writer.root.sha256_all, writer.meta.schema)


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
    from wtxtgit.containers.ranges import whole
    from wtxtgit.text.layout import snapshot_of
    from wtxtgit.text.write import TextWriter

    cut = whole(data, "sealed as it is")
    root = TextWriter(snapshot_of(cut), threads=threads).root
    return root.sha256_all


def _examine(data: ByteView, threads: int | None) -> ArtifactFacts:
    # Formats, numpy: who only asks what is known does without.
    from wtxtgit.containers import any_format
    from wtxtgit.text.layout import snapshot_of
    from wtxtgit.text.verify import verify
    from wtxtgit.text.write import TextWriter

    if data[: len(MAGIC)] != MAGIC:
        snapshot = snapshot_of(any_format.split(data))
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


def _is_canonical(text: ByteView, report: TextReport, threads: int | None) -> bool:
    """Whether clean gives the text again for the file that it stands for.

    The text verified, and its arrays give the file: where the file is cut into
    the same arrays in the same order, their bytes are the same.
    """
    from wtxtgit.containers import any_format
    from wtxtgit.text.file import file_pieces, first_bytes
    from wtxtgit.text.layout import snapshot_of

    index, layout = report.index, report.layout
    if layout is None or index.root is None:
        return False
    if first_bytes(text, index, layout, len(MAGIC)) in (MAGIC, b""):
        return False
    restored = spooled(file_pieces(text, index, layout, threads=threads))
    wanted = snapshot_of(any_format.split(restored))
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
