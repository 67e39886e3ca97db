"""Sending payload: what texts need and a remote lacks goes there, in new packs.

What a chunk is decoded with goes with it, unless the remote has a copy that does: one that takes
fewer others than the chunk (`docs/spec/store.md`, "Encodings"). Nothing is sent that was not
decoded and hashed before. A pack ends with a text once it is of some size, so that whoever fetches
one version gets little of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io.files import failures
from wtxtgit.io.temporary import new_folder
from wtxtgit.io.view import pieces
from wtxtgit.remotes.detached_texts import DetachedText
from wtxtgit.remotes.pack_place import PackPlace
from wtxtgit.remotes.remote_packs import RemotePacks
from wtxtgit.report.store import LackingPayload, PayloadPushed
from wtxtgit.store.encoding import Encoded
from wtxtgit.store.folder import PackFolder
from wtxtgit.store.pack import MAX_DEPTH, ChunkEntry, ChunkPack
from wtxtgit.store.reading import ChunkReading, DecodedBases
from wtxtgit.store.store import Store
from wtxtgit.store.writer import NewPack

_ENOUGH = 1024 * 1024
"""Bytes of a pack from which on it ends with a text."""

Progress = Callable[[int], None]


def push_payload(
    store: Store,
    place: PackPlace,
    texts: Iterable[DetachedText],
    progress: Progress | None = None,
    *,
    dry_run: bool = False,
) -> PayloadPushed:
    """Have all chunks of texts at a remote; `progress` gets counts of bytes that were sent.

    Chunks that neither has are told, and hold nothing else up. Raises as the place does, and
    EnvironmentFailure where packs can't be read or made.
    """
    lacking: list[LackingPayload] = []
    sender: _Sender | None = None
    with ExitStack() as until:
        for text in texts:
            if sender is None:
                # Most pushes have no such text: no remote is asked then.
                with failures(store.folder, missing=EnvironmentFailure):
                    store.own.make()
                folder = until.enter_context(new_folder(store.folder))
                remote = RemotePacks(place, store.folder)
                sender = _Sender(store, remote, folder, progress, dry_run=dry_run)
                until.callback(sender.close)
            missing = sum(not sender.send(name, MAX_DEPTH) for name in dict.fromkeys(text.chunks))
            if missing:
                lacking.append(LackingPayload(text.path, missing))
            sender.end_text()
        if sender is not None:
            sender.end()
    if sender is None:
        return PayloadPushed(place.label)
    return PayloadPushed(
        place.label, sender.chunks, sender.nbytes, tuple(sender.packs), tuple(lacking)
    )


class _Sender:
    """Sends chunks, in packs that are made in a folder."""

    def __init__(
        self,
        store: Store,
        remote: RemotePacks,
        folder: Path,
        progress: Progress | None,
        *,
        dry_run: bool,
    ) -> None:
        self._folders = (store.own, *store.borrowed)
        self._remote = remote
        self._making = PackFolder(folder, is_own=False)
        with failures(folder, missing=EnvironmentFailure):
            self._making.make()
        self._progress = progress
        self._dry_run = dry_run
        self._held = DecodedBases()
        self._new: NewPack | None = None
        self._depths: dict[bytes, int] = {}
        self.packs: list[str] = []
        self.chunks = 0
        self.nbytes = 0

    def close(self) -> None:
        if self._new is not None:
            self._new.close()

    def send(self, name: bytes, most_depth: int) -> bool:
        """Have a chunk there, decoded with at most so many others; tells whether that can be."""
        if self._depths.get(name, MAX_DEPTH + 1) <= most_depth:
            return True
        if self._remote.copies(name, most_depth):
            return True
        for folder in self._folders:
            for pack, entry in folder.copies(name):
                if entry.depth > most_depth or not self._is_whole(folder, pack, entry):
                    continue
                if all(self.send(base, entry.depth - 1) for base in entry.bases):
                    self._add(pack, entry)
                    return True
        return False

    def end_text(self) -> None:
        if self._new is not None and self._new.nbytes >= _ENOUGH:
            self.end()

    def end(self) -> None:
        """Send the pack that is being made."""
        if self._new is None:
            return
        new, self._new = self._new, None
        try:
            if self._dry_run:
                return
            name = new.finish()
            made = ChunkPack(self._making.path(name))
            self._remote.place.put(name, made.path, made.end)
            self.packs.append(name)
            self.nbytes += made.nbytes
            if self._progress is not None:
                self._progress(made.nbytes)
            made.path.unlink()
        finally:
            new.close()

    def _is_whole(self, folder: PackFolder, pack: ChunkPack, entry: ChunkEntry) -> bool:
        return ChunkReading((folder,), self._held).why_damaged(pack, entry) is None

    def _add(self, pack: ChunkPack, entry: ChunkEntry) -> None:
        # A pack holds one copy of a chunk.
        is_there = self._new is not None and entry.name in self._depths
        if self._new is not None and (is_there or not self._new.has_room(entry.length)):
            self.end()
        if self._new is None:
            self._new = NewPack(self._making)
        held = pieces(pack.encoded(entry))
        encoded = Encoded(held, entry.encoding, entry.item, entry.length)
        self._new.add(entry.name, encoded, entry.size, entry.bases, entry.depth)
        self._depths[entry.name] = entry.depth
        self.chunks += 1
