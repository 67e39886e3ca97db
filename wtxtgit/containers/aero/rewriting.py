"""Writing an AERO file again with the contents of some chunks changed.

Where every chunk keeps its length, the file keeps every byte but theirs and
their hashes; else it is put together anew, its chunks in their order.
Spec: `docs/spec/aero.md`, "Resealing".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from wtxtgit.containers.aero import assembly, integrity
from wtxtgit.containers.aero.assembly import Payload, assemble, integrity_payload
from wtxtgit.containers.aero.content import Allowance
from wtxtgit.containers.aero.digests import Span
from wtxtgit.containers.aero.placement import TOC, extents
from wtxtgit.containers.aero.read import Aero
from wtxtgit.containers.aero.records import (
    COMPRESSED,
    DIGEST_SIZE,
    HASH_AT,
    INTEGRITY,
    Chunk,
    chunk_name,
)
from wtxtgit.containers.splicing import Edit, spliced
from wtxtgit.io.view import Buffer, pieces


def written(
    aero: Aero,
    replaced: Mapping[int, Payload],
    removed: Collection[int],
    added: Sequence[Payload],
    allowance: Allowance,
) -> Iterator[Buffer]:
    """The file's bytes with other payloads in some places of the TOC.

    Hashes of chunks that stay were checked before, and the IHSH. Raises
    FormatError, before the first piece, for an IHSH of an unknown algorithm
    and what is over the limits of the format.
    """
    sealed = integrity.covered(aero)
    if not removed and not added and _keep_places(aero, replaced, sealed):
        edits: list[Edit] = []
        for place, payload in replaced.items():
            chunk = aero.chunks[place]
            at = aero.header.entry_offset(place) + HASH_AT
            edits.append((at, at + DIGEST_SIZE, partial(_once, payload.digest)))
            if chunk.length:
                edits.append((chunk.offset, chunk.end, payload.blocks))
        return spliced(aero.data, sorted(edits, key=lambda edit: edit[:2]))
    payloads = [
        replaced[place] if place in replaced else _kept(aero, chunk, allowance)
        for place, chunk in enumerate(aero.chunks)
        if place not in removed
    ]
    payloads += added
    assembly.check(payloads)
    return assemble(payloads, aero.header.uuid)


def _keep_places(aero: Aero, replaced: Mapping[int, Payload], sealed: Sequence[Span]) -> bool:
    """Whether the payloads can be written over those that are there, and nothing else."""
    for place, payload in replaced.items():
        chunk = aero.chunks[place]
        if (payload.length, payload.ulen) != (chunk.length, chunk.ulen):
            return False
        # What a seal covers beside the TOC's hashes must not change.
        if any(start < chunk.end and chunk.offset < end for start, end in sealed):
            return False
    changing = {TOC, *replaced}
    reached, owner = 0, TOC
    for start, end, what in sorted(extents(aero)):
        if start < reached and (what in changing or owner in changing):
            return False
        if end > reached:
            reached, owner = end, what
    return True


def _kept(aero: Aero, chunk: Chunk, allowance: Allowance) -> Payload:
    allowance.hash(chunk.length, chunk.offset)
    name = chunk_name(aero.data, aero.header, chunk)
    if chunk.fourcc == INTEGRITY and chunk is aero.first(INTEGRITY):
        return integrity_payload(name, chunk.flags & ~COMPRESSED)
    stored = aero.stored(chunk)
    return Payload(
        chunk.fourcc,
        name,
        chunk.flags,
        chunk.length,
        chunk.ulen,
        chunk.digest,
        partial(pieces, stored),
    )


def _once(data: bytes) -> Iterator[Buffer]:
    yield data
