"""What a file holds besides its tensors and its own structure: named parts, and other bytes.

A part is what the format gives a name: a member of a zip, a chunk of a FOLD file. Other bytes
belong to no part, tensor or record of the format: they are between these, before the first or after
the last one. Such a gap is padding, and not listed, if it is nothing but zeros up to the next
multiple of the format's alignment; in formats without one, any zeros are. Listed is also in which
order all of this stands in the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, cast

from wtxtgit.containers.format import SET_HEAD, Container, Format
from wtxtgit.containers.registry import detected, listed_by
from wtxtgit.containers.zip_read import Directory, ZipContainer, ZipMember, blocks
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView, hashed, is_zeros, pieces
from wtxtgit.model.array import bounded_product
from wtxtgit.model.tensor import ITEM_BYTES, Document, ReadOptions

if TYPE_CHECKING:
    from wtxtgit.containers.ranges import Range

MOST = 10_000
"""At most this many parts are listed, twice as many pieces in all; what follows is one piece."""


_MOST_INFLATED = 64 * 1024 * 1024
"""At most this many bytes of compressed parts are inflated; of further ones the bytes as stored are
taken."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A part, or bytes that belong to none (then without `name`), from byte `offset` on.

    `nbytes` and `digest` (SHA-256) are those of what a compressed part inflates to. If all of the
    bytes are 0 (`is_zeros`) the digest is empty. `within` is the chunk that holds the file in which
    they are, if it is not the whole file.
    """

    name: str | None
    offset: int
    nbytes: int
    digest: bytes
    is_zeros: bool = False
    within: str | None = None


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What a file holds besides its tensors, and each member of a zip with its compression.

    `orders` are names of tensors and parts, by a word for each order in which the file has them.
    `homes` say, by name, in which shard of the file a tensor is. The values of `documents` are
    compared elsewhere. `extents` are, by name, how many bytes a tensor has beyond its items.
    All members of torch's zips are in one `folder`, with which their names start.
    """

    listed: tuple[Leftover, ...] = ()
    methods: tuple[tuple[str, int], ...] = ()
    orders: tuple[tuple[str, tuple[str, ...]], ...] = ()
    homes: tuple[tuple[str, int], ...] = ()
    documents: tuple[Document, ...] = ()
    extents: tuple[tuple[str, int], ...] = ()
    folder: str = ""

    def joined(self, inner: Leftovers, chunk: str) -> Leftovers:
        """Return this with what a file in a chunk holds, whose names get the chunk's in front."""

        def named(one: Leftover) -> Leftover:
            return replace(
                one,
                name=None if one.name is None else f"{chunk}/{one.name}",
                within=chunk if one.within is None else f"{chunk}/{one.within}",
            )

        documents = (replace(one, name=f"{chunk}/{one.name}") for one in inner.documents)
        return replace(
            self,
            listed=(*self.listed, *map(named, inner.listed)),
            methods=(*self.methods, *((f"{chunk}/{name}", one) for name, one in inner.methods)),
            extents=(*self.extents, *((f"{chunk}/{name}", one) for name, one in inner.extents)),
            orders=(*self.orders, *((f"{chunk}/{name}", one) for name, one in inner.orders)),
            documents=(*self.documents, *documents),
        )

    def in_folder(self, folder: str) -> Leftovers:
        """Return this as if the common folder of all members had another name."""

        def named(name: str) -> str:
            is_inside = name.startswith(self.folder)
            return folder + name.removeprefix(self.folder) if is_inside else name

        return replace(
            self,
            listed=tuple(
                one if one.name is None else replace(one, name=named(one.name))
                for one in self.listed
            ),
            methods=tuple((named(name), method) for name, method in self.methods),
            orders=tuple((word, tuple(map(named, names))) for word, names in self.orders),
            folder=folder,
        )


def leftovers(data: ByteView, options: ReadOptions) -> Leftovers:
    """List what a file holds besides its tensors; nothing for a file that can't be read."""
    known = detected(data)
    if known is None:
        is_json = listed_by(data) is not None and bytes(data[:SET_HEAD]).lstrip()[:1] == b"{"
        return Leftovers(documents=(_index_of_set(data),) if is_json else ())
    try:
        container = known.read().read(data)
        ranges = list(container.ranges())
        taken = sorted(_taken(data, container, ranges))
    except FormatError:
        return Leftovers()
    directory = getattr(container, "directory", None)
    members = directory.members if isinstance(directory, Directory) else ()
    compressed = {(one.start, one.end, one.name): one for one in members if not one.stored}
    as_tensors = frozenset(cast(ZipContainer, container).told_members()) if members else ()
    digests = {start: one for start, *one in getattr(container, "part_digests", tuple)()}
    found: list[Leftover] = []
    left = _MOST_INFLATED
    parts = (place for place in _parts(known, container, ranges) if place[2] not in as_tensors)
    for place in islice(parts, MOST):
        part = None
        member = compressed.get(place)
        if place[0] in digests:
            size, digest = digests[place[0]]
            part = Leftover(place[2], place[0], size, digest)
        elif member is not None and member.size <= left:
            left -= member.size
            part = _inflated(data, member)
        found.append(part or _leftover(data, *place))
    for start, end in _between(taken, len(data)):
        if len(found) >= 2 * MOST:
            found.append(_leftover(data, start, len(data), None))
            break
        if not is_zeros(data[start:end]):
            found.append(_leftover(data, start, end, None))
        elif not _is_padding(container, start, end, len(data)):
            found.append(Leftover(None, start, end - start, b"", is_zeros=True))
    longer = list(_longer(container, ranges))
    for one, start in longer[:MOST]:
        if not is_zeros(data[start : one.end]):
            found.append(_leftover(data, start, one.end, None))
    return Leftovers(
        tuple(found),
        tuple((one.name, one.method) for one in members),
        tuple(_orders(container, ranges)),
        tuple(getattr(container, "homes", ())),
        () if known.documents is None else tuple(known.documents().documents(container, options)),
        tuple((one.label, one.end - end) for one, end in longer),
        getattr(container, "folder", ""),
    )


def _index_of_set(data: ByteView) -> Document:
    return Document("index", bytes(data), data)


def _is_padding(container: Container, start: int, end: int, size: int) -> bool:
    """Whether zeros in a gap are those that the format's writers put there."""
    alignment = getattr(container, "alignment", None)
    if alignment is None:
        return True
    is_short = end - start < alignment and end % alignment == 0
    return is_short and (end < size or getattr(container, "pads_end", False))


def _longer(container: Container, ranges: Sequence[Range]) -> Iterator[tuple[Range, int]]:
    """Yield tensors that have more bytes than items, and where their items end."""
    # In zips, tensors may be views of something larger.
    if getattr(container, "alignment", None) is None:
        return
    for one in ranges:
        size = ITEM_BYTES.get(one.element or "")
        if size is None or one.shape is None or min(one.shape, default=0) < 0:
            continue
        end = one.start + bounded_product(size, one.shape, one.end - one.start)
        if end < one.end:
            yield one, end


def _orders(container: Container, ranges: Sequence[Range]) -> Iterator[tuple[str, tuple[str, ...]]]:
    in_file = sorted(ranges, key=lambda one: one.start)
    yield "file", tuple(one.label if one.name is None else one.name for one in in_file)
    yield from getattr(container, "orders", ())


def _inflated(data: ByteView, member: ZipMember) -> Leftover | None:
    """Return a compressed member by its content; None if that can't be read."""
    try:
        digest = hashed(sha256(), blocks(data, member, member.size)).digest()
    except FormatError:
        return None
    return Leftover(member.name, member.start, member.size, digest)


def _parts(
    known: Format, container: Container, ranges: Sequence[Range]
) -> Iterator[tuple[int, int, str]]:
    """Yield [start, end) and name of each part."""
    for one in ranges:
        # Of tables without a name the role is one.
        is_table = one.row_bytes is not None or one.label in getattr(container, "untold_parts", ())
        name = one.label.lstrip("_") if one.name is None and is_table else one.name
        if one.dtype is None and name is not None:
            yield one.start, one.end, name
    # In some formats names of chunks stand in no range.
    if known.parts is not None:
        for part in known.parts().named_parts(container, ReadOptions()):
            if part.is_untold:
                yield part.offset, part.offset + part.nbytes, part.name


def _taken(
    data: ByteView, container: Container, ranges: Sequence[Range]
) -> Iterator[tuple[int, int]]:
    """Yield what the format accounts for, as [start, end)."""
    directory = getattr(container, "directory", None)
    spans: Iterable[tuple[int, int]] = ((one.start, one.end) for one in ranges)
    # Ranges are what becomes of a file in a text; a container may know better what has a meaning.
    spans = getattr(container, "spans", spans)
    if isinstance(directory, Directory):
        from wtxtgit.containers.zip_write import records  # most formats are no zips

        # The last range goes from the directory to the end of the file, with all that is in it.
        yield from ((start, end) for start, end in spans if end <= directory.start)
        yield from records(data, directory)
    else:
        yield from spans


def _between(taken: list[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    """Yield the gaps between the spans, which are sorted."""
    end = 0
    for start, stop in taken:
        if start > end:
            yield end, start
        end = max(end, stop)
    if size > end:
        yield end, size


def _leftover(data: ByteView, start: int, end: int, name: str | None) -> Leftover:
    content = data[start:end]
    return Leftover(name, start, end - start, hashed(sha256(), pieces(content)).digest())
