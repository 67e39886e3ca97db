"""Salvaging a damaged MLCP file: the format has no hashes, so nothing is proved.

The metadata list the tensors, and the records repeat this: a record that differs is rejected. If
records and bytes do not end at the end of the file, it was truncated, or a record is damaged: what
follows that can't be interpreted. Spec: `docs/spec/mlcp.md`, "Salvage".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from wtxtgit.containers import salvage as shared
from wtxtgit.containers.cursor import Cursor
from wtxtgit.containers.mlcp.check import different
from wtxtgit.containers.mlcp.read import (
    COUNT_SIZE,
    DTYPE_NAMES,
    ELEMENTS,
    NO_BYTES,
    Placement,
    TensorRecord,
    custom_fields,
    read_body,
    read_head,
    read_record,
    shard_list,
)
from wtxtgit.containers.ranges import MAX_TENSORS, Stored
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView
from wtxtgit.model.array import bounded_product
from wtxtgit.model.salvage import Salvage, SalvagedTensor, TensorState
from wtxtgit.model.tensor import ITEM_BYTES, ReadOptions, Tensor

NO_RECORD = "its record is lost"
NO_PLACE = "a later record is lost, so where its bytes start is not known"
OTHERWISE = "the metadata contradicts its record"
UNFIT = "its size does not fit its dtype and shape"

_Lists = Sequence[Sequence[object] | None]
"""What the metadata list for each shard, None if they list nothing."""
_Placed = list[tuple[TensorRecord, int | None]]
"""Records, and where each one's bytes start, None if that is not known."""


def salvage(data: ByteView, _options: ReadOptions) -> Salvage:
    """Return the tensors whose bytes exist; raises FormatError if the metadata can't be read."""
    _, metadata, _, start = read_head(data)
    lists = [_list_of(shard) for shard in shard_list(metadata)]
    has_bytes = True
    try:
        body = read_body(data, start, len(lists))
    except FormatError:
        # If two placements get equally far, the first one assumes less.
        walks = [_walk(data, start, lists, how) for how in (Placement.AFTER_ALL, _EACH)]
        placed = max(walks, key=len)
    else:
        has_bytes = body.placement is not Placement.NOWHERE
        each = body.placement is _EACH
        placed = [(r, r.end) for r in body.records] if each else _behind(body.records, body.end)
    others = _others(lists, placed)
    listed = [_stored(record, at, is_other=n in others) for n, (record, at) in enumerate(placed)]
    salvaged = shared.of_places(data, listed)
    if not has_bytes:
        salvaged = [
            tensor
            if tensor.why == OTHERWISE
            else SalvagedTensor(
                replace(tensor.tensor, absent=NO_BYTES), TensorState.ABSENT, NO_BYTES
            )
            for tensor in salvaged
        ]
    return Salvage((*salvaged, *_unread(lists, placed)), tags=custom_fields(metadata))


_EACH = Placement.AFTER_EACH


def _list_of(shard: object) -> Sequence[object] | None:
    tensors = shard.get("tensors") if isinstance(shard, dict) else None
    return tensors if isinstance(tensors, list) else None


def _walk(data: ByteView, start: int, lists: _Lists, placement: Placement) -> _Placed:
    """Return the records up to one that can't be read, or that the metadata contradict."""
    cursor = Cursor(data, start)
    placed: _Placed = []
    try:
        for shard, items in enumerate(lists):
            count = cursor.integer(COUNT_SIZE, "tensor count", signed=True)
            if items is not None and count != len(items):
                return placed
            for number in range(min(count, MAX_TENSORS - len(placed))):
                record = read_record(cursor, shard)
                item = None if items is None else items[number]
                if record.size < 0 or (items is not None and _is_other(item, record)):
                    return placed
                placed.append((record, record.end if placement is _EACH else None))
                if placement is _EACH:
                    cursor.skip(record.size, "tensor")
    except FormatError:
        return placed
    behind = placed if placement is _EACH else _behind([r for r, _ in placed], cursor.pos)
    ends = [at + record.size for record, at in behind if at is not None]
    # More bytes than there should be: the file was not truncated but damaged otherwise.
    return [(r, None) for r, _ in placed] if max(ends, default=0) < len(data) else behind


def _behind(records: Sequence[TensorRecord], start: int) -> _Placed:
    """Return the records with their bytes one after another from `start` on."""
    placed: _Placed = []
    for record in records:
        placed.append((record, start))
        start += max(record.size, 0)
    return placed


def _is_other(item: object, record: TensorRecord) -> bool:
    return not isinstance(item, dict) or any(different(item, record))


def _others(lists: _Lists, placed: _Placed) -> set[int]:
    """Return the records, by number, that the metadata contradict."""
    others: set[int] = set()
    numbers = [0] * len(lists)
    for place, (record, _) in enumerate(placed):
        items = lists[record.shard] if record.shard < len(lists) else None
        if items is None:
            continue
        number = numbers[record.shard]
        numbers[record.shard] += 1
        if number >= len(items) or _is_other(items[number], record):
            others.add(place)
    return others


def _stored(record: TensorRecord, at: int | None, *, is_other: bool) -> tuple[Stored, str | None]:
    """Return where the tensor's bytes are, and why it can't be whole, if it can't."""
    start, size = at or 0, max(record.size, 0)
    element = ELEMENTS.get(record.dtype)
    stored = Stored(record.name, record.dtype, record.shape, start, start + size, element)
    if is_other or at is None:
        return stored, OTHERWISE if is_other else NO_PLACE
    if element is None:
        return stored, None
    needed = bounded_product(ITEM_BYTES[element], record.shape, size)
    return stored, None if needed == record.size else UNFIT


def _unread(lists: _Lists, placed: _Placed) -> Iterator[SalvagedTensor]:
    """Yield the tensors that the metadata list but that have no record any more."""
    read = [0] * len(lists)
    for record, _ in placed:
        if record.shard < len(read):
            read[record.shard] += 1
    for count, items in zip(read, lists, strict=True):
        for item in (items or [])[count:]:
            yield shared.lost(_listed(item), NO_RECORD)


def _listed(item: object) -> Tensor:
    """Return a tensor as the metadata list it."""
    fields = item if isinstance(item, dict) else {}
    name, shape, number = fields.get("name"), fields.get("shape"), fields.get("dataType")
    dims = tuple(dim for dim in shape if type(dim) is int) if isinstance(shape, list) else ()
    dtype = ""
    if isinstance(number, int) and 0 <= number < len(DTYPE_NAMES):
        dtype = DTYPE_NAMES[number]
    return Tensor(
        name if isinstance(name, str) else "",
        dtype,
        dims,
        memoryview(b""),
        None,
        ELEMENTS.get(dtype),
    )
