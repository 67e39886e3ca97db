"""Tasks for workers that go wrong."""

from __future__ import annotations

import os
import signal

from wtxtgit.cluster.client import Progress
from wtxtgit.errors import FormatError


def double(item: int, progress: Progress) -> int:
    progress(item)
    return 2 * item


def as_text(item: int, _progress: Progress) -> str:
    return str(item)


def refuse(item: int, _progress: Progress) -> int:
    raise FormatError(f"no {item}", offset=item, field="number")


def run_out(_item: int, _progress: Progress) -> int:
    raise MemoryError


def lack_room(_item: int, _progress: Progress) -> int:
    raise OSError(28, "No space left on device", "/a/file")


def fail(_item: int, _progress: Progress) -> int:
    raise KeyError("a bug")


def die(_item: int, _progress: Progress) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0
