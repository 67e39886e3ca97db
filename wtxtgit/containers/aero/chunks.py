"""The chunks of an AERO file that is written, and how they are put together.

Tensors are laid out in weight shards; metadata, index and shards become
payloads, and payloads a file. Tensors' bytes are gone through twice, once to
hash them and once to write them: no shard is held in memory.
Spec: `docs/spec/aero.md`, "What is written".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import msgpack
import zstandard

from wtxtgit.containers import json_limits
from wtxtgit.containers.aero import MAGIC, hashes, read
from wtxtgit.containers.aero.content import Span, digest, digest_spans
from wtxtgit.containers.aero.describe import ARCHITECTURE_TAG, NAME_TAG, SOURCE_KEY
from wtxtgit.containers.aero.hashes import ALGORITHM, PAYLOAD_SIZE
from wtxtgit.containers.aero.read import (
    COMPRESSED,
    HASH_AT,
    HEADER,
    INDEX,
    INTEGRITY,
    IS_INDEX,
    JSON,
    MANIFEST,
    MAX_STRING_TABLE,
    MMAP_CRITICAL,
    NAMES_ALIGNMENT,
    NO_HASH,
    OPTIONAL,
    PAGES,
    PAGES_SUFFIX,
    PAYLOAD_ALIGNMENT,
    SHARD,
    SHARD_NAME,
    TENSORS_KEY,
    TOC_ENTRY,
    TOC_HEADER,
    VERSION,
)
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import ITEM_BYTES, TensorSource

UUID_SIZE = 16
INTEGRITY_NAME = b"control.integrity"


@dataclass(frozen=True, slots=True)
class Payload:
    """A chunk to be written: `length` bytes as stored, `ulen` and `digest` of its content.

    `blocks` gives the stored bytes.
    """

    fourcc: bytes
    name: bytes
    flags: int
    length: int
    ulen: int
    digest: bytes
    blocks: Callable[[], Iterator[Buffer]]

    @staticmethod
    def of(fourcc: bytes, name: bytes, flags: int, raw: bytes, *, stored: bytes) -> Payload:
        """A chunk whose content is at hand."""
        return Payload(
            fourcc, name, flags, len(stored), len(raw), digest(raw), lambda: iter((stored,))
        )


def integrity_payload(name: bytes = INTEGRITY_NAME, flags: int = OPTIONAL) -> Payload:
    """The place of the IHSH chunk, whose content `assemble` makes."""
    return Payload(INTEGRITY, name, flags, PAYLOAD_SIZE, PAYLOAD_SIZE, NO_HASH, lambda: iter(()))


def content_uuid(payloads: Sequence[Payload]) -> bytes:
    """A file identity that follows from what the chunks hold."""
    return digest(b"".join(payload.digest for payload in payloads))[:UUID_SIZE]


def check_payloads(payloads: Sequence[Payload]) -> None:
    """Refuse what `assemble` can't write; raises FormatError."""
    if len(payloads) > MAX_TENSORS:
        raise FormatError(f"{len(payloads)} chunks are too many", kind="limit", field="entry_count")
    if sum(len(payload.name) + 1 for payload in payloads) > MAX_STRING_TABLE:
        raise FormatError("chunk names are too long", kind="limit", field="string_table_length")


def assemble(payloads: Sequence[Payload], uuid: bytes) -> Iterator[Buffer]:
    """The bytes of a file of these chunks, in this order.

    The first payload of type IHSH is made here. `check_payloads` was called before.
    """
    names = b"".join(payload.name + b"\0" for payload in payloads)
    names += bytes(-len(names) % NAMES_ALIGNMENT)
    toc_length = TOC_HEADER.size + TOC_ENTRY.size * len(payloads)
    names_offset = HEADER.size + toc_length
    start = _aligned(names_offset + len(names))
    header = HEADER.pack(
        MAGIC,
        *VERSION,
        HEADER.size,
        HEADER.size,
        toc_length,
        names_offset,
        len(names),
        0,
        uuid,
        b"",
    )
    toc = _toc(payloads, start)
    control = bytearray(header + toc + names)
    control += bytes(start - len(control))
    sealed = next((n for n, payload in enumerate(payloads) if payload.fourcc == INTEGRITY), None)
    made = b""
    if sealed is not None:
        made = _sealed(control, len(payloads))
        place = HEADER.size + TOC_HEADER.size + sealed * TOC_ENTRY.size + HASH_AT
        control[place : place + len(NO_HASH)] = digest(made)
    yield bytes(control)
    pos = start
    for number, payload in enumerate(payloads):
        yield bytes(_aligned(pos) - pos)
        pos = _aligned(pos)
        length = 0
        for block in (made,) if number == sealed else payload.blocks():
            length += len(block)
            yield block
        if length != payload.length:
            raise FormatError(
                f"chunk {payload.name!r} has {length} bytes, not {payload.length} as before",
                field="chunk_length",
            )
        pos += length


def _toc(payloads: Sequence[Payload], start: int) -> bytes:
    name_offs = accumulate((len(payload.name) + 1 for payload in payloads), initial=0)
    entries = [TOC_HEADER.pack(len(payloads), 0, 0)]
    pos = start
    for payload, name_off in zip(payloads, name_offs, strict=False):
        pos = _aligned(pos)
        entries.append(
            TOC_ENTRY.pack(
                payload.fourcc,
                payload.flags,
                pos,
                payload.length,
                payload.ulen,
                name_off,
                len(payload.name),
                0,
                payload.digest,
            )
        )
        pos += payload.length
    return b"".join(entries)


def _sealed(control: bytearray, entries: int) -> bytes:
    """The content of the IHSH chunk for this control region."""
    span = (0, len(control))
    seal = hashes.control_digest(memoryview(control), HEADER.size, entries, [span])
    packed: bytes = msgpack.packb(
        {"algo": ALGORITHM, "covered_ranges": [list(span)], "digest": seal}
    )
    return packed.ljust(PAYLOAD_SIZE, b"\0")


def _aligned(offset: int) -> int:
    return offset + -offset % PAYLOAD_ALIGNMENT


DTYPES = {element: number for number, element in read.DTYPES.items()}
"""The dtype number of each element that the format can hold."""
MAX_DIM = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor and where in its shard it goes."""

    source: TensorSource
    offset: int

    @property
    def span(self) -> Span:
        return self.offset, self.offset + self.source.nbytes


@dataclass(frozen=True)
class Shard:
    """A weight shard to be written."""

    number: int
    placed: tuple[Placed, ...]
    page_size: int | None = None

    @property
    def name(self) -> bytes:
        return SHARD_NAME % self.number

    @property
    def size(self) -> int:
        return self.placed[-1].span[1] if self.placed else 0

    @property
    def pages(self) -> list[Span]:
        step = self.page_size
        if step is None:
            return []
        return [(start, min(start + step, self.size)) for start in range(0, self.size, step)]

    def blocks(self) -> Iterator[Buffer]:
        """The shard's bytes; raises FormatError where a tensor gives more or fewer than it says."""
        pos = 0
        for placed in self.placed:
            yield bytes(placed.offset - pos)
            length = 0
            for block in placed.source.blocks():
                view = memoryview(block).cast("B")
                length += len(view)
                yield view
            if length != placed.source.nbytes:
                raise FormatError(
                    f"tensor {quoted(placed.source.name)} gives {length} bytes, "
                    f"not {placed.source.nbytes}",
                    field="data_len",
                )
            pos = placed.offset + length

    @cached_property
    def digests(self) -> dict[Span, bytes]:
        """BLAKE3 of the shard, its pages and its tensors."""
        spans = [(0, self.size), *self.pages, *(placed.span for placed in self.placed)]
        return digest_spans(self.blocks(), spans)

    def entries(self, number: int, *, tensor_hash: bool) -> list[dict[str, object]]:
        """The shard's tensors as the index lists them, in the shard of that number."""
        return [self._entry(placed, number, tensor_hash) for placed in self.placed]

    def _entry(self, placed: Placed, number: int, tensor_hash: bool) -> dict[str, object]:
        source = placed.source
        entry: dict[str, object] = {
            "name": source.name,
            "dtype": DTYPES[source.element],
            "shape": list(source.shape),
            "shard_id": number,
            "data_off": placed.offset,
            "data_len": source.nbytes,
            read.FLAGS_KEY: 0,
        }
        if tensor_hash:
            entry[read.HASH_KEY] = self.digests[placed.span].hex()
        return entry

    def payloads(self) -> Iterator[Payload]:
        size = self.size
        whole = self.digests[0, size]
        yield Payload(SHARD, self.name, MMAP_CRITICAL, size, size, whole, self.blocks)
        if self.page_size is not None:
            raw: bytes = msgpack.packb(
                {
                    "shard_name": self.name.decode(),
                    "page_size": self.page_size,
                    "digests": [self.digests[page] for page in self.pages],
                }
            )
            yield Payload.of(PAGES, self.name + PAGES_SUFFIX, OPTIONAL, raw, stored=raw)


def check_tensors(tensors: Sequence[TensorSource]) -> None:
    """Refuse tensors that the format can't hold; raises FormatError."""
    if len(tensors) > MAX_TENSORS:
        raise FormatError(f"{len(tensors)} tensors are too many", kind="limit", field="tensors")
    taken: set[str] = set()
    for source in tensors:
        json_limits.check_name(source.name, "tensor name", offset=0)
        if source.name in taken:
            raise FormatError(f"tensor name {quoted(source.name)} is taken", field="name")
        taken.add(source.name)
        if source.element not in DTYPES:
            raise FormatError(
                f"AERO has no dtype for {source.element}, which tensor {quoted(source.name)} is",
                field="dtype",
            )
        needed = ITEM_BYTES[source.element]
        for dim in source.shape:
            needed *= dim
        if any(not 0 <= dim <= MAX_DIM for dim in source.shape) or needed != source.nbytes:
            raise FormatError(
                f"tensor {quoted(source.name)} of {source.nbytes} bytes does not fit its shape",
                field="shape",
            )


def plan(
    tensors: Sequence[TensorSource], max_shard: int | None, *, page_size: int | None = None
) -> list[Shard]:
    """Give the tensors places in shards, in their order."""
    shards: list[list[Placed]] = []
    end = 0
    for source in tensors:
        offset = end + -end % PAYLOAD_ALIGNMENT
        if not shards or (max_shard is not None and end and offset + source.nbytes > max_shard):
            shards.append([])
            offset = 0
        shards[-1].append(Placed(source, offset))
        end = offset + source.nbytes
    return [Shard(number, tuple(placed), page_size) for number, placed in enumerate(shards)]


JSON_NAME, MANIFEST_NAME, INDEX_NAME = b"meta.json", b"manifest", b"tensors"
ZSTD_LEVEL = 3
ROLES = {
    INTEGRITY: "control_integrity",
    JSON: "json",
    MANIFEST: "manifest",
    INDEX: "tensors",
    SHARD: "weights",
    PAGES: "page_hashes",
}
"""What the manifest calls the chunks."""


def metadata_payload(
    fourcc: bytes, name: bytes, raw: bytes, *, flags: int = 0, compress: bool
) -> Payload:
    """A metadata chunk of this content; raises FormatError where no reader would take it."""
    if len(raw) > MAX_JSON:
        raise FormatError(
            f"{fourcc.decode()} of {len(raw)} bytes is too long", kind="limit", field="chunk_ulen"
        )
    if not compress:
        return Payload.of(fourcc, name, flags & ~COMPRESSED, raw, stored=raw)
    stored = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(raw)
    return Payload.of(fourcc, name, flags | COMPRESSED, raw, stored=stored)


def file_payloads(
    shards: Sequence[Shard],
    entries: Sequence[dict[str, object]],
    tags: Mapping[str, str],
    *,
    ihsh: bool,
    compress_metadata: bool,
) -> list[Payload]:
    """All chunks of a file: control, metadata, the index of these entries, shards."""
    texts = {key: value for key, value in tags.items() if key != SOURCE_KEY}
    for text in (*texts.keys(), *texts.values()):
        json_limits.check_name(text, "metadata", offset=0)
    first = [integrity_payload()] if ihsh else []
    if texts:
        raw = json.dumps(texts, sort_keys=True, separators=(",", ":")).encode()
        first.append(metadata_payload(JSON, JSON_NAME, raw, compress=False))
    held = [(shard, payload) for shard in shards for payload in shard.payloads()]
    fourccs = [*(payload.fourcc for payload in first), MANIFEST, INDEX]
    chunks: list[dict[str, object]] = [
        {"role": ROLES[fourcc], "fourcc": fourcc.decode(), "toc_index": place}
        for place, fourcc in enumerate(fourccs)
    ]
    sizes = []
    for shard, payload in held:
        place = len(chunks)
        chunks.append(
            {
                "role": ROLES[payload.fourcc],
                "fourcc": payload.fourcc.decode(),
                "toc_index": place,
                "shard_id": shard.number,
            }
        )
        if payload.fourcc == SHARD:
            sizes.append(shard_item(shard.number, place, shard.size, len(shard.placed)))
    manifest: bytes = msgpack.packb(
        {
            "format": {"name": "AERO", "version": list(VERSION)},
            "model": model(texts),
            "chunks": chunks,
            "shards": sizes,
        }
    )
    index: bytes = msgpack.packb({TENSORS_KEY: list(entries)})
    first += [
        metadata_payload(MANIFEST, MANIFEST_NAME, manifest, compress=compress_metadata),
        metadata_payload(INDEX, INDEX_NAME, index, flags=IS_INDEX, compress=compress_metadata),
    ]
    return first + [payload for _, payload in held]


def shard_item(number: int, place: int, size: int, tensors: int) -> dict[str, object]:
    """What a manifest says of a weight shard in this place of the TOC."""
    return {
        "shard_id": number,
        "toc_index": place,
        "size_bytes": size,
        "tensor_count": tensors,
        "mmap_critical": True,
    }


def model(tags: Mapping[str, str]) -> dict[str, str]:
    """The model as manifests and sets name it; empty where the tags say nothing."""
    return {"name": tags.get(NAME_TAG, ""), "architecture": tags.get(ARCHITECTURE_TAG, "")}
