"""Epochs of a fine-tuning, each saved in several formats: what all of them take under .git."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

import wtxtgit
from bench.git import NAME, Repository, repository
from bench.measure import Entrant, Place, Row, command, race

EPOCHS = 4
NAMES = (NAME, "model.npz", "model.pt", "model.gguf")
"""An epoch's files, with the same tensors."""
_KINDS = {"raw git": "raw", "git-lfs": "lfs", "texts": "filter", "detached texts": "detached"}
_SEED = 20261124
_WIDTH = 256
_MIB_A_LAYER = 32
"""Of the bench's size: a layer takes 3 MiB, and there are as many files as epochs and formats."""
_TOKENS_A_LAYER = 1000
_SEEN = 10
"""One token in so many is in the data of an epoch, so that its row is trained."""
_MB = 1e6

Tensors = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Training:
    """Which layers of a model learn, as a share of them all, counted from the last one."""

    name: str
    share: float


TRAININGS = (Training("upper half tuned", 0.5), Training("all layers tuned", 1.0))


def packed(place: Place, size: int) -> list[Row]:
    """Seconds of a `git gc` after all epochs, and what it leaves, for each kind of repository."""
    found = []
    for training in TRAININGS:
        found += _trained(place, training, max(1, size // _MIB_A_LAYER))
    return found


def epochs_of(training: Training, layers: int) -> Iterator[Tensors]:
    """The tensors of each epoch.

    All values of a layer that learns change by about a thousandth, as do the rows of the tokens
    that were seen.
    """
    chance = np.random.default_rng(_SEED)
    tensors = {
        name: chance.standard_normal(shape, dtype=np.float32) * np.float32(0.02)
        for name, shape in _shapes(layers).items()
    }
    first = layers - round(layers * training.share)
    tuned = [name for n in range(first, layers) for name in tensors if name.startswith(_layer(n))]
    for _ in range(EPOCHS):
        yield tensors
        tensors = tensors | {name: _stepped(tensors[name], chance) for name in tuned}
        embedding = tensors["embed"].copy()
        seen = chance.choice(len(embedding), len(embedding) // _SEEN, replace=False)
        embedding[seen] = _stepped(embedding[seen], chance)
        tensors["embed"] = embedding


def _shapes(layers: int) -> dict[str, tuple[int, ...]]:
    square = dict.fromkeys(("q", "k", "v", "o"), (_WIDTH, _WIDTH))
    wide = {"up": (4 * _WIDTH, _WIDTH), "down": (_WIDTH, 4 * _WIDTH)}
    shapes: dict[str, tuple[int, ...]] = {"embed": (_TOKENS_A_LAYER * layers, _WIDTH)}
    for number in range(layers):
        of_layer = {**square, **wide, "norm": (_WIDTH,)}
        shapes |= {f"{_layer(number)}{part}": shape for part, shape in of_layer.items()}
    return shapes


def _layer(number: int) -> str:
    return f"layers.{number}."


def _stepped(
    values: npt.NDArray[np.float32], chance: np.random.Generator
) -> npt.NDArray[np.float32]:
    step = chance.standard_normal(values.shape, dtype=np.float32)
    return values * (1 + np.float32(1e-3) * step)


def _trained(place: Place, training: Training, layers: int) -> list[Row]:
    is_there = shutil.which("git-lfs") is not None
    kinds = {who: kind for who, kind in _KINDS.items() if who != "git-lfs" or is_there}
    made = place.folder("epoch")
    repos: dict[str, Repository] = {}
    nbytes = 0
    for number, tensors in enumerate(epochs_of(training, layers)):
        for name in NAMES:
            wtxtgit.dump(tensors, made / name)
            nbytes += (made / name).stat().st_size
        if not number:
            repos = {
                f"{training.name}: {who}": repository(place, kind, made / NAME, NAMES)
                for who, kind in kinds.items()
            }
            for repo in repos.values():
                repo.renew()
        for repo in repos.values():
            _commit(repo, made, number)
    shutil.rmtree(made)
    note = f"{EPOCHS} epochs in {len(NAMES)} formats, {nbytes / _MB:.0f} MB"
    told = race(
        [
            Entrant(
                name,
                nbytes,
                action=partial(
                    command, place, "git", "gc", "--quiet", "--prune=now", cwd=repo.path
                ),
                stored=repo.stored,
            )
            for name, repo in repos.items()
        ],
        1,
    )
    for repo in repos.values():
        repo.remove()
        shutil.rmtree(place.top / f"template-{repo.kind}")
    return [replace(row, note=f"{note}: {(row.stored or 0) / _MB:.0f} MB packed") for row in told]


def _commit(repo: Repository, made: Path, number: int) -> None:
    for name in NAMES:
        (repo.path / name).unlink(missing_ok=True)
        os.link(made / name, repo.path / name)
    command(repo.place, "git", "add", *NAMES, cwd=repo.path)
    command(repo.place, "git", "commit", "-q", "-m", f"epoch {number + 1}", cwd=repo.path)
