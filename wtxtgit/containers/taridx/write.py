"""Making an index of tar shards.

Rows are in the order of the shards and their headers, as with the original writer; unlike there, a
shard after an empty one has the right fid. Spec: `docs/spec/taridx.md`, "What we write".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.tar_index import Rows
from wtxtgit.containers.taridx import MAGIC, tar
from wtxtgit.containers.taridx.read import (
    CONTIGUOUS,
    HEADER,
    MAJOR,
    MAX_EXTENSIONS,
    MINOR,
    ROW,
    ROW_LAYOUT,
    SLICE,
    run_starts,
)
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView

# The most shards of an index: as many as fid, a u16, can distinguish.
MAX_SHARDS = 1 << 16
SEPARATOR = "\n"


@dataclass(frozen=True, slots=True, eq=False)
class NewIndex:
    """An index that was made; `sparse` counts members whose stored bytes are not their content."""

    rows: Rows
    n_stems: int
    extensions: tuple[str, ...]
    crash_stems: tuple[str, ...]
    sparse: int = 0

    @property
    def is_contiguous(self) -> bool:
        """Whether all rows of each stem are adjacent."""
        return sum(len(places) for places, _, _ in run_starts(self.rows)) == self.n_stems

    def pieces(self) -> Iterator[Buffer]:
        """Yield the file's bytes in order."""
        extensions = SEPARATOR.join(self.extensions).encode()
        stems = SEPARATOR.join(self.crash_stems).encode()
        yield HEADER.pack(
            MAGIC,
            MAJOR,
            MINOR,
            ROW_LAYOUT.size,
            HEADER.size,
            self.n_stems,
            len(self.rows),
            len(self.extensions),
            len(self.crash_stems),
            HEADER.size + len(extensions),
            HEADER.size + len(extensions) + len(stems),
            CONTIGUOUS if self.is_contiguous else 0,
            b"",
        )
        yield extensions
        yield stems
        for start in range(0, len(self.rows), SLICE):
            yield self.rows[start : start + SLICE].tobytes()


def index(
    shards: Iterable[tuple[str, ByteView]],
    *,
    contiguous: bool = False,
    keyhash: Callable[[str], int] = tar.keyhash,
) -> NewIndex:
    """Index tars, given by names and contents in the order of their fids.

    With `contiguous`, rows that are not contiguous are sorted by keyhash and crashid. `keyhash`
    returns a stem's u64. Raises FormatError with the shard's name in the message, also for members
    that the format's own reader can't load.
    """
    tables = _RowTables(keyhash)
    for fid, (shard, data) in enumerate(shards):
        if fid == MAX_SHARDS:
            raise FormatError(f"an index has at most {MAX_SHARDS} shards", kind="limit")
        try:
            for member in tar.members(data):
                tables.add(fid, member)
        except FormatError as error:
            raise FormatError(
                f"{shard}: {error.message}",
                kind=error.kind,
                offset=error.offset,
                field=error.field,
            ) from error
    done = tables.finish()
    if not contiguous or done.is_contiguous:
        return done
    order = np.lexsort((done.rows["crashid"], done.rows["keyhash"]))
    return NewIndex(done.rows[order], done.n_stems, done.extensions, done.crash_stems, done.sparse)


class _RowTables:
    """Rows as they come, and the tables that they need; about 200 bytes per stem."""

    def __init__(self, keyhash: Callable[[str], int]) -> None:
        self._keyhash = keyhash
        self._packed = bytearray()
        self._extids: dict[str, int] = {}
        self._canonical: dict[int, str] = {}
        self._crashids: dict[str, int] = {}
        self._sparse = 0

    def add(self, fid: int, member: tar.TarMember) -> None:
        what = tar.other_than_file(member)
        if what is not None:
            _refuse(member, f"is {what}, not a file")
        stem, extension = tar.split_name(member.name)
        if extension.split() != [extension]:
            _refuse(member, f"has the extension {quoted(extension)}, which is empty or has spaces")
        key = self._keyhash(stem)
        crashid = 0
        # The first stem with a hash needs no id: the later ones are distinguished by theirs.
        if self._canonical.setdefault(key, stem) != stem:
            if stem.split() != [stem]:
                _refuse(
                    member,
                    "has the same xxh64 as another stem, and a stem that is empty or has spaces",
                )
            crashid = self._number(self._crashids, stem, "stem", member, len(self._crashids) + 1)
        extid = self._number(
            self._extids, extension, "extension", member, len(self._extids), MAX_EXTENSIONS
        )
        self._packed += ROW_LAYOUT.pack(fid, member.offset, member.size, extid, crashid, key)
        self._sparse += member.sparse

    def finish(self) -> NewIndex:
        return NewIndex(
            np.frombuffer(self._packed, ROW),
            len(self._canonical) + len(self._crashids),
            tuple(self._extids),
            tuple(self._crashids),
            self._sparse,
        )

    @staticmethod
    def _number(
        table: dict[str, int],
        name: str,
        what: str,
        member: tar.TarMember,
        following: int,
        most: int = 1 << 32,
    ) -> int:
        """Return the id of a name; a table only holds names without LF."""
        known = table.get(name)
        if known is not None:
            return known
        if following >= most:
            raise FormatError(
                f"over {most} {what}s", kind="limit", offset=member.offset, field="name"
            )
        table[name] = following
        return following


def _refuse(member: tar.TarMember, problem: str) -> NoReturn:
    """Raise FormatError for a member whose row the format's own reader could not load.

    That reader takes all bytes after a header for a file's, and splits tables at any space.
    """
    raise FormatError(
        f"member {quoted(member.name)} {problem}: the format's own reader can't load it",
        offset=member.offset,
        field="name",
    )
