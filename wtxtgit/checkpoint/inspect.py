"""Inspect: what a file holds, as data."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

import numpy as np

from wtxtgit import containers
from wtxtgit.checkpoint.open import Target, members, open_target
from wtxtgit.errors import FormatError, InputError, counted
from wtxtgit.io.view import ByteView
from wtxtgit.model import Extent
from wtxtgit.model.plain import Plain
from wtxtgit.model.tensor import ITEM_BYTES, Description, ReadOptions, Tensor
from wtxtgit.tensors import tensor_bytes
from wtxtgit.tensors.statistics import Statistics, statistics
from wtxtgit.tensors.tensor_bytes import content_size
from wtxtgit.text.arrays import LazyArray
from wtxtgit.text.index import ArrayIndex
from wtxtgit.text.layout import NUMPY_DTYPES
from wtxtgit.text.verify import Report

_READ_TIMES = 4
"""Tensors of a hostile file may all span all of it: reading ends there."""
_LEAST_READ = 64 * 1024 * 1024
_SET = "a list of other files, which are stored on their own"
_ELEMENTS = {
    "|b1": "bool",
    "<f2": "f16",
    "<c8": "c64",
    "<c16": "c128",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8_e4m3",
    "float8_e5m2": "f8_e5m2",
}
"""What the items of a native array are whose dtype is none of the ten."""


@dataclass(frozen=True, slots=True)
class Part(Plain):
    """A piece of a container: where it stands and which array of the text holds it.

    `detail` is what the container says of it, `children` are the tensors of a
    file that stands in the part.
    """

    KEYS = "offset size kind array? name? dtype? shape? detail? children=listed?"

    offset: int
    size: int
    kind: str
    array: str | None = None
    name: str | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    detail: str | None = None
    children: tuple[str, ...] = ()

    @property
    def is_gap(self) -> bool:
        """Whether the bytes are only what stands between tensors and parts."""
        return self.array is None or re.fullmatch(r"_gap(__[0-9]+)?", self.array) is not None

    @property
    def listed(self) -> tuple[str, ...] | None:
        return self.children or None


@dataclass(frozen=True, slots=True)
class TensorFacts(Plain):
    """A tensor as its file lists it.

    `sha256` (hex) is over its bytes in C order, little-endian, whatever order
    they are stored in. `array` is its name in the text: `git log -L` and hunk
    headers have that. `absent` says why there are no bytes.
    """

    KEYS = "name dtype shape order=other_order? size offset? array? sha256? statistics? absent?"

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    sha256: str | None = None
    offset: int | None = None
    array: str | None = None
    order: str = "C"
    statistics: Statistics | None = None
    absent: str | None = None

    @property
    def other_order(self) -> str | None:
        return None if self.order == "C" else self.order


@dataclass(frozen=True, slots=True)
class Inspection(Plain):
    """What a file holds. `reason` says why it is stored whole, if it is."""

    KEYS = "path format size stored_as reason? notes=listed? parts tensors metadata"

    path: str
    format: str
    size: int
    stored_as: str
    reason: str | None = None
    parts: tuple[Part, ...] = ()
    tensors: tuple[TensorFacts, ...] = ()
    metadata: dict[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def listed(self) -> tuple[str, ...] | None:
        return self.notes or None


def inspect(
    name: str,
    options: ReadOptions,
    *,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Inspection:
    """Inspect a file, or a blob of a repository as REV:PATH.

    A file that exists wins over a revision. A blob is looked at as the file
    that a checkout would give. Raises InputError and EnvironmentFailure.
    """
    target = open_target(name, threads=threads)
    if target.report is not None:
        return _inspect_text(target, target.report, progress)
    return _inspect_container(target, options, threads, progress)


def _inspect_container(
    target: Target,
    options: ReadOptions,
    threads: int | None,
    progress: Callable[[int], None] | None,
) -> Inspection:
    data = target.data
    cut = containers.split(data)
    sizes = {array.name: array.data.nbytes for array in cut.arrays}
    parts = []
    offset = 0
    for extent in cut.layout.extents:
        part = _part(extent, offset, sizes)
        parts.append(part)
        offset += part.size
    try:
        description = containers.describe(data, options, members(target.name, threads=threads))
    except FormatError as error:
        left = containers.salvage(data, options)
        kind = containers.identify(data) or "opaque"
        reason = error.message if kind in containers.set_names() else cut.reason or error.message
        if left is None:
            return Inspection(target.name, kind, len(data), cut.layout.format, reason, tuple(parts))
        description = left
    arrays: dict[tuple[int | None, str | None], str | None] = {
        (part.offset, part.name): part.array for part in parts if part.kind == "tensor"
    }
    facts = tuple(_facts(description, options, arrays, len(data), progress))
    return Inspection(
        target.name,
        description.format,
        len(data),
        cut.layout.format,
        cut.reason if description.size is None else _SET,
        tuple(_with_details(parts, facts, description)),
        facts,
        description.metadata,
        tuple(_notes(description, options)),
    )


def _inspect_text(
    target: Target, report: Report, progress: Callable[[int], None] | None
) -> Inspection:
    """A native text, or one that is damaged: its own arrays."""
    index = report.index
    if index.stop is not None and not index.has_header:
        raise InputError(f"{target.name}: {index.stop}")
    facts = []
    for array in index.arrays:
        claim = array.claim
        found = None
        if report.ok:
            found = statistics(_decoded(target.data, array, report))
            if progress is not None:
                progress(array.nbytes)
        facts.append(
            TensorFacts(
                array.name,
                claim.dtype,
                claim.shape,
                array.nbytes,
                claim.sha256.hex(),
                statistics=found,
            )
        )
    reason = None if report.ok else f"{len(report.problems)} problems, wtxtgit verify lists them"
    return Inspection(
        target.name,
        "wtxt",
        len(target.data),
        "wtxt",
        reason,
        tensors=tuple(facts),
        metadata=_header(report),
    )


def _decoded(text: ByteView, array: ArrayIndex, report: Report) -> Tensor:
    """An array of a text that verified, as the tensor that it stands for."""
    claim = array.claim
    extents = report.layout.extents if report.layout is not None else ()
    dtype = next((e.dtype for e in extents if e.array == array.name and e.dtype), claim.dtype)
    element = _ELEMENTS.get(dtype, claim.dtype if dtype == claim.dtype else None)
    values = LazyArray(text, array, np.dtype(NUMPY_DTYPES[claim.dtype]), claim.shape)[...]
    data = memoryview(values.reshape(-1).view(np.uint8)) if values.size else memoryview(b"")
    shape = claim.shape if element == claim.dtype else (array.nbytes // _item_bytes(element),)
    return Tensor(array.name, dtype, shape, data, None, element)


def _item_bytes(element: str | None) -> int:
    return 1 if element is None else ITEM_BYTES[element]


def _header(report: Report) -> dict[str, object]:
    meta = report.index.meta
    root = report.index.root
    header: dict[str, object] = {
        "schema": meta.schema,
        "gen": meta.gen,
        "ts": meta.ts,
        "build": meta.build,
        "host": meta.host,
        "cuda": meta.cuda,
        "pending": report.index.pending,
    }
    if root is not None:
        header["sha256_all"] = root.sha256_all.hex()
        header["merkle_prev"] = root.merkle_prev.hex()
        header["merkle_this"] = root.merkle_this.hex()
    if report.index.signature is not None:
        header["keyid"] = report.index.signature.keyid
    if report.index.audit is not None:
        header["audit"] = report.index.audit
    return header


def _part(extent: Extent, offset: int, sizes: dict[str, int]) -> Part:
    if extent.array is None:
        kind, size = ("zeros", extent.zeros) if extent.zeros else ("hex", len(extent.hex or b""))
        return Part(offset, size or 0, kind)
    kind = "tensor" if extent.is_tensor else "part"
    size = sizes[extent.array]
    return Part(offset, size, kind, extent.array, extent.name, extent.dtype, extent.shape)


def _with_details(
    parts: Iterable[Part], facts: Iterable[TensorFacts], description: Description
) -> Iterator[Part]:
    """The parts with what the container says of them, and the tensors in them."""
    details = {part.offset: part.about for part in description.parts}
    inside: defaultdict[str, list[str]] = defaultdict(list)
    for tensor in facts:
        chunk, slash, name = tensor.name.partition("/")
        if slash and tensor.array is None:
            inside[chunk].append(name)
    for part in parts:
        children = inside.get(part.name or "", ()) if part.kind == "part" else ()
        detail = details.get(part.offset)
        if detail is None and not children:
            yield part
        else:
            yield replace(part, detail=detail, children=tuple(children))


def _notes(description: Description, options: ReadOptions) -> Iterator[str]:
    compressed = sum(part.is_compressed for part in description.parts)
    encrypted = sum(part.is_encrypted for part in description.parts)
    if compressed and not encrypted:
        parts = counted(compressed, "compressed part")
        yield f"{parts}: git makes small deltas of plain ones alone, wtxtgit repack makes those"
    if encrypted and options.decryption_key is None:
        yield f"{counted(encrypted, 'encrypted part')}: --key F opens what is encrypted"


def _facts(
    description: Description,
    options: ReadOptions,
    arrays: Mapping[tuple[int | None, str | None], str | None],
    size: int,
    progress: Callable[[int], None] | None,
) -> Iterator[TensorFacts]:
    """What is to be told of each tensor."""
    left = max(_READ_TIMES * (description.size or size), _LEAST_READ)
    # What is compressed may be any number of times larger than what is stored.
    packed = sum(part.is_compressed for part in description.parts)
    left += options.max_chunk * max(len(description.nested), packed)
    left_at_first = left
    for tensor in containers.tensors(description, options):
        length = content_size(tensor)
        digest = found = None
        absent = tensor.absent
        if absent is None and length > left:
            absent = f"not read: more than {left_at_first} bytes are not"
        if absent is None:
            left -= length
            try:
                digest = _sha256(tensor)
                found = statistics(tensor)
            except FormatError as error:
                digest, absent = None, error.message
            if progress is not None:
                progress(length)
        yield TensorFacts(
            tensor.name,
            tensor.dtype,
            tensor.shape,
            length,
            digest,
            tensor.offset,
            arrays.get((tensor.offset, tensor.name)),
            tensor.order,
            found,
            absent,
        )


def _sha256(tensor: Tensor) -> str:
    hasher = sha256()
    for block in tensor_bytes.blocks(tensor):
        hasher.update(block)
    return hasher.hexdigest()
