"""What the files of a random history hold: models that change by rows, real files, and oddities."""

from __future__ import annotations

import io
from functools import cache
from pathlib import PurePosixPath
from random import Random

import numpy as np

from tests.data import FIXTURES, GOLDEN
from tests.e2e import weights
from tests.e2e.weights import Kind, Model

MAGIC = b"WTXT"
_LARGEST = 12_000
"""Bytes of a real file, so that a history of many operations stays small."""


def _npz(model: Model) -> bytes:
    made = io.BytesIO()
    np.savez(made, **model)  # type: ignore[arg-type]
    return made.getvalue()


def _read_npz(data: bytes) -> Model:
    with np.load(io.BytesIO(data)) as found:
        return dict(found)


def _npy(model: Model) -> bytes:
    made = io.BytesIO()
    np.save(made, model["embed"])
    return made.getvalue()


def _read_npy(data: bytes) -> Model:
    return {"embed": np.load(io.BytesIO(data))}


KINDS = {
    ".safetensors": weights.SAFETENSORS,
    ".fold": weights.FOLD,
    ".aero": weights.AERO,
    ".npz": Kind("model.npz", _npz, _read_npz),
    ".npy": Kind("model.npy", _npy, _read_npy),
}
"""Formats whose files are made here, and read by what knows nothing of wtxtgit."""

ENDINGS = (*KINDS, ".gguf", ".pt", ".checkpoint", ".taridx")
TRACKED = tuple(f"*{ending}" for ending in ENDINGS)

NAMES = (
    *(
        "a.safetensors",
        "sub/b.safetensors",
        "sub/two words/für.safetensors",
        "m.fold",
        "sub/z.fold",
    ),
    *("w.aero", "n.npz", "sub/n.npy", "g.gguf", "torch file.pt", "c.checkpoint", "sub/x.taridx"),
    *("notes.txt", "sub/data.bin", "run.sh", "-dash.safetensors", "deep/er/[1].safetensors"),
)


def ending(name: str) -> str:
    return PurePosixPath(name).suffix


def is_tracked(name: str) -> bool:
    return ending(name) in ENDINGS


@cache
def real_files(suffix: str) -> tuple[bytes, ...]:
    """Files of the original writers."""
    files = sorted(
        file
        for folder in (FIXTURES, GOLDEN)
        for file in folder.rglob(f"*{suffix}")
        if file.is_file() and file.stat().st_size < _LARGEST
    )
    return tuple(file.read_bytes() for file in files)


def read(name: str, content: bytes) -> Model | None:
    """The tensors of a file, by a reader that is not ours; None where it reads none."""
    kind = KINDS.get(ending(name))
    try:
        return kind.read(content) if kind else None
    except Exception:  # noqa: BLE001 - whatever each of the readers says of what it does not take
        return None


def is_made_here(name: str, content: bytes) -> bool:
    """Whether a file holds a model and nothing else."""
    model = read(name, content)
    return model is not None and KINDS[ending(name)].make(model) == content


def changed(name: str, before: bytes, rng: Random) -> bytes:
    """Another content for a file, mostly one that a training would have written."""
    while True:
        made = _changed(name, before, rng)
        # What begins as a text is taken for one.
        if made != before and not made.startswith(MAGIC):
            return made


def _changed(name: str, before: bytes, rng: Random) -> bytes:
    suffix = ending(name)
    if suffix not in ENDINGS:
        return _plain(before, rng)
    if suffix in KINDS and rng.random() < 0.7:
        return KINDS[suffix].make(_trained(read(name, before) or _model(suffix), rng))
    match rng.randrange(10):
        case 0:
            return b""
        case 1:
            return rng.randbytes(rng.randrange(1, 300))
        case 2:
            return before[: rng.randrange(len(before) + 1)]
        case 3:
            return before + rng.randbytes(rng.randrange(1, 5))
        case 4:
            return _plain(before, rng)
        case 5:
            return rng.choice(real_files(rng.choice(ENDINGS)) or (b"",))
    return rng.choice(real_files(suffix) or (b"\0",))


def _model(suffix: str) -> Model:
    model = weights.base()
    return {"embed": model["embed"]} if suffix == ".npy" else model


def _trained(model: Model, rng: Random) -> Model:
    made = {name: array.copy() for name, array in model.items()}
    for _ in range(rng.randrange(1, 4)):
        array = made[rng.choice(sorted(made))]
        if array.ndim and len(array) and array.dtype.kind == "f":
            array[rng.randrange(len(array))] = rng.randrange(1000)
    return made


def _plain(before: bytes, rng: Random) -> bytes:
    lines = before.split(b"\n")
    if rng.random() < 0.2 or b"\0" in before:
        lines = [b"line %d" % number for number in range(20)]
    lines[rng.randrange(len(lines))] = b"%d" % rng.randrange(10**6)
    return (b"\r\n" if rng.random() < 0.1 else b"\n").join(lines)
