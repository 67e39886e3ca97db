"""Snapshots, arrays, extents and layouts; how arrays are named and blocked; sources of payload.

The payload of a detached text is the chunks that it leaves out and that are stored elsewhere
(`docs/spec/detached.md`). Readers of a text are given a `PayloadSource`, which finds chunks by
their SHA-256; where no payload is available they are given `NO_PAYLOAD`.

Field meanings are those of `docs/spec/wtxt.md`. All sizes are in bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from math import prod
from struct import iter_unpack
from typing import Protocol, overload

from wtxtgit.errors import TextError
from wtxtgit.io.view import ByteView
from wtxtgit.model.dtypes import DTYPES

ITEM_SIZE = {element: dtype.size for element, dtype in DTYPES.items() if dtype.carrier == element}
"""Size in bytes of an item of each of WTXT's ten dtypes."""


def bounded_product(item: int, dims: Sequence[int], most: int) -> int:
    """Return `item` times all dims, or, if its size exceeds `most`, some number of a size over it.

    The dims are numbers that a file claims, and there may be a million of them: stopping early
    keeps the product from growing much longer than `most`.
    """
    # Look for a zero first: the product of the other dims could exceed any limit.
    if 0 in dims:
        return 0
    for dim in dims:
        item *= dim
        if abs(item) > most:
            break
    return item


EPOCH = "1970-01-01T00:00:00Z"
LAYOUT_ARRAY = "_layout"
LAYOUT_VERSION = 1
NATIVE_FORMAT = "arrays"
"""The layout format of a native snapshot whose arrays have other dtypes or names."""

# The formats that a layout can name. `containers.registry.FORMATS` has the record of each in order
# of detection; a text is read without loading any of them, and `model` imports no room above it.
# A test holds the two against each other.
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
"""The longest run of zero bytes that one extent may represent."""
MAX_HEX = 64
"""The longest literal of one extent, in bytes."""
MAX_RANK = 1_000_000
"""The most dimensions of one array."""
LEAST_DIMENSIONS, DIMENSION_BYTES = 400_000, 32
"""The most dimensions of all arrays: the first number, and one per so many bytes of the text."""
MOST_UNCOUNTED = 64
"""Arrays of at most this many dimensions do not count in that sum."""
LEAST_EXTENTS, EXTENT_BYTES = 250_000, 128
"""The same for the extents of a layout."""
ZEROS_ALLOWANCE = 16 * 1024 * 1024
"""The most by which all runs of zeros together may exceed the bytes of the other extents."""


@dataclass(frozen=True, slots=True)
class Meta:
    """What the `meta` line of a text says: which generation it is, and how it was made.

    `gen` is the number of the generation, `ts` a UTC time such as 2025-10-09T03:12:45Z; `schema`,
    `build`, `host` and `cuda` are short words.
    """

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

    `data` holds the raw bytes, little-endian, C order, as a flat view of bytes; its length is the
    item size times the product of `shape`. `rows` is the row blocking, None for a text without an
    `idx` line. `hmac` (32 bytes) and `salt` (8 bytes) are None if the array is not authenticated.
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
    """One piece of a container file; exactly one of `array`, `hex` and `zeros` is set.

    `array` names the WTXT array that holds the bytes. An extent of a tensor has `dtype` (the
    container's own name for it), `name`, `shape` (as stored) and, where the container stores
    columns first, `order` "F". Any other extent has at most a `name`. `hex` is 1 to 64 literal
    bytes, `zeros` a count of zero bytes.
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
    """How a file is assembled from arrays; `size` is None for native arrays."""

    format: str
    size: int | None
    extents: tuple[Extent, ...]

    @property
    def is_container(self) -> bool:
        return self.format != NATIVE_FORMAT


@dataclass(frozen=True, slots=True)
class Signature:
    """The `sign` line: an ed25519 signature of 64 bytes and a hint at the key that made it."""

    signature: bytes
    keyid: str


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Everything that a WTXT text says, except its hashes.

    `arrays` are in ASCII order of their names and include `_layout`, if there is one. `prev` is
    merkle_prev (32 bytes). `cap` holds the items of the `cap` line. `audit` is the audit line's
    text after `audit `. A `pending` snapshot has no root yet.
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

    `arrays` are in the order of the extents; their data are views of the file's buffer. `reason`
    says why the file is opaque (stored without a look into its format), None if it is not.
    """

    layout: Layout
    arrays: tuple[Array, ...]
    reason: str | None = None


_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_]")


class ArrayNames:
    """One namespace of array names, assigned one after another.

    As `docs/spec/wtxt.md`, section "Array names", says: characters outside `A-Za-z0-9_` become
    `_`, a name that is empty or starts with `_` gets the prefix `t`, and a name that is taken
    gets the suffix `__n`.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    @staticmethod
    def plain(name: str) -> str:
        """Return `name` as an array name, without the suffix that would make it unique."""
        plain = _NOT_A_NAME.sub("_", name)
        return f"t{plain}" if not plain or plain.startswith("_") else plain

    def for_name(self, name: str) -> str:
        """Assign and return the array name for a tensor or part called `name`."""
        return self.for_role(self.plain(name))

    def for_role(self, role: str) -> str:
        """Assign and return `role`, with a numbered suffix if it is taken."""
        name, n = role, self._next.get(role, 2)
        # A name such as `w__2` may come from the file itself.
        while name in self._taken:
            name, n = f"{role}__{n}", n + 1
        # Names are only ever added, so the smallest free number never falls.
        self._next[role] = n
        self._taken.add(name)
        return name


TARGET_CHUNK = 65_536
"""Our chunks have at most this many bytes; so do our rows."""
MAX_CHUNKS = 1_000_000
"""The most chunks of one array: `ix` has exactly 6 digits."""


# Cached: a checkpoint may have a hundred thousand arrays but has few different shapes.
@lru_cache(maxsize=1024)
def default_rows(dtype: str, shape: tuple[int, ...]) -> Rows:
    """Return the row blocking that the writer chooses: a pure function of dtype and shape.

    A row is the largest trailing part of the shape (from the second dimension on) that fits in a
    chunk, at least one item; a chunk is the largest power of two of rows that fits. A dimension
    of 0 counts as 1.
    """
    row_size = ITEM_SIZE[dtype]
    for dim in reversed(shape[1:]):
        wider = row_size * max(dim, 1)
        if wider > TARGET_CHUNK:
            break
        row_size = wider
    return Rows(1 << (TARGET_CHUNK // row_size).bit_length() - 1, row_size)


def rows_for(dtype: str, shape: tuple[int, ...], rows_per_chunk: int | None) -> Rows:
    """Return the default blocking, but with `rows_per_chunk` rows in a chunk if that is given."""
    rows = default_rows(dtype, shape)
    if rows_per_chunk is None:
        return rows
    if rows_per_chunk < 1:
        raise TextError("structure", f"rows_per_chunk is {rows_per_chunk}, but must be at least 1")
    return Rows(rows_per_chunk, rows.row_size)


def chunk_count(nbytes: int, size: int) -> int:
    return max(1, -(-nbytes // size))


NAME_SIZE = 32
"""Bytes of the name of a chunk, which is its SHA-256."""
_ITERATED = 1024


class ChunkNames(Sequence[bytes]):
    """Names of chunks, one after another in one buffer: as objects they would take thrice the
    memory, and an array may have a million.

    A slice is a list. One thread may append while others read what is there.
    """

    __slots__ = ("_held",)

    def __init__(self, names: Iterable[bytes] = ()) -> None:
        self._held = bytearray()
        for group in in_groups(names, _ITERATED):
            self._held += b"".join(group)

    def append(self, names: bytes) -> None:
        """Append a name, or several that follow one another."""
        self._held += names

    def __len__(self) -> int:
        return len(self._held) // NAME_SIZE

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, int):
            at = range(len(self))[at]
            return bytes(self._held[at * NAME_SIZE : (at + 1) * NAME_SIZE])
        start, stop, step = at.indices(len(self))
        held = bytes(self._held[start * NAME_SIZE : max(start, stop) * NAME_SIZE])
        return [name for (name,) in iter_unpack(f"{NAME_SIZE}s", held)][::step]

    def __iter__(self) -> Iterator[bytes]:
        return self.between(0, len(self))

    def between(self, first: int, end: int) -> Iterator[bytes]:
        """Yield the names from a first up to, but not including, an end, as they are asked for."""
        for at in range(first, end, _ITERATED):
            yield from self[at : min(at + _ITERATED, end)]

    def __eq__(self, other: object) -> bool:
        return self._held == other._held if isinstance(other, ChunkNames) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


PAYLOAD_MISSING = "payload-missing"
"""The kind of problem of a text some of whose chunks are not available."""
PAYLOAD_DAMAGED = "payload"
"""The kind of problem of a chunk that is available but does not match its name."""

MOST_NAMES = 32 * 1024
"""Chunks that are fetched together, mostly 2 GiB: each takes about a kB in the meantime."""


FEW_NAMES = 4096
"""Chunks that are looked up together."""


def in_groups(names: Iterable[bytes], most: int | None = None) -> Iterator[list[bytes]]:
    """Yield the names of chunks in groups of at most `most`.

    By default a group's chunks can be fetched together.
    """
    left = iter(names)
    while group := list(islice(left, most or MOST_NAMES)):
        yield group


class PayloadSource(Protocol):
    """A source of chunks by their SHA-256 (32 bytes); threads may share it."""

    def want(self, names: Iterable[bytes]) -> None:
        """Make chunks available that will be read, fetching those that can be fetched.

        Called by one thread before others read. There may be any number of names; they are handled
        in groups. Raises EnvironmentFailure if fetching fails.
        """

    def has(self, names: Iterable[bytes]) -> set[bytes]:
        """Return those of the names whose chunks are available."""

    def read(self, name: bytes) -> ByteView:
        """Return the chunk with this SHA-256; raises WtxtgitError if it is damaged or missing."""

    def read_all(self, names: Sequence[bytes], size: int) -> memoryview | None:
        """Return chunks of `size` bytes each, concatenated: cheaper than reading one by one.

        Returns None if this shortcut does not apply or something is wrong; `read` then returns the
        chunks or raises the reason.
        """

    def states(self, names: Iterable[bytes]) -> set[bytes]:
        """Return the states of the things (files, packs) that hold the chunks of these names.

        There may be any number of names; they are handled in groups. A state changes as soon as
        anybody touches its thing. Returns an empty set unless the holders of all these chunks and
        their states are known.
        """


class PayloadState(StrEnum):
    """How much of a detached text's payload is available and matches its hashes."""

    COMPLETE = "complete"
    PARTLY = "partly"
    ABSENT = "absent"


Keep = Callable[[Sequence[bytes], memoryview, int, int, str, int], None]
"""Receives chunks of an array that are left out of a detached text, from any thread.

Their SHA-256; their bytes, concatenated, which are valid during the call only; the size of a chunk,
and of an item; the array's name; and the number of the first chunk.
"""


class _NoPayload:
    def want(self, names: Iterable[bytes]) -> None:
        pass

    def has(self, names: Iterable[bytes]) -> set[bytes]:
        return set()

    def read(self, name: bytes) -> ByteView:
        raise AssertionError("nothing is at hand")

    def read_all(self, names: Sequence[bytes], size: int) -> memoryview | None:
        return None

    def states(self, names: Iterable[bytes]) -> set[bytes]:
        return set()


FindPayload = Callable[[], PayloadSource | None]
"""Returns the source of detached texts' payload, None if there is none.

Called only for a detached text, which few are: then the repository is looked for.
"""

NO_PAYLOAD: PayloadSource = _NoPayload()
