"""Writing MLCP checkpoints in shards: a file of each, and the JSON that lists them.

Spec: `docs/spec/mlcp.md`, "Checkpoints in shards".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import pack
from typing import cast

from wtxtgit.containers import json_text
from wtxtgit.containers.budget import refuse_long, refuse_many
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.format import MAX_SET_FILES, is_in_folder
from wtxtgit.containers.mlcp import INDEX_ENDING
from wtxtgit.containers.mlcp.shards import shard_header, shard_name
from wtxtgit.containers.mlcp.write import (
    VERSION,
    format_json,
    new_metadata,
    new_record,
)
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.replacing import behind
from wtxtgit.containers.set_files import filled
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import TensorSource

MULTISHARD = "multishard"
MAX_DATA = 2**31 - 1
"""Most tensor bytes in a shard: their length is an int32."""


def build_set(
    tensors: Sequence[TensorSource], tags: Mapping[str, object], stem: str, max_shard: int
) -> Iterator[tuple[str, Iterator[Buffer]]]:
    """Yield names that start with `stem`, and bytes, of shards with up to `max_shard` tensor bytes.

    Shards are filled in the order of `tensors`; the JSON comes last. No checksum is written: no
    value would be right for all of the framework's readers. Raises FormatError before yielding
    anything.
    """
    refuse_many(len(tensors), MAX_TENSORS, "tensors", "shards")
    for tensor in tensors:
        new_record(0, tensor)
        if tensor.nbytes > MAX_DATA:
            message = f"tensor {quoted(tensor.name)} is larger than a shard can be"
            raise FormatError(message, kind="limit", field="size")
    json_text.refuse_repeated((tensor.name for tensor in tensors), "two tensors are named {}")
    groups = filled(tensors, min(max_shard, MAX_DATA))
    if len(groups) > MAX_SET_FILES:
        raise FormatError(f"{len(groups)} shards are too many", kind="limit", field="shards")
    # The result has to be readable.
    if not is_in_folder(shard_name(stem, 0)):
        raise FormatError(f"{quoted(stem)} can't be used to name the files", field="filePath")
    metadata = {**new_metadata(groups, VERSION, tags), "format": MULTISHARD}
    shards = cast(list[dict[str, object]], metadata["shards"])
    files = [_file(rank, group, shards[rank], stem) for rank, group in enumerate(groups)]
    spelled = format_json(metadata)
    refuse_long(len(spelled), MAX_JSON, "metadata", "metadata")
    return iter((*files, (stem + INDEX_ENDING, iter((spelled,)))))


def _file(
    rank: int, tensors: Sequence[TensorSource], listed: dict[str, object], stem: str
) -> tuple[str, Iterator[Buffer]]:
    """Return the name and bytes of a shard's file; updates what the JSON says of it."""
    name = shard_name(stem, rank)
    length = sum(tensor.nbytes for tensor in tensors)
    header = shard_header(rank, "", len(tensors)) + pack("<i", length)
    listed |= {"filePath": name, "fileSize": len(header) + length}
    return name, behind(header, tensors)
