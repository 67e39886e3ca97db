"""What the processes of this machine have open, as proc(5) tells."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def open_files() -> Iterator[tuple[int, Path, str]]:
    """Each process, a path below /proc that leads to what it has open, and that one's name.

    Processes that end while they are looked at are passed over.
    """
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):
            for link in folder.iterdir():
                with contextlib.suppress(OSError):
                    yield int(folder.parts[2]), link, os.fspath(link.readlink())
