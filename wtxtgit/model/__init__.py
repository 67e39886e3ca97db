"""The nouns that all layers share: snapshots, arrays, extents, layouts.

Plain data without behaviour beyond what follows from the fields: no I/O, no
hashing, no policy. Field meanings are those of `docs/spec/wtxt.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from wtxtgit.errors import MAX_MESSAGE, clipped, place
from wtxtgit.io.view import ByteView
from wtxtgit.model.plain import Plain

ITEM_SIZE = {
    "f64": 8,
    "f32": 4,
    "i64": 8,
    "u64": 8,
    "i32": 4,
    "u32": 4,
    "i16": 2,
    "u16": 2,
    "i8": 1,
    "u8": 1,
}
"""Bytes of one item of each of WTXT's ten dtypes."""

EPOCH = "1970-01-01T00:00:00Z"
LAYOUT_ARRAY = "_layout"
LAYOUT_VERSION = 1
NATIVE_FORMAT = "arrays"
"""The layout format of a native snapshot whose arrays have other dtypes or names."""

CONTAINER_FORMATS = (
    "fold",
    "aero",
    "mlcp",
    "taridx",
    "safetensors",
    "npz",
    "npy",
    "torch",
    "gguf",
    "opaque",
)

MAX_ZEROS = 65_536
"""Longest run of zero bytes that one extent stands for."""
MAX_HEX = 64
"""Longest literal that one extent holds, in bytes."""
ZEROS_ALLOWANCE = 16 * 1024 * 1024
"""All runs of zeros together may be this long plus the bytes of the other extents."""


@dataclass(frozen=True, slots=True)
class Meta:
    """What the `meta` line says: who made which generation when."""

    schema: str = "weights/v1"
    gen: int = 0
    ts: str = EPOCH
    build: str = "none"
    host: str = "any"
    cuda: str = "off"


@dataclass(frozen=True, slots=True)
class Rows:
    """What an `idx` line says: sizes in rows and bytes."""

    rows_per_chunk: int
    row_size: int
    blocking: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """One array of a snapshot.

    `data` holds the raw bytes, little-endian, C order, as a flat view of
    bytes; its length is the item size times the product of `shape`.
    `rows` is the row blocking, None for a text without an `idx` line.
    `hmac` (32 bytes) and `salt` (8 bytes) are None where the array is not
    authenticated.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: ByteView
    rows: Rows | None = None
    hmac: bytes | None = None
    salt: bytes | None = None

    @property
    def nbytes(self) -> int:
        return ITEM_SIZE[self.dtype] * prod(self.shape)


@dataclass(frozen=True, slots=True)
class Extent:
    """One piece of a container file; exactly one of array, hex, zeros is set.

    `array` names the WTXT array that holds the bytes. A tensor has `dtype`
    (the container's own name for it), `name` and `shape` (as stored), and
    `order` "F" where the container stores it so. A part that is no tensor
    has at most a `name`. `hex` are 1 to 64 literal bytes, `zeros` a count of
    zero bytes.
    """

    array: str | None = None
    dtype: str | None = None
    name: str | None = None
    shape: tuple[int, ...] | None = None
    order: str | None = None
    hex: bytes | None = None
    zeros: int | None = None

    @property
    def is_tensor(self) -> bool:
        return self.dtype is not None


@dataclass(frozen=True, slots=True)
class Layout:
    """How a file is put together from arrays; `size` is None for native arrays."""

    format: str
    size: int | None
    extents: tuple[Extent, ...]

    @property
    def is_container(self) -> bool:
        return self.format != NATIVE_FORMAT


@dataclass(frozen=True, slots=True)
class Signature:
    """The `sign` line: 64 bytes of ed25519 and the hint at the key."""

    signature: bytes
    keyid: str


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """All that a WTXT text says, hashes aside.

    `arrays` are in ASCII order of their names, a `_layout` among them.
    `prev` is merkle_prev (32 bytes). `cap` are the items of the `cap` line.
    `audit` is the audit line's text after `audit `. A `pending` snapshot has
    no root yet.
    """

    meta: Meta
    arrays: tuple[Array, ...]
    cap: tuple[str, ...]
    prev: bytes = bytes(32)
    pending: bool = False
    signature: Signature | None = None
    audit: str | None = None
    layout: Layout | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A file cut into extents, with the arrays that they name.

    `arrays` are in extent order; their data are views of the file's buffer.
    `reason` says why a file is opaque, None otherwise.
    """

    layout: Layout
    arrays: tuple[Array, ...]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Problem(Plain):
    """One thing that a check found: `kind` is a word of the verdict's list.

    `line` counts from 1, `chunk` is an `ix` of a text or the name of a
    container's chunk, `offset` a byte in the file, `field` the word of the
    format's spec for what stands there.
    """

    KEYS = "kind message line? array? chunk? offset? field?"

    kind: str
    message: str
    line: int | None = None
    array: str | None = None
    chunk: int | str | None = None
    offset: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        where = place(self.line, self.array, self.chunk, self.offset)
        message = clipped(self.message, MAX_MESSAGE)
        return f"{where}: {message}" if where else message
