"""Tensors to be written, laid out in weight shards.

Tensors' bytes are gone through once to hash them, and again to write them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgpack

from wtxtgit.containers import json_limits
from wtxtgit.containers.aero import index
from wtxtgit.containers.aero.assembly import Payload
from wtxtgit.containers.aero.digests import Span, digest_spans
from wtxtgit.containers.aero.records import (
    MMAP_CRITICAL,
    OPTIONAL,
    PAGES,
    PAGES_SUFFIX,
    PAYLOAD_ALIGNMENT,
    SHARD,
    SHARD_NAME,
)
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.elements import ITEM_BYTES
from wtxtgit.model.reading import TensorSource

DTYPES = {element: number for number, element in index.DTYPES.items()}
"""The dtype number of each element that the format can hold."""
MAX_DIM = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor and where in its shard it goes."""

    source: TensorSource
    offset: int

    @property
    def span(self) -> Span:
        return self.offset, self.offset + self.source.nbytes


@dataclass(frozen=True)
class Shard:
    """A weight shard to be written."""

    number: int
    placed: tuple[Placed, ...]
    page_size: int | None = None

    @property
    def name(self) -> bytes:
        return SHARD_NAME % self.number

    @property
    def size(self) -> int:
        return self.placed[-1].span[1] if self.placed else 0

    @property
    def pages(self) -> list[Span]:
        step = self.page_size
        if step is None:
            return []
        return [(start, min(start + step, self.size)) for start in range(0, self.size, step)]

    def blocks(self) -> Iterator[Buffer]:
        """The shard's bytes; raises FormatError where a tensor gives more or fewer than it says."""
        pos = 0
        for placed in self.placed:
            yield bytes(placed.offset - pos)
            length = 0
            for block in placed.source.blocks():
                view = memoryview(block).cast("B")
                length += len(view)
                yield view
            if length != placed.source.nbytes:
                raise FormatError(
                    f"tensor {quoted(placed.source.name)} gives {length} bytes, "
                    f"not {placed.source.nbytes}",
                    field="data_len",
                )
            pos = placed.offset + length

    @cached_property
    def digests(self) -> dict[Span, bytes]:
        """BLAKE3 of the shard, its pages and its tensors."""
        spans = [(0, self.size), *self.pages, *(placed.span for placed in self.placed)]
        return digest_spans(self.blocks(), spans)

    def entries(self, number: int, *, tensor_hash: bool) -> list[dict[str, object]]:
        """The shard's tensors as the index lists them, in the shard of that number."""
        return [self._entry(placed, number, tensor_hash) for placed in self.placed]

    def _entry(self, placed: Placed, number: int, tensor_hash: bool) -> dict[str, object]:
        source = placed.source
        entry: dict[str, object] = {
            "name": source.name,
            "dtype": DTYPES[source.element],
            "shape": list(source.shape),
            "shard_id": number,
            "data_off": placed.offset,
            "data_len": source.nbytes,
            index.FLAGS_KEY: 0,
        }
        if tensor_hash:
            entry[index.HASH_KEY] = self.digests[placed.span].hex()
        return entry

    def payloads(self) -> Iterator[Payload]:
        size = self.size
        whole = self.digests[0, size]
        yield Payload(SHARD, self.name, MMAP_CRITICAL, size, size, whole, self.blocks)
        if self.page_size is not None:
            raw: bytes = msgpack.packb(
                {
                    "shard_name": self.name.decode(),
                    "page_size": self.page_size,
                    "digests": [self.digests[page] for page in self.pages],
                }
            )
            yield Payload.of(PAGES, self.name + PAGES_SUFFIX, OPTIONAL, raw, stored=raw)


def check_tensors(tensors: Sequence[TensorSource]) -> None:
    """Refuse tensors that the format can't hold; raises FormatError."""
    if len(tensors) > MAX_TENSORS:
        raise FormatError(f"{len(tensors)} tensors are too many", kind="limit", field="tensors")
    taken: set[str] = set()
    for source in tensors:
        json_limits.check_name(source.name, "tensor name", offset=0)
        if source.name in taken:
            raise FormatError(f"tensor name {quoted(source.name)} is taken", field="name")
        taken.add(source.name)
        if source.element not in DTYPES:
            raise FormatError(
                f"AERO has no dtype for {source.element}, which tensor {quoted(source.name)} is",
                field="dtype",
            )
        needed = ITEM_BYTES[source.element]
        for dim in source.shape:
            needed *= dim
        if any(not 0 <= dim <= MAX_DIM for dim in source.shape) or needed != source.nbytes:
            raise FormatError(
                f"tensor {quoted(source.name)} of {source.nbytes} bytes does not fit its shape",
                field="shape",
            )


def plan(
    tensors: Sequence[TensorSource], max_shard: int | None, *, page_size: int | None = None
) -> list[Shard]:
    """Give the tensors places in shards, in their order."""
    shards: list[list[Placed]] = []
    end = 0
    for source in tensors:
        offset = end + -end % PAYLOAD_ALIGNMENT
        if not shards or (max_shard is not None and end and offset + source.nbytes > max_shard):
            shards.append([])
            offset = 0
        shards[-1].append(Placed(source, offset))
        end = offset + source.nbytes
    return [Shard(number, tuple(placed), page_size) for number, placed in enumerate(shards)]
