"""How a repository grows: versions of one matrix in which some rows change."""

from __future__ import annotations

from functools import partial

from bench.data import changed_rows, model_of
from bench.git import NAME, Repository, repository
from bench.measure import WTXTGIT, Entrant, Place, Row, Sample, command, race

VERSIONS = 10


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


def _add_all(repo: Repository) -> None:
    repo.renew()
    program = WTXTGIT if repo.kind == "own" else ("git",)
    for version in range(VERSIONS):
        if version:
            # The file is the model's own, linked: it is replaced, never written into.
            changed_rows(repo.file, repo.place.top / "next", turn=version).replace(repo.file)
        command(repo.place, *program, "add", NAME, cwd=repo.path)
        command(repo.place, "git", "commit", "-q", "-m", str(version), cwd=repo.path)


def _collected(place: Place, repo: Repository) -> Sample:
    return command(place, "git", "gc", "--quiet", "--prune=now", cwd=repo.path)
