"""MLCP (.checkpoint): one file of metadata and tensor records. Little-endian.

Magic, .NET version string, int32 length and JSON, then shards: an int32 count and that many
records. The original writer stores no tensor bytes; files that do have them after each record, or
after all records. Spec: `docs/spec/containers.md`, "MLCP"; `docs/spec/mlcp.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from operator import attrgetter
from struct import unpack

from wtxtgit.containers import json_text, ranges
from wtxtgit.containers.cursor import TEXT, Cursor, ListingBudget, fail, quoted
from wtxtgit.containers.format import Container
from wtxtgit.containers.intervals import Span
from wtxtgit.containers.mlcp import MAGIC
from wtxtgit.containers.ranges import MAX_TENSORS, Range, Stored
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView, mapped
from wtxtgit.model.tensor import Description, ReadOptions

COUNT_SIZE = 4
DIM_SIZE = 8
# Longest .NET string in bytes: its length is an int32.
MAX_STRING = 2**31 - 1
# The length of a .NET string takes up to five bytes of seven bits each, for an int32.
MAX_STRING_LENGTH_SIZE = 5
# The end of a run of zeros is searched in so many bytes first, then twice as many each time: most
# runs are short, but a file of zeros is a single one.
FIRST_ZEROS_SCAN = 64
MAX_ZEROS_SCAN = 1 << 20
NO_BYTES = "the file does not hold the bytes of tensors"
HEADER_ROLE = "_header"
RECORDS_ROLE = "_records"

ELEMENTS = {
    "Float16": "f16",
    "BFloat16": "bf16",
    "Float32": "f32",
    "Float64": "f64",
    "Int8": "i8",
    "Int16": "i16",
    "Int32": "i32",
    "Int64": "i64",
    "UInt8": "u8",
    "UInt16": "u16",
    "UInt32": "u32",
    "UInt64": "u64",
    "Bool": "bool",
}
DTYPE_NAMES = (
    "Float16",
    "Float32",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "Bool",
    "BFloat16",
)
"""Records have the name, the JSON has its index in this enumeration."""
DTYPE_NUMBERS = {name: number for number, name in enumerate(DTYPE_NAMES)}

INFOS, OFFSET, FURTHER = "tensorInfos", "offset", "further"
REPEATED = frozenset({"name", "shape", "dataType", OFFSET, "size"})
"""Keys of a tensor in the metadata that repeat its record, or follow from the records (offset)."""
OWN = "\0own"
"""The key of a file's own metadata among values that are copied; it is not a custom field."""
_REPEATED = frozenset({"version", "format", "shards", "customFields", "tensorInfos"})
"""Members that repeat the file's structure, its tensors or the tags."""


class Placement(Enum):
    """Where the tensors' bytes are, in the order in which this is tried."""

    NOWHERE = "nowhere"
    AFTER_EACH = "after each record"
    AFTER_ALL = "after all records"


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """A tensor's record, [start, end) in the file.

    `size` is the number of bytes that it claims, `shard` the shard that lists it, counted from 0.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    start: int
    end: int
    shard: int


@dataclass(frozen=True, slots=True)
class ShardRecords:
    """All shards: their records, where these end, and where the tensors' bytes are."""

    records: tuple[TensorRecord, ...]
    end: int
    shard_count: int
    placement: Placement


@dataclass(frozen=True, slots=True, eq=False)
class Mlcp(Container):
    """An MLCP file that was read.

    `metadata` is the value of its JSON, which is data[metadata_start:header_end];
    `has_repeated_keys` if one of its objects has a key twice.
    """

    data: ByteView
    version: str
    metadata: object
    metadata_start: int
    header_end: int
    body: ShardRecords
    has_repeated_keys: bool = False

    def by_shard(self) -> dict[int, tuple[TensorRecord, ...]]:
        """Return the records of each shard that has any."""
        of_shard = attrgetter("shard")
        return {shard: tuple(group) for shard, group in groupby(self.body.records, of_shard)}

    def tensors(self) -> Iterator[Stored]:
        start = self.body.end
        for record in self.body.records:
            if self.body.placement is not Placement.AFTER_ALL:
                start = record.end
            size = 0 if self.body.placement is Placement.NOWHERE else record.size
            element = ELEMENTS.get(record.dtype)
            yield Stored(record.name, record.dtype, record.shape, start, start + size, element)
            start += size

    def tensor_shards(self) -> Iterator[tuple[str, int]]:
        yield from ((record.name, record.shard) for record in self.body.records)

    def is_padding(self, start: int, end: int) -> bool:
        return False

    def used_spans(self) -> Iterator[Span]:
        yield from ((one.start, one.end) for one in self.ranges())
        # Records may stand between tensors, in no range of their own.
        start = self.header_end
        if self.body.placement is Placement.AFTER_EACH:
            for tensor in self.tensors():
                yield start, tensor.start
                start = tensor.end
        yield start, self.body.end

    def ranges(self) -> Iterator[Range]:
        yield ranges.part(0, self.header_end, HEADER_ROLE)
        if self.body.placement is not Placement.AFTER_EACH:
            yield ranges.part(self.header_end, self.body.end, RECORDS_ROLE)
        for tensor in self.tensors():
            yield ranges.tensor(tensor)

    def why_absent(self, record: TensorRecord) -> str | None:
        is_empty = record.size == 0 and 0 in record.shape
        return NO_BYTES if self.body.placement is Placement.NOWHERE and not is_empty else None


def describe(container: Mlcp, options: ReadOptions) -> Description:
    """Describe the file."""
    return Description(
        "mlcp",
        tuple(
            tensor.listed(container.data, container.why_absent(record))
            for tensor, record in zip(container.tensors(), container.body.records, strict=True)
        ),
        {"version": container.version, "metadata": container.metadata}
        | lists_told(container.metadata),
        tags=custom_fields(container.metadata),
        untold=untold(container.metadata),
        own=own_values(container.metadata),
    )


def lists_told(metadata: object) -> dict[str, object]:
    """Return what lists of tensors in the metadata say that does not follow from the tensors."""
    if not isinstance(metadata, dict):
        return {}
    lists = {f"shards/{n}": _member(shard) for n, shard in enumerate(shard_list(metadata))}
    infos = metadata.get(INFOS, "missing")
    # The original writer leaves it null.
    infos_word = "a list" if isinstance(infos, list) else infos
    further: dict[str, object] = {} if infos is None else {INFOS: infos_word}
    places: dict[str, object] = {}
    for where, listed in {**lists, INFOS: infos}.items():
        reached = 0
        items = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        # Some writers set none of them.
        has_places = any(item.get(OFFSET) != 0 for item in items)
        if len(items) > 1 and not has_places:
            places[where] = 0
        for item in items:
            at = f"{where}/{item.get('name')}"
            more = {key: value for key, value in item.items() if key not in REPEATED}
            if more:
                further[at] = more
            place, size = item.get(OFFSET), item.get("size")
            # Within each shard offsets count its bytes.
            if has_places and place != reached and not (place == 0 and where == INFOS):
                places[at] = place
            reached = (0 if place == 0 else reached) + (size if type(size) is int else 0)
    untold = {FURTHER: further, "offsets": places}
    return {key: value for key, value in untold.items() if value}


def _member(shard: object) -> object:
    return shard.get("tensors") if isinstance(shard, dict) else None


def own_values(metadata: object) -> Callable[[], Mapping[str, object]] | None:
    """Return what is independent of a file's tensors, to be written to another MLCP file.

    Custom fields are part of it. Returns None if the metadata are not an object.
    """
    if not isinstance(metadata, dict):
        return None
    return lambda: {**custom_fields(metadata), OWN: metadata}


def read(data: ByteView, listing: ListingBudget | None = None) -> Mlcp:
    """Read an MLCP file; raises FormatError."""
    listing = listing or ListingBudget(len(data))
    repeated: list[str] = []
    version, metadata, start, header_end = read_head(data, listing, repeated)
    shards = read_body(data, header_end, len(shard_list(metadata)), listing)
    return Mlcp(data, version, metadata, start, header_end, shards, bool(repeated))


def read_head(
    data: ByteView, listing: ListingBudget | None = None, repeated: list[str] | None = None
) -> tuple[str, object, int, int]:
    """Return the version, the value of the JSON, where it starts and ends; raises FormatError.

    Repeated keys are added to `repeated`.
    """
    listing = listing or ListingBudget(len(data))
    cursor = Cursor(data, len(MAGIC))
    version = _net_string(cursor, "version")
    length = cursor.integer(COUNT_SIZE, "metadata length", signed=True)
    body = cursor.take(length, "metadata")
    start = cursor.pos - length
    listing.count(TEXT * len(version), start, "version")
    metadata = json_text.parse(body, "metadata", offset=start, listing=listing, repeated=repeated)
    return version, metadata, start, cursor.pos


def read_body(
    data: ByteView, start: int, shard_count: int, listing: ListingBudget | None = None
) -> ShardRecords:
    """Return the shards that begin at `start`, in the first placement that fits exactly.

    `shard_count` is how many the metadata list; without tensor bytes as many are read as there are.
    Raises FormatError if no placement fits.
    """
    listing = listing or ListingBudget(len(data))
    left = listing.left
    errors: list[FormatError] = []
    # Nothing in a file says which: the first that ends at the end of the file is taken.
    for placement in Placement:
        count = None if placement is Placement.NOWHERE else shard_count
        listing.left = left
        try:
            return _read_shards(data, start, count, placement, listing)
        except FormatError as error:
            # The traceback holds the records that were read.
            errors.append(error.with_traceback(None))
    # The first placement is the original writer's, so its error is the most useful.
    raise errors[0]


def shard_list(metadata: object) -> list[object]:
    """Return the list `shards`; [] if it is null, missing or not a list."""
    shards = metadata.get("shards") if isinstance(metadata, dict) else None
    return shards if isinstance(shards, list) else []


def custom_fields(metadata: object) -> dict[str, str]:
    """Return the custom fields that are texts; they become tags in other formats."""
    return json_text.texts(metadata.get("customFields") if isinstance(metadata, dict) else None)


def untold(metadata: object) -> tuple[str, ...]:
    """Return members that hold anything beyond tensors and texts among the custom fields."""
    if not isinstance(metadata, dict):
        return () if metadata is None else ("metadata",)
    members = [
        key
        for key, value in metadata.items()
        # The original writer writes the sharding twice.
        if key not in _REPEATED
        and value is not None
        and not (key == "shardingStrategy" and value == metadata.get("sharding"))
    ]
    if len(shard_list(metadata)) > 1:
        members.append("shards")
    fields = metadata.get("customFields")
    if isinstance(fields, dict):
        kept = custom_fields(metadata)
        members += [f"customFields.{key}" for key in fields if key not in kept]
    elif fields is not None:
        members.append("customFields")
    return tuple(json_text.shown_key(key) for key in members)


def _net_string(cursor: Cursor, field: str) -> str:
    """Read a .NET string: its length in groups of seven bits, lowest first, then UTF-8."""
    start = cursor.pos
    length = 0
    for group in range(MAX_STRING_LENGTH_SIZE):
        byte = cursor.integer(1, field)
        length |= (byte & 0x7F) << (7 * group)
        if byte < 0x80:
            break
    else:
        fail(f"the length of {field} does not end", offset=start, field=field)
    if length > MAX_STRING:
        fail(f"{field} has length {length}", offset=start, field=field)
    return cursor.text(length, field)


def _read_shards(
    data: ByteView, start: int, count: int | None, placement: Placement, listing: ListingBudget
) -> ShardRecords:
    """Return the records of `count` shards; if None, of as many as there are.

    Raises FormatError unless records and bytes end exactly at the end of the file.
    """
    cursor = Cursor(data, start)
    records: list[TensorRecord] = []
    most = cursor.remaining if count is None else count
    shard = 0
    while shard < most and (cursor.remaining or count is not None):
        # A shard without tensors is four zero bytes: a file of zeros has millions of them.
        empty = min(_zero_run(data, cursor.pos) // COUNT_SIZE, most - shard)
        cursor.pos += empty * COUNT_SIZE
        shard += empty
        if not empty:
            _read_shard(cursor, shard, records, placement, listing)
            shard += 1
    end = cursor.pos
    if placement is Placement.AFTER_ALL:
        cursor.skip(sum(record.size for record in records), "tensor bytes")
    if cursor.remaining:
        fail("bytes follow the last record", offset=cursor.pos, field="records")
    return ShardRecords(tuple(records), end, shard, placement)


def _read_shard(
    cursor: Cursor,
    shard: int,
    records: list[TensorRecord],
    placement: Placement,
    listing: ListingBudget,
) -> None:
    start = cursor.pos
    count = cursor.integer(COUNT_SIZE, "tensor count", signed=True)
    if count < 0:
        fail(f"tensor count is {count}", offset=start, field="tensor count")
    for _ in range(count):
        if len(records) >= MAX_TENSORS:
            fail(
                "shards list too many tensors in total", offset=start, field="records", kind="limit"
            )
        record = read_record(cursor, shard)
        # Without tensor bytes a size is only a claim, about which a check warns.
        if record.size < 0 and placement is not Placement.NOWHERE:
            fail(f"size is {record.size}", offset=record.end - DIM_SIZE, field="size")
        words = (record.name, record.dtype)
        listing.item(words, record.start, "records", rank=len(record.shape))
        # In the other placements records are contiguous.
        if placement is Placement.AFTER_EACH:
            cursor.skip(record.size, f"tensor {quoted(record.name)}")
        records.append(record)


def read_record(cursor: Cursor, shard: int) -> TensorRecord:
    """Read the record at the cursor; raises FormatError."""
    start = cursor.pos
    length = cursor.integer(COUNT_SIZE, "name length", signed=True)
    name = cursor.text(length, "name")
    dtype = _net_string(cursor, "dtype")
    rank = cursor.integer(COUNT_SIZE, "rank", signed=True)
    shape = unpack(f"<{rank}q", mapped(cursor.take(rank * DIM_SIZE, "shape")))
    size = cursor.integer(DIM_SIZE, "size", signed=True)
    return TensorRecord(name, dtype, shape, size, start, cursor.pos, shard)


def _zero_run(data: ByteView, start: int) -> int:
    """Return how many zero bytes follow `start`; shards without tensors consist of them."""
    pos, step = start, FIRST_ZEROS_SCAN
    while pos < len(data):
        block = bytes(data[pos : pos + step])
        rest = len(block.lstrip(b"\0"))
        if rest:
            return pos + len(block) - rest - start
        pos += len(block)
        step = min(step * 2, MAX_ZEROS_SCAN)
    return pos - start
