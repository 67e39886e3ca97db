"""BLAKE3 that an AERO file has: of the control region, of chunks, pages and tensors.

The IHSH has that of the control region, with the TOC's own hashes zeroed. A
chunk is gone through once, for all of its hashes.
Spec: `docs/spec/aero.md`, "IHSH" and "What is checked".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wtxtgit.containers import msgpack_limits
from wtxtgit.containers.aero.content import (
    STEP,
    Allowance,
    Content,
    Span,
    check_length,
    content,
    digest_spans,
    hasher,
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
    Chunk,
    IndexEntry,
    chunk_name,
)
from wtxtgit.containers.cursor import fail, quoted
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView, pieces
from wtxtgit.model.findings import Findings

ALGORITHM = "blake3-256"
PAYLOAD_SIZE = 256
"""The map is padded with zeros to this length."""


def check_seal(aero: Aero, found: Findings, allowance: Allowance) -> None:
    """Check the digest in the first IHSH chunk; a file needs none."""
    chunk = aero.first(INTEGRITY)
    if chunk is None:
        return
    label = aero.label(chunk)
    try:
        _check_seal_digest(aero, chunk, found, allowance)
    except FormatError as error:
        found.refuse(error, chunk=label)
    first = min((one.offset for one in aero.chunks if one.length), default=chunk.offset)
    if chunk.offset != first:
        found.warn(
            "structure",
            "IHSH is not the first payload",
            offset=chunk.offset,
            field="chunk_offset",
            chunk=label,
        )


def _check_seal_digest(aero: Aero, chunk: Chunk, found: Findings, allowance: Allowance) -> None:
    label = aero.label(chunk)
    value = _parsed_seal(aero, chunk)
    if value["algo"] != ALGORITHM:
        found.warn(
            "blake3",
            f"the algorithm is not {ALGORITHM}, so the control region can't be checked",
            offset=chunk.offset,
            field="algo",
            chunk=label,
        )
        return
    spans = _covered(value.get("covered_ranges"), chunk, len(aero.data))
    wanted = value.get("digest")
    if not isinstance(wanted, bytes) or len(wanted) != DIGEST_SIZE:
        fail("ihsh has a wrong digest", offset=chunk.offset, field="digest")
    if not _cover(spans, aero.header.control_end):
        found.warn(
            "structure",
            "IHSH does not cover all of header, TOC and string table",
            offset=chunk.offset,
            field="covered_ranges",
            chunk=label,
        )
    allowance.hash(sum(end - start for start, end in spans), chunk.offset)
    got = control_digest(aero.data, aero.header.toc_offset, len(aero.chunks), spans)
    if got != wanted:
        found.error(
            "blake3",
            f"BLAKE3 of the control region is {short(got)}, IHSH has {short(wanted)}",
            offset=chunk.offset,
            field="digest",
            chunk=label,
        )


def sealed_spans(aero: Aero) -> list[Span]:
    """What the digest of the first IHSH is of, nothing where there is none.

    Raises FormatError where it can't be read or its algorithm is not known.
    """
    chunk = aero.first(INTEGRITY)
    if chunk is None:
        return []
    value = _parsed_seal(aero, chunk)
    if value["algo"] != ALGORITHM:
        fail(f"the algorithm is not {ALGORITHM}", offset=chunk.offset, field="algo")
    return _covered(value.get("covered_ranges"), chunk, len(aero.data))


def control_digest(data: ByteView, toc_offset: int, entries: int, spans: Sequence[Span]) -> bytes:
    """BLAKE3 of the spans of a file one after another, its TOC's hashes zeroed."""
    one = hasher(sum(end - start for start, end in spans))
    parts = list(_zeroed(data, toc_offset, entries))
    for start, end in spans:
        for offset, part in parts:
            for piece in pieces(part[max(start - offset, 0) : max(end - offset, 0)], STEP):
                one.update(piece)
    return bytes(one.digest())


def _parsed_seal(aero: Aero, chunk: Chunk) -> dict[str, object]:
    """The map in an IHSH, with a text as `algo`."""
    value = msgpack_limits.parse(bytes(content(aero, chunk)), "ihsh", offset=chunk.offset)
    if not isinstance(value, dict):
        fail("ihsh is not a map", offset=chunk.offset, field="IHSH")
    if not isinstance(value.get("algo"), str):
        fail("ihsh names no algorithm", offset=chunk.offset, field="algo")
    return value


def _zeroed(data: ByteView, toc_offset: int, entries: int) -> Iterator[tuple[int, ByteView]]:
    """The file in three parts, each with where it starts, its TOC's hashes zeroed."""
    start = toc_offset + TOC_HEADER.size
    end = start + TOC_ENTRY.size * entries
    toc = bytearray(bytes(data[start:end]))
    for place in range(HASH_AT, HASH_AT + DIGEST_SIZE):
        toc[place :: TOC_ENTRY.size] = bytes(entries)
    yield 0, data[:start]
    yield start, memoryview(toc)
    yield end, data[end:]


def _covered(value: object, chunk: Chunk, size: int) -> list[Span]:
    if not isinstance(value, list):
        fail("ihsh has no list of ranges", offset=chunk.offset, field="covered_ranges")
    spans: list[Span] = []
    for item in value:
        match item:
            case [int(start), int(end)] if 0 <= start <= end <= size:
                spans.append((start, end))
            case _:
                fail("ihsh has a wrong range", offset=chunk.offset, field="covered_ranges")
    return spans


def _cover(spans: Sequence[Span], size: int) -> bool:
    end = 0
    for start, stop in sorted(spans):
        if start > end:
            break
        end = max(end, stop)
    return end >= size


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


def check_contents(aero: Aero, found: Findings, allowance: Allowance) -> None:
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
            _check_content(aero, chunk, held, found, allowance)
        except FormatError as error:
            _tell(error, aero, chunk, found)


def _is_first(chunk: Chunk, looked_at: set[tuple[object, ...]]) -> bool:
    """Whether no chunk of the same bytes, length and hash was looked at before."""
    key = (chunk.is_compressed, chunk.offset, chunk.length, chunk.ulen, chunk.digest)
    if key in looked_at:
        return False
    looked_at.add(key)
    return True


def _check_content(
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
        digest, shard = entry.digest, aero.shard(entry.shard_id)
        if digest is None or shard is None:
            continue
        if entry.is_inside(shard):
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
