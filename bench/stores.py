"""Payload in a store: versions of a matrix, what each costs there, and how long it takes.

The floor is SHA-256 of the chunks, which names them and has to be made anyway.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.data import COLUMNS, as_bf16
from bench.measure import MIB, Against, BenchError, Place, Row, Sample, Subject, rows, timed
from wtxtgit.io.workers import Workers, default_threads
from wtxtgit.store.store import Store

VERSIONS = 10
_CHUNK = 64 * 1024
_SEED = 20261123
_FLOOR = "SHA-256 of the chunks"
_PART = 100
"""One in so many rows changes, or is inserted."""

Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True)
class History:
    """How each version follows from the one before; `most` is what all may take, in versions."""

    name: str
    item: int
    step: Callable[[Matrix, np.random.Generator], Matrix]
    most: float


def _tuned(values: Matrix, chance: np.random.Generator) -> Matrix:
    step = chance.standard_normal(values.shape, dtype=np.float32)
    return values * (1 + np.float32(1e-3) * step)


def _changed(values: Matrix, chance: np.random.Generator) -> Matrix:
    values = values.copy()
    rows = chance.choice(len(values), len(values) // _PART, replace=False)
    values[rows] = _weights(chance, len(rows))
    return values


def _inserted(values: Matrix, chance: np.random.Generator) -> Matrix:
    middle = len(values) // 2 + 3
    new = _weights(chance, len(values) // _PART)
    return np.concatenate((values[:middle], new, values[middle:]))


def _weights(chance: np.random.Generator, count: int) -> Matrix:
    return chance.standard_normal((count, COLUMNS), dtype=np.float32) * np.float32(0.02)


_LATER = VERSIONS - 1
HISTORIES = (
    History("bf16, all tuned a little", 2, _tuned, 0.75 + _LATER * 0.2),
    History("f32, all tuned a little", 4, _tuned, 0.9 + _LATER * 0.65),
    History("bf16, 1% of rows changed", 2, _changed, 0.75 + _LATER * 1.1 / _PART),
    History("f32, 1% of rows changed", 4, _changed, 0.9 + _LATER * 1.1 / _PART),
    History("f32, 1% of rows inserted", 4, _inserted, 0.9 + _LATER * 2.2 / _PART),
    History("f32, no change", 4, lambda values, _: values, 0.9),
    History("f32, all new", 4, lambda values, chance: _weights(chance, len(values)), VERSIONS),
)


def versions(place: Place, size: int) -> list[Row]:
    """Adding and reading each version after the first, against hashing it."""
    found = []
    for history in HISTORIES:
        found += _followed(place, history, max(1, size // 4))
    return found


def _followed(place: Place, history: History, size: int) -> list[Row]:
    folder = place.top / "store"
    added, read = f"{history.name}: added", f"{history.name}: read"
    floor = f"{history.name}: {_FLOOR}"
    series: dict[str, list[Sample]] = {floor: [], added: [], read: []}
    grown: list[float] = []
    held = 0
    before: list[bytes] = []
    for data in data_of(history, size):
        chunks = [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)]
        names: list[bytes] = []
        series[floor].append(timed(partial(_name, chunks, names)))
        bases = [*before, *[None] * len(chunks)]
        series[added].append(timed(partial(_add, folder, chunks, names, bases, history.item)))
        series[read].append(timed(partial(_read, folder, chunks, names)))
        nbytes = sum(path.stat().st_size for path in folder.glob("packs/*.pack"))
        grown.append((nbytes - held) / len(data))
        held, before = nbytes, names
    shutil.rmtree(folder)
    # Other things are measured of the first version than of what differs from it.
    later = {name: samples[1:] for name, samples in series.items()}
    total = sum(grown)
    is_met = "met" if total <= history.most else "missed"
    note = (
        f"{VERSIONS} versions of {size} MiB: {grown[0]:.3f} of a version for the first, "
        f"{total - grown[0]:.3f} for the others; {total:.3f} in all "
        f"(at most {history.most:.3f}: {is_met})"
    )
    nbytes = size * MIB
    return rows(
        [
            Subject(floor, nbytes),
            Subject(added, nbytes, (Against(floor),), note),
            Subject(read, nbytes, (Against(floor),)),
        ],
        later,
    )


def data_of(history: History, size: int) -> Iterator[memoryview]:
    """The bytes of each version of a matrix of `size` MiB."""
    chance = np.random.default_rng(_SEED)
    values = _weights(chance, size * MIB // history.item // COLUMNS)
    for _ in range(VERSIONS):
        yield memoryview((values if history.item == 4 else as_bf16(values)).tobytes())
        values = history.step(values, chance)


def _name(chunks: list[memoryview], names: list[bytes]) -> None:
    with Workers((partial(_digest, chunk) for chunk in chunks), default_threads()) as workers:
        names.extend(workers)


def _digest(chunk: memoryview) -> bytes:
    return sha256(chunk).digest()


def _add(
    folder: Path,
    chunks: list[memoryview],
    names: list[bytes],
    bases: list[bytes | None],
    item: int,
) -> None:
    with Store(folder).writing() as writer:
        tasks = (
            partial(writer.put, name, chunk, item, base)
            for chunk, name, base in zip(chunks, names, bases, strict=False)
        )
        with Workers(tasks, default_threads()) as workers:
            for _ in workers:
                pass


def _read(folder: Path, chunks: list[memoryview], names: list[bytes]) -> None:
    store = Store(folder)
    tasks = (partial(store.read, name) for name in names)
    with Workers(tasks, default_threads()) as workers:
        for chunk, data in zip(chunks, workers, strict=True):
            if len(data) != len(chunk):
                raise BenchError("a store gave other bytes than it got")
