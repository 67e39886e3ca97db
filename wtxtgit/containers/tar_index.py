"""What a format offers that indexes the members of tars: `Format.tar_index`.

An index does not name its tars: which one a number refers to follows from the order that the format
gives to the names in a folder.
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
    """A shard of an index and its name; shards are in the order of `shard_order`."""

    name: str
    data: ByteView


@dataclass(frozen=True, slots=True, eq=False)
class FoundMember:
    """A member to which a row leads: the name in its header, its bytes, its shard's name.

    `by_place` is False if the fid only fits the shard as an older writer counts.
    """

    name: str
    data: ByteView
    shard: str
    by_place: bool


class TarIndex(Protocol):
    """An index that was read."""

    @property
    def version(self) -> str:
        """The version in its header."""

    @property
    def is_contiguous(self) -> bool:
        """Whether its header says that the rows of a stem are adjacent."""

    @property
    def n_stems(self) -> int:
        """The number of stems according to its header."""

    def rows(self) -> Rows:
        """Its rows, as a view of the file."""

    def extensions(self) -> list[str]:
        """Return the extensions in the order of their ids; raises FormatError for too many."""

    def crash_stems(self) -> list[str]:
        """Return stems that share a hash, the first with id 1; raises FormatError for too many."""


class NewTarIndex(Protocol):
    """An index that was made; `sparse` counts members whose stored bytes are not their content."""

    @property
    def sparse(self) -> int: ...

    def pieces(self) -> Iterator[Buffer]:
        """Yield the file's bytes in order."""


class TarIndexing(Protocol):
    """Makes an index, finds members in one, and compares one with its tars."""

    def index(
        self, shards: Iterable[tuple[str, ByteView]], *, contiguous: bool = False
    ) -> NewTarIndex:
        """Index tars, by names and contents; raises FormatError with the shard's name."""

    def read(self, data: ByteView) -> Any:
        """Read an index, a TarIndex; raises FormatError."""

    def find(self, index: Any, name: str) -> Places:
        """Return the rows that may be the member STEM.EXT; raises FormatError."""

    def find_in_shards(
        self, index: Any, places: Places, name: str, shards: Sequence[Tar]
    ) -> Iterator[FoundMember]:
        """Yield those of the rows whose header is the member's; raises nothing."""

    def check_shards(
        self,
        index: Any,
        shards: Sequence[Tar],
        progress: Progress | None = None,
    ) -> Findings:
        """Check each row against its shard; raises nothing."""

    def decoded(self, raw: bytes) -> str:
        """Return a member's name as an index has it."""

    def shard_order(self, name: str) -> tuple[str, str]:
        """Return the key by which shards are sorted."""

    def shards_of(self, names: Iterable[str], fold: str) -> list[str]:
        """Select from the names in a folder an index's shards, in order."""

    def is_shard_of(self, name: str, fold: str) -> bool:
        """Whether a file has the name of a shard of the index `fold`."""
