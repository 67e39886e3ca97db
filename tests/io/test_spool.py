"""Spools: what comes in pieces, in memory or in a file, also where either has no room.

Parts of bytes that still come: who asks waits, and is told when they never come.

Pieces as one view are what they are put together.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillWaiting
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io import spool as module
from wtxtgit.io.spool import (
    AMPLE,
    IN_MEMORY,
    IncomingBytes,
    Spool,
    ample,
    spooled,
)
from wtxtgit.io.view import Windowed

MIB = 1024 * 1024


def nowhere() -> Path | None:
    raise AssertionError("a file is not wanted")


@pytest.mark.parametrize("size", [0, 1, IN_MEMORY - 1, IN_MEMORY, IN_MEMORY + 1, 3 * IN_MEMORY + 5])
def test_a_spool_gives_what_it_got(size: int, tmp_path: Path) -> None:
    data = os.urandom(size)
    asked = []

    def folder() -> Path:
        asked.append(tmp_path)
        return tmp_path

    spool = Spool(folder)
    for start in range(0, size, 1_000_003):
        spool.write(data[start : start + 1_000_003])
    view = spool.view()
    spool.close()
    assert view == data
    assert view.readonly
    assert bool(asked) == (size > IN_MEMORY)
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.integers(0, 300_000), max_size=12), st.integers(0, 1_000_000))
def test_neither_pieces_nor_the_bound_show(sizes: list[int], in_memory: int) -> None:
    pieces = [bytes([ix]) * size for ix, size in enumerate(sizes)]
    assert spooled(pieces, in_memory=in_memory) == b"".join(pieces)


def test_a_piece_is_copied() -> None:
    spool = Spool()
    piece = bytearray(b"abc")
    for word in (b"abc", b"def"):
        piece[:] = word
        spool.write(piece)
    assert spool.view() == b"abcdef"


def test_a_larger_bound_keeps_more_in_memory() -> None:
    data = os.urandom(3 * IN_MEMORY)
    assert spooled([data], nowhere, in_memory=3 * IN_MEMORY) == data
    with pytest.raises(AssertionError):
        spooled([data], nowhere, in_memory=3 * IN_MEMORY - 1)


def test_views_outlive_their_spool(tmp_path: Path) -> None:
    for size in (1000, 2 * IN_MEMORY):
        spool = Spool(lambda: tmp_path)
        spool.write(bytes(size))
        view = spool.view()
        spool.close()
        del spool
        assert view == bytes(size)


@pytest.mark.parametrize("in_memory", [0, 300_000])
@pytest.mark.parametrize("size", [1, 99_999, 250_000])
def test_what_is_expected_can_be_read_while_it_comes(
    in_memory: int, size: int, tmp_path: Path
) -> None:
    data = os.urandom(size)
    spool = Spool(lambda: tmp_path, in_memory=in_memory, expected=size)
    assert spool.incoming is not None
    for start in range(0, size, 1000):
        assert not spool.is_as_expected
        spool.write(data[start : start + 1000])
        come = min(size, start + 1000)
        assert spool.incoming.window(start, come) == data[start:come]
    assert spool.is_as_expected
    assert spool.view() == data
    spool.close()
    assert spool.incoming.window(0, size) == data
    assert spool.incoming.window(0, size).readonly


@pytest.mark.parametrize("in_memory", [0, 150_000, 300_000])
@pytest.mark.parametrize("size", [0, 1, 99_999, 100_001, 101_000, 250_000])
def test_another_number_than_expected_does_not_show(
    in_memory: int, size: int, tmp_path: Path
) -> None:
    data = os.urandom(size)
    spool = Spool(lambda: tmp_path, in_memory=in_memory, expected=100_000)
    for start in range(0, size, 1001):
        spool.write(data[start : start + 1001])
    assert not spool.is_as_expected
    view = spool.view()
    assert len(view) == size
    assert view == data
    assert spool.incoming is not None
    with pytest.raises(EnvironmentFailure):
        spool.incoming.window(0, 100_000)
    spool.close()
    assert view == data


@pytest.mark.parametrize("in_memory", [0, 2**63])
@pytest.mark.parametrize("expected", [2**50, 2**63 - 1])
def test_no_room_for_what_is_expected_does_not_show(
    in_memory: int, expected: int, tmp_path: Path
) -> None:
    # A file in memory can be told to be of any length; most disks refuse it at once.
    spool = Spool(lambda: tmp_path, in_memory=in_memory, expected=expected)
    spool.write(b"some")
    assert not spool.is_as_expected
    assert spool.view() == b"some"
    spool.close()


LIMITED = """
import os, resource, signal, sys
from pathlib import Path
from wtxtgit.io.spool import IN_MEMORY, Spool
data = os.urandom(4 * IN_MEMORY + 1)
asked = []
def folder():
    asked.append(Path(sys.argv[1]))
    return asked[-1]
spool = Spool(folder, in_memory={in_memory}, expected={expected})
{limit}
for start in range(0, len(data), 1_000_003):
    spool.write(data[start:start + 1_000_003])
resource.setrlimit(resource.RLIMIT_AS, 2 * (resource.RLIM_INFINITY,))
assert spool.view() == data
assert len(asked) == 1
"""


def run_limited(
    folder: Path, limit: str, in_memory: str = "IN_MEMORY", expected: str = "None"
) -> None:
    program = LIMITED.format(limit=limit, in_memory=in_memory, expected=expected)
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, timeout=60)


@pytest.mark.parametrize("share", ["1000", "IN_MEMORY - 1", "IN_MEMORY + IN_MEMORY // 2"])
@pytest.mark.parametrize("expected", ["None", "len(data)"])
def test_a_spool_on_a_full_disk_keeps_the_rest_in_memory(
    share: str, expected: str, tmp_path: Path
) -> None:
    """RLIMIT_FSIZE makes the temporary file end in the middle of a piece."""
    run_limited(
        tmp_path,
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, 2 * ({share},))",
        expected=expected,
    )


def test_a_spool_where_no_file_can_be_made_keeps_all_in_memory(tmp_path: Path) -> None:
    run_limited(tmp_path / "missing", "")


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="there is no /proc here: run it on Linux"
)
def test_a_spool_without_room_in_memory_goes_on_in_a_file(tmp_path: Path) -> None:
    """RLIMIT_AS leaves room for a part while it is written, not for all of it."""
    used = "int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()"
    run_limited(
        tmp_path,
        f"limit = {used} + IN_MEMORY\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))",
        in_memory="64 * IN_MEMORY",
    )


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ([], AMPLE),
        ([64 * 1024 * MIB], AMPLE),
        ([2048 * MIB], 256 * MIB),
        ([64 * 1024 * MIB, 1024 * MIB], 128 * MIB),
        ([16 * MIB], IN_MEMORY),
    ],
)
def test_ample_is_a_share_of_the_least(
    sizes: list[int], wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_memory_sizes", lambda: sizes)
    assert ample() == wanted


def test_ample_heeds_the_limit_of_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(module, "_GROUP_LIMITS", (str(tmp_path / "missing"), str(limit)))
    limit.write_text("max\n")
    without = ample()
    limit.write_text(f"{256 * MIB}\n")
    assert ample() == 32 * MIB < without


def test_ample_heeds_a_limit_on_the_address_space() -> None:
    program = (
        "import resource; from wtxtgit.io.spool import ample; "
        "resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30)); print(ample())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=60
    )
    assert int(done.stdout) <= 2**27


DATA = bytes(range(100))
PATIENCE = 60


def part(start: int, end: int) -> memoryview:
    return memoryview(DATA)[start:end]


def is_waiting(future: Future[bytes]) -> bool:
    try:
        future.result(0.02)
    except StillWaiting:
        return True
    return False


def test_a_part_is_given_when_all_of_it_came() -> None:
    incoming = IncomingBytes(len(DATA), part)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: bytes(Windowed(incoming)[10:20]))
        for came in (0, 9, 19):
            incoming.arrived(came)
            assert is_waiting(asked)
        incoming.arrived(20)
        assert asked.result(PATIENCE) == DATA[10:20]
    assert incoming.window(0, 20) == DATA[:20]
    assert len(Windowed(incoming)) == len(DATA)


def test_what_will_never_come_is_told() -> None:
    incoming = IncomingBytes(len(DATA), part)
    incoming.arrived(50)
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(incoming.window, 0, end) for end in (51, 100)]
        incoming.end()
        for future in asked:
            with pytest.raises(EnvironmentFailure, match="50 of 100 bytes came"):
                future.result(PATIENCE)
    assert incoming.window(0, 50) == DATA[:50]


def test_what_comes_late_or_is_too_much_is_not_given() -> None:
    incoming = IncomingBytes(len(DATA), part)
    incoming.arrived(101)
    incoming.end()
    incoming.arrived(100)
    with pytest.raises(EnvironmentFailure, match="0 of 100 bytes came"):
        incoming.window(0, 1)
