"""Writing a model to several safetensors files with an index.

Spec: `docs/spec/safetensors.md`, "Sharded models"
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.safetensors.sharded import is_inside
from wtxtgit.containers.safetensors.write import build_model
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import TensorSource

SUFFIX = ".safetensors"
INDEX_SUFFIX = ".safetensors.index.json"
MAX_FILES = 99_999
"""Files of a set: their numbers have five digits."""


def build_set(
    tensors: Sequence[TensorSource], tags: Mapping[str, str], stem: str, max_shard: int
) -> Iterator[tuple[str, Iterator[Buffer]]]:
    """Names that start with `stem`, and bytes, of files with up to `max_shard` tensor bytes each.

    Files are filled in the order of `tensors`; a tensor that is larger has a
    file of its own. The index comes last; what fits into one file needs none.
    Every file has the tags. Raises FormatError as `build_model` does, and for
    too many files, before anything is given.
    """
    groups = _filled(tensors, max_shard)
    if len(groups) > MAX_FILES:
        raise FormatError(
            f"{len(groups)} files are too many, the most is {MAX_FILES}", kind="limit", field="name"
        )
    if not is_inside(stem + INDEX_SUFFIX):
        raise FormatError(f"{quoted(stem)} can't start the names of files", field="weight_map")
    taken: set[str] = set()
    for tensor in tensors:
        if tensor.name in taken:
            raise FormatError(f"tensor name {quoted(tensor.name)} is taken", field="name")
        taken.add(tensor.name)
    files: list[tuple[str, Iterator[Buffer]]] = []
    weight_map: dict[str, str] = {}
    for number, group in enumerate(groups, 1):
        count = f"-{number:05}-of-{len(groups):05}" if len(groups) > 1 else ""
        name = stem + count + SUFFIX
        files.append((name, build_model(group, tags)))
        weight_map.update((tensor.name, name) for tensor in group)
    if len(groups) > 1:
        total = sum(tensor.nbytes for tensor in tensors)
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        spelled = json.dumps(index, indent=2, sort_keys=True) + "\n"
        files.append((stem + INDEX_SUFFIX, iter([spelled.encode("ascii")])))
    return iter(files)


def _filled(tensors: Sequence[TensorSource], max_shard: int) -> list[list[TensorSource]]:
    """Tensors by file; at least one file."""
    groups: list[list[TensorSource]] = []
    open_group: list[TensorSource] = []
    held = 0
    for tensor in tensors:
        if tensor.nbytes > max_shard:
            groups.append([tensor])
            continue
        if held + tensor.nbytes > max_shard:
            groups.append(open_group)
            open_group, held = [], 0
        open_group.append(tensor)
        held += tensor.nbytes
    if open_group or not groups:
        groups.append(open_group)
    return groups
