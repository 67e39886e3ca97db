"""Sending payload: what texts need and a remote lacks is sent, in new packs.

What a chunk is decoded from is sent with it, unless the remote has a usable copy: one with a
smaller depth than the chunk (`docs/spec/store.md`, "Encodings"). Nothing is sent that was not
decoded and hashed before. Packs above some size have one version of each file, so that whoever
fetches a version from a remote that only sends whole packs gets little of the others. Where parts
can't be had each text ends its pack, and packs are small: of one in which little is still needed,
little else comes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence, Set
from contextlib import suppress
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure, RemoteRefused, RemoteUnavailable
from wtxtgit.io.files import failures
from wtxtgit.io.progress import Portion, Progress
from wtxtgit.io.temporary import new_folder
from wtxtgit.io.view import pieces
from wtxtgit.remotes.payload.detached_texts import DetachedText
from wtxtgit.remotes.payload.place import OutgoingPack, PackPlace
from wtxtgit.remotes.payload.remote_packs import RemotePacks
from wtxtgit.remotes.payload.removal import unreliable
from wtxtgit.report.store import LackingPayload, PayloadPushed, RefusedPack
from wtxtgit.store.folder import PackFolder
from wtxtgit.store.pack import MAX_DEPTH, ChunkEntry, ChunkPack
from wtxtgit.store.reading import ChunkReading, DecodedBases
from wtxtgit.store.store import Store
from wtxtgit.store.writer import NewPack

Fetch = Callable[[Collection[bytes]], object]
"""Puts chunks into the store, as far as they can be had."""
_ENOUGH = 1024 * 1024
"""A pack with at least this many bytes ends with a text."""
# Or from one part in this many of the text's payload on, if that is less: then even the pack of a
# version of which 1% changed ends with its text.
_LITTLE = 200
_LEAST = 32 * 1024
"""Fewer bytes are not worth a pack of their own."""
_SMALL, _MOST_SMALL = 128 * 1024, 256
"""Where only whole packs can be had, a text with a larger payload gets up to so many packs."""
_LOOKS = 4
"""How often a push looks whether all is there, and sends what is not."""
_TOGETHER = 128 * 1024 * 1024
"""Packs are sent once they have this many bytes: a request takes long compared with a small one."""


def push_payload(
    store: Store,
    place: PackPlace,
    texts: Sequence[DetachedText],
    progress: Progress | None = None,
    *,
    fetch: Fetch = lambda _: None,
    dry_run: bool = False,
    check: bool = False,
) -> PayloadPushed:
    """Send all chunks of texts to a remote; `progress` gets counts of the bytes that are sent.

    `fetch` is called with chunks that neither side has, to put them into the store.

    What it relies on and is gone by then is sent again. With `check` all packs at the remote are
    read: chunks that are only in damaged ones are sent again, and these packs are marked;
    `progress` gets counts of the bytes that are read, too.
    Chunks that neither side has are reported, and do not stop the others. Raises as the place does,
    and EnvironmentFailure if packs can't be read or made.
    """
    if not texts:
        # Most pushes have none; then no remote is asked.
        return PayloadPushed(place.label)
    with failures(store.folder, missing=EnvironmentFailure):
        store.own.make()
    with new_folder(store.folder) as folder:
        push = _Push(store, place, folder, progress, fetch, dry_run=dry_run)
        if check:
            push.find_damaged()
        lacking = push.send(texts)
        push.mark_damaged()
        push.settle()
    return PayloadPushed(
        place.label,
        push.chunks,
        push.nbytes,
        tuple(push.packs),
        lacking,
        tuple(RefusedPack(name, why) for name, why in sorted(push.damaged.items())),
    )


class _Push:
    """Sends texts until all that they need is at a place, in packs that a push may rely on."""

    def __init__(
        self,
        store: Store,
        place: PackPlace,
        folder: Path,
        progress: Progress | None,
        fetch: Fetch,
        *,
        dry_run: bool,
    ) -> None:
        self._store = store
        self._fetch: Fetch | None = None if dry_run else fetch
        self._place = place
        self._folder = folder
        self._progress = progress
        self._dry_run = dry_run
        self._remote = self._look()
        self.damaged: dict[str, str] = {}
        self.packs: list[str] = []
        self.chunks = 0
        self.nbytes = 0

    def _look(self) -> RemotePacks:
        remote = RemotePacks(self._place, self._store.folder)
        # Those that are lost or marked are no reason to leave anything out.
        remote.keep_reliable()
        return remote

    def find_damaged(self) -> None:
        folders = (self._store.own, *self._store.borrowed)
        self.damaged = self._remote.find_damaged(folders, self._progress)

    def send(self, texts: Sequence[DetachedText]) -> tuple[LackingPayload, ...]:
        """Send what is missing, and look again; returns what is missing on both sides."""
        for _ in range(_LOOKS):
            lacking = self._send_once(texts)
            if lacking and self._fetch is not None:
                # Once: what did not come then is nowhere.
                self._fetch(self._lacking)
                self._fetch = None
            elif self._dry_run or not self._is_undone:
                return lacking
            self._remote = self._look()
            self._remote.ignore(self.damaged.keys())
        raise RemoteUnavailable(f"{self._place.label}: packs vanish while data is sent")

    def _send_once(self, texts: Sequence[DetachedText]) -> tuple[LackingPayload, ...]:
        sender = _Sender(
            self._store,
            self._remote,
            self._folder,
            texts,
            self._progress,
            self._remote.marked | self.damaged.keys(),
            dry_run=self._dry_run,
        )
        try:
            counts = [(text.path, sender.send(text)) for text in texts]
            sender.end()
        finally:
            sender.close()
        self.packs += sender.packs
        self.chunks += sender.chunks
        self.nbytes += sender.nbytes
        self._relied = {*sender.relied, *sender.packs}
        self._lacking = sender.lacking
        return tuple(LackingPayload(*count) for count in counts if count[1])

    @property
    def _is_undone(self) -> bool:
        """Whether the place lacks by now what was sent, or relied on."""
        if not self._relied:
            return False
        there = {*self._place.packs()}
        return bool(unreliable(self._relied, there, {*self._place.marked()}))

    def mark_damaged(self) -> None:
        """Mark damaged packs, so that nobody relies on them.

        What is intact in them may be needed, and be nowhere else: a prune removes them later.
        """
        # Whoever may not write there leaves them: readers ignore what is damaged.
        with suppress(RemoteRefused):
            if self.damaged and not self._dry_run:
                self._place.mark(sorted(self.damaged))

    def settle(self) -> None:
        """Make what is there visible, even if an earlier push had no time for that."""
        if self._dry_run:
            return
        # Whoever has nothing to send may not be allowed to write.
        with suppress(*(() if self.packs else (RemoteRefused,))):
            self._place.settle()


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
        # The remote's packs of which chunks were found.
        self.relied: set[str] = set()
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
        for there, entry in self._remote.copies(name, most_depth):
            # A pack with a base may be lost or damaged there.
            if all(self.take(base, entry.depth - 1) for base in entry.bases):
                self.relied.add(there)
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
    """Sends chunks, in packs that are made in a folder, and that have none of the `taken` names."""

    def __init__(
        self,
        store: Store,
        remote: RemotePacks,
        folder: Path,
        texts: Iterable[DetachedText],
        progress: Progress | None,
        taken: Set[str],
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
        self._taken = taken
        self.lacking: set[bytes] = set()
        self.packs: list[str] = []
        self.chunks = 0
        self.nbytes = 0

    @property
    def relied(self) -> Set[str]:
        """The packs that were there already, of which chunks are needed."""
        return self._choice.relied

    def close(self) -> None:
        if self._new is not None:
            self._new.close()

    def send(self, text: DetachedText) -> int:
        """Send the chunks of a text; returns how many of them are neither here nor there."""
        # Those of other files mostly belong to the same commit, and are fetched together.
        if text.path in self._in_pack or not self._gives_parts:
            self._end_text()
        self._text_size = text.nbytes
        lacking = [name for name in dict.fromkeys(text.chunks) if not self._choice.take(name)]
        self.lacking.update(lacking)
        self._in_pack.add(text.path)
        return len(lacking)

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
            if made.path.stem in self._taken:
                made = self._renamed(made)
            self._ready.append(OutgoingPack.of(made))
        finally:
            new.close()
        if sum(pack.size for pack in self._ready) >= _TOGETHER:
            self.end()

    def _renamed(self, pack: ChunkPack) -> ChunkPack:
        """Return a pack with the same chunks: whoever removes the other one does not meet it."""
        new = NewPack(self._making)
        try:
            new.rename()
            for entry in map(pack.index.entry, pack.index.in_order()):
                new.add_as_it_is(entry, pieces(pack.encoded(entry)))
            made = ChunkPack(self._making.path(new.finish()))
        finally:
            new.close()
        pack.path.unlink()
        return made

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
