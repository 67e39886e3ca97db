"""Writing AERO files and sets.

Spec: `docs/spec/aero.md`, "What is written".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wtxtgit.containers.aero import chunks
from wtxtgit.containers.aero.chunks import (
    DTYPES,
    UUID_SIZE,
    assemble,
    check_tensors,
    content_uuid,
    file_payloads,
    plan,
)
from wtxtgit.containers.aero.repack import repack
from wtxtgit.containers.aero.write_set import build_set
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import TensorSource

__all__ = ["DTYPES", "build", "build_model", "build_set", "repack"]


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
    """The bytes of an AERO file, in order; the same tensors and options give the same.

    A shard takes tensors up to `max_shard` bytes, or one larger one; without
    it there is one shard. `uuid` (16 bytes) follows from the content where it
    is not given. `ihsh` seals the control region, `phsh` is the size of pages
    that are hashed, `tensor_hash` puts a hash of each tensor in the index.
    Compressed metadata depends on the version of zstd.

    Raises FormatError for what the format can't hold, before anything is given.
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
    chunks.check_payloads(payloads)
    return assemble(payloads, content_uuid(payloads) if uuid is None else uuid)


def build_model(tensors: Sequence[TensorSource], tags: Mapping[str, str]) -> Iterator[Buffer]:
    """The bytes of a file with hashes of chunks and control region, its metadata plain.

    So a change of a tensor is a small change of the file, whatever zstd is
    installed. Raises FormatError as `build` does.
    """
    return build(tensors, tags=tags, ihsh=True, compress_metadata=False)
