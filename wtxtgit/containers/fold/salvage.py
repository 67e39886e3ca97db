"""Salvaging a damaged FOLD file: chunks whose hash holds, or holds after mending by parity.

The index at the end has the names of chunks and their SHA-256. Without it chunks are searched from
the start of the file, each after the one before, and have only a CRC-32C in their headers. In a
truncated chunk, the tensors that still exist are unproved. Spec: `docs/spec/fold.md`, "Salvage".
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from wtxtgit.containers import salvage as shared
from wtxtgit.containers import tensor_header
from wtxtgit.containers.budget import DecodedParts
from wtxtgit.containers.cursor import quoted, unpack_at
from wtxtgit.containers.fold import headers, payloads
from wtxtgit.containers.fold.describe import FILE_CTYPES, NAME, describe, walk
from wtxtgit.containers.fold.payloads import CHUNK_HASHES, Payloads
from wtxtgit.containers.fold.read import (
    CHUNK_HEADER,
    CODEWORD,
    HEADER,
    TENSOR_CTYPE,
    UNCOMPRESSED,
    Fold,
    FoldChunk,
    parity_len,
    read_index,
)
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView
from wtxtgit.model.salvage import Salvage, SalvagedFile, SalvagedTensor, TensorState
from wtxtgit.model.tensor import Nested, ReadOptions

WRONG = "the hash of its chunk does not match"
NAMELESS = "the index is lost, and the name of its chunk with it"
NAMED_ONCE = "the index states the hash of its chunk in only one place"


def salvage(data: ByteView, options: ReadOptions) -> Salvage:
    """Return the tensors of chunks that are intact or mended by parity, others as lost.

    Raises FormatError if not even a header exists.
    """
    try:
        start, end, index = read_index(data)
    except FormatError as error:
        return _without_index(data, options, error.message)
    inside = Payloads(data, options)
    readable, lost_names = headers.read_chunks(inside)
    metadata = index.get("metadata")
    hashes = metadata.get(CHUNK_HASHES) if isinstance(metadata, dict) else None
    named = hashes if isinstance(hashes, dict) else {}
    whole: list[FoldChunk] = []
    doubtful: list[FoldChunk] = []
    tensors: list[SalvagedTensor] = []
    missing = [f"chunk {quoted(name)}: {WRONG}" for name in lost_names]
    notes: list[str] = []
    for chunk, _ in readable:
        if inside.condition(chunk) == "damaged":
            listed = _listed_as_lost(data, chunk)
            tensors += listed
            missing += [] if listed else [f"chunk {quoted(chunk.name)}: {WRONG}"]
        elif chunk.encrypted and options.decryption_key is None:
            notes.append(f"chunk {quoted(chunk.name)} is intact, but encrypted")
        else:
            stated = chunk.entry.get("sha256")
            is_named = stated is not None and named.get(chunk.name) == stated
            (whole if is_named else doubtful).append(chunk)
    files: list[SalvagedFile] = []
    tags: dict[str, str] = {}
    for chunks, why in ((whole, None), (doubtful, NAMED_ONCE)):
        state = TensorState.PROVED if why is None else TensorState.UNPROVED
        fold = Fold(data, start, end, index, tuple(chunks))
        description = describe(fold, options)
        tensors += (SalvagedTensor(tensor, state, why) for tensor in description.tensors)
        files += (SalvagedFile(nested, state, why) for nested in description.nested)
        tags |= description.tags
    return Salvage(tuple(tensors), tuple(files), tuple(missing), tuple(notes), tags)


def _listed_as_lost(data: ByteView, chunk: FoldChunk) -> list[SalvagedTensor]:
    """Return the tensors of a damaged chunk so far as its header can be read."""
    return [shared.lost(tensor.listed(data), WRONG) for tensor in chunk.tensors()]


def _without_index(data: ByteView, options: ReadOptions, why: str) -> Salvage:
    chunks = walk(data)
    end = chunks[-1][0].end if chunks else HEADER.size
    name = f"{NAME}{len(chunks)}"
    cut = _cut_chunk(data, end, name)
    tensors = [] if cut is None else _of_cut(data, cut)
    if cut is not None and cut.payload_end <= len(data):
        # Only its parity is truncated.
        chunks.append((cut, payloads.is_whole(cut.payload(data), cut, options)))
    decoded = DecodedParts(options).of_file(len(data))
    files: list[SalvagedFile] = []
    missing: list[str] = []
    for chunk, crc_holds in chunks:
        intact = chunk if crc_holds else _mended(data, chunk, options)
        if intact is None:
            missing.append(f"chunk {quoted(chunk.name)}: {WRONG}")
        elif chunk.ctype in FILE_CTYPES:
            is_plain = chunk.flags == UNCOMPRESSED and intact is chunk
            opened = decode = partial(payloads.payload, data, intact, options)
            if not is_plain:
                opened = partial(decoded.open, chunk.offset, chunk.uncomp_len, decode)
            at = chunk.payload_start if is_plain else None
            nested = Nested(chunk.name, opened, at, chunk.comp_len)
            files.append(SalvagedFile(nested, TensorState.UNPROVED, NAMELESS))
    missing.append(f"the index: {why}")
    if end < len(data) and cut is None:
        missing.append(f"what bytes {end} to {len(data)} were")
    return Salvage(tuple(tensors), tuple(files), tuple(missing))


def _mended(data: ByteView, chunk: FoldChunk, options: ReadOptions) -> FoldChunk | None:
    """Return a damaged chunk mended by its parity, whose length tells how much each block has."""
    for n in range(1, CODEWORD):
        if chunk.comp_len > options.max_chunk or parity_len(chunk.comp_len, n) != chunk.ecc_len:
            continue
        known = replace(chunk, entry={"ecc_algo": f"rs({n})"})
        if payloads.mended(data, known, options) is not None:
            return known
    return None


def _cut_chunk(data: ByteView, at: int, name: str) -> FoldChunk | None:
    """Return the truncated chunk whose header is at `at`, without its parity."""
    if at + CHUNK_HEADER.size > len(data):
        return None
    ctype, flags, uncomp_len, comp_len, crc, ecc_len = unpack_at(CHUNK_HEADER, data, at)
    lengths = (comp_len, uncomp_len, crc, 0)
    chunk = FoldChunk(name, ctype, flags, at, *lengths, False, {}, None)
    is_cut = chunk.end + ecc_len > len(data)
    return chunk if ctype in FILE_CTYPES and is_cut else None


def _of_cut(data: ByteView, chunk: FoldChunk) -> list[SalvagedTensor]:
    """Return the tensors of a truncated chunk, if they are stored there uncompressed."""
    is_plain = chunk.ctype == TENSOR_CTYPE and chunk.flags == UNCOMPRESSED
    if not is_plain or chunk.payload_end <= len(data):
        return []
    try:
        header = tensor_header.read(data, chunk.payload_start, len(data), is_cut=True)
    except FormatError:
        return []
    listed = [
        (replace(tensor, name=f"{chunk.name}/{tensor.name}"), None) for tensor in header.tensors
    ]
    salvaged = shared.of_places(data, listed)
    return [
        tensor if tensor.why is not None else replace(tensor, why=shared.CUT_SHORT)
        for tensor in salvaged
    ]
