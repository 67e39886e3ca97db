"""The lists of chunks and shards in an MMSG, made anew for another table of contents.

Spec: `docs/spec/aero.md`, "Resealing".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from wtxtgit.containers import msgpack_limits
from wtxtgit.containers.aero.payloads import ROLES, shard_item
from wtxtgit.containers.aero.spelling import edited, packed
from wtxtgit.errors import FormatError

PLACE, ROLE = "toc_index", "role"


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """What a manifest says of a weight shard."""

    number: int
    size: int
    tensors: int


def renewed(
    raw: bytes,
    places: Mapping[int, int],
    removed: Collection[int],
    shards: Mapping[int, ShardFacts],
    added: Sequence[tuple[bytes, ShardFacts | None]],
) -> bytes:
    """The content of an MMSG, its lists of chunks and shards those of another TOC.

    `places` are the new places of the chunks that stay, by their old ones;
    `shards`, by their old places, are those that become others; `added` are
    types of chunks that follow behind all. What it does not list stays unlisted.
    Raises FormatError (limit) for a map with too many keys.
    """
    try:
        value = msgpack_limits.parse(raw, "mmsg")
    except FormatError:
        return raw
    if not isinstance(value, dict):
        return raw
    lists = {key: value[key] for key in ("chunks", "shards") if isinstance(value.get(key), list)}
    made = {key: _moved(items, places, removed) for key, items in lists.items()}
    for place, facts in shards.items():
        for item in made.get("shards", []):
            if isinstance(item, dict) and item.get(PLACE) == places[place]:
                new = {"size_bytes": facts.size, "tensor_count": facts.tensors}
                item.update((key, new[key]) for key in new if key in item)
    if made.get("chunks"):
        for place, (fourcc, one) in enumerate(added, len(places)):
            if fourcc in ROLES:
                named = {} if one is None else {"shard_id": one.number}
                listed = {ROLE: ROLES[fourcc], "fourcc": fourcc.decode(), PLACE: place}
                made["chunks"].append(listed | named)
            if one is not None and "shards" in made:
                made["shards"].append(shard_item(one.number, place, one.size, one.tensors))
    edits = {key: packed(items) for key, items in made.items() if items != lists[key]}
    return edited(raw, edits) if edits else raw


def _moved(
    items: list[object], places: Mapping[int, int], removed: Collection[int]
) -> list[object]:
    """Items with their new places, copied; those of removed chunks are left out."""
    found: list[object] = []
    for item in items:
        place = item.get(PLACE) if isinstance(item, dict) else None
        if not isinstance(item, dict) or type(place) is not int:
            found.append(item)
        elif place not in removed:
            found.append(item | {PLACE: places.get(place, place)})
    return found
