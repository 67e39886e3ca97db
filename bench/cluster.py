"""Verifying many files here, and on the workers of a Dask cluster on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.data import model_of, text_of
from bench.measure import (
    PYTHON,
    WTXTGIT,
    Against,
    BenchError,
    Entrant,
    Place,
    Row,
    command,
    race,
)

FILES, WORKERS = 8, 2
_PATIENCE = 60
"""Seconds until a scheduler has to be there."""
_DASK = (PYTHON, "-m", "dask")


def verifications(place: Place, size: int, runs: int) -> list[Row]:
    """The same files by two workers of one thread each: what giving work out costs."""
    text = text_of(place, model_of(place, max(1, size // 4)))
    files = [place.top / f"shared-{number}.wtxt" for number in range(FILES)]
    for path in files:
        os.link(text, path)
    verify: tuple[str | Path, ...] = (*WTXTGIT, "verify", *files)
    nbytes = FILES * max(1, size // 4) << 20
    note = f"{FILES} x {max(1, size // 4)} MiB"
    here = "verify files here"
    with _cluster(place) as address:
        return race(
            [
                Entrant(here, nbytes, (), note, action=partial(command, place, *verify)),
                Entrant(
                    f"verify files, {WORKERS} workers",
                    nbytes,
                    (Against(here),),
                    f"{note}; memory of the client",
                    action=partial(command, place, *verify, "--scheduler", address),
                ),
            ],
            runs,
        )


@contextmanager
def _cluster(place: Place) -> Iterator[str]:
    """A scheduler and its workers on the loopback; gives the scheduler's address."""
    told = place.top / "scheduler.json"
    local = ("--no-dashboard", "--host", "127.0.0.1", "--scheduler-file", told)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((place.top / "cluster.log").open("wb"))
        scheduler = _started(stack, place, log.fileno(), "scheduler", "--port", "0", *local)
        deadline = time.monotonic() + _PATIENCE
        while not told.exists():
            if scheduler.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"no scheduler: {(place.top / 'cluster.log').read_text()[-2000:]}")
            time.sleep(0.1)
        for _ in range(WORKERS):
            _started(stack, place, log.fileno(), "worker", "--nthreads", "1", "--no-nanny", *local)
        yield json.loads(told.read_text())["address"]


def _started(
    stack: contextlib.ExitStack, place: Place, log: int, *words: str | Path
) -> subprocess.Popen[bytes]:
    """A process that is ended when the stack is."""
    process = subprocess.Popen(
        (*_DASK, *words), cwd=place.top, env=place.env, stdout=log, stderr=log
    )

    def end() -> None:
        process.terminate()
        process.wait()

    stack.callback(end)
    return process
