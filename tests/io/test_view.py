"""Views of files behave alike, mapped as a whole or a window at a time.

Files mapped a window at a time: the same bytes, little of them mapped.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import seeded
from tests.io.copies import Copies, windowed
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io import view as io_view
from wtxtgit.io.view import PIECE, FileWindows, Windowed, mapped, pieces, view_of, write_parts

places = st.one_of(st.none(), st.integers(-40, 40))


@given(st.binary(max_size=30), st.lists(st.tuples(places, places), max_size=3))
def test_slices_of_slices_are_those_of_bytes(
    content: bytes, cuts: list[tuple[int | None, int | None]]
) -> None:
    wanted, found = content, windowed(content)
    for start, end in cuts:
        wanted, found = wanted[start:end], found[start:end]
    assert isinstance(found, Windowed)
    assert bytes(found) == wanted
    assert (len(found), found.nbytes, bool(found)) == (len(wanted), len(wanted), bool(wanted))
    assert mapped(found) == wanted
    assert [found[n] for n in range(len(found))] == list(wanted)
    assert [found[-n] for n in range(1, len(found) + 1)] == list(reversed(wanted))


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_comparing_is_that_of_bytes(one: bytes, other: bytes) -> None:
    for second in (other, bytearray(other), memoryview(other), windowed(other)):
        assert (windowed(one) == second) is (one == other)
        assert (second == windowed(one)) is (one == other)
        assert (windowed(one) != second) is (one != other)
    assert windowed(one) != "words"


def test_long_views_are_compared_piece_by_piece() -> None:
    content = bytes(PIECE) * 2 + b"end"
    assert windowed(content, most=PIECE) == memoryview(content)
    assert windowed(content, most=PIECE) != memoryview(content[:-1] + b"!")


@given(st.binary(max_size=50), st.integers(1, 20))
def test_pieces_are_the_bytes_in_order(content: bytes, step: int) -> None:
    for view in (memoryview(content), windowed(content, most=step)):
        found = [bytes(piece) for piece in pieces(view, step)]
        assert b"".join(found) == content
        assert all(len(piece) == step for piece in found[:-1])


def test_a_part_starts_and_ends_where_it_is_said() -> None:
    part = Windowed(Copies(b"0123456789", 4), 3, 7)
    assert bytes(part) == b"3456"
    assert bytes(Windowed(Copies(b"0123", 4))) == b"0123"


def test_nothing_is_mapped_for_lengths_and_slices() -> None:
    view = windowed(b"content", most=0)
    assert len(view[2:][:3]) == 3
    assert bytes(view[4:4]) == b""
    assert view != b"longer than it"


@pytest.mark.parametrize("at", [3, -4])
def test_an_index_outside_is_refused(at: int) -> None:
    with pytest.raises(IndexError):
        windowed(b"abc")[at]


def test_what_it_can_not_do_is_refused() -> None:
    view = windowed(b"abc")
    with pytest.raises(NotImplementedError):
        view[::2]
    with pytest.raises(TypeError):
        hash(view)


SIZE = 64 * 1024
CONTENT = seeded("mapping").randbytes(10 * SIZE + 123)

NEEDS_PROC = pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="there is no /proc here: run it on Linux"
)


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


def test_under_a_limit_less_is_mapped(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_view, "address_space", lambda: 8 * len(CONTENT))
    assert isinstance(view_of(file), memoryview)
    monkeypatch.setattr(io_view, "address_space", lambda: 8 * len(CONTENT) - 8)
    view = view_of(file)
    assert isinstance(view, Windowed)
    assert view == CONTENT
    for limit in (1, 256 * 2**20, 256 * 2**20 + 1, sys.maxsize):
        monkeypatch.setattr(io_view, "address_space", lambda limit=limit: limit)
        view = Windowed(FileWindows(file, len(CONTENT)))
        assert all(bytes(view[at : at + 5000]) == CONTENT[at : at + 5000] for at in (0, 9, 12345))


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
        f"no address space left to map {2**30} bytes of a file "
        "ulimit -v shows how much address space a process may use\n"
    )


@pytest.mark.parametrize("most", [1, 7, 10**6])
def test_parts_are_written_whatever_the_system_takes(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [bytes([n % 256]) * (n % 5) for n in range(2000)]

    def writev(descriptor: int, parts: list[memoryview]) -> int:
        return os.write(descriptor, b"".join(parts)[:most])

    monkeypatch.setattr(os, "writev", writev)
    with (tmp_path / "written").open("wb") as file:
        write_parts(file.fileno(), parts)
    assert (tmp_path / "written").read_bytes() == b"".join(parts)
