"""Where temporary files of tests are: in memory, where there is plenty.

A repository is some hundred files and folders, which a disk makes and removes in a tenth of a
second. What needs a real disk, being large, asks for a folder on it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

DISK = Path(tempfile.gettempdir())
_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of one's own is made in it
_NEEDED = 6 * 1024**3
"""Bytes that have to be free there: some times what all tests take."""


def use_memory() -> None:
    """Let temporary files be in memory from now on, unless a place was told."""
    told = {"TMPDIR", "PYTEST_DEBUG_TEMPROOT"} & os.environ.keys()
    if told or not _MEMORY.is_dir():
        return
    if min(shutil.disk_usage(_MEMORY).free, _available()) < _NEEDED:
        return
    # Tests run programs from there.
    if os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC or not os.access(_MEMORY, os.W_OK):
        return
    os.environ["TMPDIR"] = os.environ["PYTEST_DEBUG_TEMPROOT"] = str(_MEMORY)
    tempfile.tempdir = None


def _available() -> int:
    """Bytes of memory that programs can have without swapping, proc_meminfo(5)."""
    lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
