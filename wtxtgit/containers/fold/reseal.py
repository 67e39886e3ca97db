"""What a FOLD file holds by name, and writing it anew with some of that changed.

An entry is a chunk: a file in a payload. What an index says of how a file was
written and proven is no value: it comes from the skeleton.
Spec: `docs/spec/fold.md`, "Resealing".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import cast

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.decoded import DecodedParts
from wtxtgit.containers.fold import agreement, integrity, payloads, remains
from wtxtgit.containers.fold.chunks import (
    ChunkSource,
    Compression,
    Kept,
    Laid,
    Planned,
    file_pieces,
    form_of,
    plan,
)
from wtxtgit.containers.fold.condition import Conditions
from wtxtgit.containers.fold.description import OF_THE_WRITING
from wtxtgit.containers.fold.index import format_index, sealed
from wtxtgit.containers.fold.patching import patched
from wtxtgit.containers.fold.read import HEADER, UNCOMPRESSED, ZSTD, Chunk, Fold
from wtxtgit.containers.fold.repack import broken_by_repack
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.model.entries import Entry, Placed
from wtxtgit.model.reading import Findings, Packed, ReadOptions

LEVEL = 3
"""Of zstd, for content that is compressed anew."""
SIGNATURE = "signature"
OF_THE_PLACE = frozenset(
    {
        "name",
        "ctype",
        "flags",
        "offset",
        "header_len",
        "comp_len",
        "uncomp_len",
        "crc32c",
        "sha256",
        "ecc_algo",
        "ecc_len",
    }
)
"""Keys of a chunk in the index that follow from its header, its place and its content."""


def entries(container: Fold, options: ReadOptions) -> list[Entry]:
    """The chunks in the order of the index, each payload hashed.

    Nothing is decoded before it is asked for. Raises FormatError (limit) for
    chunks that overlap too much.
    """
    conditions = Conditions(container, options)
    decoded = DecodedParts(options).of_file(len(container.data))
    return [
        _entry(container.data, chunk, conditions, decoded, options) for chunk in container.chunks
    ]


def values(container: Fold, options: ReadOptions) -> dict[str, object]:
    """The metadata, without what says how the file was written and proven."""
    metadata = container.index.get("metadata")
    held = metadata if isinstance(metadata, dict) else {}
    return {key: value for key, value in held.items() if key not in OF_THE_WRITING}


def rest(container: Fold, options: ReadOptions) -> dict[str, object]:
    """What else the index says, and a hash of bytes that no chunk has, where there are any."""
    return remains.rest(container)


def reseal(
    container: Fold,
    placed: Sequence[Placed],
    values: Mapping[str, object] | None,
    options: ReadOptions,
) -> Iterator[Buffer]:
    """The file with these chunks and, where not None, this metadata, in pieces.

    Chunks without content are taken as they are stored, parity and hash
    included; content is stored in the form that its chunk had. The file stays
    as it is but for changed chunks and the hashes over them, where the chunks
    are its own and keep their lengths; else it is laid out back to back.

    Raises FormatError, before the first piece: for chunks that are damaged,
    for hashes over them that do not hold, for content of encrypted chunks, for
    HMACs to be made without `options.integrity_key`, and (limit) for what is
    over `options.max_chunk` or overlaps too much.
    """
    own = values is None and _is_own(container, placed)
    if own and all(one.content is None for one in placed):
        return pieces(container.data)
    if len(placed) > MAX_TENSORS:
        raise FormatError(f"{len(placed)} chunks are too many", kind="limit", field="chunks")
    key = options.integrity_key
    sources = _Sources(options)
    sources.add(container)
    chunks = [_chunk(one, sources.take(one), options) for one in placed]
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


def broken(container: Fold) -> tuple[str, ...]:
    """Fields of the index that are kept, and sign what resealing changes."""
    metadata = container.index.get("metadata")
    is_signed = isinstance(metadata, dict) and metadata.get(SIGNATURE) is not None
    return (*broken_by_repack(container), *([SIGNATURE] if is_signed else []))


def _entry(
    data: ByteView,
    chunk: Chunk,
    conditions: Conditions,
    decoded: DecodedParts,
    options: ReadOptions,
) -> Entry:
    form = _form(chunk)
    try:
        payloads.check_limits(chunk, options)
    except FormatError as error:
        return Entry(chunk.name, form, None, unread=error.message)
    condition = conditions.of(chunk)
    if condition == "damaged":
        return Entry(chunk.name, form, None, unread="damaged")
    # What is mended is not as it is stored, so that says nothing of other chunks.
    held = data[chunk.payload_start : chunk.payload_end]
    stored = held if condition == "whole" else None
    why = _why_unread(chunk, options)
    if why is not None:
        return Entry(chunk.name, form, stored, unread=why)
    if chunk.flags == UNCOMPRESSED and not chunk.encrypted and stored is not None:
        return Entry(chunk.name, form, stored, file=stored)
    decode = partial(payloads.payload, data, chunk, options)
    opened = partial(decoded.open, chunk, chunk.uncomp_len, decode)
    return Entry(chunk.name, form, stored, file=Packed(chunk.uncomp_len, opened))


def _form(chunk: Chunk) -> tuple[object, ...]:
    """What the records of a chunk say beside its name, its place and its content."""
    stored = integrity.parse_hash(chunk.entry.get("sha256"))
    further = {key: value for key, value in chunk.entry.items() if key not in OF_THE_PLACE}
    return (
        chunk.ctype,
        chunk.flags,
        json.dumps(chunk.ecc_algo, sort_keys=True),
        None if stored is None else stored.prefix,
        json.dumps(further, sort_keys=True),
    )


def _why_unread(chunk: Chunk, options: ReadOptions) -> str | None:
    """Why a payload whose hash holds can't be opened, as far as its records tell."""
    if chunk.flags not in (UNCOMPRESSED, ZSTD):
        return f"flags are {chunk.flags}, which are unknown"
    if chunk.encrypted:
        return "encrypted" if options.decryption_key is None else None
    if chunk.flags == UNCOMPRESSED and chunk.comp_len != chunk.uncomp_len:
        return f"uncomp_len is {chunk.uncomp_len}, its content has {chunk.comp_len}"
    return None


def _is_own(container: Fold, placed: Sequence[Placed]) -> bool:
    """Whether these are all of the file's chunks, in order."""
    return len(placed) == len(container.chunks) and all(
        one.source is container and one.number == n for n, one in enumerate(placed)
    )


class _Sources:
    """The files that chunks are taken from: what is told of them must hold before."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._known: dict[int, Conditions] = {}

    def add(self, fold: Fold) -> Conditions:
        """Check the hashes over hashes of a file that is seen first; raises FormatError."""
        if id(fold) not in self._known:
            findings = Findings()
            agreement.check_metadata(fold, self._options.integrity_key, findings)
            _refuse(findings)
            self._known[id(fold)] = Conditions(fold, self._options)
        return self._known[id(fold)]

    def take(self, one: Placed) -> Chunk:
        """The chunk that is placed, which is as its records say; raises FormatError."""
        fold = cast(Fold, one.source)
        conditions = self.add(fold)
        chunk = fold.chunks[one.number]
        findings = Findings()
        agreement.check_chunk(chunk, findings)
        _refuse(findings)
        payloads.check_limits(chunk, self._options)
        if conditions.of(chunk) == "damaged":
            raise FormatError(
                f"chunk {quoted(chunk.name)} is damaged",
                offset=chunk.payload_start,
                field="comp_payload",
            )
        return chunk


def _refuse(findings: Findings) -> None:
    """Raise the first error that was found."""
    for problem in findings.errors:
        named = problem.message
        if isinstance(problem.chunk, str):
            named = f"chunk {quoted(problem.chunk)}: {named}"
        raise FormatError(named, offset=problem.offset, field=problem.field)


def _chunk(one: Placed, chunk: Chunk, options: ReadOptions) -> Kept | Planned:
    """The chunk as it is written, not yet in its place."""
    if one.content is None:
        data = cast(Fold, one.source).data
        return Kept(chunk.entry, data[chunk.offset : chunk.end])
    if chunk.encrypted:
        raise FormatError(
            f"chunk {quoted(chunk.name)} is encrypted: it can't have other content",
            offset=chunk.offset,
            field="encrypted",
        )
    if one.content.nbytes > options.max_chunk:
        raise FormatError(
            f"content of chunk {quoted(chunk.name)} is over {options.max_chunk} bytes",
            kind="limit",
            field="uncomp_len",
        )
    compression: Compression = "zstd" if chunk.flags == ZSTD else "none"
    form = form_of(chunk, compression, LEVEL, options)
    source = ChunkSource(chunk.name, chunk.ctype, one.content.nbytes, one.content.blocks)
    return plan(source, form, chunk.offset).like(chunk)


def _with_values(
    index: Mapping[str, object], values: Mapping[str, object] | None
) -> Mapping[str, object]:
    """The index with this metadata beside what says how the file was written."""
    if values is None:
        return index
    metadata = index.get("metadata")
    if not isinstance(metadata, dict):
        raise FormatError("metadata is not an object", field="metadata")
    given = {key: value for key, value in values.items() if key not in OF_THE_WRITING}
    kept = {
        key: given.get(key, value)
        for key, value in metadata.items()
        if key in OF_THE_WRITING or key in given
    }
    return {**index, "metadata": {**kept, **given}}
