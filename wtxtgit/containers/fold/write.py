"""Writing FOLD files, version 1.2.

The same chunks give the same bytes: the time of writing is given, not taken.
Spec: `docs/spec/fold.md`, "What is written".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from wtxtgit.containers import json_limits, tensor_header
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.fold.chunks import ChunkSource, Compression, Form, file_pieces, plan_all
from wtxtgit.containers.fold.index import (
    chunk_hashes,
    format_index,
    manifest_hash,
    merkle_root,
)
from wtxtgit.containers.fold.integrity import (
    CHUNK_HASHES,
    HMAC_PREFIX,
    MANIFEST_HASH,
    SHA256_PREFIX,
)
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.reading import TensorSource

VERSION = "1.2.0"
MODEL_CHUNK = "torch_state"
MODEL_CTYPE = b"STEN"
TAGS = "tags"

NOT_IN_LIBRARY = "C128"
"""A dtype that is read, and that the safetensors library does not know."""
DTYPES = {
    element: dtype for dtype, element in tensor_header.ELEMENTS.items() if dtype != NOT_IN_LIBRARY
}
"""The dtype of each element, as safetensors has them."""


def build(
    chunks: Sequence[ChunkSource],
    *,
    compression: Compression = "none",
    level: int = 3,
    ecc: int = 0,
    metadata: Mapping[str, object] | None = None,
    created_at_unix: float = 0,
    merkle: bool = False,
    integrity_key: bytes | None = None,
) -> Iterator[Buffer]:
    """A file of `chunks`, in pieces.

    `ecc` is n of `rs(n)` (the original writer has 16, 32 and 64), 0 for no
    parity. `metadata` is plain data; the hashes are added to it, as HMACs with
    an `integrity_key`. Raises FormatError for what no index can hold, before
    the first piece.
    """
    prefix = SHA256_PREFIX if integrity_key is None else HMAC_PREFIX
    form = Form(compression, level, ecc, prefix, integrity_key)
    planned = plan_all((source, form) for source in chunks)
    hashed = {**(metadata or {}), CHUNK_HASHES: chunk_hashes(planned)}
    hashed.pop(MANIFEST_HASH, None)
    hashed[MANIFEST_HASH] = manifest_hash(hashed, prefix, integrity_key)
    index: dict[str, object] = {
        "format": "fold",
        "version": VERSION,
        "created_at_unix": created_at_unix,
        "metadata": hashed,
        "chunks": [chunk.entry for chunk in planned],
    }
    if merkle and planned:
        index["merkle_root"] = merkle_root(planned)
    return file_pieces(planned, format_index(index))


def build_model(tensors: Sequence[TensorSource], tags: Mapping[str, str]) -> Iterator[Buffer]:
    """A file with one chunk `torch_state`, a safetensors file of `tensors`.

    Raises FormatError for names and dtypes that it can't hold, before the
    first piece.
    """
    for text in (*tags.keys(), *tags.values()):
        json_limits.check_name(text, "tag", offset=0)
    entries = []
    for tensor in tensors:
        if tensor.element not in DTYPES:
            raise FormatError(
                f"tensor {quoted(tensor.name)} is {tensor.element}, which safetensors lacks",
                field="dtype",
            )
        entries.append((tensor.name, DTYPES[tensor.element], tensor.shape, tensor.nbytes))
    header = tensor_header.format_header(entries)
    length = len(header) + sum(tensor.nbytes for tensor in tensors)
    source = ChunkSource(MODEL_CHUNK, MODEL_CTYPE, length, partial(_model, header, tensors))
    return build([source], metadata={TAGS: dict(tags)} if tags else None)


def _model(header: bytes, tensors: Sequence[TensorSource]) -> Iterator[Buffer]:
    yield header
    for tensor in tensors:
        yield from tensor.blocks()
