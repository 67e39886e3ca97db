"""Commands on the payload of detached texts."""

from __future__ import annotations

from tests.store.chunks import added, trained, weights
from tests.torture.cases.places import Killed, Place
from tests.torture.cases.starts import plain
from wtxtgit.store.store import Store


def stored(place: Place) -> None:
    """Small packs, one of which has chunks that are in another, and chunks of which have bases."""
    plain(place)
    folder = place.repo / ".git/wtxt/store"
    old = weights(3)
    added(Store(folder), old[:2])
    added(Store(folder), trained(old[:2]), before=old[:2])
    added(Store(place.top / "other"), [*old[1:], *trained(old[:1])])
    for pack in (place.top / "other/packs").iterdir():
        pack.rename(folder / "packs" / pack.name)


PAYLOAD = (Killed("store repack", stored, ("store", "repack")),)
