"""Rebuilding the index of an AEROSET from its parts, after these were changed one by one.

The parts, their order, and the numbers of their shards stay as in the JSON. Spec:
`docs/spec/aero.md`, "AEROSET".
"""

from __future__ import annotations

from collections.abc import Sequence

import msgpack

from wtxtgit.containers import json_text
from wtxtgit.containers.aero import aeroset
from wtxtgit.containers.aero.aeroset import AeroSet, SetFile
from wtxtgit.containers.aero.chunks import assemble, metadata_payload, stored_payload
from wtxtgit.containers.aero.content import digest
from wtxtgit.containers.aero.describe import CODEC_KEY
from wtxtgit.containers.aero.read import (
    HASH_KEY,
    INDEX,
    INTEGRITY,
    TENSORS_KEY,
    Aero,
    IndexEntry,
    read,
)
from wtxtgit.containers.cursor import fail, quoted
from wtxtgit.containers.format import ListedFile, OpenMember
from wtxtgit.io.view import ByteView, hashed, mapped, pieces


def reseal_set(data: ByteView, open_member: OpenMember) -> tuple[str, bytes, bytes]:
    """Return the path of the set's index, its new bytes, and those of the JSON.

    Raises FormatError for a set that can't be read, and for a part that does not have as many
    shards as the JSON lists.
    """
    from hashlib import sha256

    opened = aeroset.read(data, open_member)
    listing = opened.listing.apart()
    index = opened.open(opened.index, listing)
    before = {entry.name: entry for entry in index.entries}
    entries: dict[str, tuple[IndexEntry, Aero, int]] = {}
    places: list[str] = []
    edits: dict[json_text.Path, object] = {}
    for number, part in enumerate(opened.parts):
        aero = opened.open(part, listing)
        _check_shards(part, aero)
        for entry in aero.entries:
            if entry.name in entries:
                fail(
                    f"tensor {quoted(entry.name)} is in more than one part",
                    offset=0,
                    field=TENSORS_KEY,
                )
            places.append(entry.name)
            entries[entry.name] = (entry, aero, _shard_of(part, entry))
        whole = hashed(sha256(), pieces(aero.data)).hexdigest()
        edits |= _identity(("parts", number), part, whole, len(aero.data))
    # Tensors keep their place in the index, added ones come last.
    order = [name for name in before if name in entries]
    order += [name for name in places if name not in before]
    listed = [_listed(*entries[name], before.get(name)) for name in order]
    remade = bytes(mapped(index.data))
    if listed != [_as_listed(entry, entry.shard_id, entry.extra) for entry in index.entries]:
        remade = _with_index(opened, index, listed)
    whole = sha256(remade).hexdigest()
    edits |= _identity(("global_tidx",), opened.index, whole, len(remade))
    text = json_text.replaced(bytes(mapped(data)).decode(), edits)
    return opened.index.path, remade, text.encode()


def unsealed(data: ByteView) -> dict[str, object]:
    """Return the chunks of a set's index, by their bytes, and what it says of its tensors.

    That is without their places and hashes, and without the index's UUID, which is random. Raises
    FormatError.
    """
    from hashlib import sha256

    index = read(data)
    first = index.first(INDEX)
    return {
        "chunks": [
            [
                chunk.fourcc,
                index.name(chunk),
                chunk.flags,
                None if chunk is first else hashed(sha256(), pieces(index.stored(chunk))).digest(),
            ]
            for chunk in index.chunks
            if chunk.fourcc != INTEGRITY
        ],
        "tensors": [
            [entry.name, {key: value for key, value in entry.extra.items() if key != HASH_KEY}]
            for entry in index.entries
        ],
    }


def listed_files(data: ByteView, open_member: OpenMember) -> tuple[ListedFile, ...]:
    """Return the files of a set, the index first; raises FormatError."""
    opened = aeroset.read(data, open_member)
    return tuple(
        ListedFile(file.path, file.size, bytes.fromhex(file.sha256) if file.sha256 else None)
        for file in (opened.index, *opened.parts)
    )


def _check_shards(part: SetFile, aero: Aero) -> None:
    if len(aero.shards) != len(part.shards):
        fail(
            f"{quoted(part.path)} has {len(aero.shards)} shards, the set lists {len(part.shards)}",
            offset=0,
            field="shards",
        )


def _shard_of(part: SetFile, entry: IndexEntry) -> int:
    if not 0 <= entry.shard_id < len(part.shards):
        fail(
            f"tensor {quoted(entry.name)} of {quoted(part.path)} is in none of its shards",
            offset=0,
            field="shard_id",
        )
    return part.shards[entry.shard_id]


def _identity(
    path: json_text.Path, file: SetFile, sha256: str, size: int
) -> dict[json_text.Path, object]:
    """Return the new values for what the JSON says of a file."""
    edits: dict[json_text.Path, object] = {}
    if file.sha256 is not None:
        edits[*path, "sha256"] = sha256
    if file.size is not None:
        edits[*path, "size_bytes"] = size
    return edits


def _listed(
    entry: IndexEntry, aero: Aero, shard_id: int, before: IndexEntry | None
) -> dict[str, object]:
    """Return a tensor as the index lists it: as its part does, with a hash if there was one."""
    # The number of a codec is only valid in its own file: a new tensor's is found by its
    # parameters.
    extra = {key: value for key, value in entry.extra.items() if key != CODEC_KEY}
    if before is not None:
        extra = {**extra, **before.extra}
    if before is not None and before.extra.get(HASH_KEY):
        shard = aero.shard(entry.shard_id)
        content = aero.data[:0] if shard is None else aero.stored(shard)
        extra[HASH_KEY] = digest(content[entry.data_off : entry.data_end]).hex()
    return _as_listed(entry, shard_id, extra)


def _as_listed(entry: IndexEntry, shard_id: int, extra: dict[str, object]) -> dict[str, object]:
    return {
        "name": entry.name,
        "dtype": entry.dtype,
        "shape": list(entry.shape),
        "shard_id": shard_id,
        "data_off": entry.data_off,
        "data_len": entry.data_len,
        **extra,
    }


def _with_index(opened: AeroSet, index: Aero, listed: Sequence[dict[str, object]]) -> bytes:
    """Return the index's file with other tensors in its first TIDX, and otherwise unchanged."""
    first = index.first(INDEX)
    if first is None:
        fail(f"{quoted(opened.index.path)} has no TIDX chunk", offset=0, field="tidx")
    raw: bytes = msgpack.packb({TENSORS_KEY: list(listed)})
    payloads = [
        metadata_payload(
            INDEX, index.name(chunk), raw, flags=chunk.flags, compress=chunk.is_compressed
        )
        if chunk is first
        else stored_payload(index, chunk)
        for chunk in index.chunks
    ]
    return b"".join(assemble(payloads, index.header.uuid))
