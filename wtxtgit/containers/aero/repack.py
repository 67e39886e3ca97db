"""Writing an AERO file again with its chunks compressed or not.

Chunks keep their order, names and other flags, tensors their bytes; lengths,
hashes and the IHSH chunk are made anew.
Spec: `docs/spec/aero.md`, "Repacking".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from wtxtgit.containers import flat
from wtxtgit.containers.aero import assembly, control, integrity
from wtxtgit.containers.aero.assembly import Payload, assemble, integrity_payload
from wtxtgit.containers.aero.content import Allowance, Content, check_length
from wtxtgit.containers.aero.digests import digest_spans
from wtxtgit.containers.aero.payloads import metadata_payload
from wtxtgit.containers.aero.read import Aero
from wtxtgit.containers.aero.records import (
    COMPRESSED,
    INDEX,
    INTEGRITY,
    JSON,
    MANIFEST,
    NEVER_COMPRESSED,
    NO_HASH,
    PAGES,
    Chunk,
    chunk_name,
)
from wtxtgit.containers.cursor import fail
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, pieces
from wtxtgit.model.reading import Findings, ReadOptions

COMPRESSIONS = ("none", "zstd")
"""What chunks can be stored with."""

COMPRESSIBLE = frozenset({INDEX, JSON, MANIFEST})


def repack(container: Aero, compression: str, options: ReadOptions) -> Iterator[Buffer]:
    """The bytes of the same file, compressed as `compression` says.

    "none": no chunk is. "zstd": metadata chunks are, weight shards, page
    hashes and the IHSH never; what is compressed and chunks of unknown types
    stay as they are.

    Raises FormatError, before anything is given, where what would be hashed
    anew does not hold: hashes must not make damage look whole.
    """
    if compression not in COMPRESSIONS:
        raise FormatError(f"compression {compression!r} is none of {', '.join(COMPRESSIONS)}")
    allowance = Allowance(len(container.data), options)
    _refuse_damage(container, allowance)
    payloads = [_payload(container, chunk, compression, allowance) for chunk in container.chunks]
    assembly.check(payloads)
    return assemble(payloads, container.header.uuid)


def _refuse_damage(aero: Aero, allowance: Allowance) -> None:
    found = Findings()
    control.check(aero, found)
    integrity.check(aero, found, allowance)
    for chunk in aero.chunks:
        if chunk.fourcc == PAGES and chunk.is_compressed:
            # No check reads them, and what is not compressed is checked.
            fail("page hashes are compressed", offset=chunk.offset, field="chunk_flags")
    flat.refuse_errors(found)


def _payload(aero: Aero, chunk: Chunk, compression: str, allowance: Allowance) -> Payload:
    check_length(chunk)
    if chunk.is_compressed:
        allowance.decode(chunk)
    allowance.hash(chunk.ulen, chunk.offset)
    whole = (0, chunk.ulen)
    digest = digest_spans(Content(aero, chunk), [whole])[whole]
    if chunk.digest not in (NO_HASH, digest):
        fail(
            f"BLAKE3 of {aero.label(chunk)!a} does not hold",
            offset=chunk.offset,
            field="blake3_256",
            kind="blake3",
        )
    name = chunk_name(aero.data, aero.header, chunk)
    if chunk.fourcc == INTEGRITY and chunk is aero.first(INTEGRITY):
        return integrity_payload(name, chunk.flags & ~COMPRESSED)
    if compression == "zstd" and not chunk.is_compressed and chunk.fourcc in COMPRESSIBLE:
        raw = bytes(aero.stored(chunk))
        return metadata_payload(chunk.fourcc, name, raw, flags=chunk.flags, compress=True)
    if compression == "zstd" and chunk.fourcc not in NEVER_COMPRESSED:
        stored = aero.stored(chunk)
        return Payload(
            chunk.fourcc,
            name,
            chunk.flags,
            chunk.length,
            chunk.ulen,
            digest,
            partial(pieces, stored),
        )
    return Payload(
        chunk.fourcc,
        name,
        chunk.flags & ~COMPRESSED,
        chunk.ulen,
        chunk.ulen,
        digest,
        lambda: iter(Content(aero, chunk)),
    )
