"""Mending the chunks of a damaged delta, in their places.

What a delta's other lines say can only be proved with base and target (`docs/spec/delta.md`): these
lines stay unchanged, and the delta counts as mended only if `check` finds nothing wrong with it.
"""

from __future__ import annotations

import numpy as np

from wtxtgit.io.view import mapped
from wtxtgit.text import block_armor, grammar
from wtxtgit.text.delta import index as delta
from wtxtgit.text.recovery.chunks import OtherCopies, settle
from wtxtgit.text.recovery.pieces import ArrayPieces, Slot, Slots, SlotTable
from wtxtgit.text.recovery.reading import read


def mended(
    text: bytes, heal: OtherCopies | None = None
) -> tuple[bytes | None, list[ArrayPieces], list[str]]:
    """Return the mended delta (None if not all of it exists), its blocks, and their names."""
    found = read(memoryview(text))
    table = SlotTable(memoryview(text))
    # A block has only some of an array's chunks, each by itself.
    blocks = [ArrayPieces(array, None, None, Slots(table, array)) for array in found.arrays]
    settle(blocks, table, heal)
    names = [_name_of(block) for block in blocks]
    if not all(block.slots.is_whole for block in blocks):
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


def _name_of(block: ArrayPieces) -> str:
    line = block.found.line or b""
    return line.removeprefix(b"arr name=").partition(b" ")[0].decode("latin-1")


def _lines(slot: Slot) -> bytes:
    lines = np.zeros(grammar.line_count(slot.size) * grammar.LINE_TEXT, np.uint8)
    block_armor.encode(mapped(slot.bytes()), 1, slot.size, lines, 0, 0)
    return lines.tobytes()
