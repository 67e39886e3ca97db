"""A side written down: its text, or the file that it stands for."""

from __future__ import annotations

from collections.abc import Iterator

from wtxtgit.io.view import Buffer
from wtxtgit.io.workers import Pool
from wtxtgit.model import Layout
from wtxtgit.text import grammar
from wtxtgit.text.blocking import BLOCK_BYTES
from wtxtgit.text.delta.sides import Side
from wtxtgit.text.layout import pieces


def text_pieces(side: Side, *, threads: int | None = None) -> Iterator[Buffer]:
    """The text in order, in pieces."""
    yield grammar.FIRST_LINE + side.header
    with _pool(side, threads) as pool:
        for array in side.arrays:
            yield array.lead
            yield from pool.ordered(array.text(0, array.chunks))
            yield grammar.END_ARRAY
    yield side.footer + grammar.LAST_LINE


def file_pieces(side: Side, layout: Layout, *, threads: int | None = None) -> Iterator[Buffer]:
    """The file in order, in pieces; `layout` is the side's own."""
    arrays = {array.name: array for array in side.arrays}
    literals = bytearray()
    with _pool(side, threads) as pool:
        for piece in pieces(layout):
            if isinstance(piece, bytes):
                literals += piece
                if len(literals) < BLOCK_BYTES:
                    continue
            if literals:
                yield bytes(literals)
                literals.clear()
            if isinstance(piece, str):
                yield from pool.ordered(arrays[piece].raw(0, arrays[piece].chunks))
    if literals:
        yield bytes(literals)


def _pool(side: Side, threads: int | None) -> Pool:
    return Pool(threads, sum(array.claim.nbytes for array in side.arrays), len(side.arrays))
