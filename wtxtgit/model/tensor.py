"""Tensors and other entries of a container, and what readers are told.

The readers are in `containers`. Each format has words of its own for a dtype
(`F32`, `Float32`, `<f4`, `float32`); readers translate them to the elements that
are listed here, writers from these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from wtxtgit.io.view import Buffer, ByteView, mapped

Key = tuple[str, int]
"""The name of a tensor or entry, and how many of that name came before it in its file."""

MAX_CHUNK = 1024**3
"""Bytes that a chunk may have, stored or decoded, unless the user says otherwise."""


class Decoding:
    """What a command has decoded of all its files, in bytes.

    `configured` gives what its user lets a file decode to, None where they say
    nothing; it is asked when something is decoded first. `granted` is what the
    files were given for their sizes.
    """

    def __init__(self, configured: Callable[[], int | None] = lambda: None) -> None:
        self._configured = configured
        self.spent = 0
        self.granted = 0

    @cached_property
    def limit(self) -> int | None:
        """What the user lets a file decode to; None where they say nothing."""
        return self._configured()

    def __reduce__(self) -> tuple[type[Decoding], tuple[Callable[[], int | None]]]:
        # A worker elsewhere has other settings: it is told those of here.
        return Decoding, (partial(_identity, self.limit),)


def _identity(limit: int | None) -> int | None:
    return limit


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Limits and keys for reading what a container holds; no part of cutting.

    `max_chunk` is the most bytes that a compressed chunk may decode to, or a
    FOLD chunk may have. `decryption_key` (32 bytes, AES-256) opens encrypted
    FOLD chunks, `integrity_key` is the HMAC key of FOLD hashes, `public_keys` (ed25519, 32 bytes
    each) are those that may have signed a FOLD file. `decoding` is
    what bounds all that a command decodes; without it each file is bounded alone.
    """

    max_chunk: int = MAX_CHUNK
    decryption_key: bytes | None = field(default=None, repr=False)
    integrity_key: bytes | None = field(default=None, repr=False)
    public_keys: tuple[bytes, ...] = ()
    decoding: Decoding | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class PackedBytes:
    """Bytes that are decoded whenever they are asked for, `nbytes` of them.

    `open` raises FormatError where they can't be.
    """

    nbytes: int
    open: Callable[[], ByteView]

    def part(self, start: int, nbytes: int) -> PackedBytes:
        """`nbytes` of the bytes, from byte `start` on."""
        return PackedBytes(nbytes, lambda: self.open()[start : start + nbytes])


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor as its container lists it.

    `dtype` and `shape` are the container's own. `element` is the common name
    of what its items are (`model.elements`), None where they are no numbers
    of whole bytes. `held` has the stored bytes: the items lie in `order`, "C",
    "F" (columns first) or "reversed" (the shape names its fastest dimension
    first), or `strides` apart (in items; shape and strides as in numpy, the
    first item at byte 0). `absent` says why a tensor that is listed has no
    bytes, `packing` of which type the blocks are where these are no numbers
    (`model.ggml.QUANTISED`). A tensor nested in a chunk is named `chunk/tensor`; `offset` is in
    the file, None where the bytes do not stand there as they are.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    held: ByteView | PackedBytes
    offset: int | None
    element: str | None = None
    order: str = "C"
    byteorder: str = "little"
    strides: tuple[int, ...] | None = None
    absent: str | None = None
    packing: str | None = None

    @property
    def label(self) -> str:
        """The dtype by the name that all formats share, or by its own."""
        return self.element or self.dtype

    @property
    def logical_shape(self) -> tuple[int, ...]:
        """The shape as numpy has it, the slowest dimension first."""
        return self.shape[::-1] if self.order == "reversed" else self.shape

    @property
    def nbytes(self) -> int:
        """How many bytes are stored; nothing is decoded."""
        return self.held.nbytes

    @property
    def data(self) -> memoryview:
        """The stored bytes; raises FormatError where they can't be decoded."""
        return mapped(self.view)

    @property
    def view(self) -> ByteView:
        """The stored bytes, not mapped as a whole; raises FormatError as `data` does."""
        return self.held.open() if isinstance(self.held, PackedBytes) else self.held

    def first(self, nbytes: int) -> Tensor:
        """The tensor without what is stored behind its first `nbytes` bytes."""
        if nbytes == self.nbytes:
            return self
        if isinstance(self.held, PackedBytes):
            return replace(self, held=self.held.part(0, nbytes))
        return replace(self, held=self.held[:nbytes])


@dataclass(frozen=True, slots=True, eq=False)
class Nested:
    """A file in a chunk of a container, which has tensors of its own.

    `open` gives the file's bytes, decoded; it raises FormatError. `offset` is
    where they stand in the outer file, None where they are decoded; `stored`
    is how many bytes of the outer file they are.
    """

    name: str
    open: Callable[[], ByteView]
    offset: int | None = None
    stored: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class NamedPart:
    """A chunk, a member or a value of a container, by the name that its format gives it.

    `blocks` gives its content, decoded, in pieces; it raises FormatError. `nbytes` bytes from
    `offset` of the file on are what it is made of.
    """

    name: str
    offset: int
    nbytes: int
    blocks: Callable[[], Iterator[Buffer]]


@dataclass(frozen=True, slots=True)
class PartNote:
    """What a container says of the bytes that start at `offset`: type, compression, sizes.

    A small change of what compressed or encrypted bytes hold changes all of
    them.
    """

    offset: int
    about: str
    is_compressed: bool = False
    is_encrypted: bool = False


@dataclass(frozen=True, slots=True)
class Description:
    """What a container says of itself: its tensors and its metadata.

    `metadata` is plain data that `json.dumps` takes. `tags` is what of it
    can go to a file of another format: short texts by name. `untold` names
    what else such a file would lack. `parts` are words on what stands where.
    `size` is that of all files of a set, in bytes, None for a single file;
    `unlisted` says what these hold that the set has not. `own` gives the
    metadata as the writer of the same format takes it, where it takes more than tags.
    """

    format: str
    tensors: tuple[Tensor, ...] = ()
    metadata: dict[str, object] = field(default_factory=dict)
    nested: tuple[Nested, ...] = ()
    tags: dict[str, str] = field(default_factory=dict)
    untold: tuple[str, ...] = ()
    size: int | None = None
    parts: tuple[PartNote, ...] = ()
    unlisted: tuple[str, ...] = ()
    own: Callable[[], Mapping[str, object]] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TensorSource:
    """A tensor to be written: `blocks` gives its bytes, little-endian, in C order.

    `element` is one of `ITEM_BYTES` or of `model.ggml.QUANTISED`, `shape` as in numpy. `blocks` may
    be called more than once and gives `nbytes` bytes each time.
    """

    name: str
    element: str
    shape: tuple[int, ...]
    nbytes: int
    blocks: Callable[[], Iterator[Buffer]]


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """Something that a file holds under a name: a tensor, or a file in a chunk or a member.

    Exactly one of `tensor` and `file` is set, but for a file that can't be
    opened (encrypted, damaged): it has neither, and `unread` says why. `file`
    is the content, decoded. `stored` are the bytes as they lie in the
    container, None where they lie within something compressed: entries of
    equal `form` and `stored` hold the same. `form` is all else that the
    container's record of the entry says: dtype, order, compression, further
    keys; no name, no place, no length, no hash. `is_json` says that the file is JSON by
    its type, which is merged value by value where it can be read.
    """

    name: str
    form: Hashable
    stored: ByteView | None
    tensor: Tensor | None = None
    file: ByteView | PackedBytes | None = None
    unread: str | None = None
    is_json: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class NewContent:
    """New bytes of an entry, `nbytes` of them; `blocks` gives them each time it is called."""

    nbytes: int
    blocks: Callable[[], Iterator[Buffer]]


@dataclass(frozen=True, slots=True, eq=False)
class PlacedEntry:
    """An entry of a file that is written: entry `number` of a file that was read.

    `source` is that file as its format's `read` gave it. Without `content` the
    entry is taken as it is stored there. `content` of a tensor has exactly as
    many bytes as are stored, in their order and byte order; that of a file
    any number, not compressed.
    """

    source: object
    number: int
    content: NewContent | None = None


ITEM_BYTES = {
    "f64": 8,
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "f8_e4m3": 1,
    "f8_e5m2": 1,
    "f8_e8m0": 1,
    "f8_e4m3fnuz": 1,
    "f8_e5m2fnuz": 1,
    "i64": 8,
    "u64": 8,
    "i32": 4,
    "u32": 4,
    "i16": 2,
    "u16": 2,
    "i8": 1,
    "u8": 1,
    "bool": 1,
    "c64": 8,
    "c128": 16,
}
"""Bytes of one item of each element."""


def keys_of(names: Iterable[str]) -> Iterator[Key]:
    """The keys of what is called so, in order: names may be there more than once."""
    seen: Counter[str] = Counter()
    for name in names:
        yield name, seen[name]
        seen[name] += 1
