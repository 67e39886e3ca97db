"""What a file holds besides its tensors and its own structure: named parts, and other bytes.

A part is what the format gives a name: a member of a zip, a chunk of a FOLD file. Other bytes
belong to no part, tensor or record of the format: they are between these, before the first or after
the last one. Such a gap is padding, and not listed, if it is nothing but zeros up to the next
multiple of the format's alignment; in zips, any zeros are. The order in which all of this stands in
the file is listed, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING

from wtxtgit.containers.format import SET_HEAD, Container, Format
from wtxtgit.containers.registry import detected, listed_by
from wtxtgit.containers.zip_read import ZipMember, blocks
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView, hashed, is_zeros, pieces
from wtxtgit.model.array import bounded_product
from wtxtgit.model.tensor import ITEM_BYTES, Document, ReadOptions

if TYPE_CHECKING:
    from wtxtgit.containers.intervals import Span
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
    `shards` say, by name, in which shard of the file a tensor is. The values of `documents` are
    compared elsewhere. `extents` are, by name, how many bytes a tensor has beyond its items.
    All members of torch's zips are in one `folder`, with which their names start.
    """

    listed: tuple[Leftover, ...] = ()
    methods: tuple[tuple[str, int], ...] = ()
    orders: tuple[tuple[str, tuple[str, ...]], ...] = ()
    shards: tuple[tuple[str, int], ...] = ()
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
        used = sorted(_used(data, container))
    except FormatError:
        return Leftovers()
    directory = container.zip_directory()
    oversized = [] if directory else list(_oversized(ranges))
    parts = _listed_parts(data, known, container, ranges)
    unused = _unused(data, container, used, 2 * MOST - len(parts))
    return Leftovers(
        (*parts, *unused, *_nonzero_ends(data, oversized)),
        tuple((one.name, one.method) for one in directory.members) if directory else (),
        tuple(_orders(container, ranges)),
        tuple(container.tensor_shards()),
        () if known.documents is None else tuple(known.documents().documents(container, options)),
        tuple((one.label, one.end - end) for one, end in oversized),
        container.member_folder(),
    )


def _index_of_set(data: ByteView) -> Document:
    return Document("index", bytes(data), data)


def _listed_parts(
    data: ByteView, known: Format, container: Container, ranges: Sequence[Range]
) -> list[Leftover]:
    """Return the parts that are not compared as tensors, at most MOST."""
    directory = container.zip_directory()
    members = directory.members if directory else ()
    compressed = {(one.start, one.end, one.name): one for one in members if not one.stored}
    as_tensors = frozenset(container.tensor_members())
    digests = {start: (size, digest) for start, size, digest in container.part_digests()}
    listed: list[Leftover] = []
    left = _MOST_INFLATED
    parts = (part for part in _parts(known, container, ranges) if part[2] not in as_tensors)
    for part in islice(parts, MOST):
        leftover = None
        start, _, name = part
        member = compressed.get(part)
        if start in digests:
            leftover = Leftover(name, start, *digests[start])
        elif member is not None and member.size <= left:
            left -= member.size
            leftover = _inflated(data, member)
        listed.append(leftover or _leftover(data, *part))
    return listed


def _unused(
    data: ByteView, container: Container, used: Sequence[Span], most: int
) -> list[Leftover]:
    """Return the gaps between the used spans, except for padding: after `most`, all the rest."""
    listed: list[Leftover] = []
    for start, end in _between(used, len(data)):
        if len(listed) >= most:
            listed.append(_leftover(data, start, len(data), None))
            break
        if not is_zeros(data[start:end]):
            listed.append(_leftover(data, start, end, None))
        elif not container.is_padding(start, end):
            listed.append(Leftover(None, start, end - start, b"", is_zeros=True))
    return listed


def _oversized(ranges: Sequence[Range]) -> Iterator[tuple[Range, int]]:
    """Yield tensors that have more bytes than items, and where their items end.

    Not for zips, where tensors may be views of something larger.
    """
    for one in ranges:
        size = ITEM_BYTES.get(one.element or "")
        if size is None or one.shape is None or min(one.shape, default=0) < 0:
            continue
        end = one.start + bounded_product(size, one.shape, one.end - one.start)
        if end < one.end:
            yield one, end


def _nonzero_ends(data: ByteView, oversized: Iterable[tuple[Range, int]]) -> Iterator[Leftover]:
    """Yield the bytes of tensors beyond their items that are not all zeros."""
    for one, end in islice(oversized, MOST):
        if not is_zeros(data[end : one.end]):
            yield _leftover(data, end, one.end, None)


def _orders(container: Container, ranges: Sequence[Range]) -> Iterator[tuple[str, tuple[str, ...]]]:
    in_file = sorted(ranges, key=lambda one: one.start)
    yield "file", tuple(one.label if one.name is None else one.name for one in in_file)
    yield from container.part_orders()


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
    unlisted = container.unlisted_parts()
    for one in ranges:
        # Of tables without a name the role is one.
        is_table = one.row_bytes is not None or one.label in unlisted
        name = one.label.lstrip("_") if one.name is None and is_table else one.name
        if one.dtype is None and name is not None:
            yield one.start, one.end, name
    # In some formats names of chunks stand in no range.
    if known.parts is not None:
        for part in known.parts().named_parts(container, ReadOptions()):
            if part.is_untold:
                yield part.offset, part.offset + part.nbytes, part.name


def _used(data: ByteView, container: Container) -> Iterator[Span]:
    """Yield what the format accounts for."""
    directory = container.zip_directory()
    if directory is None:
        yield from container.used_spans()
        return
    from wtxtgit.containers.zip_write import records  # most formats are no zips

    # The last range goes from the directory to the end of the file, with all that is in it.
    yield from (span for span in container.used_spans() if span[1] <= directory.start)
    yield from records(data, directory)


def _between(used: Sequence[Span], size: int) -> Iterator[Span]:
    """Yield the gaps between the spans, which are sorted."""
    end = 0
    for start, stop in used:
        if start > end:
            yield end, start
        end = max(end, stop)
    if size > end:
        yield end, size


def _leftover(data: ByteView, start: int, end: int, name: str | None) -> Leftover:
    content = data[start:end]
    return Leftover(name, start, end - start, hashed(sha256(), pieces(content)).digest())
