"""Detached texts that were proved before: only their chunks are checked when a file is written.

Whether a text is consistent, and which file it stands for, follows from its bytes and those of its
chunks, which it names by SHA-256 (`docs/spec/detached.md`, section "What is proved"). So what was
found once, or is known because clean wrote the text, is true for ever; what can change is whether
chunks are at hand and intact. A pack is known to have intact chunks of a text if all of them were
read from it, or stored: written, or compared with what was there. While its state is what it was
then (`PayloadSource.states`) this is assumed to be still so, and whatever is read is checked all
the same. It would not be enough that a pack is unchanged since it was written: anybody can write
one that matches its name while no chunk in it matches its own. `ContentCache` stores this, and only
trusts this user's own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io.view import Buffer, ByteView, hashed, pieces
from wtxtgit.model.array import ChunkNames

if TYPE_CHECKING:
    from wtxtgit.filter.content import ContentCache
    from wtxtgit.model.array import PayloadSource


_MOST_KEPT = 512 * 1024
"""Chunks whose states wait for the end, when no pack will be joined to others."""


class ProvedTexts:
    """The proved texts of a repository; `opened` finds the cache when first needed. Thread-safe."""

    def __init__(self, opened: Callable[[], ContentCache | None]) -> None:
        self._open = opened
        self._lock = Lock()
        self._cache: ContentCache | None = None
        self._kept: list[tuple[bytes, PayloadSource, ChunkNames]] = []
        self._chunks_kept = 0

    def holds(self, text: ByteView) -> bool:
        """Tell whether a detached text was proved before."""
        cache = self._opened()
        return cache is not None and cache.is_proved(_digest(pieces(text)))

    def put(self, text: Iterable[Buffer]) -> None:
        """Record a detached text, in pieces, that was proved with all its payload."""
        if (cache := self._opened()) is not None:
            cache.put_proof(_digest(text))

    def are_sound(self, text: ByteView, states: Collection[bytes]) -> bool:
        """Tell whether everything with these states, of which there is some, has intact chunks
        of a text.
        """
        cache = self._opened()
        if cache is None or not states:
            return False
        own = _of_text(_digest(pieces(text)), states)
        return cache.sound(own) == own

    def put_sound(self, text: ByteView, states: Collection[bytes]) -> None:
        """Record the states of what has intact chunks of a text."""
        if (cache := self._opened()) is not None:
            cache.put_sound(_of_text(_digest(pieces(text)), states))

    def put_kept(
        self, text: Iterable[Buffer], source: PayloadSource, names: Iterable[Sequence[bytes]]
    ) -> None:
        """Record a detached text that clean made, in pieces, and at the end the states of what has
        its chunks then.

        `names` are those of all its chunks, which this process has stored.
        """
        self._kept.append((_digest(text), source, ChunkNames(chain.from_iterable(names))))
        self._chunks_kept += len(self._kept[-1][2])
        if self._chunks_kept > _MOST_KEPT:
            self.flush()

    def flush(self) -> None:
        """Record the states of what `put_kept` was told."""
        kept, self._kept, self._chunks_kept = self._kept, [], 0
        if kept and (cache := self._opened()) is not None:
            for digest, source, names in kept:
                cache.put_proof(digest)
                cache.put_sound(_of_text(digest, source.states(names)))

    def close(self) -> None:
        """Write what was recorded."""
        self.flush()
        with self._lock:
            if self._cache is not None:
                self._cache.close()

    def _opened(self) -> ContentCache | None:
        with self._lock:
            if self._cache is None:
                with suppress(EnvironmentFailure):
                    self._cache = self._open()
            return self._cache


def _of_text(digest: bytes, states: Iterable[bytes]) -> set[bytes]:
    return {sha256(digest + state).digest() for state in states}


def _digest(text: Iterable[Buffer]) -> bytes:
    return hashed(sha256(), text).digest()
