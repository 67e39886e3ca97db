"""The memory of processes, seen by looking often: proc(5)."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

_INTERVAL = 0.01
"""Seconds between two looks; one takes 0.1 ms."""


class Watch:
    """The most memory that a process and all below it hold at once, by looking often."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.resident = 0
        self.anonymous = 0
        self.own = 0
        """The most that the process itself was resident with."""
        self.below = 0
        """The most anonymous memory of all below it."""

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_INTERVAL):
            found = [memory(pid) for pid in descendants(self._pid)]
            peak = max((sizes.get("VmHWM", 0) for sizes in found), default=0)
            now = sum(sizes.get("VmRSS", 0) for sizes in found)
            self.resident = max(self.resident, peak, now)
            anonymous = [sizes.get("RssAnon", 0) for sizes in found]
            self.anonymous = max(self.anonymous, sum(anonymous))
            self.own = max(self.own, found[0].get("VmHWM", 0))
            self.below = max(self.below, sum(anonymous[1:]))


def descendants(pid: int) -> list[int]:
    """A process and all that it started and are still there: proc(5), children."""
    found = [pid]
    for parent in found:
        # Any of them, and any of its threads, may end while it is looked at.
        with contextlib.suppress(OSError):
            for path in Path(f"/proc/{parent}/task").glob("*/children"):
                found += map(int, path.read_text().split())
    return found


def memory(pid: int) -> dict[str, int]:
    """Bytes that a process holds, by the names of proc(5), status; nothing where it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    wanted = (line.split() for line in lines if line.startswith(("VmHWM:", "VmRSS:", "RssAnon:")))
    return {name.rstrip(":"): int(size) * 1024 for name, size, _ in wanted}
