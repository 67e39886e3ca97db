"""Names of 4 KiB, and paths as long as the system takes: told whole as data, clipped for people."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Sequence

import pytest

from tests.kit import LAUNCHER, Repo
from tests.scale.many import checkpoint
from wtxtgit.setup.diagnosis import arguments, listed

NAMES = [*(f"layers.{n}.{'x' * 4085}{n}" for n in range(3)), "ü" * 2048, "short"]
FOLDERS = [f"d{n:02d}-{'y' * 251}" for n in range(14)]
LONG = "/".join([*FOLDERS, "m" * 243 + ".safetensors"])
WIDEST = 60


def write(repo: Repo, path: str, content: bytes) -> None:
    """Write a file whose absolute path may be longer than the system takes."""
    *folders, name = path.split("/")
    here = os.open(repo.path, os.O_RDONLY | os.O_DIRECTORY)
    for folder in folders:
        if not os.access(folder, os.F_OK, dir_fd=here):
            os.mkdir(folder, dir_fd=here)
        inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = inner
    with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, dir_fd=here), "wb") as file:
        file.write(content)
    os.close(here)


def told(repo: Repo, *command: str, ok: Sequence[int] = (0,)) -> str:
    done = repo.wtxtgit(*command, ok=ok)
    assert b"Traceback" not in done.stderr
    return done.stdout.decode()


def seen(repo: Repo, *command: str) -> list[str]:
    """The lines that a terminal of WIDEST columns gets."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, WIDEST, 0, 0))
    argv = [*LAUNCHER.arguments, *command]
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    with subprocess.Popen(argv, cwd=repo.path, stdout=follower, env=environment) as process:
        os.close(follower)
        read = b"".join(iter(lambda: _block(leader), b""))
        assert process.wait(60) == 0
    os.close(leader)
    return re.sub("\x1b\\[[0-9;]*m", "", read.decode()).splitlines()


def _block(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""


@pytest.fixture
def long(repo: Repo, driver: None) -> Repo:
    """Two commits of a checkpoint with long names, at a long path and at a short one."""
    repo.track("*.safetensors")
    for seed in (0, 1):
        for path in (LONG, "a.safetensors"):
            write(repo, path, checkpoint(NAMES, seed))
        repo.add()
        repo.commit()
    return repo


def test_paths_in_messages_are_clipped_and_in_commands_whole() -> None:
    path = LONG.encode()
    assert len(listed([path] * 9)) < 1100
    assert arguments([path]) == LONG
    assert arguments([path, path]) == f"{LONG} ..."
    assert arguments([b"a", b"b c"]) == "a 'b c'"


@pytest.mark.slow
def test_every_command_tells_long_names_whole_as_data(long: Repo) -> None:
    files = json.loads(told(long, "status", "--json"))["files"]
    assert [file["path"] for file in files] == ["a.safetensors", LONG]
    assert LONG in told(long, "ls-files")
    inspected = json.loads(told(long, "inspect", "--json", f"HEAD:{LONG}"))
    assert [tensor["name"] for tensor in inspected["tensors"]] == NAMES
    compared = json.loads(told(long, "diff", "--json", f"HEAD~1:{LONG}", LONG))
    assert [tensor["name"] for tensor in compared["tensors"]] == NAMES
    reviewed = json.loads(told(long, "review", "HEAD~1...HEAD", "--json"))
    assert LONG in json.dumps(reviewed)
    assert NAMES[0] in json.dumps(reviewed)
    assert LONG in told(long, "audit", "--format", "json", "HEAD")
    assert json.loads(told(long, "verify", "--json", LONG))["ok"]
    assert json.loads(told(long, "doctor", "--json"))["ok"]


@pytest.mark.slow
def test_there_and_back(long: Repo) -> None:
    told(long, "emit", LONG, "-o", "o.wtxt")
    told(long, "restore", "o.wtxt", "-o", "back")
    assert (long.path / "back").read_bytes() == checkpoint(NAMES, 1)
    for ending in ("npz", "fold", "pt", "aero"):
        told(long, "convert", "a.safetensors", f"c.{ending}")
        assert json.loads(told(long, "verify", "--json", f"c.{ending}"))["ok"]
        listed = json.loads(told(long, "inspect", "--json", f"c.{ending}"))["tensors"]
        found = [tensor["name"].removeprefix("torch_state/") for tensor in listed]
        assert sorted(found) == sorted(NAMES)
    refused = long.wtxtgit("convert", "a.safetensors", "c.gguf", ok=(3,)).stderr
    assert b"has a name of over 63 bytes" in refused
    assert len(refused) < 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [("status",), ("ls-files",), ("track",), ("inspect", "a.safetensors"), ("inspect", LONG)],
    ids=lambda command: command[0],
)
def test_tables_of_a_narrow_terminal(long: Repo, command: tuple[str, ...]) -> None:
    lines = seen(long, *command)
    tables = [line for line in lines if "  " in line.strip() or "─" in line]
    assert tables
    assert max(map(len, tables)) <= WIDEST
    assert "..." in "".join("".join(lines).split()) or command == ("track",)
    assert len(lines) < 260


@pytest.mark.slow
def test_reports_for_people_are_clipped(long: Repo) -> None:
    markdown = told(long, "review", "HEAD~1...HEAD", "--format", "md")
    assert max(map(len, markdown.splitlines())) < 1000
    html = told(long, "review", "HEAD~1...HEAD", "--format", "html")
    assert "overflow-wrap" in html
    shown = long.git("diff", "HEAD~1", "--", "a.safetensors").decode()
    assert "changed" in shown


@pytest.mark.slow
def test_a_merge_in_conflict_is_told_and_settled(long: Repo) -> None:
    long.git("checkout", "-q", "-b", "other", "HEAD~1")
    for path in (LONG, "a.safetensors"):
        write(long, path, checkpoint(NAMES, 2))
    long.add()
    long.commit()
    long.git("merge", "main", ok=(1,))
    open_ones = json.loads(told(long, "resolve", "--json", ok=(1,)))
    assert LONG in json.dumps(open_ones)
    for path in (LONG, "a.safetensors"):
        told(long, "resolve", path, "--strategy", "ours")
    assert long.git("ls-files", "-u") == b""


@pytest.mark.slow
def test_a_pattern_longer_than_git_reads_is_refused(long: Repo) -> None:
    told(long, "track", "q" * 1990)
    refused = long.wtxtgit("track", LONG, ok=(2,)).stderr
    assert b"is too long: git ignores such a line" in refused
    assert len(refused) < 1000
