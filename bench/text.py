"""Writing and reading texts: in one process, and as commands."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench import inside
from bench.data import arrays_of, model_of, text_of
from bench.floors import Command, hashing
from bench.inside import Job, race_inside
from bench.measure import (
    WTXTGIT,
    Against,
    BenchError,
    Entrant,
    Place,
    Row,
    Subject,
    command,
    race,
)
from bench.steps import STEPS

ONCE = "one hashlib pass"
TWICE = "two hashlib passes in a row"
"""As fast as two threads can be with one array: hash_all follows the array's own hash."""
FILL = "fill a file of a text's size"
"""What the system's pages for a new file take, with nothing to compute."""
SMALL, TINY = "2,000 arrays of 50 KB", "20,000 arrays of 64 bytes"
WRITE, READ = "write a text to a file", "read a text, all checked"


def library(place: Place, size: int, runs: int) -> list[Row]:
    """Inside one process: one big array against the limit, many small ones against it."""
    model = model_of(place, size)
    small, tiny = arrays_of(place, 2000, 12_500), arrays_of(place, 20_000, 16)
    nbytes, note = model.stat().st_size, f"{size} MiB"
    floors = (
        Job(Subject(ONCE, nbytes, note=note), inside.sha256_pass, model),
        Job(Subject(TWICE, nbytes, (Against(ONCE),), note), inside.two_passes, model),
    )

    def group(
        name: str, action: inside.Action, path: Path, target: float | None, *more: Job
    ) -> list[Job]:
        others = (Against(job.subject.name) for job in more)
        against = (Against(TWICE, target, "rate"), Against(ONCE), *others)
        return [*floors, *more, Job(Subject(name, nbytes, against, note), action, path)]

    def many(name: str, action: inside.Action, big: Path, path: Path) -> list[Job]:
        against = (Against(name, 0.5, "rate"),)
        subject = Subject(f"{name}, small arrays", small.stat().st_size, against, SMALL)
        return [Job(Subject(name, nbytes), action, big), Job(subject, action, path)]

    text = text_of(place, model)
    fill = Job(Subject(FILL, nbytes, note=note), inside.fill_file, model)
    groups = [
        group(WRITE, inside.write_file, model, 0.95, fill),
        group("write a text to a pipe", inside.write_pipe, model, 0.8),
        group("write a text to nowhere", inside.write_nowhere, model, None),
        group(READ, inside.read_text, text, 0.95),
        many(WRITE, inside.write_file, model, small),
        many(READ, inside.read_text, text, text_of(place, small)),
        [Job(Subject(f"{WRITE}, tiny arrays", note=TINY), inside.write_file, tiny)],
        [Job(Subject(f"{READ}, tiny arrays", note=TINY), inside.read_text, text_of(place, tiny))],
    ]
    return race_inside(place, groups, runs)


def steps(place: Place, size: int, runs: int) -> list[Row]:
    """What writing and reading consist of, on one thread."""
    model = model_of(place, size)
    nbytes, note = model.stat().st_size, f"{size} MiB of the file"
    floor = Job(Subject(ONCE, nbytes, note=note), inside.sha256_pass, model)
    groups = [
        [floor, Job(Subject(name, nbytes, (Against(ONCE),), note), action, model)]
        for name, action in STEPS.items()
    ]
    return race_inside(place, groups, runs)


def commands(place: Place, size: int, runs: int) -> list[Row]:
    """emit, verify and restore as whole processes, against sha256sum and a copy of the file."""
    model = model_of(place, size)
    text = text_of(place, model)
    copy, back = place.top / "copy", place.top / "back.safetensors"
    out = place.top / "out.wtxt"
    summed, hashed = "sha256sum of the file", "hashlib pass"
    both = (Against(hashed), Against(summed))
    listed: list[tuple[str, Command, tuple[Against, ...]]] = [
        (summed, ("sha256sum", model), ()),
        (hashed, hashing(model), ()),
        ("copy of the file", ("cp", "--reflink=never", model, copy), (Against(hashed),)),
        ("emit to a file", (*WTXTGIT, "emit", model, "-o", out), both),
        ("emit to a pipe", (*WTXTGIT, "emit", model), both),
        ("verify the text", (*WTXTGIT, "verify", text), both),
        ("restore the file", (*WTXTGIT, "restore", text, "-o", back), both),
    ]
    nbytes = model.stat().st_size
    found = race(
        [
            Entrant(name, nbytes, against, f"{size} MiB", action=partial(command, place, *argv))
            for name, argv, against in listed
        ],
        runs,
    )
    if back.read_bytes() != model.read_bytes():
        raise BenchError("the restored file differs")
    for path in (copy, back, out):
        path.unlink()
    return found
