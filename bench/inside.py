"""What is measured inside one process, without its start: `python -m bench.inside`.

The process is one of its own, so that its memory can be seen. Of each thing
that it is asked for it prints the seconds of every run, as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import zstandard
from blake3 import blake3

from bench import steps
from bench.measure import MIB, PYTHON, BenchError, Place, Row, Sample, Subject, output, rows, timed
from wtxtgit.containers import any_format
from wtxtgit.containers.fold.read import read as fold_read
from wtxtgit.io.files import read_whole
from wtxtgit.io.view import write_all, write_on
from wtxtgit.text.grammar import text_size
from wtxtgit.text.layout import snapshot_of
from wtxtgit.text.verify import verify
from wtxtgit.text.write import TextWriter

Action = Callable[[memoryview, Path], object]


def sha256_pass(data: memoryview, _: Path) -> None:
    hashlib.sha256(data).digest()


def two_passes(data: memoryview, _: Path) -> None:
    """What two threads can't do faster for one array: hash_all follows the array's own hash."""
    hashlib.sha256(data).digest()
    hashlib.sha256(data).digest()


def blake3_pass(data: memoryview, _: Path) -> None:
    blake3(data, max_threads=blake3.AUTO).digest()


def sha256_and_zstd(data: memoryview, _: Path) -> None:
    hashlib.sha256(data).digest()
    for chunk in fold_read(data).chunks:
        held = data[chunk.payload_start : chunk.payload_end]
        decoder = zstandard.ZstdDecompressor().decompressobj()
        for start in range(0, len(held), MIB):
            decoder.decompress(held[start : start + MIB])


def write_file(data: memoryview, out: Path) -> None:
    descriptor = os.open(out, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        _writer(data).write_file(descriptor)
    finally:
        os.close(descriptor)


def fill_file(data: memoryview, out: Path) -> None:
    """As many bytes as a text of `data` has, the same ones again and again, to a new file."""
    left = text_size(len(data))
    buffer = memoryview(bytes(MIB))
    with out.open("wb", buffering=0) as file:
        while left > 0:
            piece = buffer[: min(left, MIB)]
            write_on(file.fileno(), piece)
            left -= len(piece)


def write_pipe(data: memoryview, _: Path) -> None:
    with subprocess.Popen(("cat",), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as reader:
        assert reader.stdin is not None  # noqa: S101
        write_all(reader.stdin.fileno(), _writer(data).stream())


def write_nowhere(data: memoryview, _: Path) -> None:
    for _piece in _writer(data).stream():
        pass


def read_text(data: memoryview, _: Path) -> None:
    if not verify(data).ok:
        raise BenchError("the text does not verify")


def check_container(data: memoryview, _: Path) -> None:
    if any_format.check(data).errors:
        raise BenchError("the file does not hold")


def _writer(data: memoryview) -> TextWriter:
    return TextWriter(snapshot_of(any_format.split(data)))


ACTIONS: dict[str, Action] = {
    action.__name__: action
    for action in (
        sha256_pass, two_passes, fill_file, blake3_pass, sha256_and_zstd,
        write_file, write_pipe, write_nowhere, read_text, check_container,
        *steps.STEPS.values(),
    )
}  # fmt: skip


def main(arguments: list[str]) -> None:
    """RUNS SCRATCH ACTION FILE [ACTION FILE]...: run the actions in turns on their files."""
    runs, scratch = int(arguments[0]), Path(arguments[1])
    pairs = list(_pairs(arguments[2:]))
    views = {path: read_whole(path) for _, path in pairs}
    for view in views.values():
        # Mapped pages are faulted in by what touches them first.
        sha256_pass(view, scratch)
    times: list[list[float]] = [[] for _ in pairs]
    for _ in range(runs):
        for taken, (name, path) in zip(times, pairs, strict=True):
            taken.append(timed(lambda n=name, p=path: ACTIONS[n](views[p], scratch)).seconds)  # type: ignore[misc]
    print(json.dumps(times))


@dataclass(frozen=True)
class Job:
    """A subject, with one of the actions here and the file that it is done with."""

    subject: Subject
    action: Action
    path: Path


def race_inside(place: Place, groups: Sequence[Sequence[Job]], runs: int) -> list[Row]:
    """Rows of jobs; those of a group take turns in one process.

    A group's last job is what it is for, the others are its floors: the anonymous
    memory is the process's, in which all files are mapped for good. A floor that
    was told of before is not told of again.
    """
    made: dict[str, Row] = {}
    for group in groups:
        for row in rows([job.subject for job in group], _samples(place, group, runs)):
            made.setdefault(row.name, row)
    return list(made.values())


def _samples(place: Place, group: Sequence[Job], runs: int) -> dict[str, list[Sample]]:
    words: list[str | Path] = []
    for job in group:
        words += (job.action.__name__, job.path)
    command = (PYTHON, "-m", "bench.inside", str(runs), place.top / "inside", *words)
    whole, printed = output(place, *command, cwd=Path(__file__).parents[1])
    series = {
        job.subject.name: [Sample(seconds) for seconds in times]
        for job, times in zip(group, json.loads(printed), strict=True)
    }
    last = series[group[-1].subject.name]
    last[0] = Sample(last[0].seconds, anonymous=whole.anonymous)
    return series


def _pairs(words: list[str]) -> Iterator[tuple[str, Path]]:
    for name, path in zip(words[::2], words[1::2], strict=True):
        yield name, Path(path)


if __name__ == "__main__":
    main(sys.argv[1:])
