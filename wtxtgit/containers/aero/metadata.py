"""Metadata of an AERO file that are merged value by value: MJSN, MMSG, small unknown chunks.

What a chunk says of other chunks is not such a value: the lists of chunks and shards in an MMSG are
made anew for a new table of contents. Spec: `docs/spec/aero.md`, "Resealing".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from wtxtgit.containers import json_text, msgpack_limits
from wtxtgit.containers.aero.chunks import (
    JSON_NAME,
    MANIFEST_NAME,
    ROLES,
    Payload,
    metadata_payload,
    shard_item,
)
from wtxtgit.containers.aero.content import Allowance, ChunkContent, content
from wtxtgit.containers.aero.describe import MAX_SHOWN
from wtxtgit.containers.aero.msgpack_edit import edited, packed
from wtxtgit.containers.aero.read import (
    COMPRESSED,
    JSON,
    MANIFEST,
    METADATA,
    NO_HASH,
    SHARD,
    Aero,
    AeroChunk,
)
from wtxtgit.containers.budget import Budget
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.errors import FormatError
from wtxtgit.io.view import hashed
from wtxtgit.io.workers import blake3_hasher
from wtxtgit.model.tensor import ReadOptions

CHUNKS = "chunks"
"""The key of unknown chunks; MJSN and MMSG have the names of their chunks."""
LISTS = ("chunks", "shards")
"""Keys of a manifest that repeat what the file's chunks say."""
# Up to this size an unknown chunk's bytes are a value; for larger ones their hash is, since a merge
# holds the values of both sides in memory ("Resealing").
SMALL = 2**16
# The same for all of them together.
MAX_SMALL = 2**24
# Names of at most 255 bytes are part of a key ("Resealing").
MAX_NAME = 255
LARGE = "blake3:"
PLACE, ROLE = "toc_index", "role"
"""Keys of an item of a manifest's lists: its place in the TOC, and what the chunk is for."""


@dataclass(slots=True)
class NewMetadata:
    """What chunks become, by their places in the TOC.

    `json` and `manifest` are the contents of MJSN and MMSG, None if there is none to be read. The
    MMSG is not among the payloads, unless it is added, since what it says of chunks is not known
    yet; `manifest_before` is its former content. Chunks that are `added` come after all others.
    """

    replaced: dict[int, Payload] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
    added: list[Payload] = field(default_factory=list)
    json: bytes | None = None
    manifest: bytes | None = None
    manifest_before: bytes | None = None

    @property
    def is_change(self) -> bool:
        replaced = self.replaced or self.manifest != self.manifest_before
        return bool(replaced or self.removed or self.added)

    @staticmethod
    def unchanged(aero: Aero, options: ReadOptions) -> NewMetadata:
        """Return the metadata that the file has."""
        json, manifest = (content_of(aero, fourcc, options) for fourcc in (JSON, MANIFEST))
        return NewMetadata(json=json, manifest=manifest, manifest_before=manifest)


def values(aero: Aero, options: ReadOptions) -> dict[str, object]:
    """Return the values by chunk; chunks that can't be decoded have none.

    An MJSN is bytes if it is not an object with unique keys, or is over MAX_SHOWN; so is an MMSG
    that is not a map. Raises FormatError (limit) if unknown chunks hold too much.
    """
    by_chunk: dict[str, object] = {}
    for fourcc, parse in ((JSON, _json), (MANIFEST, _manifest)):
        raw = content_of(aero, fourcc, options)
        if raw is not None:
            by_chunk[fourcc.decode()] = parse(raw)
    by_chunk[CHUNKS] = {key: value for key, _, value in _unknown(aero, options)}
    return by_chunk


def changes(
    aero: Aero, own: Mapping[str, object], values: Mapping[str, object], options: ReadOptions
) -> NewMetadata:
    """Return the changes that give the file these values; `own` are its present values.

    Raises FormatError for values that `values` could not have returned, and for large unknown
    chunks of another file.
    """
    new = NewMetadata.unchanged(aero, options)
    new.json = _changed(aero, JSON, JSON_NAME, new, own, values)
    new.manifest = _changed(aero, MANIFEST, MANIFEST_NAME, new, own, values)
    _change_unknown(aero, values.get(CHUNKS), new, options)
    return new


def _changed(
    aero: Aero,
    fourcc: bytes,
    name: bytes,
    new: NewMetadata,
    own: Mapping[str, object],
    values: Mapping[str, object],
) -> bytes | None:
    """Return the new content of a chunk, after adding it to the payloads."""
    key = fourcc.decode()
    before = new.json if fourcc == JSON else new.manifest
    chunk = aero.first(fourcc)
    if key not in values:
        # A chunk that can't be read has no value, so its absence does not mean removal.
        if chunk is not None and before is not None:
            new.removed.add(chunk.place)
        return None
    if chunk is not None and before is None:
        raise FormatError(f"{key} of the file can't be read", field=key)
    spell = _new_json if fourcc == JSON else _new_manifest
    raw = spell(before, own.get(key), values[key])
    if chunk is None:
        new.added.append(metadata_payload(fourcc, name, raw, compress=False))
    elif fourcc == JSON and raw != before:
        new.replaced[chunk.place] = like(aero, chunk, raw)
    return raw


def like(aero: Aero, chunk: AeroChunk, raw: bytes) -> Payload:
    """Return the chunk with new content, compressed and hashed if it was before."""
    name = aero.name(chunk)
    payload = metadata_payload(
        chunk.fourcc, name, raw, flags=chunk.flags, compress=chunk.is_compressed
    )
    # A writer that left out the hash wanted none.
    return replace(payload, digest=NO_HASH) if chunk.digest == NO_HASH else payload


def content_of(aero: Aero, fourcc: bytes, options: ReadOptions) -> bytes | None:
    """Return the content of the first chunk of a type; None if none can be decoded."""
    chunk = aero.first(fourcc)
    if chunk is None:
        return None
    most = min(MAX_JSON, options.max_chunk) if chunk.is_compressed else MAX_JSON
    try:
        return bytes(content(aero, chunk, most))
    except FormatError:
        return None


def _json(raw: bytes) -> object:
    try:
        value = json_text.parse(memoryview(raw[: MAX_SHOWN + 1]), "mjsn", unique_keys=True)
    except FormatError:
        return raw
    return value if isinstance(value, dict) and len(raw) <= MAX_SHOWN else raw


def manifest_map(raw: bytes) -> dict[str, object] | None:
    """Parse the map in the content of an MMSG; None if it is not a map, or can't be read."""
    try:
        value = msgpack_limits.parse(raw, "mmsg")
    except FormatError:
        return None
    return value if isinstance(value, dict) else None


def _manifest(raw: bytes) -> object:
    value = manifest_map(raw)
    return raw if value is None else {key: value[key] for key in value if key not in LISTS}


def _new_json(before: bytes | None, own: object, value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    raw = _dumped(value)
    # An unchanged value keeps the file's own spelling.
    return before if before is not None and isinstance(own, dict) and _dumped(own) == raw else raw


def _dumped(value: object) -> bytes:
    try:
        if isinstance(value, dict):
            return json.dumps(value, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError):
        pass
    raise FormatError("the content of MJSN is not a JSON object", field=JSON.decode())


def _new_manifest(before: bytes | None, own: object, value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    new = _packed_values(value)
    if before is None or not isinstance(own, dict):
        return edited(packed({}), new)
    old = _packed_values(own)
    edits = {key: item for key, item in new.items() if old.get(key) != item}
    removed = dict.fromkeys(key for key in old if key not in new)
    return edited(before, edits | removed) if edits or removed else before


def _packed_values(value: object) -> dict[str, bytes]:
    try:
        if isinstance(value, dict):
            return {str(key): packed(item) for key, item in value.items() if key not in LISTS}
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    raise FormatError("the content of MMSG is not a map", field=MANIFEST.decode())


def _unknown(aero: Aero, options: ReadOptions) -> Iterator[tuple[str, AeroChunk, object]]:
    """Yield chunks of unknown types with their keys and values."""
    allowance = Allowance(len(aero.data), options)
    small = Budget(MAX_SMALL, f"unknown chunks have over {MAX_SMALL} bytes in total", "chunk_ulen")
    for key, chunk in named(aero).items():
        allowance.decode(chunk)
        allowance.hash(chunk.ulen, chunk.offset)
        if chunk.ulen > SMALL:
            digest = hashed(blake3_hasher(chunk.ulen), ChunkContent(aero, chunk)).hexdigest()
            yield key, chunk, LARGE + digest
        else:
            small.take(chunk.ulen, chunk.offset)
            yield key, chunk, bytes(content(aero, chunk, SMALL))


def named(aero: Aero) -> dict[str, AeroChunk]:
    """Return chunks of unknown types that are values, by key.

    A chunk whose type or name can't be expressed in a key is not included; of several with the same
    key only the first is.
    """
    chunks: dict[str, AeroChunk] = {}
    for chunk in aero.chunks:
        key = _key(aero, chunk)
        if key is not None:
            chunks.setdefault(key, chunk)
    return chunks


def _key(aero: Aero, chunk: AeroChunk) -> str | None:
    """Return the key of a chunk of an unknown type: type, flags and name, as in `NOTE:0x8:name`."""
    # Known types are merged by their content, or made anew.
    is_known = chunk.fourcc in METADATA or chunk.fourcc == SHARD
    if is_known or not chunk.fourcc.isalnum() or chunk.name_len > MAX_NAME:
        return None
    try:
        name = aero.name(chunk).decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in name else f"{chunk.fourcc.decode()}:{chunk.flags:#x}:{name}"


def _change_unknown(aero: Aero, values: object, new: NewMetadata, options: ReadOptions) -> None:
    new_values = values if isinstance(values, dict) else {}
    own: set[str] = set()
    for key, chunk, value in _unknown(aero, options):
        own.add(key)
        if key not in new_values:
            new.removed.add(chunk.place)
        elif new_values[key] != value:
            new.replaced[chunk.place] = like(aero, chunk, _small(key, new_values[key]))
    for key in (key for key in new_values if key not in own):
        fourcc, flags, name = key.split(":", 2)
        new.added.append(
            metadata_payload(
                fourcc.encode(),
                name.encode(),
                _small(key, new_values[key]),
                flags=int(flags, 16),
                compress=bool(int(flags, 16) & COMPRESSED),
            )
        )


def _small(key: str, value: object) -> bytes:
    if not isinstance(value, bytes):
        raise FormatError(f"chunk {quoted(key)} is too large to be merged", field=CHUNKS)
    return value


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
    """Return the content of an MMSG with its lists of chunks and shards updated for a new TOC.

    `places` maps old to new places of the chunks that stay; `shards` has changed ones, by their old
    places; `added` are types of chunks that come after all others. What it did not list stays
    unlisted. Raises FormatError (limit) for a map with too many keys.
    """
    value = manifest_map(raw) or {}
    lists = {key: items for key in LISTS if isinstance(items := value.get(key), list)}
    lists_now = {key: _moved(items, places, removed) for key, items in lists.items()}
    for place, facts in shards.items():
        for item in lists_now.get("shards", []):
            if isinstance(item, dict) and item.get(PLACE) == places[place]:
                new = {"size_bytes": facts.size, "tensor_count": facts.tensors}
                item.update((key, new[key]) for key in new if key in item)
    if lists_now.get("chunks"):
        for place, (fourcc, one) in enumerate(added, len(places)):
            if fourcc in ROLES:
                named = {} if one is None else {"shard_id": one.number}
                listed = {ROLE: ROLES[fourcc], "fourcc": fourcc.decode(), PLACE: place}
                lists_now["chunks"].append(listed | named)
            if one is not None and "shards" in lists_now:
                lists_now["shards"].append(shard_item(one.number, place, one.size, one.tensors))
    edits = {key: packed(items) for key, items in lists_now.items() if items != lists[key]}
    return edited(raw, edits) if edits else raw


def _moved(
    items: list[object], places: Mapping[int, int], removed: Collection[int]
) -> list[object]:
    """Return copies of the items with their new places, without those of removed chunks."""
    moved: list[object] = []
    for item in items:
        place = item.get(PLACE) if isinstance(item, dict) else None
        if not isinstance(item, dict) or type(place) is not int:
            moved.append(item)
        elif place not in removed:
            moved.append(item | {PLACE: places.get(place, place)})
    return moved
