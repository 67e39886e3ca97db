"""Files mapped a window at a time: the same bytes, little of them mapped."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.data import seeded
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io import view as io_view
from wtxtgit.io.view import FileWindows, Windowed, mapped, pieces, view_of

SIZE = 64 * 1024
CONTENT = seeded("mapping").randbytes(10 * SIZE + 123)

NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    descriptor = os.open(path, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def maps() -> int:
    """Bytes that this process has mapped of the file."""
    total = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("/file"):
            start, end = line.split(" ", 1)[0].split("-")
            total += int(end, 16) - int(start, 16)
    return total


def opened() -> int:
    """Descriptors of the file that this process has."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(str(link.readlink()).endswith("/file") for link in links)


def test_any_part_of_a_file(file: int) -> None:
    view = Windowed(FileWindows(file, len(CONTENT), SIZE))
    assert view == CONTENT
    rng = seeded("places")
    for most in (10, 1000, SIZE // 4, SIZE, 5 * SIZE):
        for _ in range(50):
            start = rng.randrange(len(CONTENT))
            end = min(len(CONTENT), start + rng.randint(0, most))
            assert bytes(view[start:end]) == CONTENT[start:end]


def test_from_many_threads(file: int) -> None:
    view = Windowed(FileWindows(file, len(CONTENT), SIZE))
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda step: b"".join(pieces(view, step)), (100, 5000, 7000, 90_000))
        assert all(each == CONTENT for each in found)


@NEEDS_PROC
def test_few_windows_stay_mapped(file: int) -> None:
    view = Windowed(FileWindows(file, len(CONTENT), SIZE))
    assert sum(map(len, pieces(view, 1000))) == len(CONTENT)
    assert SIZE <= maps() <= io_view.KEPT * (SIZE + SIZE // 4)
    held = mapped(view[: 3 * SIZE])
    assert maps() >= 3 * SIZE
    assert held == CONTENT[: 3 * SIZE]
    del held, view
    gc.collect()
    assert maps() == 0


def test_a_view_outlives_its_window_and_the_descriptor(file: int) -> None:
    view = Windowed(FileWindows(os.dup(file), len(CONTENT), SIZE))
    first = mapped(view[:100])
    assert sum(map(len, pieces(view, 1000))) == len(CONTENT)
    assert first == CONTENT[:100]


def test_small_files_are_mapped_whole(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(view_of(file), memoryview)
    monkeypatch.setattr(io_view, "WHOLE", len(CONTENT) - 1)
    assert isinstance(view_of(file), Windowed)
    assert view_of(file) == CONTENT
    os.truncate(file, 0)
    assert view_of(file) == b""


def test_a_file_that_becomes_shorter_is_told(file: int) -> None:
    view = Windowed(FileWindows(file, len(CONTENT), SIZE))
    os.truncate(file, SIZE)
    with pytest.raises(EnvironmentFailure, match="became shorter"):
        bytes(view[5 * SIZE :])


@NEEDS_PROC
def test_the_file_is_closed_with_the_last_view(file: int) -> None:
    before = opened()
    view = Windowed(FileWindows(file, len(CONTENT), SIZE))
    part = view[10:20]
    assert bytes(part) == CONTENT[10:20]
    del view, part
    gc.collect()
    assert opened() == before


LITTLE_ROOM = """
import os, resource, sys
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io.view import mapped
from wtxtgit.io.view import WHOLE
from wtxtgit.io.view import view_of

view = view_of(os.open(sys.argv[1], os.O_RDONLY))
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
limit = used + 64 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
less = view_of(os.open(sys.argv[2], os.O_RDONLY))
assert not isinstance(less, memoryview) and len(less) == WHOLE and less[-1] == 0
# The last window of the one file leaves no room for any of the other.
assert mapped(view[10**9 : 10**9 + 2**20]) == bytes(2**20)
assert bytes(view[-3:]) == b"end"
try:
    mapped(view[: 2**30])
except EnvironmentFailure as error:
    print(error, error.hint)
"""


@NEEDS_PROC
def test_where_there_is_little_room_less_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(2**31)
        file.seek(0, os.SEEK_END)
        file.write(b"end")
    less = tmp_path / "less"
    with less.open("wb") as file:
        file.truncate(io_view.WHOLE)
    command = [sys.executable, "-c", LITTLE_ROOM, str(path), str(less)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == (
        f"no room to map {2**30} bytes of a file "
        "ulimit -v shows how much address space a process may use\n"
    )
