"""The chunks of a file that is to be written: metadata, index, weight shards.

Spec: `docs/spec/aero.md`, "What is written".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgpack
import zstandard

from wtxtgit.containers import json_limits
from wtxtgit.containers.aero.assembly import Payload, integrity_payload
from wtxtgit.containers.aero.description import ARCHITECTURE_TAG, NAME_TAG, SOURCE_KEY
from wtxtgit.containers.aero.index import TENSORS_KEY
from wtxtgit.containers.aero.records import (
    COMPRESSED,
    INDEX,
    INTEGRITY,
    IS_INDEX,
    JSON,
    MANIFEST,
    PAGES,
    SHARD,
    VERSION,
)
from wtxtgit.containers.aero.shards import Shard
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.errors import FormatError

JSON_NAME, MANIFEST_NAME, INDEX_NAME = b"meta.json", b"manifest", b"tensors"
ZSTD_LEVEL = 3
ROLES = {
    INTEGRITY: "control_integrity",
    JSON: "json",
    MANIFEST: "manifest",
    INDEX: "tensors",
    SHARD: "weights",
    PAGES: "page_hashes",
}
"""What the manifest calls the chunks."""


def metadata_payload(
    fourcc: bytes, name: bytes, raw: bytes, *, flags: int = 0, compress: bool
) -> Payload:
    """A metadata chunk of this content; raises FormatError where no reader would take it."""
    if len(raw) > MAX_JSON:
        raise FormatError(
            f"{fourcc.decode()} of {len(raw)} bytes is too long", kind="limit", field="chunk_ulen"
        )
    if not compress:
        return Payload.of(fourcc, name, flags & ~COMPRESSED, raw, stored=raw)
    stored = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(raw)
    return Payload.of(fourcc, name, flags | COMPRESSED, raw, stored=stored)


def file_payloads(
    shards: Sequence[Shard],
    entries: Sequence[dict[str, object]],
    tags: Mapping[str, str],
    *,
    ihsh: bool,
    compress_metadata: bool,
) -> list[Payload]:
    """All chunks of a file: control, metadata, the index of these entries, shards."""
    texts = {key: value for key, value in tags.items() if key != SOURCE_KEY}
    for text in (*texts.keys(), *texts.values()):
        json_limits.check_name(text, "metadata", offset=0)
    first = [integrity_payload()] if ihsh else []
    if texts:
        raw = json.dumps(texts, sort_keys=True, separators=(",", ":")).encode()
        first.append(metadata_payload(JSON, JSON_NAME, raw, compress=False))
    held = [(shard, payload) for shard in shards for payload in shard.payloads()]
    fourccs = [*(payload.fourcc for payload in first), MANIFEST, INDEX]
    chunks: list[dict[str, object]] = [
        {"role": ROLES[fourcc], "fourcc": fourcc.decode(), "toc_index": place}
        for place, fourcc in enumerate(fourccs)
    ]
    sizes = []
    for shard, payload in held:
        place = len(chunks)
        chunks.append(
            {
                "role": ROLES[payload.fourcc],
                "fourcc": payload.fourcc.decode(),
                "toc_index": place,
                "shard_id": shard.number,
            }
        )
        if payload.fourcc == SHARD:
            sizes.append(shard_item(shard.number, place, shard.size, len(shard.placed)))
    manifest: bytes = msgpack.packb(
        {
            "format": {"name": "AERO", "version": list(VERSION)},
            "model": model(texts),
            "chunks": chunks,
            "shards": sizes,
        }
    )
    index: bytes = msgpack.packb({TENSORS_KEY: list(entries)})
    first += [
        metadata_payload(MANIFEST, MANIFEST_NAME, manifest, compress=compress_metadata),
        metadata_payload(INDEX, INDEX_NAME, index, flags=IS_INDEX, compress=compress_metadata),
    ]
    return first + [payload for _, payload in held]


def shard_item(number: int, place: int, size: int, tensors: int) -> dict[str, object]:
    """What a manifest says of a weight shard in this place of the TOC."""
    return {
        "shard_id": number,
        "toc_index": place,
        "size_bytes": size,
        "tensor_count": tensors,
        "mmap_critical": True,
    }


def model(tags: Mapping[str, str]) -> dict[str, str]:
    """The model as manifests and sets name it; empty where the tags say nothing."""
    return {"name": tags.get(NAME_TAG, ""), "architecture": tags.get(ARCHITECTURE_TAG, "")}
