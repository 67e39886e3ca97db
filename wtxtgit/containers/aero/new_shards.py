"""Weight shards of a file being rewritten, and the files from which tensors are taken.

A shard consists of regions: bytes of a shard that was read, with new bytes in the places of some
tensors. If one region covers the whole shard, every offset stays. If tensors are added or removed,
there is a region for each tensor, or for each group of tensors that share bytes, which continue to
share them. Spec: `docs/spec/aero.md`, "Resealing".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain

from wtxtgit.containers.aero.chunks import Segment, ShardContent
from wtxtgit.containers.aero.content import BLOCK, Allowance
from wtxtgit.containers.aero.describe import TensorReader
from wtxtgit.containers.aero.hashes import parse_pages
from wtxtgit.containers.aero.msgpack_edit import TensorMaps, fields
from wtxtgit.containers.aero.read import (
    HASH_KEY,
    INDEX,
    PAGES,
    PAYLOAD_ALIGNMENT,
    Aero,
    AeroChunk,
    IndexEntry,
    index_content,
)
from wtxtgit.containers.budget import DecodedParts
from wtxtgit.containers.cursor import fail, quoted
from wtxtgit.containers.intervals import Span, aligned, groups
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, exactly, hashed, pieces
from wtxtgit.io.workers import blake3_hasher
from wtxtgit.model.tensor import NewContent, ReadOptions, Tensor

NAMED = frozenset({"name", "shape"})
PLACED = NAMED | {"shard_id", "data_off", "data_len", HASH_KEY}
"""Keys of the index that are not part of a tensor's form."""


class Source:
    """A file that was read; its tensors are known by their numbers in the index."""

    def __init__(self, aero: Aero, options: ReadOptions) -> None:
        self.aero = aero
        self._reader = TensorReader(aero, options, DecodedParts(options).of_file(len(aero.data)))

    @property
    def order(self) -> str:
        """The order of dimensions in all shapes."""
        return self._reader.order

    @cached_property
    def index(self) -> TensorMaps | None:
        """The index's own bytes; None if the file has none. Raises FormatError (limit)."""
        chunk = self.aero.first(INDEX)
        return None if chunk is None else TensorMaps.of(index_content(self.aero.data, chunk))

    @cached_property
    def pages(self) -> dict[int, list[tuple[AeroChunk, int]]]:
        """PHSH chunks and their page sizes, by the place of the shard that they are about.

        Raises FormatError if any is compressed: no check examines those.
        """
        pages: dict[int, list[tuple[AeroChunk, int]]] = {}
        for chunk in self.aero.chunks:
            if chunk.fourcc == PAGES:
                if chunk.is_compressed:
                    fail("page hashes are compressed", offset=chunk.offset, field="chunk_flags")
                parsed = parse_pages(self.aero, chunk)
                shard = self.aero.shards.get(parsed.shard_name.encode())
                if shard is not None:
                    pages.setdefault(shard.place, []).append((chunk, parsed.page_size))
        return pages

    def map(self, number: int) -> bytes:
        """Return the tensor's map in the index; raises FormatError as `index` does."""
        return b"" if self.index is None else self.index.map(number)

    def tensor(self, number: int) -> Tensor:
        entry = self.aero.entries[number]
        return self._reader.tensor(entry, entry.shard_id)

    def form(self, number: int, tensor: Tensor) -> Hashable:
        """Return what the index says of a tensor besides its place, in its own spelling.

        For an absent tensor, place and hash are all that is known of its bytes, so they are
        included. Raises FormatError as `index` does.
        """
        raw = self.map(number)
        # The form decides whether one tensor can replace another in a merge.
        left = PLACED if tensor.absent is None else NAMED
        further = (raw[field.start : field.end] for field in fields(raw) if field.key not in left)
        return self.order, tuple(sorted(further))

    def blocks(self, shard: AeroChunk | None, start: int, end: int) -> Iterator[Buffer]:
        """Yield bytes [start, end) of a shard's content; raises FormatError if decoding fails."""
        if shard is not None and start < end:
            yield from pieces(self._reader.content(shard)[start:end], BLOCK)

    def content(self, number: int) -> NewContent | None:
        """Return the bytes of a tensor; None if it is in another file."""
        entry = self.aero.entries[number]
        shard = self.aero.shard(entry.shard_id)
        if shard is None:
            return None
        return NewContent(entry.data_len, partial(self.blocks, shard, *entry.span))


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A tensor to be written: `number` of `source`, with new bytes if it has `content`.

    `place` is its number among all that are written.
    """

    place: int
    source: Source
    number: int
    content: NewContent | None = None

    @property
    def entry(self) -> IndexEntry:
        return self.source.aero.entries[self.number]

    @property
    def shard(self) -> AeroChunk | None:
        """The shard of its file that has it; None if it is in another file."""
        return self.source.aero.shard(self.entry.shard_id)

    @property
    def is_replaced(self) -> bool:
        """Whether it has bytes, and these are new."""
        return self.content is not None and self.entry.data_len > 0

    def blocks(self) -> Iterator[Buffer]:
        """Yield its bytes; raises FormatError if there are more or fewer than it claims.

        Yields nothing for a tensor in another file.
        """
        content = self.content or self.source.content(self.number)
        if content is None:
            return iter(())
        return exactly(
            content.blocks(), content.nbytes, f"tensor {quoted(self.entry.name)}", "data_len"
        )


def _region(
    source: Source, shard: AeroChunk | None, start: int, end: int, parts: Sequence[Item]
) -> Iterator[Buffer]:
    """Yield bytes [start, end) of a shard that was read, with those of `parts` replaced.

    `parts` are ordered by offset.
    """
    pos = start
    for part in parts:
        if part.entry.data_end > pos:
            yield from source.blocks(shard, pos, part.entry.data_off)
            yield from _without(part.blocks(), max(pos - part.entry.data_off, 0))
            pos = part.entry.data_end
    yield from source.blocks(shard, pos, end)


@dataclass(frozen=True)
class NewShard(ShardContent):
    """A shard that is rewritten.

    `offsets` are the positions of tensors, by their place among all; `sharing` are the tensors that
    share bytes with others, if any of these has new bytes.
    """

    offsets: dict[int, int]
    sharing: tuple[Item, ...]

    def check(self, allowance: Allowance) -> None:
        """Raise FormatError for tensors that share bytes but are to have different ones.

        The kind is "limit" if they share them so often that hashing would take too long.
        """
        allowance.hash(sum(end - start for start, end in self.spans), 0)
        for part in self.sharing:
            allowance.hash(part.entry.data_len, 0)
            digest = bytes(hashed(blake3_hasher(part.entry.data_len), part.blocks()).digest())
            if digest != self.digests[_span(part, self.offsets)]:
                raise FormatError(
                    f"tensor {quoted(part.entry.name)} shares bytes with another tensor, so they "
                    "can't differ",
                    field="entries",
                )


def as_it_was(
    source: Source, shard: AeroChunk, parts: Sequence[Item], page_size: int | None
) -> NewShard:
    """Return a shard with the same tensors as before, each in its place."""
    replaced = _replaced(parts)
    blocks = partial(_region, source, shard, 0, shard.ulen, replaced)
    segments = [(0, shard.ulen, blocks)]
    offsets = {part.place: part.entry.data_off for part in parts}
    return _new_shard(segments, shard.ulen, page_size, offsets, replaced, _groups(parts))


def laid_out(parts: Sequence[Item], page_size: int | None) -> NewShard:
    """Return a shard of these tensors, aligned, in their order.

    Tensors that shared bytes follow the first of them, at the same distances as before.
    """
    by_shard: dict[tuple[int, AeroChunk | None], list[Item]] = {}
    for part in parts:
        by_shard.setdefault((id(part.source), part.shard), []).append(part)
    sharing = [group for inside in by_shard.values() for group in _groups(inside)]
    ordered = [*sharing, *([part] for part in parts if not part.entry.data_len)]
    # Ordered by what is written first, so that the same merge gives the same bytes.
    ordered.sort(key=lambda group: min(part.place for part in group))
    segments: list[Segment] = []
    offsets: dict[int, int] = {}
    end = 0
    for group in ordered:
        first, offset = group[0], aligned(end, PAYLOAD_ALIGNMENT)
        start = first.entry.data_off
        stop = max(part.entry.data_end for part in group)
        offsets.update((part.place, offset + part.entry.data_off - start) for part in group)
        end = offset + stop - start
        if stop > start:
            blocks = partial(_region, first.source, first.shard, start, stop, _replaced(group))
            segments.append((offset, stop - start, blocks))
    return _new_shard(segments, end, page_size, offsets, _replaced(parts), sharing)


def _new_shard(
    segments: Sequence[Segment],
    size: int,
    page_size: int | None,
    offsets: dict[int, int],
    replaced: Sequence[Item],
    grouped: Iterable[list[Item]],
) -> NewShard:
    # Tensors that share bytes are compared if one of them has new bytes.
    shared = [group for group in grouped if len(group) > 1 and _replaced(group)]
    sharing = tuple(chain.from_iterable(shared))
    spans = frozenset(_span(part, offsets) for part in chain(replaced, sharing))
    return NewShard(tuple(segments), size, page_size, spans, offsets, sharing)


def _span(part: Item, offsets: dict[int, int]) -> Span:
    """Return where a tensor is in the shard being written."""
    start = offsets[part.place]
    return start, start + part.entry.data_len


def _replaced(parts: Sequence[Item]) -> list[Item]:
    return sorted((part for part in parts if part.is_replaced), key=lambda part: part.entry.span)


def _groups(parts: Sequence[Item]) -> Iterator[list[Item]]:
    """Yield the tensors of one shard that have bytes, by offset, grouped by shared bytes."""
    with_bytes = (part for part in parts if part.entry.data_len)
    return groups(with_bytes, lambda part: part.entry.span)


def _without(blocks: Iterator[Buffer], count: int) -> Iterator[Buffer]:
    """Yield the blocks without their first `count` bytes."""
    for block in blocks:
        left = max(count - len(block), 0)
        if count < len(block):
            yield memoryview(block)[count:]
        count = left
