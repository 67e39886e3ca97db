"""The TIDX chunk: which tensors there are and where in the weight shards they stand.

Spec: `docs/spec/aero.md`, "TIDX".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wtxtgit.containers import msgpack_limits
from wtxtgit.containers.cursor import fail, quoted
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.model.elements import ITEM_BYTES

DTYPES = {
    0: "f16",
    1: "f32",
    2: "bf16",
    3: "f64",
    4: "i8",
    5: "u8",
    6: "i16",
    7: "u16",
    8: "i32",
    9: "u32",
    10: "i64",
    11: "u64",
    12: "bool",
}
"""The element of each number, and the format's own word for it."""
PACKED = 0x8000
PACKED_WORD = "packed"
TENSORS_KEY = "tensors"
HASH_KEY = "hash_b3"
FLAGS_KEY = "flags"
_INTEGERS = ("dtype", "shard_id", "data_off", "data_len")
_KNOWN = frozenset({"name", "shape", *_INTEGERS})


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A tensor of the TIDX; `data_off` counts from the shard's start.

    `extra` has the keys that do not say where the tensor is.
    """

    name: str
    dtype: int
    shape: tuple[int, ...]
    shard_id: int
    data_off: int
    data_len: int
    extra: dict[str, object] = field(default_factory=dict)

    @property
    def data_end(self) -> int:
        return self.data_off + self.data_len

    @property
    def dtype_name(self) -> str:
        return PACKED_WORD if self.dtype == PACKED else DTYPES.get(self.dtype, str(self.dtype))

    @property
    def element(self) -> str | None:
        return DTYPES.get(self.dtype)

    def least_size(self) -> int | None:
        """Bytes that dtype and shape need, None for dtypes without a size.

        No more than `data_len` + 1 is ever given, so that no product grows long.
        """
        element = self.element
        if element is None or any(dim < 0 for dim in self.shape):
            return None
        if 0 in self.shape:
            return 0
        size = ITEM_BYTES[element]
        for dim in self.shape:
            size *= dim
            if size > self.data_len:
                return self.data_len + 1
        return size


def parse(raw: bytes, offset: int) -> list[IndexEntry]:
    """The entries of a TIDX whose chunk stands at `offset`; raises FormatError."""
    index = msgpack_limits.parse(raw, "tidx", offset=offset)
    tensors = index.get(TENSORS_KEY) if isinstance(index, dict) else None
    if not isinstance(tensors, list):
        fail("tidx is not a map with a list of tensors", offset=offset, field=TENSORS_KEY)
    if len(tensors) > MAX_TENSORS:
        fail("tidx lists too many tensors", offset=offset, field=TENSORS_KEY, kind="limit")
    return [_entry(number, item, offset) for number, item in enumerate(tensors)]


def _entry(number: int, item: object, offset: int) -> IndexEntry:
    if not isinstance(item, dict):
        fail(f"tensor {number} of the tidx is not a map", offset=offset, field=TENSORS_KEY)
    name, shape = item.get("name"), item.get("shape")
    if not isinstance(name, str):
        fail(f"tensor {number} of the tidx has no name", offset=offset, field="name")
    if not isinstance(shape, list) or any(type(dim) is not int for dim in shape):
        fail(f"tensor {quoted(name)} has a wrong shape", offset=offset, field="shape")
    numbers = []
    for key in _INTEGERS:
        value = item.get(key)
        if type(value) is not int:
            fail(f"tensor {quoted(name)} has a wrong {key}", offset=offset, field=key)
        numbers.append(value)
    dtype, shard_id, data_off, data_len = numbers
    extra = {key: value for key, value in item.items() if key not in _KNOWN}
    return IndexEntry(name, dtype, tuple(shape), shard_id, data_off, data_len, extra)
