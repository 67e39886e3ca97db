"""What a FOLD file holds beside its chunks and the metadata that are merged.

All of it comes from the skeleton of a file that is put together.
Spec: `docs/spec/fold.md`, "Resealing".
"""

from __future__ import annotations

from collections.abc import Iterator

from wtxtgit.containers import loose
from wtxtgit.containers.fold import integrity
from wtxtgit.containers.fold.agreement import MERKLE_ROOT
from wtxtgit.containers.fold.description import OF_THE_WRITING
from wtxtgit.containers.fold.integrity import CHUNK_HASHES, MANIFEST_HASH, SHA256_PREFIX
from wtxtgit.containers.fold.read import HEADER, Fold

GAPS = "gaps"
METADATA = "metadata"
MADE_ANEW = frozenset({"format", "version", "created_at_unix", "chunks", METADATA, MERKLE_ROOT})
"""Keys of an index that are told elsewhere, or say how and when it was written."""


def rest(container: Fold) -> dict[str, object]:
    """Further keys of the index by their JSON pointers, and a hash of bytes that no chunk has.

    Of hashes over chunks it is told that they are there, and in which form.
    """
    found = dict(_keys(container.index))
    spans = [(0, HEADER.size), (container.index_start, container.index_end)]
    spans += [(chunk.offset, chunk.end) for chunk in container.chunks]
    gaps = loose.digest(container.data, spans)
    return found if gaps is None else {**found, GAPS: gaps}


def _keys(index: dict[str, object]) -> Iterator[tuple[str, object]]:
    for key, value in index.items():
        if key not in MADE_ANEW:
            yield _pointer(key), value
    if index.get(MERKLE_ROOT) is not None:
        yield _pointer(MERKLE_ROOT), True
    metadata = index.get(METADATA)
    if not isinstance(metadata, dict):
        if METADATA in index:
            yield _pointer(METADATA), metadata
        return
    for key in metadata:
        if key in OF_THE_WRITING:
            yield _pointer(METADATA, key), _told(key, metadata[key])


def _told(key: str, value: object) -> object:
    if key == CHUNK_HASHES:
        return True
    if key == MANIFEST_HASH:
        stored = integrity.parse_hash(value)
        return SHA256_PREFIX if stored is None else stored.prefix
    return value


def _pointer(*keys: str) -> str:
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)
