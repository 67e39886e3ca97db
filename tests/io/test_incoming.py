"""Parts of bytes that still come: who asks waits, and is told when they never come."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillWaiting

import pytest

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.io.spool import Arriving
from wtxtgit.io.view import Windowed

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
    arriving = Arriving(len(DATA), part)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: bytes(Windowed(arriving)[10:20]))
        for came in (0, 9, 19):
            arriving.came(came)
            assert is_waiting(asked)
        arriving.came(20)
        assert asked.result(PATIENCE) == DATA[10:20]
    assert arriving.window(0, 20) == DATA[:20]
    assert len(Windowed(arriving)) == len(DATA)


def test_what_will_never_come_is_told() -> None:
    arriving = Arriving(len(DATA), part)
    arriving.came(50)
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(arriving.window, 0, end) for end in (51, 100)]
        arriving.end()
        for future in asked:
            with pytest.raises(EnvironmentFailure, match="50 of 100 bytes came"):
                future.result(PATIENCE)
    assert arriving.window(0, 50) == DATA[:50]


def test_what_comes_late_or_is_too_much_is_not_given() -> None:
    arriving = Arriving(len(DATA), part)
    arriving.came(101)
    arriving.end()
    arriving.came(100)
    with pytest.raises(EnvironmentFailure, match="0 of 100 bytes came"):
        arriving.window(0, 1)
