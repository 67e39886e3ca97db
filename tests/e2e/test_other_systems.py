"""Where calls and files are missing that Linux alone has, everything works without them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import wtxtgit
from tests.kit import Repo

MISSING = {
    "os": (
        "copy_file_range", "fdatasync", "memfd_create", "pidfd_open", "posix_fadvise",
        "posix_fallocate", "preadv", "sched_getaffinity", "O_TMPFILE", "O_PATH",
    ),
    "fcntl": ("F_SETPIPE_SZ",),
    "mmap": ("MADV_DONTNEED",),
    "socket": ("SO_PEERCRED", "MSG_CMSG_CLOEXEC"),
}  # fmt: skip
"""What macOS, or a Python that was built for an old one, does not have."""

BOOT = f"""\
import fcntl, mmap, os, socket, sys

for module, names in {MISSING!r}.items():
    for name in names:
        delattr(sys.modules[module], name)

# Some look at what is there when they are imported, and at the platform.
import runpy, subprocess, tempfile, shutil, threading, pathlib


def refuse(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith("/proc"):
        raise FileNotFoundError(2, "no such file", arguments[0])


isdir = os.path.isdir
os.path.isdir = lambda path: not str(path).startswith("/proc") and isdir(path)
sys.addaudithook(refuse)
tempfile._O_TMPFILE_WORKS = False  # asked when it is imported
sys.platform = "darwin"
sys.executable = os.environ["LIKE_A_MAC"]
words = [word for word in sys.argv[1:] if word not in ("-E", "-P")]
if words[0] == "-c":
    sys.argv = words
    exec(words[1])
else:
    sys.argv = words[1:]
    runpy.run_module(words[1], run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def like_a_mac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python in which all that is missing."""
    boot = tmp_path / "boot.py"
    boot.write_text(BOOT)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P "{boot}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("LIKE_A_MAC", str(python))
    return python


@pytest.mark.slow
@pytest.mark.true_start
def test_the_main_tasks(like_a_mac: Path, tmp_path: Path, home: Path) -> None:
    (tmp_path / "repo").mkdir()
    repo = Repo(tmp_path / "repo")
    repo.git("init", "-q")

    def run(*words: str) -> str:
        command = [like_a_mac, "-E", "-P", "-m", "wtxtgit", *words]
        done = subprocess.run(command, cwd=repo.path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("install", "--local", "--hooks")
    assert str(like_a_mac) in repo.git("config", "filter.wtxt.process").decode()
    run("track", "*.safetensors")
    run("track", "--detached", "*.npz")
    names = ("model.safetensors", "other.safetensors", "model.npz")
    values = np.random.default_rng(0).standard_normal((1024, 512), "f4")
    contents = {}
    for step in range(2):
        values[step] *= 2
        for name in names:
            wtxtgit.dump({"w": values + len(name)}, repo.path / name)
            contents[name] = (repo.path / name).read_bytes()
        if step:
            repo.git("add", ".")
        else:
            run("add", ".")
        repo.git("commit", "-q", "-m", str(step))
    assert repo.git("diff", "HEAD~1").count(b"1 of 1,024: 1 ") == len(names)
    for checkout in (lambda: repo.git("checkout", "--", "."), lambda: run("checkout", ".")):
        for name in names:
            (repo.path / name).unlink()
        checkout()
        assert {name: (repo.path / name).read_bytes() for name in names} == contents
    assert repo.git("status", "--porcelain") == b""
    run("verify", *names)
    assert list(repo.path.rglob(".wtxtgit-*")) == []


SNAPSHOTS = """
import numpy as np
from wtxtgit.stream import Snapshots

with Snapshots("ring") as snapshots:
    snapshots.publish({"w": np.arange(300_000, dtype="f4")}, gen=1)
"""


@pytest.mark.slow
@pytest.mark.true_start
def test_snapshots(like_a_mac: Path, tmp_path: Path) -> None:
    command = [like_a_mac, "-c", SNAPSHOTS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len([*(tmp_path / "ring").rglob("*.wtxt")]) == 1
