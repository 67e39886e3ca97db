"""What follows from samples, and what a process held: `bench.measure`, `bench.memory`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.measure import (
    MIB,
    Against,
    BenchError,
    Entrant,
    Place,
    Ratio,
    Sample,
    Subject,
    command,
    output,
    race,
    rows,
)
from bench.memory import Watch, descendants, memory


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path)
    found.folder("home")
    found.folder("tmp")
    return found


def test_the_best_the_median_and_the_rate() -> None:
    (row,) = rows(
        [Subject("a", 6_000_000)],
        {"a": [Sample(3.0, 7, 1), Sample(1.0, 5, 4), Sample(2.0)]},
    )
    assert (row.best, row.median, row.rate) == (1.0, 2.0, 3.0)
    assert (row.resident, row.anonymous) == (7, 4)
    assert row.times == (3.0, 1.0, 2.0)


def test_memory_that_nobody_looked_at_is_not_known() -> None:
    (row,) = rows([Subject("a")], {"a": [Sample(1.0)]})
    assert (row.rate, row.resident, row.anonymous) == (None, None, None)


def test_a_ratio_is_the_median_of_those_of_single_turns() -> None:
    # The machine was twice as slow in the second turn, for both.
    series = {"floor": [Sample(1.0), Sample(2.0), Sample(1.0)]}
    series["a"] = [Sample(3.0), Sample(6.0), Sample(5.0)]
    _, row = rows([Subject("floor"), Subject("a", against=(Against("floor", 4),))], series)
    assert row.ratios == (Ratio("floor", "time", 3.0, 4),)


def test_a_rate_is_compared_by_the_byte() -> None:
    series = {"big": [Sample(1.0)], "small": [Sample(0.5)]}
    big, small = Subject("big", 100), Subject("small", 25, (Against("big", 0.5, "rate"),))
    _, row = rows([big, small], series)
    assert row.ratios[0].value == 0.5
    assert row.ratios[0].is_met


def test_seconds_beyond_a_floor_are_given_for_256_mib() -> None:
    series = {"floor": [Sample(1.0)], "a": [Sample(3.0)]}
    slow = Subject("a", 1024 * MIB, (Against("floor", 0.4, "beyond"),))
    _, row = rows([Subject("floor"), slow], series)
    assert row.ratios[0].value == 0.5
    assert row.ratios[0].is_met is False


def test_a_floor_that_did_not_run_is_left_out() -> None:
    (row,) = rows([Subject("a", against=(Against("git-lfs add", 1.25),))], {"a": [Sample(1.0)]})
    assert row.ratios == ()


@pytest.mark.parametrize(
    ("ratio", "met"),
    [
        (Ratio("f", "time", 1.25, 1.25), True),
        (Ratio("f", "time", 1.26, 1.25), False),
        (Ratio("f", "rate", 0.95, 0.95), True),
        (Ratio("f", "rate", 0.94, 0.95), False),
        (Ratio("f", "beyond", -1.0, 0.5), True),
        (Ratio("f", "beyond", 0.6, 0.5), False),
        (Ratio("f", "time", 9.0, None), None),
    ],
)
def test_a_target_is_met(ratio: Ratio, met: bool | None) -> None:
    assert ratio.is_met is met


def test_a_race_takes_turns() -> None:
    done: list[str] = []

    def entrant(name: str) -> Entrant:
        def action() -> Sample:
            done.append(name)
            return Sample(1.0)

        return Entrant(name, action=action, before=lambda: done.append(f"before {name}"))

    race([entrant("a"), entrant("b")], 2)
    assert done == ["before a", "a", "before b", "b"] * 2


def test_a_command_runs_with_nothing_of_the_users(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    program = "import os; print(os.environ.get('GIT_DIR'), os.environ['HOME'], os.getcwd())"
    sample, said = output(place, sys.executable, "-c", program)
    assert said.decode() == f"None {place.top}/home {place.top}\n"
    assert sample.seconds > 0


def test_a_command_that_fails_says_why(place: Place) -> None:
    with pytest.raises(BenchError, match=r"ended with 3: no such thing"):
        command(
            place,
            sys.executable,
            "-c",
            "import sys; print('no such thing', file=sys.stderr); sys.exit(3)",
        )


def test_what_a_process_held_at_most(place: Place) -> None:
    """As the kernel tells it at the end, however short the process was."""
    size = 300 * MIB
    sample = command(
        place, sys.executable, "-c", f"bytearray({size})[::4096] = bytes({size} // 4096)"
    )
    assert sample.resident is not None
    assert sample.resident > size


def test_memory_of_processes_below_one() -> None:
    program = "import sys; held = bytearray(b'x') * (64 << 20); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        assert process.pid in descendants(os.getpid())
        assert memory(process.pid)["RssAnon"] > 64 * MIB
        with Watch(os.getpid()) as watch:
            while watch.anonymous == 0:
                pass
        assert watch.anonymous > 64 * MIB
        process.stdin.close()
    assert descendants(process.pid) == [process.pid]
    assert memory(process.pid) == {}
