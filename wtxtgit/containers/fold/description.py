"""What a FOLD file says of itself: tensors, chunks that hold files, metadata.

Spec: `docs/spec/fold.md`, "What is told".
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from wtxtgit.containers import tensor_header
from wtxtgit.containers.cursor import fail, quoted
from wtxtgit.containers.decoded import DecodedParts
from wtxtgit.containers.fold import integrity, payloads
from wtxtgit.containers.fold.integrity import CHUNK_HASHES, MANIFEST_HASH
from wtxtgit.containers.fold.read import (
    MAX_NESTED_NAMES,
    TENSOR_CTYPE,
    UNCOMPRESSED,
    ZSTD,
    Chunk,
    Fold,
)
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.tags import texts
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView
from wtxtgit.model.reading import Description, Nested, Packed, PartNote, ReadOptions, Tensor

FILE_CTYPES = frozenset({b"STEN", b"NPZ0", b"TSAV", b"TORC"})
"""Types of chunks that hold a file with tensors; what is in it decides how it is read."""
TAGS = "tags"
"""Metadata that is itself a table of tags."""
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
"""Metadata about how this file was written and proven, which no other file can have."""


def describe(fold: Fold, options: ReadOptions) -> Description:
    """What a file says of itself; raises FormatError (limit) for too many names."""
    chunks = _Chunks(fold, options)
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
    )


class _Chunks:
    """Sorts chunks into tensors, files and the rest, and counts what that takes."""

    def __init__(self, fold: Fold, options: ReadOptions) -> None:
        self._data = fold.data
        self._options = options
        self._passes = payloads.Passes(fold.data)
        self._decoded = DecodedParts(options).of_file(len(fold.data))
        self._mended_tensors = 0
        self._mended_characters = 0
        self._opened: set[int] = set()
        self.tensors: list[Tensor] = []
        self.nested: list[Nested] = []
        self.untold: list[str] = []

    def add(self, chunk: Chunk) -> None:
        is_plain = chunk.flags == UNCOMPRESSED and not chunk.encrypted
        mended = self._mended(chunk) if is_plain and chunk.ctype in FILE_CTYPES else None
        if mended is None and chunk.nested is not None:
            self.tensors += [tensor.listed(self._data) for tensor in chunk.tensors()]
            if chunk.nested.metadata:
                self.untold.append(f"__metadata__ of chunk {quoted(chunk.name)}")
        elif mended is not None and chunk.ctype == TENSOR_CTYPE and self._listed(chunk, mended):
            pass
        elif (
            chunk.ctype in FILE_CTYPES
            and self._is_readable(chunk)
            and chunk.offset not in self._opened
        ):
            # An index can name one chunk any number of times: it is decoded once.
            self._opened.add(chunk.offset)
            offset = chunk.payload_start if is_plain and mended is None else None
            decode = partial(payloads.payload, self._data, chunk, self._options)
            opened = decode
            if offset is None:
                opened = partial(self._decoded.open, chunk, chunk.uncomp_len, decode)
            self.nested.append(Nested(chunk.name, opened, offset))
        else:
            self.untold.append(f"chunk {quoted(chunk.name)}")

    def _is_readable(self, chunk: Chunk) -> bool:
        has_key = self._options.decryption_key is not None
        return chunk.flags in (UNCOMPRESSED, ZSTD) and (has_key or not chunk.encrypted)

    def _mended(self, chunk: Chunk) -> ByteView | None:
        """The payload where it is damaged and its parity mends it."""
        if not payloads.usable_parity(chunk) or chunk.comp_len > self._options.max_chunk:
            return None
        if not self._passes.take(chunk):
            return None
        return payloads.mended(self._data, chunk, self._options)

    def _listed(self, chunk: Chunk, mended: ByteView) -> bool:
        """List the tensors of a mended safetensors file; False if it is none.

        Those that damage missed have an offset: their bytes stand in the file.
        """
        try:
            header = tensor_header.read(mended, 0, len(mended))
        except FormatError:
            return False
        self._mended_tensors += len(header.tensors)
        self._mended_characters += sum(
            len(chunk.name) + len(tensor.name) + 1 for tensor in header.tensors
        )
        if self._mended_tensors > MAX_TENSORS or self._mended_characters > MAX_NESTED_NAMES:
            fail(
                "chunks list too many tensors",
                offset=chunk.payload_start,
                field="tensors",
                kind="limit",
            )
        mend = partial(payloads.stored, self._data, chunk, self._options)
        whole = Packed(len(mended), partial(self._decoded.open, chunk, len(mended), mend))
        for stored in header.tensors:
            name = f"{chunk.name}/{stored.name}"
            start, size = chunk.payload_start + stored.start, stored.end - stored.start
            there = self._data[start : start + size]
            tensor = replace(stored, name=name, start=start, end=start + size).listed(self._data)
            if mended[stored.start : stored.end] != there:
                tensor = replace(tensor, held=whole.part(stored.start, size), offset=None)
            self.tensors.append(tensor)
        return True


def _tags(metadata: dict[str, object]) -> tuple[dict[str, str], list[str]]:
    """Texts by name, and which metadata is none."""
    listed = {
        key: value
        for key, value in metadata.items()
        if key not in OF_THE_WRITING and not (key == TAGS and isinstance(value, dict))
    }
    found = texts(listed)
    untold = [f"metadata {quoted(key)}" for key in listed if key not in found]
    table = metadata.get(TAGS)
    if isinstance(table, dict):
        inner = texts(table)
        for key in table:
            if key in found:
                untold.append(f"metadata {quoted(key)}")
            if key not in inner:
                untold.append(f"tag {quoted(key)}")
        found |= inner
    return found, untold


def _metadata(fold: Fold) -> dict[str, object]:
    index = fold.index
    return {
        "version": index.get("version"),
        "created_at_unix": index.get("created_at_unix"),
        "metadata": index.get("metadata"),
        "merkle_root": index.get("merkle_root"),
        "trust_block": index.get("trust_block"),
        "chunks": [_chunk(chunk) for chunk in fold.chunks],
    }


def _part(chunk: Chunk) -> PartNote:
    words = [chunk.ctype_text]
    if chunk.flags == ZSTD:
        words.append(f"zstd, {chunk.uncomp_len} bytes decoded")
    if chunk.encrypted:
        words.append("encrypted")
    return PartNote(chunk.payload_start, ", ".join(words), chunk.flags == ZSTD, chunk.encrypted)


def _chunk(chunk: Chunk) -> dict[str, object]:
    stored = integrity.parse_hash(chunk.entry.get("sha256"))
    return {
        "name": chunk.name,
        "ctype": chunk.ctype_text,
        "flags": chunk.flags,
        "offset": chunk.offset,
        "comp_len": chunk.comp_len,
        "uncomp_len": chunk.uncomp_len,
        "ecc_algo": chunk.ecc_algo,
        "ecc_len": chunk.ecc_len,
        "encrypted": chunk.encrypted,
        "sha256": None if stored is None else str(stored),
    }
