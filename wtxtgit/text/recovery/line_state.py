"""A line of a chunk as it stands: what is wrong with it, and what it may have been.

A base64 character is a sextet, and the parity of a line is the XOR of the low bits of its
characters. So a wrong parity shows by what the low bits of a wrong character are off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wtxtgit.text.grammar import LINE_BASE64, LINE_TEXT, characters
from wtxtgit.text.recovery.syndromes import U1

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
HEX = b"0123456789abcdef"
_UNKNOWN = 255
_SEXTETS = np.full(256, _UNKNOWN, dtype=np.uint8)
_SEXTETS[list(_ALPHABET)] = range(64)
_NIBBLES = np.array([character & 0xF for character in _ALPHABET], dtype=np.uint8)
_FILL_NIBBLE = ord("=") & 0xF


@dataclass(frozen=True, slots=True, eq=False)
class LineState:
    """A line as it stands: its sextets, and what is wrong.

    `unknown` are the columns without a base64 character. `mismatch` is the XOR by which the low
    bits of its parity are off, None if the parity can't be read. `shifted` are the lines that it
    may have been if a character is missing or inserted: an array of shape (count, sextets).
    """

    sextets: U1
    unknown: tuple[int, ...] = ()
    mismatch: int | None = 0
    shifted: U1 | None = None

    @classmethod
    def of(cls, line: bytes, length: int) -> LineState:
        """Return the state of a line that should hold `length` raw bytes."""
        count = characters(length)
        if len(line) != LINE_TEXT - 1:
            return cls(np.zeros(count, np.uint8), shifted=_shifted(line, count))
        sextets = _SEXTETS[np.frombuffer(line[:count], np.uint8)]
        unknown = np.flatnonzero(sextets == _UNKNOWN)
        sextets[unknown] = 0
        parity = line[-1]
        mismatch = None
        if parity in HEX:
            mismatch = int(line[-1:], 16) ^ _parity(sextets[None])[0]
        return cls(sextets, tuple(unknown.tolist()), mismatch)

    @property
    def is_off(self) -> bool:
        return self.mismatch != 0 or bool(self.unknown) or self.shifted is not None

    def changes(self) -> tuple[NDArray[np.int64], U1]:
        """Return columns and values of each set of changes that would explain what is wrong."""
        if self.shifted is not None:
            columns = np.arange(len(self.sextets))
            return np.broadcast_to(columns, self.shifted.shape).copy(), self.shifted
        if len(self.unknown) > _MOST_UNKNOWN:
            return _no_options(1)
        if self.unknown:
            return self._allowed([self._every(column) for column in self.unknown])
        one = self._allowed([self._singles()])
        # The parity character itself may be wrong.
        none = np.zeros((1, 1), np.int64), np.zeros((1, 1), np.uint8)
        return np.vstack((none[0], one[0])), np.vstack((none[1], one[1]))

    def two_changes(self) -> list[tuple[NDArray[np.int64], U1]]:
        """Return two sets of changes of which one each may apply together; `fits` decides."""
        if self.shifted is not None or self.mismatch is None or len(self.unknown) > 1:
            return []
        return [*map(self._every, self.unknown), self._singles(), self._singles()][:2]

    def fits(self, columns: NDArray[np.int64], values: U1) -> NDArray[np.bool_]:
        """Return which sets of changes make the parity right."""
        right: NDArray[np.bool_] = self._nibbles(columns, values) == self.mismatch
        return right

    def _singles(self) -> tuple[NDArray[np.int64], U1]:
        """Return each change of one character."""
        columns = np.setdiff1d(np.arange(len(self.sextets)), self.unknown)
        values = np.tile(np.arange(1, 64, dtype=np.uint8), len(columns))
        return np.repeat(columns, 63)[:, None], values[:, None]

    def _every(self, column: int) -> tuple[NDArray[np.int64], U1]:
        """Return each character that may be in a column."""
        return np.full((64, 1), column), np.arange(64, dtype=np.uint8)[:, None]

    def _allowed(
        self, options: Sequence[tuple[NDArray[np.int64], U1]]
    ) -> tuple[NDArray[np.int64], U1]:
        """Return all combinations of one change from each option that make the parity right."""
        columns, values = np.zeros((1, 0), np.int64), np.zeros((1, 0), np.uint8)
        for more_columns, more_values in options:
            mine = np.repeat(np.arange(len(columns)), len(more_columns))
            theirs = np.tile(np.arange(len(more_columns)), len(columns))
            columns = np.hstack((columns[mine], more_columns[theirs]))
            values = np.hstack((values[mine], more_values[theirs]))
        if self.mismatch is None:
            return columns, values
        keep = self.fits(columns, values)
        return columns[keep], values[keep]

    def _nibbles(self, columns: NDArray[np.int64], values: U1) -> U1:
        """Return the effect of sets of changes on the low bits of the parity."""
        now = self.sextets[columns]
        nibbles: U1 = np.bitwise_xor.reduce(_NIBBLES[now] ^ _NIBBLES[now ^ values], axis=1)
        return nibbles


# With more non-base64 characters than this there are too many possibilities for one line.
_MOST_UNKNOWN = 3


def _no_options(width: int) -> tuple[NDArray[np.int64], U1]:
    return np.zeros((0, width), np.int64), np.zeros((0, width), np.uint8)


def _parity(rows: U1) -> U1:
    """Return the low bits of the parity of lines, given as sextets including the fill."""
    nibbles: U1 = np.bitwise_xor.reduce(_NIBBLES[rows], axis=1)
    nibbles ^= np.uint8(_FILL_NIBBLE * ((LINE_BASE64 - rows.shape[1]) & 1))
    return nibbles


def _shifted(line: bytes, count: int) -> U1:
    """Return the sextets of lines that this may have been before it lost or gained a character."""
    nothing = np.zeros((0, count), np.uint8)
    parity = line[-1:]
    body = _SEXTETS[np.frombuffer(line[:-1], np.uint8)]
    rows: list[U1] = []
    if len(line) == LINE_TEXT - 2 and len(body) >= count:
        # The space or the parity is missing, or a character at any position.
        rows.append(body[None, :count])
        for at in range(count):
            row = np.insert(body[: count - 1], at, 0)
            several = np.repeat(row[None], 64, axis=0)
            several[:, at] = range(64)
            rows.append(several)
    elif len(line) == LINE_TEXT:
        rows = [np.delete(body[: count + 1], at)[None] for at in range(count + 1)]
    if not rows:
        return nothing
    lines: U1 = np.unique(np.vstack(rows), axis=0)
    lines = lines[(lines != _UNKNOWN).all(axis=1)]
    if parity in HEX:
        lines = lines[_parity(lines) == int(parity, 16)]
    return lines


def packed(sextets: U1) -> bytes:
    """Return the bytes of lines of sextets, of shape (lines, 76)."""
    four = sextets.reshape(-1, 4).astype(np.uint32)
    words = four[:, 0] << 18 | four[:, 1] << 12 | four[:, 2] << 6 | four[:, 3]
    return np.stack((words >> 16, words >> 8, words), axis=1).astype(np.uint8).tobytes()


def silent() -> NDArray[np.bool_]:
    """Return whether parity does not show a sextet's change by a value, of shape (64, 64)."""
    values = np.arange(64)
    same: NDArray[np.bool_] = _NIBBLES[values[:, None] ^ values[None]] == _NIBBLES[:, None]
    same[:, 0] = False
    return same
