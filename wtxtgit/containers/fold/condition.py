"""Which chunks of a FOLD file are damaged, and what it costs to know.

Spec: `docs/spec/fold.md`, "Payloads".
"""

from __future__ import annotations

from typing import Literal

from wtxtgit.containers.fold import payloads
from wtxtgit.containers.fold.payloads import MAX_MENDED_BLOCKS, MAX_PASSES
from wtxtgit.containers.fold.read import Chunk, Fold
from wtxtgit.errors import FormatError
from wtxtgit.model.reading import ReadOptions

Condition = Literal["whole", "mended", "damaged"]
"""Whether a payload is as its hash says, is so once its parity has mended it, or is not."""


class Conditions:
    """Hashes the payloads of one file, within bounds for all of them together.

    Parity counts as well: it can be many times its payload, and overlap too.
    """

    def __init__(self, fold: Fold, options: ReadOptions) -> None:
        self._data = fold.data
        self._options = options
        self._left = MAX_PASSES * len(fold.data)
        self._mending_left = MAX_MENDED_BLOCKS

    def of(self, chunk: Chunk) -> Condition:
        """The condition of a chunk; raises FormatError (limit) where chunks overlap too much."""
        self._left -= chunk.end - chunk.offset
        if self._left < 0:
            raise FormatError(
                "chunks overlap too much", kind="limit", offset=chunk.offset, field="offset"
            )
        held = self._data[chunk.payload_start : chunk.payload_end]
        if payloads.verdict(held, chunk, self._options).intact:
            return "whole"
        if not payloads.usable_parity(chunk):
            return "damaged"
        mending = payloads.mend(self._data, chunk, self._options, self._mending_left)
        self._mending_left = max(self._mending_left - mending.damaged, 0)
        return "mended" if mending.verdict.intact else "damaged"
