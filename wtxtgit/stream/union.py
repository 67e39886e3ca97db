"""Uniting the parts of a generation into one checkpoint with the arrays of all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from wtxtgit.errors import MAX_NAME, InputError, clipped
from wtxtgit.model.array import (
    LAYOUT_ARRAY,
    NATIVE_FORMAT,
    Array,
    ArrayNames,
    Extent,
    Layout,
    Snapshot,
)
from wtxtgit.stream.ranks import Rank, part_of
from wtxtgit.text.arrays import Weights
from wtxtgit.text.grammar import CAP, is_array_name
from wtxtgit.text.layout import with_layout
from wtxtgit.text.native import NUMPY_DTYPES


class _UnitedArray(NamedTuple):
    """An array: its extent (name and type as seen), the array with its bytes, and their SHA-256."""

    extent: Extent
    array: Array
    sha256: bytes

    @property
    def content(self) -> tuple[object, ...]:
        return self.extent.dtype, self.extent.shape, self.sha256


def united(parts: Mapping[Rank, Weights]) -> Snapshot:
    """Return one snapshot with the arrays of all parts, and the meta and audit line of the first.

    Arrays with the same name have to be equal, and are stored once. The snapshot begins a chain,
    and has neither signature nor HMACs, which belong to the parts. Raises InputError, naming it,
    for an array that differs between ranks.
    """
    arrays_by_name: dict[str, tuple[Rank, _UnitedArray]] = {}
    for rank, weights in parts.items():
        for name, entry in _entries(weights):
            first_rank, first_array = arrays_by_name.setdefault(name, (rank, entry))
            if first_array.content != entry.content:
                raise InputError(
                    f"{clipped(name, MAX_NAME)!r} of rank {first_rank.number} differs from that of "
                    f"rank {rank.number}",
                    hint="give values that differ by rank a different name on each rank",
                )
    first = next(iter(parts.values())).snapshot
    stated = part_of(first.meta.build)
    ts = max(weights.meta.ts for weights in parts.values())
    meta = replace(first.meta, ts=ts, build=first.meta.build if stated is None else stated[0])
    entries = [arrays_by_name[name][1] for name in sorted(arrays_by_name)]
    # Either all arrays have HMACs or none: a new layout array has none.
    entries = [one._replace(array=replace(one.array, hmac=None, salt=None)) for one in entries]
    plain = all(
        extent.name == array.name and extent.dtype == NUMPY_DTYPES[array.dtype]
        for extent, array, _ in entries
    )
    if plain and all(is_array_name(array.name) for _, array, _ in entries):
        return Snapshot(meta, tuple(array for _, array, _ in entries), CAP, audit=first.audit)
    names = ArrayNames()
    extents, arrays = [], []
    for extent, array, _ in entries:
        own = names.for_name(extent.name or "")
        extents.append(replace(extent, array=own))
        arrays.append(replace(array, name=own))
    layout = Layout(NATIVE_FORMAT, None, tuple(extents))
    return replace(with_layout(layout, arrays, meta), audit=first.audit)


def _entries(weights: Weights) -> Iterator[tuple[str, _UnitedArray]]:
    layout = weights.snapshot.layout
    if layout is not None and layout.is_container:
        raise InputError(f"a part is the text of a {layout.format} file, not of arrays")
    arrays = {one.name: one for one in weights.snapshot.arrays if one.name != LAYOUT_ARRAY}
    digests = {one.name: one.claim.sha256 for one in weights.report.index.arrays}
    extents = layout.extents if layout is not None else tuple(map(_plain, arrays.values()))
    for extent in extents:
        if extent.array is not None:
            array = arrays[extent.array]
            yield extent.name or "", _UnitedArray(extent, array, digests[extent.array])


def _plain(array: Array) -> Extent:
    return Extent(array.name, NUMPY_DTYPES[array.dtype], array.name, array.shape)
