"""Writing FOLD files, version 1.2: chunks, the index, and the hashes in it.

The same chunks give the same bytes: the time of writing is an argument. A chunk header has the
length and the hash of the bytes after it, and the file header the position of the index, so every
chunk's content is read twice: only parity is held in memory. Spec: `docs/spec/fold.md`, "What is
written".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Literal, get_args

from wtxtgit.containers import json_text, replacing, tensor_header, zstd_limits
from wtxtgit.containers.budget import refuse_long
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.fold import FORMAT, MAGIC, payloads
from wtxtgit.containers.fold.payloads import (
    CHUNK_HASHES,
    HEX_DIGITS,
    HMAC_PREFIX,
    MANIFEST_HASH,
    SHA256_PREFIX,
)
from wtxtgit.containers.fold.read import (
    CHUNK_HEADER,
    CODEWORD,
    HEADER,
    JSON_CTYPE,
    MERKLE_ROOT,
    TAGS,
    TENSOR_CTYPE,
    UNCOMPRESSED,
    ZSTD,
    FoldChunk,
    parity_bytes,
    parity_len,
)
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, exactly, pieces
from wtxtgit.model.checksum import crc32c
from wtxtgit.model.tensor import ReadOptions, TensorSource

VERSION = "1.2.0"
LEVEL = 3
"""The level of zstd for content that is compressed again."""
MODEL_CHUNK, MANIFEST_CHUNK, METRICS_CHUNK = "torch_state", "llm_manifest", "metrics"
"""Chunks that pyfolds loads: the weights, the kind of model, and its measurements."""
TOLD = (MANIFEST_CHUNK, METRICS_CHUNK)
JSON_CHUNKS = FORMAT.chunks_as_tags
MODEL_TYPES = ("model_type", "architecture", "model_name")
"""Tags that say the class of the model; the first one that exists counts."""
OWN = "\0own"
"""The key of a file's own values, which is not a tag."""

NOT_IN_LIBRARY = "C128"
"""A dtype that can be read here but is unknown to the safetensors library."""
DTYPES = {
    element: dtype for dtype, element in tensor_header.ELEMENTS.items() if dtype != NOT_IN_LIBRARY
}
"""The dtype of each element, as in safetensors."""


def build(
    chunks: Sequence[ChunkSource],
    *,
    compression: Compression = "none",
    level: int = LEVEL,
    ecc: int = 0,
    metadata: Mapping[str, object] | None = None,
    created_at_unix: float = 0,
    merkle: bool = False,
    integrity_key: bytes | None = None,
) -> Iterator[Buffer]:
    """Yield a file of `chunks` in pieces.

    `ecc` is n of `rs(n)` (the original writer has 16, 32 and 64), 0 for no parity. `metadata` is
    plain data, to which the hashes are added, as HMACs if there is an `integrity_key`. Raises
    FormatError for what no index can hold, before the first piece.
    """
    prefix = SHA256_PREFIX if integrity_key is None else HMAC_PREFIX
    form = ChunkForm(compression, level, ecc, prefix, integrity_key)
    planned = plan_all((source, form) for source in chunks)
    own = {key: value for key, value in (metadata or {}).items() if key != MANIFEST_HASH}
    index: dict[str, object] = {
        "format": "fold",
        "version": VERSION,
        "created_at_unix": created_at_unix,
        # Its hashes only have names and forms so far, in order: `sealed` computes them.
        "metadata": {
            **own,
            CHUNK_HASHES: {},
            MANIFEST_HASH: str(payloads.Hash(prefix, "0" * HEX_DIGITS)),
        },
        "chunks": [],
    }
    if merkle and planned:
        index[MERKLE_ROOT] = ""
    return file_pieces(planned, format_index(sealed(index, planned, integrity_key)))


def build_model(
    tensors: Sequence[TensorSource],
    tags: Mapping[str, object],
    *,
    ecc: int = 0,
    max_chunk: int | None = None,
) -> Iterator[Buffer]:
    """Yield a file with a chunk `torch_state`, a safetensors file of `tensors`, and its metadata.

    `tags` are texts, or what a FOLD file says of itself (`describe.own_values`): then its other
    chunks and its metadata are copied, and tensors named `chunk/tensor` go to chunks of their own.
    `ecc` is n of the parity `rs(n)`, `max_chunk` the most bytes of a chunk that will be read again.
    Raises FormatError for names, dtypes and sizes that it can't hold, before the first piece.
    """
    own = tags.get(OWN)
    if isinstance(own, OwnValues):
        chunks = _with_tensors(own.chunks, tensors)
        _refuse_long(chunks, max_chunk)
        return build(chunks, ecc=ecc, metadata=own.metadata, created_at_unix=own.created_at_unix)
    texts = {key: str(value) for key, value in tags.items()}
    for text in (*texts.keys(), *texts.values()):
        json_text.check_name(text, "tag", offset=0)
    json_chunks = _json_chunks(texts)
    # The names of tensors in a loaded FOLD file.
    if tensors and all(tensor.name.startswith(f"{MODEL_CHUNK}/") for tensor in tensors):
        tensors = [replace(t, name=t.name.removeprefix(f"{MODEL_CHUNK}/")) for t in tensors]
    texts = {key: text for key, text in texts.items() if key not in json_chunks}
    chunks = [_of_tensors(MODEL_CHUNK, tensors)]
    chunks += [_of_json(name, value) for name, value in json_chunks.items()]
    _refuse_long(chunks, max_chunk)
    return build(chunks, ecc=ecc, metadata={TAGS: texts} if texts else None)


def _refuse_long(chunks: Iterable[ChunkSource], most: int | None) -> None:
    for chunk in chunks:
        if most is not None and chunk.length > most:
            raise FormatError(
                f"chunk {quoted(chunk.name)} would have {chunk.length} bytes, and could not be "
                f"read again: at most {most} are read",
                kind="limit",
                field="uncomp_len",
            )


def _of_tensors(name: str, tensors: Sequence[TensorSource]) -> ChunkSource:
    """Return a chunk that holds a safetensors file."""
    entries = []
    for tensor in tensors:
        if tensor.element not in DTYPES:
            raise FormatError(
                f"tensor {quoted(tensor.name)} is {tensor.element}, which safetensors does not "
                "have",
                field="dtype",
            )
        entries.append((tensor.name, DTYPES[tensor.element], tensor.shape, tensor.nbytes))
    header = tensor_header.format_header(entries)
    length = len(header) + sum(tensor.nbytes for tensor in tensors)
    return ChunkSource(name, TENSOR_CTYPE, length, partial(replacing.behind, header, tensors))


def _of_json(name: str, value: object) -> ChunkSource:
    raw = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return ChunkSource(name, JSON_CTYPE, len(raw), partial(iter, (raw,)))


def _json_chunks(texts: Mapping[str, str]) -> dict[str, object]:
    """Return the JSON chunks that pyfolds' documentation names, with values from tags."""
    # Tags that come from such chunks have their content.
    json_chunks: dict[str, object] = {
        name: value for name in JSON_CHUNKS if (value := _object(texts.get(name))) is not None
    }
    known = [texts[key] for key in MODEL_TYPES if key in texts]
    manifest: dict[str, object] = {
        "format": "fold",
        "version": VERSION,
        "created_at_unix": 0,
        "model_type": known[0] if known else None,
        "hyperparameters": _object(texts.get("hyperparameters")) or {},
        "tags": {key: text for key, text in texts.items() if key not in json_chunks},
        "routing": {"resume_training": MODEL_CHUNK, "audit": list(TOLD)},
        "chunks_expected": [MODEL_CHUNK, *TOLD],
    }
    return {MANIFEST_CHUNK: manifest, METRICS_CHUNK: {}} | json_chunks


def _object(text: str | None) -> dict[str, object] | None:
    """Parse a tag as a JSON object, None if it is not one."""
    try:
        value = None if text is None else json_text.parse(memoryview(text.encode()), "tag")
    except FormatError:
        return None
    return value if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True)
class OwnValues:
    """What a file holds besides tensors: its metadata, without hashes, and its chunks in order.

    A chunk with tensors is None.
    """

    metadata: dict[str, object]
    created_at_unix: float
    chunks: Mapping[str, ChunkSource | None]


def _with_tensors(
    chunks: Mapping[str, ChunkSource | None], tensors: Sequence[TensorSource]
) -> list[ChunkSource]:
    """Return the chunks of a file, those with tensors rebuilt from what is named `chunk/tensor`."""
    inside: dict[str, list[TensorSource]] = {name: [] for name, one in chunks.items() if not one}
    first = next(iter(inside), MODEL_CHUNK)
    for tensor in tensors:
        chunk, slash, name = tensor.name.partition("/")
        if slash and chunk in inside:
            inside[chunk].append(replace(tensor, name=name))
        else:
            inside.setdefault(first, []).append(tensor)
    if first in chunks and chunks[first] is not None:
        raise FormatError(f"chunk {quoted(first)} does not hold tensors", field="chunks")
    rebuilt = {name: _of_tensors(name, members) for name, members in inside.items()}
    return [one or rebuilt[name] for name, one in chunks.items()] + [
        one for name, one in rebuilt.items() if name not in chunks
    ]


Compression = Literal["none", "zstd"]
CTYPE_BYTES = 4
# The chunk header has 4 bytes for this.
MAX_ECC_LEN = 2**32 - 1


@dataclass(frozen=True, slots=True, eq=False)
class ChunkSource:
    """A chunk to be written: `blocks` yields its `length` bytes each time it is called."""

    name: str
    ctype: bytes
    length: int
    blocks: Callable[[], Iterator[Buffer]]


@dataclass(frozen=True, slots=True)
class ChunkForm:
    """How a chunk is stored: `ecc` is n of `rs(n)` or 0, `prefix` the form of its hash.

    `key` is for an HMAC. With a `cipher_key` (AES-256) the chunk is encrypted.
    """

    compression: Compression = "none"
    level: int = LEVEL
    ecc: int = 0
    prefix: str = SHA256_PREFIX
    key: bytes | None = field(default=None, repr=False)
    cipher_key: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Laid:
    """A chunk in its place in a file being written; `entry` is for the index.

    `pieces` yields its header, payload and parity, `length` bytes in total. It is not new if it is
    the same in a file that was read.
    """

    entry: dict[str, object]
    length: int
    pieces: Callable[[], Iterator[Buffer]]
    is_new: bool = True

    def at(self, offset: int) -> Laid:
        """Return the same chunk, at `offset`."""
        return replace(self, entry={**self.entry, "offset": offset})

    def like(self, chunk: FoldChunk) -> Laid:
        """Return the same chunk with whatever else the index says of `chunk`."""
        return replace(self, entry={**chunk.entry, **self.entry})


def plan(source: ChunkSource, form: ChunkForm, offset: int) -> Laid:
    """Measure and hash a chunk to be written at `offset`; raises FormatError."""
    json_text.check_name(source.name, "chunk name", offset=offset)
    if len(source.ctype) != CTYPE_BYTES or not source.ctype.isascii():
        raise FormatError(f"ctype of chunk {quoted(source.name)} is not 4 ASCII characters")
    if not 0 <= form.ecc < CODEWORD:
        raise FormatError(
            f"ecc {form.ecc} is not between 0 and {CODEWORD - 1} bytes per block", field="ecc"
        )
    if form.compression not in get_args(Compression):
        raise FormatError(f"compression {quoted(form.compression)} is unknown", field="flags")
    # A header precedes what it describes: one pass measures and hashes, a second one writes.
    crc, comp_len, sha256 = 0, 0, hashlib.sha256()
    nonce, stored = _stored(source, form)
    for block in stored:
        crc = crc32c(block, crc)
        sha256.update(block)
        comp_len += len(block)
    ecc_len = parity_len(comp_len, form.ecc)
    if ecc_len > MAX_ECC_LEN:
        raise FormatError(
            f"parity of chunk {quoted(source.name)} would have {ecc_len} bytes", field="ecc_len"
        )
    flags = ZSTD if form.compression == "zstd" else UNCOMPRESSED
    entry = {
        "name": source.name,
        "ctype": source.ctype.decode(),
        "flags": flags,
        "offset": offset,
        "header_len": CHUNK_HEADER.size,
        "comp_len": comp_len,
        "uncomp_len": source.length,
        "crc32c": crc,
        "sha256": str(payloads.make_hash(form.prefix, sha256.hexdigest(), form.key)),
        "ecc_algo": f"rs({form.ecc})" if form.ecc else "none",
        "ecc_len": ecc_len,
    }
    if nonce is not None:
        entry |= {"encrypted": True, payloads.NONCE_KEY: nonce.hex()}
    header = CHUNK_HEADER.pack(source.ctype, flags, source.length, comp_len, crc, ecc_len)
    blocks = partial(_pieces, source, form, header, comp_len)
    return Laid(entry, len(header) + comp_len + ecc_len, blocks)


def _pieces(source: ChunkSource, form: ChunkForm, header: bytes, comp_len: int) -> Iterator[Buffer]:
    yield header
    _, stored = _stored(source, form)
    blocks = _counted(stored, comp_len, source.name)
    if not form.ecc:
        yield from blocks
        return
    from wtxtgit.containers.fold.reed_solomon import Encoder  # it needs numpy

    encoder = Encoder(form.ecc)
    for block in blocks:
        encoder.update(block)
        yield block
    yield from encoder.finish()


def plan_all(sources: Iterable[tuple[ChunkSource, ChunkForm]]) -> list[Laid]:
    """Plan chunks back to back after the file header."""
    planned: list[Laid] = []
    offset = HEADER.size
    for source, form in sources:
        planned.append(plan(source, form, offset))
        offset += planned[-1].length
    return planned


def form_of(chunk: FoldChunk, compression: Compression, options: ReadOptions) -> ChunkForm:
    """Return how to store a chunk with the parity and the form of hash of `chunk`.

    Raises FormatError if these are unknown, or if it is an HMAC and there is no key.
    """
    stored = payloads.parse_hash(chunk.entry.get("sha256"))
    ecc = parity_bytes(chunk.ecc_algo)
    if stored is None or ecc is None:
        raise FormatError(
            f"chunk {quoted(chunk.name)} has an unknown sha256 or ecc_algo",
            offset=chunk.offset,
            field="ecc_algo" if ecc is None else "sha256",
        )
    need_key(stored.prefix, options.integrity_key)
    cipher_key = options.decryption_key if chunk.encrypted else None
    return ChunkForm(compression, LEVEL, ecc, stored.prefix, options.integrity_key, cipher_key)


def need_key(prefix: str, key: bytes | None) -> None:
    """Raise FormatError if hashes of that form can't be computed."""
    if prefix == HMAC_PREFIX and key is None:
        raise FormatError(
            "hashes are HMACs, which can't be computed without their key", field="sha256"
        )


def file_pieces(chunks: Sequence[Laid], index: bytes) -> Iterator[Buffer]:
    """Yield the whole file: its header, its chunks, its index."""
    index_off = HEADER.size + sum(chunk.length for chunk in chunks)
    yield HEADER.pack(MAGIC, HEADER.size, index_off, len(index))
    for chunk in chunks:
        yield from chunk.pieces()
    yield index


def _stored(source: ChunkSource, form: ChunkForm) -> tuple[bytes | None, Iterator[Buffer]]:
    """Return a chunk's stored bytes: one zstd frame without checksum, or plain.

    Encrypted ones have a nonce, and are held in memory as a whole.
    """
    blocks: Iterator[Buffer] = _counted(source.blocks(), source.length, source.name)
    if form.compression != "none":
        blocks = zstd_limits.packed(blocks, source.length, form.level)
    if form.cipher_key is None:
        return None, blocks
    nonce, stored = payloads.encrypted(b"".join(blocks), source.name, form.cipher_key)
    return nonce, iter([stored])


def _counted(blocks: Iterator[Buffer], length: int, name: str) -> Iterator[memoryview]:
    """Cut the blocks to pieces; raises FormatError unless their total is what a header has said."""
    what = f"content of chunk {quoted(name)}"
    return chain.from_iterable(map(pieces, exactly(blocks, length, what, "comp_payload")))


def manifest_hash(metadata: dict[str, object], prefix: str, key: bytes | None) -> str:
    """Return the hash over metadata, in the form that `prefix` names; raises FormatError."""
    try:
        sha256 = payloads.manifest_sha256(metadata)
    except (TypeError, ValueError, RecursionError):
        raise FormatError("metadata can't be written as JSON", field="metadata") from None
    return str(payloads.make_hash(prefix, sha256, key))


def sealed(
    index: Mapping[str, object], chunks: Sequence[Laid], key: bytes | None
) -> dict[str, object]:
    """Return `index` with these chunks; hashes that it has are computed again, in their forms.

    Raises FormatError for a manifest_hash that is an HMAC without its key.
    """
    new: dict[str, object] = {**index, "chunks": [chunk.entry for chunk in chunks]}
    before = index.get("metadata")
    if isinstance(before, dict):
        metadata = dict(before)
        if CHUNK_HASHES in metadata:
            # The last one of equal names counts, as with the original writer.
            metadata[CHUNK_HASHES] = {
                chunk.entry["name"]: chunk.entry["sha256"] for chunk in chunks
            }
        if MANIFEST_HASH in metadata:
            stored = payloads.parse_hash(metadata[MANIFEST_HASH])
            prefix = SHA256_PREFIX if stored is None else stored.prefix
            need_key(prefix, key)
            metadata[MANIFEST_HASH] = manifest_hash(metadata, prefix, key)
        new["metadata"] = metadata
    if index.get(MERKLE_ROOT) is not None:
        entries = (chunk.entry for chunk in chunks)
        new[MERKLE_ROOT] = payloads.merkle_root(
            (entry["name"], entry["offset"], entry["sha256"]) for entry in entries
        )
    return new


def format_index(index: dict[str, object]) -> bytes:
    """Return the index's bytes, which the reader must accept; raises FormatError."""
    try:
        encoded = json.dumps(index, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError):
        raise FormatError("index can't be written as JSON", field="metadata") from None
    refuse_long(len(encoded), MAX_JSON, "index", "index")
    # Plain data may still be too deep, or have integers of over 64 bits.
    json_text.parse(memoryview(encoded), "index")
    return encoded
