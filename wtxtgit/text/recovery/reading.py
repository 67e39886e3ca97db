"""Reading a damaged text: what its lines say, however wrong they are.

A line begins where something like its first word is, and ends where the next one begins: a wrong
character in either does not hide it, nor does an LF in place of a character or vice versa. Nothing
is judged here. Fields are returned as they stand; users of a field have to prove it
(`rebuilding.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from operator import ne

import numpy as np

from wtxtgit.errors import TextError
from wtxtgit.io.view import PIECE, ByteView, mapped
from wtxtgit.text import grammar
from wtxtgit.text.grammar import LINE_TEXT, line_count
from wtxtgit.text.recovery.found import CRC_FIELD, HEX_FIELD, FoundArray, FoundChunk, FoundText

_LF, _SPACE = b"\n "
# Memory that the arrays and chunks of any text may take until it is rewritten, and how much each
# byte of the text adds: more than for any text that `clean` makes of a file
# (`docs/spec/containers.md`, "What a file lists").
_LEAST, _BYTE = 48 * 2**20, 2
_ARRAY, _CHUNK = 1950, 450
_MOST_LINE = 64 * 1024
"""The end of a damaged line is searched within this many bytes."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of line: how it starts, its length if that is fixed, and what may follow."""

    start: bytes
    size: int | None
    next: tuple[str, ...]


_HASHED = len(grammar.format_array_hashes(bytes(32), bytes(32), bytes(8)))
_ROOT = grammar.format_root(grammar.Root(bytes(32), bytes(32), bytes(32), 0))
_SIGN = len("sign ed25519= keyid=\n") + 88 + 16
_KINDS = {
    "first": _Kind(grammar.FIRST_LINE, len(grammar.FIRST_LINE), ("meta",)),
    "meta": _Kind(b"meta schema=", None, ("cap",)),
    "cap": _Kind(b"cap ext=", None, ("root", "pending")),
    "root": _Kind(b"root sha256_all=", len(_ROOT), ("sign", "arr", "audit", "last")),
    "pending": _Kind(grammar.PENDING_LINE, len(grammar.PENDING_LINE), ("arr", "audit", "last")),
    "sign": _Kind(b"sign ed25519=", _SIGN, ("arr", "audit", "last")),
    "arr": _Kind(b"arr name=", None, ("idx", "ch")),
    "idx": _Kind(b"idx rows_per_chunk=", None, ("ch",)),
    "ch": _Kind(b"ch ix=", None, ()),
    "endch": _Kind(grammar.END_CHUNK, len(grammar.END_CHUNK), ("ch", "endarr")),
    "endarr": _Kind(grammar.END_ARRAY, len(grammar.END_ARRAY), ("arr", "audit", "last")),
    "audit": _Kind(b"audit ", None, ("last",)),
    "last": _Kind(grammar.LAST_LINE, len(grammar.LAST_LINE), ()),
}
_STARTS: dict[bytes, list[tuple[str, bytes]]] = {}
for _name, _one in _KINDS.items():
    _STARTS.setdefault(_one.start[:3], []).append((_name, _one.start[:32]))
_PARSERS: dict[str, Callable[[memoryview, int], tuple[object, int] | None]] = {
    "meta": grammar.parse_meta,
    "cap": grammar.parse_cap,
    "arr": grammar.parse_array,
    "idx": grammar.parse_rows,
    "audit": grammar.parse_audit,
}
_BEFORE_CHUNK = ("arr", "idx", "endch")
_NEXT = {
    name: re.compile(b"|".join(re.escape(_KINDS[one].start) for one in kind.next) or b"(?!)")
    for name, kind in _KINDS.items()
}
_HASH_PLACES = {b" sha256=": 0, b" hmac=": 72, b" salt=": 142}
"""Positions of the keys of an `arr` line's hashes, counted from the first key."""
_HASH_KEYS = re.compile(b"|".join(_HASH_PLACES))
_MOST_KEYS = 64
_BEHIND_CHUNK = re.compile(rb"endch\n|endarr\n|ch ix=|arr name=|audit |endwtxt")
_LONGEST_BEHIND = 9
"""Length in bytes of the longest of these."""
# The content of a `ch` line except its variable fields.
_CH_HEAD = b"ch ix=000000 off=000000000000 len="
_CH_FIELDS = (b" sha256=", b" crc32c=", b" b64=on width=76 lines=")
_CH_EXACT = re.compile(
    rb"ch ix=([0-9]{6}) off=([0-9]{12}) len=([0-9]{1,12}) sha256=([0-9a-f]{64}) "
    rb"crc32c=([0-9a-f]{8}) b64=on width=76 lines=([0-9]{1,12})\n"
)
_MOST_WRONG = 8
"""The most wrong characters in a `ch` line's fixed parts, or in the ends of other lines."""
_LONGEST_START = 32
_SPELLED = np.array(
    [list(kind.start[:_LONGEST_START].ljust(_LONGEST_START, b"\0")) for kind in _KINDS.values()],
    np.uint8,
)
"""How each kind of line starts, padded with zeros."""
# This many unknown lines are examined one by one; after that, blocks of this many bytes at once.
_FEW = 4
_LEAST_TOGETHER, _MOST_TOGETHER = 128, 4096


def distance(actual: bytes | memoryview, expected: bytes) -> int:
    """Return how many bytes differ from the wanted ones, or are missing."""
    differing: int = sum(map(ne, actual, expected))
    return differing + max(0, len(expected) - len(actual))


def read(text: ByteView) -> FoundText:
    """Read a text of any content.

    Raises TextError "limit" for more arrays and chunks than a text of its size can have.
    """
    reader = _Reader(text)
    reader.read()
    return reader.found


def _expected(before: str) -> tuple[str, ...]:
    """Return the kinds of lines that may follow one."""
    return _KINDS[before].next if before in _KINDS else ("first", "meta")


@cache
def _most_wrong(name: str, expected: tuple[str, ...]) -> float:
    """Return how many characters of a line's start may be wrong."""
    size = min(len(_KINDS[name].start), _LONGEST_START)
    # A third if such a line is expected, else one or two.
    return size / 3 if name in expected else min(2, size / 5)


def _parts(start: int, end: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield growing parts to search from a start on: what is searched is mostly near."""
    size = _LEAST_TOGETHER
    while start < end:
        yield start, size
        start, size = start + size, min(4 * size, most)


class _Reader:
    def __init__(self, text: ByteView) -> None:
        self._text = text
        self._pos = 0
        self._rows_line = b""
        self._left = _LEAST + _BYTE * len(text)
        self._no_chunk_before = 0
        """Where the search for a chunk without a `ch` line ended in vain."""
        self._ahead: dict[str, tuple[int, int | None]] = {}
        """For each kind: how far its next line was searched, and where it is, None if nowhere."""
        self.found = FoundText()

    def read(self) -> None:
        before = "start"
        others = 0
        while self._pos < len(self._text):
            kind = self._kind_here(before)
            if kind is None:
                if before in _BEFORE_CHUNK and self._take_chunk_without_line():
                    before = "ch"
                    continue
                # Not a line of a text, but the next one may be.
                others += 1
                self._pos = self._next_line() if others < _FEW else self._next_likely(before)
                continue
            others = 0
            if kind == "idx" and before == "endarr":
                # It belongs to an array whose `arr` line is missing.
                self._add_array(None)
            self._take(kind)
            before = kind

    def _kind_here(self, before: str) -> str | None:
        """Return which line starts here, if any, preferring kinds that may follow `before`."""
        head = bytes(self._text[self._pos : self._pos + 32])
        for name, start in _STARTS.get(head[:3], ()):
            if head.startswith(start):
                return name
        best: tuple[float, str] | None = None
        expected = _expected(before)
        for name, kind in _KINDS.items():
            start = kind.start[:_LONGEST_START]
            wrong = distance(head, start)
            if wrong <= _most_wrong(name, expected):
                rank = wrong / len(start) - (name in expected) * 0.01
                best = min(best or (rank, name), (rank, name))
        return None if best is None else best[1]

    def _next_likely(self, before: str) -> int:
        """Return where the next line starts that may belong to a text or chunk; else the end.

        It decides like `_kind_here`, but for many lines at once.
        """
        expected = _expected(before)
        most = [_most_wrong(name, expected) for name in _KINDS]
        at, size = self._pos, _LEAST_TOGETHER
        while at < len(self._text):
            raw = bytes(self._text[at : at + size + LINE_TEXT])
            near = np.frombuffer(raw.ljust(size + LINE_TEXT, b"\0"), np.uint8)
            starts = np.flatnonzero(near[:size] == _LF) + 1
            heads = near[starts[:, np.newaxis] + np.arange(_LONGEST_START)]
            wrong = ((heads[:, np.newaxis] != _SPELLED) & (_SPELLED != 0)).sum(axis=2)
            likely = (wrong <= most).any(axis=1)
            if before in _BEFORE_CHUNK:
                is_line = (near[starts + 76] == _SPACE) & (near[starts + 78] == _LF)
                likely |= is_line & (at + starts >= self._no_chunk_before)
            if likely.any():
                return at + int(starts[likely.argmax()])
            at, size = at + size, min(2 * size, _MOST_TOGETHER)
        return len(self._text)

    def _take(self, kind: str) -> None:
        found = self.found
        if kind == "ch":
            self._take_chunk()
            return
        start, end = self._pos, self._end_of(kind)
        line = bytes(self._text[start : end - 1])
        self._pos = end
        match kind:
            case "meta" if found.meta is None:
                found.meta = line
            case "cap" if found.cap is None:
                found.cap = line
            case "root" if found.root is None:
                found.root = line
            case "pending":
                found.is_pending = True
            case "sign":
                found.sign = line
            case "audit":
                found.audit = line
            case "arr":
                self._add_array((start, end - 1))
            case "idx":
                # Mostly equal to that of the array before: use one object for all of them.
                if line != self._rows_line:
                    self._rows_line = line
                self._array().rows_line = self._rows_line

    def _add_array(self, line: tuple[int, int] | None) -> None:
        self._count(_ARRAY)
        self.found.arrays.append(FoundArray(self.found.chunks, self._text, line))

    def _array(self) -> FoundArray:
        """Return the array to which the lines here belong."""
        if not self.found.arrays:
            self._add_array(None)
        return self.found.arrays[-1]

    def _end_of(self, kind: str) -> int:
        """Return where the line that starts here ends, including its LF."""
        size = _KINDS[kind].size
        if size is not None:
            end = self._pos + size
            # A line of variable length ends where its fields say.
            if self._is_end(end, kind) or bytes(self._text[end - 1 : end]) == b"\n":
                return min(end, len(self._text))
        # The line is as it should be: no search is needed.
        parse = _PARSERS.get(kind)
        near = self._two_lines()
        parsed = None if parse is None else parse(memoryview(near), 0)
        if parsed is not None:
            return self._pos + parsed[1]
        if kind == "arr" and (of_array := self._end_of_array(near)) is not None:
            return of_array
        end = self._next_line()
        if self._is_end(end, kind):
            return end
        # An LF inside the line, or none at its end: it extends to where another line starts.
        other = self._next_other(kind)
        return end if other is None else other

    def _next_other(self, kind: str) -> int | None:
        """Return where the next line starts that may follow one of this kind, if that is near."""
        searched, following = self._ahead.get(kind, (0, None))
        if following is None or following <= self._pos:
            # What was searched for earlier lines is not searched again.
            start = max(self._pos + 1, searched - _LONGEST_START)
            end = self._pos + _MOST_LINE
            match = _NEXT[kind].search(mapped(self._text[start:end])) if start < end else None
            following = None if match is None else start + match.start()
            self._ahead[kind] = end, following
        return following if following is not None and following < self._pos + _MOST_LINE else None

    def _two_lines(self) -> bytes:
        """Return the text here up to the second LF; for a long line, its beginning."""
        size = _LEAST_TOGETHER
        while True:
            near = bytes(self._text[self._pos : self._pos + size])
            second = near.find(b"\n", near.find(b"\n") + 1)
            if second > near.find(b"\n"):
                return near[: second + 1]
            if len(near) < size or size >= _MOST_LINE:
                return near
            size *= 4

    def _end_of_array(self, window: bytes) -> int | None:
        """Return where an `arr` line ends: its hashes have fixed lengths, but an LF may be
        inside.
        """
        best: tuple[int, int] | None = None
        limit = len(window) - _HASHED
        # One of the three must be intact: otherwise hostile lines would take very long.
        for match in islice(_HASH_KEYS.finditer(window), _MOST_KEYS):
            start = match.start() - _HASH_PLACES[match[0]]
            if 0 <= start <= limit:
                wrong = sum(
                    distance(window[start + place :], key) for key, place in _HASH_PLACES.items()
                )
                best = min(best or (wrong, start), (wrong, start))
        if best is None or best[0] > _MOST_WRONG:
            return None
        return self._pos + best[1] + 1 + _HASHED

    def _is_end(self, end: int, kind: str) -> bool:
        """Whether a line that may follow one of this kind starts at `end`."""
        head = bytes(self._text[end : end + 24])
        starts = (_KINDS[name].start[:24] for name in _KINDS[kind].next)
        return any(distance(head, start) <= min(2, len(start) // 3) for start in starts)

    def _next_line(self) -> int:
        """Return where the line that starts here ends by its LF."""
        for at, size in _parts(self._pos, len(self._text), _MOST_LINE):
            newline = bytes(self._text[at : at + size]).find(b"\n")
            if newline >= 0:
                return at + newline + 1
        return len(self._text)

    def _count(self, amount: int) -> None:
        """Count memory for what is found here."""
        self._left -= amount
        if self._left < 0:
            size = len(self._text)
            raise TextError("limit", f"more arrays and chunks than a text of {size} bytes may have")

    def _take_chunk(self) -> None:
        array = self._array()
        self._count(_CHUNK)
        fields = _ChunkFields.of(bytes(self._text[self._pos : self._pos + 256]))
        if fields is None:
            self._pos = self._next_line()
            fields = _ChunkFields()
        start = self._pos + fields.end
        end = self._end_of_body(start, fields)
        before = array[-1].ix if array else -1
        ix = fields.number(before + 1, array[0].size if array else fields.size)
        sha256, crc32c = fields.sha256.decode("latin-1"), fields.crc32c.decode("latin-1")
        array.append(FoundChunk(ix, fields.size, fields.lines, sha256, crc32c, (start, end)))
        self._pos = end

    def _take_chunk_without_line(self) -> bool:
        """Take lines of a chunk without a `ch` line, up to an `endch`, if there are any here."""
        line = bytes(self._text[self._pos : self._pos + LINE_TEXT])
        if self._pos < self._no_chunk_before or line[76:77] + line[78:] != b" \n":
            return False
        start, end = self._pos, self._end_of_body(self._pos, _ChunkFields())
        if bytes(self._text[end : end + 6]) != grammar.END_CHUNK:
            self._no_chunk_before = end
            return False
        self._count(_CHUNK)
        array = self._array()
        ix = array[-1].ix + 1 if array else 0
        array.append(FoundChunk(ix, None, None, "", "", (start, end), False))
        self._pos = end
        return True

    def _end_of_body(self, start: int, fields: _ChunkFields) -> int:
        for lines in fields.counts():
            end = start + lines * LINE_TEXT
            if distance(bytes(self._text[end : end + 6]), grammar.END_CHUNK) <= 2:
                return end
        for at, size in _parts(start, len(self._text), PIECE):
            near = mapped(self._text[at : at + size + _LONGEST_BEHIND - 1])
            if (match := _BEHIND_CHUNK.search(near)) is not None:
                return at + match.start()
        return len(self._text)


@dataclass(frozen=True, slots=True)
class _ChunkFields:
    """The fields of a `ch` line as they stand; `end` is its length."""

    ix: bytes = b""
    off: bytes = b""
    len: bytes = b""
    sha256: bytes = b""
    crc32c: bytes = b""
    count: bytes = b""
    end: int = 0

    @classmethod
    def of(cls, line: bytes) -> _ChunkFields | None:
        """Return the fields of the line at the start of `line`, None if it is too damaged.

        Only `len` and `lines` have variable lengths.
        """
        exact = _CH_EXACT.match(line)
        if exact is not None and int(exact[6]) == line_count(int(exact[3])):
            ix, off, size, sha256, crc32c, count = exact.groups()
            return cls(ix, off, size, sha256, crc32c, count, exact.end())
        best: tuple[int, _ChunkFields] | None = None
        head = len(_CH_HEAD)
        wrong = distance(line[:6], _CH_HEAD[:6]) + distance(line[12:17], b" off=")
        wrong += distance(line[29:34], b" len=")
        if wrong > _MOST_WRONG:
            return None
        for digits in range(1, 13):
            at = head + digits
            off = wrong
            places = []
            for name, size in zip(_CH_FIELDS, (HEX_FIELD, CRC_FIELD, 0), strict=True):
                off += distance(line[at : at + len(name)], name)
                places.append(at + len(name))
                at += len(name) + size
            if off > _MOST_WRONG:
                continue
            length = line[head : head + digits]
            end = line.find(b"\n", at)
            implied = str(line_count(int(length))) if length.isdigit() else ""
            # If the LF is wrong, `lines` has as many digits as `len` implies.
            if end < 0 or end - at > 12:
                end = at + (len(implied) or 1)
            count = line[at:end]
            fields = cls(
                line[6:12],
                line[17:29],
                length,
                line[places[0] : places[0] + HEX_FIELD],
                line[places[1] : places[1] + CRC_FIELD],
                count,
                end + 1,
            )
            rank = off + (not length.isdigit()) + (count.decode("latin-1") != implied)
            if best is None or rank < best[0]:
                best = rank, fields
        return None if best is None else best[1]

    @property
    def size(self) -> int | None:
        return int(self.len) if self.len.isdigit() else None

    @property
    def lines(self) -> int | None:
        return int(self.count) if self.count.isdigit() else None

    def counts(self) -> Iterator[int]:
        """Yield how many lines may follow."""
        if self.lines is not None:
            yield self.lines
        if self.size is not None:
            yield line_count(self.size)

    def number(self, expected: int, size: int | None) -> int:
        """Return the chunk's number; `expected` would follow the previous chunk.

        With chunks of `size` bytes, `off` gives the number, too. If a chunk is missing, both agree
        on a number other than `expected`.
        """
        stated = int(self.ix) if self.ix.isdigit() else None
        start = int(self.off) if self.off.isdigit() else None
        by_start = start // size if start is not None and size and start % size == 0 else None
        if stated is not None and stated == by_start:
            return stated
        if expected in (stated, by_start) or stated is None:
            return expected
        return (
            expected if by_start is None and distance(self.ix, b"%06d" % expected) <= 1 else stated
        )
