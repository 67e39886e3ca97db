"""Weight shards of a file that is written again, and the files that tensors are taken from.

A shard is made of regions: bytes of a shard that was read, with new ones in
the places of some tensors. One region of all of it keeps every offset; where
tensors come or go there is one for each tensor, or for tensors that share
bytes and go on sharing them.
Spec: `docs/spec/aero.md`, "Resealing".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain

from wtxtgit.containers.aero.content import BLOCK, Allowance, Span, content, digest_spans, hasher
from wtxtgit.containers.aero.describe import TensorReader
from wtxtgit.containers.aero.msgpack_edit import Index, fields
from wtxtgit.containers.aero.read import (
    HASH_KEY,
    INDEX,
    PAYLOAD_ALIGNMENT,
    Aero,
    Chunk,
    IndexEntry,
    index_content,
)
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.decoded import DecodedParts
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.model.tensor import Content, ReadOptions, Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A shard of a file that was read."""

    aero: Aero
    chunk: Chunk
    decoded: DecodedParts
    most: int

    def blocks(self, start: int, end: int) -> Iterator[Buffer]:
        """Bytes [start, end) of its content; raises FormatError where they can't be decoded."""
        if start >= end:
            return
        whole = self._content()
        yield from pieces(whole[start:end], BLOCK)

    def _content(self) -> ByteView:
        if not self.chunk.is_compressed:
            return self.aero.stored(self.chunk)
        decode = partial(content, self.aero, self.chunk, self.most)
        return self.decoded.open((self.aero, self.chunk), self.chunk.ulen, decode)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A tensor in a shard that was read, and its new bytes where it has any.

    `place` is its number among all that is written.
    """

    place: int
    entry: IndexEntry
    held: Held
    content: Content | None

    @property
    def span(self) -> Span:
        return self.entry.data_off, self.entry.data_end

    @property
    def is_given(self) -> bool:
        """Whether it has bytes, and new ones."""
        return self.content is not None and self.entry.data_len > 0

    def blocks(self) -> Iterator[Buffer]:
        """Its bytes; raises FormatError where there are more or fewer than it says."""
        if self.content is None:
            yield from self.held.blocks(*self.span)
            return
        length = 0
        for block in self.content.blocks():
            view = memoryview(block).cast("B")
            length += len(view)
            # What is too much must not get into the file.
            if length > self.entry.data_len:
                break
            yield view
        if length != self.entry.data_len:
            raise FormatError(
                f"tensor {quoted(self.entry.name)} is given {length} bytes, "
                f"not {self.entry.data_len}",
                field="data_len",
            )


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Bytes [start, end) of a shard that was read; `parts`, by offset, are those given anew."""

    held: Held
    start: int
    end: int
    parts: tuple[Part, ...]

    def blocks(self) -> Iterator[Buffer]:
        pos = self.start
        for part in self.parts:
            start, end = part.span
            if end > pos:
                yield from self.held.blocks(pos, start)
                yield from _without(part.blocks(), max(pos - start, 0))
                pos = end
        yield from self.held.blocks(pos, self.end)


@dataclass(frozen=True)
class NewShard:
    """A shard to be written: its regions and where they go, and tensors that share bytes.

    `offsets` are where tensors stand, by their place among all.
    """

    regions: tuple[tuple[int, Region], ...]
    size: int
    offsets: dict[int, int]
    sharing: tuple[Part, ...]
    page_size: int | None

    @property
    def pages(self) -> list[Span]:
        step = self.page_size
        if step is None:
            return []
        return [(start, min(start + step, self.size)) for start in range(0, self.size, step)]

    @property
    def changed(self) -> Iterator[Part]:
        """Tensors that are given anew."""
        return chain.from_iterable(region.parts for _, region in self.regions)

    def blocks(self) -> Iterator[Buffer]:
        pos = 0
        for offset, region in self.regions:
            yield bytes(offset - pos)
            yield from region.blocks()
            pos = offset + region.end - region.start
        yield bytes(self.size - pos)

    def span(self, part: Part) -> Span:
        """Where a tensor stands in the shard."""
        start = self.offsets[part.place]
        return start, start + part.entry.data_len

    @cached_property
    def digests(self) -> dict[Span, bytes]:
        """BLAKE3 of the shard, its pages, and tensors that are given anew or share bytes."""
        return digest_spans(self.blocks(), self._spans())

    def check(self, allowance: Allowance) -> None:
        """Refuse tensors that share bytes and are to have different ones; raises FormatError.

        Of kind "limit" where they share them so often that hashing takes too long.
        """
        allowance.hash(sum(end - start for start, end in self._spans()), 0)
        for part in self.sharing:
            allowance.hash(part.entry.data_len, 0)
            if _digest(part) != self.digests[self.span(part)]:
                raise FormatError(
                    f"tensor {quoted(part.entry.name)} shares bytes with another one, "
                    "and they are to be different",
                    field="entries",
                )

    def _spans(self) -> set[Span]:
        parts = {self.span(part) for part in chain(self.changed, self.sharing)}
        return {(0, self.size), *self.pages, *parts}


def as_it_was(held: Held, parts: Sequence[Part], page_size: int | None) -> NewShard:
    """A shard with the same tensors as before, each in its place."""
    offsets = {part.place: part.entry.data_off for part in parts}
    size = held.chunk.ulen
    whole = Region(held, 0, size, _given(parts))
    sharing = [part for group in _groups(parts) for part in _sharing(group)]
    return NewShard(((0, whole),), size, offsets, tuple(sharing), page_size)


def laid_out(parts: Sequence[Part], page_size: int | None) -> NewShard:
    """A shard of these tensors, aligned, in their order.

    Those that shared bytes come with the first of them, as far apart as they were.
    """
    by_shard: dict[tuple[int, Chunk], list[Part]] = {}
    for part in parts:
        by_shard.setdefault((id(part.held.aero), part.held.chunk), []).append(part)
    groups = [group for held in by_shard.values() for group in _groups(held)]
    groups += [[part] for part in parts if not part.entry.data_len]
    groups.sort(key=lambda group: min(part.place for part in group))
    regions: list[tuple[int, Region]] = []
    offsets: dict[int, int] = {}
    sharing: list[Part] = []
    end = 0
    for group in groups:
        offset = end + -end % PAYLOAD_ALIGNMENT
        start = group[0].entry.data_off
        offsets.update((part.place, offset + part.entry.data_off - start) for part in group)
        sharing += _sharing(group)
        end = max(part.entry.data_end for part in group) - start + offset
        if end > offset:
            stop = start + end - offset
            regions.append((offset, Region(group[0].held, start, stop, _given(group))))
    return NewShard(tuple(regions), end, offsets, tuple(sharing), page_size)


def _given(parts: Sequence[Part]) -> tuple[Part, ...]:
    return tuple(sorted(filter(lambda part: part.is_given, parts), key=lambda part: part.span))


def _groups(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Tensors of one shard that have bytes, by offset, those that share bytes together."""
    group: list[Part] = []
    reached = 0
    for part in sorted(parts, key=lambda part: part.span):
        start, end = part.span
        if start == end:
            continue
        if group and start >= reached:
            yield group
            group = []
        group.append(part)
        reached = max(reached, end)
    if group:
        yield group


def _sharing(group: Sequence[Part]) -> Sequence[Part]:
    """The tensors of a group whose bytes are to be compared."""
    return group if len(group) > 1 and _given(group) else ()


def _without(blocks: Iterator[Buffer], count: int) -> Iterator[Buffer]:
    """The blocks without their first `count` bytes."""
    for block in blocks:
        left = max(count - len(block), 0)
        if count < len(block):
            yield memoryview(block)[count:]
        count = left


def _digest(part: Part) -> bytes:
    one = hasher(part.entry.data_len)
    for block in part.blocks():
        one.update(block)
    return bytes(one.digest())


NAMED = frozenset({"name", "shape"})
PLACED = NAMED | {"shard_id", "data_off", "data_len", HASH_KEY}
"""Keys of the index that are no part of a tensor's form."""


class Source:
    """A file that was read, its tensors by their numbers in the index."""

    def __init__(self, aero: Aero, options: ReadOptions) -> None:
        self.aero = aero
        self._most = options.max_chunk
        self._decoded = DecodedParts(options).of_file(len(aero.data))
        self._reader = TensorReader(aero, options, self._decoded)

    @property
    def order(self) -> str:
        """The order of all shapes."""
        return self._reader.order

    @cached_property
    def index(self) -> Index | None:
        """The index's own bytes; None where the file has none. Raises FormatError (limit)."""
        chunk = self.aero.first(INDEX)
        return None if chunk is None else Index.of(index_content(self.aero.data, chunk))

    def map(self, number: int) -> bytes:
        """The tensor's map in the index; raises FormatError as `index` does."""
        return b"" if self.index is None else self.index.map(number)

    def tensor(self, number: int) -> Tensor:
        entry = self.aero.entries[number]
        return self._reader.tensor(entry, entry.shard_id)

    def form(self, number: int, tensor: Tensor) -> Hashable:
        """What the index says of a tensor beside its place, in its own spelling.

        Of a tensor that is absent its place and hash are all there is of its
        bytes, so they are part of it. Raises FormatError as `index` does.
        """
        raw = self.map(number)
        left = PLACED if tensor.absent is None else NAMED
        told = (raw[one.start : one.end] for one in fields(raw) if one.key not in left)
        return self.order, tuple(sorted(told))

    def held(self, number: int) -> Held | None:
        """The shard that has the tensor; None where it is in another file."""
        chunk = self.aero.shard(self.aero.entries[number].shard_id)
        return None if chunk is None else self.shard(chunk)

    def shard(self, chunk: Chunk) -> Held:
        return Held(self.aero, chunk, self._decoded, self._most)

    def content(self, number: int) -> Content | None:
        """The bytes of a tensor; None where it is in another file."""
        held, entry = self.held(number), self.aero.entries[number]
        if held is None:
            return None
        return Content(entry.data_len, partial(held.blocks, entry.data_off, entry.data_end))


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A tensor that is written: `number` of `source`, with new bytes where it has `content`."""

    source: Source
    number: int
    content: Content | None

    @property
    def entry(self) -> IndexEntry:
        return self.source.aero.entries[self.number]
