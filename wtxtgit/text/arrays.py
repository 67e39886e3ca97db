"""numpy arrays as snapshots, and back.

If all arrays have one of the ten plain dtypes and a plain name, they become a native text as they
are. Otherwise a `_layout` of format `arrays` records each array's real dtype, shape and name
(`docs/spec/wtxt.md`, section "Native arrays").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wtxtgit.errors import UsageError
from wtxtgit.io.view import ByteView, mapped
from wtxtgit.model.array import (
    LAYOUT_ARRAY,
    NATIVE_FORMAT,
    NO_PAYLOAD,
    Array,
    ArrayNames,
    Extent,
    Layout,
    Meta,
    PayloadSource,
    Snapshot,
    rows_for,
)
from wtxtgit.model.findings import Problem
from wtxtgit.model.named_arrays import NamedArrays, OpenFile, with_hints
from wtxtgit.text.file import array_bytes, checked_layout
from wtxtgit.text.grammar import CAP, ArrayLine, is_array_name
from wtxtgit.text.index import ArrayIndex, TextIndex, index
from wtxtgit.text.layout import with_layout
from wtxtgit.text.native import (
    BY_NUMPY,
    NUMPY_DTYPES,
    carrier_of,
    is_extension_name,
    little_endian,
    shaped,
    stands_for,
    view_as,
)
from wtxtgit.text.verify import TextReport, blocks_of, checked_bytes, raise_first, refusal, verify


class Weights(NamedArrays[NDArray[Any]]):
    """The arrays of a verified text by name, read-only.

    `meta` describes its generation, `report` is the result of verifying it, and `snapshot` is
    everything else that it says; `dumps(weights)` returns the same text again.
    """

    def __init__(self, snapshot: Snapshot, report: TextReport) -> None:
        self.snapshot = snapshot
        self.report = report
        data = {array.name: mapped(array.data) for array in snapshot.arrays}
        entries = _seen_as(snapshot.layout, snapshot.arrays)
        super().__init__(
            {
                name: shaped(data[array], dtype, shape, array)
                for name, array, dtype, shape in entries
            }
        )

    @property
    def meta(self) -> Meta:
        return self.snapshot.meta

    def _title(self) -> str:
        return f"generation {self.meta.gen}"


class LazyRows:
    """An array of `dtype` and `shape` that reads only the rows that are indexed.

    `lazy[a:b]` and `lazy[i]` read only those rows; any other key reads the whole array.
    """

    # Slots: a text may have a million arrays.
    __slots__ = ("dtype", "shape")

    def __init__(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.dtype = dtype
        self.shape = shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of items."""
        return prod(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("decoding an array always copies")
        return np.asarray(self[...], dtype=dtype)

    @with_hints
    def __getitem__(self, key: Any) -> Any:
        first, rest = (key[0], key[1:]) if isinstance(key, tuple) and key else (key, ())
        # A bool is an int in Python, but numpy takes it as a mask of the whole array.
        if not self.shape or isinstance(first, bool | np.bool_):
            return self._rows(0, None)[key]
        if isinstance(first, int | np.integer):
            row = int(first) + (len(self) if first < 0 else 0)
            if not 0 <= row < len(self):
                raise IndexError(f"row {first} of an array of {len(self)} rows")
            return self._rows(row, row + 1)[(0, *rest)]
        if isinstance(first, slice):
            rows = range(*first.indices(len(self)))
            low, high = (min(rows[0], rows[-1]), max(rows[0], rows[-1]) + 1) if rows else (0, 0)
            return self._rows(low, high)[(slice(None, None, rows.step), *rest)]
        return self._rows(0, None)[key]

    def _rows(self, low: int, high: int | None) -> NDArray[Any]:
        """Return rows `low` to `high`; everything, also of a scalar, if `high` is None."""
        raise NotImplementedError


class LazyArray(LazyRows):
    """An array in a text, decoded chunk by chunk when it is indexed.

    Every chunk that is read is checked: its parity, CRC-32C and SHA-256.
    """

    __slots__ = ("_index", "_row", "_text")

    def __init__(
        self, text: ByteView, index: ArrayIndex, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> None:
        super().__init__(dtype, shape)
        self._text = text
        self._index = index
        self._row = index.nbytes // shape[0] if shape and shape[0] else 0

    def __repr__(self) -> str:
        return f"<LazyArray {self._index.name} {self.dtype} {self.shape}>"

    def _rows(self, low: int, high: int | None) -> NDArray[Any]:
        index = self._index
        # In bytes, not rows: the size of a scalar is not a number of rows.
        start, end = (0, index.nbytes) if high is None else (low * self._row, high * self._row)
        shape = self.shape if high is None else (high - low, *self.shape[1:])
        if start == end:
            return shaped(b"", self.dtype, shape, index.name)
        first = start // index.chunk_size
        last = -(-end // index.chunk_size)
        index.want_payload(first, last)
        raw = bytearray()
        for part in self._chunks(first, last):
            raw += part
        skipped = first * index.chunk_size
        # Chunks are decoded whole, but rows may start and end inside one.
        rows = memoryview(raw)[start - skipped : end - skipped]
        return shaped(rows, self.dtype, shape, index.name)

    def _chunks(self, first: int, end: int) -> Iterator[memoryview]:
        return checked_bytes(self._text, blocks_of(self._index, first, end))


class _DamagedArray(LazyArray):
    """An array of a damaged text; reading a part that is damaged raises TextError."""

    __slots__ = ()

    def _chunks(self, first: int, end: int) -> Iterator[memoryview]:
        from wtxtgit.text.damaged import chunks_of

        return chunks_of(self._text, self._index, first, end)


class LazySnapshot(NamedArrays[LazyArray], OpenFile):
    """A text that is indexed at once, but decoded only where it is asked for.

    What is decoded is checked against its chunk's hashes. The root, and with it names and shapes,
    is not checked: `verify` does that.

    A text with damaged lines is refused (TextError) unless `damaged` is true. Then the snapshot has
    what the intact lines say, `is_damaged` is true, and `problems` says which arrays and chunks
    can't be read; asking for those raises TextError. `indexed` is the text's index if it is already
    made.
    """

    def __init__(
        self,
        text: ByteView,
        *,
        damaged: bool = False,
        payload: PayloadSource = NO_PAYLOAD,
        indexed: TextIndex | None = None,
    ) -> None:
        self.index = index(text, payload=payload) if indexed is None else indexed
        self.problems: tuple[Problem, ...] = ()
        kind = LazyArray
        if self.index.stop is None:
            layout = checked_layout(text, self.index)
        elif damaged:
            layout = self._take_intact(text)
            kind = _DamagedArray
        else:
            raise refusal(self.index.stop)
        self.meta = self.index.meta
        self.is_container = layout is not None and layout.is_container
        claims = [array.claim for array in self.index.arrays]
        arrays = {array.name: array for array in self.index.arrays}
        entries = _seen_as(layout, claims)
        super().__init__(
            {name: kind(text, arrays[array], dtype, shape) for name, array, dtype, shape in entries}
        )

    @property
    def is_damaged(self) -> bool:
        """Whether lines of the text are damaged; lines inside chunks are checked when read."""
        return bool(self.problems)

    def _take_intact(self, text: ByteView) -> Layout | None:
        """Load what can be read of a damaged text; returns its layout, so far as it fits."""
        from wtxtgit.text.damaged import intact

        stop = self.index.stop
        readable = intact(text, self.index)
        # Nothing of the text is left, or it is not a text at all.
        if not readable.index.arrays and stop is not None:
            raise refusal(stop)
        self.index = readable.index
        names = {array.name for array in self.index.arrays}
        layout = readable.layout
        if layout is not None:
            lost = [
                extent.name or extent.array
                for extent in layout.extents
                if extent.array is not None and extent.array not in names
            ]
            readable.problems.extend(Problem("structure", "is lost", array=name) for name in lost)
            extents = [
                extent for extent in layout.extents if extent.array is None or extent.array in names
            ]
            layout = replace(layout, extents=tuple(extents))
        self.problems = tuple(readable.problems)
        return layout

    def _title(self) -> str:
        return f"generation {self.meta.gen}"


@dataclass(frozen=True, slots=True)
class NumpyType:
    """A dtype, in the terms that a text uses.

    `descr` is numpy's `dtype.str`; or, if `is_extension`, the name of a dtype such as bfloat16 that
    another package registers with numpy. `item_size` is in bytes.
    """

    descr: str
    item_size: int
    is_extension: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class NumpyArray:
    """An array as bytes (little-endian, C order), with numpy's dtype and shape."""

    name: str
    dtype: NumpyType
    shape: tuple[int, ...]
    data: ByteView


def snapshot_of_raw(
    arrays: Sequence[NumpyArray],
    meta: Meta | None = None,
    prev: bytes = bytes(32),
    audit: str | None = None,
    rows_per_chunk: int | None = None,
    pending: bool = False,
) -> Snapshot:
    """Make a snapshot of arrays, in the order of their names."""
    meta = meta or Meta()
    if all(_is_plain(array.name) and array.dtype.descr in BY_NUMPY for array in arrays):
        plain = tuple(_carrier(array, array.name, rows_per_chunk) for array in arrays)
        snapshot = Snapshot(meta, plain, CAP)
    else:
        names = ArrayNames()
        named = []
        extents = []
        for array in arrays:
            own = names.for_name(array.name)
            named.append(_carrier(array, own, rows_per_chunk))
            extents.append(Extent(own, array.dtype.descr, array.name, array.shape))
        # Extents are in the order of the arrays' real names: a layout requires that these ascend.
        snapshot = with_layout(Layout(NATIVE_FORMAT, None, tuple(extents)), named, meta)
    return replace(snapshot, prev=prev, audit=audit, pending=pending)


def read(
    text: ByteView,
    *,
    wsum: bytes | None = None,
    hmac_key: bytes | None = None,
    public_keys: Sequence[bytes] = (),
    threads: int | None = None,
    payload: PayloadSource = NO_PAYLOAD,
) -> Weights:
    """Verify a text and return its arrays; raises TextError with the first problem."""
    report = verified(
        text,
        wsum=wsum,
        hmac_key=hmac_key,
        public_keys=public_keys,
        threads=threads,
        payload=payload,
    )
    return weights_of(text, report, threads=threads)


def verified(
    text: ByteView,
    *,
    wsum: bytes | None = None,
    hmac_key: bytes | None = None,
    public_keys: Sequence[bytes] = (),
    threads: int | None = None,
    payload: PayloadSource = NO_PAYLOAD,
) -> TextReport:
    """Verify a text and require all of its payload; raises TextError with the first problem."""
    indexed = index(text, payload=payload)
    indexed.want_payload()
    report = verify(
        text,
        wsum=wsum,
        hmac_key=hmac_key,
        public_keys=public_keys,
        threads=threads,
        indexed=indexed,
    )
    raise_first(report.problems)
    return report


def weights_of(text: ByteView, report: TextReport, *, threads: int | None = None) -> Weights:
    """Return the arrays of a text that was verified: `report` has no problems."""
    raw = array_bytes(text, report.index, threads=threads)
    for data in raw.values():
        # Weights are read-only so that they remain what was verified.
        data.flags.writeable = False
    buffers = {name: data.data for name, data in raw.items()}
    return Weights(snapshot_of(report.index, report.layout, buffers), report)


def _is_plain(name: str) -> bool:
    return is_array_name(name) and name != LAYOUT_ARRAY


def snapshot_of(index: TextIndex, layout: Layout | None, data: Mapping[str, ByteView]) -> Snapshot:
    """Return everything that a verified text says, with the bytes of its arrays by name."""
    arrays = tuple(
        Array(
            array.name,
            array.claim.dtype,
            array.claim.shape,
            data[array.name],
            array.rows,
            array.claim.hmac if any(array.claim.hmac) else None,
            array.claim.salt if any(array.claim.salt) else None,
        )
        for array in index.arrays
    )
    return Snapshot(
        index.meta,
        arrays,
        index.cap,
        bytes(32) if index.root is None else index.root.merkle_prev,
        index.pending,
        index.signature,
        index.audit,
        layout,
    )


def _seen_as(
    layout: Layout | None, arrays: Iterable[Array | ArrayLine]
) -> Iterator[tuple[str, str, np.dtype[Any], tuple[int, ...]]]:
    """Yield each array's real name, its name in the text, and its numpy dtype and shape."""
    by_name = {array.name: array for array in arrays if array.name != LAYOUT_ARRAY}
    if layout is None or layout.is_container:
        for name, array in by_name.items():
            yield name, name, np.dtype(NUMPY_DTYPES[array.dtype]), array.shape
        return
    for extent in layout.extents:
        if extent.array is not None and extent.dtype is not None and extent.shape is not None:
            dtype, shape = view_as(by_name[extent.array], extent.dtype, extent.shape)
            yield extent.name or "", extent.array, dtype, shape


def numpy_type(name: str, dtype: np.dtype[Any]) -> NumpyType:
    """Describe a dtype as a text does, in little-endian order; raises UsageError if none can."""
    if (meant := stands_for(dtype)) is not None:
        return NumpyType(meant, dtype.itemsize, True)
    # ml_dtypes registers bfloat16 and others with numpy as void, under names of their own.
    is_extension = dtype.kind == "V" and dtype.names is None and not dtype.name.startswith("void")
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None:
        raise UsageError(f'array "{name}" has dtype {dtype}: objects and records are never stored')
    if (
        # longdouble: 80 bits in 12 or 16 bytes on x86, 128 elsewhere.
        dtype.kind in "fc"
        and dtype.str not in BY_NUMPY
        and dtype.itemsize > 16 - (8 if dtype.kind == "f" else 0)
    ):
        raise UsageError(f'array "{name}" has dtype {dtype}: it has padding and differs by machine')
    if is_extension:
        return extension_type(name, dtype.name, dtype.itemsize)
    little = dtype.newbyteorder("<") if dtype.str.startswith(">") else dtype
    return NumpyType(little.str, dtype.itemsize)


def extension_type(name: str, dtype: str, item_size: int) -> NumpyType:
    """Describe a dtype that numpy lacks, by its name; raises UsageError if it is unknown."""
    if not is_extension_name(dtype):
        raise UsageError(f'array "{name}" has dtype {dtype}, which is not supported')
    return NumpyType(dtype, item_size, True)


def raw_array(name: str, kind: NumpyType, array: NDArray[Any]) -> NumpyArray:
    """Return the bytes of an array whose dtype a text describes as `kind`."""
    if array.dtype.str.startswith(">"):
        array = little_endian(array)
    # ascontiguousarray gives a scalar one dimension: the shape is put back.
    array = np.ascontiguousarray(array).reshape(array.shape)
    raw = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
    return NumpyArray(name, kind, array.shape, raw)


def _carrier(array: NumpyArray, name: str, rows_per_chunk: int | None) -> Array:
    """Return the text's array that carries the bytes, under its own name in the text."""
    kind = array.dtype
    carrier, added = carrier_of(kind.descr, kind.item_size, kind.is_extension)
    shape = (len(array.data),) if carrier is None else (*array.shape, *added)
    dtype = carrier or "u8"
    return Array(name, dtype, shape, array.data, rows_for(dtype, shape, rows_per_chunk))
