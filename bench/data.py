"""Checkpoints to measure with, the same ones from the same seeds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.measure import MIB, WTXTGIT, Place, command

COLUMNS = 1024
"""Of the one matrix of float32 that a model here holds."""
CHUNK_ROWS = 16
"""Rows of it in a chunk of 64 KiB."""
_SEED = 20250101
_BLOCK = 4096
_ITEM = {"F32": 4, "BF16": 2}

Values = npt.NDArray[np.float32]


def model_of(place: Place, size: int) -> Path:
    """A safetensors file of one float32 matrix of `size` MiB; made once."""
    path = place.top / f"model-{size}.safetensors"
    if not path.exists():
        _write(path, {"w": (size * MIB // 4 // COLUMNS, COLUMNS)})
    return path


def weights_of(place: Place, size: int, dtype: str, *, is_tuned: bool = False) -> Path:
    """A safetensors file of one matrix of F32 or BF16, `size` MiB; made once.

    One that `is_tuned` has all values changed by about a thousandth, before they are rounded.
    """
    path = place.top / f"weights-{size}-{dtype}{'-tuned' * is_tuned}.safetensors"
    if not path.exists():
        rows = size * MIB // _ITEM[dtype] // COLUMNS
        _write(path, {"w": (rows, COLUMNS)}, dtype, is_tuned=is_tuned)
    return path


def arrays_of(place: Place, count: int, items: int, *, is_tuned: bool = False) -> Path:
    """A safetensors file of so many arrays of so many float32 each; made once."""
    path = place.top / f"arrays-{count}x{items}{'-tuned' * is_tuned}.safetensors"
    if not path.exists():
        shapes = {f"layer{n:06}.weight": (1, items) for n in range(count)}
        _write(path, shapes, is_tuned=is_tuned)
    return path


def text_of(place: Place, file: Path) -> Path:
    """A file's text, made beside it once."""
    text = file.with_suffix(".wtxt")
    if not text.exists():
        command(place, *WTXTGIT, "emit", file, "-o", text)
    return text


def changed_rows(model: Path, path: Path, part: int | None = None, *, turn: int = 1) -> Path:
    """The model with one row in a hundred changed, other ones in each `turn`.

    Of the odd (`part` 1) or the even rows (0) alone, or of all.
    """
    content, values = _matrix(model)
    generator = np.random.default_rng((_SEED, turn))
    count = len(values) // 100
    if part is None:
        chosen = generator.choice(len(values), count, replace=False)
    else:
        chosen = 2 * generator.choice(len(values) // 2, count, replace=False) + part
    values[chosen] *= np.float32(1.01)
    path.write_bytes(content)
    return path


def changed_chunks(model: Path, path: Path) -> Path:
    """The model with one chunk in a hundred changed, one at least."""
    content, values = _matrix(model)
    blocks = np.random.default_rng((_SEED, 0)).permutation(len(values) // CHUNK_ROWS)
    for block in blocks[: max(1, len(blocks) // 100)]:
        values[block * CHUNK_ROWS : (block + 1) * CHUNK_ROWS] += np.float32(1e-3)
    path.write_bytes(content)
    return path


def _write(
    path: Path, shapes: dict[str, tuple[int, int]], dtype: str = "F32", *, is_tuned: bool = False
) -> None:
    entries: dict[str, object] = {}
    end = 0
    for name, (count, columns) in shapes.items():
        start, end = end, end + count * columns * _ITEM[dtype]
        entries[name] = {"dtype": dtype, "shape": [count, columns], "data_offsets": [start, end]}
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    generator, steps = np.random.default_rng(_SEED), np.random.default_rng((_SEED, 2))
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for count, columns in shapes.values():
            for start in range(0, count, _BLOCK):
                some = min(_BLOCK, count - start), columns
                values = generator.standard_normal(some, dtype=np.float32)
                if is_tuned:
                    step = steps.standard_normal(some, dtype=np.float32)
                    values *= 1 + np.float32(1e-3) * step
                file.write((values if dtype == "F32" else as_bf16(values)).data)


def matrix_of(path: Path, data: memoryview, item: int) -> Path:
    """A safetensors file of one matrix with these bytes: F32 where an item has 4, else BF16."""
    dtype = next(name for name, size in _ITEM.items() if size == item)
    shape = [len(data) // item // COLUMNS, COLUMNS]
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}
    header = json.dumps({"w": entry}).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.write(data)
    return path


def as_bf16(values: Values) -> npt.NDArray[np.uint16]:
    """Rounded to the nearest, to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def _matrix(model: Path) -> tuple[bytearray, np.ndarray]:
    """A copy of a model's bytes, and its matrix in them."""
    content = bytearray(model.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    return content, np.frombuffer(content, "<f4", offset=start).reshape(-1, COLUMNS)
