"""Rewriting a FOLD file with another compression.

Spec: `docs/spec/fold.md`, "Repacking".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.fold import payloads
from wtxtgit.containers.fold.agreement import TRUST_BLOCK
from wtxtgit.containers.fold.chunks import (
    ChunkSource,
    Compression,
    file_pieces,
    form_of,
    plan_all,
)
from wtxtgit.containers.fold.index import format_index, sealed
from wtxtgit.containers.fold.read import Chunk, Fold
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView
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
        (_source(data, chunk, options, passes), form_of(chunk, compression, level, options))
        for chunk in container.chunks
    )
    made = [new.like(chunk) for chunk, new in zip(container.chunks, planned, strict=True)]
    return file_pieces(made, format_index(sealed(container.index, made, options.integrity_key)))


def broken_by_repack(container: Fold) -> tuple[str, ...]:
    """Fields of the index that are kept, and sign what repacking changes."""
    return (TRUST_BLOCK,) if container.index.get(TRUST_BLOCK) is not None else ()


def _source(
    data: ByteView, chunk: Chunk, options: ReadOptions, passes: payloads.Passes
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
