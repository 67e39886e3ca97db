"""Files of some GiB through commands that may use a quarter of one of address space.

2 GiB, or as many as WTXTGIT_LARGE says.
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
from hashlib import file_digest, sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import pytest

from tests.data import seeded
from tests.kit import LAUNCHER, Repo
from tests.kit.temporary import DISK

pytestmark = pytest.mark.large

GIB = 1024**3
SIZE = int(os.environ.get("WTXTGIT_LARGE", "2")) * GIB
LIMIT = GIB // 4
"""Of which Python and its libraries take 107 MiB."""
ISLANDS = 300
ISLAND = 100_000
NOTHING = Path(os.devnull)


@dataclass(frozen=True)
class Model:
    """A file, the SHA-256 of it, and its text."""

    path: Path
    sha256: str
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
    hashed = sha256()
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
        return Model(path, file_digest(file, "sha256").hexdigest(), text)


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


@pytest.fixture(scope="module")
def large(disk: Path) -> Model:
    """A file and its text, made under the limit."""
    if shutil.disk_usage(disk).free < 3 * SIZE:
        pytest.skip("less disk is free than three times such a file")
    return model(disk, SIZE)


def test_a_large_file_is_checked_and_comes_back(large: Model) -> None:
    assert large.text.stat().st_size > SIZE * 4 // 3
    run("verify", large.text)
    with running("restore", large.text, "-o", "-") as restored:
        assert digest(restored) == large.sha256


def test_a_large_file_goes_into_git_and_comes_back(large: Model, repo: Repo, driver: None) -> None:
    if shutil.disk_usage(repo.path).free < 3 * SIZE:
        pytest.skip("less disk is free than three times such a file")
    repo.track("*.safetensors")
    file = repo.path / "model.safetensors"
    os.link(large.path, file)
    run("add", "model.safetensors", cwd=repo.path)
    assert int(repo.git("cat-file", "-s", ":model.safetensors")) == large.text.stat().st_size
    file.unlink()
    run("checkout", "model.safetensors", cwd=repo.path)
    with file.open("rb") as written:
        assert digest(written) == large.sha256
    assert repo.git("diff-files") == b""


def test_a_filter_takes_and_gives_large_files(tmp_path: Path) -> None:
    small = model(tmp_path, LIMIT * 5 // 4)
    with small.text.open("rb") as file:
        wanted = digest(file)
    with running("clean", "model.safetensors", stdin=small.path) as cleaned:
        assert digest(cleaned) == wanted
    with running("emit", small.path) as emitted:
        assert digest(emitted) == wanted
    with running("smudge", "model.safetensors", stdin=small.text) as smudged:
        assert digest(smudged) == small.sha256


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
    assert b": no room to hold 1600000000 bytes of it\n" in done.stderr
    assert b"wtxtgit: hint: ulimit -v" in done.stderr
