"""Sending payload: what texts need and a remote lacks is sent, in new packs.

What a chunk is decoded from is sent with it, unless the remote has a usable copy: one with a
smaller depth than the chunk (`docs/spec/store.md`, "Encodings"). Nothing is sent that was not
decoded and hashed before. Packs above some size have one version of each file, so that whoever
fetches a version from a remote that only sends whole packs gets little of the others. Where parts
can't be had each text ends its pack, and packs are small: of one in which little is still needed,
little else comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure, RemoteRefused
from wtxtgit.io.files import failures
from wtxtgit.io.progress import Portion, Progress
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
"""A pack with at least this many bytes ends with a text."""
# Or from one part in this many of the text's payload on, if that is less: then even the pack of a
# version of which 1% changed ends with its text.
_LITTLE = 200
_LEAST = 32 * 1024
"""Fewer bytes are not worth a pack of their own."""
_SMALL, _MOST_SMALL = 128 * 1024, 256
"""Where only whole packs can be had, a text with a larger payload gets up to so many packs."""
_TOGETHER = 128 * 1024 * 1024
"""Packs are sent once they have this many bytes: a request takes long compared with a small one."""


def push_payload(
    store: Store,
    place: PackPlace,
    texts: Sequence[DetachedText],
    progress: Progress | None = None,
    *,
    dry_run: bool = False,
    check: bool = False,
) -> PayloadPushed:
    """Send all chunks of texts to a remote; `progress` gets counts of the bytes that are sent.

    With `check` all packs at the remote are read: chunks that are only in damaged ones are sent
    again, and these packs are removed once nothing is missing; `progress` gets counts of these
    bytes too. Chunks that neither side has are reported, and do not stop the others. Raises as the
    place does, and EnvironmentFailure if packs can't be read or made.
    """
    lacking: list[LackingPayload] = []
    sender: _Sender | None = None
    with ExitStack() as until:
        for text in texts:
            if sender is None:
                # Most pushes have no such text; then no remote is asked.
                with failures(store.folder, missing=EnvironmentFailure):
                    store.own.make()
                folder = until.enter_context(new_folder(store.folder))
                remote = RemotePacks(place, store.folder)
                # Lost packs are no reason to leave anything out.
                remote.find_lost()
                folders = (store.own, *store.borrowed)
                damaged = remote.find_damaged(folders, progress) if check else {}
                sender = _Sender(store, remote, folder, texts, progress, damaged, dry_run=dry_run)
                until.callback(sender.close)
            if missing := sender.send(text):
                lacking.append(LackingPayload(text.path, missing))
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


class _PackChoice:
    """Chooses which copies of chunks have to be sent.

    `is_whole` tells whether a copy in a pack of a folder is; `add` takes each that is chosen.
    """

    def __init__(
        self,
        folders: Sequence[PackFolder],
        remote: RemotePacks,
        is_whole: Callable[[PackFolder, ChunkPack, ChunkEntry], bool],
        add: Callable[[ChunkPack, ChunkEntry], None],
    ) -> None:
        self._folders = folders
        self._remote = remote
        self._is_whole = is_whole
        self._add = add
        self._depths: dict[bytes, int] = {}
        # How deep chunks were looked for in vain: each may be asked for by a tree of others.
        self._lacking: dict[bytes, int] = {}

    def __contains__(self, name: bytes) -> bool:
        return name in self._depths

    def take(self, name: bytes, most_depth: int = MAX_DEPTH) -> bool:
        """Choose copies so that the remote can decode a chunk, through at most `most_depth` others.

        Returns False if that is impossible.
        """
        if self._is_chosen(name, most_depth):
            return True
        if self._lacking.get(name, -1) >= most_depth:
            return False
        for _, entry in self._remote.copies(name, most_depth):
            # A pack with a base may be lost or damaged there.
            if all(self.take(base, entry.depth - 1) for base in entry.bases):
                if entry.bases and not self._is_chosen(name, entry.depth):
                    self._depths[name] = entry.depth
                return True
        for folder in self._folders:
            for pack, entry in folder.copies(name):
                if entry.depth > most_depth or not self._is_whole(folder, pack, entry):
                    continue
                if all(self.take(base, entry.depth - 1) for base in entry.bases):
                    # Another copy may have been chosen meanwhile, to decode one of these.
                    if not self._is_chosen(name, most_depth):
                        self._add(pack, entry)
                        self._depths[name] = entry.depth
                    return True
        # The file `index` of a store may be wrong, and lack the chunk.
        is_more = [folder.prove() for folder in self._folders]
        if any(is_more):
            self._lacking.clear()
            return self.take(name, most_depth)
        self._lacking[name] = most_depth
        return False

    def _is_chosen(self, name: bytes, most_depth: int) -> bool:
        return self._depths.get(name, MAX_DEPTH + 1) <= most_depth


class _Sender:
    """Sends chunks, in packs that are made in a folder."""

    def __init__(
        self,
        store: Store,
        remote: RemotePacks,
        folder: Path,
        texts: Iterable[DetachedText],
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
        self._dry_run = dry_run
        self._held = DecodedBases()
        self._new: NewPack | None = None
        self._ready: list[OutgoingPack] = []
        self._choice = _PackChoice(self._folders, remote, self._is_whole, self._add)
        self._told = (
            None if progress is None or dry_run else Portion(progress, self._foreseen(texts))
        )
        self._text_size = 0
        # The paths whose texts the pack in the making has chunks of.
        self._in_pack: set[bytes] = set()
        self._sent = ("", 0)
        self._gives_parts: bool | None = True if dry_run else remote.place.gives_parts()
        self.damaged = damaged
        self.packs: list[str] = []
        self.chunks = 0
        self.nbytes = 0

    def close(self) -> None:
        if self._new is not None:
            self._new.close()

    def send(self, text: DetachedText) -> int:
        """Send the chunks of a text; returns how many of them are neither here nor there."""
        # Those of other files mostly belong to the same commit, and are fetched together.
        if text.path in self._in_pack or not self._gives_parts:
            self._end_text()
        self._text_size = text.nbytes
        lacking = sum(not self._choice.take(name) for name in dict.fromkeys(text.chunks))
        self._in_pack.add(text.path)
        return lacking

    def _end_text(self) -> None:
        """End the pack after a text, if the pack is large enough."""
        enough = min(_ENOUGH, max(_LEAST, self._text_size // _LITTLE))
        if self._new is not None and self._new.nbytes >= enough:
            self._end_pack()

    def end(self) -> None:
        """Send all packs that are made."""
        self._end_pack()
        ready, self._ready = self._ready, []
        if not ready:
            return
        # A damaged pack with the same name is replaced.
        self._remove({pack.name for pack in ready} & self.damaged.keys())
        sent = Portion(self._told, sum(pack.size for pack in ready))
        self._remote.place.put(ready, sent)
        sent.finish()
        for pack in ready:
            self.packs.append(pack.name)
            self.nbytes += pack.size
            self._sent = (pack.name, pack.size)
            pack.path.unlink()

    def _end_pack(self) -> None:
        """Finish the pack that is being made; finished packs are sent once there are enough."""
        if self._new is None:
            return
        new, self._new = self._new, None
        self._in_pack.clear()
        try:
            if self._dry_run:
                return
            made = ChunkPack(self._making.path(new.finish()))
            self._ready.append(OutgoingPack.of(made))
        finally:
            new.close()
        if sum(pack.size for pack in self._ready) >= _TOGETHER:
            self.end()

    def _foreseen(self, texts: Iterable[DetachedText]) -> int:
        """Return the bytes of what will be sent of texts, without their packs' indexes."""
        total = 0

        def count(_: ChunkPack, entry: ChunkEntry) -> None:
            nonlocal total
            total += entry.length

        choice = _PackChoice(self._folders, self._remote, lambda *_: True, count)
        for text in texts:
            for name in dict.fromkeys(text.chunks):
                choice.take(name)
        return total

    def remove_damaged(self) -> None:
        """Remove the damaged packs, whose chunks are all in others now."""
        if not self._dry_run:
            self._remove(self.damaged.keys() - set(self.packs))

    def _remove(self, names: Iterable[str]) -> None:
        # If nothing can be removed they do no harm: whoever finds a damaged pack ignores it.
        if there := sorted(names):
            with suppress(RemoteRefused):
                self._remote.place.remove(there)

    def settle(self) -> None:
        """Make what is there visible, even if an earlier push had no time for that."""
        if self._dry_run:
            return
        # Whoever has nothing to send may not be allowed to write.
        with suppress(*(() if self.packs else (RemoteRefused,))):
            self._remote.place.settle()

    def _is_whole(self, folder: PackFolder, pack: ChunkPack, entry: ChunkEntry) -> bool:
        return ChunkReading((folder,), self._held).why_damaged(pack, entry) is None

    def _add(self, pack: ChunkPack, entry: ChunkEntry) -> None:
        # A pack holds one copy of a chunk.
        is_there = self._new is not None and entry.name in self._choice
        if self._new is not None and (is_there or not self._has_room(self._new, entry.length)):
            self._end_pack()
        if self._new is None:
            self._new = NewPack(self._making)
        self._new.add_as_it_is(entry, pieces(pack.encoded(entry)))
        self.chunks += 1

    def _has_room(self, pack: NewPack, nbytes: int) -> bool:
        if not pack.has_room(nbytes):
            return False
        if self._text_size <= _SMALL:
            return True
        most = max(_LEAST, self._text_size // _MOST_SMALL)
        return pack.nbytes + nbytes <= most or self._are_parts_given()

    def _are_parts_given(self) -> bool:
        """Tell whether the remote gives parts of packs; it is asked once."""
        if self._gives_parts is None:
            place, there = self._remote.place, self._remote.sizes
            for pack in sorted(there, key=there.__getitem__)[:1]:
                self._gives_parts = place.gives_parts(pack, there[pack])
            if self._gives_parts is None:
                # The pack in the making is sent, so that there is one.
                self._end_pack()
                self.end()
                self._gives_parts = place.gives_parts(*self._sent) is not False
        return self._gives_parts
