"""What the metadata of an MLCP file say that is neither a value nor follows from the records.

Lists that are made anew follow from the records as a rule; where they say
something else, that comes from the skeleton of a file that is put together.
Spec: `docs/spec/mlcp.md`, "Resealing"
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence

from wtxtgit.containers.mlcp.listing import FILE_SIZE, INFOS, SHARDS, TENSORS, Json
from wtxtgit.containers.mlcp.metadata import DTYPE_NUMBERS, shard_list
from wtxtgit.containers.mlcp.read import Mlcp, Record

OTHER = "another list"
"""Stands before the hash of a list whose items are not those of the records."""


def rest(container: Mlcp) -> dict[str, object]:
    """What is said of shards and tensors otherwise than the records say it, by member."""
    metadata = container.metadata
    if not isinstance(metadata, dict):
        return {}
    return dict(_odd(container, metadata))


def _odd(container: Mlcp, metadata: Json) -> Iterator[tuple[str, object]]:
    records = container.body.records
    inside: dict[int, list[Record]] = {}
    for record in records:
        inside.setdefault(record.shard, []).append(record)
    if isinstance(metadata.get(INFOS), list):
        yield from _odd_list(INFOS, metadata[INFOS], records)
    shards = shard_list(metadata)
    if container.body.shard_count != len(shards):
        yield SHARDS, container.body.shard_count - len(shards)
    for number, shard in enumerate(shards):
        if not isinstance(shard, dict):
            continue
        where, own = f"{SHARDS}/{number}", inside.get(number, [])
        if TENSORS in shard:
            yield from _odd_list(f"{where}/{TENSORS}", shard[TENSORS], own)
        else:
            yield f"{where}/{TENSORS}", "missing"
        size = shard.get(FILE_SIZE, "missing")
        # It is changed by as much as the records' sizes are.
        more = size - sum(record.size for record in own) if type(size) is int else size
        if more != 0 or type(more) is not int:
            yield f"{where}/{FILE_SIZE}", more


def _odd_list(where: str, items: object, records: Sequence[Record]) -> Iterator[tuple[str, object]]:
    """What a list says that its records do not."""
    if not isinstance(items, list) or len(items) != len(records):
        yield where, (OTHER, _digest(items))
        return
    odd: dict[str, Json] = {}
    for item, record in zip(items, records, strict=True):
        if not isinstance(item, dict) or item.get("name") != record.name:
            yield where, (OTHER, _digest(items))
            return
        said = _other_words(item, record)
        if said:
            odd[record.name] = said
    if odd:
        yield where, odd


def _other_words(item: Json, record: Record) -> Json:
    number = DTYPE_NUMBERS.get(record.dtype, record.dtype)
    told: dict[str, list[object]] = {
        "shape": [list(record.shape)],
        "dataType": [number, str(number), record.dtype],
        "size": [record.size],
    }
    return {
        key: item[key]
        for key, words in told.items()
        if key in item and not any(_spelled(item[key]) == _spelled(word) for word in words)
    }


def _spelled(value: object) -> str:
    """JSON to be compared: 1 is not True."""
    return json.dumps(value, sort_keys=True)


def _digest(value: object) -> bytes:
    return hashlib.sha256(_spelled(value).encode()).digest()
