"""What a FOLD file holds by name, and rewriting it with some of that changed.

An entry is a chunk: a file in a payload. What an index says of how a file was written and proved is
not a value: it comes from the skeleton. If changed chunks keep their lengths, everything else in
the file stays unchanged and in place. Spec: `docs/spec/fold.md`, "Resealing".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import cast

from wtxtgit.containers import intervals, json_text
from wtxtgit.containers.budget import DecodedParts, refuse_many
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.fold import MAGIC, payloads
from wtxtgit.containers.fold.check import check_chunk, check_metadata
from wtxtgit.containers.fold.describe import OF_THE_PLACE, OF_THE_WRITING
from wtxtgit.containers.fold.payloads import (
    CHUNK_HASHES,
    MANIFEST_HASH,
    SHA256_PREFIX,
    Payloads,
)
from wtxtgit.containers.fold.read import (
    HEADER,
    JSON_CTYPE,
    MERKLE_ROOT,
    UNCOMPRESSED,
    ZSTD,
    Fold,
    FoldChunk,
)
from wtxtgit.containers.fold.write import (
    ChunkSource,
    Compression,
    Laid,
    file_pieces,
    form_of,
    format_index,
    plan,
    sealed,
)
from wtxtgit.containers.intervals import Span, groups
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.replacing import Edit, refuse_errors, spliced
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, pieces
from wtxtgit.model.findings import Findings
from wtxtgit.model.plain import pointer_part
from wtxtgit.model.tensor import Entry, PackedBytes, PlacedEntry, ReadOptions

GAPS = "gaps"
METADATA = "metadata"
MADE_ANEW = frozenset({"format", "version", "created_at_unix", "chunks", METADATA, MERKLE_ROOT})
"""Keys of an index that `entries` or `values` cover, or that say how and when it was written."""


def entries(container: Fold, options: ReadOptions) -> list[Entry]:
    """Return the chunks in the order of the index, each payload hashed.

    Nothing is decoded before it is asked for. Raises FormatError (limit) if chunks overlap too
    much.
    """
    inside = Payloads(container.data, options)
    decoded = DecodedParts(options).of_file(len(container.data))
    return [_entry(chunk, inside, decoded) for chunk in container.chunks]


def values(container: Fold, options: ReadOptions) -> dict[str, object]:
    """Return the metadata, without what says how the file was written and proved."""
    metadata = container.index.get("metadata")
    items = metadata.items() if isinstance(metadata, dict) else ()
    return {key: value for key, value in items if key not in OF_THE_WRITING}


def rest(container: Fold, options: ReadOptions) -> dict[str, object]:
    """Return further keys of the index by their JSON pointers, and a hash of bytes in no chunk.

    For hashes over chunks only their existence and form are included.
    """
    spans = [(0, HEADER.size), (container.index_start, container.index_end)]
    spans += [(chunk.offset, chunk.end) for chunk in container.chunks]
    gaps = intervals.digest(container.data, spans)
    return dict(_keys(container.index)) | ({} if gaps is None else {GAPS: gaps})


def reseal(
    container: Fold,
    placed: Sequence[PlacedEntry],
    values: Mapping[str, object] | None,
    options: ReadOptions,
) -> Iterator[Buffer]:
    """Yield the file with these chunks and, unless None, this metadata.

    Chunks without content are copied as stored, with parity and hash; content is stored in the form
    that its chunk had. If the chunks are the file's own and keep their lengths, the file changes
    only in changed chunks and the hashes over them; otherwise it is laid out back to back.

    Raises FormatError, before the first piece: for damaged chunks, for hashes over them that do not
    hold, for content of encrypted chunks, for HMACs to be computed without `options.integrity_key`,
    and (limit) for what is over `options.max_chunk` or overlaps too much.
    """
    # Only with the file's own chunks and metadata can offsets and the index's spelling stay.
    own = values is None and [(entry.source, entry.number) for entry in placed] == [
        (container, number) for number in range(len(container.chunks))
    ]
    if own and all(entry.content is None for entry in placed):
        return pieces(container.data)
    refuse_many(len(placed), MAX_TENSORS, "chunks", "chunks")
    key = options.integrity_key
    sources: dict[int, Payloads] = {}
    for fold in (container, *(cast(Fold, entry.source) for entry in placed)):
        if id(fold) not in sources:
            findings = Findings(label=attrgetter("name"))
            check_metadata(fold, key, findings)
            refuse_errors(findings)
            sources[id(fold)] = Payloads(fold.data, options)
    chunks = [_chunk(entry, sources[id(entry.source)]) for entry in placed]
    if own:
        index = sealed(container.index, chunks, key)
        in_place = patched(container, chunks, index)
        if in_place is not None:
            return in_place
    laid: list[Laid] = []
    offset = HEADER.size
    for chunk in chunks:
        laid.append(chunk.at(offset))
        offset += chunk.length
    index = sealed(_with_values(container.index, values), laid, key)
    return file_pieces(laid, format_index(index))


def _entry(chunk: FoldChunk, inside: Payloads, decoded: DecodedParts) -> Entry:
    form, options = _form(chunk), inside.options
    is_json = chunk.ctype == JSON_CTYPE
    try:
        payloads.check_limits(chunk, options)
    except FormatError as error:
        return Entry(chunk.name, form, None, unread=error.message)
    condition = inside.condition(chunk)
    if condition == "damaged":
        return Entry(chunk.name, form, None, unread="damaged")
    # A mended payload differs from the stored bytes, so these can't be compared with other
    # chunks.
    stored = chunk.payload(inside.data) if condition == "whole" else None
    why = _why_unread(chunk, options)
    if why is not None:
        return Entry(chunk.name, form, stored, unread=why)
    if chunk.flags == UNCOMPRESSED and not chunk.encrypted and stored is not None:
        return Entry(chunk.name, form, stored, file=stored, is_json=is_json)
    decode = partial(payloads.payload, inside.data, chunk, options)
    opened = partial(decoded.open, chunk, chunk.uncomp_len, decode)
    content = PackedBytes(chunk.uncomp_len, opened)
    return Entry(chunk.name, form, stored, file=content, is_json=is_json)


def _form(chunk: FoldChunk) -> tuple[object, ...]:
    """Return what the records of a chunk say besides its name, its place and its content."""
    stored = payloads.parse_hash(chunk.entry.get("sha256"))
    further = {key: value for key, value in chunk.entry.items() if key not in OF_THE_PLACE}
    return (
        chunk.ctype,
        chunk.flags,
        json.dumps(chunk.ecc_algo, sort_keys=True),
        None if stored is None else stored.prefix,
        json.dumps(further, sort_keys=True),
    )


def _why_unread(chunk: FoldChunk, options: ReadOptions) -> str | None:
    """Return why an intact payload can't be opened, so far as its records tell."""
    if chunk.flags not in (UNCOMPRESSED, ZSTD):
        return f"flags are {chunk.flags}, of which some are unknown"
    if chunk.encrypted:
        return "encrypted" if options.decryption_key is None else None
    if chunk.flags == UNCOMPRESSED and chunk.comp_len != chunk.uncomp_len:
        return f"uncomp_len is {chunk.uncomp_len}, but its content has {chunk.comp_len} bytes"
    return None


def _chunk(entry: PlacedEntry, inside: Payloads) -> Laid:
    """Return the chunk to be written, in the form that its records say, not yet in its place."""
    chunk, options = cast(Fold, entry.source).chunks[entry.number], inside.options
    named, findings = f"chunk {quoted(chunk.name)}", Findings(label=attrgetter("name"))
    check_chunk(chunk, findings)
    refuse_errors(findings)
    payloads.check_limits(chunk, options)
    if inside.condition(chunk) == "damaged":
        raise FormatError(f"{named} is damaged", offset=chunk.payload_start, field="comp_payload")
    if entry.content is None:
        stored = inside.data[chunk.offset : chunk.end]
        return Laid(chunk.entry, len(stored), partial(pieces, stored), is_new=False)
    if chunk.encrypted and options.decryption_key is None:
        raise FormatError(
            f"{named} is encrypted, and its content can't be replaced without the key",
            offset=chunk.offset,
            field="encrypted",
        )
    if entry.content.nbytes > options.max_chunk:
        raise FormatError(
            f"content of chunk {quoted(chunk.name)} is over {options.max_chunk} bytes",
            kind="limit",
            field="uncomp_len",
        )
    compression: Compression = "zstd" if chunk.flags == ZSTD else "none"
    form = form_of(chunk, compression, options)
    source = ChunkSource(chunk.name, chunk.ctype, entry.content.nbytes, entry.content.blocks)
    return plan(source, form, chunk.offset).like(chunk)


def _with_values(
    index: Mapping[str, object], values: Mapping[str, object] | None
) -> Mapping[str, object]:
    """Return the index with this metadata, keeping what says how the file was written."""
    if values is None:
        return index
    metadata = index.get("metadata")
    if not isinstance(metadata, dict):
        raise FormatError("metadata is not an object", field="metadata")
    new = {key: value for key, value in values.items() if key not in OF_THE_WRITING}
    # Keys keep their order, new ones go last ("Resealing").
    kept = {
        key: new.get(key, value)
        for key, value in metadata.items()
        if key in OF_THE_WRITING or key in new
    }
    return {**index, "metadata": {**kept, **new}}


def patched(
    fold: Fold, chunks: Sequence[Laid], index: Mapping[str, object]
) -> Iterator[Buffer] | None:
    """Yield the file with planned chunks written in their places.

    `chunks` are all of the file's own, `index` is its index with their hashes. Returns None if they
    do not fit: a length differs, or bytes that would change belong to something else as well.
    """
    changed = [
        (old.offset, old.end, new)
        for old, new in zip(fold.chunks, chunks, strict=True)
        if new.is_new
    ]
    if any(end - start != new.length for start, end, new in changed):
        return None
    places = {(start, end) for start, end, _ in changed}
    if _is_shared(fold, {*places, (0, HEADER.size), (fold.index_start, fold.index_end)}):
        return None
    text = bytes(fold.data[fold.index_start : fold.index_end]).decode()
    spelled = json_text.replaced(text, dict(_edits(fold.index, index))).encode()
    moved = len(spelled) != fold.index_end - fold.index_start
    # The index may grow or shrink if only bytes of no part follow it.
    if moved and (
        len(spelled) > MAX_JSON or any(chunk.end > fold.index_start for chunk in fold.chunks)
    ):
        return None
    header = HEADER.pack(MAGIC, HEADER.size, fold.index_start, len(spelled))
    patches: list[Edit] = [(start, end, new.pieces) for start, end, new in changed]
    patches.append((0, HEADER.size, lambda: iter([header])))
    patches.append((fold.index_start, fold.index_end, lambda: iter([spelled])))
    return spliced(fold.data, sorted(patches, key=lambda patch: patch[:2]))


def _is_shared(fold: Fold, changed: set[Span]) -> bool:
    """Whether one of these spans overlaps another one, or any chunk."""
    spans = [(chunk.offset, chunk.end) for chunk in fold.chunks]
    spans += [(0, HEADER.size), (fold.index_start, fold.index_end)]
    together = groups(spans, lambda span: span)
    return any(len(group) > 1 and not changed.isdisjoint(group) for group in together)


def _edits(
    old: object, new: object, path: json_text.Path = ()
) -> Iterator[tuple[json_text.Path, object]]:
    """Yield the values in which the second index differs: those that hashing changed."""
    if old is new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in new.items():
            yield from _edits(old.get(key), value, (*path, key))
    elif isinstance(old, list) and isinstance(new, list):
        for number, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _edits(before, after, (*path, number))
    elif old != new:
        yield path, new


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
            yield _pointer(METADATA, key), _of_writing(key, metadata[key])


def _of_writing(key: str, value: object) -> object:
    if key == CHUNK_HASHES:
        return True
    if key == MANIFEST_HASH:
        stored = payloads.parse_hash(value)
        return SHA256_PREFIX if stored is None else stored.prefix
    return value


def _pointer(*keys: str) -> str:
    return "".join("/" + pointer_part(key) for key in keys)
