"""Progress on standard error: on a terminal, for what takes over a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from wtxtgit.text.grammar import LINE_RAW, LINE_TEXT

_PATIENCE = 1.0
"""Seconds without a word."""


@contextmanager
def progress(label: str, total: int | None) -> Iterator[Callable[[int], None] | None]:
    """Give a function that takes counts of bytes done; None where nobody looks.

    `total` is None where nobody knows.
    """
    if not sys.stderr.isatty():
        yield None
        return
    bar = _Bar(label, total)
    try:
        yield bar.advance
    finally:
        bar.close()


def file_size(path: Path) -> int:
    """A file's size in bytes, 0 where there is none to tell."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def raw_size(text: Path) -> int:
    """About how many raw bytes a text holds."""
    return file_size(text) * LINE_RAW // LINE_TEXT


class _Bar:
    def __init__(self, label: str, total: int | None) -> None:
        self._label = label
        self._total = total
        self._done = 0
        self._lock = Lock()
        self._since = time.monotonic()
        self._show: Callable[[int], None] | None = None
        self._stop: Callable[[], None] | None = None

    def advance(self, count: int) -> None:
        # Files that are written side by side tell from threads.
        with self._lock:
            self._done += count
            if self._show is None and time.monotonic() - self._since > _PATIENCE:
                self._start()
            if self._show is not None:
                self._show(self._done)

    def close(self) -> None:
        if self._stop is not None:
            self._stop()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TransferSpeedColumn,
        )

        shown = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        task = shown.add_task(self._label, total=self._total)
        shown.start()
        self._show = lambda done: shown.update(task, completed=done)
        self._stop = shown.stop
