"""All checks of AERO and FOLD files, against hashing (and decoding) the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from bench import inside
from bench.data import model_of
from bench.inside import Job, race_inside
from bench.measure import MIB, Against, Place, Row, Subject
from wtxtgit.containers import any_format
from wtxtgit.containers.aero import write as aero
from wtxtgit.containers.fold import write as fold
from wtxtgit.containers.fold.write import ChunkSource
from wtxtgit.io.files import read_whole
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import TensorSource
from wtxtgit.tensors import tensor_bytes


def checks(place: Place, size: int, runs: int) -> list[Row]:
    """`wtxtgit verify`'s work on containers, in process."""
    model = read_whole(model_of(place, size))
    tensors = list(any_format.tensors(any_format.describe(model)))
    sources = [
        TensorSource(t.name, "f32", t.shape, t.data.nbytes, partial(tensor_bytes.blocks, t))
        for t in tensors
    ]
    plain = [ChunkSource("torch_state", b"STEN", len(model), partial(_slices, model))]
    blake3_floor = ("one blake3 pass, all threads", inside.blake3_pass)
    files: list[tuple[str, Iterable[Buffer], tuple[str, inside.Action]]] = [
        ("AERO", aero.build(sources, ihsh=True), blake3_floor),
        (
            "AERO, page and tensor hashes",
            aero.build(sources, ihsh=True, phsh=MIB, tensor_hash=True),
            blake3_floor,
        ),
        ("FOLD, stored", fold.build(plain), ("one SHA-256 pass", inside.sha256_pass)),
        (
            "FOLD, zstd",
            fold.build(plain, compression="zstd"),
            ("SHA-256 and zstd decoding", inside.sha256_and_zstd),
        ),
    ]
    groups = []
    for number, (name, pieces, (words, floor)) in enumerate(files):
        path = _written(place.top / f"container-{number}", pieces)
        note = f"{name}, {size} MiB, in process"
        subject = Subject(f"check {name}", len(model), (Against(words),), note)
        groups.append(
            [
                Job(Subject(words, len(model), note=note), floor, path),
                Job(subject, inside.check_container, path),
            ]
        )
    found = race_inside(place, groups, runs)
    for group in groups:
        group[0].path.unlink()
    return found


def _written(path: Path, pieces: Iterable[Buffer]) -> Path:
    with path.open("wb") as out:
        for piece in pieces:
            out.write(piece)
    return path


def _slices(data: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(data), MIB):
        yield data[start : start + MIB]
