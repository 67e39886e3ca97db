"""Files of some GiB through commands that may use a quarter of one of address space.

2 GiB through git; through other commands, and of detached texts, somewhat more than that limit.
Where WTXTGIT_LARGE says how many, as many GiB through all of them.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import numpy as np
import pytest
from blake3 import blake3

from bench.memory import Watch
from tests.data import seeded
from tests.kit import LAUNCHER, Repo
from tests.kit.temporary import DISK
from wtxtgit.git.filter_protocol import PacketWriter

pytestmark = pytest.mark.large

GIB = 1024**3
_GIVEN = os.environ.get("WTXTGIT_LARGE")
SIZE = int(_GIVEN or "2") * GIB
LIMIT = GIB // 4
"""Of which Python and its libraries take 107 MiB."""
ROOMLESS = SIZE if _GIVEN else LIMIT * 3 // 4
"""Bytes of a file that has no room in what is left of that."""
OVER = SIZE if _GIVEN else LIMIT * 5 // 4
"""Bytes of a file that would be seen if half of it was held."""
ISLANDS = 300
ISLAND = 100_000
NOTHING = Path(os.devnull)
BLOCK = 16 * 1024**2
MOST_OF_GIT, MOST_OF_FILTER = 64 * 1024**2, 192 * 1024**2
LEAST = 8 * 1024**2
"""Any process that imports numpy holds more: else nobody looked at it."""


@dataclass(frozen=True)
class Model:
    """A file, the digest of it, and its text."""

    path: Path
    digest: str
    text: Path


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))


@pytest.fixture(autouse=True)
def _small_machine(monkeypatch: pytest.MonkeyPatch, disk: Path) -> None:
    """Two threads, as on a machine of two cores; and a real disk."""
    monkeypatch.setenv("WTXTGIT_THREADS", "2")
    monkeypatch.setenv("TMPDIR", str(disk))


def run(*arguments: str | Path, stdin: Path = NOTHING, cwd: Path | None = None) -> None:
    with stdin.open("rb") as given:
        done = subprocess.run(
            (*LAUNCHER.arguments, *arguments),
            cwd=cwd,
            stdin=given,
            capture_output=True,
            preexec_fn=limited,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-2000:]


@contextmanager
def running(*arguments: str | Path, stdin: Path = NOTHING) -> Iterator[IO[bytes]]:
    """What a command gives on standard output."""
    with stdin.open("rb") as given:
        process = subprocess.Popen(
            (*LAUNCHER.arguments, *arguments),
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=limited,
        )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        yield process.stdout
        errors = process.stderr.read()
    assert process.returncode == 0, errors[-2000:]


def digest(file: IO[bytes]) -> str:
    # SHA-256 of some GiB takes a sixth of all that is done here.
    hashed = blake3()
    while block := file.read(1 << 20):
        hashed.update(block)
    return hashed.hexdigest()


def make(path: Path, size: int) -> None:
    """Write a safetensors file of two matrices of `size` bytes together, noise in zeros."""
    half = size // 2
    tensors = {
        name: {"dtype": "F32", "shape": [half // 4096, 1024], "data_offsets": [at, at + half]}
        for name, at in (("first", 0), ("second", half))
    }
    header = json.dumps(tensors).encode()
    rng = seeded("large")
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        start = file.tell()
        file.truncate(start + size)
        for place in [0, half - ISLAND // 2, size - ISLAND, *rng.sample(range(size), ISLANDS)]:
            file.seek(start + min(place, size - ISLAND))
            file.write(rng.randbytes(ISLAND))


def model(folder: Path, size: int) -> Model:
    path = folder / "model.safetensors"
    make(path, size)
    text = folder / "model.wtxt"
    run("emit", path, "-o", text)
    with path.open("rb") as file:
        return Model(path, digest(file), text)


@pytest.fixture(scope="module")
def disk() -> Iterator[Path]:
    """A folder on a real disk: the files are too large for memory."""
    with TemporaryDirectory(dir=DISK) as folder:
        yield Path(folder)


@pytest.fixture
def tmp_path(disk: Path) -> Iterator[Path]:
    """As in other tests, on that disk."""
    folder = disk / "test"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def test_a_large_file_is_checked_and_comes_back(tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free < 3 * ROOMLESS:
        pytest.skip("less disk is free than three times such a file")
    large = model(tmp_path, ROOMLESS)
    assert large.text.stat().st_size > ROOMLESS * 4 // 3
    run("verify", large.text)
    with running("restore", large.text, "-o", "-") as restored:
        assert digest(restored) == large.digest
    # As a pipe takes it, and gives it.
    with large.text.open("rb") as file:
        wanted = digest(file)
    with running("clean", "model.safetensors", stdin=large.path) as cleaned:
        assert digest(cleaned) == wanted
    with running("emit", large.path) as emitted:
        assert digest(emitted) == wanted
    with running("smudge", "model.safetensors", stdin=large.text) as smudged:
        assert digest(smudged) == large.digest


def test_a_large_file_goes_into_git_and_comes_back(repo: Repo, driver: None, disk: Path) -> None:
    if shutil.disk_usage(disk).free < 3 * SIZE:
        pytest.skip("less disk is free than three times such a file")
    repo.track("*.safetensors")
    file = repo.path / "model.safetensors"
    make(file, SIZE)
    with file.open("rb") as made:
        wanted = digest(made)
    run("add", "model.safetensors", cwd=repo.path)
    assert int(repo.git("cat-file", "-s", ":model.safetensors")) > SIZE * 4 // 3
    file.unlink()
    run("checkout", "model.safetensors", cwd=repo.path)
    with file.open("rb") as written:
        assert digest(written) == wanted
    # Not `git diff-files`: of a file of the index's own second it reads all, which is not its test.
    listed = repo.git("ls-files", "--debug", "model.safetensors").decode()
    status = file.stat()
    at = divmod(status.st_mtime_ns, 10**9)
    assert f"mtime: {at[0]}:{at[1]}\n" in listed
    assert f"size: {status.st_size & 0xFFFFFFFF}\t" in listed


def of_noise(path: Path, size: int) -> str:
    """Write a matrix as training leaves it, of which no two chunks are alike; gives its digest."""
    shape = [size // 4096, 1024]
    header = json.dumps({"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}).encode()
    generator = np.random.default_rng(1)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for _ in range(0, size, BLOCK):
            file.write(generator.standard_normal(BLOCK // 4, np.float32).data)
    with path.open("rb") as file:
        return digest(file)


def held(repo: Repo, *argv: str | Path, stdin: Path = NOTHING) -> tuple[int, int, int]:
    """What a command held at most: resident itself; anonymous below it, and in all."""
    with stdin.open("rb") as given:
        process = subprocess.Popen(
            argv, cwd=repo.path, stdin=given, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    assert process.stderr is not None
    with process, Watch(process.pid) as watch:
        errors = process.stderr.read()
    assert process.returncode == 0, errors[-2000:]
    return watch.own, watch.below, watch.anonymous


def told(what: str) -> None:
    """Say what was held, in bytes: `pytest -s` shows it."""
    print(f"{OVER >> 20} MiB: {what}")


@pytest.mark.true_start
def test_memory_does_not_grow_with_detached_files(repo: Repo, driver: None, disk: Path) -> None:
    if shutil.disk_usage(disk).free < 3 * OVER:
        pytest.skip("less disk is free than three times such a file")
    file = repo.path / "model.safetensors"
    repo.write(".gitattributes", "*.safetensors filter=wtxt-detached -text\n")
    wanted = of_noise(file, OVER)
    git, below, _ = held(repo, "git", "add", "model.safetensors")
    told(f"git add: git itself {git}, its filter {below}")
    assert git < MOST_OF_GIT
    assert LEAST < below < MOST_OF_FILTER
    text = repo.path.parent / "text"
    text.write_bytes(repo.blob("model.safetensors"))
    assert text.read_bytes().startswith(b"WTXT-DETACHED 1\n")
    # Anew: what already exists is not encoded again.
    repo.git("rm", "-q", "--cached", "model.safetensors")
    shutil.rmtree(repo.path / ".git" / "wtxt" / "store")
    _, _, own = held(repo, *LAUNCHER.arguments, "add", "--", "model.safetensors")
    told(f"wtxtgit add {own}")
    assert LEAST < own < MOST_OF_FILTER
    file.unlink()
    _, _, own = held(repo, *LAUNCHER.arguments, "checkout", "--", "model.safetensors")
    told(f"wtxtgit checkout {own}")
    assert LEAST < own < MOST_OF_FILTER
    with file.open("rb") as written:
        assert digest(written) == wanted
    file.unlink()
    # Git holds what the filter gives it: the filter is asked without git.
    asked = repo.path.parent / "asked"
    with asked.open("wb") as requests, text.open("rb") as content:
        ask_smudge(PacketWriter(requests), b"model.safetensors", content)
    for _ in range(2):
        _, _, own = held(repo, *LAUNCHER.arguments, "filter-process", "--detached", stdin=asked)
        told(f"filter in a checkout {own}")
        assert LEAST < own < MOST_OF_FILTER
        # Proved before, and not.
        shutil.rmtree(repo.path / ".git" / "wtxtgit", ignore_errors=True)


def ask_smudge(git: PacketWriter, path: bytes, text: IO[bytes]) -> None:
    """What git writes to a filter of which it wants one file."""
    for line in (b"git-filter-client", b"version=2"):
        git.line(line)
    git.flush_packet()
    for line in (b"capability=clean", b"capability=smudge"):
        git.line(line)
    git.flush_packet()
    for line in (b"command=smudge", b"pathname=" + path):
        git.line(line)
    git.flush_packet()
    git.content(iter(partial(text.read, BLOCK), b""))
    git.flush_packet()


def test_what_has_no_room_says_so(tmp_path: Path) -> None:
    path = tmp_path / "model.npy"
    with path.open("wb") as file:
        header = b"{'descr': '<f4', 'fortran_order': True, 'shape': (20000, 20000), }"
        header += b" " * (117 - len(header)) + b"\n"
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        file.truncate(file.tell() + 4 * 20000**2)
    done = subprocess.run(
        (*LAUNCHER.arguments, "inspect", path), capture_output=True, preexec_fn=limited, check=False
    )
    assert done.returncode == 5, done.stderr
    assert b": no memory left for 1600000000 bytes of it\n" in done.stderr
    assert b"wtxtgit: hint: ulimit -v" in done.stderr
