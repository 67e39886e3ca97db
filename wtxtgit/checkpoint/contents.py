"""The contents of a checkpoint in any form: its tensors, and what it says about itself.

Of a text only what is asked for is decoded. Metadata that only tell positions, sizes and hashes of
bytes are left out: they change with every tensor, and nobody wrote them on purpose.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from wtxtgit.containers import any_format, registry
from wtxtgit.containers.budget import Budget, most_decoded
from wtxtgit.containers.format import ANY, in_same_folder
from wtxtgit.errors import FormatError, InputError, NotRead
from wtxtgit.io.view import ByteView, Pages
from wtxtgit.model.array import LAYOUT_ARRAY, NO_PAYLOAD, Array, Layout, PayloadSource
from wtxtgit.model.dtypes import ELEMENTS
from wtxtgit.model.tensor import Description, Nested, PackedBytes, ReadOptions, Tensor
from wtxtgit.remotes.lfs_pointer import refuse_pointer
from wtxtgit.tensors.tensor_bytes import content_size
from wtxtgit.text.grammar import is_text

if TYPE_CHECKING:  # a diff of two files does without all that reads texts
    from wtxtgit.text.file import TextFile
    from wtxtgit.text.grammar import ArrayLine
    from wtxtgit.text.index import TextIndex

_READ_TIMES = 4
"""Limit of a file's tensors, in multiples of its size: in a hostile one each may span all of it."""
_LEAST_READ = 64 * 1024 * 1024
REST = "rest"
"""Where in the metadata there is what else somebody may have changed in a file."""
KEY_OPENS = "--key F decrypts them"
"""How messages tell users of the command line to decrypt parts."""
NATIVE = "wtxt"

Shared = Mapping[str, int]
"""For arrays that another text has too: a number for each content, by the name of the array."""


class NoCheckpoint(InputError):
    """A file is of no known format."""


def refuse_part(path: str) -> None:
    """Raise NoCheckpoint for a part that can only be read through its set's index."""
    alone = registry.part_note(path)
    if alone is not None:
        raise NoCheckpoint(f"{path}: {alone}")


class ReadBudget(Budget):
    """A limit on the bytes of tensors that are read, `most` in all."""

    __slots__ = ("most",)

    def __init__(self, most: int) -> None:
        self.most = most
        super().__init__(most, f"not read: over {most} bytes", "payload")

    @classmethod
    def of(cls, description: Description, options: ReadOptions, size: int) -> ReadBudget:
        """Return the budget for a file of `size` bytes, or for its set."""
        most = max(_READ_TIMES * (description.size or size), _LEAST_READ)
        # Compressed tensors may be any number of times larger than what is stored.
        packed = sum(part.is_compressed for part in description.parts)
        is_packed = bool(description.nested) or packed > 0
        decoded = most_decoded(description.size or size, options) if is_packed else 0
        return cls(most + decoded)

    def refusal(self, tensor: Tensor) -> NotRead | None:
        """Count the reading of a tensor; returns the reason if it exceeds the budget, else None."""
        # For a strided view this counts the items that are read, which may exceed what is stored.
        return None if self.spend(content_size(tensor)) else NotRead.over(self.message)


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """An input of a comparison: its name in messages, its bytes, and the text if they are one.

    `open_member` opens a file of the set that it lists, by its path there; it raises InputError.
    """

    name: str
    data: ByteView
    open_member: Callable[[str], ByteView]
    text: TextFile | None

    @property
    def size(self) -> int:
        """The size in bytes of the file as a checkout writes it."""
        if self.text is not None and self.text.is_container:
            return self.text.size
        return len(self.data)


def to_read(sides: Collection[Side]) -> int:
    """About how many bytes are counted while sides are compared, or one is listed.

    Bytes that are compared count once, those of a text also when they are decoded.
    """
    decoded = sum(side.text.size for side in sides if side.text is not None)
    return max(side.size for side in sides) + decoded


def open_side(
    name: str,
    data: ByteView,
    open_member: Callable[[str], ByteView],
    pages: Pages,
    threads: int | None,
    until: ExitStack,
    payload: PayloadSource = NO_PAYLOAD,
    indexed: TextIndex | None = None,
) -> Side:
    """Open a side, which stays open until `until` is closed; raises CheckError for a broken text.

    Of a detached text's `payload` only what is asked for is read. `indexed` is the index of a text,
    if it was made already.
    """
    pages.watch(data)
    text = None
    if is_text(data):
        from wtxtgit.text.file import TextFile

        text = TextFile(name, data, pages, threads, until, payload, indexed)
    return Side(name, data, open_member, text)


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """An open checkpoint.

    `shared` and `text` are set for texts, whose tensors `prepare` decodes. `nested` are the files
    in chunks, whose own tensors are in `tensors`. `imports` are as of a description, of chunks too.
    `repeated` counts the names that several members of a zip have, or several tensors of another
    file. `unread` says what else than a listed tensor could not be read, and why.
    `lists_none` is set for a file that says that it has no tensors.
    """

    name: str
    format: str
    tensors: list[Tensor]
    metadata: dict[str, object]
    tags: dict[str, str]
    budget: ReadBudget
    notes: tuple[str, ...] = ()
    text: TextFile | None = None
    shared: Shared = field(default_factory=dict)
    nested: tuple[Nested, ...] = ()
    imports: tuple[str, ...] = ()
    lists_none: bool = False
    repeated: Mapping[str, int] = field(default_factory=dict)
    unread: tuple[NotRead, ...] = ()

    def content(self, tensor: Tensor) -> Hashable:
        """Return a value that is equal for equal bytes on both sides; None if they have to be
        compared.
        """
        if self.text is None or tensor.offset is None or isinstance(tensor.held, PackedBytes):
            return None
        place = self.text.array_at(tensor.offset, tensor.nbytes)
        if place is None or place[0] not in self.shared:
            return None
        # Equal stored bytes mean equal items only if both sides interpret them in the same way.
        layout = (tensor.order, tensor.byteorder, tensor.strides)
        return self.shared[place[0]], place[1], tensor.nbytes, layout

    def prepare(self, tensor: Tensor) -> None:
        """Bring a tensor's bytes to where its view reads them; raises CheckError."""
        if self.text is None:
            return
        if tensor.offset is None:
            # The bytes that it is decoded from may be anywhere.
            self.text.fill_all()
        else:
            self.text.fill_range(tensor.offset, tensor.nbytes)


def open_checkpoint(side: Side, shared: Shared, options: ReadOptions, pages: Pages) -> Checkpoint:
    """List what a side contains; raises InputError if it is no checkpoint.

    Arrays of a text that are in `shared` are not decoded if they are tensors.
    """
    text = side.text
    if text is None:
        return _of_file(side, side.data, options, pages)
    if not text.is_container:
        tensors = []
        claims = (array.claim for array in text.index.arrays)
        for array, tensor in native_tensors(claims, text.layout):
            start = text.places[array]
            content = text.view[start : start + text.by_name[array].nbytes]
            tensors.append(replace(tensor, held=content, offset=start))
        metadata = native_metadata(text.index)
        return Checkpoint(
            side.name, NATIVE, tensors, metadata, {}, ReadBudget(text.size), (), text, shared
        )
    # The structure is always decoded, tensors only if the other side has other bytes.
    extents = text.layout.extents if text.layout is not None else ()
    late = {e.array for e in extents if e.array is not None and e.is_tensor} & shared.keys()
    text.fill(array for array in text.by_name if array not in late)
    # If the structure does not match the layout, tensors may be part of the structure.
    is_apart = any_format.split(text.view).layout == text.layout
    if not is_apart or _reads_tensors(text.view):
        text.fill_all()
    return _of_file(side, text.view, options, pages, shared)


@contextmanager
def opened_lazily(
    name: str,
    data: ByteView,
    options: ReadOptions,
    *,
    threads: int | None = None,
    pages: Pages | None = None,
    indexed: TextIndex | None = None,
) -> Iterator[Checkpoint]:
    """Open what was read of a target; tensors of a text are not decoded until they are prepared.

    `indexed` is the index of a text, with its payload, if it was made already. Raises as
    `open_checkpoint` does.
    """
    from wtxtgit.checkpoint.members import members
    from wtxtgit.checkpoint.open import payload_for

    pages = Pages() if pages is None else pages
    with ExitStack() as until:
        opener = members(name, threads=threads)
        payload = payload_for(name, data) if indexed is None else indexed.payload
        side = open_side(name, data, opener, pages, threads, until, payload, indexed)
        # As if another side had all of them too.
        apart = {} if side.text is None else dict.fromkeys(side.text.by_name, 0)
        yield open_checkpoint(side, apart, options, pages)


def _reads_tensors(data: ByteView) -> bool:
    """Tell whether listing tensors reads their bytes, because parity mends damaged ones."""
    known = registry.detected(data)
    if known is None or known.parity is None:
        return False
    try:
        return known.parity().has_parity(any_format.read(data))
    except FormatError:
        return True


def _of_file(
    side: Side, data: ByteView, options: ReadOptions, pages: Pages, shared: Shared | None = None
) -> Checkpoint:
    def open_member(path: str) -> ByteView:
        member = side.open_member(path)
        pages.watch(member)
        return member

    name = side.name
    refuse_part(name)
    notes: list[str] = []
    untold: list[str] = []
    refused: list[str] = []
    try:
        opener = in_same_folder(side.open_member, open_member)
        description = any_format.describe(data, options, opener)
        tensors = list(any_format.tensors(description, options, untold, refused))
    except FormatError as error:
        # An incomplete file still has tensors that can be compared.
        unfinished = any_format.unfinished(data, options)
        if unfinished is None:
            hint = f"wtxtgit verify -- {shlex.quote(name)} lists all problems"
            raise InputError.because(f"{name}: {error.message}", error, hint=hint) from None
        description, tensors = unfinished, list(any_format.tensors(unfinished, options))
        notes.append(f"{name}: {error.message}")
        untold.append(NotRead.because(error))
    notes += [f"{name}: {line}" for line in any_format.in_one_line(refused)]
    notes += [f"{name}: {line}" for line in description.unlisted]
    if description.format == "opaque":
        refuse_pointer(name, data)
        reason = description.metadata.get("reason", "file has no known magic")
        raise NoCheckpoint(f"{name}: not a known checkpoint: {reason}")
    if options.decryption_key is None and any(part.is_encrypted for part in description.parts):
        untold.append(NotRead(f"parts are encrypted, {KEY_OPENS}"))
        notes.append(f"{name}: {untold[-1]}")
    return Checkpoint(
        name,
        description.format,
        tensors,
        metadata_of(data, description, options),
        description.tags,
        ReadBudget.of(description, options, len(data)),
        tuple(notes),
        side.text,
        shared or {},
        description.nested,
        (*description.imports, *_inner_imports(description, options)),
        not tensors and any_format.lists_none(description, untold + notes),
        _repeated(description, tensors),
        tuple(one.within(f"{name}: ") for one in untold if isinstance(one, NotRead)),
    )


def _repeated(description: Description, tensors: Collection[Tensor]) -> dict[str, int]:
    members = description.metadata.get("members")
    names: Iterator[object] = (tensor.name for tensor in tensors)
    # What a zip lists besides tensors can have equal names, too.
    if isinstance(members, list):
        names = (member.get("name") for member in members if isinstance(member, dict))
    counts = Counter(str(name) for name in names)
    return {name: count for name, count in counts.items() if count > 1}


def _inner_imports(description: Description, options: ReadOptions) -> Iterator[str]:
    for chunk in description.nested:
        # Why a chunk can't be read is reported elsewhere.
        with suppress(FormatError):
            yield from any_format.describe(chunk.open(), options).imports


def native_tensors(
    arrays: Iterable[Array | ArrayLine], layout: Layout | None
) -> Iterator[tuple[str, Tensor]]:
    """Yield the names of a native text's arrays, each with the tensor that it was written from,
    without its bytes.
    """
    extents = {} if layout is None else {extent.array: extent for extent in layout.extents}
    for array in arrays:
        if array.name == LAYOUT_ARRAY:
            continue
        name, dtype, shape = array.name, array.dtype, array.shape
        element: str | None = dtype
        extent = extents.get(array.name)
        if extent is not None:
            name = name if extent.name is None else extent.name
            shape = shape if extent.shape is None else extent.shape
            if extent.dtype is not None:
                dtype, element = extent.dtype, ELEMENTS.get(extent.dtype)
        yield array.name, Tensor(name, dtype, shape, memoryview(b""), None, element)


def metadata_of(
    data: ByteView, description: Description, options: ReadOptions
) -> dict[str, object]:
    """Return a container's metadata, including those of files and JSON in its chunks."""
    metadata: dict[str, object] = dict(description.metadata)
    known = registry.by_name(description.format)
    if known is not None:
        is_set = description.format == known.set_name
        for path in known.derived_of_set if is_set else known.derived:
            metadata = _without(metadata, path)  # type: ignore[assignment]
        if known.tags_apart:
            metadata["tags"] = description.tags
    inner: dict[str, object] = {}
    for chunk in description.nested:
        try:
            file = any_format.describe(chunk.open(), options)
        except FormatError:
            # Why a chunk has no tensors is reported elsewhere.
            continue
        values = None if file.values is None else file.values()
        if file.tags or values:
            inner[chunk.name] = {**file.tags, **({} if values is None else {"values": values})}
    if known is not None and known.chunk_values is not None:
        inner.update(known.chunk_values().chunk_values(data, options))
    if description.values is not None:
        metadata["values"] = description.values()
    if inner:
        metadata["in chunks"] = inner
    if description.rest is not None:
        metadata[REST] = dict(description.rest())
    return metadata


def native_metadata(index: TextIndex) -> dict[str, object]:
    """Return what a native text states about its generation."""
    meta = index.meta
    metadata: dict[str, object] = {
        key: getattr(meta, key) for key in ("schema", "gen", "ts", "build", "host", "cuda")
    }
    if index.audit is not None:
        metadata["audit"] = index.audit
    return metadata


def _without(value: object, path: tuple[str, ...]) -> object:
    """Return the value without what is at a path; nothing is changed in place."""
    head, rest = path[0], path[1:]
    if head == ANY:
        return [_without(item, rest) for item in value] if isinstance(value, list) else value
    if not isinstance(value, dict) or head not in value:
        return value
    if not rest:
        return {key: item for key, item in value.items() if key != head}
    return {**value, head: _without(value[head], rest)}
