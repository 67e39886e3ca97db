"""Very much of anything: memory is bounded by the input's size, and the work grows with it alone.

A reader takes at most 64 MiB and three times its input. What becomes an object of Python's for
each few bytes (`docs/reliability.md`, section "Limits") may cost so much more for each of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial

import pytest

from tests.fuzz.many import DELTAS, FILES, TEXTS, ledger
from tests.kit.resident import STATM, growth_of, mapped
from tests.scale.many import MANY, calls
from wtxtgit.containers import any_format, registry
from wtxtgit.errors import WtxtgitError
from wtxtgit.filter.clean import clean
from wtxtgit.filter.smudge import smudge
from wtxtgit.io.view import ByteView
from wtxtgit.text import ledger as ledgers
from wtxtgit.text.arrays import LazySnapshot
from wtxtgit.text.delta.index import check as check_delta
from wtxtgit.text.index import index
from wtxtgit.text.recovery.rebuilding import recover
from wtxtgit.text.verify import verify

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not STATM.exists(), reason="there is no /proc here: run it on Linux"),
]

BASE = 64 * 2**20
FACTOR = 3
SLACK = 24 * 2**20
"""What of four times as much may be blocks of a fixed size: those of a second window or thread."""

Read = Callable[[memoryview], object]


def _all(pieces: Iterable[object]) -> None:
    for _ in pieces:
        pass


def _cleaned(view: memoryview) -> None:
    _all(clean(view, threads=1).pieces())


# Each does what the others of its kind do as well; every night it is all of them.
READS: dict[str, Read] = {"verify": partial(verify, threads=1), "open": LazySnapshot}
FILE_READS: dict[str, Read] = {"check": any_format.check, "clean": _cleaned}
if MANY > 1:
    READS |= {
        "index": index,
        "smudge": lambda view: _all(smudge(view, threads=1).pieces()),
        "clean": _cleaned,
    }
    FILE_READS |= {"describe": lambda view: _all(any_format.tensors(any_format.describe(view)))}


@pytest.fixture(autouse=True, scope="module")
def _loaded() -> None:
    """What is imported on the way is no reader's."""
    for known in registry.FORMATS:
        for part in (known.read, known.describe, known.check):
            part()


def hold(read: Read, make: Callable[[int], bytes], n: int, each: int = 0) -> None:
    """Both bounds: of the whole, and of what three times as many more add."""
    growths, sizes = [], []
    for count in (n, 4 * n):
        view = mapped(make(count))
        sizes.append(len(view))
        growths.append(growth_of(partial(_refused, read, view)))
        assert growths[-1] < BASE + FACTOR * len(view) + each * count, count
    assert growths[1] - growths[0] < SLACK + FACTOR * (sizes[1] - sizes[0]) + each * 3 * n


def _refused(read: Read, view: ByteView) -> None:
    try:
        read(memoryview(view))
    except WtxtgitError:
        return


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("name", TEXTS)
def test_a_text_of_very_much(name: str, read: str) -> None:
    make, n, each = TEXTS[name]
    hold(READS[read], make, n * MANY, each)


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_of_very_much_is_recovered(name: str) -> None:
    # What no hash settles is looked for, which takes long.
    make, n, each = TEXTS[name]
    hold(recover, make, n // 60, each)


@pytest.mark.parametrize("name", DELTAS)
def test_a_delta_of_very_much(name: str) -> None:
    make, n, each = DELTAS[name]
    hold(check_delta, make, n * MANY, each)


def test_a_ledger_of_very_much() -> None:
    hold(ledgers.read, ledger, 2_000)


@pytest.mark.parametrize("read", FILE_READS)
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_very_much(name: str, read: str) -> None:
    make, n, each = FILES[name]
    hold(FILE_READS[read], make, n * MANY, each)


@pytest.fixture
def _in_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are counted in one thread."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)


def hold_work(read: Read, make: Callable[[int], bytes], n: int) -> None:
    _refused(read, memoryview(make(n)))
    counts = [calls(partial(_refused, read, memoryview(make(count)))) for count in (n, 4 * n)]
    # Of work that grows with the square it is sixteen times.
    assert counts[1] <= 5 * counts[0], counts


@pytest.mark.usefixtures("_in_this_thread")
@pytest.mark.parametrize("name", TEXTS)
def test_work_on_a_text_grows_with_it_alone(name: str) -> None:
    make, n, _ = TEXTS[name]
    hold_work(READS["verify"], make, n // 10)


@pytest.mark.usefixtures("_in_this_thread")
@pytest.mark.parametrize("name", FILES)
def test_work_on_a_file_grows_with_it_alone(name: str) -> None:
    make, n, _ = FILES[name]
    hold_work(FILE_READS["check"], make, n // 10)


def test_a_line_that_goes_on() -> None:
    make, _, _ = TEXTS["bytes of one line"]
    # Every night it is a GiB.
    view = mapped(make(2**30 if MANY > 1 else 2**26))
    for name, read in READS.items():
        assert growth_of(partial(_refused, read, view)) < BASE + FACTOR * len(view), name
