"""Mending a chunk whose lines are intact but reordered, or of which some are missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from wtxtgit.model.checksum import crc32c
from wtxtgit.text.grammar import LINE_BASE64, LINE_RAW, line_count
from wtxtgit.text.recovery import syndromes
from wtxtgit.text.recovery.chunk import LARGEST, MOST_PROOFS, ChunkClaim, lines_of
from wtxtgit.text.recovery.line_state import HEX, LineState, packed
from wtxtgit.text.recovery.syndromes import U4


def rearrange(body: bytes, claim: ChunkClaim, spare: Sequence[bytes] = ()) -> bytes | None:
    """Return the bytes of a chunk whose lines are intact, but reordered or not all there.

    `spare` are lines from other places that may belong here. Takes half a second.
    """
    lines = lines_of(body, claim.size)
    count = line_count(claim.size)
    if claim.size > LARGEST or not -1 <= len(lines) - count <= count:
        return None
    return _Rearranged(lines, claim, spare).mend()


@dataclass(frozen=True, slots=True)
class _Rearranged:
    """A chunk whose lines are intact, but reordered or not all there."""

    lines: Sequence[bytes]
    claim: ChunkClaim
    spare: Sequence[bytes]

    def mend(self) -> bytes | None:
        if self.claim.crc32c is None or any(d not in HEX for d in self.claim.crc32c.encode()):
            return None
        count = line_count(self.claim.size)
        # The last line stays in place, unless it is as long as the others.
        length = self.claim.size - (count - 1) * LINE_RAW
        ends = length < LINE_RAW
        states = [
            LineState.of(line, length if at == len(self.lines) - 1 else LINE_RAW)
            for at, line in enumerate(self.lines)
        ]
        if not states or any(state.is_off for state in states):
            return None
        rows = np.array([state.sextets for state in states[: -1 if ends else None]], np.uint8)
        own = packed(rows.reshape(-1, LINE_BASE64))
        tail = b""
        if ends:
            last = np.append(states[-1].sextets, [0] * LINE_BASE64)[None, :LINE_BASE64]
            tail = packed(last)[:length]
        search = _LineSearch(_cut(own), self._spare_lines(), tail, self.claim)
        for lines in islice(search.orders(), MOST_PROOFS):
            raw = b"".join(lines) + tail
            if self.claim.proves(raw):
                return raw
        return None

    def _spare_lines(self) -> list[bytes]:
        states = [LineState.of(line, LINE_RAW) for line in dict.fromkeys(self.spare)]
        rows = [state.sextets for state in states if not state.is_off][:_MOST_SPARE]
        return _cut(packed(np.array(rows, np.uint8).reshape(-1, LINE_BASE64)))


# How many lines from other places are tried at every position of a chunk.
_MOST_SPARE = 8192


class _LineSearch:
    """The search for the order in which intact lines give a chunk's CRC-32C.

    `own` are the raw bytes of its lines except a shorter last one, whose bytes are `tail`; `spare`
    are those of other lines.
    """

    def __init__(
        self, own: list[bytes], spare: list[bytes], tail: bytes, claim: ChunkClaim
    ) -> None:
        self._own, self._spare = own, spare
        self._count = claim.size // LINE_RAW
        self._tail = len(tail)
        self._at = self._syndromes(own)
        ends = syndromes.of_bytes(np.frombuffer(tail, np.uint8)[None])
        # A checksum is the XOR of that of zeros and a syndrome.
        target = int(claim.crc32c or "0", 16) ^ crc32c(bytes(claim.size))
        self._target = np.uint32(target) ^ ends[0]

    def orders(self) -> Iterator[list[bytes]]:
        """Yield lines in an order that may be right."""
        more = len(self._own) - self._count
        if more == 0:
            yield from self._exchanged()
        elif more > 0:
            yield from self._without(more)
        elif more == -1:
            yield from self._with_one_more()

    def _syndromes(self, lines: list[bytes]) -> U4:
        """Return the syndromes of lines at each position, of shape (lines, positions)."""
        rows = np.frombuffer(b"".join(lines), np.uint8).reshape(-1, LINE_RAW)
        column = syndromes.followed(syndromes.of_bytes(rows), self._tail)
        columns = np.empty((self._count, len(lines)), np.uint32)
        for place in range(self._count - 1, -1, -1):
            columns[place] = column
            column = syndromes.followed(column, LINE_RAW)
        return columns.T

    def _exchanged(self) -> Iterator[list[bytes]]:
        """Yield orders with two lines exchanged, one moved, or one replaced by a spare one."""
        own, at = self._own, self._at
        places = np.arange(self._count)
        now = at[places, places]
        off = self._target ^ np.bitwise_xor.reduce(now)
        for i, j in _where(np.triu(now[:, None] ^ now[None] ^ at ^ at.T == off, 1)):
            lines = own.copy()
            lines[i], lines[j] = own[j], own[i]
            yield lines
        earlier = _sums(now[1:] ^ at[places[1:], places[:-1]])
        later = _sums(now[:-1] ^ at[places[:-1], places[1:]])
        moved = at ^ now[:, None]
        down = moved ^ earlier[None] ^ earlier[:, None] == off
        up = moved ^ later[None] ^ later[:, None] == off
        for i, j in _where(np.triu(down, 1) | np.tril(up, -1)):
            lines = own[:i] + own[i + 1 :]
            lines.insert(j, own[i])
            yield lines
        for k, j in _where(self._syndromes(self._spare) ^ now == off):
            yield [*own[:j], self._spare[k], *own[j + 1 :]]

    def _without(self, more: int) -> Iterator[list[bytes]]:
        """Yield all but `more` consecutive lines."""
        own, at = self._own, self._at
        places = np.arange(self._count)
        before = _sums(at[places, places])
        after = _sums(at[places + more, places])
        for (k,) in _where(before ^ after ^ after[-1] == self._target):
            yield own[:k] + own[k + more :]

    def _with_one_more(self) -> Iterator[list[bytes]]:
        own, at = self._own, self._at
        places = np.arange(self._count - 1)
        before = _sums(at[places, places])
        after = _sums(at[places, places + 1])
        sums = self._syndromes(self._spare) ^ before ^ after ^ after[-1]
        for k, j in _where(sums == self._target):
            yield [*own[:j], self._spare[k], *own[j:]]


def _where(which: NDArray[np.bool_]) -> Iterator[list[int]]:
    yield from np.argwhere(which).tolist()


def _sums(values: U4) -> U4:
    """Return the XOR of the first 0, 1, ... values."""
    return np.concatenate((np.zeros(1, np.uint32), np.bitwise_xor.accumulate(values)))


def _cut(raw: bytes) -> list[bytes]:
    return [raw[at : at + LINE_RAW] for at in range(0, len(raw), LINE_RAW)]
