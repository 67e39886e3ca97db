"""The packs of one folder: which exist, and where in them a chunk is.

Spec: `docs/spec/store.md`, sections "Folder" and "index". Names of chunks are kept in sorted tables
of bytes, never as an object for each: a store of 8 GiB has 131,000. numpy, whose import takes a
tenth of a checkout of 256 MiB, is only imported to merge or cut tables.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import stat
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import islice, repeat
from operator import eq
from pathlib import Path
from struct import Struct, iter_unpack
from threading import RLock
from typing import TYPE_CHECKING, Any

from wtxtgit.errors import EnvironmentFailure, FormatError
from wtxtgit.io import clock
from wtxtgit.io.files import failures, make_folder, opened_regular, read_view, shown
from wtxtgit.io.spool import Spool, spooled
from wtxtgit.io.temporary import FileInMaking, kept_file, new_file, opened_folder, remove
from wtxtgit.io.view import Buffer, mapped, pieces, same_bytes, write_all
from wtxtgit.store.pack import (
    FILE_NAME,
    NAME_SIZE,
    U4,
    U8,
    ChunkEntry,
    ChunkIndex,
    ChunkPack,
    first_row,
    heads_of,
    numbers_of,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

PACKS = "packs"
INDEX = "index"
_HEAD = Struct("<8sIIQ")
_MAGIC, _VERSION = b"WTXTSIDX", 1
_ROW = NAME_SIZE + 4 + 4
_PACK = NAME_SIZE + 8
_DIGEST = 32
_LEASE = "adding-"
_INDEX_MODE = 0o644
# Packs that the index lacks are read one by one: up to this number of packs, and this fraction of
# all chunks, so that rewriting the index is cheap compared with having written the packs.
_UNTOLD_PACKS = 64
_UNTOLD_PART = 8
# Each keeps a descriptor open. A chain of bases may lead through nine packs.
_KEPT_OPEN = 16
_YOUNG = 24 * 60 * 60
# Names whose rows are cached: those of 2 GiB, in chunks of 64 KiB.
_MOST_KNOWN = 32 * 1024
# Rows that are merged at a time. A table with more is in files.
_MERGED = 32 * 1024
_FEW = 512
"""Of packs with at most so many chunks the rows are sorted together, not merged."""
# If a table has at most this many times as many names as are asked for, all are read at once.
_MANY_OF = 4


class ChunkTable:
    """Chunks of some packs: `names` ascend.

    The n-th is in row `rows[n]` of pack number `packs[n]`.
    """

    def __init__(
        self,
        files: Sequence[tuple[str, int]],
        names: bytes | memoryview,
        packs: memoryview,
        rows: memoryview,
        heads: memoryview | None = None,
    ) -> None:
        self.files = files
        self.names = names
        self.packs = packs
        self.rows = rows
        self.count = len(names) // NAME_SIZE
        self.heads = heads_of(names) if heads is None else heads
        self._known: dict[bytes, int] = {}

    def find(self, name: bytes) -> list[tuple[str, int]]:
        """Return the packs that hold a chunk, and its row in each."""
        return self._from(first_row(self.names, self.heads, name), name)

    def find_all(self, names: Sequence[bytes]) -> list[list[tuple[str, int]]]:
        """Do the same for several chunks at once."""
        rows = self._rows_of(names)
        return [self._from(rows[name], name) for name in names]

    def _rows_of(self, names: Sequence[bytes]) -> Mapping[bytes, int]:
        """Return the first row of each name, `count` for a name that is missing.

        Results are cached for a while, because a checkout asks several times for the same names.
        """
        known = self._known
        unknown = [name for name in names if name not in known]
        if not unknown:
            return known
        if self.count <= min(_MANY_OF * len(unknown), _MOST_KNOWN - len(names)):
            # A checkout mostly wants what one add brought, and so many names are not looked up one
            # by one.
            last = self.count - 1
            ordered = [name for (name,) in iter_unpack(f"{NAME_SIZE}s", self.names)]
            rows_of = dict.fromkeys(names, self.count)
            rows_of.update(zip(reversed(ordered), range(last, -1, -1), strict=True))
            # Assigned only now that it is complete: other threads read it, too.
            self._known = rows_of
            return rows_of
        if len(known) + len(unknown) > _MOST_KNOWN:
            known, unknown = {}, list(names)
            if len(unknown) <= _MOST_KNOWN:
                self._known = known
        own_names, heads = self.names, heads_of(b"".join(unknown))
        rows = map(bisect_left, repeat(self.heads), heads)
        for row, head, name in zip(rows, heads, unknown, strict=True):
            # If several names have the same head the first one may be another.
            if own_names[row * NAME_SIZE : (row + 1) * NAME_SIZE] != name:
                is_near = row < self.count and self.heads[row] == head
                row = first_row(own_names, self.heads, name) if is_near else self.count
                if own_names[row * NAME_SIZE : (row + 1) * NAME_SIZE] != name:
                    row = self.count
            known[name] = row
        return known

    def _from(self, row: int, name: bytes) -> list[tuple[str, int]]:
        copies = []
        while self.names[row * NAME_SIZE : (row + 1) * NAME_SIZE] == name:
            copies.append((self.files[self.packs[row]][0], self.rows[row]))
            row += 1
        return copies

    def holding(self, names: Sequence[bytes]) -> set[str]:
        """Return the packs that hold any of these names."""
        rows = self._rows_of(names)
        if self._has_copies:
            return {pack for name in names for pack, _ in self._from(rows[name], name)}
        first_rows = set(map(rows.__getitem__, names)) - {self.count}
        return {self.files[number][0] for number in set(map(self.packs.__getitem__, first_rows))}

    @cached_property
    def _has_copies(self) -> bool:
        """Whether two packs may hold one chunk."""
        return any(map(eq, self.heads, islice(self.heads, 1, None)))

    def among(self, names: Sequence[bytes]) -> set[bytes]:
        """Return those of the names that are in the table."""
        rows, none = self._rows_of(names), self.count
        return {name for name in names if rows[name] != none}

    def is_same(self, other: ChunkTable) -> bool:
        return (
            [*self.files] == [*other.files]
            and same_bytes(memoryview(self.names), memoryview(other.names))
            and self.packs == other.packs
            and self.rows == other.rows
        )

    def without(self, gone: Collection[str]) -> ChunkTable:
        """Return the table without some packs."""
        import numpy as np

        stays = np.array([name not in gone for name, _ in self.files], bool)
        numbers = np.cumsum(stays, dtype=U4) - 1
        packs = np.asarray(self.packs)
        kept = stays[packs]
        names = np.frombuffer(self.names, f"V{NAME_SIZE}")[kept].view(np.uint8).data
        files = [file for file in self.files if file[0] not in gone]
        packs = numbers[packs[kept]].astype(U4)
        return ChunkTable(files, names, packs.data, np.asarray(self.rows)[kept].data)


class AddedChunks:
    """Chunks of packs that this process has added: merging a table for each would take long."""

    def __init__(self) -> None:
        self._places: dict[bytes, list[tuple[str, int]]] = {}
        self._sizes: dict[str, int] = {}

    @property
    def count(self) -> int:
        return len(self._places)

    def put(self, pack: str, nbytes: int, index: ChunkIndex) -> None:
        self._sizes[pack] = nbytes
        for row in range(index.count):
            self._places.setdefault(index.name(row), []).append((pack, row))

    def table(self) -> ChunkTable:
        """Return the same as a table."""
        files = sorted(self._sizes.items())
        numbers = {pack: number for number, (pack, _) in enumerate(files)}
        places = sorted(
            (name, numbers[pack], row)
            for name, copies in self._places.items()
            for pack, row in copies
        )
        names = b"".join(name for name, _, _ in places)
        packs = array(U4, [number for _, number, _ in places])
        rows = array(U4, [row for _, _, row in places])
        return ChunkTable(files, names, memoryview(packs), memoryview(rows))

    def find(self, name: bytes) -> list[tuple[str, int]]:
        """Return the packs that hold a chunk, and its row in each."""
        return self._places.get(name, [])

    def find_all(self, names: Sequence[bytes]) -> list[list[tuple[str, int]]]:
        """Do the same for several chunks at once."""
        return [*map(self.find, names)]

    def holding(self, names: Sequence[bytes]) -> set[str]:
        """Return the packs that hold any of these names."""
        return {pack for name in names for pack, _ in self.find(name)}

    def among(self, names: Sequence[bytes]) -> set[bytes]:
        """Return those of the names whose chunks are here."""
        return {name for name in names if name in self._places}


_EMPTY = ChunkTable((), b"", memoryview(array(U4)), memoryview(array(U4)))


def table_of(indexes: Iterable[tuple[str, int, ChunkIndex]], folder: Path) -> ChunkTable:
    """Return the table of packs, each given by name, size in bytes and index.

    Of all packs together the indexes may not fit in memory: they are taken one by one. `folder` is
    as for `together`.
    """
    tables: list[ChunkTable] = []
    parts: list[ChunkTable] = []
    # Merging very many tables at once takes long, however short they are.
    few = AddedChunks()
    for name, nbytes, index in indexes:
        if index.count <= _FEW:
            few.put(name, nbytes, index)
        else:
            numbers = memoryview(array(U4, bytes(4 * index.count)))
            rows = memoryview(array(U4, range(index.count)))
            parts.append(ChunkTable([(name, nbytes)], index.names, numbers, rows))
        if few.count + sum(part.count for part in parts) >= _MERGED:
            tables.append(together([*parts, few.table()], folder))
            parts, few = [], AddedChunks()
            # Each is twice as large as the next: a chunk is merged as often as they can double.
            while len(tables) > 1 and tables[-2].count < 2 * tables[-1].count:
                tables[-2:] = [together(tables[-2:], folder)]
    return together([*tables, *parts, few.table()], folder)


def together(parts: Sequence[ChunkTable], folder: Path) -> ChunkTable:
    """Merge tables that have no pack in common, and whose names ascend.

    A store may have millions of chunks: the columns of a large table are in unnamed files in the
    folder, and only some of its rows in memory meanwhile.
    """
    parts = [part for part in parts if part.files]
    if len(parts) == 1:
        return parts[0]
    if not any(part.count for part in parts):
        return _EMPTY
    import numpy as np

    files = sorted(file for part in parts for file in part.files)
    numbers = {file: number for number, file in enumerate(files)}
    sources = [
        (part, np.array([numbers[file] for file in part.files], U4)) for part in parts if part.count
    ]
    place = folder if folder.is_dir() else None
    columns = [Spool(lambda: place, in_memory=_MERGED * size) for size in (NAME_SIZE, 4, 4, 8)]
    try:
        for merged in _merged(sources):
            for column, values in zip(columns, merged, strict=True):
                column.write(values.view(np.uint8).data)
        names, packs, rows, heads = (mapped(column.view()) for column in columns)
    finally:
        for column in columns:
            column.close()
    return ChunkTable(files, names, packs.cast("I"), rows.cast("I"), heads.cast("Q"))


def _ascending(part: ChunkTable) -> ChunkTable:
    """Return a table with its names in order, which it may lack if it was read from a forged file.

    Merging it would never end. A search in it misses chunks, for which the packs are read then.
    """
    import numpy as np

    heads = np.asarray(part.heads)
    if (heads[1:] >= heads[:-1]).all():
        return part
    order = np.argsort(heads, kind="stable")
    names = np.frombuffer(part.names, np.dtype(f"V{NAME_SIZE}"))[order]
    columns = (
        np.ascontiguousarray(np.asarray(column)[order]) for column in (part.packs, part.rows)
    )
    packs, rows = (column.data for column in columns)
    return ChunkTable(part.files, names.tobytes(), packs, rows)


def _merged(
    sources: Sequence[tuple[ChunkTable, npt.NDArray[np.uint32]]],
) -> Iterator[tuple[npt.NDArray[Any], ...]]:
    """Yield names, packs, rows and heads of tables in the order of the names, some at a time.

    Each table comes with the new numbers of its packs.
    """
    import numpy as np

    kind = np.dtype(f"V{NAME_SIZE}")
    left = [(part, numbers, 0) for part, numbers in sources]
    while left:
        # The rows up to a head that comes after not too many of any table.
        step = _MERGED // len(left)
        last = min(part.heads[min(start + step, part.count - 1)] for part, _, start in left)
        runs = [
            (part, numbers, slice(start, bisect_right(part.heads, last, start)))
            for part, numbers, start in left
        ]
        names, packs, rows, heads = map(
            np.concatenate,
            zip(
                *(
                    (
                        np.frombuffer(part.names, kind)[run],
                        numbers[np.asarray(part.packs[run])],
                        np.asarray(part.rows[run]),
                        np.asarray(part.heads[run]),
                    )
                    for part, numbers, run in runs
                ),
                strict=True,
            ),
        )
        order = np.argsort(heads, kind="stable")
        heads = heads[order]
        _settle(order, heads, names, packs)
        yield names[order], packs[order], rows[order], heads
        left = [(part, numbers, run.stop) for part, numbers, run in runs if run.stop < part.count]


def _settle(
    order: npt.NDArray[np.intp],
    heads: npt.NDArray[np.uint64],
    names: npt.NDArray[np.void],
    packs: npt.NDArray[np.uint32],
) -> None:
    """Sort names with equal heads, and equal names by their packs.

    `order` is sorted by the head, which distinguishes nearly all names, in a fourth of their
    memory.
    """
    import numpy as np

    same = heads[1:] == heads[:-1]
    alike = np.flatnonzero(np.append(same, False) | np.append(False, same))
    if alike.size:
        rows = order[alike]
        parts = names[rows].view(">u8").reshape(-1, NAME_SIZE // 8).astype(np.uint64)
        # lexsort takes the last key first.
        order[alike] = rows[np.lexsort((packs[rows], *parts.T[::-1]))]


def format_table(table: ChunkTable) -> Iterator[Buffer]:
    """Yield the content of the file `index`, which for a large store is as large as the table."""
    digest = sha256()
    for piece in (
        _HEAD.pack(_MAGIC, _VERSION, len(table.files), table.count),
        b"".join(bytes.fromhex(name) for name, _ in table.files),
        b"".join(nbytes.to_bytes(8, "little") for _, nbytes in table.files),
        table.names,
        _little(table.packs).cast("B"),
        _little(table.rows).cast("B"),
    ):
        digest.update(piece)
        yield piece
    yield digest.digest()


def parse_table(content: memoryview) -> ChunkTable:
    """Parse the file `index`; raises ValueError if it is invalid."""
    end = len(content) - _DIGEST
    if end < _HEAD.size:
        raise ValueError("too short")
    magic, version, packs, count = _HEAD.unpack_from(content)
    if (magic, version) != (_MAGIC, _VERSION):
        raise ValueError("not an index of this version")
    if _HEAD.size + packs * _PACK + count * _ROW != end:
        raise ValueError("its length is wrong")
    if sha256(content[:end]).digest() != content[end:]:
        raise ValueError("its SHA-256 does not match")
    at = _HEAD.size
    named = [bytes(content[at + n * NAME_SIZE :][:NAME_SIZE]).hex() for n in range(packs)]
    at += packs * NAME_SIZE
    lengths = numbers_of(U8, content[at : at + packs * 8])
    at += packs * 8
    names = content[at : at + count * NAME_SIZE]
    at += count * NAME_SIZE
    numbers = _little(content[at : at + 4 * count])
    rows = _little(content[at + 4 * count : end])
    if count and max(numbers) >= packs:
        raise ValueError("the name of a pack is missing")
    return ChunkTable(list(zip(named, lengths, strict=True)), names, numbers, rows)


def _little(numbers: memoryview) -> memoryview:
    """Convert little-endian numbers to the machine's byte order, or back; copies only if needed."""
    if sys.byteorder == "big" or not numbers:
        return memoryview(numbers_of(U4, numbers))
    return numbers.cast("B").cast("I")


class PackFolder:
    """The packs of a store's folder, for any thread. A missing folder has none.

    With `is_own` the file `index` is rewritten when it is out of date. `shared` are permission bits
    that new packs and folders get beyond the user's umask.
    """

    def __init__(self, folder: Path, *, is_own: bool = True, shared: int = 0) -> None:
        self.folder = folder
        self.packs = folder / PACKS
        self.shared = shared
        self._is_own = is_own
        self._lock = RLock()
        self._tables: tuple[ChunkTable, ...] | None = None
        self._added = AddedChunks()
        self._listed: dict[str, int] = {}
        self._damaged: dict[str, str] = {}
        self._is_proved = False
        self._open: OrderedDict[str, ChunkPack] = OrderedDict()
        self._used: set[str] = set()
        self._until: contextlib.ExitStack | None = None
        self._lease: FileInMaking | None = None
        self._small: dict[str, Sequence[ChunkEntry]] = {}
        self.small_nbytes = 0
        """The size of the small packs that were added through this object."""

    @property
    def damaged(self) -> dict[str, str]:
        """Packs that can't be used, and what is wrong with each."""
        self._all_tables()
        return dict(self._damaged)

    @property
    def names(self) -> dict[str, int]:
        """The packs that exist, and their sizes in bytes."""
        self._all_tables()
        return dict(self._listed)

    def make(self) -> None:
        """Create the folder of the packs if missing; raises OSError."""
        if self.packs.is_dir():
            return
        missing = [path for path in (self.packs, *self.packs.parents) if not path.exists()]
        for path in reversed(missing):
            make_folder(path, self.shared)

    @contextlib.contextmanager
    def adding(self) -> Iterator[None]:
        """Keep chunks from being dropped within the block; a context manager.

        Chunks that are being added may be decoded from them. Packs that were dropped before the
        block are known to be gone, or found to be so when they are used. Any number of processes
        may add at once.
        """
        with contextlib.ExitStack() as closing:
            # On a file system without locks nobody drops chunks: see `dropping`.
            self._lock_packs(closing, fcntl.LOCK_SH)
            self._take_lease()
            # The folder may have very many packs. What was used before is looked at again.
            self._used.clear()
            if not all(pack.path.exists() for pack in self._open.values()):
                self.refresh()
            yield

    @contextlib.contextmanager
    def leased(self) -> Iterator[None]:
        """Have a prune spare what is added or used in the block, however young that may be.

        Until the index or a ref moves nothing names it.
        """
        try:
            with contextlib.ExitStack() as self._until:
                yield
        finally:
            self._until = self._lease = None

    def _take_lease(self) -> None:
        """Take the lease of the block, once there is a folder."""
        with self._lock, contextlib.suppress(OSError):
            if self._until is not None and self._lease is None:
                # Removes what killed processes left.
                self.leased_since()
                folder = self._until.enter_context(opened_folder(self.folder))
                name = f"{_LEASE}{os.urandom(8).hex()}"
                self._lease = self._until.enter_context(kept_file(folder, self.folder, name))
                # Where nothing can be written nothing is added.
                if self._lease is not None:
                    self._until.callback(self._lease.drop)

    def leased_since(self) -> float:
        """Return since when what is added is spared, in seconds since 1970; infinity if nothing is.

        What killed processes left is removed.
        """
        since = math.inf
        for lease in self.folder.glob(f"{_LEASE}*"):
            with contextlib.suppress(OSError):
                if not remove(lease):
                    since = min(since, lease.stat().st_mtime)
        return since

    @contextlib.contextmanager
    def dropping(self) -> Iterator[None]:
        """Prevent that chunks are added meanwhile; waits for those who are adding.

        Raises EnvironmentFailure if the file system has no locks.
        """
        with contextlib.ExitStack() as closing:
            if not self._lock_packs(closing, fcntl.LOCK_EX):
                raise EnvironmentFailure(
                    f"{shown(self.packs)}: can't be locked, so no packs were deleted"
                )
            yield

    def _lock_packs(self, closing: contextlib.ExitStack, how: int) -> bool:
        with failures(self.packs):
            try:
                folder = closing.enter_context(opened_folder(self.packs))
            except (FileNotFoundError, NotADirectoryError):
                return False
            with contextlib.suppress(OSError):
                fcntl.flock(folder, how)
                return True
            return False

    def path(self, pack: str) -> Path:
        return self.packs / f"{pack}.pack"

    def time(self, pack: str) -> float:
        """Return when a pack was written, or one of its chunks was added again, in seconds since
        1970.

        For a pack that is gone this is the present time.
        """
        try:
            return self.path(pack).stat().st_mtime
        except OSError:
            return clock.now()

    def use(self, name: bytes) -> bool:
        """Tell whether a chunk that is to be added is here; its pack then counts as young.

        So garbage that is needed again is not collected, as in git. A pack whose time can't be
        changed, because it belongs to another user, has to be young.
        """
        packs = [pack for table in self._all_tables() for pack, _ in table.find(name)]
        for pack in packs:
            if pack in self._used:
                return True
            try:
                os.utime(self.path(pack))
            except FileNotFoundError:
                if self.refresh():
                    return self.use(name)
                continue
            except OSError:
                if clock.now() - self.time(pack) > _YOUNG:
                    continue
            self._used.add(pack)
            return True
        return False

    def has(self, names: Sequence[bytes]) -> set[bytes]:
        """Return those of the names whose chunks are here."""
        return {name for table in self._all_tables() for name in table.among(names)}

    def holds(self, name: bytes) -> bool:
        return any(table.find(name) for table in self._all_tables())

    def in_others(self, name: bytes, packs: Collection[str]) -> bool:
        """Tell whether a chunk is in a pack other than these."""
        return any(
            pack not in packs for table in self._all_tables() for pack, _ in table.find(name)
        )

    def holding(self, names: Sequence[bytes]) -> set[str]:
        """Return the packs that hold any of these names."""
        return {pack for table in self._all_tables() for pack in table.holding(names)}

    def needed(self, packs: Iterable[str]) -> dict[str, int]:
        """Return packs and those that hold what they are decoded from, and the sizes of all.

        Unusable packs are left out. Raises EnvironmentFailure if a pack can't be read,
        FileNotFoundError if it is gone.
        """
        sizes: dict[str, int] = {}
        todo = {*packs}
        while todo:
            base_packs: set[str] = set()
            for name in todo:
                pack = self.opened(name)
                if pack is not None:
                    sizes[name] = pack.nbytes
                    # One pack at a time: a version may have a base for each of its chunks.
                    base_packs |= self.holding(pack.index.bases)
            todo = base_packs - sizes.keys()
        return sizes

    def copies(self, name: bytes) -> list[tuple[ChunkPack, ChunkEntry]]:
        """Return where a chunk is, cheapest to decode first; unusable packs are left out.

        Raises EnvironmentFailure if a pack can't be read.
        """
        while True:
            copies = []
            places = [place for table in self._all_tables() for place in table.find(name)]
            is_so = len(places) < 2 or len(set(places)) == len(places)
            try:
                for at, row in places if is_so else ():
                    pack = self.opened(at)
                    if pack is not None:
                        is_so = row < pack.index.count and pack.index.name(row) == name
                        if not is_so:
                            break
                        copies.append((pack, pack.index.entry(row)))
            except FileNotFoundError:
                # The pack was replaced: its chunks are in another one.
                if self.refresh():
                    continue
            # If the index is wrong in one place, nothing in it is trusted.
            if not is_so and self.prove():
                continue
            return copies if len(copies) < 2 else sorted(copies, key=lambda copy: copy[1].depth)

    def first_copies(self, names: Sequence[bytes]) -> list[tuple[ChunkPack, ChunkEntry] | None]:
        """Return the first of the `copies` of each chunk, None if there is none.

        Adjacent chunks are mostly in one pack, whose rows are looked up together.
        """
        copies: list[tuple[ChunkPack, ChunkEntry] | None] = [None] * len(names)
        by_pack: dict[str, list[tuple[int, int]]] = {}
        tables = [table.find_all(names) for table in self._all_tables()]
        for number, in_tables in enumerate(zip(*tables, strict=True)):
            places = [place for in_table in in_tables for place in in_table]
            if len(places) == 1:
                by_pack.setdefault(places[0][0], []).append((number, places[0][1]))
        for at, rows in by_pack.items():
            with contextlib.suppress(FileNotFoundError, IndexError):
                pack = self.opened(at)
                if pack is not None:
                    entries = pack.index.entries([row for _, row in rows])
                    for (number, _), entry in zip(rows, entries, strict=True):
                        # The index is not trusted.
                        if entry.name == names[number]:
                            copies[number] = pack, entry
        for number, name in enumerate(names):
            if copies[number] is None:
                copies[number] = next(iter(self.copies(name)), None)
        return copies

    def opened(self, name: str) -> ChunkPack | None:
        """Return a pack by its name; None if it is damaged.

        Raises FileNotFoundError, and EnvironmentFailure if it can't be read.
        """
        with self._lock:
            if name in self._damaged:
                return None
            pack = self._open.pop(name, None)
            if pack is None:
                try:
                    pack = ChunkPack(self.path(name))
                except FormatError as error:
                    self._damaged[name] = error.message
                    return None
                while len(self._open) >= _KEPT_OPEN:
                    self._open.popitem(last=False)
            self._open[name] = pack
            return pack

    def usable(self, names: Iterable[str]) -> Iterator[tuple[str, ChunkPack]]:
        """Yield the packs with these names, in order, except those that are gone or damaged.

        Raises EnvironmentFailure if a pack can't be read.
        """
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                pack = self.opened(name)
                if pack is not None:
                    yield name, pack

    def refresh(self) -> bool:
        """Look for packs that were added or removed; returns whether there are any."""
        with self._lock:
            if self._tables is None:
                self._all_tables()
                return True
            listed = self._list()
            if listed == self._listed:
                return False
            gone = {name for name, size in self._listed.items() if listed.get(name) != size}
            for name in gone:
                self._open.pop(name, None)
                self._damaged.pop(name, None)
            self._listed = listed
            tables = (*self._tables, self._added.table())
            self._take([table.without(gone) if gone else table for table in tables])
            return True

    def added(self, name: str, nbytes: int, index: ChunkIndex) -> None:
        """Take note of a pack that this process has added, without looking at the folder."""
        with self._lock:
            if self._tables is None or self._listed.get(name) == nbytes:
                return
            # An object for each chunk of a large pack would take more memory than its table.
            is_much = index.count > _FEW or self._added.count > _MERGED
            if name in self._listed or is_much:
                self.refresh()
                return
            self._listed[name] = nbytes
            self._added.put(name, nbytes, index)

    def prove(self) -> bool:
        """Rebuild the tables from the packs themselves, as if there were no file `index`.

        Returns whether they had not been rebuilt before. This precedes dropping chunks or reporting
        them lost: a chunk that the index does not list may still be here. Raises EnvironmentFailure
        if a pack can't be read.
        """
        with self._lock:
            self._all_tables()
            if self._is_proved:
                return False
            self._listed = self._list()
            self._take([_EMPTY], is_stale=True, before=self._tables or ())
            self._is_proved = True
            return True

    def note_small(self, name: str, nbytes: int, entries: Sequence[ChunkEntry]) -> None:
        """Take note of a pack, with its chunks in order, that is to be joined with others."""
        with self._lock:
            self._small[name] = entries
            self.small_nbytes += nbytes

    def taken_small(self) -> dict[str, Sequence[ChunkEntry]]:
        """Return the small packs that were noted, which are then forgotten."""
        with self._lock:
            small, self._small, self.small_nbytes = self._small, {}, 0
            return small

    def _all_tables(self) -> tuple[ChunkTable | AddedChunks, ...]:
        """Return the tables of all packs, read when first needed."""
        if self._tables is None:
            with self._lock:
                if self._tables is None:
                    self._listed = self._list()
                    read = self._read_index()
                    self._is_proved = not read.files
                    gone = {name for name, size in read.files if self._listed.get(name) != size}
                    self._take([read.without(gone) if gone else read], is_stale=bool(gone))
        return *self._tables, self._added  # type: ignore[misc]

    def _take(
        self,
        tables: Sequence[ChunkTable],
        *,
        is_stale: bool = False,
        before: Sequence[ChunkTable] = (),
    ) -> None:
        """Use these tables from now on, and the tables of packs that they lack.

        The first one is that of the file `index`. With `is_stale`, or if it lacks many chunks, that
        file is written again, unless its content would be the same as `before`.
        """
        known = {name for table in tables for name, _ in table.files} | self._damaged.keys()
        # A pack that was just removed is noticed at the next look at the folder.
        untold = (
            (name, pack.nbytes, pack.index)
            for name, pack in self.usable(sorted(self._listed.keys() - known))
        )
        first, *others = tables
        rest = together([*others, table_of(untold, self.folder)], self.folder)
        is_much = rest.count * _UNTOLD_PART > first.count or len(rest.files) > _UNTOLD_PACKS
        if is_stale or (rest.count and is_much):
            # Checked only here, since most commands look up few names in the index's table. All
            # other tables are made of packs, whose names were in order when they were read.
            first, rest = together([_ascending(first), rest], self.folder), _EMPTY
            if self._is_own and not (len(before) == 1 and first.is_same(before[0])):
                self._write_index(first)
        self._tables = (first, rest) if rest.count else (first,)
        self._added = AddedChunks()

    def _list(self) -> dict[str, int]:
        sizes = {}
        try:
            with os.scandir(self.packs) as entries:
                for entry in entries:
                    name = FILE_NAME.fullmatch(entry.name)
                    if name is not None:
                        # Removed since: treated as not listed.
                        with contextlib.suppress(FileNotFoundError):
                            status = entry.stat(follow_symlinks=False)
                            if stat.S_ISREG(status.st_mode):
                                sizes[name[1]] = status.st_size
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            with failures(self.packs):
                raise error
        return sizes

    def _read_index(self) -> ChunkTable:
        path = self.folder / INDEX
        try:
            with opened_regular(path) as (descriptor, status):
                # Packs say more of each chunk: hashing what can't be so may take hours.
                if status.st_size > _HEAD.size + _DIGEST + sum(self._listed.values()):
                    return _EMPTY
                # A copy, since others may write to the file while it is in use.
                content = pieces(read_view(descriptor, path))
                return parse_table(
                    mapped(spooled(content, lambda: self.folder, in_memory=_MERGED * NAME_SIZE))
                )
        except (OSError, ValueError, EnvironmentFailure):
            # The index only saves time.
            return _EMPTY

    def _write_index(self, table: ChunkTable) -> None:
        with (
            contextlib.suppress(OSError),
            opened_folder(self.folder) as folder,
            new_file(folder, self.folder, _INDEX_MODE) as file,
        ):
            write_all(file.descriptor, format_table(table))
            file.put(INDEX)
