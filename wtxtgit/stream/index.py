"""The index of a generation written by several ranks: it lists the parts, and makes it whole.

`gen-000500.index` has the lines of a log (`stream.log`): one for the generation, then one for each
rank, in order. It is derived from the ranks' logs, so every writer writes the same bytes.
`docs/stream.md`, section "The ring's files".
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Self

from wtxtgit.checkpoint.wsum import ENDING as WSUM_ENDING
from wtxtgit.errors import InputError, UsageError
from wtxtgit.model.plain import JsonObject
from wtxtgit.stream import log
from wtxtgit.stream.log import LogLine, entry
from wtxtgit.stream.ranks import PartName, Rank

MAX_SIZE = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class IndexPart(JsonObject):
    """A part and its file, as in the rank's log; root and chain are those of the text."""

    KEYS = "rank file size sha256:hex wsum? sha256_all:hex merkle_this=this:hex"

    rank: int
    file: str
    size: int
    sha256: bytes
    sha256_all: bytes
    this: bytes
    wsum: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        return (self.file,) if self.wsum is None else (self.file, self.wsum)

    def line(self) -> LogLine:
        return entry(
            "part",
            rank=self.rank,
            file=self.file,
            size=self.size,
            sha256=self.sha256.hex(),
            sha256_all=self.sha256_all.hex(),
            this=self.this.hex(),
            wsum=self.wsum,
        )


@dataclass(frozen=True, slots=True)
class GenerationIndex:
    """The parts of a whole generation, one for each rank, in order."""

    gen: int
    parts: tuple[IndexPart, ...]

    @property
    def world(self) -> int:
        return len(self.parts)

    def content(self) -> bytes:
        """Return the file's content, the inverse of `parse`."""
        first = entry("generation", gen=self.gen, world=self.world)
        return b"".join(line.line() for line in (first, *(part.line() for part in self.parts)))

    @classmethod
    def parse(cls, content: bytes, name: str) -> Self:
        """Parse an index; messages call it `name`. Raises InputError."""
        lines = list(log.entries(content[:MAX_SIZE]))
        with contextlib.suppress(KeyError, ValueError, UsageError):
            first, *others = lines
            index = cls(int(first.fields["gen"]), tuple(_part(line.fields) for line in others))
            _check(index)
            if index.content() == content:
                return index
        raise InputError(f"{name}: not the index of a generation")


def _part(fields: dict[str, str]) -> IndexPart:
    return IndexPart(
        int(fields["rank"]),
        fields["file"],
        int(fields["size"]),
        bytes.fromhex(fields["sha256"]),
        bytes.fromhex(fields["sha256_all"]),
        bytes.fromhex(fields["this"]),
        fields.get("wsum"),
    )


def _check(index: GenerationIndex) -> None:
    """Raise ValueError unless each part belongs to its rank and to this generation."""
    if index.world < 2:
        raise ValueError(index.world)
    for rank, part in zip(Rank(0, index.world).all(), index.parts, strict=True):
        name = PartName.parse(part.file)
        if name is None or (name.gen, name.rank) != (index.gen, rank) or part.rank != rank.number:
            raise ValueError(part.file)
        if part.size < 0 or {*map(len, (part.sha256, part.sha256_all, part.this))} != {32}:
            raise ValueError(part.size)
        if part.wsum not in (None, part.file + WSUM_ENDING):
            raise ValueError(part.wsum)
