"""The server that tests' commands are forked from outlives what becomes of them."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import starts
from tests.kit.open_files import open_files

pytestmark = pytest.mark.skipif(
    starts.FOLDER == starts.BIN, reason="there is no fork server: install a C compiler on Linux"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The programs of a server of this test's own, which has to end well."""
    made = tmp_path / "starts"
    made.mkdir()
    for name in ("client", "wtxtgit"):
        shutil.copy(starts.FOLDER / "client", made / name)
    monkeypatch.setattr(starts, "FOLDER", made)
    with starts.served():
        yield made


def test_a_client_that_is_killed_once_its_command_has_ended(folder: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    client = subprocess.Popen([folder / "wtxtgit", "verify", fifo], stderr=subprocess.DEVNULL)
    end = os.open(fifo, os.O_WRONLY)
    (command,) = _commands(fifo)
    server = _parent(command)
    # It learns of both at once, of the command's end first.
    os.kill(server, signal.SIGSTOP)
    watched = os.pidfd_open(command)
    os.close(end)
    assert select.select([watched], [], [], 60)[0]
    os.close(watched)
    client.kill()
    client.wait()
    os.kill(server, signal.SIGCONT)
    told = subprocess.run([folder / "wtxtgit", "--version"], capture_output=True, check=True)
    assert told.stdout.startswith(b"wtxtgit")


def _commands(fifo: Path) -> list[int]:
    """The processes that have it open, but for this one."""
    processes = [process for process, _, name in open_files() if name == str(fifo)]
    return [process for process in processes if process != os.getpid()]


def _parent(command: int) -> int:
    status = Path(f"/proc/{command}/stat").read_text()
    return int(status.rpartition(")")[2].split()[1])
