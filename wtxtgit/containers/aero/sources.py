"""Files that tensors are taken from when one of them is written again."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property, partial

from wtxtgit.containers.aero.description import TensorReader
from wtxtgit.containers.aero.index import HASH_KEY, IndexEntry
from wtxtgit.containers.aero.new_shards import Held
from wtxtgit.containers.aero.read import Aero, index_content
from wtxtgit.containers.aero.records import INDEX, Chunk
from wtxtgit.containers.aero.spelling import Index, fields
from wtxtgit.containers.decoded import DecodedParts
from wtxtgit.model.entries import Content
from wtxtgit.model.reading import ReadOptions, Tensor

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
