"""`git diff` of several files: one process compares them all, and nobody can tell.

`comparisons` is the driver as a shell starts it, and can compare nothing itself but the first
file of a diff: its numpy is broken. What it shows of others is the server's.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.kit import Repo, safetensors
from tests.kit.open_files import open_files
from tests.kit.templates import Templates, copyable
from wtxtgit.git import run

pytestmark = [
    pytest.mark.true_start,
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux", reason="there is a helper on Linux alone: run it there"
    ),
]

NAMES = ("a.safetensors", "b.safetensors", "c.safetensors")
BROKEN = b"numpy is broken"
DEADLINE = 120
"""Seconds for what is waited for: far more than it takes."""


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for sockets: their paths have to be short."""
    with tempfile.TemporaryDirectory(prefix="wtxtgit-", dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


@pytest.fixture
def sockets(runtime: Path) -> Callable[[], list[Path]]:
    folder = runtime / "wtxtgit"
    return lambda: sorted(folder.iterdir()) if folder.exists() else []


@pytest.fixture
def models(templates: Templates, tmp_path: Path, runtime: Path, driver: None) -> Repo:
    """Two commits: of four files each, of which one stays, one goes and one comes."""
    return Repo(templates.copy("models", _make_models, tmp_path / "repo"))


def _make_models(folder: Path) -> None:
    repo = copyable(folder)
    repo.track("*.safetensors")
    repo.write("same.safetensors", safetensors(5.0))
    for values in ((1.0, 2.0), (1.0, -2.0)):
        repo.write(NAMES[0], safetensors(*values))
        repo.write(NAMES[1], safetensors(*values, 7.0))
        repo.add()
        repo.commit()
    repo.git("rm", "-q", NAMES[1])
    repo.write(NAMES[2], safetensors(*(3.0, 4.0)))
    repo.add()
    repo.commit("amended", "--amend")


@pytest.fixture
def comparisons(models: Repo, tmp_path: Path) -> Path:
    """The script that is the driver; more of it can be written between its two lines."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "numpy.py").write_text(f"raise ImportError({BROKEN.decode()!r})\n")
    script = tmp_path / "driver"
    script.write_text(
        "#!/bin/sh\n"
        f'[ "$GIT_DIFF_PATH_COUNTER" = 1 ] || export PYTHONPATH={shlex.quote(str(broken))}\n'
        f'{sys.executable} -P -m wtxtgit diff-driver -- "$@"\n'
    )
    script.chmod(0o755)
    models.git("config", "diff.wtxt.command", str(script))
    return script


def insert(script: Path, line: str) -> None:
    """Have the driver do something before it compares a file."""
    head, *rest = script.read_text().splitlines(keepends=True)
    script.write_text("".join([head, line + "\n", *rest]))


SHOWN: list[bytes] = []
"""What `one_by_one` gives: the same in all tests, and each start is a true one."""


def one_by_one(repo: Repo) -> bytes:
    """What git shows of each file where it shows no other."""
    if not SHOWN:
        each = (repo.git("diff", "HEAD~1", "HEAD", "--", name) for name in NAMES)
        SHOWN.append(b"\n".join(each))
    return SHOWN[0]


def test_files_are_shown_as_ever(models: Repo, comparisons: Path) -> None:
    told = models.git("diff", "HEAD~1", "HEAD")
    assert told == one_by_one(models)
    assert told.count(b"diff --wtxt") == len(NAMES)
    assert BROKEN not in told


def test_in_a_folder_of_the_work_tree(models: Repo, comparisons: Path) -> None:
    (models.path / "sub").mkdir()
    assert models.git("diff", "HEAD~1", "HEAD", cwd="sub") == one_by_one(models)


def test_of_several_commits(models: Repo, comparisons: Path) -> None:
    told = models.git("log", "-p", "--ext-diff", "--format=%s", "HEAD")
    assert told.count(b"diff --wtxt") == 2 * len(NAMES)
    # Git counts the files of each commit for itself: the second commit's first is compared, too.
    assert BROKEN not in told


def test_without_folders_for_sockets(
    models: Repo, monkeypatch: pytest.MonkeyPatch, comparisons: Path
) -> None:
    with tempfile.TemporaryDirectory(prefix="wtxtgit-", dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.delenv("XDG_RUNTIME_DIR")
        assert BROKEN not in models.git("diff", "HEAD~1", "HEAD")
        (made,) = Path(folder).iterdir()
        assert made.name == f"wtxtgit-{os.geteuid()}"
        assert made.stat().st_mode & 0o777 == 0o700


def widened(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)


def linked(folder: Path) -> None:
    target = folder.with_name("target")
    target.mkdir(mode=0o700)
    folder.symlink_to(target)


def a_file(folder: Path) -> None:
    folder.write_bytes(b"")


def dangling(folder: Path) -> None:
    folder.symlink_to("nowhere")


def of_another_user(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    if os.geteuid():
        pytest.skip("only root can give a folder away: run it as root")
    os.chown(folder, 12345, 12345)


@pytest.mark.parametrize("place", [widened, linked, a_file, dangling, of_another_user])
def test_a_folder_that_is_not_private_is_not_used(
    models: Repo, runtime: Path, comparisons: Path, place: Callable[[Path], None]
) -> None:
    alone = one_by_one(models)
    place(runtime / "wtxtgit")
    insert(comparisons, f"[ ! -e {runtime}/*/diff-* ] || touch {runtime}/used")
    assert models.git("diff", "HEAD~1", "HEAD").count(BROKEN) == len(NAMES) - 1
    assert not (runtime / "used").exists()
    models.git("config", "--unset", "diff.wtxt.command")
    assert models.git("diff", "HEAD~1", "HEAD") == alone


def test_settings_are_those_of_each_call(models: Repo, comparisons: Path) -> None:
    insert(comparisons, '[ "$GIT_DIFF_PATH_COUNTER" != 2 ] || export WTXTGIT_THREADS=none')
    shown = models.git("diff", "HEAD~1", "HEAD").split(b"diff --wtxt ")[1:]
    notes = [b"note: WTXTGIT_THREADS" in one for one in shown]
    assert notes == [False, True, False]


def test_a_pager_that_is_left(models: Repo, comparisons: Path) -> None:
    insert(comparisons, "trap '' PIPE")
    command = f"{run.executable()} diff HEAD~1 HEAD | head -n 1"
    done = models.run("sh", "-c", command)
    assert done.stdout == models.git("diff", "HEAD~1", "HEAD").splitlines(keepends=True)[0]
    assert done.stderr == b""


@dataclass(frozen=True)
class Paused:
    """A git whose driver waits before it asks for the second file."""

    git: subprocess.Popen[bytes]
    path: Path
    """The socket of its server."""
    _gate: Path

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(self.path))
        return client

    def server(self) -> int:
        """The process that has the socket open: proc(5), /proc/net/unix."""
        lines = Path("/proc/net/unix").read_text().splitlines()
        bound = [line.split() for line in lines if line.endswith(f" {self.path}")]
        (inode,) = [inode for *_, flags, _, _, inode, _ in bound if flags == "00010000"]
        for process, _, name in open_files():
            if name == f"socket:[{inode}]":
                return process
        raise AssertionError("nobody has the socket")

    def go_on(self) -> bytes:
        self._gate.write_bytes(b"\n")
        assert self.git.stdout is not None
        return self.git.stdout.read()


@contextmanager
def paused(repo: Repo, script: Path, sockets: Callable[[], list[Path]]) -> Iterator[Paused]:
    before = sockets()
    here, gate = (script.with_name(name) for name in ("here", "gate"))
    for fifo in (here, gate):
        os.mkfifo(fifo)
    text = script.read_text()
    wait = f"echo > {here}; read line < {gate}"
    insert(script, f'[ "$GIT_DIFF_PATH_COUNTER" != 2 ] || {{ {wait}; }}')
    command = [run.executable(), "diff", "HEAD~1", "HEAD"]
    with subprocess.Popen(command, cwd=repo.path, stdout=subprocess.PIPE) as git:
        here.read_bytes()
        (path,) = [one for one in sockets() if one not in before]
        yield Paused(git, path, gate)
    script.write_text(text)
    for fifo in (here, gate):
        fifo.unlink()


def ended(process: int) -> bool:
    """Wait for the end of a process of somebody else."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], DEADLINE)[0])
    finally:
        os.close(descriptor)


def test_the_server_ends_with_git(
    models: Repo, comparisons: Path, sockets: Callable[[], list[Path]]
) -> None:
    with paused(models, comparisons, sockets) as here:
        server = here.server()
        assert here.path.name.split("-")[2] == str(here.git.pid)
        assert here.path.stat().st_uid == os.geteuid()
        here.git.kill()
        assert ended(server)
        assert sockets() == []
        here.go_on()


def test_a_server_that_is_killed(
    models: Repo, comparisons: Path, sockets: Callable[[], list[Path]]
) -> None:
    with paused(models, comparisons, sockets) as here:
        process = here.server()
        os.kill(process, signal.SIGKILL)
        assert ended(process)
        assert here.go_on().count(BROKEN) == len(NAMES) - 1, "each works by itself"
    left = sockets()
    assert left == [here.path]
    assert BROKEN not in models.git("diff", "HEAD~1", "HEAD")
    assert here.path not in sockets(), "its git no longer lives"


def test_two_gits(models: Repo, comparisons: Path, sockets: Callable[[], list[Path]]) -> None:
    alone = one_by_one(models)
    with paused(models, comparisons, sockets) as here:
        text = comparisons.read_text()
        comparisons.write_text(text.replace("!= 2 ]", "!= none ]"))
        assert models.git("diff", "HEAD~1", "HEAD") == alone
        assert here.path in sockets(), "the other one's git lives"
        comparisons.write_text(text)
        assert here.go_on() == alone


BAD = {
    "nothing": b"",
    "half a size": b"\x00\x00",
    "a size alone": struct.pack("=I", 1000),
    "too much": struct.pack("=I", 2**32 - 1) + bytes(1000),
    "no descriptors": struct.pack("=I", 5) + b"0\0a=b",
}


def test_bad_clients(models: Repo, comparisons: Path, sockets: Callable[[], list[Path]]) -> None:
    alone = one_by_one(models)
    with paused(models, comparisons, sockets) as here:
        for request in BAD.values():
            with here.connect() as client:
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
                # Told that it ended, and not that it was taken.
                assert client.recv(100)[:1] == b"="
        descriptors = [os.open(os.devnull, os.O_RDWR) for _ in range(4)]
        with here.connect() as client:
            socket.send_fds(client, [struct.pack("=I", 5)], descriptors)
            client.sendall(b"x\0a=b")
            assert client.recv(100)[:1] == b"="
        for descriptor in descriptors:
            os.close(descriptor)
        # More than are answered at a time: the last are turned away, and none is waited for.
        idle = [here.connect() for _ in range(40)]
        for client in idle:
            with client:
                client.shutdown(socket.SHUT_WR)
                # Till it is answered or turned away: the next client is to find room.
                with contextlib.suppress(ConnectionResetError):
                    assert client.recv(100)[:1] in (b"=", b"")
        assert here.go_on() == alone


@pytest.fixture
def wide(templates: Templates, models: Repo) -> Repo:
    """A second file of which a diff tells more than a pipe holds."""
    return Repo(templates.copy("wide models", partial(_make_wide, templates), models.path))


def _make_wide(templates: Templates, folder: Path) -> None:
    models = Repo(templates.copy("models", _make_models, folder))
    tensors = {
        f"layers.{n}.weight": {"dtype": "F32", "shape": [1], "data_offsets": [4 * n, 4 * n + 4]}
        for n in range(1000)
    }
    header = json.dumps(tensors).encode()
    for value in (1.0, 2.0):
        content = struct.pack("<Q", len(header)) + header + struct.pack("<f", value) * len(tensors)
        models.write("wide.safetensors", content)
        models.write(NAMES[0], safetensors(value))
        models.add()
        models.commit()


def children(process: int) -> list[int]:
    told = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(number) for number in told.split()]


def awaited(git: int) -> int:
    """The driver that this git waits for, which a shell may have started."""
    started = children(git)
    below = [process for parent in started for process in children(parent)]
    words = b"-m\0wtxtgit\0diff-driver\0"
    (found,) = [
        process
        for process in (*started, *below)
        if words in Path(f"/proc/{process}/cmdline").read_bytes()
    ]
    return found


@contextmanager
def blocked(repo: Repo, sockets: Callable[[], list[Path]]) -> Iterator[tuple[Paused, int]]:
    """A git of whose output nobody reads all, and the process that can't go on writing it."""
    command = [run.executable(), "diff", "HEAD~1", "HEAD"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # Not read ahead: what waits for room in the pipe would go on.
    with subprocess.Popen(command, 0, cwd=repo.path, process_group=0, **pipes) as git:
        assert git.stdout is not None
        # The first file's and the second one's header.
        while not (line := git.stdout.readline()).startswith(b"diff --wtxt wide.safetensors"):
            assert line
        (path,) = sockets()
        here = Paused(git, path, path)
        (worker,) = children(here.server())
        yield here, worker
        assert git.wait(DEADLINE)


def test_a_signal_ends_the_driver_as_well(wide: Repo, sockets: Callable[[], list[Path]]) -> None:
    with blocked(wide, sockets) as (here, worker):
        os.kill(worker, signal.SIGKILL)
        _, said = here.git.communicate(timeout=DEADLINE)
        assert b"fatal: external diff died" in said


def test_what_works_for_a_driver_ends_with_it(
    wide: Repo, sockets: Callable[[], list[Path]]
) -> None:
    with blocked(wide, sockets) as (here, worker):
        os.kill(awaited(here.git.pid), signal.SIGKILL)
        assert ended(worker)
        _, said = here.git.communicate(timeout=DEADLINE)
        assert b"wtxtgit: error: terminated" in said


def test_ctrl_c(wide: Repo, sockets: Callable[[], list[Path]]) -> None:
    with blocked(wide, sockets) as (here, worker):
        server = here.server()
        os.killpg(here.git.pid, signal.SIGINT)
        _, said = here.git.communicate(timeout=DEADLINE)
        assert ended(worker)
        assert ended(server)
        # By the driver, and by the filter that git has started.
        assert set(said.splitlines()) == {b"wtxtgit: error: interrupted"}
        assert here.git.returncode == -signal.SIGINT


def test_a_pager_is_not_waited_for(models: Repo, comparisons: Path, tmp_path: Path) -> None:
    """It reads until nobody can write, and git waits for it."""
    log = tmp_path / "log"
    leader, follower = os.openpty()
    variables = {**os.environ, "GIT_PAGER": f"cat > {log}", "TERM": "xterm"}
    command = [run.executable(), "diff", "HEAD~1", "HEAD"]
    with subprocess.Popen(command, cwd=models.path, env=variables, stdout=follower) as git:
        os.close(follower)
        assert git.wait(DEADLINE) == 0
    os.close(leader)
    assert log.read_bytes().count(b"diff --wtxt") == len(NAMES)
    assert BROKEN not in log.read_bytes()
