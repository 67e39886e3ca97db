"""Packs received from a remote, which wait beside the store until they are proved.

A complete pack waits there until everything that it is decoded from has arrived, so nothing is
fetched twice, whenever a process ends; of an incomplete one the beginning stays, where the next
process goes on. Then each chunk is decoded and hashed. A pack with a damaged chunk is not used at
all; of a pack with chunks whose bases nobody wanted, the other chunks are used.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure, InputError
from wtxtgit.io import clock
from wtxtgit.io.files import failures, read_view
from wtxtgit.io.progress import Progress
from wtxtgit.io.temporary import FileInMaking, kept_file, new_file, opened_folder, remove
from wtxtgit.io.view import Buffer, counted, pieces, write_all
from wtxtgit.io.workers import Workers, worthwhile
from wtxtgit.remotes.payload.pack_parts import PackPart, store_part
from wtxtgit.remotes.payload.place import FORGOTTEN
from wtxtgit.remotes.payload.remote_packs import HOLDS_OTHER, OTHER_END, PackCheck
from wtxtgit.store.folder import PACKS, PackFolder
from wtxtgit.store.pack import ChunkEntry
from wtxtgit.store.reading import flaws
from wtxtgit.store.store import Store
from wtxtgit.store.writer import NewPack

INCOMING = "incoming"
"""The folder of a store in which completely received packs wait."""
_MODE, _READ_ONLY = 0o644, 0o444
_BEGUN = ".part"
"""What the name of a pack's beginning ends with."""


class IncomingPacks:
    """The packs that wait to enter a store; several threads may receive."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._own = store.own
        self._folder = store.folder / INCOMING
        self.packs = self._looked()

    def make(self) -> None:
        """Create the folders if missing; raises EnvironmentFailure."""
        with failures(self._store.folder, missing=EnvironmentFailure):
            self._own.make()
            self.packs.make()
        forget_begun(self._store)

    def begun(self, name: str) -> int:
        """Return how many bytes of a pack are here, from its beginning."""
        try:
            status = (self._folder / PACKS / f"{name}{_BEGUN}").lstat()
        except OSError:
            return 0
        return status.st_size if stat.S_ISREG(status.st_mode) else 0

    def receive(
        self, name: str, size: int, end: bytes, content: Iterator[Buffer], progress: Progress | None
    ) -> str | None:
        """Write a pack, which gets its name once its content matches; returns why it is refused.

        It should have `size` bytes, and `end` as its index and trailer. Returns None if it is
        valid. If the remote fails, or this process ends, what has arrived stays.
        """
        return self._receive(name, size, end, lambda _: content, progress, is_anew=True)

    def take_up(
        self,
        name: str,
        size: int,
        end: bytes,
        rest: Callable[[int], Iterator[Buffer]],
        progress: Progress | None,
    ) -> str | None:
        """Write what is missing of a pack, which is all that `rest` returns for an offset.

        Otherwise as `receive`. `progress` counts what is here already, too.
        """
        return self._receive(name, size, end, rest, progress, is_anew=False)

    def _receive(
        self,
        name: str,
        size: int,
        end: bytes,
        given: Callable[[int], Iterator[Buffer]],
        progress: Progress | None,
        *,
        is_anew: bool,
    ) -> str | None:
        packs = self._folder / PACKS
        with (
            failures(packs, missing=EnvironmentFailure),
            opened_folder(packs) as folder,
            self._making(folder, packs, f"{name}{_BEGUN}") as made,
        ):
            try:
                if is_anew:
                    os.ftruncate(made.descriptor, 0)
                why = _write(made.descriptor, packs, name, size, end, given, progress)
            except OSError:
                made.drop()
                raise
            if why is not None:
                made.drop()
                return why
            os.fsync(made.descriptor)
            # Last: after a kill, one that can only be read could not be taken up.
            mode = stat.S_IMODE(os.fstat(made.descriptor).st_mode)
            os.fchmod(made.descriptor, (mode | self._own.shared) & _READ_ONLY)
            made.put(f"{name}.pack")
        return None

    @contextlib.contextmanager
    def _making(self, folder: int, packs: Path, name: str) -> Iterator[FileInMaking]:
        with kept_file(folder, packs, name) as kept:
            if kept is not None:
                yield kept
                return
        # Another process is receiving the same pack.
        with new_file(folder, packs, _MODE) as made:
            yield made

    def receive_part(
        self, part: PackPart, given: Iterable[Buffer], progress: Progress | None
    ) -> str:
        """Write chunks of a pack as a pack of their own; returns its name.

        Raises InputError if they do not arrive, EnvironmentFailure if they can't be written.
        """

        def counted() -> Iterator[Buffer]:
            for piece in given:
                yield piece
                if progress is not None:
                    progress(memoryview(piece).nbytes)

        return store_part(self.packs, part, counted())

    def install(self, received: Collection[str]) -> dict[str, str]:
        """Move packs into the store in which every chunk matches its name.

        Returns why others are refused. Of packs that were just `received` and have chunks without
        bases, the other chunks are used; packs that were received earlier keep waiting.
        """
        refused: dict[str, str] = {}
        self.packs = self._looked()
        if not self.packs.names:
            return refused
        with failures(self._own.packs, missing=EnvironmentFailure):
            self._own.make()
        # While adding, what they are decoded from is not removed.
        with self._own.adding():
            while bad := self._bad(unproved := self._without_bases()):
                # Others may only be decoded from one of these, and intact with another copy of it.
                to_blame = [name for name, (_, is_own) in bad.items() if is_own]
                for name in to_blame or bad:
                    refused[name] = bad[name][0]
                    self._drop(name)
                self.packs = self._looked()
            self._move(unproved, received)
        # What was dropped does not wait any more.
        self.packs.refresh()
        self._store.refresh()
        return refused

    def _looked(self) -> PackFolder:
        found = PackFolder(self._folder, is_own=False, shared=self._own.shared)
        # We write no file `index` here, so one that stands there is not used.
        found.prove()
        return found

    def _opened(self) -> Iterator[tuple[str, Iterable[ChunkEntry]]]:
        """Yield the usable packs with their chunks."""
        # Another fetching process may have been faster, and removed some.
        for name, pack in self.packs.usable(sorted(self.packs.names)):
            yield name, map(pack.index.entry, pack.index.in_order())

    def _without_bases(self) -> dict[str, set[bytes]]:
        """Return the chunks of each pack whose bases have not arrived."""
        based = sorted(
            ((entry.depth, name, entry) for name, held in self._opened() for entry in held
             if entry.bases),
            key=lambda one: one[0],
        )  # fmt: skip
        lacking: dict[str, set[bytes]] = {}
        for depth, name, entry in based:
            if not all(self._is_there(base, depth - 1, lacking) for base in entry.bases):
                lacking.setdefault(name, set()).add(entry.name)
        return lacking

    def _is_there(self, base: bytes, most: int, lacking: dict[str, set[bytes]]) -> bool:
        if any(entry.depth <= most for _, entry in self._own.copies(base)):
            return True
        return any(
            entry.depth <= most and base not in lacking.get(pack.path.stem, ())
            for pack, entry in self.packs.copies(base)
        )

    def _bad(self, unproved: dict[str, set[bytes]]) -> dict[str, tuple[str, bool]]:
        """Return what is wrong with packs, and whether it is their own fault."""
        names = sorted(self.packs.names)
        tasks = [partial(self._why_bad, name, unproved.get(name, ())) for name in names]
        nbytes = sum(self.packs.names.values())
        with Workers(tasks, worthwhile(None, nbytes, len(tasks) or 1)) as reasons:
            return {name: why for name, why in zip(names, reasons, strict=True) if why}

    def _why_bad(self, name: str, unproved: Collection[bytes]) -> tuple[str, bool] | None:
        try:
            pack = self.packs.opened(name)
        except FileNotFoundError:
            return None
        if pack is None:
            return self.packs.damaged[name], True
        found: tuple[str, bool] | None = None
        for entry, why, is_own in flaws(pack, (self.packs, self._own), unproved):
            if found is None or is_own:
                found = HOLDS_OTHER.format(entry.name.hex(), why), is_own
            if is_own:
                break
        return found

    def _move(self, unproved: dict[str, set[bytes]], received: Collection[str]) -> None:
        with failures(self._own.packs, missing=EnvironmentFailure):
            for name in sorted(self.packs.names):
                if name not in unproved:
                    # Another process may have been faster.
                    with contextlib.suppress(FileNotFoundError):
                        self.packs.path(name).rename(self._own.path(name))
                elif name in received:
                    self._take_proved(name, unproved[name])
                    self._drop(name)
            with opened_folder(self._own.packs) as folder:
                os.fsync(folder)

    def _take_proved(self, name: str, unproved: Collection[bytes]) -> None:
        """Put the proved chunks of a pack into the store."""
        with contextlib.suppress(FileNotFoundError):
            pack = self.packs.opened(name)
            entries = () if pack is None else map(pack.index.entry, pack.index.in_order())
            proved = [entry for entry in entries if entry.name not in unproved]
            if pack is None or not proved:
                return
            new = NewPack(self._own)
            try:
                for entry in proved:
                    new.add_as_it_is(entry, pieces(pack.encoded(entry)))
                new.finish()
            finally:
                new.close()

    def _drop(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.packs.path(name).unlink()


def forget_begun(store: Store) -> None:
    """Remove the beginnings of packs with which nobody went on for long."""
    before = clock.now() - FORGOTTEN
    for path in (store.folder / INCOMING / PACKS).glob(f"*{_BEGUN}"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < before:
                remove(path)


def _write(
    descriptor: int,
    packs: Path,
    name: str,
    size: int,
    end: bytes,
    given: Callable[[int], Iterator[Buffer]],
    progress: Progress | None,
) -> str | None:
    """Write what is missing of a pack to an open file of a folder; returns what is wrong with it.

    `progress` gets counts of all its bytes.
    """
    check = PackCheck(name, end)
    held = read_view(descriptor, packs / f"{name}{_BEGUN}")
    if len(held) > size:
        os.ftruncate(descriptor, 0)
        held = memoryview(b"")
    came = len(held)
    for piece in counted(pieces(held), progress):
        check.add(piece)

    def checked() -> Iterator[Buffer]:
        nonlocal came
        for piece in given(came):
            view = memoryview(piece)
            came += view.nbytes
            if came > size:
                return
            check.add(view)
            yield view
            if progress is not None:
                progress(view.nbytes)

    os.lseek(descriptor, came, os.SEEK_SET)
    try:
        write_all(descriptor, checked())
    except InputError as error:
        return error.message
    if came != size:
        return f"has {'more than' if came > size else f'{came} of'} {size} bytes"
    if not check.has_name:
        return "has a SHA-256 other than its name states"
    return None if check.has_end else OTHER_END
