"""Rewriting a safetensors file with other tensors or metadata.

Spec: `docs/spec/safetensors.md`, "Resealing".
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import cast

from wtxtgit.containers import intervals, replacing
from wtxtgit.containers.ranges import Stored
from wtxtgit.containers.replacing import WrittenTensor
from wtxtgit.containers.safetensors.check import check_into
from wtxtgit.containers.safetensors.read import Safetensors
from wtxtgit.containers.safetensors.write import bounded_header
from wtxtgit.containers.tensor_header import METADATA_KEY
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import Entry, PlacedEntry, ReadOptions

GAPS, NULL = "gaps", f"{METADATA_KEY} is null"


def entries(container: Safetensors, options: ReadOptions) -> list[Entry]:
    """Return the tensors, in the header's order."""
    listed = (tensor.listed(container.data) for tensor in container.header.tensors)
    return [
        Entry(tensor.name, _form(container, stored), tensor.view, tensor)
        for tensor, stored in zip(listed, container.header.tensors, strict=True)
    ]


def values(container: Safetensors, options: ReadOptions) -> dict[str, object]:
    """Return the metadata under their key; {} if there are none."""
    return _metadata(container)


def rest(container: Safetensors, options: ReadOptions) -> dict[str, object]:
    """Return a hash of bytes in no tensor, and whether the metadata are null, if that is so."""
    header = container.header
    spans = [(0, header.end), *((tensor.start, tensor.end) for tensor in header.tensors)]
    others = {GAPS: intervals.digest(container.data, spans), NULL: header.has_null_metadata or None}
    return {name: value for name, value in others.items() if value is not None}


def reseal(
    container: Safetensors,
    placed: Sequence[PlacedEntry],
    values: Mapping[str, object] | None,
    options: ReadOptions,
) -> Iterator[Buffer]:
    """Yield the file with these tensors and, unless None, this metadata.

    If names, dtypes, shapes, their order and metadata stay, so does the whole file except tensors'
    bytes. Otherwise the header is spelled as our writer spells it, and bytes in no tensor are
    dropped. Raises FormatError, before the first piece: for files with errors, repeated names,
    metadata that are not an object of strings, tensors that share bytes but are given different
    ones, exceeded limits.
    """
    sources = replacing.refuse_damaged((container, *map(_source, placed)), check_into)
    parts = [_part(each) for each in placed]
    replacing.check_lengths(parts)
    own = _metadata(container)
    metadata = own if values is None else values
    if _spelled(metadata) == _spelled(own) and _has_places(container, placed):
        # In place: gaps, and the header's own spelling, stay.
        return replacing.replaced(container.data, container.header.tensors, parts)
    replacing.check_size(parts, (source.data for source in sources))
    return replacing.behind(_header(placed, metadata), parts)


def _header(placed: Sequence[PlacedEntry], metadata: Mapping[str, object]) -> bytes:
    listed: list[tuple[str, str, tuple[int, ...], int]] = []
    further: dict[str, Mapping[str, object]] = {}
    for each in placed:
        header = _source(each).header
        stored = header.tensors[each.number]
        listed.append((stored.name, stored.dtype, stored.shape, stored.nbytes))
        if stored.name in header.further:
            further[stored.name] = header.further[stored.name]
    return bounded_header(listed, _texts(metadata), further)


def _texts(values: Mapping[str, object]) -> dict[str, str] | None:
    """Return the metadata as the format has them, None if there are none; raises FormatError."""
    metadata = values.get(METADATA_KEY)
    if metadata is None:
        return None
    if not isinstance(metadata, dict) or not all(
        isinstance(text, str) for item in metadata.items() for text in item
    ):
        raise FormatError(f"{METADATA_KEY} is not an object of strings", field=METADATA_KEY)
    return metadata


def _metadata(container: Safetensors) -> dict[str, object]:
    metadata = container.header.metadata
    return {} if metadata is None else {METADATA_KEY: metadata}


def _has_places(container: Safetensors, placed: Sequence[PlacedEntry]) -> bool:
    """Whether the tensors fit in the places of the file's own tensors, one for one."""
    own = container.header.tensors
    return len(placed) == len(own) and all(
        _identity(container, n) == _identity(_source(each), each.number)
        for n, each in enumerate(placed)
    )


def _identity(container: Safetensors, number: int) -> tuple[str, Hashable, int]:
    stored = container.header.tensors[number]
    return stored.name, _form(container, stored), stored.nbytes


def _form(container: Safetensors, stored: Stored) -> Hashable:
    further = container.header.further.get(stored.name, {})
    return stored.dtype, stored.shape, _spelled(further, sort_keys=True)


def _spelled(value: Mapping[str, object], *, sort_keys: bool = False) -> str:
    """Spell JSON for comparison: 1 is not True, NaN equals NaN, and the order of keys counts."""
    return json.dumps(dict(value), sort_keys=sort_keys)


def _part(placed: PlacedEntry) -> WrittenTensor:
    source = _source(placed)
    return WrittenTensor(source.header.tensors[placed.number], source.data, placed.content)


def _source(placed: PlacedEntry) -> Safetensors:
    return cast(Safetensors, placed.source)
