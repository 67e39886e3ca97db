"""BLAKE3 of what chunks hold: of each chunk, of the pages of PHSH, of tensors.

A chunk is gone through once, for all of its hashes.
"""

from __future__ import annotations

from dataclasses import dataclass

from wtxtgit.containers import msgpack_limits
from wtxtgit.containers.aero.content import Allowance, Content, check_length, content
from wtxtgit.containers.aero.digests import Span, digest_spans, short
from wtxtgit.containers.aero.index import HASH_KEY, IndexEntry
from wtxtgit.containers.aero.read import Aero
from wtxtgit.containers.aero.records import (
    DIGEST_SIZE,
    NO_HASH,
    PAGES,
    PAGES_SUFFIX,
    SHARD,
    Chunk,
    chunk_name,
)
from wtxtgit.containers.aero.tensor_rules import hash_of, is_inside
from wtxtgit.containers.cursor import fail, quoted
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.errors import FormatError
from wtxtgit.model.reading import Findings

MAX_PAGES = MAX_TENSORS
"""Page hashes of one shard."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A hash that the file has of part of a chunk's content."""

    span: Span
    digest: bytes
    of: IndexEntry | int | None
    """The tensor, the page's number, or None for the whole chunk."""
    source: str
    field: str

    @property
    def what(self) -> str:
        if self.of is None:
            return "the chunk"
        return f"page {self.of}" if isinstance(self.of, int) else f"tensor {quoted(self.of.name)}"


Claims = dict[Chunk, list[Claim]]
"""What is said of each shard's content."""


@dataclass(frozen=True, slots=True)
class PageHashes:
    """What a PHSH chunk says."""

    shard_name: str
    page_size: int
    digests: list[bytes]


def parse_pages(aero: Aero, chunk: Chunk) -> PageHashes:
    """Read a PHSH chunk; raises FormatError."""
    value = msgpack_limits.parse(bytes(content(aero, chunk)), "phsh", offset=chunk.offset)
    if not isinstance(value, dict):
        fail("phsh is not a map", offset=chunk.offset, field="PHSH")
    name, size, digests = (value.get(key) for key in ("shard_name", "page_size", "digests"))
    if not isinstance(name, str):
        fail("phsh has no shard name", offset=chunk.offset, field="shard_name")
    if not isinstance(digests, list) or any(
        not isinstance(digest, bytes) or len(digest) != DIGEST_SIZE for digest in digests
    ):
        fail("phsh has no list of digests", offset=chunk.offset, field="digests")
    if type(size) is not int or size <= 0:
        fail("phsh has a wrong page size", offset=chunk.offset, field="page_size")
    return PageHashes(name, size, digests)


def check(aero: Aero, found: Findings, allowance: Allowance) -> None:
    """Check the content of every chunk against its length and hashes."""
    claims = _tensor_claims(aero)
    paged: set[Chunk] = set()
    for chunk in aero.chunks:
        if chunk.fourcc == PAGES:
            try:
                _add_pages(aero, chunk, claims, paged, found, allowance)
            except FormatError as error:
                _tell(error, aero, chunk, found)
    looked_at: set[tuple[object, ...]] = set()
    for chunk in aero.chunks:
        held = claims.pop(chunk, []) if chunk.fourcc == SHARD else []
        if chunk.is_wiped or not (_is_first(chunk, looked_at) or held):
            continue
        try:
            _check_chunk(aero, chunk, held, found, allowance)
        except FormatError as error:
            _tell(error, aero, chunk, found)


def _is_first(chunk: Chunk, looked_at: set[tuple[object, ...]]) -> bool:
    """Whether no chunk of the same bytes, length and hash was looked at before."""
    key = (chunk.is_compressed, chunk.offset, chunk.length, chunk.ulen, chunk.digest)
    if key in looked_at:
        return False
    looked_at.add(key)
    return True


def _check_chunk(
    aero: Aero, chunk: Chunk, claims: list[Claim], found: Findings, allowance: Allowance
) -> None:
    check_length(chunk)
    if chunk.is_compressed:
        allowance.decode(chunk)
    if chunk.digest != NO_HASH:
        claims.insert(0, Claim((0, chunk.ulen), chunk.digest, None, "TOC", "blake3_256"))
    spans = {claim.span for claim in claims}
    allowance.hash(sum(end - start for start, end in spans), chunk.offset)
    held = Content(aero, chunk)
    digests = digest_spans(held, spans)
    for claim in claims:
        got = digests[claim.span]
        if got != claim.digest:
            found.error(
                "blake3",
                f"BLAKE3 of {claim.what} is {short(got)}, {claim.source} has {short(claim.digest)}",
                offset=chunk.offset + (0 if chunk.is_compressed else claim.span[0]),
                field=claim.field,
                chunk=aero.label(chunk),
            )
    if held.unused:
        found.warn(
            "structure",
            f"{held.unused} bytes after the zstd frame",
            offset=chunk.end - held.unused,
            field="chunk_length",
            chunk=aero.label(chunk),
        )


def _tensor_claims(aero: Aero) -> Claims:
    claims: Claims = {}
    for entry in aero.entries:
        digest, shard = hash_of(entry), aero.shard(entry.shard_id)
        if digest is None or shard is None:
            continue
        if is_inside(entry, shard):
            span = (entry.data_off, entry.data_end) if entry.data_len else (0, 0)
            claims.setdefault(shard, []).append(Claim(span, digest, entry, "TIDX", HASH_KEY))
    return claims


def _add_pages(
    aero: Aero,
    chunk: Chunk,
    claims: Claims,
    paged: set[Chunk],
    found: Findings,
    allowance: Allowance,
) -> None:
    """Take the digests of a PHSH chunk as claims on its shard, of the first one for it."""
    if chunk.is_compressed:
        return
    allowance.parse(chunk)
    pages = parse_pages(aero, chunk)
    name, size, digests = pages.shard_name, pages.page_size, pages.digests
    shard = aero.shards.get(name.encode())
    if shard is None:
        found.warn(
            "structure",
            f"page hashes of {quoted(name)}, which is no chunk of the file",
            offset=chunk.offset,
            field="shard_name",
            chunk=aero.label(chunk),
        )
        return
    if shard in paged:
        found.warn(
            "structure",
            f"{quoted(name)} has page hashes already, the first are used",
            offset=chunk.offset,
            field="shard_name",
            chunk=aero.label(chunk),
        )
        return
    paged.add(shard)
    if len(digests) > MAX_PAGES:
        fail(f"phsh has {len(digests)} digests", offset=chunk.offset, field="digests", kind="limit")
    count = -(-shard.ulen // size)
    if len(digests) != count:
        fail(
            f"phsh has {len(digests)} digests, {quoted(name)} has {count} pages",
            offset=chunk.offset,
            field="digests",
        )
    held = claims.setdefault(shard, [])
    for number, digest in enumerate(digests):
        span = (number * size, min((number + 1) * size, shard.ulen))
        held.append(Claim(span, digest, number, "PHSH", "digests"))
    if chunk_name(aero.data, aero.header, chunk) != name.encode() + PAGES_SUFFIX:
        found.warn(
            "structure",
            f"page hashes of {quoted(name)} are not called {quoted(name + PAGES_SUFFIX.decode())}",
            offset=chunk.offset,
            field="name_off",
            chunk=aero.label(chunk),
        )


def _tell(error: FormatError, aero: Aero, chunk: Chunk, found: Findings) -> None:
    found.refuse(error, chunk=aero.label(chunk))
