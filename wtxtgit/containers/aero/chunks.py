"""The chunks of an AERO file being written, and assembling the file.

Tensors are laid out in weight shards; metadata, index and shards become payloads, and payloads a
file. Tensors' bytes are read twice, once to hash them and once to write them: no shard is held in
memory. Spec: `docs/spec/aero.md`, "What is written".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import msgpack
import zstandard

from wtxtgit.containers import json_text
from wtxtgit.containers.aero import MAGIC, hashes, read
from wtxtgit.containers.aero.content import digest, digest_spans, page_spans
from wtxtgit.containers.aero.describe import (
    ARCHITECTURE_TAG,
    CODEC_KEY,
    CODECS_KEY,
    GGML_CODEC,
    NAME_TAG,
    PARAMS_KEY,
    SOURCE_KEY,
    TYPE_KEY,
)
from wtxtgit.containers.aero.hashes import PAYLOAD_SIZE
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
    PACKED,
    PAGES,
    PAGES_SUFFIX,
    PAYLOAD_ALIGNMENT,
    SHARD,
    SHARD_NAME,
    TENSORS_KEY,
    TOC_ENTRY,
    TOC_HEADER,
    VERSION,
    Aero,
    AeroChunk,
)
from wtxtgit.containers.budget import refuse_long, refuse_many
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.intervals import Span, aligned
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, exactly, pieces
from wtxtgit.model.ggml import QUANTISED, nbytes_of
from wtxtgit.model.tensor import TensorSource

UUID_SIZE = 16
INTEGRITY_NAME = b"control.integrity"


@dataclass(frozen=True, slots=True)
class Payload:
    """A chunk to be written: `length` bytes as stored; `ulen` and `digest` are of its content.

    `blocks` yields the stored bytes.
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
        """Return a chunk whose content is in memory."""
        return Payload(
            fourcc, name, flags, len(stored), len(raw), digest(raw), lambda: iter((stored,))
        )


def stored_payload(aero: Aero, chunk: AeroChunk) -> Payload:
    """Return a chunk of a file whose hashes were checked; for the first IHSH a placeholder."""
    name = aero.name(chunk)
    if chunk.fourcc == INTEGRITY and chunk is aero.first(INTEGRITY):
        return integrity_payload(name, chunk.flags & ~COMPRESSED)
    blocks = partial(pieces, aero.stored(chunk))
    lengths = (chunk.length, chunk.ulen)
    return Payload(chunk.fourcc, name, chunk.flags, *lengths, chunk.digest, blocks)


def integrity_payload(name: bytes = INTEGRITY_NAME, flags: int = OPTIONAL) -> Payload:
    """Return a placeholder for the IHSH chunk, whose content `assemble` computes."""
    return Payload(INTEGRITY, name, flags, PAYLOAD_SIZE, PAYLOAD_SIZE, NO_HASH, lambda: iter(()))


def assemble(payloads: Sequence[Payload], uuid: bytes | None = None) -> Iterator[Buffer]:
    """Yield the bytes of a file of these chunks, in this order.

    The first payload of type IHSH is computed here. Without a `uuid` one is derived from the
    content of the chunks. Raises FormatError (limit) before the first piece.
    """
    refuse_many(len(payloads), MAX_TENSORS, "chunks", "entry_count")
    if sum(len(payload.name) + 1 for payload in payloads) > MAX_STRING_TABLE:
        raise FormatError("chunk names are too long", kind="limit", field="string_table_length")
    digests = b"".join(payload.digest for payload in payloads)
    return _pieces(payloads, digest(digests)[:UUID_SIZE] if uuid is None else uuid)


def _pieces(payloads: Sequence[Payload], uuid: bytes) -> Iterator[Buffer]:
    # Names end in a NUL that `name_len` does not count ("Layout").
    names = b"".join(payload.name + b"\0" for payload in payloads)
    names += bytes(-len(names) % NAMES_ALIGNMENT)
    toc_length = TOC_HEADER.size + TOC_ENTRY.size * len(payloads)
    names_at = HEADER.size + toc_length
    offsets = []
    end = start = aligned(names_at + len(names), PAYLOAD_ALIGNMENT)
    for payload in payloads:
        offsets.append(aligned(end, PAYLOAD_ALIGNMENT))
        end = offsets[-1] + payload.length
    sizes = (HEADER.size, HEADER.size, toc_length, names_at, len(names))
    control = bytearray(HEADER.pack(MAGIC, *VERSION, *sizes, 0, uuid, b""))
    control += TOC_HEADER.pack(len(payloads), 0, 0)
    name_off = 0
    for one, offset in zip(payloads, offsets, strict=True):
        where = (offset, one.length, one.ulen, name_off, len(one.name))
        control += TOC_ENTRY.pack(one.fourcc, one.flags, *where, 0, one.digest)
        name_off += len(one.name) + 1
    control += names.ljust(start - names_at, b"\0")
    seal = b""
    # The IHSH covers header, TOC and names, so it is computed after them ("IHSH").
    sealed = next((n for n, payload in enumerate(payloads) if payload.fourcc == INTEGRITY), None)
    if sealed is not None:
        seal = _seal(control, len(payloads))
        place = HEADER.size + TOC_HEADER.size + sealed * TOC_ENTRY.size + HASH_AT
        control[place : place + len(NO_HASH)] = digest(seal)
    yield bytes(control)
    end = start
    for number, (payload, offset) in enumerate(zip(payloads, offsets, strict=True)):
        yield bytes(offset - end)
        blocks = iter((seal,)) if number == sealed else payload.blocks()
        yield from exactly(blocks, payload.length, f"chunk {payload.name!r}", "chunk_length")
        end = offset + payload.length


def _seal(control: bytearray, entries: int) -> bytes:
    """Return the content of the IHSH chunk for this control region."""
    span = (0, len(control))
    sealed = hashes.control_digest(memoryview(control), HEADER.size, entries, [span])
    packed: bytes = msgpack.packb(
        {"algo": hashes.ALGORITHM, "covered_ranges": [list(span)], "digest": sealed}
    )
    return packed.ljust(PAYLOAD_SIZE, b"\0")


DTYPES = {element: number for number, element in read.DTYPES.items()}
"""The dtype number of each element that the format can hold."""
MAX_DIM = 2**63 - 1

Segment = tuple[int, int, Callable[[], Iterator[Buffer]]]
"""Position in the shard, length, and a function that yields the bytes."""


@dataclass(frozen=True)
class ShardContent:
    """A weight shard to be written: its segments in order, with zeros between them.

    `hashed` are spans to be hashed in addition to the whole shard and its pages.
    """

    segments: tuple[Segment, ...]
    size: int
    page_size: int | None
    hashed: frozenset[Span]

    @property
    def pages(self) -> list[Span]:
        return [] if self.page_size is None else page_spans(self.size, self.page_size)

    def blocks(self) -> Iterator[Buffer]:
        """Yield the shard's bytes; raises FormatError if a tensor's are not as many as it says."""
        end = 0
        for offset, nbytes, blocks in self.segments:
            yield bytes(offset - end)
            yield from blocks()
            end = offset + nbytes
        yield bytes(self.size - end)

    @property
    def spans(self) -> frozenset[Span]:
        """Everything that is hashed."""
        return self.hashed | {(0, self.size), *self.pages}

    @cached_property
    def digests(self) -> dict[Span, bytes]:
        """The BLAKE3 of the shard, of its pages, and of what else is `hashed`."""
        return digest_spans(self.blocks(), self.spans)

    def payload(self, name: bytes) -> Payload:
        """Return the shard as a new chunk, uncompressed."""
        whole = self.digests[0, self.size]
        return Payload(SHARD, name, MMAP_CRITICAL, self.size, self.size, whole, self.blocks)


@dataclass(frozen=True)
class Shard:
    """A weight shard of given tensors, each with its offset."""

    number: int
    tensors: tuple[tuple[int, TensorSource], ...]
    content: ShardContent

    def entries(self, number: int, *, tensor_hash: bool) -> list[dict[str, object]]:
        """Return the shard's tensors as the index lists them, for a shard of that number."""
        listed: list[dict[str, object]] = []
        for offset, source in self.tensors:
            entry: dict[str, object] = {
                "name": source.name,
                "dtype": DTYPES.get(source.element, PACKED),
                "shape": list(source.shape),
                "shard_id": number,
                "data_off": offset,
                "data_len": source.nbytes,
                read.FLAGS_KEY: 0,
            }
            if source.element in QUANTISED:
                ggml_number, _ = QUANTISED[source.element]
                entry[PARAMS_KEY] = {TYPE_KEY: ggml_number}
            if tensor_hash:
                entry[read.HASH_KEY] = self.content.digests[offset, offset + source.nbytes].hex()
            listed.append(entry)
        return listed

    def payloads(self) -> Iterator[Payload]:
        content, name = self.content, SHARD_NAME % self.number
        yield content.payload(name)
        if content.page_size is not None:
            pages = {
                "shard_name": name.decode(),
                "page_size": content.page_size,
                "digests": [content.digests[page] for page in content.pages],
            }
            raw: bytes = msgpack.packb(pages)
            yield Payload.of(PAGES, name + PAGES_SUFFIX, OPTIONAL, raw, stored=raw)


def check_tensors(tensors: Sequence[TensorSource]) -> None:
    """Raise FormatError for tensors that the format can't hold."""
    refuse_many(len(tensors), MAX_TENSORS, "tensors", "tensors")
    json_text.refuse_repeated((source.name for source in tensors), "two tensors are named {}")
    for source in tensors:
        json_text.check_name(source.name, "tensor name", offset=0)
        if source.element not in DTYPES and source.element not in QUANTISED:
            raise FormatError(
                f"tensor {quoted(source.name)} is {source.element}, for which AERO has no dtype",
                field="dtype",
            )
        fits = nbytes_of(source.element, source.shape) == source.nbytes
        if not fits or any(dim > MAX_DIM for dim in source.shape):
            raise FormatError(
                f"tensor {quoted(source.name)} of {source.nbytes} bytes does not fit its shape",
                field="shape",
            )


def plan(
    tensors: Sequence[TensorSource], max_shard: int | None, *, page_size: int | None = None
) -> list[Shard]:
    """Assign tensors to places in shards, in their order."""
    shards: list[list[tuple[int, TensorSource]]] = []
    end = 0
    for source in tensors:
        offset = aligned(end, PAYLOAD_ALIGNMENT)
        if not shards or (max_shard is not None and end and offset + source.nbytes > max_shard):
            shards.append([])
            # Offsets are relative to the start of the shard.
            offset = 0
        shards[-1].append((offset, source))
        end = offset + source.nbytes
    return [_shard(number, tuple(tensors), page_size) for number, tensors in enumerate(shards)]


def _shard(
    number: int, tensors: tuple[tuple[int, TensorSource], ...], page_size: int | None
) -> Shard:
    segments = tuple((offset, source.nbytes, partial(_exact, source)) for offset, source in tensors)
    spans = [(offset, offset + nbytes) for offset, nbytes, _ in segments]
    content = ShardContent(segments, spans[-1][1], page_size, frozenset(spans))
    return Shard(number, tensors, content)


def _exact(source: TensorSource) -> Iterator[Buffer]:
    return exactly(source.blocks(), source.nbytes, f"tensor {quoted(source.name)}", "data_len")


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
"""The role that the manifest gives each type of chunk."""


def metadata_payload(
    fourcc: bytes, name: bytes, raw: bytes, *, flags: int = 0, compress: bool
) -> Payload:
    """Return a metadata chunk with this content; raises FormatError if readers would refuse it."""
    refuse_long(len(raw), MAX_JSON, fourcc.decode(), "chunk_ulen")
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
    """Return all chunks of a file: control, metadata, the index with these entries, shards."""
    texts = {key: value for key, value in tags.items() if key != SOURCE_KEY}
    # JSON can spell a lone surrogate, which no reader can print.
    for text in (*texts.keys(), *texts.values()):
        json_text.check_name(text, "metadata", offset=0)
    first = [integrity_payload()] if ihsh else []
    mjsn: dict[str, object] = {**texts}
    entries, codecs = _with_codecs(entries)
    if codecs:
        mjsn[CODECS_KEY] = codecs
    if mjsn:
        raw = json.dumps(mjsn, sort_keys=True, separators=(",", ":")).encode()
        first.append(metadata_payload(JSON, JSON_NAME, raw, compress=False))
    of_shards = [(shard, payload) for shard in shards for payload in shard.payloads()]
    fourccs = [*(payload.fourcc for payload in first), MANIFEST, INDEX]
    chunks: list[dict[str, object]] = [
        {"role": ROLES[fourcc], "fourcc": fourcc.decode(), "toc_index": place}
        for place, fourcc in enumerate(fourccs)
    ]
    sizes = []
    for shard, payload in of_shards:
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
            sizes.append(shard_item(shard.number, place, shard.content.size, len(shard.tensors)))
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
    return first + [payload for _, payload in of_shards]


def _with_codecs(
    entries: Sequence[dict[str, object]],
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return entries with the numbers of their codecs, and these codecs as an MJSN lists them."""
    used = [
        ({TYPE_KEY: number}, ggml_type.name)
        for number, ggml_type in QUANTISED.values()
        if any(entry.get(PARAMS_KEY) == {TYPE_KEY: number} for entry in entries)
    ]
    places: list[object] = [params for params, _ in used]
    numbered = [
        entry | {CODEC_KEY: places.index(entry[PARAMS_KEY])} if PARAMS_KEY in entry else entry
        for entry in entries
    ]
    return numbered, [
        {"codec": GGML_CODEC, "id": place, "params": params, "quant_name": name}
        for place, (params, name) in enumerate(used)
    ]


def shard_item(number: int, place: int, size: int, tensors: int) -> dict[str, object]:
    """Return what a manifest says of a weight shard at this place of the TOC."""
    return {
        "shard_id": number,
        "toc_index": place,
        "size_bytes": size,
        "tensor_count": tensors,
        "mmap_critical": True,
    }


def model(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the model's description for manifests and sets; empty if the tags have none."""
    return {"name": tags.get(NAME_TAG, ""), "architecture": tags.get(ARCHITECTURE_TAG, "")}
