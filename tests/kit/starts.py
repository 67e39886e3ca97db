"""How tests start the command: in processes forked from one that has imported all of it.

A fresh Python process takes 0.15 to 0.35 s of CPU until it does what it was started for, a forked
one 0.01 s. `PYTHON` and the programs beside it stand for the real ones, for tests and for the git
that they start: a small client asks a server, which each pytest process has one of. Tests of the
start itself, of memory, or of what processes show of themselves have the marker `true_start`
(`WTXTGIT_TRUE_START` in the environment). Where there is no C compiler all starts are true.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.kit.temporary import use_memory

TRUE_START = "WTXTGIT_TRUE_START"
use_memory()
# A shell's own settings for Python would make true starts of all that heed them.
for _name in [name for name in os.environ if name.startswith("PYTHON")]:
    del os.environ[_name]
_HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
"""The folder of the real Python and its programs."""
_PROGRAMS = ("python", "wtxtgit", "git-wtxt", "dask")


def compiled(source: Path, *choices: Sequence[str]) -> Path | None:
    """What the C compiler makes of a file, which is kept; None where it can't.

    Of `choices`, which are options, the first one counts that it can do with.
    """
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    digest = hashlib.sha256(source.read_bytes() + repr(choices).encode()).hexdigest()[:16]
    kept = _HERE / "__pycache__" / f"{source.stem}-{digest}"
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            made = Path(folder) / source.stem
            for options in choices:
                command = [compiler, "-O1", *options, "-o", made, source]
                if not subprocess.run(command, capture_output=True, check=False).returncode:
                    made.replace(kept)
                    break
            else:
                return None
    return kept


def _folder() -> Path:
    """The folder of the programs that tests start."""
    place = f'-DBIN="{BIN}"'
    # Static, it starts in half of the time.
    client = compiled(_HERE / "client.c", (place, "-static"), (place,))
    if client is None:
        return BIN
    folder = Path(tempfile.mkdtemp(prefix="wtxtgit-starts-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shutil.copy(client, folder / "client")
    for name in _PROGRAMS:
        (folder / name).hardlink_to(folder / "client")
    return folder


FOLDER = _folder()
PYTHON = str(FOLDER / "python")
"""An interpreter that forks instead of starting where it is asked for `-m wtxtgit`."""
WTXTGIT = FOLDER / "wtxtgit"
"""The installed command."""
DASK = FOLDER / "dask"
"""Dask's, which starts schedulers and workers."""


@contextmanager
def served() -> Iterator[None]:
    """Have a server for the commands that are started meanwhile."""
    if FOLDER == BIN:
        yield
        return
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(FOLDER / "socket"))
        listening.listen(128)
        number = listening.fileno()
        command = [sys.executable, "-E", "-P", _HERE / "fork_server.py", str(number), PYTHON]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[number])
    with server:
        yield
    # A worker of pytest-xdist ends without what is registered for its end.
    shutil.rmtree(FOLDER)
    assert server.returncode == 0, "the fork server failed"
