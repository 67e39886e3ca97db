"""Detached texts that were proved once: only their chunks are checked when a file is made again.

Whether a text holds together, and which file it stands for, follows from its bytes and those of its
chunks, which it names by SHA-256 (`docs/spec/detached.md`, section "What is proved"). So what was
found once, or is so because clean wrote the text, holds for ever; what can change is whether
chunks are at hand and whole. What holds them was as it was written when this process wrote it, or
read it all; where its state is as it was then (`PayloadSource.states`) it is taken to be so: what
is read is checked all the same. `ContentCache` keeps it, which believes only this user's own rows.
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
    """Those of a repository, which `opened` finds when first needed; threads may share it.

    `since` is when this process began, in ns: what it wrote itself is as it was written.
    """

    def __init__(self, opened: Callable[[], ContentCache | None], since: int) -> None:
        self._open = opened
        self.since = since
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

    def are_sound(self, states: Collection[bytes]) -> bool:
        """Whether all that has these states, and there is any, is known to be as it was written."""
        cache = self._opened()
        return cache is not None and bool(states) and cache.are_sound(states)

    def put_sound(self, states: Iterable[bytes]) -> None:
        """Take down what is as it was written."""
        if (cache := self._opened()) is not None:
            cache.put_sound(states)

    def put_written(self, source: PayloadSource, names: Iterable[Sequence[bytes]]) -> None:
        """Take down what this process wrote of the payload of a text, the names of its chunks."""
        states = source.states([name for some in names for name in some])
        self.put_sound(state for state, written in states.items() if written >= self.since)

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


def _digest(text: Iterable[Buffer]) -> bytes:
    return hashed(sha256(), text).digest()
