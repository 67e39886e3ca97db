"""Bytes that still come, of which the number is known: their parts can be asked for at once.

What a filter gets from git is as long as the file that git names, so that its
content can be cut and hashed while git still sends it.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition
from typing import final

from wtxtgit.errors import EnvironmentFailure


@final
class Arriving:
    """The `Windows` of `nbytes` bytes that come in order: who asks for some waits until they came.

    `part` gives bytes [start, end) of what came. One thread tells what came,
    others may wait.
    """

    def __init__(self, nbytes: int, part: Callable[[int, int], memoryview]) -> None:
        self.nbytes = nbytes
        self._part = part
        self._came = 0
        self._has_ended = False
        self._change = Condition()

    def window(self, start: int, end: int) -> memoryview:
        """Bytes [start, end), read-only; raises EnvironmentFailure where they will never come."""
        if end > self._came:
            with self._change:
                self._change.wait_for(lambda: end <= self._came or self._has_ended)
            if end > self._came:
                raise EnvironmentFailure(f"{self._came} of {self.nbytes} bytes came")
        return self._part(start, end)

    def came(self, nbytes: int) -> None:
        """The first `nbytes` bytes are there; more than all are nobody's, nor what comes late."""
        with self._change:
            if nbytes <= self.nbytes and not self._has_ended:
                self._came = nbytes
                self._change.notify_all()

    def end(self) -> None:
        """Nothing more comes."""
        with self._change:
            self._has_ended = True
            self._change.notify_all()
