"""Sending payload: what texts need and a remote lacks goes there, in new packs.

What a chunk is decoded with goes with it, unless the remote has a copy that does: one that takes
fewer others than the chunk (`docs/spec/store.md`, "Encodings"). Nothing is sent that was not
decoded and hashed before. A pack ends with a text once it is of some size, so that whoever fetches
one version from a remote that gives packs whole gets little of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure, RemoteRefused
from wtxtgit.io.files import failures
from wtxtgit.io.progress import Progress
from wtxtgit.io.temporary import new_folder
from wtxtgit.io.view import pieces
from wtxtgit.remotes.payload.detached_texts import DetachedText
from wtxtgit.remotes.payload.place import OutgoingPack, PackPlace
from wtxtgit.remotes.payload.remote_packs import RemotePacks
from wtxtgit.report.store import LackingPayload, PayloadPushed, RefusedPack
from wtxtgit.store.folder import PackFolder
from wtxtgit.store.pack import MAX_DEPTH, ChunkEntry, ChunkPack
from wtxtgit.store.reading import ChunkReading, DecodedBases
from wtxtgit.store.store import Store
from wtxtgit.store.writer import NewPack

_ENOUGH = 1024 * 1024
"""Bytes of a pack from which on it ends with a text."""
# Or so small a part of the text's payload: with a version of which 1% changed comes less again.
_LITTLE = 200
_LEAST = 32 * 1024
"""Bytes that are not worth a pack of their own."""
_TOGETHER = 128 * 1024 * 1024
"""Bytes of packs from which on they are sent: asking a remote takes long beside a small one."""


def push_payload(
    store: Store,
    place: PackPlace,
    texts: Iterable[DetachedText],
    progress: Progress | None = None,
    *,
    dry_run: bool = False,
    check: bool = False,
) -> PayloadPushed:
    """Have all chunks of texts at a remote; `progress` gets counts of bytes that were sent.

    With `check` all packs that are there are read: what is in damaged ones alone is sent again, and
    they go once nothing is lacking. `progress` gets counts of these bytes, too.
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
                # Nothing is left out on the word of what is gone.
                remote.find_lost()
                damaged = remote.find_damaged(progress) if check else {}
                sender = _Sender(store, remote, folder, progress, damaged, dry_run=dry_run)
                until.callback(sender.close)
            missing = sum(not sender.send(name, MAX_DEPTH) for name in dict.fromkeys(text.chunks))
            if missing:
                lacking.append(LackingPayload(text.path, missing))
            sender.end_text(text.nbytes)
        if sender is not None:
            sender.end()
            if not lacking:
                sender.remove_damaged()
            sender.settle()
    if sender is None:
        return PayloadPushed(place.label)
    return PayloadPushed(
        place.label,
        sender.chunks,
        sender.nbytes,
        tuple(sender.packs),
        tuple(lacking),
        tuple(RefusedPack(name, why) for name, why in sorted(sender.damaged.items())),
    )


class _Sender:
    """Sends chunks, in packs that are made in a folder."""

    def __init__(
        self,
        store: Store,
        remote: RemotePacks,
        folder: Path,
        progress: Progress | None,
        damaged: Mapping[str, str],
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
        self._ready: list[OutgoingPack] = []
        self._depths: dict[bytes, int] = {}
        self.damaged = damaged
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
        # The index of a store may not tell of it.
        is_more = [folder.prove() for folder in self._folders]
        return any(is_more) and self.send(name, most_depth)

    def end_text(self, nbytes: int) -> None:
        """End the pack with a text whose payload has so many bytes, if it is large enough."""
        enough = min(_ENOUGH, max(_LEAST, nbytes // _LITTLE))
        if self._new is not None and self._new.nbytes >= enough:
            self._end_pack()

    def end(self) -> None:
        """Send all packs that are made."""
        self._end_pack()
        ready, self._ready = self._ready, []
        if not ready:
            return
        # What stands under the name of one that is sent is none of it.
        self._remove({pack.name for pack in ready} & self.damaged.keys())
        self._remote.place.put(ready)
        for pack in ready:
            self.packs.append(pack.name)
            self.nbytes += pack.size
            if self._progress is not None:
                self._progress(pack.size)
            pack.path.unlink()

    def _end_pack(self) -> None:
        """Finish the pack that is being made; those that are ready are sent when it is time."""
        if self._new is None:
            return
        new, self._new = self._new, None
        try:
            if self._dry_run:
                return
            made = ChunkPack(self._making.path(new.finish()))
            self._ready.append(OutgoingPack.of(made))
        finally:
            new.close()
        if sum(pack.size for pack in self._ready) >= _TOGETHER:
            self.end()

    def remove_damaged(self) -> None:
        """Take the damaged packs away, all of whose chunks others have."""
        if not self._dry_run:
            self._remove(self.damaged.keys() - set(self.packs))

    def _remove(self, names: Iterable[str]) -> None:
        # Where nothing can be taken away it is in nobody's way: whoever meets it passes it over.
        if there := sorted(names):
            with suppress(RemoteRefused):
                self._remote.place.remove(there)

    def settle(self) -> None:
        """Have what is there be found, even if an earlier push had no time for it."""
        if self._dry_run:
            return
        # Who has nothing to send may have no right to write either.
        with suppress(*(() if self.packs else (RemoteRefused,))):
            self._remote.place.settle()

    def _is_whole(self, folder: PackFolder, pack: ChunkPack, entry: ChunkEntry) -> bool:
        return ChunkReading((folder,), self._held).why_damaged(pack, entry) is None

    def _add(self, pack: ChunkPack, entry: ChunkEntry) -> None:
        # A pack holds one copy of a chunk.
        is_there = self._new is not None and entry.name in self._depths
        if self._new is not None and (is_there or not self._new.has_room(entry.length)):
            self._end_pack()
        if self._new is None:
            self._new = NewPack(self._making)
        self._new.add_as_it_is(entry, pieces(pack.encoded(entry)))
        self._depths[entry.name] = entry.depth
        self.chunks += 1
