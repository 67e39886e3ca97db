"""The file that a verified container text stands for, and the arrays of a text.

These read texts that `verify` accepted: they decode again without hashing,
which costs a fraction of the check and keeps unverified bytes from leaving.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from wtxtgit.errors import TextError
from wtxtgit.io.view import ByteView
from wtxtgit.io.workers import Pool
from wtxtgit.model import LAYOUT_ARRAY, Layout
from wtxtgit.text.armor import U1
from wtxtgit.text.blocking import BLOCK_BYTES
from wtxtgit.text.blocks import Block, blocks_of, decode, jobs_at_least, jobs_of
from wtxtgit.text.index import TextIndex
from wtxtgit.text.layout import check_layout, parse_layout, pieces


def assumed_layout(text: ByteView, index: TextIndex) -> Layout | None:
    """The layout that a container's text has if it is whole; nothing of it is verified.

    It fits the claims of the text's arrays, which are all there. None for any other text.
    """
    array = index.array(LAYOUT_ARRAY)
    if index.stop is not None or array is None:
        return None
    raw = bytearray()
    for block in blocks_of(array):
        part = decode(text, block)
        if part is None:
            return None
        raw += part
    try:
        layout = parse_layout(bytes(raw))
        check_layout(layout, index.meta, index.cap, [other.claim for other in index.arrays])
    except TextError:
        return None
    return layout if layout.is_container else None


def file_pieces(
    text: ByteView, index: TextIndex, layout: Layout, *, threads: int | None = None
) -> Iterator[memoryview]:
    """The bytes of the file in order; `index` and `layout` are of a verified text."""
    by_name = {array.name: array for array in index.arrays}

    def runs() -> Iterator[bytes | list[Block]]:
        literals = bytearray()
        for piece in pieces(layout):
            if isinstance(piece, bytes):
                literals += piece
                if len(literals) < BLOCK_BYTES:
                    continue
            if literals:
                yield bytes(literals)
                literals.clear()
            if isinstance(piece, str):
                yield from jobs_of(blocks_of(by_name[piece]))
        if literals:
            yield bytes(literals)

    tasks = (partial(_render, text, run) for run in runs())
    with Pool(threads, len(text), jobs_at_least(index.arrays)) as pool:
        for rendered in pool.ordered(tasks):
            yield from rendered


def array_bytes(text: ByteView, index: TextIndex, *, threads: int | None = None) -> dict[str, U1]:
    """The raw bytes of all arrays by name; `index` is of a verified text."""
    found = {array.name: np.empty(array.nbytes, dtype=np.uint8) for array in index.arrays}

    def fill(job: list[Block]) -> None:
        for block in job:
            place = found[block.array.name]
            place[block.offset : block.offset + block.nbytes] = _decoded(text, block)

    jobs = jobs_of(block for array in index.arrays for block in blocks_of(array))
    with Pool(threads, len(text), jobs_at_least(index.arrays)) as pool:
        for _ in pool.ordered(partial(fill, job) for job in jobs):
            pass
    return found


def first_bytes(text: ByteView, index: TextIndex, layout: Layout, count: int) -> bytes:
    """The first `count` bytes of the file, decoding no more than they need."""
    by_name = {array.name: array for array in index.arrays}
    head = b""
    for piece in pieces(layout):
        if isinstance(piece, bytes):
            head += piece
        else:
            for block in blocks_of(by_name[piece], 0, 1):
                head += bytes(_decoded(text, block)[:count])
        if len(head) >= count:
            break
    return head[:count]


def _render(text: ByteView, run: bytes | list[Block]) -> list[memoryview]:
    if isinstance(run, bytes):
        return [memoryview(run)]
    return [_decoded(text, block) for block in run]


def _decoded(text: ByteView, block: Block) -> memoryview:
    raw = decode(text, block)
    if raw is None:
        raise TextError("structure", "the text changed while it was read", array=block.array.name)
    return raw
