"""A pack, which holds chunks: its head, index and trailer as bytes, and reading one.

Spec: `docs/spec/store.md`, section "Pack". All sizes are in bytes.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

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
"""Bytes of a pack's index and trailer."""
_MOST_PACK = 1 << 48
_MAGIC_END = b"WTXTPEND"
FILE_NAME = re.compile(r"([0-9a-f]{64})\.pack")

STORED, ZSTD, GROUPED, XOR, PREFIX = range(5)
ITEMS = {STORED: (1,), ZSTD: (1,), GROUPED: (2, 4, 8), XOR: (1, 2, 4, 8), PREFIX: (1,)}
"""What an encoding's item may be."""
MAX_CODED = 16 * 1024 * 1024
"""Chunks of more bytes are stored as they are."""
MAX_MOVED = 128 * 1024
"""Bytes of a chunk that is decoded with a prefix, and of each of its bases: a chain of these
doubles at each step, so no more than 64 MiB are decoded for one."""
MAX_DEPTH = 8
"""The longest chain of bases."""

_COLUMNS = ("<u8", "<u8", "<u8", "<u4", "<u4", "u1", "u1", "u1", "u1")
ROW_SIZE = NAME_SIZE + sum(np.dtype(column).itemsize for column in _COLUMNS)

Column = npt.NDArray[Any]


class ChunkEntry(NamedTuple):
    """Where a chunk is in its pack, and how: `bases` are names of none, one or two chunks.

    A tuple, as each chunk that is read makes some.
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
    """The index of a pack: rows in ascending order of names, without an object for each."""

    def __init__(self, names: bytes, columns: Sequence[Column], bases: bytes) -> None:
        self.names = names
        self.count = len(names) // NAME_SIZE
        self._heads = heads_of(names)
        self._columns = columns
        self._bases = bases

    def row(self, name: bytes) -> int | None:
        """The row of a chunk, None where the pack does not hold it."""
        found = first_row(self.names, self._heads, name)
        return found if self.name(found) == name else None

    def name(self, row: int) -> bytes:
        return self.names[row * NAME_SIZE : (row + 1) * NAME_SIZE]

    def entry(self, row: int) -> ChunkEntry:
        return self.entries([row])[0]

    def entries(self, rows: Sequence[int]) -> list[ChunkEntry]:
        """Those of some rows; raises IndexError for one that is not there."""
        # One call for the values of all of them.
        return [
            ChunkEntry(self.name(row), place, length, size, self._named(base, second), *rest)
            for row, (place, length, size, base, second, *rest) in zip(
                rows, self._rows[rows].tolist(), strict=True
            )
        ]

    def _named(self, *numbers: int) -> tuple[bytes, ...]:
        """The names of bases by their numbers, 0 for none."""
        if not numbers[0]:
            return ()
        return tuple(
            self._bases[(number - 1) * NAME_SIZE : number * NAME_SIZE]
            for number in numbers
            if number
        )

    @property
    def sizes(self) -> Column:
        """How many bytes each chunk has, by rows."""
        return self._columns[2]

    def in_order(self) -> Iterator[int]:
        """The rows in the order in which the chunks stand in the pack."""
        return map(int, self._order)

    def row_at(self, position: int) -> int:
        """The row of the chunk that stands at a position, from 0, in that order."""
        return int(self._order[position])

    def position(self, name: bytes) -> int:
        """The position of a chunk that the pack holds."""
        return int(self._positions[first_row(self.names, self._heads, name)])

    @cached_property
    def _rows(self) -> Column:
        # Of one array with all columns a row costs one call.
        rows = np.empty(self.count, ",".join(_COLUMNS[:-1]))
        for field, column in zip(rows.dtype.names or (), self._columns, strict=False):
            rows[field] = column
        return rows

    @cached_property
    def _order(self) -> Column:
        place, length = self._columns[:2]
        return np.lexsort((length, place))

    @cached_property
    def _positions(self) -> Column:
        return np.argsort(self._order)

    @property
    def nbytes(self) -> int:
        """Bytes of all chunks, decoded."""
        return int(self._columns[2].sum(dtype=object))

    def format(self) -> bytes:
        return b"".join((self.names, *(column.tobytes() for column in self._columns), self._bases))

    @property
    def bases(self) -> list[bytes]:
        """The names of all bases."""
        held = self._bases
        return [held[at : at + NAME_SIZE] for at in range(0, len(held), NAME_SIZE)]

    @property
    def base_count(self) -> int:
        return len(self._bases) // NAME_SIZE


def heads_of(names: bytes | memoryview) -> memoryview:
    """The first bytes of sorted names as numbers, which are found in a fifth of the time."""
    heads = np.frombuffer(names, ">u8")[:: NAME_SIZE // _HEAD_SIZE]
    return heads.astype(np.uint64).data


def first_row(names: bytes | memoryview, heads: memoryview, name: bytes) -> int:
    """The first of some sorted names, with their heads, that is not before `name`."""

    def at(row: int) -> bytes:
        return bytes(names[row * NAME_SIZE : (row + 1) * NAME_SIZE])

    head = int.from_bytes(name[:_HEAD_SIZE], "big")
    first = bisect_left(heads, head)
    # Whoever makes names up can have as many with one head as they like.
    return bisect_left(range(bisect_right(heads, head, first)), name, first, key=at)


def index_of(entries: Sequence[ChunkEntry]) -> ChunkIndex:
    """The index of a pack that is written; no name is there twice."""
    ordered = sorted(entries, key=lambda entry: entry.name)
    bases = sorted({base for entry in ordered for base in entry.bases})
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
        np.array(values, dtype=kind)
        for kind, values in zip(_COLUMNS, zip(*rows, strict=True), strict=True)
    ]
    return ChunkIndex(b"".join(e.name for e in ordered), columns, b"".join(bases))


def format_end(index: ChunkIndex, place: int) -> bytes:
    """Index and trailer of a pack whose index begins at `place`."""
    content = index.format()
    numbers = b"".join(n.to_bytes(8, "little") for n in (place, index.count, index.base_count))
    return content + numbers + sha256(content + numbers).digest() + _MAGIC_END


def parse_index(data: ByteView) -> ChunkIndex:
    """The index of the pack that `data` is all of.

    Raises FormatError where the pack breaks a rule; the chunks' bytes are not looked at.
    """
    size = len(data)
    if size < len(HEAD) + ROW_SIZE + _TRAILER.size:
        _fail(f"is cut short: {size} bytes", 0, "head")
    if data[: len(HEAD)] != HEAD:
        _fail("does not start as a version 1 pack does", 0, "head")
    return _parse_end(data, size)[0]


def parse_end(end: ByteView) -> tuple[ChunkIndex, int]:
    """The index that index and trailer of a pack hold, and how many bytes the pack has.

    Raises FormatError where they break a rule.
    """
    if len(end) < ROW_SIZE + _TRAILER.size:
        _fail(f"is cut short: {len(end)} bytes", 0, "trailer")
    place = int.from_bytes(mapped(end[len(end) - _TRAILER.size :])[:8], "little")
    if place > _MOST_PACK:
        _fail("has an index whose length is wrong", 0, "trailer")
    return _parse_end(end, place + len(end))


def _parse_end(data: ByteView, size: int) -> tuple[ChunkIndex, int]:
    """The index of a pack of `size` bytes, of which `data` is the end, or all; and that size."""
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
        columns.append(np.frombuffer(content, kind, count, at))
        at += columns[-1].nbytes
    index = ChunkIndex(bytes(content[: count * NAME_SIZE]), columns, bytes(content[at:]))
    _check_names(index.names, place, "name")
    _check_names(bytes(content[at:]), place + at, "base")
    _check_columns(columns, base_count, place)
    return index, size


def _check_names(names: bytes, at: int, field: str) -> None:
    if names:
        held = np.frombuffer(names, f"S{NAME_SIZE}")
        if not (held[1:] > held[:-1]).all():
            _fail("has names that are not in ascending order", at, field)


def _check_columns(columns: Sequence[Column], base_count: int, end: int) -> None:
    place, length, size, base, second, encoding, item, depth, zero = columns

    def check(holds: npt.NDArray[np.bool_], field: str) -> None:
        if not holds.all():
            _fail(f"has an invalid {field} in row {int(np.argmin(holds))}", end, field)

    # Bounded first: no sum of two of them is too large then.
    check(place <= end, "place")
    check(length <= end, "length")
    order = np.lexsort((length, place))
    ends = (place + length)[order]
    starts = np.concatenate((place[order], [end]))
    check(starts == np.concatenate((np.array([len(HEAD)], "u8"), ends)), "place")
    is_stored, has_base = encoding == STORED, encoding >= XOR
    check(encoding <= PREFIX, "encoding")
    check(np.where(is_stored, size == length, (size <= MAX_CODED) & (length < size)), "size")
    allowed = np.zeros((PREFIX + 1, 256), bool)
    for kind, items in ITEMS.items():
        allowed[kind, list(items)] = True
    check(allowed[encoding, item], "item")
    check(size % np.maximum(item, 1) == 0, "item")
    check((base <= base_count) & ((base > 0) == has_base), "base")
    check((second <= base_count) & ((second == 0) | (encoding == PREFIX)), "base")
    check((encoding != PREFIX) | (size <= MAX_MOVED), "size")
    check((depth <= MAX_DEPTH) & ((depth > 0) == has_base), "depth")
    check(zero == 0, "zero")


def _fail(what: str, offset: int, field: str) -> NoReturn:
    raise FormatError(what, offset=offset, field=field)


def file_digest(path: Path) -> str:
    """The SHA-256 of a pack's file, in hexadecimal: what it should be called.

    Raises FileNotFoundError, and EnvironmentFailure where it can't be read.
    """
    return hashed(sha256(), pieces(_view(path))).hexdigest()


def _view(path: Path) -> ByteView:
    try:
        with opened_regular(path) as (descriptor, _):
            # Its time changes when a chunk of it is used again; what is read is hashed.
            return read_view(descriptor, path, by_time=False)
    except FileNotFoundError:
        raise
    except OSError as error:
        with failures(path):
            raise error


class ChunkPack:
    """A pack that is open for reading, from any thread.

    Raises FormatError where it breaks a rule, EnvironmentFailure where it can't be read, and
    FileNotFoundError where it is not there.
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
        """The encoded bytes of a chunk of its index."""
        return self._data[entry.place : entry.place + entry.length]

    def encoded_runs(self, entries: Sequence[ChunkEntry]) -> Iterator[tuple[list[int], memoryview]]:
        """The same of some chunks, by their numbers: those that stand side by side in one piece."""
        ordered = sorted(range(len(entries)), key=lambda number: entries[number].place)
        while ordered:
            start = end = entries[ordered[0]].place
            count = 0
            while count < len(ordered) and entries[ordered[count]].place == end:
                end += entries[ordered[count]].length
                count += 1
            yield ordered[:count], mapped(self._data[start:end])
            ordered = ordered[count:]
