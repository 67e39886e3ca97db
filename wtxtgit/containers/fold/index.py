"""What the index of a FOLD file says, held against chunk headers and itself.

Nothing here reads a payload.
Spec: `docs/spec/fold.md`, "Checks".
"""

from __future__ import annotations

from collections.abc import Iterator

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.fold import payloads
from wtxtgit.containers.fold.payloads import CHUNK_HASHES, MANIFEST_HASH
from wtxtgit.containers.fold.read import (
    CHUNK_HEADER,
    HEADER,
    UNCOMPRESSED,
    ZSTD,
    Chunk,
    Fold,
    parity_bytes,
    parity_len,
)
from wtxtgit.model.findings import Findings

FORMAT = "fold"
VERSIONS = frozenset({"1.0.0", "1.1.0", "1.2.0"})
HEADER_FIELDS = (
    ("flags", 4),
    ("uncomp_len", 8),
    ("comp_len", 16),
    ("crc32c", 24),
    ("ecc_len", 28),
)
"""Integers that a chunk header and the index both have, and where the header has them."""
MERKLE_ROOT = "merkle_root"
TRUST_BLOCK = "trust_block"


def check_index(fold: Fold, findings: Findings) -> None:
    """What readers want of the index as a whole."""
    index, offset = fold.index, fold.index_start
    if index.get("format") != FORMAT:
        findings.warn(
            "structure", 'format of the index is not "fold"', offset=offset, field="format"
        )
    version = index.get("version")
    if not isinstance(version, str) or version not in VERSIONS:
        findings.warn(
            "structure",
            f"version {shown(version)} of the index is unknown",
            offset=offset,
            field="version",
        )
    if not isinstance(index.get("metadata"), dict):
        findings.error("structure", "metadata is not an object", offset=offset, field="metadata")


def check_layout(fold: Fold, findings: Findings) -> None:
    """Warn of bytes that two parts have, and of bytes that no part has."""
    spans = [(chunk.offset, chunk.end, chunk) for chunk in fold.chunks]
    spans.sort(key=lambda span: span[:2])
    parts = _with_index(fold, spans)
    reached = HEADER.size
    for start, end, chunk in parts:
        what = "index" if chunk is None else f"chunk {quoted(chunk.name)}"
        name = None if chunk is None else chunk.name
        if start < reached:
            findings.warn(
                "structure",
                f"{what} overlaps what stands before it",
                offset=start,
                field="offset",
                chunk=name,
            )
        elif start > reached:
            findings.warn(
                "structure",
                f"{start - reached} bytes before {what} are in no chunk",
                offset=reached,
                field="offset",
                chunk=name,
            )
        reached = max(reached, end)
    if reached < len(fold.data):
        findings.warn(
            "structure",
            f"{len(fold.data) - reached} bytes follow the last part",
            offset=reached,
            field="index_len",
        )


def check_chunk(chunk: Chunk, findings: Findings) -> None:
    """Hold a chunk's header against the index."""
    entry, name = chunk.entry, chunk.name
    if entry.get("ctype") != chunk.ctype_text:
        findings.error(
            "structure",
            f"ctype is {quoted(chunk.ctype_text)}, index has {shown(entry.get('ctype'))}",
            offset=chunk.offset,
            field="ctype",
            chunk=name,
        )
    for field, at in HEADER_FIELDS:
        stated, held = entry.get(field), getattr(chunk, field)
        if type(stated) is not int or stated != held:
            findings.error(
                "structure",
                f"{field} is {held}, index has {shown(stated)}",
                offset=chunk.offset + at,
                field=field,
                chunk=name,
            )
    header_len = entry.get("header_len")
    if type(header_len) is not int or header_len != CHUNK_HEADER.size:
        findings.error(
            "structure",
            f"header_len in the index is {shown(header_len)}, not {CHUNK_HEADER.size}",
            offset=chunk.offset,
            field="header_len",
            chunk=name,
        )
    if chunk.flags not in (UNCOMPRESSED, ZSTD):
        findings.error(
            "structure",
            f"flags {chunk.flags:#x} are unknown",
            offset=chunk.offset + 4,
            field="flags",
            chunk=name,
        )
    if payloads.parse_hash(entry.get("sha256")) is None:
        findings.error(
            "structure",
            f"sha256 in the index is {shown(entry.get('sha256'))}, which is no hash",
            offset=chunk.offset,
            field="sha256",
            chunk=name,
        )
    if chunk.encrypted and entry.get("aad", name) != name:
        findings.warn(
            "structure",
            "aad in the index is not the chunk's name",
            offset=chunk.offset,
            field="aad",
            chunk=name,
        )
    _check_parity_length(chunk, findings)


def check_metadata(fold: Fold, key: bytes | None, findings: Findings) -> list[bool | None]:
    """Check the hashes over hashes; return what becomes of the ones that need a key."""
    metadata, offset = fold.index.get("metadata"), fold.index_start
    held: list[bool | None] = []
    if isinstance(metadata, dict):
        if CHUNK_HASHES in metadata:
            _check_chunk_hashes(fold, metadata[CHUNK_HASHES], findings)
            if MANIFEST_HASH not in metadata:
                findings.warn(
                    "manifest",
                    "metadata has chunk_hashes and no manifest_hash, which no writer leaves out",
                    offset=offset,
                    field=MANIFEST_HASH,
                )
        if MANIFEST_HASH in metadata:
            wanted = payloads.parse_hash(metadata[MANIFEST_HASH])
            holds = wanted is not None and wanted.holds(payloads.manifest_sha256(metadata), key)
            if wanted is not None and wanted.needs_key:
                held.append(holds)
            if holds is False:
                findings.error(
                    "manifest",
                    "manifest_hash is not that of the metadata",
                    offset=offset,
                    field=MANIFEST_HASH,
                )
    _check_merkle_root(fold, findings)
    return held


def shown(value: object) -> str:
    """A value out of the index as a message shows it; it may be anything."""
    if isinstance(value, str):
        return quoted(value)
    if value is None:
        return "none"
    return str(value) if isinstance(value, int | float) else "something else"


def _with_index(
    fold: Fold, spans: list[tuple[int, int, Chunk]]
) -> Iterator[tuple[int, int, Chunk | None]]:
    """The chunks in order of their offsets, and among them the index (None)."""
    told = False
    for start, end, chunk in spans:
        if not told and start >= fold.index_start:
            told = True
            yield fold.index_start, fold.index_end, None
        yield start, end, chunk
    if not told:
        yield fold.index_start, fold.index_end, None


def _check_parity_length(chunk: Chunk, findings: Findings) -> None:
    n = parity_bytes(chunk.ecc_algo)
    if n is None:
        findings.error(
            "structure",
            f"ecc_algo in the index is {shown(chunk.ecc_algo)}, not none or rs(n)",
            offset=chunk.offset + 28,
            field="ecc_algo",
            chunk=chunk.name,
        )
    elif parity_len(chunk.comp_len, n) != chunk.ecc_len:
        findings.error(
            "structure",
            f"ecc_len is {chunk.ecc_len}, {shown(chunk.ecc_algo)} of {chunk.comp_len} bytes "
            f"has {parity_len(chunk.comp_len, n)}",
            offset=chunk.offset + 28,
            field="ecc_len",
            chunk=chunk.name,
        )


def _check_chunk_hashes(fold: Fold, hashes: object, findings: Findings) -> None:
    offset = fold.index_start
    if not isinstance(hashes, dict):
        findings.error(
            "manifest", "chunk_hashes is not an object", offset=offset, field=CHUNK_HASHES
        )
        return
    last = {chunk.name: chunk for chunk in fold.chunks}
    for chunk in fold.chunks:
        if chunk.name in hashes and hashes[chunk.name] == chunk.entry.get("sha256"):
            continue
        if last[chunk.name] is not chunk:
            findings.warn(
                "manifest",
                "chunk_hashes has the hash of a later chunk of the same name",
                offset=offset,
                field=CHUNK_HASHES,
                chunk=chunk.name,
            )
            continue
        findings.error(
            "manifest",
            "chunk_hashes and sha256 differ"
            if chunk.name in hashes
            else "chunk_hashes lacks the chunk",
            offset=offset,
            field=CHUNK_HASHES,
            chunk=chunk.name,
        )
    for name in hashes:
        if name not in last:
            findings.error(
                "manifest",
                "chunk_hashes has a chunk that the index lacks",
                offset=offset,
                field=CHUNK_HASHES,
                chunk=name,
            )


def _check_merkle_root(fold: Fold, findings: Findings) -> None:
    stated = fold.index.get(MERKLE_ROOT)
    if not fold.chunks or (stated is None and not _claims_merkle_root(fold)):
        return
    if stated is None:
        findings.warn(
            "merkle",
            "security_features say that there is a merkle_root, and there is none",
            offset=fold.index_start,
            field=MERKLE_ROOT,
        )
        return
    root = payloads.merkle_root(
        (chunk.name, chunk.offset, chunk.entry.get("sha256")) for chunk in fold.chunks
    )
    if stated != root:
        findings.error(
            "merkle",
            "merkle_root is not that of the chunks",
            offset=fold.index_start,
            field=MERKLE_ROOT,
        )


def _claims_merkle_root(fold: Fold) -> bool:
    metadata = fold.index.get("metadata")
    features = metadata.get("security_features") if isinstance(metadata, dict) else None
    return isinstance(features, dict) and features.get("merkle") is True
