"""The index of a FOLD file that is written, and the hashes in it.

Spec: `docs/spec/fold.md`, "What is written".
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from wtxtgit.containers import json_limits
from wtxtgit.containers.fold import integrity
from wtxtgit.containers.fold.chunks import Planned
from wtxtgit.containers.magic import MAX_JSON
from wtxtgit.errors import FormatError


def chunk_hashes(planned: Sequence[Planned]) -> dict[str, object]:
    """The hash of each chunk by name, of equal names the last one's."""
    return {str(chunk.entry["name"]): chunk.entry["sha256"] for chunk in planned}


def manifest_hash(metadata: dict[str, object], prefix: str, key: bytes | None) -> str:
    """The hash over metadata, in the form that `prefix` names; raises FormatError."""
    try:
        sha256 = integrity.manifest_sha256(metadata)
    except (TypeError, ValueError, RecursionError):
        raise FormatError("metadata can't be written as JSON", field="metadata") from None
    return str(integrity.make_hash(prefix, sha256, key))


def merkle_root(planned: Sequence[Planned]) -> str | None:
    """The root (hex) over the chunks, None without chunks."""
    return integrity.merkle_root(
        (chunk.entry["name"], chunk.entry["offset"], chunk.entry["sha256"]) for chunk in planned
    )


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
