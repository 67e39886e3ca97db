"""The index of a FOLD file that is written, and the hashes in it.

Spec: `docs/spec/fold.md`, "What is written".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from wtxtgit.containers import json_limits
from wtxtgit.containers.fold import integrity
from wtxtgit.containers.fold.agreement import MERKLE_ROOT
from wtxtgit.containers.fold.chunks import Laid, need_key
from wtxtgit.containers.fold.integrity import CHUNK_HASHES, MANIFEST_HASH, SHA256_PREFIX
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.errors import FormatError


def chunk_hashes(chunks: Sequence[Laid]) -> dict[str, object]:
    """The hash of each chunk by name, of equal names the last one's."""
    return {str(chunk.entry["name"]): chunk.entry["sha256"] for chunk in chunks}


def manifest_hash(metadata: dict[str, object], prefix: str, key: bytes | None) -> str:
    """The hash over metadata, in the form that `prefix` names; raises FormatError."""
    try:
        sha256 = integrity.manifest_sha256(metadata)
    except (TypeError, ValueError, RecursionError):
        raise FormatError("metadata can't be written as JSON", field="metadata") from None
    return str(integrity.make_hash(prefix, sha256, key))


def merkle_root(chunks: Sequence[Laid]) -> str | None:
    """The root (hex) over the chunks, None without chunks."""
    return integrity.merkle_root(
        (chunk.entry["name"], chunk.entry["offset"], chunk.entry["sha256"]) for chunk in chunks
    )


def sealed(
    index: Mapping[str, object], chunks: Sequence[Laid], key: bytes | None
) -> dict[str, object]:
    """`index` with these chunks; its hashes are made again where it has them, in their forms.

    Raises FormatError for a manifest_hash that is an HMAC without its key.
    """
    made: dict[str, object] = {**index, "chunks": [chunk.entry for chunk in chunks]}
    held = index.get("metadata")
    if isinstance(held, dict):
        metadata = dict(held)
        if CHUNK_HASHES in metadata:
            metadata[CHUNK_HASHES] = chunk_hashes(chunks)
        if MANIFEST_HASH in metadata:
            stored = integrity.parse_hash(metadata[MANIFEST_HASH])
            prefix = SHA256_PREFIX if stored is None else stored.prefix
            need_key(prefix, key)
            metadata[MANIFEST_HASH] = manifest_hash(metadata, prefix, key)
        made["metadata"] = metadata
    if index.get(MERKLE_ROOT) is not None:
        made[MERKLE_ROOT] = merkle_root(chunks)
    return made


def format_index(index: dict[str, object]) -> bytes:
    """The index's bytes, which the reader must take; raises FormatError."""
    try:
        encoded = json.dumps(index, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError):
        raise FormatError("index can't be written as JSON", field="metadata") from None
    if len(encoded) > MAX_JSON:
        raise FormatError(f"index of {len(encoded)} bytes is too long", kind="limit", field="index")
    json_limits.parse(memoryview(encoded), "index")
    return encoded
