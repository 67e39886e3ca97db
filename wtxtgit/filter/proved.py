"""Detached texts that were proved once: only their chunks are checked when a file is made again.

Whether a text holds together, and which file it stands for, follows from its bytes and those of its
chunks, which it names by SHA-256 (`docs/spec/detached.md`, section "What is proved"). So what was
found once, or is so because clean wrote the text, holds for ever; what can change is whether
chunks are at hand and whole. A pack has whole ones of a text whose chunks were all read from it, or
kept: written, or compared with what was there. Where its state is as it was then
(`PayloadSource.states`) it is taken to be so: what is read is checked all the same. That a pack is
as it was written would not do: anybody can write one that has its name, and no chunk that has its
own. `ContentCache` keeps it, which believes only this user's own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io.view import Buffer, ByteView, hashed, pieces

if TYPE_CHECKING:
    from wtxtgit.filter.content import ContentCache
    from wtxtgit.model.array import PayloadSource


class ProvedTexts:
    """Those of a repository, which `opened` finds when first needed; threads may share it."""

    def __init__(self, opened: Callable[[], ContentCache | None]) -> None:
        self._open = opened
        self._lock = Lock()
        self._cache: ContentCache | None = None

    def holds(self, text: ByteView) -> bool:
        """Whether a detached text was proved."""
        cache = self._opened()
        return cache is not None and cache.is_proved(_digest(pieces(text)))

    def put(self, text: Iterable[Buffer]) -> None:
        """Take down a detached text, in pieces, that was proved with all its payload."""
        if (cache := self._opened()) is not None:
            cache.put_proof(_digest(text))

    def are_sound(self, text: ByteView, states: Collection[bytes]) -> bool:
        """Whether all that has these states, and there is any, has whole chunks of a text."""
        cache = self._opened()
        if cache is None or not states:
            return False
        own = _of_text(_digest(pieces(text)), states)
        return cache.sound(own) == own

    def put_sound(self, text: ByteView, states: Collection[bytes]) -> None:
        """Take down what has whole chunks of a text."""
        if (cache := self._opened()) is not None:
            cache.put_sound(_of_text(_digest(pieces(text)), states))

    def put_kept(
        self, text: Iterable[Buffer], source: PayloadSource, names: Iterable[Sequence[bytes]]
    ) -> None:
        """Take down a detached text that clean made, in pieces, and what has its chunks now.

        `names` are those of all of them, which this process kept.
        """
        if (cache := self._opened()) is None:
            return
        digest = _digest(text)
        cache.put_proof(digest)
        cache.put_sound(_of_text(digest, source.states([name for some in names for name in some])))

    def close(self) -> None:
        """Write what was taken down."""
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
