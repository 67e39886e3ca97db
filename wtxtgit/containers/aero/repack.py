"""Rewriting an AERO file: with its chunks compressed or not, or some with other contents.

If every chunk keeps its length, the file keeps every byte except the changed chunks and their
hashes. Otherwise it is assembled anew: chunks keep their order, names and other flags; lengths,
hashes and the IHSH are computed anew. Spec: `docs/spec/aero.md`, "Repacking" and "Resealing".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from wtxtgit.containers import replacing
from wtxtgit.containers.aero import check, hashes
from wtxtgit.containers.aero.check import TOC, extents
from wtxtgit.containers.aero.chunks import (
    Payload,
    assemble,
    metadata_payload,
    stored_payload,
)
from wtxtgit.containers.aero.content import Allowance, ChunkContent, check_length, digest_spans
from wtxtgit.containers.aero.read import (
    COMPRESSED,
    DIGEST_SIZE,
    HASH_AT,
    INDEX,
    INTEGRITY,
    JSON,
    MANIFEST,
    NEVER_COMPRESSED,
    NO_HASH,
    PAGES,
    Aero,
    AeroChunk,
)
from wtxtgit.containers.cursor import fail
from wtxtgit.containers.intervals import Span, groups
from wtxtgit.containers.replacing import Edit, spliced
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions

COMPRESSIONS = ("none", "zstd")
"""How chunks can be stored."""

COMPRESSIBLE = frozenset({INDEX, JSON, MANIFEST})


def repack(container: Aero, compression: str, options: ReadOptions) -> Iterator[Buffer]:
    """Yield the bytes of the same file, compressed as `compression` says.

    With "none" no chunk is compressed. With "zstd" metadata chunks are; weight shards, page hashes
    and the IHSH never are; chunks that are already compressed and those of unknown types stay as
    they are.

    Raises FormatError, before yielding anything, if bytes do not match hashes that would be
    computed anew: new hashes must not make damage look intact.
    """
    if compression not in COMPRESSIONS:
        raise FormatError(f"compression {compression!r} is not one of {', '.join(COMPRESSIONS)}")
    allowance = Allowance(len(container.data), options)
    _refuse_damage(container, allowance)
    payloads = [_repacked(container, chunk, compression, allowance) for chunk in container.chunks]
    return assemble(payloads, container.header.uuid)


def _refuse_damage(aero: Aero, allowance: Allowance) -> None:
    findings = Findings(label=aero.label)
    check.check_control(aero, findings)
    hashes.check_seal(aero, findings, allowance)
    for chunk in aero.chunks:
        if chunk.fourcc == PAGES and chunk.is_compressed:
            # No check reads compressed ones, while uncompressed ones are checked.
            fail("page hashes are compressed", offset=chunk.offset, field="chunk_flags")
    replacing.refuse_errors(findings)


def _repacked(aero: Aero, chunk: AeroChunk, compression: str, allowance: Allowance) -> Payload:
    check_length(chunk)
    allowance.decode(chunk)
    allowance.hash(chunk.ulen, chunk.offset)
    whole = (0, chunk.ulen)
    digest = digest_spans(ChunkContent(aero, chunk), [whole])[whole]
    if chunk.digest not in (NO_HASH, digest):
        fail(
            f"BLAKE3 of {aero.label(chunk)!a} does not match its content",
            offset=chunk.offset,
            field="blake3_256",
            kind="blake3",
        )
    stored = stored_payload(aero, chunk)
    if chunk.fourcc == INTEGRITY and chunk is aero.first(INTEGRITY):
        return stored
    # Weights stay uncompressed, so that they can be mapped and a changed tensor is a small change.
    if compression == "zstd" and not chunk.is_compressed and chunk.fourcc in COMPRESSIBLE:
        raw = bytes(aero.stored(chunk))
        return metadata_payload(chunk.fourcc, stored.name, raw, flags=chunk.flags, compress=True)
    if compression == "zstd" and chunk.fourcc not in NEVER_COMPRESSED:
        return replace(stored, digest=digest)
    flags = chunk.flags & ~COMPRESSED
    return replace(
        stored,
        flags=flags,
        length=chunk.ulen,
        digest=digest,
        blocks=lambda: iter(ChunkContent(aero, chunk)),
    )


def written(
    aero: Aero,
    replaced: Mapping[int, Payload],
    removed: Collection[int],
    added: Sequence[Payload],
    allowance: Allowance,
) -> Iterator[Buffer]:
    """Yield the file's bytes with other payloads in some places of the TOC.

    The caller has checked the IHSH and the hashes of chunks that stay. Raises FormatError, before
    the first piece, for an IHSH of an unknown algorithm and if limits of the format are exceeded.
    """
    sealed = hashes.sealed_spans(aero)
    if not removed and not added and _keep_places(aero, replaced, sealed):
        edits: list[Edit] = []
        for place, payload in replaced.items():
            chunk = aero.chunks[place]
            at = aero.header.entry_offset(place) + HASH_AT
            edits.append((at, at + DIGEST_SIZE, partial(iter, (payload.digest,))))
            if chunk.length:
                edits.append((chunk.offset, chunk.end, payload.blocks))
        # Only this way keeps bytes that are in no chunk: no payload has them.
        return spliced(aero.data, sorted(edits, key=lambda edit: edit[:2]))
    payloads = []
    for chunk in aero.chunks:
        if chunk.place in replaced:
            payloads.append(replaced[chunk.place])
        elif chunk.place not in removed:
            allowance.hash(chunk.length, chunk.offset)
            payloads.append(stored_payload(aero, chunk))
    payloads += added
    return assemble(payloads, aero.header.uuid)


def _keep_places(aero: Aero, replaced: Mapping[int, Payload], sealed: Sequence[Span]) -> bool:
    """Whether the payloads can be written over the existing ones, and nothing else changes."""
    for place, payload in replaced.items():
        chunk = aero.chunks[place]
        if (payload.length, payload.ulen) != (chunk.length, chunk.ulen):
            return False
        # What a seal covers, except the TOC's hashes, must not change.
        if any(start < chunk.end and chunk.offset < end for start, end in sealed):
            return False
    # The TOC changes too: it contains the hashes.
    changing = {TOC, *replaced}
    return not any(
        len(group) > 1 and any(what in changing for _, _, what in group)
        for group in groups(extents(aero), lambda extent: extent[:2])
    )
