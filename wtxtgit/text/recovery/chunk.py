"""Mending one damaged chunk of a text from its own check characters and hashes.

The bytes between a `ch` line and its `endch` are read as lines, however they are broken or joined.
Lines with wrong parity or spelling have candidate changes; the effect of a single wrong character
on any other line is known, too. Sets of changes that give the chunk's CRC-32C are looked up by
their syndromes (`syndromes.py`), and a result has to match the chunk's SHA-256: nothing else is
returned.

A base64 character is a sextet: sextet q of a chunk holds its bits 6q to 6q + 5, on any line, since
a line holds 76 of them and 57 whole bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations, islice
from operator import ne

import numpy as np
from numpy.typing import NDArray

from wtxtgit.io.view import Buffer
from wtxtgit.model.checksum import crc32c
from wtxtgit.text.grammar import LINE_BASE64, LINE_RAW, LINE_TEXT, characters, line_count
from wtxtgit.text.recovery import syndromes
from wtxtgit.text.recovery.line_state import HEX, LineState, packed, silent
from wtxtgit.text.recovery.syndromes import U1, U4

_WHITE = re.compile(rb"\s+")

NEAR = 2
"""A claimed hash that differs in at most this many digits is taken for the computed one."""
LARGEST = 256 * 1024
"""Largest chunk, in bytes, in which lines that look right are searched for a wrong character."""
MOST_PROOFS = 20_000
"""The most candidates for a chunk's content whose SHA-256 is computed in one search."""
# The most sets of changes in one half of a search.
_MOST_SETS = 1 << 20
# With more sets in a search, a CRC-32C with a wrong digit would match by chance.
_MOST_DOUBTED = 1 << 27
# The most sets in a search of milliseconds, and in one of seconds.
_LITTLE = 1 << 26
_MUCH = 1 << 30
# Up to this many sets are tested one by one, since the CRC-32C may be wrong, too.
_FEW = 2_000
_MOST_FLAGGED = 24


@dataclass(frozen=True, slots=True)
class ChunkClaim:
    """What is known of a chunk: its `size` in bytes, and the hashes of its `ch` line.

    The hashes are as they stand there, including wrong characters; None if they can't be read.
    """

    size: int
    sha256: str | None
    crc32c: str | None

    def proves(self, raw: Buffer) -> bool:
        """Whether bytes have the chunk's size and SHA-256.

        Up to `NEAR` digits of the claimed SHA-256 may be wrong.
        """
        return len(raw) == self.size and is_near(sha256(raw).hexdigest(), self.sha256)


def is_near(computed: str, claimed: str | None) -> bool:
    """Whether a claimed hash is the computed one, with at most `NEAR` digits that differ."""
    if claimed is None or len(claimed) != len(computed):
        return False
    # Then one of three parts is unchanged. Called millions of times, mostly for another hash.
    part = len(computed) // (NEAR + 1)
    if (
        computed[:part] != claimed[:part]
        and computed[-part:] != claimed[-part:]
        and computed[part:-part] != claimed[part:-part]
    ):
        return False
    return sum(map(str.__ne__, computed, claimed)) <= NEAR


@dataclass(frozen=True, slots=True)
class Changes:
    """Sets of changes to sextets, one per row: which sextets, and the values to XOR.

    Shapes are (count, width); a value of 0 changes nothing. `syndromes` has the effect of each row
    on the chunk's CRC-32C.
    """

    places: NDArray[np.int64]
    values: U1
    syndromes: U4

    def __len__(self) -> int:
        return len(self.syndromes)

    def with_all(self, other: Changes) -> Changes:
        """Combine each row with each row of another."""
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
    """Return the bytes of a chunk whose lines are `body`, None if they can't be proved.

    Takes milliseconds: one character may be wrong on each line that shows it, and one on a line
    that does not. Lines may be duplicated.
    """
    return _mended(body, claim, _DamagedChunk.likely)


def mend_more(body: bytes, claim: ChunkClaim) -> bytes | None:
    """Do the same with more wrong characters, such as two on one line. Takes seconds."""
    return _mended(body, claim, _DamagedChunk.possible)


def _mended(
    body: bytes, claim: ChunkClaim, searches: Callable[[_DamagedChunk], Searches]
) -> bytes | None:
    for lines in _as_many(lines_of(body, claim.size), line_count(claim.size)):
        raw = _DamagedChunk(lines, claim).mend(searches)
        if raw is not None:
            return raw
    return None


def _as_many(lines: list[bytes], count: int) -> Iterator[list[bytes]]:
    """Yield the lines without duplicates, as `count` lines, in all likely ways."""
    more = len(lines) - count
    if more == 0:
        yield lines
    if not 0 < more <= count:
        return
    # A run of duplicated lines, of which one may have a wrong character by now.
    for at in range(more, len(lines) - more + 1):
        same = map(_are_alike, lines[at - more : at], lines[at : at + more])
        if all(same):
            yield lines[: at - more] + lines[at:]
            yield lines[:at] + lines[at + more :]
            break
    if more == 1:
        return
    # Or single lines, each after its duplicate: of a long run of equal lines any may be dropped.
    twice = [at for at in range(1, len(lines)) if _are_alike(lines[at - 1], lines[at])]
    for dropped in islice(combinations(twice, more), _MOST_WAYS):
        yield [line for at, line in enumerate(lines) if at not in dropped]


# How many ways of dropping lines are tried.
_MOST_WAYS = 16


def _are_alike(one: bytes, two: bytes) -> bool:
    return one == two or (len(one) == len(two) and sum(map(ne, one, two)) == 1)


def lines_of(body: bytes, size: int) -> list[bytes]:
    """Split a chunk into its lines, without their LF, as well as possible."""
    count = line_count(size)
    if len(body) == count * LINE_TEXT:
        # A wrong character in place of an LF, or an LF in place of a character.
        return [body[at : at + LINE_TEXT - 1] for at in range(0, len(body), LINE_TEXT)]
    lines = [_without_spaces(line) for line in body.split(b"\n") if line]
    if any(len(line) != LINE_TEXT - 1 for line in lines):
        # Lines that were broken elsewhere keep the order of their characters.
        solid = _WHITE.sub(b"", body)
        if len(solid) == count * (LINE_BASE64 + 1):
            step = LINE_BASE64 + 1
            parts = (solid[at : at + step] for at in range(0, len(solid), step))
            return [part[:-1] + b" " + part[-1:] for part in parts]
        lines = _halved(lines)
    if len(lines) > count:
        # Remains of `endch`, or of a mark between lines.
        lines = [line for line in lines if len(line) > _SHORT]
    if len(lines) > count:
        # Text that a page, a pager or a chat puts between lines.
        lines = [line for line in lines if _is_like_armor(line)]
    return lines


# A line of at most this many bytes is none of a chunk, however damaged.
_SHORT = 16


def _is_like_armor(line: bytes) -> bool:
    """Whether a line may be a line of a chunk with some damage."""
    return 60 <= len(line) <= 96 and len(line.translate(None, _CHARACTERS)) <= 5


_CHARACTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="


def _without_spaces(line: bytes) -> bytes:
    """Return a line without spaces around it, or unchanged if it would become too short."""
    return line.strip() if len(line.strip()) == LINE_TEXT - 1 else line


def _halved(lines: list[bytes]) -> list[bytes]:
    """Split lines that lost the LF between them, and join parts of a line that got an LF."""
    whole = LINE_TEXT - 1
    parted: list[bytes] = []
    for line in lines:
        before = len(parted[-1]) if parted else whole
        if before < whole and before + len(line) == whole:
            parted[-1] += line
        elif before < whole and before + len(line) == whole - 1:
            # The LF is in place of a character.
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
    """A chunk of which all lines exist, with wrong characters in some."""

    def __init__(self, lines: Sequence[bytes], claim: ChunkClaim) -> None:
        self._claim = claim
        self._last = len(lines) - 1
        self._sextets = np.zeros((len(lines), LINE_BASE64), dtype=np.uint8)
        """The sextets of each line; 0 for a character that is not base64."""
        self._flagged: dict[int, LineState] = {}
        """The lines that show a fault."""
        for number, line in enumerate(lines):
            state = LineState.of(line, self._length(number))
            self._sextets[number, : len(state.sextets)] = state.sextets
            if state.is_off:
                self._flagged[number] = state
        self._raw = packed(self._sextets)[: claim.size]

    def mend(self, searches: Callable[[_DamagedChunk], Searches]) -> bytes | None:
        """Return the bytes that the claim proves, None if none are found."""
        if self._claim.proves(self._raw):
            return self._raw
        # An empty chunk has no character that may be wrong.
        if self._claim.size == 0 or len(self._flagged) > _MOST_FLAGGED:
            return None
        for sets in searches(self):
            if (raw := self._proved(sets)) is not None:
                return raw
        return None

    def likely(self) -> Searches:
        """Yield searches: a character wrong on each line that shows it, and one on a line that does
        not.
        """
        yield self._matching(self._narrow(), _LITTLE)
        if self._claim.size <= LARGEST:
            yield self._matching([*self._narrow(), self._silent_changes()], _LITTLE)

    def possible(self) -> Searches:
        """Yield searches for more: two wrong on one line, or on two lines that both look right."""
        if self._claim.size > LARGEST:
            return
        narrow, silent = self._narrow(), self._silent_changes()
        yield self._matching(narrow, _MUCH)
        yield self._matching([*narrow, silent], _MUCH)
        for number, state in self._flagged.items():
            others = [self._changes(other) for other in self._flagged if other != number]
            pairs = [self._placed(number, *change) for change in state.two_changes()]
            if pairs:
                yield self._fitting(number, state, self._matching([*pairs, *others], _MUCH))
        yield self._matching([*narrow, silent, silent], _MUCH)
        if not self._flagged:
            yield self._pairs_in_one_line()

    def _narrow(self) -> list[Changes]:
        return [self._changes(number) for number in self._flagged]

    def _proved(self, sets: Iterable[Changes]) -> bytes | None:
        """Return the bytes of the first set of changes that the claim proves."""
        rows = (
            (changes.places[k], changes.values[k]) for changes in sets for k in range(len(changes))
        )
        for places, values in islice(rows, MOST_PROOFS):
            raw = bytearray(self._raw)
            for place, value in zip(places.tolist(), values.tolist(), strict=True):
                _change(raw, place, value)
            if self._claim.proves(raw):
                return bytes(raw)
        return None

    def _matching(self, options: Sequence[Changes], most: int) -> Iterator[Changes]:
        """Yield combinations of one row of each of `options` that give a plausible CRC-32C.

        If there are more than `most` combinations, none is looked up.
        """
        left, right, rounds = _NO_CHANGE, _NO_CHANGE, _NO_CHANGE
        for more in sorted(options, key=len, reverse=True):
            if len(left) > len(right):
                left, right = right, left
            if len(left) == 1 or len(left) * len(more) <= _MOST_SETS:
                left = left.with_all(more)
            elif len(rounds) * len(more) * max(len(left), len(right)) <= most:
                rounds = rounds.with_all(more)
            else:
                return
        sets = len(left) * len(right) * len(rounds)
        if sets <= _FEW:
            yield left.with_all(right).with_all(rounds)
        # With many sets and a hundred possible CRC-32Cs, some would match by chance.
        targets = list(islice(self._targets(), None if sets < _MOST_DOUBTED else 1))
        yield from _meeting(left, right, targets, rounds)

    def _targets(self) -> Iterator[int]:
        """Yield possible syndromes of the changes: of the CRC-32C as it is, and one digit off."""
        claimed = self._claim.crc32c
        # Nothing could be read from a line that is no longer a `ch` line.
        if not claimed:
            return
        digits = claimed.encode("latin-1")
        now = crc32c(self._raw)
        off = [k for k, digit in enumerate(digits) if digit not in HEX]
        if not off:
            yield int(digits, 16) ^ now
        for k in off or range(len(digits)):
            for digit in HEX:
                other = digits[:k] + bytes((digit,)) + digits[k + 1 :]
                if other != digits and all(each in HEX for each in other):
                    yield int(other, 16) ^ now

    def _length(self, number: int) -> int:
        """Return the number of raw bytes of a line."""
        return LINE_RAW if number < self._last else self._claim.size - number * LINE_RAW

    def _table(self, number: int) -> U4:
        """Return the syndromes of changes to a line, of shape (sextets, 64): position and value."""
        length = self._length(number)
        after = self._claim.size - number * LINE_RAW - length
        return _sextet_table(syndromes.followed(syndromes.of_bits(length), after))

    def _changes(self, number: int) -> Changes:
        """Return possible changes of a line on which something is wrong."""
        state = self._flagged[number]
        return self._placed(number, *state.changes())

    def _placed(self, number: int, columns: NDArray[np.int64], values: U1) -> Changes:
        table = self._table(number)
        # Without any rows the width would be unknown.
        none = np.zeros(0, np.uint32)
        sums = np.bitwise_xor.reduce(table[columns, values], axis=1) if len(values) else none
        return Changes(columns + number * LINE_BASE64, values, sums.astype(np.uint32))

    def _silent_changes(self) -> Changes:
        """Return each change of one character on any line that leaves its parity right."""
        count = characters(self._claim.size)
        table = _sextet_table(syndromes.of_bits(self._claim.size))[:count]
        now = self._sextets.reshape(-1)[:count]
        places, values = np.nonzero(silent()[now])
        keep = np.isin(places // LINE_BASE64, list(self._flagged), invert=True)
        places, values = places[keep], values[keep]
        return Changes(
            places[:, None], values[:, None].astype(np.uint8), table[places, values].copy()
        )

    def _pairs_in_one_line(self) -> Iterator[Changes]:
        """Yield pairs of changes on any one line whose effects on the parity cancel."""
        claimed = list(islice(self._targets(), 1))
        for number in range(self._last + 1):
            line = LineState(self._sextets[number, : characters(self._length(number))])
            one, two = (self._placed(number, *changes) for changes in line.two_changes())
            yield from self._fitting(number, line, _meeting(one, two, claimed))

    @staticmethod
    def _fitting(number: int, line: LineState, candidates: Iterable[Changes]) -> Iterator[Changes]:
        """Yield those sets of changes that make a line's parity right."""
        for changes in candidates:
            columns = changes.places - number * LINE_BASE64
            within = (columns >= 0) & (columns < len(line.sextets))
            keep = line.fits(np.where(within, columns, 0), np.where(within, changes.values, 0))
            yield Changes(changes.places[keep], changes.values[keep], changes.syndromes[keep])


def _change(raw: bytearray, place: int, value: int) -> None:
    """Change a sextet of raw bytes, so far as it is within them."""
    at, bit = divmod(6 * place, 8)
    change = value << 10 >> bit
    raw[at] ^= change >> 8
    if at + 1 < len(raw):
        raw[at + 1] ^= change & 0xFF


def _sextet_table(bits: U4) -> U4:
    """Return the syndromes of all changes of sextets, of shape (sextets, 64), from those of
    bits.
    """
    # The last sextet has bits without data.
    six = np.append(bits, np.zeros(-len(bits) % 6, np.uint32)).reshape(-1, 6)
    table = np.zeros((len(six), 64), np.uint32)
    for k in range(6):
        # For the values so far, and for the same with one more bit.
        one = 1 << k
        table[:, one : 2 * one] = table[:, :one] ^ six[:, 5 - k, None]
    return table


def _meeting(
    left: Changes, right: Changes, targets: Iterable[int], rounds: Changes = _NO_CHANGE
) -> Iterator[Changes]:
    """Yield combinations of rows of `left`, `right` and `rounds` that have one of the syndromes."""
    order = np.argsort(right.syndromes, kind="stable")
    ranked = right.syndromes[order]
    # Most do not occur, which one lookup in a table of their first bits shows.
    known = np.zeros(1 << _TABLE_BITS, np.bool_)
    known[ranked >> _TABLE_SHIFT] = True
    for target in targets:
        for k, syndrome in enumerate(rounds.syndromes):
            needed = left.syndromes ^ (np.uint32(target) ^ syndrome)
            rows = np.flatnonzero(known[needed >> _TABLE_SHIFT])
            first = np.searchsorted(ranked, needed[rows], "left")
            counts = np.searchsorted(ranked, needed[rows], "right") - first
            rows, first, counts = rows[counts > 0], first[counts > 0], counts[counts > 0]
            if not len(rows):
                continue
            mine = np.repeat(rows, counts)
            ranges = zip(first, first + counts, strict=True)
            theirs = np.concatenate([order[start:end] for start, end in ranges])
            fixed = np.full(len(mine), k)
            yield Changes(
                np.hstack((left.places[mine], right.places[theirs], rounds.places[fixed])),
                np.hstack((left.values[mine], right.values[theirs], rounds.values[fixed])),
                left.syndromes[mine] ^ right.syndromes[theirs] ^ syndrome,
            )


_TABLE_BITS = 20
_TABLE_SHIFT = np.uint32(32 - _TABLE_BITS)
