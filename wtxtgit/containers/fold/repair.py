"""Mending a FOLD file from the parity that it carries.

Spec: `docs/spec/fold.md`, "Mending".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from wtxtgit.containers import splicing
from wtxtgit.containers.fold import payloads, reed_solomon
from wtxtgit.containers.fold.read import Chunk, Fold
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView
from wtxtgit.model.reading import ReadOptions

Patch = tuple[int, bytes]
"""Where in the file bytes are replaced, and the bytes."""


def has_parity(container: Fold) -> bool:
    """Whether a chunk has parity, from which its tensors are mended as they are read."""
    return any(chunk.ecc_len for chunk in container.chunks)


def repair(container: Fold, options: ReadOptions) -> tuple[Iterator[Buffer], list[str], list[str]]:
    """The whole file in pieces, mended; names of chunks mended, and of those that can't be.

    A chunk is mended where its payload's hash holds after it; then its parity
    is made again, as it is for a payload that is whole and has wrong parity.
    Headers and index stay as they are: the hashes that they hold are those of
    the whole payloads. A chunk over `options.max_chunk`, or which overlaps one
    before it, is not mended.
    """
    patches: list[Patch] = []
    mended: list[str] = []
    lost: list[str] = []
    reached = 0
    passes = payloads.Passes(container.data)
    for chunk in sorted(container.chunks, key=lambda chunk: (chunk.offset, chunk.end)):
        if not passes.take(chunk):
            lost.append(chunk.name)
            continue
        if chunk.offset < reached:
            if not _is_whole(container.data, chunk, options):
                lost.append(chunk.name)
            continue
        reached = chunk.end
        found = _patches(container.data, chunk, options)
        if found is None:
            lost.append(chunk.name)
        elif found:
            mended.append(chunk.name)
            patches += found
    edits = ((at, at + len(new), partial(iter, (new,))) for at, new in patches)
    return splicing.spliced(container.data, edits), mended, lost


def _is_whole(data: ByteView, chunk: Chunk, options: ReadOptions) -> bool:
    held = data[chunk.payload_start : chunk.payload_end]
    return payloads.verdict(held, chunk, options).intact


def _patches(data: ByteView, chunk: Chunk, options: ReadOptions) -> list[Patch] | None:
    """What makes a chunk whole, None where nothing does."""
    n = payloads.usable_parity(chunk)
    try:
        payloads.check_limits(chunk, options)
    except FormatError:
        return [] if _is_whole(data, chunk, options) else None
    payload = data[chunk.payload_start : chunk.payload_end]
    patches: list[Patch] = []
    if not _is_whole(data, chunk, options):
        if not n:
            return None
        mending = payloads.mend(data, chunk, options)
        if not mending.verdict.intact:
            return None
        payload = mending.payload
        patches += [(chunk.payload_start + at, block) for at, block in mending.patches]
    if n:
        at = chunk.payload_end
        for parity in reed_solomon.encode(payload, n):
            if parity != data[at : at + len(parity)]:
                patches.append((at, parity))
            at += len(parity)
    return patches
