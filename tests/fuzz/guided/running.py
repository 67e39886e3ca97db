"""Targets fuzzed, each in a process of its own, and what came of it."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import struct
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import NoReturn

from tests.fuzz.guided.target import Target

BUILT = Path(__file__).parents[3] / "build/fuzz"
SLOW = 60
"""Seconds after which one input counts as one that never ends."""
MOST_MEMORY = 1024
"""MiB of a process over which an input counts as one that takes too much."""
SMALLER = 20.0
"""Seconds in which an input that breaks something is made smaller."""
MEASURED = 500
"""Of so many inputs the memory of one is measured, which takes long."""
KNOWING = 0.4
"""The share of mutations that know the format, where there are such."""


@dataclass(frozen=True)
class Length:
    """How long each target is fuzzed: so many seconds, or so many inputs where that is given."""

    seconds: int = 60
    runs: int | None = None
    seed: int = 0

    def flags(self, target: Target) -> list[str]:
        runs = self.runs and self.runs // target.fewer
        limit = f"-runs={runs}" if runs else f"-max_total_time={self.seconds}"
        return [limit, f"-seed={self.seed}"]


@dataclass(frozen=True)
class Outcome:
    """How many inputs a target was given, and took; what broke it, and where that is kept."""

    name: str
    tried: int
    taken: int
    finding: str | None = None
    kept: Path | None = None


@dataclass(frozen=True)
class _Running:
    name: str
    counts: mmap.mmap
    log: Path
    artifacts: Path


def fuzz(
    targets: Mapping[str, Target], length: Length, built: Path = BUILT, beside: int | None = None
) -> Iterator[Outcome]:
    """Fuzz targets, so many beside one another, on top of what was found before.

    Their modules were imported already, instrumented: each process starts with them.
    """
    running: dict[int, _Running] = {}
    left = list(targets)
    most = beside or os.cpu_count() or 1
    while left or running:
        if left and len(running) < most:
            name = left.pop(0)
            one = _places(name, built)
            # What stands in buffers would be written by both.
            sys.stdout.flush()
            process = os.fork()
            if process == 0:
                _fuzz_here(targets[name], one, built / "corpus" / name, length)
            running[process] = one
            continue
        process, status = os.wait()
        one = running.pop(process)
        yield _outcome(targets[one.name], one, status)


def _places(name: str, built: Path) -> _Running:
    artifacts = built / "artifacts" / name
    artifacts.mkdir(parents=True, exist_ok=True)
    for old in artifacts.iterdir():
        old.unlink()
    return _Running(name, mmap.mmap(-1, 16), built / f"{name}.log", artifacts)


def _fuzz_here(target: Target, one: _Running, corpus: Path, length: Length) -> NoReturn:
    """Give the process to the fuzzer, which ends it."""
    import atheris

    log = os.open(one.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        corpus.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(target.inputs()):
            (corpus / f"seed-{number}").write_bytes(seed)
        tried = taken = 0

        def hold(data: bytes) -> None:
            nonlocal tried, taken
            tried += 1
            struct.pack_into("<QQ", one.counts, 0, tried, taken)
            try:
                hold_in = target.hold_in_time if tried % MEASURED else target.hold_in_memory
                taken += hold_in(data)
            except BaseException:
                # The fuzzer keeps only inputs that take too long or too much memory.
                (one.artifacts / "crash").write_bytes(data)
                raise

        def mutated(data: bytes, most: int, seed: int) -> bytes:
            rng = random.Random(seed)  # noqa: S311 - repeatable
            if target.mutate is not None and rng.random() < KNOWING:
                # Such mutations are made for whole files.
                with contextlib.suppress(Exception):
                    return target.mutate(data, rng)[:most]
            return bytes(atheris.Mutate(data, most))

        flags = [
            *length.flags(target),
            f"-max_len={target.longest}",
            f"-timeout={SLOW}",
            f"-report_slow_units={SLOW}",
            f"-rss_limit_mb={MOST_MEMORY}",
            f"-artifact_prefix={one.artifacts}/",
        ]
        atheris.Setup([sys.argv[0], *flags, str(corpus)], hold, custom_mutator=mutated)
        atheris.Fuzz()
    except BaseException:  # noqa: BLE001 - nothing of the parent may go on in this process
        traceback.print_exc()
        os._exit(70)
    os._exit(0)


def _outcome(target: Target, one: _Running, status: int) -> Outcome:
    tried, taken = struct.unpack("<QQ", one.counts[:])
    made = sorted(one.artifacts.iterdir())
    if status == 0 and not made:
        return Outcome(one.name, tried, taken)
    told = one.log.read_text("utf-8", "replace")[-3000:]
    if not made:
        return Outcome(one.name, tried, taken, told)
    data = made[0].read_bytes()
    # What took too long or too much memory would do so here, too.
    if made[0].name == "crash":
        data = smaller(target, data)
        told = _broken(target, data, whole=True) or told
    kept = one.artifacts.parents[1] / "found" / one.name / sha256(data).hexdigest()[:12]
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(data)
    return Outcome(one.name, tried, taken, told, kept)


def smaller(target: Target, data: bytes) -> bytes:
    """A smaller input that breaks a target in the same place, as far as time allows."""
    how = _broken(target, data)
    until = monotonic() + SMALLER
    step = len(data) if how else 0
    while step:
        at = 0
        while at < len(data) and monotonic() < until:
            shorter = data[:at] + data[at + step :]
            if _broken(target, shorter) == how:
                data = shorter
            else:
                at += step
        step //= 2
    return data


def _broken(target: Target, data: bytes, *, whole: bool = False) -> str | None:
    """By what and where an input breaks a target, None where it does not."""
    try:
        target.hold_in_time(data)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        if whole:
            return traceback.format_exc(limit=-6)
        last: Sequence[traceback.FrameSummary] = traceback.extract_tb(error.__traceback__)
        return f"{type(error).__name__} in {last[-1].filename}:{last[-1].lineno}"
    return None
