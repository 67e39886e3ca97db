"""Tensors as pickles describe them: views of storages, with torch's dtypes.

What `torch._utils` would rebuild is derived from the arguments of the call. A storage is named by a
persistent id, ("storage", class, key, location, numel), in legacy files with a sixth item: a part
of another storage. Storages have a class for each dtype that torch had when the format was made;
others are bytes, `UntypedStorage`, whose tensors name their dtype. A dtype is named without
`torch.`. Spec: `docs/spec/torch.md`, "Tensors"; torch/storage.py, `_dtype_to_storage_type_map` and
`_new_dtypes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn, TypeGuard

from wtxtgit.containers.cursor import fail, quoted
from wtxtgit.containers.torch.pickle_read import CallResult, Dict, Global, List
from wtxtgit.model.tensor import ITEM_BYTES

STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "QInt8Storage": "qint8",
    "QInt32Storage": "qint32",
    "QUInt8Storage": "quint8",
    "QUInt4x2Storage": "quint4x2",
    "QUInt2x4Storage": "quint2x4",
    "UntypedStorage": "uint8",
    "_UntypedStorage": "uint8",
}
"""The dtype for each storage class."""
CLASSES_OF_BYTES = ("UntypedStorage", "_UntypedStorage")
"""Storage classes without a dtype: they count bytes."""

ELEMENTS = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8_e4m3",
    "float8_e5m2": "f8_e5m2",
    "float8_e8m0fnu": "f8_e8m0",
    "float8_e4m3fnuz": "f8_e4m3fnuz",
    "float8_e5m2fnuz": "f8_e5m2fnuz",
    "int64": "i64",
    "uint64": "u64",
    "int32": "i32",
    "uint32": "u32",
    "int16": "i16",
    "uint16": "u16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "bool",
    "complex64": "c64",
    "complex128": "c128",
}
"""The element of each dtype whose items are numbers of whole bytes."""

SIZES = {
    **{dtype: ITEM_BYTES[element] for dtype, element in ELEMENTS.items()},
    "complex32": 4,
    "float4_e2m1fn_x2": 1,
    "bits8": 1,
    "bits16": 2,
    "bits1x8": 1,
    "bits2x4": 1,
    "bits4x2": 1,
    "qint8": 1,
    "qint32": 4,
    "quint8": 1,
    "quint4x2": 1,
    "quint2x4": 1,
    **{f"{sign}int{bits}": 1 for sign in ("", "u") for bits in range(1, 8)},
}
"""Size in bytes of an item of each dtype; for packed dtypes of the byte that holds several."""

PACKED = {"quint4x2": 2, "quint2x4": 4}
"""Items in a byte of each packed dtype: shapes count items, storages bytes."""


UTILS = "torch._utils"
MAX_RANK = 64
# Largest size, stride, offset or count of items: torch uses int64.
MAX_SIZE = 2**63 - 1
# Longest key of a storage in characters; torch writes small numbers.
MAX_KEY = 1024
REBUILT_DTYPE = {"_rebuild_tensor_v3": 6}
REBUILT_METADATA = {"_rebuild_tensor_v2": 6, "_rebuild_tensor_v3": 7}
"""Positions of the arguments dtype and metadata, in the calls that have them."""
REBUILD = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_qtensor")
REBUILD_META = "_rebuild_meta_tensor_no_storage"
VIEW_BITS = ("conj", "neg")
"""Metadata that make a tensor's values differ from those in its storage."""
NO_STORAGE = "a tensor on the meta device has no storage"


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage as a persistent id names it, `numel` items of `dtype`.

    `dtype` is the name of the storage's class if that is unknown. `part` is the first item and the
    count of items if it is a part of the storage `key`. `device` is where it was when it was saved,
    `items` are those of the persistent id, `is_typed` says whether the class has a dtype; none of
    these distinguishes storages.
    """

    key: str
    dtype: str
    numel: int
    part: tuple[int, int] | None = None
    device: str = field(default="", compare=False)
    items: int = field(default=5, compare=False)
    is_typed: bool = field(default=True, compare=False)

    @property
    def item(self) -> int | None:
        """The size of an item in bytes, None if the class is unknown."""
        return SIZES.get(self.dtype)

    @property
    def nbytes(self) -> int | None:
        return None if self.item is None else self.numel * self.item

    @property
    def begin(self) -> int:
        """The byte of the storage `key` at which this one starts."""
        return self.part[0] * (self.item or 0) if self.part is not None else 0

    @property
    def end(self) -> int:
        """The byte of the storage `key` at which this one ends."""
        items = self.part[1] if self.part is not None else self.numel
        return self.begin + items * (self.item or 0)


@dataclass(frozen=True, slots=True)
class View:
    """A tensor: items of `dtype` in a storage, from `offset` on, `strides` apart.

    All three count items. `dtype` may be unknown, and then has no `item`; `element` is None if the
    items are not plain numbers; `storage` is None if there are no items. `flips` are those of
    VIEW_BITS by which its values differ from those of its storage.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    storage: Storage | None = None
    element: str | None = None
    flips: tuple[str, ...] = ()

    @property
    def item(self) -> int:
        """The size of an item in bytes, 0 if the dtype is unknown."""
        return SIZES.get(self.dtype, 0)

    @property
    def numel(self) -> int:
        count = 1
        for dim in self.shape:
            count *= dim
        return count

    @property
    def is_contiguous(self) -> bool:
        """Whether the items are in C order without gaps; strides of single items do not matter."""
        step = 1
        for dim, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if dim != 1 and stride != step:
                return self.numel == 0
            step *= dim
        return True

    @property
    def is_dense(self) -> bool:
        """Whether there are no gaps between the items, in any order of dimensions."""
        step = 1
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if size > 1 and stride != step:
                return False
            step *= size if size > 1 else 1
        return True

    def span(self) -> tuple[int, int]:
        """Return first byte and end of the view in its storage; for packed items in whole bytes.

        The span is empty if there are no items, or if their size is unknown.
        """
        if self.numel == 0 or self.item == 0:
            return 0, 0
        packed = PACKED.get(self.dtype, 1)
        last = self.offset + sum(
            (dim - 1) * stride for dim, stride in zip(self.shape, self.strides, strict=True)
        )
        base = self.storage.begin if self.storage is not None else 0
        return base + self.offset // packed * self.item, base + (last // packed + 1) * self.item


def storage(pid: object, offset: int) -> object:
    """Return the storage that a persistent id, read at byte `offset`, names.

    A legacy file names the class of a module in the same way, with its source text: then that class
    is returned. Raises FormatError.
    """
    if not isinstance(pid, tuple) or not pid:
        _fail("persistent id is not a tuple", offset)
    if pid[0] == "module" and len(pid) == 4:
        return pid[1]
    if pid[0] != "storage" or len(pid) not in (5, 6):
        _fail("persistent id names no storage", offset)
    _, kind, key, location, numel, *rest = pid
    if not isinstance(kind, Global):
        _fail("persistent id names no class of storage", offset)
    dtype = STORAGES.get(kind.name) or _printable(kind)
    if not isinstance(key, str) or len(key) > MAX_KEY:
        _fail("persistent id has an invalid key", offset)
    if not is_size(numel):
        _fail(f"storage {quoted(key)} has an invalid numel", offset)
    # The device of a storage does not affect its bytes, so any object may be there.
    device = location if isinstance(location, str) else ""
    further = device, len(pid), kind.name not in CLASSES_OF_BYTES
    part = rest[0] if rest else None
    if part is None:
        return Storage(key, dtype, numel, None, *further)
    if not isinstance(part, tuple) or len(part) != 3 or not all(map(is_size, part[1:])):
        _fail(f"storage {quoted(key)} has invalid view metadata", offset)
    _view_key, first, count = part
    # Python's integers do not overflow, and both were checked to be sizes.
    if first + count > numel:
        _fail(f"storage {quoted(key)} has a view that reaches past its end", offset)
    return Storage(key, dtype, numel, (first, count), *further)


@dataclass(frozen=True, slots=True)
class NamedStorages:
    """All distinct storages that a pickle names, in its order; `load` is passed to its reader."""

    named: dict[Storage, None] = field(default_factory=dict)

    def load(self, pid: object, offset: int) -> object:
        """Return the storage, or the class, of a persistent id; raises FormatError."""
        loaded = storage(pid, offset)
        if isinstance(loaded, Storage):
            self.named.setdefault(loaded)
        return loaded


def view(value: object, offset: int) -> View | None:
    """Return the tensor that a value of the pickle is, None if it is not one.

    `offset` is where the pickle starts, for errors. Raises FormatError if torch could not rebuild
    such a tensor.
    """
    if not isinstance(value, CallResult) or not isinstance(value.callee, Global):
        return None
    # Calls are recognised by names only: nothing is imported for it.
    if value.callee.module != UTILS:
        return None
    name, args = value.callee.name, value.args
    if name == REBUILD_META:
        return _meta_view(args, offset)
    if name not in REBUILD:
        return None
    if len(args) < 4 or not isinstance(args[0], Storage):
        _fail(f"{name} has no storage", offset)
    stored = args[0]
    first = args[1]
    if not is_size(first):
        _fail(f"{name} has an invalid offset", offset)
    shape, strides = _shape_and_strides(args[2:4], name, offset)
    dtype = stored.dtype
    if name in REBUILT_DTYPE:
        dtype = _dtype(args[REBUILT_DTYPE[name] : REBUILT_DTYPE[name] + 1], offset)
    element = ELEMENTS.get(dtype)
    place = REBUILT_METADATA.get(name, len(args))
    flips = _flips(args[place : place + 1])
    if name == "_rebuild_qtensor" or flips:
        element = None
    return View(dtype, shape, strides, first, stored, element, flips)


def why_outside(tensor: View, nbytes: int) -> str | None:
    """Return words on a view that reaches outside of its storage of `nbytes` bytes, else None."""
    limit = nbytes
    if tensor.storage is not None and tensor.storage.part is not None:
        limit = min(nbytes, tensor.storage.end)
    if tensor.span()[1] <= limit:
        return None
    return f"reaches past the end of its storage of {limit} bytes"


def sizes(value: object) -> tuple[int, ...] | None:
    """Return a tuple, list or torch.Size of at most 64 sizes as a tuple, None for anything else."""
    if (
        isinstance(value, CallResult)
        and value.callee == Global("torch", "Size")
        and len(value.args) == 1
    ):
        value = value.args[0]
    items = value.items if isinstance(value, List) else value
    # Checked before the items: a list in a pickle can have millions.
    if not isinstance(items, tuple | list) or len(items) > MAX_RANK:
        return None
    return tuple(items) if all(map(is_size, items)) else None


def _meta_view(args: tuple[object, ...], offset: int) -> View:
    shape, strides = _shape_and_strides(args[1:3], REBUILD_META, offset)
    dtype = _dtype(args[:1], offset)
    return View(dtype, shape, strides, element=ELEMENTS.get(dtype))


def _shape_and_strides(
    args: tuple[object, ...], name: str, offset: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    match tuple(map(sizes, args)):
        case (tuple(shape), tuple(strides)) if len(shape) == len(strides):
            return shape, strides
        case _:
            return _fail(f"{name} has an invalid size or stride", offset)


def _dtype(args: tuple[object, ...], offset: int) -> str:
    dtype = args[0] if args else None
    if not isinstance(dtype, Global):
        _fail("tensor has no dtype", offset)
    return dtype_name(dtype)


def dtype_name(dtype: Global) -> str:
    """Return the dtype that a global denotes; for an unknown one its full name."""
    return dtype.name if dtype.module == "torch" and dtype.name in SIZES else _printable(dtype)


def _printable(named: Global) -> str:
    """Return a word for an unknown class or dtype; no known one contains a dot."""
    return named.path.encode("utf-8", "backslashreplace").decode()


def _flips(args: tuple[object, ...]) -> tuple[str, ...]:
    """Return what metadata says is done to values on reading: some of VIEW_BITS, in their order."""
    if not args or not isinstance(args[0], Dict):
        return ()
    pairs = args[0].pairs[-MAX_RANK:]
    return tuple(bit for bit in VIEW_BITS if any(k == bit and v is True for k, v in pairs))


def is_size(value: object) -> TypeGuard[int]:
    """Whether a value of a pickle is a size or a position."""
    return type(value) is int and 0 <= value <= MAX_SIZE


def _fail(message: str, offset: int) -> NoReturn:
    fail(message, offset=offset, field="data.pkl")
