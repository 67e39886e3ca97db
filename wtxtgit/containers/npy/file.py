"""npy files: their single array, what numpy does not write, and writing them as numpy does.

Spec: `docs/spec/npy.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wtxtgit.containers import npy_check, npy_header, ranges, replacing
from wtxtgit.containers.cursor import ListingBudget
from wtxtgit.containers.format import Container
from wtxtgit.containers.npy_header import NpyHeader
from wtxtgit.containers.ranges import Stored
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import Description, ReadOptions, TensorSource

HEADER_ROLE = "_header"
TENSOR = "data"
"""The name of the array, which has none in the file."""
DTYPES = npy_header.DESCR


@dataclass(frozen=True, slots=True, eq=False)
class Npy(Container):
    """An npy file that was read."""

    data: ByteView
    header: NpyHeader
    stored: Stored

    def ranges(self) -> Iterator[ranges.Range]:
        yield ranges.part(0, self.header.data, HEADER_ROLE)
        yield ranges.tensor(self.stored)

    def is_padding(self, start: int, end: int) -> bool:
        return False


def describe(container: Npy, options: ReadOptions) -> Description:
    """Describe the file."""
    version = ".".join(map(str, container.header.version))
    return Description("npy", (container.stored.listed(container.data),), {"version": version})


def read(data: ByteView, listing: ListingBudget | None = None) -> Npy:
    """Read an npy file; raises FormatError."""
    header = npy_header.read(data, 0, len(data), listing or ListingBudget(len(data)))
    return Npy(data, header, header.stored(TENSOR, len(data)))


def check(
    container: Npy,
    options: ReadOptions,
) -> Findings:
    """Check everything in the file; there are no hashes."""
    findings = Findings()
    data = container.data
    npy_check.check_array(data, container.header, container.stored, len(data), findings)
    return findings


def build_model(
    tensors: Sequence[TensorSource],
    tags: Mapping[str, str],
) -> Iterator[Buffer]:
    """Yield an npy file with the single tensor; its name and `tags` are dropped.

    Raises FormatError before yielding anything.
    """
    if len(tensors) != 1:
        raise FormatError(f"npy holds one array, not {len(tensors)}", field="data")
    return replacing.behind(npy_header.build(tensors[0].element, tensors[0].shape), tensors)
