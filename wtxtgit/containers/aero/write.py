"""Writing AERO files and sets: parts, their common index, and the JSON that lists them.

Spec: `docs/spec/aero.md`, "What is written" and "AEROSET".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256

from wtxtgit.containers.aero.aeroset import FORMAT_NAME, VERSIONS
from wtxtgit.containers.aero.chunks import (
    DTYPES,
    UUID_SIZE,
    Shard,
    assemble,
    check_tensors,
    file_payloads,
    model,
    plan,
)
from wtxtgit.containers.budget import refuse_many
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.format import MAX_SET_FILES, is_in_folder
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import TensorSource

__all__ = ["DTYPES", "build", "build_model", "build_set"]

SET_NAME = "{}.aeroset.json"
INDEX_NAME = "{}-index.aero"
PART_NAME = "{}-part-{:03}.aero"


def build(
    tensors: Sequence[TensorSource],
    *,
    tags: Mapping[str, str] | None = None,
    max_shard: int | None = None,
    uuid: bytes | None = None,
    ihsh: bool = False,
    phsh: int | None = None,
    tensor_hash: bool = False,
    compress_metadata: bool = True,
) -> Iterator[Buffer]:
    """Yield the bytes of an AERO file, in order; a pure function of tensors and options.

    A shard takes tensors up to `max_shard` bytes, or a single larger one; without it there is one
    shard. `uuid` (16 bytes) is derived from the content unless given. `ihsh` seals the control
    region, `phsh` is the size of pages to be hashed, `tensor_hash` puts a hash of each tensor in
    the index. Compressed metadata depends on the version of zstd.

    Raises FormatError for what the format can't hold, before yielding anything.
    """
    if uuid is not None and len(uuid) != UUID_SIZE:
        raise FormatError(f"uuid has {len(uuid)} bytes, not {UUID_SIZE}", field="uuid")
    if phsh is not None and phsh <= 0:
        raise FormatError(f"page size {phsh} is not positive", field="page_size")
    check_tensors(tensors)
    shards = plan(tensors, max_shard, page_size=phsh)
    entries = [
        entry for shard in shards for entry in shard.entries(shard.number, tensor_hash=tensor_hash)
    ]
    payloads = file_payloads(
        shards, entries, tags or {}, ihsh=ihsh, compress_metadata=compress_metadata
    )
    return assemble(payloads, uuid)


def build_model(
    tensors: Sequence[TensorSource],
    tags: Mapping[str, str],
    *,
    tensor_hashes: bool = False,
    page_size: int | None = None,
) -> Iterator[Buffer]:
    """Yield the bytes of a file with hashes of chunks and control region, with plain metadata.

    So a change of a tensor is a small change of the file, whichever zstd is installed.
    `tensor_hashes` and `page_size` add hashes of tensors and pages. Raises FormatError as `build`
    does.
    """
    return build(
        tensors,
        tags=tags,
        ihsh=True,
        phsh=page_size,
        tensor_hash=tensor_hashes,
        compress_metadata=False,
    )


class _NewFile:
    """A file of a set to be written.

    Its size and SHA-256 are known after it was iterated to its end: if a set's files are written in
    order, each is made only once.
    """

    def __init__(self, name: str, make: Callable[[], Iterator[Buffer]]) -> None:
        self.name = name
        self._make = make
        self._known: tuple[int, str] | None = None

    def pieces(self) -> Iterator[Buffer]:
        """Yield the file's bytes, in order; the same each time."""
        hasher, size = sha256(), 0
        for piece in self._make():
            hasher.update(piece)
            size += len(piece)
            yield piece
        # Only now: a caller that stops early has not read the whole file.
        self._known = size, hasher.hexdigest()

    def identity(self) -> tuple[int, str]:
        """Return size and SHA-256 in hex."""
        while self._known is None:
            for _ in self.pieces():
                pass
        return self._known


def build_set(
    tensors: Sequence[TensorSource],
    tags: Mapping[str, str],
    stem: str,
    max_part: int,
    *,
    tensor_hashes: bool = True,
    page_size: int | None = None,
) -> Iterator[tuple[str, Iterator[Buffer]]]:
    """Yield the files of a set: their names in its folder, starting with `stem`, and bytes.

    The parts come first, then their index, then the JSON that lists them. The JSON has their
    SHA-256, so files that were not iterated before are made once more. A part has one weight shard,
    of up to `max_part` bytes or a single larger tensor. Chunks are as `build_model` writes them,
    with a hash of each tensor unless `tensor_hashes` is false. Raises FormatError for what the
    format can't hold, before yielding anything.
    """
    check_tensors(tensors)
    # In its own part each shard is the first one.
    planned = plan(tensors, max_part, page_size=page_size)
    shards = [replace(shard, number=0) for shard in planned]
    refuse_many(len(shards), MAX_SET_FILES, "parts", "parts")
    if not is_in_folder(SET_NAME.format(stem)):
        raise FormatError(f"{quoted(stem)} can't be used to name the files", field="path")
    parts = [
        _NewFile(
            PART_NAME.format(stem, number), partial(_file, [shard], [shard], tags, tensor_hashes)
        )
        for number, shard in enumerate(shards)
    ]
    index = _NewFile(INDEX_NAME.format(stem), partial(_file, [], shards, tags, tensor_hashes))
    listed = _NewFile(SET_NAME.format(stem), partial(_set, parts, index, tags))
    return ((file.name, file.pieces()) for file in (*parts, index, listed))


def _file(
    own: Sequence[Shard],
    shards: Sequence[Shard],
    tags: Mapping[str, str],
    tensor_hashes: bool,
) -> Iterator[Buffer]:
    """Yield a part, which has its `own` shards, or the index, which lists those of all parts."""
    entries = [
        entry
        for number, shard in enumerate(shards)
        for entry in shard.entries(number, tensor_hash=tensor_hashes)
    ]
    return assemble(file_payloads(own, entries, tags, ihsh=True, compress_metadata=False))


def _set(parts: Sequence[_NewFile], index: _NewFile, tags: Mapping[str, str]) -> Iterator[Buffer]:
    listed = {
        "format": {"name": FORMAT_NAME, "version": list(VERSIONS[0])},
        "model": model(tags),
        "parts": [_member(part) | {"shards": [number]} for number, part in enumerate(parts)],
        "global_tidx": _member(index),
    }
    yield json.dumps(listed, indent=2).encode() + b"\n"


def _member(file: _NewFile) -> dict[str, object]:
    size, digest = file.identity()
    return {"path": file.name, "sha256": digest, "size_bytes": size}
