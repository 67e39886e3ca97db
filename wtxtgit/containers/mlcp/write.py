"""Writing MLCP files.

The original writer stores no bytes of tensors. Inline they follow their
records, an extension that `read` reads where it fits exactly. Whether it does
is tried before anything is given out.
Spec: `docs/spec/mlcp.md`, "What is written".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from struct import pack
from typing import cast

from wtxtgit.containers import json_limits
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.mlcp import MAGIC
from wtxtgit.containers.mlcp.metadata import (
    VERSION,
    describe_shards,
    format_json,
    shard_list,
    stated_version,
)
from wtxtgit.containers.mlcp.read import (
    COUNT_SIZE,
    ELEMENTS,
    MAX_STRING,
    Mlcp,
    Placement,
    read_body,
)
from wtxtgit.containers.mlcp.unwritten import Piece, Unwritten
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.model.reading import TensorSource

DTYPES = {element: name for name, element in ELEMENTS.items()}
"""The dtype's name of each element that the format can hold."""

MAX_COUNT = 2**31 - 1
MAX_DIM = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Row:
    """A record to be written, and the tensor's bytes."""

    shard: int
    record: bytes
    nbytes: int
    blocks: Callable[[], Iterator[Buffer]]


def build_model(
    tensors: Sequence[TensorSource], tags: Mapping[str, str], inline_data: bool = False
) -> Iterator[Buffer]:
    """Write tensors as one shard, and tags as custom fields of the metadata.

    Without `inline_data` the file lists the tensors and has no bytes of them,
    as the original writer leaves it. Raises FormatError for names, dtypes
    and tags that the format can't hold, and where tensor bytes would be taken
    for records.
    """
    return build([tensors], tags=tags, inline_data=inline_data)


def build(
    shards: Sequence[Sequence[TensorSource]],
    metadata_json: bytes | None = None,
    *,
    version: str | None = None,
    tags: Mapping[str, str] | None = None,
    inline_data: bool = False,
) -> Iterator[Buffer]:
    """Write an MLCP file of these shards; it gives the file's bytes in order.

    `metadata_json` is kept as it is, and its version taken. Without it,
    metadata like the original writer's are made, with `tags` as custom fields.
    Raises FormatError for what the format can't hold or `read` would not give
    back.
    """
    rows = [_row(number, tensor) for number, shard in enumerate(shards) for tensor in shard]
    if len(rows) > MAX_TENSORS:
        raise FormatError(f"{len(rows)} tensors are too many", kind="limit", field="records")
    if metadata_json is None:
        custom_fields = tags or {}
        for text in (version or VERSION, *custom_fields.keys(), *custom_fields.values()):
            json_limits.check_name(text, "metadata", offset=0)
        described = describe_shards(shards, version or VERSION, custom_fields, DTYPES)
        metadata_json = format_json(described)
    metadata = json_limits.parse(memoryview(metadata_json), "metadata")
    listed = shard_list(metadata)
    if len(listed) > len(shards):
        raise FormatError(
            f"the metadata lists {len(listed)} shards, there are {len(shards)}", field="shards"
        )
    head = header(version or stated_version(metadata), metadata_json)
    body = body_pieces(
        rows, len(shards), Placement.AFTER_EACH if inline_data else Placement.NOWHERE
    )
    if inline_data and any(row.nbytes for row in rows):
        refuse_misread(body, len(listed), Placement.AFTER_EACH)
    return bytes_of([Piece.fixed(head), *body])


def rebuild(container: Mlcp) -> Iterator[Buffer]:
    """Write a file that was read, its metadata as they are.

    It gives the same bytes wherever .NET strings have their shortest length,
    which no writer misses.
    """
    data = container.data
    rows = [
        Row(
            record.shard,
            _record(record.name, record.dtype, record.shape, record.size),
            tensor.end - tensor.start,
            partial(pieces, data[tensor.start : tensor.end]),
        )
        for record, tensor in zip(container.body.records, container.tensors(), strict=True)
    ]
    head = header(container.version, bytes(data[container.metadata_start : container.header_end]))
    body = body_pieces(rows, container.body.shard_count, container.body.placement)
    return bytes_of([Piece.fixed(head), *body])


def header(version: str, metadata_json: Buffer) -> bytes:
    """What stands before the shards; raises FormatError where it is too long."""
    if len(metadata_json) > MAX_JSON:
        raise FormatError(
            f"metadata of {len(metadata_json)} bytes is too long", kind="limit", field="metadata"
        )
    length = pack("<i", len(metadata_json))
    return b"".join((MAGIC, _net_string(version, "version"), length, metadata_json))


def _row(shard: int, tensor: TensorSource) -> Row:
    dtype = DTYPES.get(tensor.element)
    name = quoted(tensor.name)
    if dtype is None:
        raise FormatError(f"tensor {name} is {tensor.element}, which MLCP has not", field="dtype")
    record = _record(tensor.name, dtype, tensor.shape, tensor.nbytes)
    return Row(shard, record, tensor.nbytes, tensor.blocks)


def _record(name: str, dtype: str, shape: tuple[int, ...], size: int) -> bytes:
    json_limits.check_name(name, "tensor name", offset=0)
    raw = name.encode()
    if len(raw) > MAX_STRING:
        raise FormatError("a tensor's name is too long", kind="limit", field="name")
    if max((*shape, size)) > MAX_DIM or len(shape) > MAX_COUNT:
        raise FormatError(f"tensor {quoted(name)} is too large", kind="limit", field="shape")
    numbers = pack(f"<i{len(shape)}qq", len(shape), *shape, size)
    return b"".join((pack("<i", len(raw)), raw, _net_string(dtype, "dtype"), numbers))


def _net_string(text: str, field: str) -> bytes:
    """A .NET string: its length in groups of seven bits, the lowest first, then UTF-8."""
    raw = text.encode()
    if len(raw) > MAX_STRING:
        raise FormatError(f"{field} is too long", kind="limit", field=field)
    length, groups = len(raw), bytearray()
    while length >= 0x80:
        groups.append(length & 0x7F | 0x80)
        length >>= 7
    groups.append(length)
    return bytes(groups) + raw


def body_pieces(rows: Sequence[Row], shard_count: int, placement: Placement) -> list[Piece]:
    """What follows the metadata: a count for each shard, records, bytes."""
    counts: dict[int, int] = {}
    for row in rows:
        counts[row.shard] = counts.get(row.shard, 0) + 1
    pieces: list[Piece] = []
    text = bytearray()
    shard = -1
    for row in rows:
        if row.shard != shard:
            text += bytes(COUNT_SIZE * (row.shard - shard - 1)) + pack("<i", counts[row.shard])
            shard = row.shard
        text += row.record
        if placement is Placement.AFTER_EACH and row.nbytes:
            pieces += [Piece.fixed(bytes(text)), Piece(row.nbytes, row.blocks)]
            text.clear()
    text += bytes(COUNT_SIZE * (shard_count - shard - 1))
    pieces.append(Piece.fixed(bytes(text)))
    if placement is Placement.AFTER_ALL:
        pieces += [Piece(row.nbytes, row.blocks) for row in rows if row.nbytes]
    return pieces


def refuse_misread(body: Sequence[Piece], listed: int, placement: Placement) -> None:
    """Raise FormatError unless `read` finds the tensors' bytes where they are.

    Which placement a file has is not written in it, and the first that fits
    is taken. Bytes that are zeros, say, are also shards without tensors.
    """
    try:
        # It has a view's length and slices, which is all that is asked of it.
        found = read_body(cast(ByteView, Unwritten(body)), 0, listed)
    except FormatError as error:
        raise FormatError(
            f"metadata that list {listed} shards do not go with tensor bytes: {error.message}",
            field="shards",
        ) from None
    if found.placement is not placement:
        raise FormatError("bytes of tensors would be read as records", field="tensor bytes")


def bytes_of(pieces: Sequence[Piece]) -> Iterator[Buffer]:
    """The bytes of all pieces, in order."""
    for piece in pieces:
        yield from piece.blocks()
