"""How work reports progress, and how the progress of unrequested work is shown."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, runtime_checkable

Progress = Callable[[int], None]
"""Called with the number of bytes, or other units, that were just finished."""
Showing = Callable[[str, int | None], AbstractContextManager[Progress | None]]
"""Returns a context that shows the progress of work, given its name and size in bytes."""


@runtime_checkable
class Expecting(Protocol):
    """A `Progress` that can be told how much there is to do, and counts files, too."""

    def expect(self, size: int | None, files: int = 0) -> None:
        """Note that there are `size` more bytes to do, or nobody knows how many, in `files` more
        files.
        """

    def finish_file(self) -> None:
        """Count one more file as finished."""


def expect(progress: Progress | None, size: int | None, files: int = 0) -> None:
    """Tell how much more there is to do, as soon as that is known: bytes, and files.

    `size` is None if only the number of files is known. Where the caller of the work has said how
    much it is in all, that stands.
    """
    if isinstance(progress, Expecting):
        progress.expect(size, files)


def finish_file(progress: Progress | None) -> None:
    """Tell that one more file is finished; its bytes are counted by calls of `progress`."""
    if isinstance(progress, Expecting):
        progress.finish_file()


class Portion:
    """A `Progress` for work of `size` bytes, in so many more files; it is expected at once.

    What counts more, since it reads some bytes again, is cut off; `finish` counts what is left.
    """

    def __init__(self, progress: Progress | None, size: int, files: int = 0) -> None:
        expect(progress, size, files)
        self._progress = progress
        self._left = size

    def __call__(self, count: int, /) -> None:
        count = min(count, self._left)
        self._left -= count
        if self._progress is not None and count:
            self._progress(count)

    def finish(self) -> None:
        """Count all that is left."""
        self(self._left)


how: Showing | None = None
"""How unrequested work is shown; only set by a program, never by the library itself."""


def shown(name: str, total: int | None = None) -> AbstractContextManager[Progress | None]:
    """Show unrequested work such as a fetch; yields what takes its counts, None if nobody looks.

    `total` is its size in bytes, if known.
    """
    return nullcontext() if how is None else how(name, total)
