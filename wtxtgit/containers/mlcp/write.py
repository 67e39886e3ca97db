"""Writing MLCP files, and their JSON as .NET's System.Text.Json spells it.

The original writer stores no bytes of tensors. Inline they follow their records, an extension that
`read` recognises if it fits exactly. That it does is tested before anything is yielded, on the
pieces of the planned file. Spec: `docs/spec/mlcp.md`, "What is written" and "Metadata".
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from struct import pack
from typing import cast

from wtxtgit.containers import json_text
from wtxtgit.containers.budget import refuse_long, refuse_many
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.mlcp import MAGIC
from wtxtgit.containers.mlcp.read import (
    COUNT_SIZE,
    DTYPE_NUMBERS,
    ELEMENTS,
    MAX_STRING,
    MAX_ZEROS_SCAN,
    OWN,
    Placement,
    read_body,
    shard_list,
)
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.model.array import EPOCH
from wtxtgit.model.tensor import TensorSource

DTYPES = {element: name for name, element in ELEMENTS.items()}
"""The name of the dtype for each element that the format can hold."""

VERSION = "1.0.0"
"""The version that the original writer writes if the metadata have none."""
_OF_SHARDS = frozenset({"version", "shards", "format", "tensorInfos"})
"""Members that are not copied from another file's metadata: they follow from what is written."""
MAX_COUNT = 2**31 - 1
# Counts are int32 in a record, dimensions and sizes int64.
MAX_DIM = 2**63 - 1
_ESCAPED = re.compile(r"\\(?:u[0-9a-f]{4}|.)|[<>&'+`\x7f]")
"""An escape as Python writes it, or ASCII that .NET escapes and Python does not."""


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to be written, and the tensor's bytes."""

    shard: int
    record: bytes
    tensor: ShardPiece


def build_model(
    tensors: Sequence[TensorSource], tags: Mapping[str, object], inline_data: bool = False
) -> Iterator[Buffer]:
    """Write tensors as one shard, and tags as custom fields of the metadata.

    `tags` are texts, or what a file says of itself (`read.own_values`), which is copied. Without
    `inline_data` the file lists the tensors without their bytes, as the original writer does.
    Raises FormatError for names, dtypes and tags that the format can't hold, and if tensor bytes
    would be mistaken for records.
    """
    return build([tensors], tags=tags, inline_data=inline_data)


def build(
    shards: Sequence[Sequence[TensorSource]],
    metadata_json: bytes | None = None,
    *,
    version: str | None = None,
    tags: Mapping[str, object] | None = None,
    inline_data: bool = False,
) -> Iterator[Buffer]:
    """Write an MLCP file of these shards; yields the file's bytes in order.

    `metadata_json` is kept unchanged, and its version is used. Without it, metadata like the
    original writer's are made, with `tags` as custom fields. Raises FormatError for what the format
    can't hold or `read` would not return.
    """
    rows = [new_record(n, tensor) for n, shard in enumerate(shards) for tensor in shard]
    refuse_many(len(rows), MAX_TENSORS, "tensors", "records")
    if metadata_json is None:
        json_text.check_name(version or VERSION, "metadata", offset=0)
        metadata_json = format_json(new_metadata(shards, version or VERSION, tags or {}))
    metadata = json_text.parse(memoryview(metadata_json), "metadata")
    listed = shard_list(metadata)
    if len(listed) > len(shards):
        raise FormatError(
            f"the metadata lists {len(listed)} shards, but there are {len(shards)}", field="shards"
        )
    head = header(version or stated_version(metadata), metadata_json)
    body = body_pieces(
        rows, len(shards), Placement.AFTER_EACH if inline_data else Placement.NOWHERE
    )
    # Tensors may look like records, especially zeros ("What is written").
    if inline_data and any(row.tensor.length for row in rows):
        refuse_misread(body, len(listed), Placement.AFTER_EACH)
    return bytes_of([ShardPiece.fixed(head), *body])


def header(version: str, metadata_json: Buffer) -> bytes:
    """Return everything before the shards; raises FormatError if it is too long."""
    refuse_long(len(metadata_json), MAX_JSON, "metadata", "metadata")
    length = pack("<i", len(metadata_json))
    return b"".join((MAGIC, _net_string(version, "version"), length, metadata_json))


def new_record(shard: int, tensor: TensorSource) -> NewRecord:
    """Return the record of a tensor; raises FormatError for what the format can't hold."""
    dtype = DTYPES.get(tensor.element)
    name = quoted(tensor.name)
    if dtype is None:
        raise FormatError(
            f"tensor {name} is {tensor.element}, which MLCP does not have", field="dtype"
        )
    record = record_bytes(tensor.name, dtype, tensor.shape, tensor.nbytes)
    return NewRecord(shard, record, ShardPiece(tensor.nbytes, tensor.blocks))


def record_bytes(name: str, dtype: str, shape: tuple[int, ...], size: int) -> bytes:
    json_text.check_name(name, "tensor name", offset=0)
    raw = name.encode()
    if len(raw) > MAX_STRING:
        raise FormatError("a tensor's name is too long", kind="limit", field="name")
    if max((*shape, size)) > MAX_DIM or len(shape) > MAX_COUNT:
        raise FormatError(f"tensor {quoted(name)} is too large", kind="limit", field="shape")
    numbers = pack(f"<i{len(shape)}qq", len(shape), *shape, size)
    return b"".join((pack("<i", len(raw)), raw, _net_string(dtype, "dtype"), numbers))


def _net_string(text: str, field: str) -> bytes:
    """Return a .NET string: its length in groups of seven bits, lowest first, then UTF-8."""
    raw = text.encode()
    if len(raw) > MAX_STRING:
        raise FormatError(f"{field} is too long", kind="limit", field=field)
    length, groups = len(raw), bytearray()
    while length >= 0x80:
        groups.append(length & 0x7F | 0x80)
        length >>= 7
    groups.append(length)
    return bytes(groups) + raw


def body_pieces(
    rows: Sequence[NewRecord], shard_count: int, placement: Placement
) -> list[ShardPiece]:
    """Return everything after the metadata: a count for each shard, records, bytes."""
    counts = Counter(row.shard for row in rows)
    pieces: list[ShardPiece] = []
    text = bytearray()
    shard = -1
    for row in rows:
        if row.shard != shard:
            text += bytes(COUNT_SIZE * (row.shard - shard - 1)) + pack("<i", counts[row.shard])
            shard = row.shard
        text += row.record
        if placement is Placement.AFTER_EACH and row.tensor.length:
            pieces += [ShardPiece.fixed(bytes(text)), row.tensor]
            text.clear()
    text += bytes(COUNT_SIZE * (shard_count - shard - 1))
    pieces.append(ShardPiece.fixed(bytes(text)))
    if placement is Placement.AFTER_ALL:
        pieces += [row.tensor for row in rows if row.tensor.length]
    return pieces


def refuse_misread(body: Sequence[ShardPiece], listed: int, placement: Placement) -> None:
    """Raise FormatError unless `read` finds the tensors' bytes where they are.

    The placement is not written in the file, and the first that fits is taken. Bytes that are
    zeros, for example, can also be read as shards without tensors.
    """
    try:
        # It has a view's length and slices, which is all that is needed here.
        reading = read_body(cast(ByteView, Unwritten(body)), 0, listed)
    except FormatError as error:
        raise FormatError(
            f"metadata that lists {listed} shards does not fit the tensors: {error.message}",
            field="shards",
        ) from None
    if reading.placement is not placement:
        raise FormatError("the bytes of the tensors would be read as records", field="tensor bytes")


def bytes_of(pieces: Sequence[ShardPiece]) -> Iterator[Buffer]:
    """Yield the bytes of all pieces, in order."""
    for piece in pieces:
        yield from piece.blocks()


def stated_version(metadata: object) -> str:
    """Return the version that the original writer puts before the metadata."""
    version = metadata.get("version") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) and json_text.is_text(version) else VERSION


def new_metadata(
    shards: Sequence[Sequence[TensorSource]], version: str, tags: Mapping[str, object]
) -> dict[str, object]:
    """Return the metadata of these shards, with `tags` as custom fields or from another file.

    Raises FormatError for texts that JSON can't hold.
    """
    fields = {key: value for key, value in tags.items() if isinstance(value, str)}
    for text in (*fields.keys(), *fields.values()):
        json_text.check_name(text, "metadata", offset=0)
    described = describe_shards(shards, version, fields, DTYPES)
    own = tags.get(OWN)
    if not isinstance(own, dict):
        return described
    kept = {key: value for key, value in own.items() if key not in _OF_SHARDS}
    for key, other in (("sharding", "shardingStrategy"), ("shardingStrategy", "sharding")):
        if isinstance(kept.get(key), dict):
            kept[key] = {**kept[key], "shardCount": len(shards)}
            # Two names of one member, and a file may have only one of them.
            kept.setdefault(other, kept[key])
    return described | kept


def describe_shards(
    shards: Sequence[Sequence[TensorSource]],
    version: str,
    fields: Mapping[str, str],
    dtypes: Mapping[str, str],
) -> dict[str, object]:
    """Return the metadata that the original writer makes for these shards.

    `fields` are the custom ones, `dtypes` has each element's name in the format. The time is a
    fixed one: the same tensors give the same bytes.
    """
    sharding = {
        "strategy": "none",
        "shardCount": len(shards),
        "precision": _precision(shards),
        "strategySpecificInfo": {},
    }
    return {
        "version": version,
        "timestamp": EPOCH,
        "worldSize": len(shards),
        "ddpRank": 0,
        "sharding": sharding,
        "shards": [_shard(rank, shard, dtypes) for rank, shard in enumerate(shards)],
        "training": None,
        "customFields": dict(fields) or None,
        "format": "single_file",
        "shardingStrategy": sharding,
        "tensorInfos": None,
    }


def format_json(value: object) -> bytes:
    """Spell JSON as System.Text.Json does; strings must have no lone surrogates."""
    return _ESCAPED.sub(_escape, json.dumps(value, indent=2)).encode("ascii")


def _escape(match: re.Match[str]) -> str:
    escape = match[0]
    if escape.startswith("\\u"):
        return "\\u" + escape[2:].upper()
    if escape == '\\"' or not escape.startswith("\\"):
        return f"\\u{ord(escape[-1]):04X}"
    return escape


def _shard(
    rank: int, tensors: Sequence[TensorSource], dtypes: Mapping[str, str]
) -> dict[str, object]:
    listed = []
    end = 0
    for tensor in tensors:
        listed.append(
            {
                "name": tensor.name,
                "shape": list(tensor.shape),
                "dataType": DTYPE_NUMBERS[dtypes[tensor.element]],
                "offset": end,
                "size": tensor.nbytes,
            }
        )
        end += tensor.nbytes
    return {
        "rank": rank,
        "filePath": f"shard_{rank}.shard",
        "fileSize": end,
        "tensors": listed,
        "checksum": None,
    }


def _precision(shards: Iterable[Iterable[TensorSource]]) -> str:
    """Return the common dtype of all float tensors, `mixed` if there are several."""
    short = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64"}
    precisions = {short[t.element] for tensors in shards for t in tensors if t.element in short}
    return precisions.pop() if len(precisions) == 1 else "mixed"


STEP = 1 << 16
# This many of the last bytes are kept: a reader searches ahead for the end of runs of zeros by up
# to MAX_ZEROS_SCAN, and then goes back.
KEPT = 2 * MAX_ZEROS_SCAN


@dataclass(frozen=True, slots=True, eq=False)
class ShardPiece:
    """`length` bytes, which `blocks` yields in order each time."""

    length: int
    blocks: Callable[[], Iterator[Buffer]]

    @classmethod
    def fixed(cls, content: bytes) -> ShardPiece:
        return cls(len(content), lambda: iter((content,)))


class Unwritten:
    """Pieces one after another, with the length and the slices of a view.

    Of each piece only the bytes up to the requested ones are made, and only the last of them are
    held.
    """

    def __init__(self, pieces: Sequence[ShardPiece]) -> None:
        self._pieces = pieces
        self._ends = list(accumulate(piece.length for piece in pieces))
        self._open = -1
        self._steps: Iterator[memoryview] = iter(())
        self._buffer = bytearray()
        self._buffer_start = 0

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, part: slice) -> memoryview:
        start, end, _ = part.indices(len(self))
        content = bytearray()
        while start < end:
            number = bisect_right(self._ends, start)
            stop = min(end, self._ends[number])
            content += self._from_piece(number, start, stop)
            start = stop
        return memoryview(content)

    def _from_piece(self, number: int, start: int, end: int) -> bytearray:
        """Return bytes [start, end) of the whole, which lie in one piece."""
        if number != self._open or start < self._buffer_start:
            self._open = number
            self._steps = _steps(self._pieces[number].blocks())
            self._buffer = bytearray()
            self._buffer_start = self._ends[number] - self._pieces[number].length
        while self._buffer_start + len(self._buffer) < end:
            step = next(self._steps, None)
            if step is None:
                raise FormatError("a tensor's source gave too few bytes", field="tensor bytes")
            self._buffer += step
            passed = min(start - self._buffer_start, len(self._buffer)) - KEPT
            if passed > KEPT:
                del self._buffer[:passed]
                self._buffer_start += passed
        return self._buffer[start - self._buffer_start : end - self._buffer_start]


def _steps(blocks: Iterable[Buffer]) -> Iterator[memoryview]:
    for block in blocks:
        yield from pieces(memoryview(block).cast("B"), STEP)
