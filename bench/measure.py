"""Time and memory of processes that take turns, and what follows from both.

Every figure is a whole process started fresh, timed by the wall; what is
compared takes turns, so that a machine whose speed drifts slows both.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bench.memory import Watch

MIB = 1024 * 1024
PYTHON = sys.executable
WTXTGIT = (PYTHON, "-E", "-P", "-m", "wtxtgit")
"""As git calls it: neither the user's nor the folder's modules are in its way."""

BEYOND_BYTES = 256 * MIB
"""What seconds beyond a floor are given for."""
_TOLD = 2000

Kind = Literal["time", "rate", "beyond"]


class BenchError(Exception):
    """What is measured did not do what it is measured for."""


@dataclass(frozen=True)
class Place:
    """Where all is measured: a scratch folder with a home, and nothing of the user's."""

    top: Path

    @property
    def env(self) -> dict[str, str]:
        """The whole environment of what runs there."""
        who = {
            f"GIT_{who}_{what}": "a@example.com"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        return who | {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.top / "home"),
            "TMPDIR": str(self.top / "tmp"),
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
        }

    def folder(self, name: str) -> Path:
        """A folder of that name, made where it is not there."""
        path = self.top / name
        path.mkdir(exist_ok=True)
        return path


@dataclass(frozen=True)
class Sample:
    """One run: seconds, and the most bytes that its processes held at once.

    `own` is what the first of them was resident with, `below` the anonymous ones of all others.
    """

    seconds: float
    resident: int | None = None
    anonymous: int | None = None
    own: int = 0
    below: int = 0


@dataclass(frozen=True)
class Against:
    """What a time is compared with, and what is aimed at.

    "time": the share of the floor's time, at most `target`. "rate": the share
    of the floor's bytes a second, at least `target`. "beyond": seconds more
    than the floor for 256 MiB, at most `target`.
    """

    floor: str
    target: float | None = None
    kind: Kind = "time"


@dataclass(frozen=True)
class Subject:
    """What something measured is called and compared with; `nbytes` of raw data for its rate."""

    name: str
    nbytes: int | None = None
    against: tuple[Against, ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Entrant(Subject):
    """A subject with what is timed of it; `before` is called before each run, and not timed.

    `stored` is asked at the end for the bytes that the last run left.
    """

    action: Callable[[], Sample]
    before: Callable[[], object] | None = None
    stored: Callable[[], int] | None = None


@dataclass(frozen=True)
class Ratio:
    """A comparison's outcome, in the terms of `Against`."""

    floor: str
    kind: Kind
    value: float
    target: float | None

    @property
    def is_met(self) -> bool | None:
        """None where nothing is aimed at."""
        if self.target is None:
            return None
        return self.value >= self.target if self.kind == "rate" else self.value <= self.target


@dataclass(frozen=True)
class Row:
    """One measured thing: times in seconds, rate in MB/s (10^6) of raw bytes, memory in bytes.

    `stored` is what it left under .git, in bytes.
    """

    name: str
    times: tuple[float, ...]
    best: float
    median: float
    rate: float | None
    resident: int | None
    anonymous: int | None
    ratios: tuple[Ratio, ...]
    note: str
    stored: int | None = None


def race(entrants: Sequence[Entrant], runs: int) -> list[Row]:
    """Run all of them in turns, so many times, and compare them with one another."""
    series: dict[str, list[Sample]] = {entrant.name: [] for entrant in entrants}
    for _ in range(runs):
        for entrant in entrants:
            if entrant.before is not None:
                entrant.before()
            series[entrant.name].append(entrant.action())
    return [
        row if entrant.stored is None else replace(row, stored=entrant.stored())
        for row, entrant in zip(rows(entrants, series), entrants, strict=True)
    ]


def rows(subjects: Sequence[Subject], series: Mapping[str, Sequence[Sample]]) -> list[Row]:
    """What follows from the samples of subjects by name, those of one number taken in one turn."""
    known = {subject.name: subject for subject in subjects}
    made = []
    for subject in subjects:
        samples = series[subject.name]
        times = tuple(sample.seconds for sample in samples)
        best, median = min(times), statistics.median(times)
        ratios = tuple(
            _ratio(against, subject, times, known[against.floor], series[against.floor])
            for against in subject.against
            # A peer that is not installed has not run.
            if against.floor in known
        )
        rate = None if subject.nbytes is None else subject.nbytes / median / 1e6
        made.append(
            Row(
                subject.name,
                times,
                best,
                median,
                rate,
                _most(sample.resident for sample in samples),
                _most(sample.anonymous for sample in samples),
                ratios,
                subject.note,
            )
        )
    return made


def _ratio(
    against: Against,
    subject: Subject,
    times: Sequence[float],
    floor: Subject,
    floor_samples: Sequence[Sample],
) -> Ratio:
    pairs = list(zip(times, (sample.seconds for sample in floor_samples), strict=True))
    match against.kind:
        case "time":
            value = statistics.median(taken / base for taken, base in pairs)
        case "rate":
            scale = (subject.nbytes or 1) / (floor.nbytes or 1)
            value = statistics.median(scale * base / taken for taken, base in pairs)
        case "beyond":
            scale = BEYOND_BYTES / (subject.nbytes or BEYOND_BYTES)
            value = statistics.median(scale * (taken - base) for taken, base in pairs)
    return Ratio(against.floor, against.kind, value, against.target)


def _most(values: Iterable[int | None]) -> int | None:
    found = [value for value in values if value is not None]
    return max(found, default=None)


def timed(action: Callable[[], object]) -> Sample:
    """The seconds that a call takes."""
    started = time.perf_counter()
    action()
    return Sample(time.perf_counter() - started)


def command(place: Place, *argv: str | Path, cwd: Path | None = None) -> Sample:
    """Run a command to its end; its output is read from a pipe and thrown away in blocks."""
    return output(place, *argv, cwd=cwd)[0]


def output(place: Place, *argv: str | Path, cwd: Path | None = None) -> tuple[Sample, bytes]:
    """Run a command to its end; gives the last block of its output too."""
    with tempfile.TemporaryFile() as err:
        started = time.perf_counter()
        process = subprocess.Popen(
            argv,
            cwd=cwd or place.top,
            env=place.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=err,
        )
        assert process.stdout is not None  # noqa: S101
        watch = Watch(process.pid)
        last = b""
        with process.stdout, watch:
            while block := process.stdout.read(MIB):
                last = block
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            err.seek(0)
            said = err.read()[-_TOLD:].decode(errors="replace")
            raise BenchError(f"{' '.join(map(str, argv))} ended with {process.returncode}: {said}")
    resident = watch.resident
    # A process counts the memory of the one that started it as its own most.
    if usage.ru_maxrss > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
        resident = max(resident, usage.ru_maxrss * 1024)
    return Sample(seconds, resident, watch.anonymous, watch.own, watch.below), last
