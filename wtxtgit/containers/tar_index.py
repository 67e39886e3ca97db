"""What a format offers that indexes the members of tars: `Format.tar_index`.

An index does not name its tars: which is meant by a number follows from the
names in a folder, which the format gives an order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from wtxtgit.io.progress import Progress
from wtxtgit.io.view import Buffer, ByteView
from wtxtgit.model.findings import Findings

SHARD_ENDING = ".tar"
Rows = npt.NDArray[np.void]
"""Shape (rows,), with the unsigned fields fid, offset, size, extid, crashid and keyhash."""
Places = npt.NDArray[np.intp]
"""Numbers of rows, in order."""


@dataclass(frozen=True, slots=True, eq=False)
class Tar:
    """A shard of an index and its name; shards are given in the order of `shard_order`."""

    name: str
    data: ByteView


@dataclass(frozen=True, slots=True, eq=False)
class FoundMember:
    """A member that a row leads to: the name in its header, its bytes, its shard's name.

    `by_place` is False where the fid is that shard's as an older writer counts.
    """

    name: str
    data: ByteView
    shard: str
    by_place: bool


class TarIndex(Protocol):
    """An index that was read."""

    @property
    def version(self) -> str:
        """The version that its header has."""

    @property
    def is_contiguous(self) -> bool:
        """Whether its header says that rows of a stem stand together."""

    @property
    def n_stems(self) -> int:
        """How many stems its header counts."""

    def rows(self) -> Rows:
        """Its rows, as a view of the file."""

    def extensions(self) -> list[str]:
        """The extensions in the order of their ids; raises FormatError for too many."""

    def crash_stems(self) -> list[str]:
        """Stems that share a hash, the first has id 1; raises FormatError for too many."""


class NewTarIndex(Protocol):
    """An index that was made; `sparse` counts members whose bytes are not their content."""

    @property
    def sparse(self) -> int: ...

    def pieces(self) -> Iterator[Buffer]:
        """The file's bytes in order."""


class TarIndexing(Protocol):
    """Making an index, finding members in one, holding one against its tars."""

    def index(
        self, shards: Iterable[tuple[str, ByteView]], *, contiguous: bool = False
    ) -> NewTarIndex:
        """Index tars, by names and contents; raises FormatError with the shard's name."""

    def read(self, data: ByteView) -> Any:
        """Read an index, a TarIndex; raises FormatError."""

    def find(self, index: Any, name: str) -> Places:
        """The rows that may be the member STEM.EXT; raises FormatError."""

    def find_in_shards(
        self, index: Any, places: Places, name: str, shards: Sequence[Tar]
    ) -> Iterator[FoundMember]:
        """Those of the rows whose header is the member's; raises nothing."""

    def check_shards(
        self,
        index: Any,
        shards: Sequence[Tar],
        progress: Progress | None = None,
    ) -> Findings:
        """Check each row against its shard; raises nothing."""

    def decoded(self, raw: bytes) -> str:
        """A member's name as an index has it."""

    def shard_order(self, name: str) -> tuple[str, str]:
        """What shards are sorted by."""

    def shards_of(self, names: Iterable[str], fold: str) -> list[str]:
        """Of the names in a folder those of an index's shards, in order."""

    def is_shard_of(self, name: str, fold: str) -> bool:
        """Whether a file is called as a shard of the index `fold` is."""
