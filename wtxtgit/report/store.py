"""What a store of payload holds, as data: the contract of `store ls`, `verify` and `repack --json`.

Packs and chunks are named by their SHA-256, in hexadecimal; sizes are in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.model.plain import JsonObject


@dataclass(frozen=True, slots=True)
class StoredPack(JsonObject):
    """A pack: the size of its file, its number of chunks, and the size of these decoded.

    `why` says why it can't be used, None if it can.
    """

    KEYS = "pack size chunks payload why?"

    pack: str
    size: int
    chunks: int = 0
    payload: int = 0
    why: str | None = None


@dataclass(frozen=True, slots=True)
class StoreListing(JsonObject):
    """A store's packs; `chunks` and `payload` count a chunk that is in several packs once.

    `borrowed` are the stores of git alternates, which are read as well.
    """

    KEYS = "store borrowed chunks payload size packs"

    store: Path
    borrowed: tuple[Path, ...]
    chunks: int
    payload: int
    packs: tuple[StoredPack, ...]

    @property
    def size(self) -> int:
        return sum(pack.size for pack in self.packs)


@dataclass(frozen=True, slots=True)
class DamagedPack(JsonObject):
    """A pack that is not what its name says, or that has damaged chunks.

    `why` is about the pack; it is None if only chunks are damaged, which are listed with what is
    wrong with them. `more` is how many further ones are not listed; `rows` counts all chunks in the
    pack's index.
    """

    KEYS = "pack why chunks more?"

    pack: str
    why: str | None
    chunks: dict[str, str]
    more: int | None = None
    rows: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class StoreVerdict(JsonObject):
    """What a check of every chunk found; `lost` are chunks of which no copy is intact.

    `more_lost` is how many further ones are not listed.
    """

    KEYS = "store ok packs chunks payload damaged lost more_lost?"

    store: Path
    packs: int
    chunks: int
    payload: int
    damaged: tuple[DamagedPack, ...]
    lost: tuple[str, ...]
    more_lost: int | None = None

    @property
    def ok(self) -> bool:
        return not self.damaged


@dataclass(frozen=True, slots=True)
class StoreRepacked(JsonObject):
    """What repacking did: packs and their bytes before and after, and copies of chunks removed.

    `aside` are packs that were damaged, and are no longer used.
    """

    store: Path
    packs_before: int
    packs_after: int
    size_before: int
    size_after: int
    dropped: int
    aside: tuple[DamagedPack, ...]


@dataclass(frozen=True, slots=True)
class StorePruned(JsonObject):
    """Chunks removed, and the bytes that they took; packs and their bytes before and after.

    `remote` was asked what it has, None if none was. Some chunks stay although nothing recent needs
    them: `unsent` ones, which no remote is known to have, and `young` ones, which no commit
    reaches.
    """

    KEYS = "store chunks bytes=nbytes packs_before packs_after size_before size_after"
    KEYS += " remote? unsent young"

    store: Path
    chunks: int
    nbytes: int
    packs_before: int
    packs_after: int
    size_before: int
    size_after: int
    remote: str | None = None
    unsent: int = 0
    young: int = 0


@dataclass(frozen=True, slots=True)
class PlacedPack(JsonObject):
    """A pack of a remote, and its size; None for a part of one whose size is not stated."""

    pack: str
    size: int | None


@dataclass(frozen=True, slots=True)
class RemotePruned(JsonObject):
    """Packs of a remote that no ref needs; `young` ones stay as they are.

    Those that are old enough are `marked`, those that were marked long ago are `gone`. `packs`
    counts all packs. `refs` counts the refs that were examined, of the git remotes that are named.
    `is_done` says whether packs were marked and removed; `note` has more about it.
    """

    KEYS = "remote git_remotes refs packs gone marked young done=is_done note?"

    remote: str
    git_remotes: tuple[str, ...]
    refs: int
    packs: int
    gone: tuple[PlacedPack, ...]
    marked: tuple[PlacedPack, ...]
    young: int
    is_done: bool
    note: str | None = None


@dataclass(frozen=True, slots=True)
class LackingPayload(JsonObject):
    """How many chunks of a detached text, given by its path, can't be obtained.

    The path is from the top level.
    """

    path: bytes
    chunks: int


@dataclass(frozen=True, slots=True)
class RefusedPack(JsonObject):
    """A pack of a remote that is not what its name says, so that nothing in it is used."""

    pack: str
    why: str


@dataclass(frozen=True, slots=True)
class PayloadPushed(JsonObject):
    """What a push sent: chunks, and the packs that hold them; `lacking` is in no store here.

    `damaged` are packs of the remote that were read and are not what their names say. `remote` is
    None if none was asked, because there was nothing to send.
    """

    remote: str | None = None
    chunks: int = 0
    nbytes: int = 0
    packs: tuple[str, ...] = ()
    lacking: tuple[LackingPayload, ...] = ()

    damaged: tuple[RefusedPack, ...] = ()

    KEYS = "remote? chunks bytes=nbytes packs lacking damaged"


def pushed_together(done: Sequence[PayloadPushed]) -> PayloadPushed:
    """Return what was sent to several places as one result."""
    if len(done) == 1:
        return done[0]
    return PayloadPushed(
        ", ".join(dict.fromkeys(one.remote for one in done if one.remote)) or None,
        sum(one.chunks for one in done),
        sum(one.nbytes for one in done),
        tuple(pack for one in done for pack in one.packs),
        tuple(dict.fromkeys(lack for one in done for lack in one.lacking)),
        tuple(pack for one in done for pack in one.damaged),
    )


@dataclass(frozen=True, slots=True)
class PayloadFetched(JsonObject):
    """The result of a fetch: chunks that were needed, and the packs that were fetched.

    `remote` are the remotes that were asked, None if everything was already here. `refused` are
    packs that are not what their names say, `lacking` is what could not be fetched, and `failures`
    say why other remotes could not be asked. `short` are remotes that lacked what another one gave.
    """

    remote: str | None = None
    chunks: int = 0
    nbytes: int = 0
    packs: tuple[str, ...] = ()
    refused: tuple[RefusedPack, ...] = ()
    lacking: tuple[LackingPayload, ...] = ()
    failures: tuple[str, ...] = ()
    short: tuple[str, ...] = ()

    KEYS = "remote? chunks bytes=nbytes packs refused lacking failures short"


@dataclass(frozen=True, slots=True)
class ImportedObject(JsonObject):
    """An object of git-lfs, by its SHA-256, whose payload is in the store; `path` has its pointer.

    `blob` is the id of its text in git, None if nothing was done. The store has payload only of
    `detached` texts.
    """

    KEYS = "path object size=nbytes blob? detached"

    path: bytes
    object: str
    nbytes: int
    blob: str | None = None
    detached: bool = False


@dataclass(frozen=True, slots=True)
class LackingObject(JsonObject):
    """An object of git-lfs that can't be obtained; `why` says why."""

    KEYS = "path object size=nbytes why"

    path: bytes
    object: str
    nbytes: int
    why: str


@dataclass(frozen=True, slots=True)
class StoreImported(JsonObject):
    """What was imported into a store; `others` counts objects that are not checkpoints.

    `nbytes` is the size of the packs that were added to the store.
    """

    KEYS = "store bytes=nbytes others objects lacking"

    store: Path
    objects: tuple[ImportedObject, ...]
    lacking: tuple[LackingObject, ...]
    others: int
    nbytes: int
