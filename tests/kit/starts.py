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
from collections.abc import Iterator
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
_PROGRAMS = ("python", "wtxtgit", "git-wtxt")


def _client() -> Path | None:
    """Compile the client, unless that was done before; None where it can't be."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    source = _HERE / "client.c"
    digest = hashlib.sha256(source.read_bytes() + os.fsencode(BIN)).hexdigest()[:16]
    kept = _HERE / "__pycache__" / f"client-{digest}"
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            made = Path(folder) / "client"
            # Static, it starts in half of the time.
            for options in (("-static",), ()):
                command = [compiler, "-O1", f'-DBIN="{BIN}"', *options, "-o", made, source]
                if not subprocess.run(command, capture_output=True, check=False).returncode:
                    made.replace(kept)
                    break
            else:
                return None
    return kept


def _folder() -> Path:
    """The folder of the programs that tests start."""
    client = _client()
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
