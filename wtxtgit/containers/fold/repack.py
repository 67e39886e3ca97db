"""Rewriting a FOLD file with another compression.

Spec: `docs/spec/fold.md`, "Repacking".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.fold import integrity, payloads
from wtxtgit.containers.fold.agreement import MERKLE_ROOT, TRUST_BLOCK
from wtxtgit.containers.fold.chunks import ChunkSource, Compression, Form, file_pieces, plan_all
from wtxtgit.containers.fold.index import (
    chunk_hashes,
    format_index,
    manifest_hash,
    merkle_root,
)
from wtxtgit.containers.fold.integrity import CHUNK_HASHES, MANIFEST_HASH, SHA256_PREFIX
from wtxtgit.containers.fold.parity import parity_bytes
from wtxtgit.containers.fold.read import Chunk, Fold
from wtxtgit.errors import FormatError
from wtxtgit.model import Buffer
from wtxtgit.model.reading import ReadOptions

COMPRESSIONS = ("none", "zstd")
"""What chunks can be stored with."""


def repack(
    container: Fold, compression: Compression, options: ReadOptions, *, level: int = 3
) -> Iterator[Buffer]:
    """The file with the same chunks, stored with another compression, in pieces.

    Names, types, order, content and parity algorithms stay, and so does what
    else the index says; lengths, offsets and hashes are made again, each hash
    in the form that it had. Gaps between chunks are left out. Raises
    FormatError, before the first piece: for chunks that do not hold, for
    encrypted ones, for HMACs without `options.integrity_key`.
    """
    data = container.data
    passes = payloads.Passes(data)
    planned = plan_all(
        (_source(data, chunk, options, passes), _form(chunk, compression, level, options))
        for chunk in container.chunks
    )
    entries = [
        {**chunk.entry, **made.entry} for chunk, made in zip(container.chunks, planned, strict=True)
    ]
    index = {**container.index, "chunks": entries}
    held = container.index.get("metadata")
    if isinstance(held, dict):
        metadata = dict(held)
        if CHUNK_HASHES in metadata:
            metadata[CHUNK_HASHES] = chunk_hashes(planned)
        if MANIFEST_HASH in metadata:
            stored = integrity.parse_hash(metadata[MANIFEST_HASH])
            prefix = SHA256_PREFIX if stored is None else stored.prefix
            _need_key(prefix, options)
            metadata[MANIFEST_HASH] = manifest_hash(metadata, prefix, options.integrity_key)
        index["metadata"] = metadata
    if index.get(MERKLE_ROOT) is not None and planned:
        index[MERKLE_ROOT] = merkle_root(planned)
    return file_pieces(planned, format_index(index))


def broken_by_repack(container: Fold) -> tuple[str, ...]:
    """Fields of the index that are kept, and sign what repacking changes."""
    return (TRUST_BLOCK,) if container.index.get(TRUST_BLOCK) is not None else ()


def _source(
    data: memoryview, chunk: Chunk, options: ReadOptions, passes: payloads.Passes
) -> ChunkSource:
    name = quoted(chunk.name)
    if chunk.encrypted:
        raise FormatError(
            f"chunk {name} is encrypted: such files are not repacked",
            offset=chunk.offset,
            field="encrypted",
        )
    payloads.check_limits(chunk, options)
    if not passes.take(chunk):
        raise FormatError(
            "chunks overlap too much", kind="limit", offset=chunk.offset, field="offset"
        )
    held = payloads.stored(data, chunk, options)
    verdict = payloads.verdict(held, chunk, options)
    if not verdict.intact:
        raise FormatError(
            f"chunk {name} is damaged", offset=chunk.payload_start, field="comp_payload"
        )
    blocks = partial(payloads.content, held, chunk, options)
    return ChunkSource(chunk.name, chunk.ctype, chunk.uncomp_len, blocks)


def _form(chunk: Chunk, compression: Compression, level: int, options: ReadOptions) -> Form:
    stored = integrity.parse_hash(chunk.entry.get("sha256"))
    ecc = parity_bytes(chunk.ecc_algo)
    if stored is None or ecc is None:
        raise FormatError(
            f"chunk {quoted(chunk.name)} has no sha256 or ecc_algo that is known",
            offset=chunk.offset,
            field="ecc_algo" if ecc is None else "sha256",
        )
    _need_key(stored.prefix, options)
    return Form(compression, level, ecc, stored.prefix, options.integrity_key)


def _need_key(prefix: str, options: ReadOptions) -> None:
    if prefix == integrity.HMAC_PREFIX and options.integrity_key is None:
        raise FormatError("hashes are HMACs, which need their key", field="sha256")
