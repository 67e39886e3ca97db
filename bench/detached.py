"""Large checkpoints beside git-lfs: both keep a small text in git, and the data next to it.

A second version, all values of which were changed a little, is what training adds; git-lfs
stores it like the first.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from bench.data import weights_of
from bench.floors import copying
from bench.git import NAME, Repository, repository
from bench.measure import (
    MIB,
    WTXTGIT,
    Against,
    BenchError,
    Entrant,
    Place,
    Row,
    Sample,
    command,
    race,
)

LFS, FILTER, OWN = "git-lfs", "git", "wtxtgit"
COPY, HASH = "a filter that copies", "a filter that copies and hashes"
_MOST = {FILTER: 1.0, OWN: 0.8}
"""Of git-lfs's time."""
_KINDS = {LFS: "lfs", FILTER: "detached", OWN: "own-detached"}
_CHECKOUT = "checkout"


def adds_and_checkouts(place: Place, size: int, runs: int, *, bf16: bool = True) -> list[Row]:
    """Add and checkout of a file of f32, and of one of bf16: git-lfs, the filter, and wtxtgit."""
    dtypes = ("F32", "BF16") if bf16 else ("F32",)
    return [row for dtype in dtypes for row in _of_model(place, dtype, size, runs)]


def _of_model(place: Place, dtype: str, size: int, runs: int) -> list[Row]:
    model = weights_of(place, size, dtype)
    later = weights_of(place, size, dtype, is_tuned=True)
    is_there = shutil.which("git-lfs") is not None
    kinds = {who: kind for who, kind in _KINDS.items() if who != LFS or is_there}
    repositories = {who: repository(place, kind, model) for who, kind in kinds.items()}
    steps = (
        ("add", model, Repository.renew),
        (_CHECKOUT, model, Repository.drop_file),
        ("add, tuned", later, partial(_again, later=later)),
        ("checkout, tuned", later, Repository.drop_file),
    )
    found = []
    for step, content, before in steps:
        runner = _Step(dtype.lower(), step, content.stat().st_size, before)
        floors = _floors(repositories[FILTER], model) if step == _CHECKOUT else {}
        found += runner.rows(repositories | floors, runs)
        for floor in floors.values():
            floor.remove()
        for who, repo in repositories.items():
            if repo.file.read_bytes() != content.read_bytes():
                raise BenchError(f"{dtype}: {who} {step}: the file differs")
    for repo in repositories.values():
        repo.remove()
        shutil.rmtree(place.top / f"template-{repo.kind}")
    for path in (model, later):
        path.unlink()
    return found


def _floors(repo: Repository, model: Path) -> dict[str, Repository]:
    """Copies of a repository whose filters compute nothing, and no more than the chunks' hashes."""
    made: dict[str, Repository] = {}
    for name, hashes in ((COPY, False), (HASH, True)):
        copy = Repository(repo.place, f"floor-{len(made)}", model)
        shutil.copytree(repo.path, copy.path, symlinks=True)
        program = shlex.join(map(str, copying(model, hashes=hashes)))
        key = "filter.wtxt-detached.process"
        command(repo.place, "git", "config", key, program, cwd=copy.path)
        made[name] = copy
    return made


def _again(repo: Repository, later: Path) -> None:
    """The first version is added, and the second one in the work tree."""
    repo.renew()
    command(repo.place, *_argv(repo, "add"), cwd=repo.path)
    repo.replace_file(later)


def _argv(repo: Repository, word: str) -> tuple[str, ...]:
    if repo.kind == _KINDS[OWN]:
        return (*WTXTGIT, word, NAME)
    return ("git", word, "--", NAME)


@dataclass(frozen=True)
class _Step:
    """What all of them do to a file of `nbytes`."""

    dtype: str
    what: str
    nbytes: int
    before: Callable[[Repository], object]
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def rows(self, repositories: dict[str, Repository], runs: int) -> list[Row]:
        entrants = [self._entrant(who, repo) for who, repo in repositories.items()]
        told = race(entrants, runs)
        return [
            replace(row, note=_held(self.samples[row.name], who != OWN))
            for row, who in zip(told, repositories, strict=True)
        ]

    def _entrant(self, who: str, repo: Repository) -> Entrant:
        name = self._name(who)
        return Entrant(
            name,
            self.nbytes,
            () if who == LFS else (Against(self._name(LFS), _MOST.get(who)),),
            action=partial(self._timed, name, repo),
            before=partial(self.before, repo),
            stored=repo.stored if self.what.startswith("add") else None,
        )

    def _name(self, who: str) -> str:
        return f"{self.dtype}: {who} {self.what}" if who in _KINDS else f"{self.dtype}: {who}"

    def _timed(self, name: str, repo: Repository) -> Sample:
        sample = command(repo.place, *_argv(repo, self.what.split(",")[0]), cwd=repo.path)
        self.samples.setdefault(name, []).append(sample)
        return sample


def _held(samples: Sequence[Sample], is_git: bool) -> str:
    """What git itself held, and its filter."""
    if not is_git:
        return ""

    def most(values: Iterable[int]) -> str:
        return f"{max(values) / MIB:.0f} MiB"

    own, below = (most(getattr(sample, name) for sample in samples) for name in ("own", "below"))
    return f"git itself {own}, its filter {below} of anonymous memory"
