"""What formats have in common whose models are split into numbered files."""

from __future__ import annotations

import json
from collections.abc import Sequence

from wtxtgit.containers import json_text
from wtxtgit.containers.cursor import fail
from wtxtgit.io.view import ByteView
from wtxtgit.model.tensor import TensorSource


def index_of(key: str, files: Sequence[str]) -> ByteView:
    """Return an index in our own format, which lists a set's files under one key."""
    return memoryview(_start(key) + json.dumps(files).encode() + b"}")


def is_index(key: str, data: ByteView) -> bool:
    """Whether bytes are such an index."""
    start = _start(key)
    return data[: len(start)] == start


def listed(key: str, data: ByteView, most: int) -> tuple[str, ...]:
    """Return the files that such an index lists, each once; raises FormatError.

    Which paths are allowed is up to the format.
    """
    value = json_text.parse(data, "index", unique_keys=True)
    files = value.get(key) if isinstance(value, dict) else None
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        fail("index does not list its files", offset=0, field=key)
    if len(files) > most:
        fail(f"index lists {len(files)} files", offset=0, field=key, kind="limit")
    for file in files:
        json_text.check_name(file, "file name", offset=0)
    return tuple(dict.fromkeys(files))


def _start(key: str) -> bytes:
    return f'{{"{key}":'.encode()


def numbered(stem: str, number: int, count: int, ending: str) -> str:
    """Return a file's name as transformers and llama.cpp number it; a single file has no number."""
    of = f"-{number:05}-of-{count:05}" if count > 1 else ""
    return f"{stem}{of}{ending}"


def filled(tensors: Sequence[TensorSource], max_shard: int) -> list[list[TensorSource]]:
    """Distribute tensors to files; returns at least one file."""
    groups: list[list[TensorSource]] = []
    open_group: list[TensorSource] = []
    filled = 0
    for tensor in tensors:
        # A tensor that is larger than a file should be is not split: it has a file of its own.
        if tensor.nbytes > max_shard:
            groups.append([tensor])
            continue
        if filled + tensor.nbytes > max_shard:
            groups.append(open_group)
            open_group, filled = [], 0
        open_group.append(tensor)
        filled += tensor.nbytes
    if open_group or not groups:
        groups.append(open_group)
    return groups
