"""What the metadata of an MLCP file say of its shards and tensors, apart from the rest.

The rest are values that somebody sets. What is said of a record follows from
the record: it is brought up to date where the metadata list it.
Spec: `docs/spec/mlcp.md`, "Resealing"
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from wtxtgit.containers.mlcp.metadata import shard_list
from wtxtgit.containers.mlcp.read import Mlcp, Placement, Record

SHARDS = "shards"
TENSORS = "tensors"
FILE_SIZE = "fileSize"
CHECKSUM = "checksum"
INFOS = "tensorInfos"
VERSION = "version"
TIMESTAMP = "timestamp"
OFFSET = "offset"
WHOLE = "metadata"
"""The one value of a file whose metadata are no JSON object."""
REPEATED = frozenset({"name", "shape", "dataType", OFFSET, "size"})
"""What the metadata say of a tensor that its record says, or that follows from the others."""

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Listed:
    """What the metadata say of a record: in its shard's list, and among all tensors."""

    in_shard: Json | None
    in_all: Json | None

    @property
    def further(self) -> tuple[str, str]:
        """What is no record's to say, in a form that can be compared."""
        return _further(self.in_shard), _further(self.in_all)


def listed(container: Mlcp) -> list[Listed]:
    """What the metadata say of each record, nothing where lists are not those of the records."""
    records = container.body.records
    everywhere = _items(_member(container.metadata, INFOS), records)
    shards = shard_list(container.metadata)
    inner: list[Json | None] = []
    for number, group in groupby(records, lambda record: record.shard):
        own = tuple(group)
        shard = shards[number] if number < len(shards) else None
        inner += _items(_member(shard, TENSORS), own)
    return [Listed(one, other) for one, other in zip(inner, everywhere, strict=True)]


def values(container: Mlcp) -> dict[str, object]:
    """The metadata without what follows from records, versions and time; shards by number."""
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
    """What of a shard follows from its tensors.

    Where their bytes are not in the file the checksum alone says which they
    are: it is a value then.
    """
    if placement is Placement.NOWHERE:
        return frozenset({TENSORS, FILE_SIZE})
    return frozenset({TENSORS, FILE_SIZE, CHECKSUM})


def _member(metadata: object, key: str) -> object:
    return metadata.get(key) if isinstance(metadata, dict) else None


def _items(items: object, records: Sequence[Record]) -> list[Json | None]:
    """The items of a list that is one of these records, by their names; else nothing of each."""
    if not isinstance(items, list) or len(items) != len(records):
        return [None] * len(records)
    found = [
        item if isinstance(item, dict) and item.get("name") == record.name else None
        for item, record in zip(items, records, strict=True)
    ]
    return found if all(item is not None for item in found) else [None] * len(records)


def _further(item: Json | None) -> str:
    further = {key: value for key, value in (item or {}).items() if key not in REPEATED}
    return json.dumps(further, sort_keys=True)
