"""npy files: one array of numpy's. Spec: `docs/spec/npy.md`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wtxtgit.containers import npy_header, ranges
from wtxtgit.containers.npy_header import Header
from wtxtgit.containers.ranges import Stored
from wtxtgit.io.view import ByteView
from wtxtgit.model.tensor import Description, ReadOptions

HEADER_ROLE = "_header"
TENSOR = "data"
"""The name of the array, which has none in the file."""


@dataclass(frozen=True, slots=True, eq=False)
class Npy:
    """An npy file that was read."""

    data: ByteView
    header: Header
    stored: Stored

    def ranges(self) -> Iterator[ranges.Range]:
        yield ranges.part(0, self.header.data, HEADER_ROLE)
        yield ranges.tensor(self.stored)


def describe(container: Npy, options: ReadOptions) -> Description:
    """What the file says of itself."""
    version = ".".join(map(str, container.header.version))
    return Description("npy", (container.stored.listed(container.data),), {"version": version})


def read(data: ByteView) -> Npy:
    """Read an npy file; raises FormatError."""
    header = npy_header.read(data, 0, len(data))
    return Npy(data, header, header.stored(TENSOR, len(data)))
