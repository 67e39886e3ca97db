"""Tensors and other entries of a container, and the options for reading them.

The readers are in `containers`. Each format has its own names for dtypes (`F32`, `Float32`,
`<f4`, `float32`); readers translate them to the elements listed here, and writers back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from wtxtgit.io.view import Buffer, ByteView, mapped
from wtxtgit.model.dtypes import DTYPES

Key = tuple[str, int]
"""The name of a tensor or entry, and how many with this name precede it in its file."""

OF_ITEMS = "of items"
"""The key of what the rest of a description says of single tensors or values."""
MAX_CHUNK = 1024**3
"""The most bytes of a chunk, stored or decoded, unless the user sets another limit."""


class Decoding:
    """The sum of what a command has decoded from all its files, in bytes.

    `configured` returns the limit for one file from the user's settings, None if they have none;
    it is called when something is decoded for the first time. `granted` is the total that the
    files were allowed because of their sizes.
    """

    def __init__(self, configured: Callable[[], int | None] = lambda: None) -> None:
        self._configured = configured
        self.spent = 0
        self.granted = 0

    @cached_property
    def limit(self) -> int | None:
        """The user's limit on what one file may decode to; None if none is set."""
        return self._configured()

    def __reduce__(self) -> tuple[type[Decoding], tuple[Callable[[], int | None]]]:
        # A worker on another machine has other settings: it gets the ones from here.
        return Decoding, (partial(_identity, self.limit),)


def _identity(limit: int | None) -> int | None:
    return limit


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Limits and keys for reading what a container holds; they do not affect how a file is cut.

    `max_chunk` is the most bytes that a compressed chunk may decode to, or that a FOLD chunk may
    have. `decryption_key` (32 bytes, AES-256) opens encrypted FOLD chunks, `integrity_key` is the
    HMAC key of FOLD hashes, and `public_keys` (ed25519, 32 bytes each) are those that may have
    signed a FOLD file. `decoding` bounds what a command decodes from all files; without it each
    file is bounded by itself. `progress` gets counts of a file's bytes while a check hashes them.
    """

    max_chunk: int = MAX_CHUNK
    decryption_key: bytes | None = field(default=None, repr=False)
    integrity_key: bytes | None = field(default=None, repr=False)
    public_keys: tuple[bytes, ...] = ()
    decoding: Decoding | None = field(default=None, repr=False, compare=False)
    progress: Callable[[int], None] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class PackedBytes:
    """Stored bytes that are decoded each time they are asked for, `nbytes` of them.

    `open` raises FormatError if they can't be decoded.
    """

    nbytes: int
    open: Callable[[], ByteView]

    def part(self, start: int, nbytes: int) -> PackedBytes:
        """Return `nbytes` of the bytes, from byte `start` on, still undecoded."""
        return PackedBytes(nbytes, lambda: self.open()[start : start + nbytes])


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor as its container lists it.

    `dtype` and `shape` are the container's own. `element` is the common name of the type of its
    items (`model.dtypes`), None if they are not numbers of whole bytes. `held` has the stored
    bytes. Their items lie in `order`: "C", "F" (columns first) or "reversed" (the shape names its
    fastest dimension first); or they lie `strides` apart (in items; shape and strides as in numpy,
    the first item at byte 0). `absent` says why a listed tensor has no bytes. `packing` names the
    type of quantised blocks (`model.ggml.QUANTISED`), None for plain numbers. A tensor nested in a
    chunk is named `chunk/tensor`. `offset` is the position in the file, None if the bytes do not
    stand there as they are.
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
        """The dtype's common name if it has one, else the container's own name."""
        return self.element or self.dtype

    @property
    def logical_shape(self) -> tuple[int, ...]:
        """The shape as numpy has it, the slowest dimension first."""
        return self.shape[::-1] if self.order == "reversed" else self.shape

    @property
    def nbytes(self) -> int:
        """The number of bytes that are stored; nothing is decoded to find it."""
        return self.held.nbytes

    @property
    def data(self) -> memoryview:
        """The stored bytes, mapped; raises FormatError if they can't be decoded."""
        return mapped(self.view)

    @property
    def view(self) -> ByteView:
        """The stored bytes, without mapping all of them; raises FormatError as `data` does."""
        return self.held.open() if isinstance(self.held, PackedBytes) else self.held

    def first(self, nbytes: int) -> Tensor:
        """Return the tensor with only the first `nbytes` of its stored bytes."""
        if nbytes == self.nbytes:
            return self
        if isinstance(self.held, PackedBytes):
            return replace(self, held=self.held.part(0, nbytes))
        return replace(self, held=self.held[:nbytes])


@dataclass(frozen=True, slots=True, eq=False)
class Nested:
    """A file in a chunk of a container that has tensors of its own.

    `open` returns the file's bytes, decoded, or raises FormatError. `offset` is their position in
    the outer file, None if they are decoded; `stored` is how many bytes of the outer file they
    take, from byte `start` on.
    """

    name: str
    open: Callable[[], ByteView]
    offset: int | None = None
    stored: int = 0
    start: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """A document: its name, its bytes, and what stands for them in the file.

    `is_json` for JSON, otherwise it is MessagePack with zeros after it. `styles` are further ways
    in which the format's writers spell a value. `is_fresh` if each save stores the same content
    differently, such as encrypted. If it `lists` tensors, as the header of safetensors, the order
    of its outer keys is theirs, which is compared elsewhere, and spaces align what follows.
    """

    name: str
    raw: bytes
    stored: ByteView
    is_json: bool = True
    styles: tuple[Callable[[object], bytes], ...] = ()
    is_fresh: bool = False
    lists: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class NamedPart:
    """A chunk, member or value of a container, by the name that its format gives it.

    `blocks` yields its content, decoded, in pieces, or raises FormatError. It is stored in the
    `nbytes` bytes of the file from `offset` on. `is_untold` if neither tensors nor metadata of the
    file tell what is in it.
    """

    name: str
    offset: int
    nbytes: int
    blocks: Callable[[], Iterator[Buffer]]
    is_untold: bool = False


@dataclass(frozen=True, slots=True)
class PartNote:
    """What a container says of the bytes that start at `offset`: type, compression, sizes.

    A small change of what compressed or encrypted bytes hold changes all of them.
    """

    offset: int
    about: str
    is_compressed: bool = False
    is_encrypted: bool = False


@dataclass(frozen=True, slots=True)
class Description:
    """What a container says of itself: its tensors and its metadata.

    `metadata` is plain data that `json.dumps` accepts. `tags` is the part of it that a file of
    another format can hold: short texts by name. `untold` names what else such a file would lack.
    `parts` describe what stands where in the file. `size` is the total size in bytes of the files
    of a set, None for a single file; `unlisted` lists what these files hold that the set's index
    does not. `own` returns the metadata in the form that a writer of the same format takes, if
    that takes more than tags. `imports` are the names that Python's pickle would import, and may
    call, when the file is loaded, without those that torch itself allows. `empty` are the names of
    chunks that are files of tensors and list none. `values` returns further values that the file
    holds, as plain data of limited size. `rest` returns, by name, what else somebody may have
    changed that neither tensors nor metadata tell; for comparisons. What stands there under
    OF_ITEMS, by kind and name, is of tensors or values that are listed elsewhere.
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
    imports: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    values: Callable[[], object] | None = None
    rest: Callable[[], Mapping[str, object]] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TensorSource:
    """A tensor to be written: `blocks` yields its bytes, little-endian, in C order.

    `element` is one of `model.dtypes.DTYPES` or of `model.ggml.QUANTISED`, or numpy's spelling of a
    string, a time or void (`<U5`, `<M8[ns]`, `|V4`). `shape` is as in numpy. `blocks` may be called
    more than once and yields `nbytes` bytes in total each time.
    """

    name: str
    element: str
    shape: tuple[int, ...]
    nbytes: int
    blocks: Callable[[], Iterator[Buffer]]


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """Something that a file holds under a name: a tensor, or a file in a chunk or a member.

    Exactly one of `tensor` and `file` is set, except for a file that can't be opened (encrypted,
    damaged): it has neither, and `unread` says why. `file` is the decoded content. `stored` are
    the bytes as they lie in the container, None if they lie inside something compressed. Entries
    with equal `form` and `stored` have the same content. `form` is everything else that the
    container's record of the entry says (dtype, order, compression, further keys) except its name,
    place, length and hashes. `is_json` says that the file is JSON by its type; if it can be parsed,
    it is merged value by value.
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
    """New bytes for an entry, `nbytes` of them; `blocks` yields them each time it is called."""

    nbytes: int
    blocks: Callable[[], Iterator[Buffer]]


@dataclass(frozen=True, slots=True, eq=False)
class PlacedEntry:
    """An entry of a file being written: entry `number` of a file that was read.

    `source` is the file that was read, as its format's `read` returned it. Without `content` the
    entry is copied as stored there. `content` of a tensor has exactly as many bytes as are stored,
    in the same item and byte order; `content` of a file may have any length and is not compressed.
    """

    source: object
    number: int
    content: NewContent | None = None


ITEM_BYTES = {element: dtype.size for element, dtype in DTYPES.items()}
"""Size in bytes of an item of each element."""


def keys_of(names: Iterable[str]) -> Iterator[Key]:
    """Yield a key for each of the names, in order: a name may occur more than once."""
    seen: Counter[str] = Counter()
    for name in names:
        yield name, seen[name]
        seen[name] += 1
