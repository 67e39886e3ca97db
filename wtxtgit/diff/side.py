"""A checkpoint as a comparison takes it: tensors and metadata, whatever holds them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from wtxtgit import containers
from wtxtgit.checkpoint.metadata import metadata_of, native_metadata
from wtxtgit.checkpoint.open import members, read
from wtxtgit.errors import FormatError, InputError
from wtxtgit.io.view import ByteView, Pages
from wtxtgit.model.tensor import Description, Packed, ReadOptions, Tensor
from wtxtgit.tensors.tensor_bytes import content_size
from wtxtgit.text.file import TextFile
from wtxtgit.text.grammar import MAGIC

_READ_TIMES = 4
"""Tensors of a hostile file may all span all of it: reading ends there."""
_LEAST_READ = 64 * 1024 * 1024
NATIVE = "wtxt"
NATIVE_ELEMENTS = {
    "|b1": "bool",
    "<f2": "f16",
    "<c8": "c64",
    "<c16": "c128",
    "<f4": "f32",
    "<f8": "f64",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8_e4m3",
    "float8_e5m2": "f8_e5m2",
    "float8_e8m0fnu": "f8_e8m0",
    "float8_e4m3fnuz": "f8_e4m3fnuz",
    "float8_e5m2fnuz": "f8_e5m2fnuz",
    **{
        f"{'|' if n == 1 else '<'}{kind}{n}": f"{kind}{8 * n}"
        for kind in "iu"
        for n in (1, 2, 4, 8)
    },
}
"""What the items of an array are that numpy calls so."""

Contents = Mapping[str, int]
"""Numbers of what arrays of a text hold, by their names; the other text has the same."""


class NoCheckpoint(InputError):
    """A file of no format that we know."""


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """What a checkpoint is read from: what messages call it, and its bytes.

    `open_member` opens a file that it lists, by its path there; it raises
    InputError.
    """

    name: str
    data: ByteView
    open_member: Callable[[str], ByteView]


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A side that is open, with the text that its bytes are, if they are one."""

    side: Side
    text: TextFile | None

    @property
    def size(self) -> int:
        """Bytes of the file that a checkout has."""
        if self.text is not None and self.text.is_container:
            return self.text.size
        return len(self.side.data)


def side_of(name: str, threads: int | None) -> Side:
    """A file or REV:PATH as a side; raises InputError and EnvironmentFailure."""
    return Side(name, read(name), members(name, threads=threads))


@dataclass(slots=True, eq=False)
class Checkpoint:
    """A checkpoint that is open.

    `left` is how many bytes of tensors may still be read. `contents` and
    `text` are there for texts, of which tensors are decoded by `prepare`.
    """

    name: str
    format: str
    tensors: list[Tensor]
    metadata: dict[str, object]
    tags: dict[str, str]
    left: int
    notes: list[str] = field(default_factory=list)
    text: TextFile | None = None
    contents: Contents = field(default_factory=dict)
    _most: int = field(init=False)

    def __post_init__(self) -> None:
        self._most = self.left

    def content(self, tensor: Tensor) -> Hashable:
        """What stands for the tensor's bytes on both sides, None where nothing does."""
        if self.text is None or tensor.offset is None or isinstance(tensor.held, Packed):
            return None
        found = self.text.array_at(tensor.offset, tensor.nbytes)
        if found is None or found[0] not in self.contents:
            return None
        layout = (tensor.order, tensor.byteorder, tensor.strides)
        return self.contents[found[0]], found[1], tensor.nbytes, layout

    def take(self, tensor: Tensor) -> str | None:
        """Count the reading of a tensor; gives the reason where it is not to be read."""
        size = content_size(tensor)
        if size > self.left:
            return f"not read: more than {self._most} bytes are not"
        self.left -= size
        return None

    def prepare(self, tensor: Tensor) -> None:
        """Bring a tensor's bytes to where its view looks for them; raises CheckError."""
        if self.text is None:
            return
        if tensor.offset is None:
            # What it is decoded from may stand anywhere.
            self.text.fill_all()
        else:
            self.text.fill_range(tensor.offset, tensor.nbytes)


def open_source(side: Side, pages: Pages, threads: int | None, until: ExitStack) -> Source:
    """Open a side, which stays so until `until` is closed; raises CheckError."""
    pages.watch(side.data)
    text = None
    if side.data[: len(MAGIC)] == MAGIC:
        text = TextFile(side.name, side.data, pages, threads, until)
    return Source(side, text)


def open_checkpoint(
    source: Source, contents: Contents, options: ReadOptions, pages: Pages
) -> Checkpoint:
    """List what a source holds; raises InputError where it is no checkpoint.

    Of a text's arrays those in `contents` stay undecoded where they are tensors.
    """
    side, text = source.side, source.text
    if text is None:
        return _of_file(side, side.data, options, pages)
    if not text.is_container:
        return _native(side.name, text, contents)
    return _of_text(side, text, contents, options, pages)


def _of_text(
    side: Side, text: TextFile, contents: Contents, options: ReadOptions, pages: Pages
) -> Checkpoint:
    """A container's text: tensors that both sides share stay undecoded."""
    extents = text.layout.extents if text.layout is not None else ()
    held = {e.array for e in extents if e.array is not None and e.is_tensor} & contents.keys()
    text.fill(array for array in text.by_name if array not in held)
    # Where the structure is not what the layout says, tensors may be part of it.
    is_apart = containers.split(text.view).layout == text.layout
    if not is_apart or _reads_tensors(text.view):
        text.fill_all()
    checkpoint = _of_file(side, text.view, options, pages)
    checkpoint.text, checkpoint.contents = text, contents
    return checkpoint


def _reads_tensors(data: ByteView) -> bool:
    """Whether listing tensors reads their bytes: where parity mends what is damaged."""
    known = containers.detected(data)
    if known is None or known.parity is None:
        return False
    try:
        return known.parity().has_parity(containers.read(data))
    except FormatError:
        return True


def _of_file(side: Side, data: ByteView, options: ReadOptions, pages: Pages) -> Checkpoint:
    name = side.name
    open_member = _watched(side.open_member, pages)
    notes: list[str] = []
    try:
        description = containers.describe(data, options, open_member)
        tensors = list(containers.tensors(description, options))
    except FormatError as error:
        left = containers.salvage(data, options)
        if left is None:
            raise InputError(f"{name}: {error.message}", hint=_verify_hint(name)) from None
        description, tensors = left, list(containers.tensors(left, options))
        notes.append(f"{name}: {error.message}")
    if description.format == "opaque":
        reason = description.metadata.get("reason", "file has no known magic")
        raise NoCheckpoint(f"{name}: no checkpoint that we know: {reason}")
    encrypted = any(part.is_encrypted for part in description.parts)
    if encrypted and options.decryption_key is None:
        notes.append(f"{name}: parts are encrypted, --key F opens them")
    return Checkpoint(
        name,
        description.format,
        tensors,
        metadata_of(data, description, options),
        description.tags,
        _readable(description, options, len(data)),
        notes,
    )


def _native(name: str, text: TextFile, contents: Contents) -> Checkpoint:
    """A native text: its arrays, under the names and dtypes that they had."""
    tensors = []
    extents = text.layout.extents if text.layout is not None else ()
    by_array = {extent.array: extent for extent in extents}
    for array in text.by_name.values():
        claim, extent = array.claim, by_array.get(array.name)
        dtype = claim.dtype if extent is None or extent.dtype is None else extent.dtype
        shape = claim.shape if extent is None or extent.shape is None else extent.shape
        element = claim.dtype if extent is None else NATIVE_ELEMENTS.get(dtype)
        start = text.places[array.name]
        tensors.append(
            Tensor(
                array.name if extent is None or extent.name is None else extent.name,
                dtype,
                shape,
                text.view[start : start + array.nbytes],
                start,
                element,
            )
        )
    metadata = native_metadata(text.index)
    return Checkpoint(name, NATIVE, tensors, metadata, {}, text.size, [], text, contents)


def _watched(open_member: Callable[[str], ByteView], pages: Pages) -> Callable[[str], ByteView]:
    def opened(path: str) -> ByteView:
        data = open_member(path)
        pages.watch(data)
        return data

    return opened


def _readable(description: Description, options: ReadOptions, size: int) -> int:
    """Bytes of tensors that are read at most."""
    packed = sum(part.is_compressed for part in description.parts)
    left = max(_READ_TIMES * (description.size or size), _LEAST_READ)
    # What is compressed may be any number of times larger than what is stored.
    return left + options.max_chunk * max(len(description.nested), packed)


def _verify_hint(name: str) -> str:
    return f"wtxtgit verify {name} lists all that is wrong"
