"""A pack of chunks: its header, index and trailer as bytes, and reading one.

Spec: `docs/spec/store.md`, section "Pack". All sizes are in bytes. Works without numpy, whose
import takes a tenth of a checkout of 256 MiB.
"""

from __future__ import annotations

import re
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import islice
from operator import lt
from pathlib import Path
from struct import Struct, iter_unpack
from typing import NamedTuple, NoReturn, TypeAlias

from wtxtgit.errors import FormatError
from wtxtgit.io.files import failures, opened_regular, read_view
from wtxtgit.io.view import ByteView, hashed, mapped, pieces

NAME_SIZE = 32
HEAD = b"WTXTPACK" + (1).to_bytes(4, "little") + bytes(4)
_TRAILER = Struct("<QQQ32s8s")
TRAILER_SIZE = _TRAILER.size
_HASHED = 24
_HEAD_SIZE = 8
_MOST_INDEX = 64 * 1024 * 1024
MAX_END = _MOST_INDEX + TRAILER_SIZE
"""Most bytes of a pack's index and trailer."""
_MOST_PACK = 1 << 48
_MAGIC_END = b"WTXTPEND"
FILE_NAME = re.compile(r"([0-9a-f]{64})\.pack")

STORED, ZSTD, GROUPED, XOR, PREFIX = range(5)
ITEMS = {STORED: (1,), ZSTD: (1,), GROUPED: (2, 4, 8), XOR: (1, 2, 4, 8), PREFIX: (1,)}
"""The item sizes that each encoding allows."""
MAX_CODED = 16 * 1024 * 1024
"""Chunks with more bytes are stored unencoded."""
MAX_MOVED = 128 * 1024
"""Bytes of a chunk that is decoded with a prefix, and of each of its bases: a chain of these
doubles at each step, so no more than 64 MiB are decoded for one."""
MAX_DEPTH = 8
"""The longest chain of bases."""

U8, U4, _U1 = "Q", "I", "B"
"""Type codes of `array` for numbers of 8, 4 and 1 bytes."""
_COLUMNS = (U8, U8, U8, U4, U4, _U1, _U1, _U1, _U1)
ROW_SIZE = NAME_SIZE + sum(array(column).itemsize for column in _COLUMNS)
_HEADS_AT_ONCE = 1024 * 1024

Column: TypeAlias = "array[int]"


class ChunkEntry(NamedTuple):
    """Position and encoding of a chunk in its pack; `bases` has up to two names of chunks.

    A tuple for speed, because several are made for each chunk that is read.
    """

    name: bytes
    place: int
    length: int
    size: int
    bases: tuple[bytes, ...]
    encoding: int
    item: int
    depth: int


class ChunkIndex:
    """The index of a pack: rows sorted by name, without an object for each."""

    def __init__(self, names: bytes, columns: Sequence[Column], bases: bytes) -> None:
        self.names = names
        self.count = len(names) // NAME_SIZE
        self._heads = heads_of(names)
        self._columns = columns
        self._bases = bases

    def row(self, name: bytes) -> int | None:
        """Return the row of a chunk; None if the pack does not have it."""
        row = first_row(self.names, self._heads, name)
        return row if self.name(row) == name else None

    def name(self, row: int) -> bytes:
        return self.names[row * NAME_SIZE : (row + 1) * NAME_SIZE]

    def entry(self, row: int) -> ChunkEntry:
        return self.entries([row])[0]

    def entries(self, rows: Sequence[int]) -> list[ChunkEntry]:
        """Return the entries of some rows; raises IndexError for a row that does not exist."""
        place, length, size, base, second, encoding, item, depth, _ = self._columns
        return [
            ChunkEntry(
                self.name(row), place[row], length[row], size[row],
                self._named(base[row], second[row]), encoding[row], item[row], depth[row],
            )
            for row in rows
        ]  # fmt: skip

    def _named(self, *numbers: int) -> tuple[bytes, ...]:
        """Return the names of bases by their numbers; 0 means none."""
        if not numbers[0]:
            return ()
        return tuple(
            self._bases[(number - 1) * NAME_SIZE : number * NAME_SIZE]
            for number in numbers
            if number
        )

    @property
    def sizes(self) -> Column:
        """The decoded size of each chunk, by row."""
        return self._columns[2]

    def in_order(self) -> Iterator[int]:
        """Yield the rows in the order of the chunks in the pack."""
        return iter(self._order)

    def row_at(self, position: int) -> int:
        """Return the row of the chunk at a position in the pack, from 0."""
        return self._order[position]

    def position(self, name: bytes) -> int:
        """Return the position of a chunk that the pack has."""
        return self._positions[first_row(self.names, self._heads, name)]

    @cached_property
    def _order(self) -> Column:
        return _in_order(*self._columns[:2])

    @cached_property
    def _positions(self) -> Column:
        positions = array(U8, bytes(len(self._order) * 8))
        for position, row in enumerate(self._order):
            positions[row] = position
        return positions

    @property
    def nbytes(self) -> int:
        """The size of all chunks, decoded."""
        return sum(self.sizes)

    def format(self) -> bytes:
        return b"".join((self.names, *map(_written, self._columns), self._bases))

    @property
    def bases(self) -> list[bytes]:
        """The names of all bases."""
        names = self._bases
        return [names[at : at + NAME_SIZE] for at in range(0, len(names), NAME_SIZE)]

    @property
    def base_count(self) -> int:
        return len(self._bases) // NAME_SIZE


def heads_of(names: bytes | memoryview) -> memoryview:
    """Return the first 8 bytes of sorted names as integers, which are found in a fifth of the
    time.
    """
    heads = array(U8)
    # In blocks of names, because all their bytes are converted to integers first.
    for at in range(0, len(names), _HEADS_AT_ONCE):
        heads.extend(
            array(U8, bytes(names[at : at + _HEADS_AT_ONCE]))[:: NAME_SIZE // heads.itemsize]
        )
    if sys.byteorder == "little":
        heads.byteswap()
    return memoryview(heads)


def numbers_of(kind: str, content: bytes | memoryview) -> Column:
    """Parse little-endian numbers."""
    numbers = array(kind, bytes(content))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _written(column: Column) -> bytes:
    """Return the little-endian bytes of numbers."""
    return numbers_of(column.typecode, column.tobytes()).tobytes()


def first_row(names: bytes | memoryview, heads: memoryview, name: bytes) -> int:
    """Return the first row of sorted names, with their heads, that is not before `name`."""

    def at(row: int) -> bytes:
        return bytes(names[row * NAME_SIZE : (row + 1) * NAME_SIZE])

    head = int.from_bytes(name[:_HEAD_SIZE], "big")
    first = bisect_left(heads, head)
    # Many names with the same head can be crafted.
    return bisect_left(range(bisect_right(heads, head, first)), name, first, key=at)


def index_of(entries: Sequence[ChunkEntry], unused: Iterable[bytes] = ()) -> ChunkIndex:
    """Build the index of a new pack; no name may occur twice.

    It also lists `unused` names of bases, which make the pack another one.
    """
    ordered = sorted(entries, key=lambda entry: entry.name)
    bases = sorted({base for entry in ordered for base in entry.bases}.union(unused))
    numbers = {base: number for number, base in enumerate(bases, 1)}
    rows = [
        (
            entry.place, entry.length, entry.size,
            *([numbers[base] for base in entry.bases] + [0, 0])[:2],
            entry.encoding, entry.item, entry.depth, 0,
        )
        for entry in ordered
    ]  # fmt: skip
    columns = [
        array(kind, values) for kind, values in zip(_COLUMNS, zip(*rows, strict=True), strict=True)
    ]
    return ChunkIndex(b"".join(e.name for e in ordered), columns, b"".join(bases))


def format_end(index: ChunkIndex, place: int) -> bytes:
    """Return index and trailer of a pack whose index begins at `place`."""
    content = index.format()
    numbers = b"".join(n.to_bytes(8, "little") for n in (place, index.count, index.base_count))
    return content + numbers + sha256(content + numbers).digest() + _MAGIC_END


def parse_index(data: ByteView) -> ChunkIndex:
    """Parse the index of a whole pack.

    Raises FormatError if the pack breaks a rule; the bytes of chunks are not read.
    """
    size = len(data)
    if size < len(HEAD) + ROW_SIZE + _TRAILER.size:
        _fail(f"is cut short: {size} bytes", 0, "head")
    if data[: len(HEAD)] != HEAD:
        _fail("does not start as a version 1 pack does", 0, "head")
    return _parse_end(data, size)[0]


def parse_end(end: ByteView) -> tuple[ChunkIndex, int]:
    """Parse the end of a pack: returns its index, and the size of the pack in bytes.

    Raises FormatError if it breaks a rule.
    """
    if len(end) < ROW_SIZE + _TRAILER.size:
        _fail(f"is cut short: {len(end)} bytes", 0, "trailer")
    place = int.from_bytes(mapped(end[len(end) - _TRAILER.size :])[:8], "little")
    if place > _MOST_PACK:
        _fail("has an index whose length is wrong", 0, "trailer")
    return _parse_end(end, place + len(end))


def _parse_end(data: ByteView, size: int) -> tuple[ChunkIndex, int]:
    """Parse the index of a pack of `size` bytes, of which `data` is the end, or all.

    Returns both.
    """
    before = size - len(data)
    end = size - _TRAILER.size
    trailer = mapped(data[end - before :])
    place, count, base_count, digest, magic = _TRAILER.unpack(trailer)
    if magic != _MAGIC_END:
        _fail("is cut short: it has no trailer", end, "trailer")
    if place < len(HEAD) or place + count * ROW_SIZE + base_count * NAME_SIZE != end or not count:
        _fail("has an index whose length is wrong", end, "trailer")
    if end - place > _MOST_INDEX:
        _fail(f"has an index of over {_MOST_INDEX} bytes", end, "trailer")
    content = mapped(data[place - before : end - before])
    if hashed(sha256(), (content, trailer[:_HASHED])).digest() != digest:
        _fail("has an index that does not match its SHA-256", place, "index")
    at = count * NAME_SIZE
    columns: list[Column] = []
    for kind in _COLUMNS:
        end_of_column = at + count * array(kind).itemsize
        columns.append(numbers_of(kind, content[at:end_of_column]))
        at = end_of_column
    index = ChunkIndex(bytes(content[: count * NAME_SIZE]), columns, bytes(content[at:]))
    _check_names(index.names, place, "name")
    _check_names(bytes(content[at:]), place + at, "base")
    _check_columns(columns, base_count, place)
    return index, size


def _check_names(names: bytes, at: int, field: str) -> None:
    spelling = f"{NAME_SIZE}s"
    if not all(
        map(lt, iter_unpack(spelling, names), islice(iter_unpack(spelling, names), 1, None))
    ):
        _fail("has names that are not in ascending order", at, field)


def _check_columns(columns: Sequence[Column], base_count: int, end: int) -> None:
    place, length, *_ = columns

    def fail(row: int, field: str) -> NoReturn:
        _fail(f"has an invalid {field} in row {row}", end, field)

    # Bounded first: no number below is very large then.
    for column, field in ((place, "place"), (length, "length")):
        if (most := max(column)) > end:
            fail(column.index(most), field)
    at = len(HEAD)
    for row in _in_order(place, length):
        if place[row] != at:
            fail(row, "place")
        at += length[row]
    if at != end:
        fail(len(place) - 1, "place")
    for row, values in enumerate(zip(*columns[1:], strict=True)):
        length_of, size_of, base, second, encoding, item, depth, zero = values
        has_base = encoding >= XOR
        if encoding > PREFIX:
            fail(row, "encoding")
        if (
            size_of != length_of
            if encoding == STORED
            else size_of > MAX_CODED or length_of >= size_of
        ):
            fail(row, "size")
        if item not in ITEMS[encoding] or size_of % item:
            fail(row, "item")
        if base > base_count or (base > 0) != has_base:
            fail(row, "base")
        if second > base_count or (second and encoding != PREFIX):
            fail(row, "base")
        if encoding == PREFIX and size_of > MAX_MOVED:
            fail(row, "size")
        if depth > MAX_DEPTH or (depth > 0) != has_base:
            fail(row, "depth")
        if zero:
            fail(row, "zero")


def _in_order(place: Column, length: Column) -> Column:
    """Return the rows by position; at equal positions empty chunks come first."""
    ends = [at << 64 | size for at, size in zip(place, length, strict=True)]
    return array(U8, sorted(range(len(place)), key=ends.__getitem__))


def _fail(what: str, offset: int, field: str) -> NoReturn:
    raise FormatError(what, offset=offset, field=field)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a pack's file, in hexadecimal, which should be its name.

    Raises FileNotFoundError, and EnvironmentFailure if it can't be read.
    """
    return hashed(sha256(), pieces(_view(path))).hexdigest()


def _view(path: Path) -> ByteView:
    try:
        with opened_regular(path) as (descriptor, _):
            # Its time changes when one of its chunks is used again; what is read is hashed anyway.
            return read_view(descriptor, path, by_time=False)
    except FileNotFoundError:
        raise
    except OSError as error:
        with failures(path):
            raise error


class ChunkPack:
    """A pack that is open for reading, for any thread.

    Raises FormatError if it breaks a rule, EnvironmentFailure if it can't be read, and
    FileNotFoundError if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = _view(path)
        self.index = parse_index(self._data)

    @property
    def nbytes(self) -> int:
        return len(self._data)

    @property
    def end(self) -> bytes:
        """Its index and trailer, as `parse_end` takes them."""
        place = int.from_bytes(mapped(self._data[self.nbytes - TRAILER_SIZE :])[:8], "little")
        return bytes(mapped(self._data[place:]))

    def encoded(self, entry: ChunkEntry) -> ByteView:
        """Return the encoded bytes of a chunk in its index."""
        return self._data[entry.place : entry.place + entry.length]

    def encoded_runs(self, entries: Sequence[ChunkEntry]) -> Iterator[tuple[list[int], memoryview]]:
        """Yield the encoded bytes of adjacent chunks in one piece, with the numbers of their
        entries.
        """
        ordered = sorted(range(len(entries)), key=lambda number: entries[number].place)
        while ordered:
            start = end = entries[ordered[0]].place
            count = 0
            while count < len(ordered) and entries[ordered[count]].place == end:
                end += entries[ordered[count]].length
                count += 1
            yield ordered[:count], mapped(self._data[start:end])
            ordered = ordered[count:]
