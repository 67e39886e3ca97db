"""Smudges that wait until the payload of a checkout's texts has been fetched in one go.

Git asks once for every file, then for a list of those that are ready, then for each of these again
(gitattributes(5), "Delay"). Waiting texts are kept in one spool, and read one by one for the names
of their chunks. What can't be fetched becomes ready all the same, and is passed through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from wtxtgit.errors import explain
from wtxtgit.io.spool import LITTLE, Spool
from wtxtgit.io.view import ByteView, pieces

if TYPE_CHECKING:  # Most checkouts have no detached text.
    from pathlib import Path

    from wtxtgit.model.array import FindPayload
    from wtxtgit.remotes.payload.on_demand import FetchedPayload
    from wtxtgit.text.index import TextIndex

FindFetched = Callable[[], "FetchedPayload | None"]
"""Returns the payload that is fetched if missing; None if nothing may be fetched."""


class _DelayedText(NamedTuple):
    path: bytes
    text: ByteView
    spool: Spool


class DelayedSmudges:
    """The waiting texts of one filter process, by path; `why` says what went wrong."""

    def __init__(self, find: FindFetched, folder: Callable[[], Path | None]) -> None:
        self._find = find
        self._folder = folder
        self._spool: Spool | None = None
        # Positions in the spool: where each text begins and ends.
        self._spooled: list[tuple[bytes, int, int]] = []
        self._waiting: list[_DelayedText] = []
        self._ready: dict[bytes, _DelayedText] = {}
        self._fetching = CheckoutFetch()

    @property
    def why(self) -> str | None:
        return self._fetching.why

    @property
    def remote_lacks(self) -> bool:
        return self._fetching.remote_lacks

    def takes(self, path: bytes, text: ByteView, indexed: TextIndex | None) -> bool:
        """Keep a text for later if it lacks payload that may be fetched.

        Returns whether it was kept. `indexed` is as returned by `index_of_detached`.
        """
        # The store first, since most have everything: finding the remote means asking git.
        if self._fetching.has_failed or indexed is None or not lacks(indexed):
            return False
        if self._find() is None:
            return False
        if self._spool is None:
            self._spool = Spool(self._folder, in_memory=LITTLE)
        start = self._spooled[-1][2] if self._spooled else 0
        try:
            for piece in pieces(text):
                self._spool.write(piece)
        except Exception as error:
            # After an incomplete text the spool can't be used.
            self._fetching.fail(error)
            raise
        self._spooled.append((path, start, start + len(text)))
        return True

    def available(self) -> list[bytes]:
        """Fetch what waiting texts lack, and return the paths that are ready now.

        Empty at the end.
        """
        if self._spool is not None:
            spool, self._spool = self._spool, None
            spool.end()
            texts = spool.view()
            self._waiting += [
                _DelayedText(path, texts[start:end], spool) for path, start, end in self._spooled
            ]
            self._spooled = []
        ready, self._waiting = self._waiting, []
        self._ready.update({text.path: text for text in ready})
        if ready and not self._fetching.has_failed and (fetched := self._find()) is not None:
            from wtxtgit.text.index import index

            names = (name for text in ready for name in _chunks(index(text.text)))
            self._fetching.fetch(fetched, names)
        return [text.path for text in ready]

    def take(self, path: bytes) -> ByteView | None:
        """Return a text that was announced, None for other paths; valid until `done` is called."""
        one = self._ready.get(path)
        return None if one is None else one.text

    def done(self, path: bytes) -> None:
        """Release a text, and with the last one its spool."""
        one = self._ready.pop(path, None)
        if one is not None and not any(
            other.spool is one.spool for other in (*self._waiting, *self._ready.values())
        ):
            one.spool.close()


def index_of_detached(text: ByteView, payload: FindPayload) -> TextIndex | None:
    """Return the index of a detached text, with its payload; None for other texts, or without
    payload.
    """
    # Imported here: a filter starts for every git command, and most have nothing to wait for.
    from wtxtgit.text.grammar import is_detached

    if not is_detached(text) or (source := payload()) is None:
        return None
    from wtxtgit.text.index import index

    return index(text, payload=source)


def lacks(indexed: TextIndex) -> bool:
    """Tell whether chunks of a detached text are missing here."""
    from wtxtgit.model.array import FEW_NAMES, in_groups

    groups = map(set, in_groups(_chunks(indexed), FEW_NAMES))
    return any(len(indexed.payload.has(names)) < len(names) for names in groups)


class CheckoutFetch:
    """Fetches chunks until that fails; `why` says what went wrong, or is missing.

    `remote_lacks` tells that a remote answered, and does not have some of them.
    """

    def __init__(self) -> None:
        self.why: str | None = None
        self.has_failed = False
        self.remote_lacks = False

    def fetch(self, fetched: FetchedPayload, names: Iterable[bytes]) -> None:
        """Fetch chunks, as far as they can be had."""
        if self.has_failed:
            return
        try:
            fetched.want(names)
        except Exception as error:  # noqa: BLE001 - a checkout goes on, whatever a remote does
            self.fail(error)
        else:
            self.why = self.why or fetched.lacks
            self.remote_lacks |= fetched.lacks is not None

    def fail(self, error: Exception) -> None:
        """Stop fetching, for this reason."""
        self.why = explain(error)
        self.has_failed = True
        self.remote_lacks = False


def _chunks(indexed: TextIndex) -> Iterator[bytes]:
    return iter(()) if indexed.stop is not None else indexed.payload_names
