"""Rewriting a FOLD file: with another compression, or mended from its own parity.

Spec: `docs/spec/fold.md`, "Repacking" and "Repair".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import get_args

from wtxtgit.containers import replacing
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.fold import headers, payloads
from wtxtgit.containers.fold.payloads import Payloads
from wtxtgit.containers.fold.read import TRUST_BLOCK, Fold, FoldChunk
from wtxtgit.containers.fold.write import (
    ChunkSource,
    Compression,
    file_pieces,
    form_of,
    format_index,
    plan_all,
    sealed,
)
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView
from wtxtgit.model.tensor import ReadOptions

SIGNATURE = "signature"
"""A key of the metadata: it signs what the chunks hold, not how they are stored."""

COMPRESSIONS: tuple[str, ...] = get_args(Compression)
"""How chunks can be stored."""


def repack(container: Fold, compression: Compression, options: ReadOptions) -> Iterator[Buffer]:
    """Yield the file with the same chunks, stored with another compression.

    Names, types, order, content and parity algorithms stay, as does everything else in the index;
    lengths, offsets and hashes are computed again, each hash in its former form. Gaps between
    chunks are dropped. Raises FormatError, before the first piece: for damaged chunks, for
    encrypted ones, for HMACs without `options.integrity_key`.
    """
    inside = Payloads(container.data, options)
    planned = plan_all(
        (_source(inside, chunk), form_of(chunk, compression, options)) for chunk in container.chunks
    )
    laid = [new.like(chunk) for chunk, new in zip(container.chunks, planned, strict=True)]
    return file_pieces(laid, format_index(sealed(container.index, laid, options.integrity_key)))


def broken_by_repack(container: Fold) -> tuple[str, ...]:
    """Return fields of the index that are kept although they sign what repacking changes."""
    return (TRUST_BLOCK,) if container.index.get(TRUST_BLOCK) is not None else ()


def broken_by_reseal(container: Fold) -> tuple[str, ...]:
    """Return fields of the index that are kept although they sign what resealing changes."""
    metadata = container.index.get("metadata")
    is_signed = isinstance(metadata, dict) and metadata.get(SIGNATURE) is not None
    return (*broken_by_repack(container), *([SIGNATURE] if is_signed else []))


def _source(inside: Payloads, chunk: FoldChunk) -> ChunkSource:
    name, options = quoted(chunk.name), inside.options
    if chunk.encrypted:
        raise FormatError(
            f"chunk {name} is encrypted, and files with encrypted chunks can't be repacked",
            offset=chunk.offset,
            field="encrypted",
        )
    payloads.check_limits(chunk, options)
    inside.passes.take(chunk.comp_len, chunk.offset)
    stored = payloads.stored(inside.data, chunk, options)
    if not payloads.is_whole(stored, chunk, options):
        raise FormatError(
            f"chunk {name} is damaged", offset=chunk.payload_start, field="comp_payload"
        )
    blocks = partial(payloads.content, stored, chunk, options)
    return ChunkSource(chunk.name, chunk.ctype, chunk.uncomp_len, blocks)


Patch = tuple[int, bytes]
"""A position in the file, and the bytes that are put there."""


def has_parity(container: Fold) -> bool:
    """Whether a chunk has parity, with which its tensors are mended while they are read."""
    return any(chunk.ecc_len for chunk in container.chunks)


def repair(data: ByteView, options: ReadOptions) -> tuple[Iterator[Buffer], list[str], list[str]]:
    """Return the file with damage mended, names of mended chunks, and of those that can't be.

    A header that differs from the index is rewritten from the index if the payload shows that the
    index is right. A chunk is mended if its payload's hash then holds; its parity is then computed
    again, as it is for an intact payload with wrong parity. The index stays unchanged: its hashes
    are those of the intact payloads. A chunk over `options.max_chunk`, or one that overlaps an
    earlier one, is not mended. Raises FormatError if the index can't be read.
    """
    patches: list[Patch] = []
    mended: list[str] = []
    inside = Payloads(data, options)
    chunks, lost = headers.read_chunks(inside)
    reached = 0
    # In file order, so that patches never overlap.
    for chunk, header in sorted(chunks, key=lambda one: (one[0].offset, one[0].end)):
        needed: list[Patch] | None = None
        if inside.passes.spend(chunk.comp_len):
            if chunk.offset < reached:
                # Its bytes may belong to a chunk that was mended.
                is_whole = payloads.is_whole(chunk.payload(data), chunk, options)
                needed = [] if is_whole and header is None else None
            else:
                reached = chunk.end
                needed = _patches(inside, chunk)
        if needed is None:
            lost.append(chunk.name)
            continue
        if header is not None:
            needed = [(chunk.offset, header), *needed]
        if needed:
            mended.append(chunk.name)
            patches += needed
    edits = ((at, at + len(new), partial(iter, (new,))) for at, new in patches)
    return replacing.spliced(data, edits), mended, lost


def _patches(inside: Payloads, chunk: FoldChunk) -> list[Patch] | None:
    """Return what makes a chunk whole, None if nothing does."""
    data, n = inside.data, payloads.usable_parity(chunk)
    payload = chunk.payload(data)
    is_whole = payloads.is_whole(payload, chunk, inside.options)
    try:
        payloads.check_limits(chunk, inside.options)
    except FormatError:
        return [] if is_whole else None
    patches: list[Patch] = []
    if not is_whole:
        if not n:
            return None
        mended, _, verdict = payloads.mend(data, chunk, inside.options)
        if not verdict.intact:
            return None
        payload = mended.payload
        patches += [(chunk.payload_start + at, block) for at, block in mended.patches]
    if n:
        from wtxtgit.containers.fold import reed_solomon  # it needs numpy

        at = chunk.payload_end
        for parity in reed_solomon.encode(payload, n):
            if parity != data[at : at + len(parity)]:
                patches.append((at, parity))
            at += len(parity)
    return patches
