"""Checkpoints of many small tensors, and how much work is done on them."""

from __future__ import annotations

import cProfile
import json
import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from tests.cli.command import Command

MANY = int(os.environ.get("WTXTGIT_MANY", "1"))
"""So many times as many, up to 5,000 files and 100,000 tensors at 10."""
ENDINGS = ("safetensors", "npz", "gguf", "fold", "pt", "aero", "checkpoint")


def checkpoint(names: Iterable[str], seed: int = 0) -> bytes:
    """Make a safetensors file of seeded float32 matrices, 4 by 4; larger ones where it has many.

    A file may not list any number of tiny things.
    """
    listed = list(names)
    side = 4 if len(listed) <= 10_000 else 20
    nbytes = 4 * side * side
    spans = [[nbytes * n, nbytes * (n + 1)] for n in range(len(listed))]
    header = {
        name: {"dtype": "F32", "shape": [side, side], "data_offsets": span}
        for name, span in zip(listed, spans, strict=True)
    }
    spelled = json.dumps(header, separators=(",", ":")).encode()
    spelled += b" " * (-len(spelled) % 8)
    values = np.random.default_rng(seed).standard_normal((len(listed), side * side)).astype("<f4")
    return struct.pack("<Q", len(spelled)) + spelled + values.tobytes()


def numbered(count: int) -> list[str]:
    return [f"model.layers.{n}.self_attn.q_proj.weight" for n in range(count)]


def make(wtxtgit: Command, ending: str, count: int, seed: int = 0) -> Path:
    """Write a checkpoint of so many tensors, in a format."""
    plain = wtxtgit.folder / f"{count}-{seed}.safetensors"
    plain.write_bytes(checkpoint(numbered(count), seed))
    if ending == "safetensors":
        return plain
    made = plain.with_suffix(f".{ending}")
    inline = ["--inline-data"] if ending == "checkpoint" else []
    done = wtxtgit("convert", plain, made, *inline)
    assert done.code == 0, done.err
    return made


def calls(work: Callable[[], object]) -> int:
    """Count the functions that are called in this thread."""
    profile = cProfile.Profile()
    profile.enable()
    try:
        work()
    finally:
        profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


def assert_linear(counts: tuple[int, int, int]) -> None:
    """Check work on n, 2n and 4n things: what comes with each is the same.

    Of work that grows with the square the second step is four times the first.
    """
    once, twice, fourfold = counts
    assert fourfold - twice <= 2.3 * (twice - once), counts
