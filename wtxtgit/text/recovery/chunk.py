"""Mending one damaged chunk of a text from its own check characters and hashes.

What stands between a `ch` line and its `endch` is read as lines, however they
are broken or joined. Lines whose parity or spelling is off have candidates; what
one wrong character elsewhere would change is known, too. Sets of changes that
give the chunk's CRC-32C are looked up by their syndromes (`syndromes.py`), and
what is found has to have the chunk's SHA-256: nothing else is given.

A base64 character is a sextet: sextet q of a chunk holds its bits 6q to 6q + 5,
whatever the line, since a line holds 76 of them and 57 whole bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from wtxtgit.io.view import Buffer
from wtxtgit.model.checksum import crc32c
from wtxtgit.text.armor import characters, line_count
from wtxtgit.text.grammar import LINE_BASE64, LINE_RAW, LINE_TEXT
from wtxtgit.text.recovery import syndromes
from wtxtgit.text.recovery.syndromes import U1, U4

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_HEX = b"0123456789abcdef"
_UNKNOWN = 255
_SEXTETS = np.full(256, _UNKNOWN, dtype=np.uint8)
_SEXTETS[list(_ALPHABET)] = range(64)
_NIBBLES = np.array([character & 0xF for character in _ALPHABET], dtype=np.uint8)
_FILL_NIBBLE = ord("=") & 0xF
_WHITE = re.compile(rb"\s+")

NEAR = 2
"""A hash of which at most so many digits are off is that hash, with wrong characters in it."""
LARGEST = 256 * 1024
"""Bytes of a chunk up to which a wrong character is looked for in lines that look right."""
# Most sets of changes in a half of a search, and most of them whose SHA-256 is computed.
_MOST_SETS = 1 << 22
_MOST_PROOFS = 20_000
# Up to so many sets are proved one by one, for a CRC-32C may be wrong, too.
_FEW = 2_000
_MOST_FLAGGED = 24


@dataclass(frozen=True, slots=True)
class ChunkClaim:
    """What is known of a chunk: its `size` in bytes, and the hashes of its `ch` line.

    They are as they stand there, wrong characters and all; None where they can't be read.
    """

    size: int
    sha256: str | None
    crc32c: str | None

    def proves(self, raw: Buffer) -> bool:
        """Whether these are the bytes that the chunk's SHA-256 names."""
        return len(raw) == self.size and is_near(sha256(raw).hexdigest(), self.sha256)


def is_near(computed: str, claimed: str | None) -> bool:
    """Whether a claimed hash is the computed one but for a wrong digit or two."""
    if claimed is None or len(claimed) != len(computed):
        return False
    return sum(map(str.__ne__, computed, claimed)) <= NEAR


@dataclass(frozen=True, slots=True)
class Changes:
    """Sets of changes to sextets, one a row: which ones, and by which exclusive or.

    Shapes are (count, width); a change by 0 is none. `syndromes` has what each row does to
    the chunk's CRC-32C.
    """

    places: NDArray[np.int64]
    values: U1
    syndromes: U4

    def __len__(self) -> int:
        return len(self.syndromes)

    def with_all(self, other: Changes) -> Changes:
        """Each row together with each row of another."""
        mine = np.repeat(np.arange(len(self)), len(other))
        theirs = np.tile(np.arange(len(other)), len(self))
        return Changes(
            np.hstack((self.places[mine], other.places[theirs])),
            np.hstack((self.values[mine], other.values[theirs])),
            self.syndromes[mine] ^ other.syndromes[theirs],
        )


_NO_CHANGE = Changes(
    np.zeros((1, 0), dtype=np.int64), np.zeros((1, 0), dtype=np.uint8), np.zeros(1, np.uint32)
)


def mend(body: bytes, claim: ChunkClaim) -> bytes | None:
    """The bytes of a chunk whose lines are `body`, None where they can't be proved.

    Takes milliseconds: of each line one character may be wrong, of lines that look right one.
    """
    damaged = _damaged(body, claim)
    return None if damaged is None else damaged.mend(_DamagedChunk.likely)


def rearrange(body: bytes, claim: ChunkClaim, spare: Sequence[bytes] = ()) -> bytes | None:
    """The same of lines that are whole, and not where they were or not all there.

    `spare` are lines of other places that may belong here. Takes half a second.
    """
    lines = lines_of(body, claim.size)
    count = line_count(claim.size)
    if claim.size > LARGEST or not -1 <= len(lines) - count <= count:
        return None
    return _Rearranged(lines, claim, spare).mend()


def mend_more(body: bytes, claim: ChunkClaim) -> bytes | None:
    """The same where more characters are wrong, two on one line for one. Takes seconds."""
    damaged = _damaged(body, claim)
    return None if damaged is None else damaged.mend(_DamagedChunk.possible)


def _damaged(body: bytes, claim: ChunkClaim) -> _DamagedChunk | None:
    lines = lines_of(body, claim.size)
    return _DamagedChunk(lines, claim) if len(lines) == line_count(claim.size) else None


def lines_of(body: bytes, size: int) -> list[bytes]:
    """The lines of a chunk, without their LF, as they can best be told apart."""
    count = line_count(size)
    if len(body) == count * LINE_TEXT:
        # A wrong character in the place of an LF, or an LF in that of a character.
        return [body[at : at + LINE_TEXT - 1] for at in range(0, len(body), LINE_TEXT)]
    lines = [line for line in body.split(b"\n") if line]
    if any(len(line) != LINE_TEXT - 1 for line in lines):
        # Lines that were broken elsewhere keep the order of their characters.
        solid = _WHITE.sub(b"", body)
        if len(solid) == count * (LINE_BASE64 + 1):
            step = LINE_BASE64 + 1
            parts = (solid[at : at + step] for at in range(0, len(solid), step))
            return [part[:-1] + b" " + part[-1:] for part in parts]
        lines = _halved(lines)
    return lines


def _halved(lines: list[bytes]) -> list[bytes]:
    """Lines that lost the LF between them parted, and parts of one that got an LF joined."""
    whole = LINE_TEXT - 1
    parted: list[bytes] = []
    for line in lines:
        before = len(parted[-1]) if parted else whole
        if before < whole and before + len(line) == whole:
            parted[-1] += line
        elif before < whole and before + len(line) == whole - 1:
            # The LF stands in the place of a character.
            parted[-1] += b"\n" + line
        elif len(line) > whole and len(line) % LINE_TEXT == whole:
            parted += [line[at : at + whole] for at in range(0, len(line), LINE_TEXT)]
        elif len(line) > whole and len(line) % whole == 0:
            parted += [line[at : at + whole] for at in range(0, len(line), whole)]
        else:
            parted.append(line)
    return parted


Searches = Iterator[Iterable[Changes]]


class _DamagedChunk:
    """A chunk all of whose lines are there, with wrong characters in some."""

    def __init__(self, lines: Sequence[bytes], claim: ChunkClaim) -> None:
        self._claim = claim
        self._last = len(lines) - 1
        self._sextets = np.zeros((len(lines), LINE_BASE64), dtype=np.uint8)
        """What stands on each line; 0 where that is no base64 character."""
        self._flagged: dict[int, _LineState] = {}
        """The lines on which something is off."""
        for number, line in enumerate(lines):
            state = _LineState.of(line, self._length(number))
            self._sextets[number, : len(state.sextets)] = state.sextets
            if state.is_off:
                self._flagged[number] = state
        self._raw = _packed(self._sextets)[: claim.size]

    def mend(self, searches: Callable[[_DamagedChunk], Searches]) -> bytes | None:
        """The bytes that the claim proves, None where none are found."""
        if self._claim.proves(self._raw):
            return self._raw
        # A chunk without bytes has no character that may be wrong.
        if self._claim.size == 0 or len(self._flagged) > _MOST_FLAGGED:
            return None
        for sets in searches(self):
            if (raw := self._proved(sets)) is not None:
                return raw
        return None

    def likely(self) -> Searches:
        """One wrong character on each line that shows it, and on one that does not."""
        yield self._matching(self._narrow())
        if self._claim.size <= LARGEST:
            yield self._matching([*self._narrow(), self._silent_changes()])

    def possible(self) -> Searches:
        """More than that: two on one line, or on two lines that both look right."""
        if self._claim.size > LARGEST:
            return
        for number, state in self._flagged.items():
            others = [self._changes(other) for other in self._flagged if other != number]
            pairs = [self._placed(number, *one) for one in state.two_changes()]
            if pairs:
                yield self._fitting(number, state, self._matching([*pairs, *others]))
        if not self._flagged:
            silent = self._silent_changes()
            yield self._matching([silent, silent])
            yield self._pairs_in_one_line()

    def _narrow(self) -> list[Changes]:
        return [self._changes(number) for number in self._flagged]

    def _proved(self, sets: Iterable[Changes]) -> bytes | None:
        """The bytes of the first set of changes that the claim proves."""
        rows = (
            (changes.places[k], changes.values[k]) for changes in sets for k in range(len(changes))
        )
        for places, values in islice(rows, _MOST_PROOFS):
            raw = bytearray(self._raw)
            for place, value in zip(places.tolist(), values.tolist(), strict=True):
                _change(raw, place, value)
            if self._claim.proves(raw):
                return bytes(raw)
        return None

    def _matching(self, options: Sequence[Changes]) -> Iterator[Changes]:
        """Those sets of one row of each of `options` that give a CRC-32C that may be right."""
        left, right = _NO_CHANGE, _NO_CHANGE
        for more in sorted(options, key=len):
            if len(left) > len(right):
                left, right = right, left
            if len(left) * len(more) > _MOST_SETS and len(left) > 1:
                return
            left = left.with_all(more)
        if len(left) * len(right) <= _FEW:
            yield left.with_all(right)
        targets = list(self._targets())
        # With many sets, and a CRC-32C that may be any of a hundred, chance would find some.
        yield from _meeting(
            left, right, targets if len(left) * len(right) < _MOST_SETS * 32 else targets[:1]
        )

    def _targets(self) -> Iterator[int]:
        """Syndromes that the changes may have: of the CRC-32C as it stands, and one digit off."""
        claimed = self._claim.crc32c
        # Of a line that is no `ch` line any more nothing was read.
        if not claimed:
            return
        digits = claimed.encode("latin-1")
        now = crc32c(self._raw)
        off = [k for k, digit in enumerate(digits) if digit not in _HEX]
        if not off:
            yield int(digits, 16) ^ now
        for k in off or range(len(digits)):
            for digit in _HEX:
                other = digits[:k] + bytes((digit,)) + digits[k + 1 :]
                if other != digits and all(each in _HEX for each in other):
                    yield int(other, 16) ^ now

    def _length(self, number: int) -> int:
        """Raw bytes of a line."""
        return LINE_RAW if number < self._last else self._claim.size - number * LINE_RAW

    def _table(self, number: int) -> U4:
        """The syndromes of changes to a line, of shape (sextets, 64): by place and value."""
        length = self._length(number)
        after = self._claim.size - number * LINE_RAW - length
        return _sextet_table(syndromes.followed(syndromes.of_bits(length), after))

    def _changes(self, number: int) -> Changes:
        """What may be wrong with a line on which something is off."""
        state = self._flagged[number]
        return self._placed(number, *state.changes())

    def _placed(self, number: int, columns: NDArray[np.int64], values: U1) -> Changes:
        table = self._table(number)
        # Of no rows at all nothing says how long one is.
        none = np.zeros(0, np.uint32)
        sums = np.bitwise_xor.reduce(table[columns, values], axis=1) if len(values) else none
        return Changes(columns + number * LINE_BASE64, values, sums.astype(np.uint32))

    def _silent_changes(self) -> Changes:
        """Each change of one character on any line that its parity does not show."""
        count = characters(self._claim.size)
        table = _sextet_table(syndromes.of_bits(self._claim.size))[:count]
        now = self._sextets.reshape(-1)[:count]
        places, values = np.nonzero(_silent()[now])
        keep = np.isin(places // LINE_BASE64, list(self._flagged), invert=True)
        places, values = places[keep], values[keep]
        return Changes(
            places[:, None], values[:, None].astype(np.uint8), table[places, values].copy()
        )

    def _pairs_in_one_line(self) -> Iterator[Changes]:
        """Two wrong characters on one line whose parities cancel, on whichever line."""
        claimed = list(islice(self._targets(), 1))
        for number in range(self._last + 1):
            line = _LineState(self._sextets[number, : characters(self._length(number))])
            one, two = (self._placed(number, *changes) for changes in line.two_changes())
            yield from self._fitting(number, line, _meeting(one, two, claimed))

    @staticmethod
    def _fitting(number: int, line: _LineState, found: Iterable[Changes]) -> Iterator[Changes]:
        """Those sets of changes whose ones of a line make its parity right."""
        for changes in found:
            columns = changes.places - number * LINE_BASE64
            within = (columns >= 0) & (columns < len(line.sextets))
            keep = line.fits(np.where(within, columns, 0), np.where(within, changes.values, 0))
            yield Changes(changes.places[keep], changes.values[keep], changes.syndromes[keep])


@dataclass(frozen=True, slots=True, eq=False)
class _LineState:
    """A line as it stands: its sextets, and what is off.

    `unknown` are the columns that hold no base64 character, `mismatch` by what the low bits of
    its parity are off, None where no parity can be read. `shifted` are the lines that it may have
    been where a character is missing or one too many: an array of shape (count, sextets).
    """

    sextets: U1
    unknown: tuple[int, ...] = ()
    mismatch: int | None = 0
    shifted: U1 | None = None

    @classmethod
    def of(cls, line: bytes, length: int) -> _LineState:
        """The state of a line that should hold `length` raw bytes."""
        count = characters(length)
        if len(line) != LINE_TEXT - 1:
            return cls(np.zeros(count, np.uint8), shifted=_shifted(line, count))
        sextets = _SEXTETS[np.frombuffer(line[:count], np.uint8)]
        unknown = np.flatnonzero(sextets == _UNKNOWN)
        sextets[unknown] = 0
        parity = line[-1]
        mismatch = None
        if parity in _HEX:
            mismatch = int(line[-1:], 16) ^ _parity(sextets[None])[0]
        return cls(sextets, tuple(unknown.tolist()), mismatch)

    @property
    def is_off(self) -> bool:
        return self.mismatch != 0 or bool(self.unknown) or self.shifted is not None

    def changes(self) -> tuple[NDArray[np.int64], U1]:
        """Columns and values of each set of changes that what is off allows."""
        if self.shifted is not None:
            columns = np.arange(len(self.sextets))
            return np.broadcast_to(columns, self.shifted.shape).copy(), self.shifted
        if len(self.unknown) > _MOST_UNKNOWN:
            return _no_options(1)
        if self.unknown:
            return self._allowed([self._every(column) for column in self.unknown])
        one = self._allowed([self._singles()])
        # The parity itself may be what is wrong.
        none = np.zeros((1, 1), np.int64), np.zeros((1, 1), np.uint8)
        return np.vstack((none[0], one[0])), np.vstack((none[1], one[1]))

    def two_changes(self) -> list[tuple[NDArray[np.int64], U1]]:
        """Two sets of changes, one of each of which may be wrong together; whether `fits` says."""
        if self.shifted is not None or self.mismatch is None or len(self.unknown) > 1:
            return []
        return [*map(self._every, self.unknown), self._singles(), self._singles()][:2]

    def fits(self, columns: NDArray[np.int64], values: U1) -> NDArray[np.bool_]:
        """Which sets of changes make the parity right."""
        right: NDArray[np.bool_] = self._nibbles(columns, values) == self.mismatch
        return right

    def _singles(self) -> tuple[NDArray[np.int64], U1]:
        """Each change of one character."""
        columns = np.setdiff1d(np.arange(len(self.sextets)), self.unknown)
        values = np.tile(np.arange(1, 64, dtype=np.uint8), len(columns))
        return np.repeat(columns, 63)[:, None], values[:, None]

    def _every(self, column: int) -> tuple[NDArray[np.int64], U1]:
        """Each character that may stand in a column."""
        return np.full((64, 1), column), np.arange(64, dtype=np.uint8)[:, None]

    def _allowed(
        self, options: Sequence[tuple[NDArray[np.int64], U1]]
    ) -> tuple[NDArray[np.int64], U1]:
        """One of each of the options, in all ways that make the parity right."""
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
        """What sets of changes do to the low bits of the parity."""
        now = self.sextets[columns]
        nibbles: U1 = np.bitwise_xor.reduce(_NIBBLES[now] ^ _NIBBLES[now ^ values], axis=1)
        return nibbles


# More characters than these that are none of base64 leave too many ways for one line.
_MOST_UNKNOWN = 3


def _no_options(width: int) -> tuple[NDArray[np.int64], U1]:
    return np.zeros((0, width), np.int64), np.zeros((0, width), np.uint8)


def _parity(rows: U1) -> U1:
    """The low bits of the parity of lines, given by their sextets; the fill included."""
    nibbles: U1 = np.bitwise_xor.reduce(_NIBBLES[rows], axis=1)
    nibbles ^= np.uint8(_FILL_NIBBLE * ((LINE_BASE64 - rows.shape[1]) & 1))
    return nibbles


def _shifted(line: bytes, count: int) -> U1:
    """The sextets of lines that this one was before a character was lost or came in between."""
    nothing = np.zeros((0, count), np.uint8)
    parity = line[-1:]
    body = _SEXTETS[np.frombuffer(line[:-1], np.uint8)]
    rows: list[U1] = []
    if len(line) == LINE_TEXT - 2 and len(body) >= count:
        # The space or the parity is missing, or a character at any place.
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
    if parity in _HEX:
        lines = lines[_parity(lines) == int(parity, 16)]
    return lines


@dataclass(frozen=True, slots=True)
class _Rearranged:
    """A chunk whose lines are whole but not where they were, or not all there."""

    lines: Sequence[bytes]
    claim: ChunkClaim
    spare: Sequence[bytes]

    def mend(self) -> bytes | None:
        if self.claim.crc32c is None or any(d not in _HEX for d in self.claim.crc32c.encode()):
            return None
        count = line_count(self.claim.size)
        # The last line has another length: it stays where it is.
        length = self.claim.size - (count - 1) * LINE_RAW
        states = [
            _LineState.of(line, length if at == len(self.lines) - 1 else LINE_RAW)
            for at, line in enumerate(self.lines)
        ]
        if not states or any(state.is_off for state in states):
            return None
        rows = np.array([state.sextets for state in states[:-1]], np.uint8)
        own = _packed(rows.reshape(-1, LINE_BASE64))
        tail = _packed(np.append(states[-1].sextets, [0] * LINE_BASE64)[None, :LINE_BASE64])
        search = _LineSearch(_cut(own), self._spare_lines(), tail[:length], self.claim)
        for lines in islice(search.orders(), _MOST_PROOFS):
            raw = b"".join(lines) + tail[:length]
            if self.claim.proves(raw):
                return raw
        return None

    def _spare_lines(self) -> list[bytes]:
        states = [_LineState.of(line, LINE_RAW) for line in dict.fromkeys(self.spare)]
        rows = [state.sextets for state in states if not state.is_off][:_MOST_SPARE]
        return _cut(_packed(np.array(rows, np.uint8).reshape(-1, LINE_BASE64)))


# Lines of other places that are tried at every place of a chunk.
_MOST_SPARE = 8192


class _LineSearch:
    """In which order whole lines give a chunk's CRC-32C.

    `own` are the raw bytes of its lines but for the last, those of which are `tail`; `spare`
    those of others.
    """

    def __init__(
        self, own: list[bytes], spare: list[bytes], tail: bytes, claim: ChunkClaim
    ) -> None:
        self._own, self._spare = own, spare
        self._count = line_count(claim.size) - 1
        self._tail = len(tail)
        self._at = self._syndromes(own)
        ends = syndromes.of_bytes(np.frombuffer(tail, np.uint8)[None])
        # A checksum is that of zeros and a syndrome.
        wanted = int(claim.crc32c or "0", 16) ^ crc32c(bytes(claim.size))
        self._wanted = np.uint32(wanted) ^ ends[0]

    def orders(self) -> Iterator[list[bytes]]:
        """Lines in an order that may be right."""
        more = len(self._own) - self._count
        if more == 0:
            yield from self._exchanged()
        elif more > 0:
            yield from self._without(more)
        elif more == -1:
            yield from self._with_one_more()

    def _syndromes(self, lines: list[bytes]) -> U4:
        """Those of lines at each place, of shape (lines, places)."""
        rows = np.frombuffer(b"".join(lines), np.uint8).reshape(-1, LINE_RAW)
        column = syndromes.followed(syndromes.of_bytes(rows), self._tail)
        columns = np.empty((self._count, len(lines)), np.uint32)
        for place in range(self._count - 1, -1, -1):
            columns[place] = column
            column = syndromes.followed(column, LINE_RAW)
        return columns.T

    def _exchanged(self) -> Iterator[list[bytes]]:
        """One line with another, or moved; or one that belongs elsewhere for a spare one."""
        own, at = self._own, self._at
        places = np.arange(self._count)
        now = at[places, places]
        off = self._wanted ^ np.bitwise_xor.reduce(now)
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
        """All but `more` lines in a row."""
        own, at = self._own, self._at
        places = np.arange(self._count)
        before = _sums(at[places, places])
        after = _sums(at[places + more, places])
        for (k,) in _where(before ^ after ^ after[-1] == self._wanted):
            yield own[:k] + own[k + more :]

    def _with_one_more(self) -> Iterator[list[bytes]]:
        own, at = self._own, self._at
        places = np.arange(self._count - 1)
        before = _sums(at[places, places])
        after = _sums(at[places, places + 1])
        here = self._syndromes(self._spare) ^ before ^ after ^ after[-1]
        for k, j in _where(here == self._wanted):
            yield [*own[:j], self._spare[k], *own[j:]]


def _where(which: NDArray[np.bool_]) -> Iterator[list[int]]:
    yield from np.argwhere(which).tolist()


def _sums(values: U4) -> U4:
    """The exclusive or of the first 0, 1, ... values."""
    return np.concatenate((np.zeros(1, np.uint32), np.bitwise_xor.accumulate(values)))


def _cut(raw: bytes) -> list[bytes]:
    return [raw[at : at + LINE_RAW] for at in range(0, len(raw), LINE_RAW)]


def _packed(sextets: U1) -> bytes:
    """The bytes of lines of sextets, of shape (lines, 76)."""
    four = sextets.reshape(-1, 4).astype(np.uint32)
    words = four[:, 0] << 18 | four[:, 1] << 12 | four[:, 2] << 6 | four[:, 3]
    return np.stack((words >> 16, words >> 8, words), axis=1).astype(np.uint8).tobytes()


def _change(raw: bytearray, place: int, value: int) -> None:
    """Change a sextet of raw bytes, as far as it is within them."""
    at, bit = divmod(6 * place, 8)
    change = value << 10 >> bit
    raw[at] ^= change >> 8
    if at + 1 < len(raw):
        raw[at + 1] ^= change & 0xFF


def _sextet_table(bits: U4) -> U4:
    """The syndrome of each change of each sextet, of shape (sextets, 64), given those of bits."""
    # The last sextet has bits that hold no data.
    six = np.append(bits, np.zeros(-len(bits) % 6, np.uint32)).reshape(-1, 6)
    table = np.zeros((len(six), 64), np.uint32)
    for k in range(6):
        # Of the values so far, and of the same with one more bit.
        one = 1 << k
        table[:, one : 2 * one] = table[:, :one] ^ six[:, 5 - k, None]
    return table


def _silent() -> NDArray[np.bool_]:
    """Whether a parity shows nothing of a sextet's change by a value, of shape (64, 64)."""
    values = np.arange(64)
    same: NDArray[np.bool_] = _NIBBLES[values[:, None] ^ values[None]] == _NIBBLES[:, None]
    same[:, 0] = False
    return same


def _meeting(left: Changes, right: Changes, targets: Iterable[int]) -> Iterator[Changes]:
    """Rows of `left` and `right` that together have one of the syndromes."""
    order = np.argsort(right.syndromes, kind="stable")
    ranked = right.syndromes[order]
    for target in targets:
        wanted = left.syndromes ^ np.uint32(target)
        first = np.searchsorted(ranked, wanted, "left")
        end = np.searchsorted(ranked, wanted, "right")
        rows = np.flatnonzero(first < end)
        if not len(rows):
            continue
        mine = np.repeat(rows, end[rows] - first[rows])
        theirs = np.concatenate([order[first[k] : end[k]] for k in rows])
        yield Changes(
            np.hstack((left.places[mine], right.places[theirs])),
            np.hstack((left.values[mine], right.values[theirs])),
            left.syndromes[mine] ^ right.syndromes[theirs],
        )
