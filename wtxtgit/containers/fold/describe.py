"""What a FOLD file says of itself: tensors, chunks that hold files, metadata.

Also for files that were never finalized: if a writer dies before it writes the index, index_off and
index_len are 0, and chunks are back to back. Names, hashes and encryption would have been in the
index; types, lengths and crc32c are in the chunk headers. Spec: `docs/spec/fold.md`, "What is
listed" and "Files that were not finalized".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial, reduce
from math import isfinite
from typing import cast

from wtxtgit.containers import json_text, tensor_header
from wtxtgit.containers.budget import Budget, DecodedParts
from wtxtgit.containers.cursor import Cursor, quoted, unpack_at
from wtxtgit.containers.fold import payloads
from wtxtgit.containers.fold.payloads import CHUNK_HASHES, MANIFEST_HASH, NONCE_KEY
from wtxtgit.containers.fold.read import (
    CHUNK_HEADER,
    HEADER,
    JSON_CTYPE,
    MAX_NESTED_NAMES,
    TAGS,
    TENSOR_CTYPE,
    UNCOMPRESSED,
    ZSTD,
    Fold,
    FoldChunk,
    read,
)
from wtxtgit.containers.json_text import texts
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.signatures import SAFETENSORS_LENGTH_SIZE
from wtxtgit.containers.spelling import within_limit
from wtxtgit.containers.tensor_header import TensorHeader
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.model.checksum import crc32c
from wtxtgit.model.tensor import (
    Description,
    Document,
    NamedPart,
    Nested,
    PackedBytes,
    PartNote,
    ReadOptions,
    Tensor,
)

FILE_CTYPES = frozenset({b"STEN", b"NPZ0", b"TSAV", b"TORC"})
"""Types of chunks that hold a file with tensors; what is in it decides how it is read."""
# The most bytes of JSON chunks whose values are listed: a comparison holds those of both sides.
MAX_JSON_CHUNKS = 16 * 1024 * 1024
OF_THE_WRITING = frozenset(
    {
        CHUNK_HASHES,
        MANIFEST_HASH,
        "security_level",
        "signature",
        "security_features",
        "sharding",
    }
)
"""Metadata about how this file was written and proved, which no other file can have."""
OF_THE_PLACE = frozenset(
    {
        "name",
        "ctype",
        "flags",
        "offset",
        "header_len",
        "comp_len",
        "uncomp_len",
        "crc32c",
        "sha256",
        "ecc_algo",
        "ecc_len",
        NONCE_KEY,
    }
)
"""Keys of a chunk in the index that follow from its header, its place and its content."""


def describe(fold: Fold, options: ReadOptions) -> Description:
    """Describe a file; raises FormatError (limit) for too many names."""
    chunks = _SortedChunks(fold, options)
    for chunk in fold.chunks:
        chunks.add(chunk)
    metadata = fold.index.get("metadata")
    tags, untold = _tags(metadata if isinstance(metadata, dict) else {})
    return Description(
        "fold",
        tuple(chunks.tensors),
        _metadata(fold),
        tuple(chunks.nested),
        tags,
        (*chunks.untold, *untold),
        parts=tuple(map(_part, fold.chunks)),
        own=partial(own_values, fold, options) if _has_own_values(fold) else None,
        empty=tuple(chunks.empty),
    )


def _has_own_values(fold: Fold) -> bool:
    """Whether the whole file can be written again: names are distinct, nothing is encrypted."""
    names = [chunk.name for chunk in fold.chunks]
    is_open = all(
        chunk.flags in (UNCOMPRESSED, ZSTD) and not chunk.encrypted for chunk in fold.chunks
    )
    return is_open and len(set(names)) == len(names) and not any("/" in name for name in names)


def own_values(fold: Fold, options: ReadOptions) -> dict[str, object]:
    """Return what a file holds besides tensors, for `write.build_model`; raises FormatError."""
    from wtxtgit.containers.fold import write  # reading needs no writer

    chunks: dict[str, write.ChunkSource | None] = {}
    for chunk in fold.chunks:
        content = partial(_content, fold.data, chunk, options)
        source = write.ChunkSource(chunk.name, chunk.ctype, chunk.uncomp_len, content)
        # The type may be wrong: a chunk without tensors is taken as it is.
        has_tensors = chunk.ctype in FILE_CTYPES and chunk.uncomp_len
        chunks[chunk.name] = None if has_tensors else source
    metadata = fold.index.get("metadata")
    kept = metadata if isinstance(metadata, dict) else {}
    created = fold.index.get("created_at_unix")
    own = write.OwnValues(
        {key: value for key, value in kept.items() if key not in OF_THE_WRITING},
        created if isinstance(created, int | float) and isfinite(created) else 0,
        chunks,
    )
    return {write.OWN: own}


class _SortedChunks:
    """Sorts chunks into tensors, files and others, and counts what they cost."""

    def __init__(self, fold: Fold, options: ReadOptions) -> None:
        self._data = fold.data
        self._options = options
        self._passes = payloads.Payloads(fold.data, options).passes
        self._decoded = DecodedParts(options).of_file(len(fold.data))
        message = "chunks list too many tensors in total"
        # Tensors of an intact chunk were counted when the index was read.
        self._mended_tensors = Budget(MAX_TENSORS, message, "tensors")
        self._mended_characters = Budget(MAX_NESTED_NAMES, message, "tensors")
        self._opened: set[int] = set()
        self.tensors: list[Tensor] = []
        self.nested: list[Nested] = []
        self.untold: list[str] = []
        self.empty: list[str] = []

    def add(self, chunk: FoldChunk) -> None:
        is_plain = chunk.flags == UNCOMPRESSED and not chunk.encrypted
        mended = self._mended(chunk) if is_plain and chunk.ctype in FILE_CTYPES else None
        if mended is None and chunk.nested is not None:
            listed = [tensor.listed(self._data) for tensor in chunk.tensors()]
            self.tensors += listed
            if not listed:
                self.empty.append(chunk.name)
            if chunk.nested.metadata:
                self.untold.append(f"__metadata__ of chunk {quoted(chunk.name)}")
        elif mended is not None and chunk.ctype == TENSOR_CTYPE and self._listed(chunk, mended):
            pass
        elif (
            chunk.ctype in FILE_CTYPES
            and self._is_readable(chunk)
            and chunk.offset not in self._opened
        ):
            # An index can list one chunk any number of times: it is decoded once.
            self._opened.add(chunk.offset)
            # Only bytes that are in the file unchanged have an offset in it.
            offset = chunk.payload_start if is_plain and mended is None else None
            decode = partial(payloads.payload, self._data, chunk, self._options)
            opened = decode
            if offset is None:
                opened = partial(self._decoded.open, chunk, chunk.uncomp_len, decode)
            start = chunk.payload_start
            self.nested.append(Nested(chunk.name, opened, offset, chunk.comp_len, start))
        else:
            self.untold.append(f"chunk {quoted(chunk.name)}")

    def _is_readable(self, chunk: FoldChunk) -> bool:
        has_key = self._options.decryption_key is not None
        return chunk.flags in (UNCOMPRESSED, ZSTD) and (has_key or not chunk.encrypted)

    def _mended(self, chunk: FoldChunk) -> ByteView | None:
        """Return the payload as its parity mends it; None if it is intact, or can't be mended.

        Nor is one tried that is over `max_chunk`, or more than may be hashed of the file.
        """
        is_small = chunk.comp_len <= self._options.max_chunk
        if is_small and payloads.usable_parity(chunk) and self._passes.spend(chunk.comp_len):
            return payloads.mended(self._data, chunk, self._options)
        return None

    def _listed(self, chunk: FoldChunk, mended: ByteView) -> bool:
        """List the tensors of a mended safetensors file; returns False if it is not one.

        Tensors that are not affected by the damage have an offset: their bytes are in the file.
        """
        try:
            header = tensor_header.read(mended, 0, len(mended))
        except FormatError:
            return False
        self._mended_tensors.take(len(header.tensors), chunk.payload_start)
        characters = sum(len(chunk.name) + len(tensor.name) + 1 for tensor in header.tensors)
        self._mended_characters.take(characters, chunk.payload_start)
        mend = partial(payloads.stored, self._data, chunk, self._options)
        whole = PackedBytes(len(mended), partial(self._decoded.open, chunk, len(mended), mend))
        for stored in header.tensors:
            name = f"{chunk.name}/{stored.name}"
            start, size = chunk.payload_start + stored.start, stored.nbytes
            stored_bytes = self._data[start : start + size]
            tensor = replace(stored, name=name, start=start, end=start + size).listed(self._data)
            if mended[stored.start : stored.end] != stored_bytes:
                tensor = replace(tensor, held=whole.part(stored.start, size), offset=None)
            self.tensors.append(tensor)
        return True


def _tags(metadata: dict[str, object]) -> tuple[dict[str, str], list[str]]:
    """Return short texts by name, and which metadata can't become one."""
    listed = {
        key: value
        for key, value in metadata.items()
        if key not in OF_THE_WRITING and not (key == TAGS and isinstance(value, dict))
    }
    tags = texts(listed)
    untold = [f"metadata {quoted(key)}" for key in listed if key not in tags]
    table = metadata.get(TAGS)
    if isinstance(table, dict):
        inner = texts(table)
        for key in table:
            if key in tags:
                untold.append(f"metadata {quoted(key)}")
            if key not in inner:
                untold.append(f"tag {quoted(key)}")
        tags |= inner
    return tags, untold


def _metadata(fold: Fold) -> dict[str, object]:
    keys = ("version", "created_at_unix", "metadata", "merkle_root", "trust_block")
    chunks = [_chunk(chunk) for chunk in fold.chunks]
    return {key: fold.index.get(key) for key in keys} | {"chunks": chunks}


def chunk_values(data: ByteView, options: ReadOptions) -> Iterator[tuple[str, object]]:
    """Yield names and values of a file's JSON chunks, so far as they can be read.

    Of a safetensors file in a chunk its `__metadata__` are the values.
    """
    left = MAX_JSON_CHUNKS
    try:
        chunks = read(data).chunks
    except FormatError:
        return
    for chunk in chunks:
        if chunk.nested is not None and chunk.nested.metadata:
            yield chunk.name, chunk.nested.metadata
        if chunk.nested is not None and chunk.nested.further:
            yield f"{chunk.name}/header", {FURTHER: dict(chunk.nested.further)}
        if chunk.ctype != JSON_CTYPE or max(chunk.comp_len, chunk.uncomp_len) > left:
            continue
        left -= chunk.uncomp_len
        try:
            raw = payloads.payload(data, chunk, options)
            yield chunk.name, json_text.parse(raw, "chunk")
        except FormatError:
            # `verify` reports what is wrong with it.
            continue


def documents(fold: Fold, options: ReadOptions) -> Iterator[Document]:
    """Yield the index, the JSON chunks, and the headers of safetensors files in chunks."""
    stored = fold.data[fold.index_start : fold.index_end]
    sized: list[tuple[int, Callable[[], Document]]] = [
        (len(stored), lambda: Document("index", bytes(stored), stored))
    ]
    for chunk in fold.chunks:
        if chunk.nested is not None:
            sized.append((chunk.nested.end - chunk.payload_start, partial(_header, fold, chunk)))
        elif chunk.ctype == JSON_CTYPE:
            nbytes = max(chunk.comp_len, chunk.uncomp_len)
            sized.append((nbytes, partial(_json, fold, chunk, options)))
    for document in within_limit(sized):
        # `verify` reports what is wrong with it.
        with suppress(FormatError):
            yield document()


def _header(fold: Fold, chunk: FoldChunk) -> Document:
    nested = cast(TensorHeader, chunk.nested)
    stored = fold.data[chunk.payload_start + SAFETENSORS_LENGTH_SIZE : nested.end]
    return Document(f"{chunk.name}/header", bytes(stored), stored, lists=True)


def _json(fold: Fold, chunk: FoldChunk, options: ReadOptions) -> Document:
    raw = bytes(payloads.payload(fold.data, chunk, options))
    stored = chunk.payload(fold.data)
    return Document(chunk.name, raw, stored, is_fresh=chunk.encrypted)


def named_parts(fold: Fold, options: ReadOptions) -> Iterator[NamedPart]:
    """Yield the chunks and their content, mended if parity can do it."""
    for chunk in fold.chunks:
        yield NamedPart(
            chunk.name,
            chunk.payload_start,
            chunk.end - chunk.payload_start,
            partial(_content, fold.data, chunk, options),
        )


def _content(data: ByteView, chunk: FoldChunk, options: ReadOptions) -> Iterator[Buffer]:
    yield from pieces(payloads.payload(data, chunk, options))


def _part(chunk: FoldChunk) -> PartNote:
    words = [chunk.ctype_text]
    if chunk.flags == ZSTD:
        words.append(f"zstd, {chunk.uncomp_len} bytes decoded")
    if chunk.encrypted:
        words.append("encrypted")
    return PartNote(chunk.payload_start, ", ".join(words), chunk.flags == ZSTD, chunk.encrypted)


def _chunk(chunk: FoldChunk) -> dict[str, object]:
    stored = payloads.parse_hash(chunk.entry.get("sha256"))
    values = _sizes(chunk) | {
        "ecc_algo": chunk.ecc_algo,
        "ecc_len": chunk.ecc_len,
        "encrypted": chunk.encrypted,
        "sha256": None if stored is None else str(stored),
    }
    further = {key: value for key, value in chunk.entry.items() if not _is_shown(chunk, key)}
    return {**values, FURTHER: further} if further else values


def _is_shown(chunk: FoldChunk, key: str) -> bool:
    """Whether a key in a chunk's entry is shown under another name, or follows from the chunk."""
    if key == ENCRYPTED:
        return isinstance(chunk.entry[key], bool)
    return key in OF_THE_PLACE and (key != NONCE_KEY or chunk.encrypted)


FURTHER, ENCRYPTED = "further", "encrypted"
NAME = "chunk"
"""The name of nameless chunks, followed by their number."""
# Only printable types are chunk headers ("Files that were not finalized").
FIRST_PRINTED, LAST_PRINTED = 0x20, 0x7E


def is_unfinalized(data: ByteView) -> bool:
    """Whether a file with the format's magic has no index yet."""
    return len(data) >= HEADER.size and unpack_at(HEADER, data, 0)[2:] == (0, 0)


def walk(data: ByteView) -> list[tuple[FoldChunk, bool]]:
    """Return the complete chunks after a file's header, and whether each matches its crc32c.

    They end at the first bytes that are not a chunk. A chunk that its writer did not complete is
    not included. Raises FormatError if not even the file header exists.
    """
    pos = Cursor(data).skip(HEADER.size, "file header") + HEADER.size
    chunks: list[tuple[FoldChunk, bool]] = []
    while pos + CHUNK_HEADER.size <= len(data) and len(chunks) < MAX_TENSORS:
        ctype, flags, uncomp_len, comp_len, crc, ecc_len = unpack_at(CHUNK_HEADER, data, pos)
        lengths = (comp_len, uncomp_len, crc, ecc_len)
        chunk = FoldChunk(f"{NAME}{len(chunks)}", ctype, flags, pos, *lengths, False, {}, None)
        # Nothing marks where chunks start: only plausible headers count.
        is_text = all(FIRST_PRINTED <= byte <= LAST_PRINTED for byte in ctype)
        if not is_text or flags not in (UNCOMPRESSED, ZSTD) or chunk.end > len(data):
            break
        computed = reduce(lambda crc, piece: crc32c(piece, crc), pieces(chunk.payload(data)), 0)
        chunks.append((chunk, computed == crc))
        pos = chunk.end
    return chunks


def describe_unfinalized(data: ByteView, options: ReadOptions) -> Description:
    """Describe what is left of a file that was never finalized; raises FormatError as `walk` does.

    The metadata lists the chunks, and where the bytes start that are no chunks. Chunks that may
    hold a file with tensors, and match their crc32c, are nested.
    """
    chunks = walk(data)
    end = chunks[-1][0].end if chunks else HEADER.size
    nested = tuple(
        Nested(
            chunk.name,
            partial(payloads.payload, data, chunk, options),
            chunk.payload_start if chunk.flags == UNCOMPRESSED else None,
            chunk.comp_len,
        )
        for chunk, crc_holds in chunks
        if crc_holds and chunk.ctype in FILE_CTYPES
    )
    metadata: dict[str, object] = {
        "finalized": False,
        "chunks": [
            _sizes(chunk)
            | {"ecc_len": chunk.ecc_len, "crc32c": "holds" if crc_holds else "differs"}
            for chunk, crc_holds in chunks
        ],
        "rest": {"offset": end, "size": len(data) - end},
    }
    return Description("fold", (), metadata, nested)


def _sizes(chunk: FoldChunk) -> dict[str, object]:
    """Return what a chunk's own header says of it."""
    return {
        "name": chunk.name,
        "ctype": chunk.ctype_text,
        "flags": chunk.flags,
        "offset": chunk.offset,
        "comp_len": chunk.comp_len,
        "uncomp_len": chunk.uncomp_len,
    }
