"""MLCP (.checkpoint): one file of metadata and tensor records. Little-endian.

Magic, .NET version string, int32 length and JSON, then shards: an int32
count and that many records. Their own writer stores no tensor bytes; files
that do have them after each record, or after all records.
Spec: `docs/spec/containers.md`, "MLCP".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from struct import unpack_from

from wtxtgit.containers import json_limits, ranges
from wtxtgit.containers.cursor import Cursor, fail, quoted
from wtxtgit.containers.magic import MLCP_MAGIC
from wtxtgit.containers.ranges import MAX_TENSORS, Numeric, Range, Stored
from wtxtgit.errors import FormatError
from wtxtgit.model import Description

COUNT_SIZE = 4
DIM_SIZE = 8
MAX_STRING = 2**31 - 1
"""Longest .NET string, in bytes."""
MAX_STRING_LENGTH_SIZE = 5
"""Bytes of seven bits each that say how long a .NET string is."""
FIRST_ZEROS_SCAN = 64
MAX_ZEROS_SCAN = 1 << 20
HEADER_ROLE = "_header"
RECORDS_ROLE = "_records"

NUMERIC = {
    "Float16": Numeric("u16"),
    "BFloat16": Numeric("u16"),
    "Float32": Numeric("f32"),
    "Float64": Numeric("f64"),
    "Int8": Numeric("i8"),
    "Int16": Numeric("i16"),
    "Int32": Numeric("i32"),
    "Int64": Numeric("i64"),
    "UInt8": Numeric("u8"),
    "UInt16": Numeric("u16"),
    "UInt32": Numeric("u32"),
    "UInt64": Numeric("u64"),
    "Bool": Numeric("u8"),
}


class Placement(Enum):
    """Where the tensors' bytes are, in the order in which it is tried."""

    NOWHERE = "nowhere"
    AFTER_EACH = "after each record"
    AFTER_ALL = "after all records"


@dataclass(frozen=True, slots=True)
class Record:
    """A tensor's record; `end` is where it ends, `size` what it claims."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class Mlcp:
    """An MLCP file that was read; `metadata` is its JSON's value."""

    data: memoryview
    version: str
    metadata: object
    header_end: int
    records_end: int
    records: tuple[Record, ...]
    placement: Placement

    def tensors(self) -> Iterator[Stored]:
        start = self.records_end
        for record in self.records:
            if self.placement is not Placement.AFTER_ALL:
                start = record.end
            size = 0 if self.placement is Placement.NOWHERE else record.size
            yield Stored(record.name, record.dtype, record.shape, start, start + size)
            start += size

    def ranges(self) -> Iterator[Range]:
        yield ranges.part(0, self.header_end, HEADER_ROLE)
        if self.placement is not Placement.AFTER_EACH:
            yield ranges.part(self.header_end, self.records_end, RECORDS_ROLE)
        for tensor in self.tensors():
            yield ranges.tensor(tensor, NUMERIC.get(tensor.dtype))

    def describe(self) -> Description:
        nowhere = self.records if self.placement is Placement.NOWHERE else ()
        return Description(
            "mlcp",
            tuple(tensor.listed(self.data) for tensor in self.tensors()),
            {
                "version": self.version,
                "metadata": self.metadata,
                "absent": [{"name": record.name, "size": record.size} for record in nowhere],
            },
        )


def read(data: memoryview) -> Mlcp:
    """Read an MLCP file; raises FormatError."""
    cursor = Cursor(data, len(MLCP_MAGIC))
    version = _net_string(cursor, "version")
    length = cursor.integer(COUNT_SIZE, "metadata length", signed=True)
    body = cursor.take(length, "metadata")
    header_end = cursor.pos
    metadata = json_limits.parse(body, "metadata", offset=header_end - length)
    errors: list[FormatError] = []
    for placement in Placement:
        count = None if placement is Placement.NOWHERE else _shard_count(metadata)
        try:
            records, end = _read_shards(data, header_end, count, placement)
        except FormatError as error:
            errors.append(error)
        else:
            return Mlcp(data, version, metadata, header_end, end, records, placement)
    raise errors[0]


def _shard_count(metadata: object) -> int:
    shards = metadata.get("shards") if isinstance(metadata, dict) else None
    return len(shards) if isinstance(shards, list) else 0


def _net_string(cursor: Cursor, field: str) -> str:
    """A .NET string: its length in groups of seven bits, the lowest first, then UTF-8."""
    start = cursor.pos
    length = 0
    for group in range(MAX_STRING_LENGTH_SIZE):
        byte = cursor.integer(1, field)
        length |= (byte & 0x7F) << (7 * group)
        if byte < 0x80:
            break
    else:
        fail(f"{field} has an endless length", offset=start, field=field)
    if length > MAX_STRING:
        fail(f"{field} has the length {length}", offset=start, field=field)
    return cursor.text(length, field)


def _read_shards(
    data: memoryview, start: int, count: int | None, placement: Placement
) -> tuple[tuple[Record, ...], int]:
    """The records of `count` shards (None: as many as there are), and their end.

    Raises FormatError unless records and bytes end exactly where the file does.
    """
    cursor = Cursor(data, start)
    records: list[Record] = []
    left = cursor.remaining if count is None else count
    while left and (cursor.remaining or count is not None):
        empty = min(_zero_run(data, cursor.pos) // COUNT_SIZE, left)
        cursor.pos += empty * COUNT_SIZE
        left -= empty
        if not empty:
            _read_shard(cursor, records, placement)
            left -= 1
    end = cursor.pos
    if placement is Placement.AFTER_ALL:
        cursor.skip(sum(record.size for record in records), "tensor bytes")
    if cursor.remaining:
        fail("bytes follow the last record", offset=cursor.pos, field="records")
    return tuple(records), end


def _read_shard(cursor: Cursor, records: list[Record], placement: Placement) -> None:
    start = cursor.pos
    count = cursor.integer(COUNT_SIZE, "tensor count", signed=True)
    if count < 0:
        fail(f"tensor count is {count}", offset=start, field="tensor count")
    for _ in range(count):
        if len(records) >= MAX_TENSORS:
            fail("shards list too many tensors", offset=start, field="records", kind="limit")
        record = _read_record(cursor)
        if record.size < 0 and placement is not Placement.NOWHERE:
            fail(f"size is {record.size}", offset=record.end - DIM_SIZE, field="size")
        if placement is Placement.AFTER_EACH:
            cursor.skip(record.size, f"tensor {quoted(record.name)}")
        records.append(record)


def _read_record(cursor: Cursor) -> Record:
    length = cursor.integer(COUNT_SIZE, "name length", signed=True)
    name = cursor.text(length, "name")
    dtype = _net_string(cursor, "dtype")
    rank = cursor.integer(COUNT_SIZE, "rank", signed=True)
    dims = cursor.skip(rank * DIM_SIZE, "shape")
    shape = unpack_from(f"<{rank}q", cursor.data, dims)
    size = cursor.integer(DIM_SIZE, "size", signed=True)
    return Record(name, dtype, shape, size, cursor.pos)


def _zero_run(data: memoryview, start: int) -> int:
    """How many zero bytes follow `start`; shards without tensors are made of them."""
    pos, step = start, FIRST_ZEROS_SCAN
    while pos < len(data):
        block = bytes(data[pos : pos + step])
        rest = len(block.lstrip(b"\0"))
        if rest:
            return pos + len(block) - rest - start
        pos += len(block)
        step = min(step * 2, MAX_ZEROS_SCAN)
    return pos - start
