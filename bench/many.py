"""Many small checkpoints at once, beside git-lfs: what each file costs beyond its bytes."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from bench.git import Repository, repository
from bench.measure import WTXTGIT, Against, Entrant, Place, Row, command, race

_NBYTES = 160 * 1024
LFS = "git-lfs"
_KINDS = {
    LFS: ("lfs", "git"),
    "git, detached": ("detached", "git"),
    "wtxtgit, detached": ("own-detached", "wtxtgit"),
    "git, attached": ("filter", "git"),
}
_MOST = {"git, detached": 3.0, "wtxtgit, detached": 3.0}
"""Of git-lfs's time for an add."""
_FEW = 1000
"""Above this many files, attached ones are left out: git deflates and stores all their bytes."""


def files(place: Place, counts: tuple[int, ...], runs: int) -> list[Row]:
    """Add, checkout and status of so many files of 160 KiB."""
    return [row for count in counts for row in _of_count(place, count, runs)]


def _of_count(place: Place, count: int, runs: int) -> list[Row]:
    folder = place.folder(f"files-{count}")
    for number in range(count):
        values = np.random.default_rng(number).standard_normal(_NBYTES // 4, np.float32)
        save_file({"w": values}, folder / f"{number}.safetensors")
    kinds = {
        who: kind
        for who, kind in _KINDS.items()
        if (who != LFS or shutil.which("git-lfs")) and (who != "git, attached" or count <= _FEW)
    }
    repos = {
        who: repository(place, kind, folder, ("*.safetensors",)) for who, (kind, _) in kinds.items()
    }
    found = []
    steps: dict[str, tuple[tuple[str, ...], Callable[[Repository, Path], object]]] = {
        "add": (("add", "-A"), _renew),
        "checkout": (("checkout", "--", "."), _drop),
        "status, touched": (("status",), _touch),
    }
    for step, (words, before) in steps.items():
        entrants = []
        for who, repo in repos.items():
            program = WTXTGIT if kinds[who][1] == "wtxtgit" else ("git",)
            most = _MOST.get(who) if step == "add" else None
            entrants.append(
                Entrant(
                    f"{who}: {step}, {count} files",
                    count * _NBYTES,
                    () if who == LFS else (Against(f"{LFS}: {step}, {count} files", most),),
                    action=partial(command, place, *program, *words, cwd=repo.path),
                    before=partial(before, repo, folder),
                )
            )
        found += race(entrants, runs)
    for repo in repos.values():
        repo.remove()
        shutil.rmtree(place.top / f"template-{repo.kind}")
    shutil.rmtree(folder)
    return found


def _renew(repo: Repository, folder: Path) -> None:
    """Empty, with the files in the work tree."""
    shutil.rmtree(repo.path, ignore_errors=True)
    shutil.copytree(repo.place.top / f"template-{repo.kind}", repo.path, symlinks=True)
    for path in folder.iterdir():
        os.link(path, repo.path / path.name)


def _drop(repo: Repository, _: Path) -> None:
    for path in repo.path.glob("*.safetensors"):
        path.unlink()


def _touch(repo: Repository, _: Path) -> None:
    # Into the past: of a file as young as the index git reads the content each time.
    then = time.time() - 60
    for path in repo.path.glob("*.safetensors"):
        os.utime(path, (then, then))
