"""A damaged delta with its chunks mended, line by line, in their places.

What a delta's other lines say is proved by the base and the target alone
(`docs/spec/delta.md`): they stay as they stand, and the delta counts as mended only
where `check` finds nothing wrong with it.
"""

from __future__ import annotations

import numpy as np

from wtxtgit.io.view import mapped
from wtxtgit.text import armor, grammar
from wtxtgit.text.delta import index as delta
from wtxtgit.text.recovery.chunks import OtherCopies, settle
from wtxtgit.text.recovery.pieces import ArrayPieces, Slot
from wtxtgit.text.recovery.reading import FoundText, read


def mended(
    text: bytes, heal: OtherCopies | None = None
) -> tuple[bytes | None, list[ArrayPieces], list[str]]:
    """The delta, None where not all of it is there; its blocks and their names."""
    found = read(memoryview(text))
    blocks = [_block(found, number) for number in range(len(found.arrays))]
    settle(blocks, memoryview(text), heal)
    names = [_name_of(block) for block in blocks]
    if any(slot.raw is None for block in blocks for slot in block.slots):
        return None, blocks, names
    whole = bytearray()
    at = 0
    for block in blocks:
        for slot in block.slots:
            start, end = slot.found[0].body
            whole += text[at:start] + _lines(slot)
            at = end
    whole += text[at:]
    done = bytes(whole)
    return (done if delta.check(memoryview(done)).ok else None), blocks, names


def _block(found: FoundText, number: int) -> ArrayPieces:
    """A block's chunks, each as it is: a delta has some of an array's alone."""
    array = found.arrays[number]
    slots = [Slot(chunk.ix, chunk.size or 0, (chunk,)) for chunk in array.chunks]
    return ArrayPieces(array, None, None, None, 0, slots)


def _name_of(block: ArrayPieces) -> str:
    line = block.found.line or b""
    return line.removeprefix(b"arr name=").partition(b" ")[0].decode("latin-1")


def _lines(slot: Slot) -> bytes:
    lines = np.zeros(armor.line_count(slot.size) * grammar.LINE_TEXT, np.uint8)
    raw = memoryview(b"") if slot.raw is None else mapped(slot.raw)
    armor.encode(raw, 1, slot.size, lines, 0, 0)
    return lines.tobytes()
