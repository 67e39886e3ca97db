"""What else git does with a checkpoint: commands that move, merge, put away or remove it."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.data import changed_rows, model_of
from bench.git import NAME, Repository, repository
from bench.measure import Against, Entrant, Place, Row, command, race

_KINDS = {"raw": "raw", "git-lfs": "lfs", "texts": "filter", "detached texts": "detached"}
_LFS = "git-lfs"
_MERGED = ("texts", "detached texts")
"""Who merges a file that both sides changed."""
_PART = 256 / 38
_MINUTES = 60.0


def verbs(place: Place, size: int, runs: int) -> list[Row]:
    """Commands on a file of 38 MiB where `size` is 256: plain, git-lfs, and both kinds of texts."""
    model = model_of(place, max(1, int(size / _PART)))
    sides = {
        branch: changed_rows(model, place.top / f"{branch}-side", part, turn=1 + part)
        for part, branch in enumerate(("theirs", "ours"))
    }
    is_there = shutil.which("git-lfs") is not None
    kinds = {who: kind for who, kind in _KINDS.items() if who != _LFS or is_there}
    histories = {
        who: _History(repository(place, kind, model), sides) for who, kind in kinds.items()
    }
    for history in histories.values():
        history.make()
    found = []
    for verb in _VERBS:
        those = {who: h for who, h in histories.items() if who in _MERGED or not verb.merges}
        found += race([_entrant(verb, who, history) for who, history in those.items()], runs)
    for history in histories.values():
        history.repo.remove()
        shutil.rmtree(place.top / f"template-{history.repo.kind}")
    for path in sides.values():
        path.unlink()
    return found


@dataclass(frozen=True)
class _History:
    """A file on `main`, changed on `theirs` and on `ours`; `main` went on without it."""

    repo: Repository
    sides: dict[str, Path]
    turns: Iterator[int] = field(default_factory=lambda: itertools.count(3))

    def git(self, *words: str) -> None:
        command(self.repo.place, "git", *words, cwd=self.repo.path)

    def make(self) -> None:
        self.repo.renew()
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "base")
        for branch, file in self.sides.items():
            self.git("checkout", "-q", "-b", branch, "main")
            self.change(file)
            self.git("commit", "-q", "-a", "-m", branch)
        self.git("checkout", "-q", "main")
        self.git("branch", "base")
        self.git("commit", "-q", "--allow-empty", "-m", "went on")
        self.git("config", "advice.detachedHead", "false")

    def change(self, file: Path) -> None:
        """Have another content in the work tree."""
        self.repo.drop_file()
        shutil.copyfile(file, self.repo.file)

    def train(self) -> None:
        """Have one that was never there."""
        self.repo.drop_file()
        changed_rows(self.repo.model, self.repo.file, turn=next(self.turns))

    def go_to(self, base: str) -> None:
        """A branch `work` there, whose file is older than the index: git need not read it."""
        self.git("reset", "-q", "--hard")
        self.git("stash", "clear")
        self.git("checkout", "-q", "-B", "work", base)
        then = self.repo.file.stat().st_mtime - 60 * _MINUTES
        os.utime(self.repo.file, (then, then))
        self.git("update-index", "-q", "--refresh")
        (self.repo.path / "moved").mkdir(exist_ok=True)


@dataclass(frozen=True)
class _Verb:
    """A command, where it starts from, and what was done before it."""

    name: str
    words: tuple[str, ...]
    base: str = "main"
    is_changed: bool = False
    is_stashed: bool = False
    merges: bool = False


_MERGE = ("merge", "-q", "-m", "merged", "theirs")
_VERBS = (
    _Verb("rm", ("rm", "-q", NAME)),
    _Verb("mv", ("mv", NAME, "moved")),
    _Verb("merge, one side changed it", _MERGE),
    _Verb("merge, both sides changed it", _MERGE, base="ours", merges=True),
    _Verb("cherry-pick", ("cherry-pick", "theirs")),
    _Verb("rebase", ("rebase", "-q", "main"), base="theirs"),
    _Verb("stash", ("stash", "-q"), is_changed=True),
    _Verb("stash pop", ("stash", "pop", "-q"), is_changed=True, is_stashed=True),
    _Verb("add", ("add", NAME), is_changed=True),
    _Verb("commit -a", ("commit", "-q", "-a", "-m", "changed"), is_changed=True),
    _Verb("commit FILE", ("commit", "-q", "-m", "changed", NAME), is_changed=True),
)


def _entrant(verb: _Verb, who: str, history: _History) -> Entrant:
    repo = history.repo

    def before() -> None:
        history.go_to(verb.base)
        if verb.is_changed:
            history.train()
        if verb.is_stashed:
            history.git("stash", "-q")

    return Entrant(
        f"git {verb.name}: {who}",
        repo.model.stat().st_size,
        () if who == _LFS or verb.merges else (Against(f"git {verb.name}: {_LFS}"),),
        action=partial(command, repo.place, "git", *verb.words, cwd=repo.path),
        before=before,
    )
