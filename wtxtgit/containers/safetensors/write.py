"""Writing safetensors files: from tensors, from numpy arrays, and several with an index.

Tensors are ordered as by the reference library: wider items first, then by name, so that each is
aligned for its own items. Spec: `docs/spec/safetensors.md`, "What is written" and "Sharded models".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from wtxtgit.containers import replacing
from wtxtgit.containers.budget import refuse_long, refuse_many
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.format import MAX_SET_FILES, is_in_folder
from wtxtgit.containers.json_text import refuse_repeated
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.safetensors.read import ITEM_BITS, MAX_HEADER
from wtxtgit.containers.set_files import filled, numbered
from wtxtgit.containers.signatures import SAFETENSORS_LENGTH_SIZE
from wtxtgit.containers.tensor_header import ELEMENTS, format_header
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import TensorSource

DTYPES = {element: dtype for dtype, element in ELEMENTS.items() if dtype in ITEM_BITS}
"""The dtype for each element that the reference library knows."""

_RANKS = {dtype: rank for rank, dtype in enumerate(ITEM_BITS)}
SUFFIX = ".safetensors"
INDEX_SUFFIX = ".safetensors.index.json"


def build_model(tensors: Sequence[TensorSource], tags: Mapping[str, str]) -> Iterator[Buffer]:
    """Yield a file with these tensors, and tags as `__metadata__`.

    Raises FormatError for dtypes, names and tags that the format can't hold.
    """
    for tensor in tensors:
        if tensor.element not in DTYPES:
            raise FormatError(
                f"tensor {quoted(tensor.name)} is {tensor.element}, which safetensors does not "
                f"have",
                field="dtype",
            )
    # Strings compare by code point, which is the order of their UTF-8 bytes.
    ordered = sorted(tensors, key=lambda tensor: (-_RANKS[DTYPES[tensor.element]], tensor.name))
    entries = [(t.name, DTYPES[t.element], t.shape, t.nbytes) for t in ordered]
    return replacing.behind(bounded_header(entries, dict(sorted(tags.items())) or None), ordered)


def bounded_header(
    entries: Sequence[tuple[str, str, tuple[int, ...], int]],
    metadata: Mapping[str, str] | None,
    further: Mapping[str, Mapping[str, object]] | None = None,
) -> bytes:
    """Return what `format_header` does; raises FormatError if it is too long for the library."""
    refuse_many(len(entries), MAX_TENSORS, "tensors", "header")
    header = format_header(entries, metadata, further)
    refuse_long(len(header) - SAFETENSORS_LENGTH_SIZE, MAX_HEADER, "header", "header")
    return header


def build_set(
    tensors: Sequence[TensorSource], tags: Mapping[str, str], stem: str, max_shard: int
) -> Iterator[tuple[str, Iterator[Buffer]]]:
    """Yield names that start with `stem`, and bytes, of files with up to `max_shard` tensor bytes.

    Files are filled in the order of `tensors`; a larger tensor has a file of its own. The index
    comes last; a single file has none. Every file has the tags. Raises FormatError as `build_model`
    does, and for too many files, before yielding anything.
    """
    groups = filled(tensors, max_shard)
    if len(groups) > MAX_SET_FILES:
        raise FormatError(
            f"{len(groups)} files are too many: at most {MAX_SET_FILES} are allowed",
            kind="limit",
            field="name",
        )
    # The result has to be readable: a stem that no index may list is refused now.
    if not is_in_folder(stem + INDEX_SUFFIX):
        raise FormatError(f"{quoted(stem)} can't be used to name the files", field="weight_map")
    refuse_repeated((tensor.name for tensor in tensors), "two tensors are named {}")
    files: list[tuple[str, Iterator[Buffer]]] = []
    weight_map: dict[str, str] = {}
    for number, group in enumerate(groups, 1):
        name = numbered(stem, number, len(groups), SUFFIX)
        files.append((name, build_model(group, tags)))
        weight_map.update((tensor.name, name) for tensor in group)
    if len(groups) > 1:
        total = sum(tensor.nbytes for tensor in tensors)
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        spelled = json.dumps(index, indent=2, sort_keys=True) + "\n"
        files.append((stem + INDEX_SUFFIX, iter([spelled.encode("ascii")])))
    return iter(files)
