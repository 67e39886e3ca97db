"""What an AERO file holds beyond its tensors and the metadata that are merged.

A merge takes all of it from one file, the skeleton of the result. Spec: `docs/spec/aero.md`,
"Resealing".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from wtxtgit.containers import intervals, msgpack_limits
from wtxtgit.containers.aero import metadata, msgpack_edit
from wtxtgit.containers.aero.chunks import INDEX_NAME, INTEGRITY_NAME, JSON_NAME, MANIFEST_NAME
from wtxtgit.containers.aero.content import Allowance, ChunkContent
from wtxtgit.containers.aero.describe import refuse_long_names
from wtxtgit.containers.aero.hashes import parse_pages
from wtxtgit.containers.aero.metadata import PLACE, ROLE
from wtxtgit.containers.aero.read import (
    HASH_KEY,
    HEADER,
    INDEX,
    INTEGRITY,
    IS_INDEX,
    JSON,
    MANIFEST,
    MMAP_CRITICAL,
    NO_HASH,
    OPTIONAL,
    PAGES,
    PAGES_SUFFIX,
    RESERVED_OFFSET,
    TENSORS_KEY,
    TOC_HEADER,
    Aero,
    AeroChunk,
    index_content,
)
from wtxtgit.containers.cursor import unpack_at
from wtxtgit.containers.intervals import Span
from wtxtgit.errors import FormatError
from wtxtgit.io.view import hashed, pieces
from wtxtgit.model.tensor import ReadOptions

RESERVED, TOC_RESERVED, GAPS = "reserved", "reserved in the TOC", "gaps"
FURTHER = "further"
USUAL = {
    INTEGRITY: (OPTIONAL, INTEGRITY_NAME),
    JSON: (0, JSON_NAME),
    MANIFEST: (0, MANIFEST_NAME),
    INDEX: (IS_INDEX, INDEX_NAME),
}
"""Usual flags and names of chunks of which a file has only one."""
OF_THE_CHUNK = frozenset(
    {PLACE, ROLE, "fourcc", "shard_id", "size_bytes", "tensor_count", "mmap_critical"}
)
"""Keys of a manifest's lists that follow from the chunk that is listed."""
OF_THE_SEAL = frozenset({"covered_ranges", "digest"})
OF_THE_PAGES = frozenset({"shard_name", "digests"})


def rest(aero: Aero, options: ReadOptions) -> dict[str, object]:
    """Return what is unusual in header and TOC, a hash of bytes in no chunk, and chunks' rests.

    For a chunk that `entries` or `values` cover, the rest is what these leave out; for any other it
    is a hash of the whole chunk. Raises FormatError (limit) if names are too long, or chunks share
    bytes too often.
    """
    # The labels below contain names.
    refuse_long_names(aero)
    toc_reserved = unpack_at(TOC_HEADER, aero.data, aero.header.toc_offset)[1:]
    reserved = bytes(aero.data[RESERVED_OFFSET : HEADER.size])
    of_file = {
        RESERVED: reserved if any(reserved) else None,
        TOC_RESERVED: list(toc_reserved) if any(toc_reserved) else None,
        GAPS: intervals.digest(aero.data, _spans(aero)),
    }
    unusual = {name: value for name, value in of_file.items() if value is not None}
    return unusual | dict(_Extras(aero, options).unusual())


def _spans(aero: Aero) -> Iterator[Span]:
    header = aero.header
    yield 0, HEADER.size
    yield header.toc_offset, header.entry_offset(len(aero.chunks))
    for chunk in aero.chunks:
        start = header.names_offset + chunk.name_off
        yield start, start + chunk.name_len
        if chunk.length:
            yield chunk.offset, chunk.end


class _Extras:
    """Determines the rest of each chunk; bytes that are hashed for it are counted."""

    def __init__(self, aero: Aero, options: ReadOptions) -> None:
        self._aero = aero
        self._options = options
        self._allowance = Allowance(len(aero.data), options)
        self._first = {aero.first(fourcc) for fourcc in USUAL}
        self._shards = set(aero.shards.values())
        self._values = set(metadata.named(aero).values())
        self._paged: set[str] = set()
        self._tensors: dict[AeroChunk, list[Span]] = {}
        for entry in aero.entries:
            shard = aero.shard(entry.shard_id)
            if shard is not None:
                self._tensors.setdefault(shard, []).append(entry.span)

    def unusual(self) -> Iterator[tuple[str, object]]:
        """Yield the rest of each chunk, labelled with type, name and, if needed, a number."""
        counts: dict[str, int] = {}
        for chunk in self._aero.chunks:
            name = self._aero.name(chunk)
            label = (chunk.fourcc + b":" + name).decode("utf-8", "backslashreplace")
            if chunk in self._first:
                label = chunk.fourcc.decode()
            # Names need not be unique; equal ones are distinguished by their order in the TOC.
            counts[label] = counts.get(label, 0) + 1
            label += "" if counts[label] == 1 else f":{counts[label]}"
            rest = self._rest_of(chunk, name)
            if chunk.reserved:
                rest[RESERVED] = chunk.reserved
            if chunk.digest == NO_HASH:
                rest["hash"] = "none"
            if rest:
                yield label, rest

    def _rest_of(self, chunk: AeroChunk, name: bytes) -> dict[str, object]:
        if chunk in self._values:
            return {}
        try:
            if chunk in self._first:
                return self._only(chunk) | _unusual(chunk, name, *USUAL[chunk.fourcc])
            if chunk in self._shards:
                return self._shard(chunk) | _unusual(chunk, name, MMAP_CRITICAL, name)
            if chunk.fourcc == PAGES:
                return self._pages(chunk, name)
        except FormatError as error:
            # A chunk that can't be decoded is not covered by entries or values.
            if error.kind == "limit" and not chunk.is_compressed:
                raise
        return self._whole(chunk)

    def _whole(self, chunk: AeroChunk) -> dict[str, object]:
        """Describe the whole chunk as it is stored."""
        self._allowance.hash(chunk.length, chunk.offset)
        digest = hashed(hashlib.sha256(), pieces(self._aero.stored(chunk))).digest()
        return {"flags": chunk.flags, "stored": digest}

    def _only(self, chunk: AeroChunk) -> dict[str, object]:
        """Return what a chunk of a unique type says besides what is merged or computed anew."""
        if chunk.fourcc == INDEX:
            return self._index(chunk)
        raw = metadata.content_of(self._aero, chunk.fourcc, self._options)
        if raw is None:
            return self._whole(chunk)
        if chunk.fourcc == JSON:
            return {}
        if chunk.fourcc == INTEGRITY:
            return _further(msgpack_limits.parse(raw, "ihsh"), OF_THE_SEAL)
        value = metadata.manifest_map(raw)
        # If it is not a map, all of it is a value.
        return {} if value is None else _lists(value)

    def _index(self, chunk: AeroChunk) -> dict[str, object]:
        raw = index_content(self._aero.data, chunk)
        fields = msgpack_edit.fields(raw)
        more = [raw[field.start : field.end] for field in fields if field.key != TENSORS_KEY]
        behind = raw[fields[-1].end :].rstrip(b"\0")
        rest: dict[str, object] = {}
        if more or behind:
            rest[FURTHER] = hashlib.sha256(b"".join([*more, behind])).digest()
        with_hash = sum(HASH_KEY in entry.extra for entry in self._aero.entries)
        if with_hash:
            rest[HASH_KEY] = "all" if with_hash == len(self._aero.entries) else "some"
        return rest

    def _pages(self, chunk: AeroChunk, name: bytes) -> dict[str, object]:
        """Return the parameters of page hashes; for an unused chunk, all of it."""
        if chunk.is_compressed:
            return self._whole(chunk)
        self._allowance.parse(chunk)
        pages = parse_pages(self._aero, chunk)
        if pages.shard_name in self._paged or pages.shard_name.encode() not in self._aero.shards:
            return self._whole(chunk)
        self._paged.add(pages.shard_name)
        value = msgpack_limits.parse(bytes(self._aero.stored(chunk)), "phsh")
        usual = pages.shard_name.encode() + PAGES_SUFFIX
        return _further(value, OF_THE_PAGES) | _unusual(chunk, name, OPTIONAL, usual)

    def _shard(self, chunk: AeroChunk) -> dict[str, object]:
        """Return a hash of what a shard has between its tensors."""
        size = chunk.ulen if chunk.is_compressed else chunk.length
        places = intervals.gaps(self._tensors.get(chunk, ()), size)
        if not places:
            return {}
        if chunk.is_compressed:
            self._allowance.decode(chunk)
            digest = intervals.digest_of(ChunkContent(self._aero, chunk), places)
        else:
            self._allowance.hash(sum(end - start for start, end in places), chunk.offset)
            digest = intervals.digest(self._aero.stored(chunk), self._tensors.get(chunk, ()))
        return {} if digest is None else {GAPS: digest}


def _unusual(chunk: AeroChunk, name: bytes, flags: int, usual: bytes) -> dict[str, object]:
    rest: dict[str, object] = {}
    if chunk.flags != flags:
        rest["flags"] = chunk.flags
    if name != usual:
        rest["name"] = name
    return rest


def _further(value: object, known: frozenset[str]) -> dict[str, object]:
    if not isinstance(value, dict):
        return {}
    return {FURTHER: {key: item for key, item in value.items() if key not in known}}


def _lists(manifest: dict[str, object]) -> dict[str, object]:
    """Return what the lists of a manifest have that does not follow from the chunks."""
    rest: dict[str, object] = {}
    for key in metadata.LISTS:
        items = manifest.get(key)
        if not isinstance(items, list):
            rest[key] = [items]
            continue
        further = [_of_item(item) for item in items]
        kept = [more for more in further if more]
        if kept:
            rest[key] = kept
        elif not items:
            rest[key] = []
    return rest


def _of_item(item: object) -> object:
    if not isinstance(item, dict):
        return item
    more = {key: value for key, value in item.items() if key not in OF_THE_CHUNK}
    is_usual = item.get("mmap_critical", True) is True
    return more if is_usual else {**more, "mmap_critical": item["mmap_critical"]}
