"""The BLAKE3 hashes in an AERO file: of the control region, of chunks, pages and tensors.

The IHSH has the hash of the control region, computed with the TOC's own hashes set to zero. Each
chunk is read once for all of its hashes. Spec: `docs/spec/aero.md`, "IHSH" and "What is checked".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wtxtgit.containers import intervals, msgpack_limits
from wtxtgit.containers.aero.content import (
    STEP,
    Allowance,
    ChunkContent,
    check_length,
    content,
    digest_spans,
    page_spans,
    short,
)
from wtxtgit.containers.aero.read import (
    DIGEST_SIZE,
    HASH_AT,
    HASH_KEY,
    INTEGRITY,
    NO_HASH,
    PAGES,
    PAGES_SUFFIX,
    SHARD,
    TOC_ENTRY,
    TOC_HEADER,
    Aero,
    AeroChunk,
    IndexEntry,
)
from wtxtgit.containers.cursor import ListingBudget, fail, quoted
from wtxtgit.containers.intervals import Span
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView, counted, is_zeros, pieces
from wtxtgit.io.workers import blake3_hasher
from wtxtgit.model.findings import Findings

ALGORITHM = "blake3-256"
# The map of an IHSH is padded with zeros to this length ("IHSH").
PAYLOAD_SIZE = 256
# The most page hashes of one shard: a page may be a single byte.
MAX_PAGES = MAX_TENSORS


def check_seal(aero: Aero, findings: Findings, allowance: Allowance) -> None:
    """Check the digest in the first IHSH chunk, if the file has one."""
    chunk = aero.first(INTEGRITY)
    if chunk is None:
        return
    try:
        _check_seal_digest(aero, chunk, findings, allowance)
    except FormatError as error:
        findings.refuse(error, chunk)
    first = min((other.offset for other in aero.chunks if other.length), default=chunk.offset)
    if chunk.offset != first:
        findings.warn(
            "IHSH is not the first chunk in the file", "chunk_offset", chunk.offset, chunk
        )


def _check_seal_digest(
    aero: Aero, chunk: AeroChunk, findings: Findings, allowance: Allowance
) -> None:
    value = _parsed_seal(aero, chunk)
    if value["algo"] != ALGORITHM:
        findings.error(
            f"the algorithm is not {ALGORITHM}, so the control region can't be checked",
            "algo",
            chunk.offset,
            chunk,
            kind="blake3",
        )
        return
    # A seal says itself what it covers: one that covers less proves less, but holds.
    spans = _covered(value.get("covered_ranges"), chunk, len(aero.data))
    stated = value.get("digest")
    if not isinstance(stated, bytes) or len(stated) != DIGEST_SIZE:
        fail("ihsh has an invalid digest", offset=chunk.offset, field="digest")
    if intervals.gaps(spans, aero.header.control_end):
        findings.warn(
            "IHSH does not cover all of the header, TOC and string table",
            "covered_ranges",
            chunk.offset,
            chunk,
        )
    allowance.hash(sum(end - start for start, end in spans), chunk.offset)
    computed = control_digest(aero.data, aero.header.toc_offset, len(aero.chunks), spans)
    if computed != stated:
        findings.error(
            f"BLAKE3 of the control region is {short(computed)}, IHSH has {short(stated)}",
            "digest",
            chunk.offset,
            chunk,
            kind="blake3",
        )


def sealed_spans(aero: Aero) -> list[Span]:
    """Return what the digest of the first IHSH covers, [] if there is no IHSH.

    Raises FormatError if it can't be read or its algorithm is not known.
    """
    chunk = aero.first(INTEGRITY)
    if chunk is None:
        return []
    value = _parsed_seal(aero, chunk)
    if value["algo"] != ALGORITHM:
        fail(f"the algorithm is not {ALGORITHM}", offset=chunk.offset, field="algo")
    return _covered(value.get("covered_ranges"), chunk, len(aero.data))


def control_digest(data: ByteView, toc_offset: int, entries: int, spans: Sequence[Span]) -> bytes:
    """Return the BLAKE3 of the concatenated spans of a file, with the TOC's hashes set to zero.

    The hash of the IHSH itself is in the TOC, and so can't be part of what the IHSH covers.
    """
    one = blake3_hasher(sum(end - start for start, end in spans))
    parts = list(_zeroed(data, toc_offset, entries))
    for start, end in spans:
        for offset, part in parts:
            for piece in pieces(part[max(start - offset, 0) : max(end - offset, 0)], STEP):
                one.update(piece)
    return bytes(one.digest())


def _parsed_seal(aero: Aero, chunk: AeroChunk) -> dict[str, object]:
    """Parse the map in an IHSH; its `algo` is a text."""
    raw, listing = bytes(content(aero, chunk)), aero.listing.apart()
    value = msgpack_limits.parse(raw, "ihsh", offset=chunk.offset, listing=listing)
    if not isinstance(value, dict):
        fail("ihsh is not a map", offset=chunk.offset, field="IHSH")
    if not isinstance(value.get("algo"), str):
        fail("ihsh does not name its algorithm", offset=chunk.offset, field="algo")
    return value


def _zeroed(data: ByteView, toc_offset: int, entries: int) -> Iterator[tuple[int, ByteView]]:
    """Yield the file in three parts, each with its start, with the TOC's hashes set to zero."""
    start = toc_offset + TOC_HEADER.size
    end = start + TOC_ENTRY.size * entries
    # The TOC contains the hash of the IHSH itself, so that can't be part of its digest.
    toc = bytearray(bytes(data[start:end]))
    for place in range(HASH_AT, HASH_AT + DIGEST_SIZE):
        toc[place :: TOC_ENTRY.size] = bytes(entries)
    yield 0, data[:start]
    yield start, memoryview(toc)
    yield end, data[end:]


def _covered(value: object, chunk: AeroChunk, size: int) -> list[Span]:
    if not isinstance(value, list):
        fail("ihsh has no list of ranges", offset=chunk.offset, field="covered_ranges")
    spans: list[Span] = []
    for item in value:
        match item:
            case [int(start), int(end)] if 0 <= start <= end <= size:
                spans.append((start, end))
            case _:
                fail("ihsh has an invalid range", offset=chunk.offset, field="covered_ranges")
    return spans


@dataclass(frozen=True, slots=True)
class Claim:
    """A hash that the file claims for part of a chunk's content, and where the claim is."""

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


# Memory counted per hashed page, until all pages of its shard are hashed.
CLAIM = 700
Claims = dict[AeroChunk, list[Claim]]
"""The hashes claimed for each shard's content."""


@dataclass(frozen=True, slots=True)
class PageHashes:
    """The content of a PHSH chunk."""

    shard_name: str
    page_size: int
    digests: list[bytes]


def parse_pages(aero: Aero, chunk: AeroChunk, listing: ListingBudget | None = None) -> PageHashes:
    """Read a PHSH chunk, counting its pages in a `listing`; raises FormatError."""
    listing = listing or aero.listing.apart()
    value = msgpack_limits.parse(
        bytes(content(aero, chunk)), "phsh", offset=chunk.offset, listing=listing.apart()
    )
    if not isinstance(value, dict):
        fail("phsh is not a map", offset=chunk.offset, field="PHSH")
    name, size, digests = (value.get(key) for key in ("shard_name", "page_size", "digests"))
    if not isinstance(name, str):
        fail("phsh does not name its shard", offset=chunk.offset, field="shard_name")
    if not isinstance(digests, list) or any(
        not isinstance(digest, bytes) or len(digest) != DIGEST_SIZE for digest in digests
    ):
        fail("phsh has no list of digests", offset=chunk.offset, field="digests")
    if type(size) is not int or size <= 0:
        fail("phsh has an invalid page size", offset=chunk.offset, field="page_size")
    listing.count(CLAIM * len(digests), chunk.offset, "phsh")
    return PageHashes(name, size, digests)


def check_contents(aero: Aero, findings: Findings, allowance: Allowance) -> None:
    """Check the content of every chunk against its length and hashes."""
    claims: Claims = {}
    for entry in aero.entries:
        digest, shard = entry.digest, aero.shard(entry.shard_id)
        if digest is not None and shard is not None and entry.is_inside(shard):
            span = entry.span if entry.data_len else (0, 0)
            claim = Claim(span, digest, entry, "TIDX", HASH_KEY)
            claims.setdefault(shard, []).append(claim)
    paged: set[AeroChunk] = set()
    listing = aero.listing.apart()
    for chunk in aero.chunks:
        if chunk.fourcc == PAGES and not chunk.is_compressed:
            try:
                allowance.parse(chunk)
                pages = parse_pages(aero, chunk, listing)
                _add_pages(aero, chunk, pages, claims, paged, findings)
            except FormatError as error:
                findings.refuse(error, chunk)
    looked_at: set[tuple[object, ...]] = set()
    for chunk in aero.chunks:
        of_chunk = claims.pop(chunk, []) if chunk.fourcc == SHARD else []
        # Chunks with the same bytes, length and hash are checked only once.
        key = (chunk.is_compressed, chunk.offset, chunk.length, chunk.ulen, chunk.digest)
        if chunk.is_wiped or (key in looked_at and not of_chunk):
            continue
        looked_at.add(key)
        try:
            _check_content(aero, chunk, of_chunk, findings, allowance)
        except FormatError as error:
            findings.refuse(error, chunk)


def _check_content(
    aero: Aero,
    chunk: AeroChunk,
    claims: list[Claim],
    findings: Findings,
    allowance: Allowance,
) -> None:
    check_length(chunk)
    allowance.decode(chunk)
    # All zeros mean that there is no hash.
    if chunk.digest != NO_HASH:
        claims.insert(0, Claim((0, chunk.ulen), chunk.digest, None, "TOC", "blake3_256"))
    spans = {claim.span for claim in claims}
    allowance.hash(sum(end - start for start, end in spans), chunk.offset)
    blocks = ChunkContent(aero, chunk)
    digests = digest_spans(counted(blocks, allowance.progress), spans)
    for claim in claims:
        computed = short(digests[claim.span])
        if digests[claim.span] != claim.digest:
            message = (
                f"BLAKE3 of {claim.what} is {computed}, {claim.source} has {short(claim.digest)}"
            )
            # Compressed content has no offsets in the file.
            at = chunk.offset + (0 if chunk.is_compressed else claim.span[0])
            findings.error(message, claim.field, at, chunk, kind="blake3")
    if blocks.unused:
        unused = aero.data[chunk.end - blocks.unused : chunk.end]
        (findings.warn if is_zeros(unused) else findings.error)(
            f"{blocks.unused} bytes after the zstd frame",
            "chunk_length",
            chunk.end - blocks.unused,
            chunk,
        )


def _add_pages(
    aero: Aero,
    chunk: AeroChunk,
    pages: PageHashes,
    claims: Claims,
    paged: set[AeroChunk],
    findings: Findings,
) -> None:
    """Add the digests of the first PHSH chunk of a shard as claims on that shard."""
    name, digests = quoted(pages.shard_name), pages.digests
    shard = aero.shards.get(pages.shard_name.encode())
    if shard is None:
        findings.warn(
            f"page hashes are for {name}, which the file does not contain",
            "shard_name",
            chunk.offset,
            chunk,
        )
        return
    if shard in paged:
        findings.warn(
            f"more page hashes for {name}; readers use the first", "shard_name", chunk.offset, chunk
        )
        return
    paged.add(shard)
    # Checked before the pages are listed: a page may be a single byte ("Limits").
    if len(digests) > MAX_PAGES:
        fail(f"phsh has {len(digests)} digests", offset=chunk.offset, field="digests", kind="limit")
    count = -(-shard.ulen // pages.page_size)
    if len(digests) != count:
        fail(
            f"phsh has {len(digests)} digests, but {name} has {count} pages",
            offset=chunk.offset,
            field="digests",
        )
    spans = page_spans(shard.ulen, pages.page_size)
    claims.setdefault(shard, []).extend(
        Claim(span, digest, number, "PHSH", "digests")
        for number, (span, digest) in enumerate(zip(spans, digests, strict=True))
    )
    usual = pages.shard_name.encode() + PAGES_SUFFIX
    if aero.name(chunk) != usual:
        findings.warn(
            f"the chunk with the page hashes of {name} is not named {quoted(usual.decode())}",
            "name_off",
            chunk.offset,
            chunk,
        )
