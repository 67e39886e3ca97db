"""How a repository grows: versions of one matrix in which some rows change, or all values."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial

from bench.data import changed_rows, matrix_of, model_of
from bench.git import NAME, Repository, repository
from bench.measure import MIB, WTXTGIT, Entrant, Place, Row, Sample, command, race
from bench.stores import HISTORIES, History, data_of

VERSIONS = 10
_LITTLE = ("-c", "pack.window=2", "-c", "pack.threads=1")
"""What ends the gc of large versions in minutes: git tries two others for each, not ten."""
_KINDS = {"raw git": "raw", "git-lfs": "lfs", "texts": "own", "detached texts": "own-detached"}


def versions(place: Place, size: int) -> list[Row]:
    """Seconds of a `git gc` after so many versions, and what it leaves, raw and as text.

    It runs once: gc of packed versions finds nothing to do.
    """
    model = model_of(place, max(1, size // 4))
    note = f"{VERSIONS} versions of {max(1, size // 4)} MiB, 1% of the rows changed in each"
    kinds = {"git gc, raw": "raw", "git gc, texts": "own"}
    repos = {name: repository(place, kind, model) for name, kind in kinds.items()}
    for repo in repos.values():
        _add_all(repo)
    found = race(
        [
            Entrant(
                name,
                VERSIONS * model.stat().st_size,
                note=note,
                action=partial(_collected, place, repo),
                stored=repo.stored,
            )
            for name, repo in repos.items()
        ],
        1,
    )
    for repo in repos.values():
        repo.remove()
    return found


def beside(place: Place, size: int) -> list[Row]:
    """What versions take under .git of each kind of repository, after a `git gc`, which is timed.

    These are the histories of the store's own figures. Git is to look for few deltas: between
    versions all of whose values changed it looks very long, and finds next to none.
    """
    found = []
    for history in HISTORIES:
        found += _of_history(place, history, max(1, size // 64))
    return found


def _of_history(place: Place, history: History, size: int) -> list[Row]:
    next_one = place.top / "next"
    is_there = shutil.which("git-lfs") is not None
    kinds = {who: kind for who, kind in _KINDS.items() if who != "git-lfs" or is_there}
    first = matrix_of(place.top / "first", next(data_of(history, size)), history.item)
    repos = {
        f"{history.name}: {who}": repository(place, kind, first) for who, kind in kinds.items()
    }
    for repo in repos.values():
        repo.renew()
    for number, data in enumerate(data_of(history, size)):
        for repo in repos.values():
            matrix_of(next_one, data, history.item).replace(repo.file)
            _commit(repo, number)
    told = race(
        [
            Entrant(
                name,
                VERSIONS * size * MIB,
                action=partial(_collected, place, repo, _LITTLE),
                stored=repo.stored,
            )
            for name, repo in repos.items()
        ],
        1,
    )
    for repo in repos.values():
        repo.remove()
        shutil.rmtree(place.top / f"template-{repo.kind}")
    return [replace(row, note=_taken(row, size, history.most)) for row in told]


def _taken(row: Row, size: int, most: float) -> str:
    taken = (row.stored or 0) / (size * MIB)
    if not row.name.endswith(": detached texts"):
        return f"{taken:.3f} of a version"
    is_met = "met" if taken <= most else "missed"
    return f"{taken:.3f} of a version (at most {most:.3f}: {is_met})"


def _add_all(repo: Repository) -> None:
    repo.renew()
    for version in range(VERSIONS):
        if version:
            # The file is the model's own, linked: it is replaced, never written into.
            changed_rows(repo.file, repo.place.top / "next", turn=version).replace(repo.file)
        _commit(repo, version)


def _commit(repo: Repository, version: int) -> None:
    program = WTXTGIT if repo.kind.startswith("own") else ("git",)
    command(repo.place, *program, "add", NAME, cwd=repo.path)
    said = ("git", "commit", "-q", "--allow-empty", "-m", str(version))
    command(repo.place, *said, cwd=repo.path)


def _collected(place: Place, repo: Repository, settings: tuple[str, ...] = ()) -> Sample:
    return command(place, "git", *settings, "gc", "--quiet", "--prune=now", cwd=repo.path)
