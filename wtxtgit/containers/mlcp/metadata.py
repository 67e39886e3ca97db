"""The metadata of an MLCP file: what follows from its records, and independent values.

A merge sets the values one by one. Lists of tensors follow from the records: they are made anew for
shards with other records, where items that stay keep their order and spelling. If a list disagrees
with the records, a merge takes it from the skeleton of the result. Spec: `docs/spec/mlcp.md`,
"Resealing".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from wtxtgit.containers.mlcp.read import (
    DTYPE_NUMBERS,
    INFOS,
    OFFSET,
    REPEATED,
    Mlcp,
    Placement,
    TensorRecord,
    shard_list,
)
from wtxtgit.containers.mlcp.write import format_json
from wtxtgit.containers.spelling import MOST
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import Document, ReadOptions

SHARDS = "shards"
TENSORS = "tensors"
FILE_SIZE = "fileSize"
CHECKSUM = "checksum"
VERSION = "version"
TIMESTAMP = "timestamp"
WHOLE = "metadata"
"""The key of the only value of a file whose metadata are not a JSON object."""
CRLF = b"\r\n"
# A dtype of fewer digits than this is written as a number, which then fits .NET's int32.
MAX_DIGITS = 10
OTHER = "another list"
"""Precedes the hash of a list whose items do not match the records."""

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class StatedTensor:
    """What the metadata say of a record: in its shard's list, and in the list of all tensors."""

    in_shard: Json | None
    in_all: Json | None

    @property
    def further(self) -> tuple[str, str]:
        """Return, in comparable form, what the record does not say."""
        return _further(self.in_shard), _further(self.in_all)


def documents(container: Mlcp, _options: ReadOptions) -> Iterator[Document]:
    """Yield the JSON."""
    stored = container.data[container.metadata_start : container.header_end]
    if len(stored) <= MOST:
        yield Document("metadata", bytes(stored), stored, styles=(format_json, _with_crlf))


def _with_crlf(value: object) -> bytes:
    return format_json(value).replace(b"\n", CRLF)


def merged_values(container: Mlcp) -> dict[str, object]:
    """Return the metadata without versions, time and what follows from records.

    Shards are by number.
    """
    metadata = container.metadata
    if not isinstance(metadata, dict):
        return {WHOLE: metadata}
    shards = metadata.get(SHARDS)
    return {
        key: _numbered(shards, container.body.placement) if key == SHARDS else value
        for key, value in metadata.items()
        if key not in (VERSION, TIMESTAMP) and not (key == INFOS and isinstance(value, list))
    }


def _numbered(shards: object, placement: Placement) -> object:
    if not isinstance(shards, list):
        return shards
    left_out = derived(placement)
    return {
        str(number): {key: value for key, value in shard.items() if key not in left_out}
        if isinstance(shard, dict)
        else shard
        for number, shard in enumerate(shards)
    }


def derived(placement: Placement) -> frozenset[str]:
    """Return which members of a shard follow from its tensors.

    If the tensors' bytes are not in the file, only the checksum identifies them: then it is a
    value.
    """
    if placement is Placement.NOWHERE:
        return frozenset({TENSORS, FILE_SIZE})
    return frozenset({TENSORS, FILE_SIZE, CHECKSUM})


def _member(metadata: object, key: str) -> object:
    return metadata.get(key) if isinstance(metadata, dict) else None


def _items(items: object, records: Sequence[TensorRecord]) -> list[Json | None]:
    """Return the items of a list that matches these records by name; otherwise None for each."""
    if not isinstance(items, list) or len(items) != len(records):
        return [None] * len(records)
    matching = [
        item if isinstance(item, dict) and item.get("name") == record.name else None
        for item, record in zip(items, records, strict=True)
    ]
    return matching if all(item is not None for item in matching) else [None] * len(records)


def _further(item: Json | None) -> str:
    return _spelled({key: value for key, value in (item or {}).items() if key not in REPEATED})


@dataclass(frozen=True, slots=True, eq=False)
class SourceRecord:
    """A record of one of the source files, and what that file's metadata say of it.

    If it `is_changed`, its tensor has other bytes than in that file.
    """

    container: Mlcp
    record: TensorRecord
    listed: StatedTensor
    is_changed: bool = False

    @property
    def kind(self) -> tuple[object, ...]:
        """Everything that the record and the metadata say, except places."""
        record = self.record
        return record.shard, record.dtype, record.shape, record.size, *self.listed.further


def rows_of(container: Mlcp) -> list[SourceRecord]:
    """Return all records of a file; a list in the metadata that does not match them is ignored."""
    records = container.body.records
    in_all = _items(_member(container.metadata, INFOS), records)
    shards = shard_list(container.metadata)
    in_shards: list[Json | None] = []
    for number, own in container.by_shard().items():
        shard = shards[number] if number < len(shards) else None
        in_shards += _items(_member(shard, TENSORS), own)
    return [
        SourceRecord(container, record, StatedTensor(in_shard, in_list))
        for record, in_shard, in_list in zip(records, in_shards, in_all, strict=True)
    ]


def updated(
    container: Mlcp,
    rows: Sequence[SourceRecord],
    values: Mapping[str, object],
    placement: Placement,
) -> Buffer:
    """Return the JSON with `values` as its values, for `rows`, which are ordered by shard.

    If nothing changes it is the file's own JSON. Raises FormatError if the metadata can't express
    it.
    """
    raw = bytes(container.data[container.metadata_start : container.header_end])
    update = _Update(container, rows, placement)
    value = update.metadata(values)
    if json.dumps(value) == json.dumps(container.metadata):
        return raw
    # Changed JSON has the line endings of the machine that wrote the file.
    spelled = format_json(value)
    return spelled.replace(b"\n", CRLF) if CRLF in raw else spelled


class _Update:
    """One change of a file's metadata."""

    def __init__(self, container: Mlcp, rows: Sequence[SourceRecord], placement: Placement) -> None:
        self.container = container
        self.files = {id(row.container): row.container for row in rows}
        # The file being written comes first: its metadata are the template for the others.
        self.files = {id(container): container, **self.files}
        self.own = rows_of(container)
        self.rows = rows
        self.by_shard = {id(container): _by_shard(self.own)}
        self.rows_by_shard = _by_shard(rows)
        self.derived = derived(placement)

    def metadata(self, values: Mapping[str, object]) -> object:
        old = self.container.metadata
        if not isinstance(old, dict):
            if values != {WHOLE: old}:
                raise FormatError(
                    "metadata is not a JSON object, so it can't be changed", field=WHOLE
                )
            return old
        new: Json = {}
        for key, value in old.items():
            if key == INFOS and isinstance(value, list):
                new[key] = self._tensors(value, self.own, self.rows, INFOS, lambda r: r.in_all)
            elif key in (VERSION, TIMESTAMP):
                new[key] = value
            elif key == SHARDS and key in values and not isinstance(value, dict):
                new[key] = self._shards(values[key])
            elif key in values:
                new[key] = _overlaid(value, values[key])
        for key, value in values.items():
            if key not in new and key not in old:
                new[key] = self._shards(value) if key == SHARDS else value
        return new

    def _shards(self, shards: object) -> object:
        """Return the new list of shards, which are numbered from 0; anything else is unchanged."""
        if not isinstance(shards, dict):
            return shards
        numbers = [str(number) for number in range(len(shards))]
        if shards.keys() != set(numbers):
            raise FormatError("shards are not numbered from 0", field=SHARDS)
        return [self._shard(int(number), shards[number]) for number in numbers]

    def _shard(self, number: int, values: object) -> object:
        if not isinstance(values, dict):
            return values
        model = self._model(number)
        old = _shard_of(model, number)
        was = self._was(model, number)
        rows = self.rows_by_shard.get(number, [])
        new: Json = {}
        for key, value in old.items():
            if key not in self.derived:
                if key in values:
                    new[key] = _overlaid(value, values[key])
            elif key == TENSORS:
                where = f"shard {number}"
                new[key] = self._tensors(value, was, rows, where, lambda r: r.in_shard)
            elif key == FILE_SIZE:
                added = sum(row.record.size for row in rows) - sum(row.record.size for row in was)
                new[key] = value + added if type(value) is int else value
            elif key == CHECKSUM:
                new[key] = self._checksum(number, rows[0].container if rows else model, rows)
        return new | {key: value for key, value in values.items() if key not in new}

    def _checksum(self, number: int, owner: Mlcp, rows: Sequence[SourceRecord]) -> object:
        """Return the checksum that `owner` has for exactly this shard; None if it has another."""
        # The bytes that a checksum covers are not available, so it is never computed ("Resealing").
        are_its_own = all(row.container is owner and not row.is_changed for row in rows)
        if not are_its_own or not _are_same(self._was(owner, number), rows):
            return None
        return _shard_of(owner, number).get(CHECKSUM)

    def _was(self, file: Mlcp, number: int) -> Sequence[SourceRecord]:
        """Return the records that a file has in a shard."""
        if id(file) not in self.by_shard:
            self.by_shard[id(file)] = _by_shard(rows_of(file))
        return self.by_shard[id(file)].get(number, [])

    def _model(self, number: int) -> Mlcp:
        """Return the first file whose metadata list this shard, or else the one being written."""
        has = (file for file in self.files.values() if number < len(shard_list(file.metadata)))
        return next(has, self.container)

    def _tensors(
        self,
        old: object,
        was: Sequence[SourceRecord],
        rows: Sequence[SourceRecord],
        where: str,
        stated_item: Callable[[StatedTensor], Json | None],
    ) -> object:
        """Return a list of tensors for these rows; `old` if they are unchanged or it is no list."""
        if not isinstance(old, list) or _are_same(was, rows):
            return old
        items = [stated_item(row.listed) for row in was]
        if len(old) != len(was) or None in items:
            raise FormatError(
                f"{where}: the metadata does not list the file's tensors, so it can't be brought "
                "up to date",
                field=TENSORS,
            )
        stated = [item for item in items if item is not None]
        # Offsets are computed only if they counted the bytes before ("Resealing").
        has_places = [item.get(OFFSET) for item in stated] == list(_offsets(was))
        pairs = zip(rows, _offsets(rows), strict=True)
        return [_item(row, stated_item(row.listed), place, has_places) for row, place in pairs]


def _shard_of(file: Mlcp, number: int) -> Json:
    """Return what a file's metadata say of a shard, {} if that is not an object."""
    shards = shard_list(file.metadata)
    shard = shards[number] if number < len(shards) else None
    return shard if isinstance(shard, dict) else {}


def _by_shard(rows: Sequence[SourceRecord]) -> dict[int, list[SourceRecord]]:
    by_shard: dict[int, list[SourceRecord]] = {}
    for row in rows:
        by_shard.setdefault(row.record.shard, []).append(row)
    return by_shard


def _item(row: SourceRecord, stated_item: Json | None, place: int, has_places: bool) -> Json:
    """Return a list's item for a row; its offset is `place` if the list's offsets count bytes."""
    if stated_item is not None:
        return (
            {**stated_item, OFFSET: place} if has_places and OFFSET in stated_item else stated_item
        )
    record = row.record
    is_number = record.dtype.isascii() and record.dtype.isdigit() and len(record.dtype) < MAX_DIGITS
    number = int(record.dtype) if is_number else DTYPE_NUMBERS.get(record.dtype, record.dtype)
    shape = list(record.shape)
    fields = {"name": record.name, "shape": shape, "dataType": number}
    return {**fields, OFFSET: place, "size": record.size}


def _offsets(rows: Sequence[SourceRecord]) -> Iterator[int]:
    """Yield where the bytes of each tensor start in its shard."""
    shard, place = -1, 0
    for row in rows:
        if row.record.shard != shard:
            shard, place = row.record.shard, 0
        yield place
        place += row.record.size


def _are_same(was: Sequence[SourceRecord], rows: Sequence[SourceRecord]) -> bool:
    return [(r.record.name, r.kind) for r in was] == [(r.record.name, r.kind) for r in rows]


def _overlaid(old: object, new: object) -> object:
    """Return `new` with its members in the order that they have in `old`."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    kept = {key: _overlaid(value, new[key]) for key, value in old.items() if key in new}
    return kept | {key: value for key, value in new.items() if key not in kept}


def unlike_records(container: Mlcp) -> Iterator[tuple[str, object]]:
    """Yield, by member, what the metadata say of shards and tensors unlike their records."""
    metadata, records = container.metadata, container.body.records
    if not isinstance(metadata, dict):
        return
    inside = container.by_shard()
    if isinstance(metadata.get(INFOS), list):
        yield from _odd_list(INFOS, metadata[INFOS], records)
    shards = shard_list(metadata)
    if container.body.shard_count != len(shards):
        yield SHARDS, container.body.shard_count - len(shards)
    for number, shard in enumerate(shards):
        if not isinstance(shard, dict):
            continue
        where, own = f"{SHARDS}/{number}", inside.get(number, ())
        if TENSORS in shard:
            yield from _odd_list(f"{where}/{TENSORS}", shard[TENSORS], own)
        else:
            yield f"{where}/{TENSORS}", "missing"
        size = shard.get(FILE_SIZE, "missing")
        # It is changed by the same amount as the records' sizes.
        more = size - sum(record.size for record in own) if type(size) is int else size
        if more != 0 or type(more) is not int:
            yield f"{where}/{FILE_SIZE}", more


def _odd_list(
    where: str, items: object, records: Sequence[TensorRecord]
) -> Iterator[tuple[str, object]]:
    """Yield what a list says that its records do not."""
    if not isinstance(items, list) or len(items) != len(records):
        yield where, (OTHER, _digest(items))
        return
    odd: dict[str, Json] = {}
    for item, record in zip(items, records, strict=True):
        if not isinstance(item, dict) or item.get("name") != record.name:
            yield where, (OTHER, _digest(items))
            return
        words = _other_words(item, record)
        if words:
            odd[record.name] = words
    if odd:
        yield where, odd


def _other_words(item: Json, record: TensorRecord) -> Json:
    number = DTYPE_NUMBERS.get(record.dtype, record.dtype)
    words_of: dict[str, list[object]] = {
        "shape": [list(record.shape)],
        "dataType": [number, str(number), record.dtype],
        "size": [record.size],
    }
    return {
        key: item[key]
        for key, words in words_of.items()
        if key in item and not any(_spelled(item[key]) == _spelled(word) for word in words)
    }


def _spelled(value: object) -> str:
    """Spell JSON for comparison: 1 is not True."""
    return json.dumps(value, sort_keys=True)


def _digest(value: object) -> bytes:
    return hashlib.sha256(_spelled(value).encode()).digest()
