"""TOY1 files: magic, u8 length of a name, u8 rank, the name (UTF-8), u64 dims, float32 values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from wtxtgit.containers.toy import MAGIC

from wtxtgit.containers import ranges
from wtxtgit.containers.cursor import Cursor, check_inside, fail
from wtxtgit.containers.format import Container
from wtxtgit.containers.ranges import Range, Stored
from wtxtgit.io.view import ByteView
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import Description, ReadOptions

ITEM = 4
MAX_RANK = 8


@dataclass(frozen=True, slots=True, eq=False)
class Toy(Container):
    """A TOY1 file that was read."""

    data: ByteView
    tensor: Stored

    def ranges(self) -> Iterator[Range]:
        yield ranges.part(0, self.tensor.start, "_header")
        yield ranges.tensor(self.tensor)


def read(data: ByteView) -> Toy:
    """Read a TOY1 file; raises FormatError."""
    cursor = Cursor(data, len(MAGIC))
    length = cursor.integer(1, "name length")
    rank = cursor.integer(1, "rank")
    if rank > MAX_RANK:
        fail(f"rank is {rank}", offset=cursor.pos - 1, field="rank", kind="limit")
    name = cursor.text(length, "name")
    shape = tuple(cursor.integer(8, "dim") for _ in range(rank))
    start = cursor.pos
    check_inside(start, ITEM * prod(shape), len(data), "tensor")
    return Toy(data, Stored(name, "f32", shape, start, start + ITEM * prod(shape), "f32"))


def describe(container: Toy, options: ReadOptions) -> Description:
    """The one tensor."""
    return Description("toy", (container.tensor.listed(container.data),))


def check(container: Toy, options: ReadOptions) -> Findings:
    """Warn of bytes behind the tensor; there are no hashes."""
    findings = Findings()
    if container.tensor.end < len(container.data):
        message = f"{len(container.data) - container.tensor.end} bytes follow the tensor"
        findings.warn(message, "tensor", container.tensor.end)
    return findings
