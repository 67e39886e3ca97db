"""Joining the small packs that one command added; and the lock of all who remove packs."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io.files import failures, shown
from wtxtgit.io.temporary import opened_folder
from wtxtgit.store.folder import PackFolder
from wtxtgit.store.pack import HEAD, ChunkEntry
from wtxtgit.store.writer import NewPack


def join_small(own: PackFolder) -> None:
    """Join the small packs that were added through a folder's object to larger ones.

    Their chunks are known, and each was written or compared: whole packs are read, and have to
    match their names. If another repack or prune is running they stay as they are. Raises
    EnvironmentFailure.
    """
    small = own.taken_small()
    with contextlib.ExitStack() as until:
        try:
            until.enter_context(locked(own.folder))
        except EnvironmentFailure:
            return
        _Joining(own).join(small)


class _Joining:
    """Joins packs of which all chunks are known."""

    def __init__(self, own: PackFolder) -> None:
        self._own = own
        self._new: NewPack | None = None
        self._parts: list[str] = []
        self._names: set[bytes] = set()

    def join(self, small: Mapping[str, Sequence[ChunkEntry]]) -> None:
        try:
            for name, entries in small.items():
                self._take(name, entries)
            self._finish()
        finally:
            self._discard()

    def _take(self, name: str, entries: Sequence[ChunkEntry]) -> None:
        try:
            content = self._own.path(name).read_bytes()
        except OSError:
            # Another process has moved its chunks.
            return
        names = {entry.name for entry in entries}
        if sha256(content).hexdigest() != name or not names.isdisjoint(self._names):
            return
        encoded = memoryview(content)[len(HEAD) : entries[-1].place + entries[-1].length]
        if self._new is not None and not self._new.has_room(len(encoded), len(entries)):
            self._finish()
        if self._new is None:
            self._new = NewPack(self._own)
        self._new.add_all(entries, encoded)
        self._parts.append(name)
        self._names |= names

    def _finish(self) -> None:
        if self._new is not None and len(self._parts) > 1:
            self._own.added(self._new.finish(), self._new.nbytes, self._new.index)
            for part in self._parts:
                # A chunk that was used again meanwhile is as young in the new pack.
                self._own.path(part).unlink(missing_ok=True)
            self._own.refresh()
        self._discard()

    def _discard(self) -> None:
        if self._new is not None:
            self._new.close()
        self._new, self._parts = None, []
        self._names.clear()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder of a store, so that no other process removes its packs.

    Raises EnvironmentFailure if it is locked, or can't be.
    """
    if not folder.is_dir():
        yield
        return
    where = shown(folder)
    with failures(folder), opened_folder(folder) as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EnvironmentFailure(f"{where}: another repack or prune is running") from None
        except OSError as error:
            raise EnvironmentFailure(
                f"{where}: can't be locked, so no packs were changed"
            ) from error
        yield
