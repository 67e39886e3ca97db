"""What git's settings for packs cost and give: a gc of versions of texts, and a push after it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench.data import changed_rows, model_of
from bench.git import NAME, Repository, repository
from bench.measure import (
    MIB,
    Against,
    Entrant,
    Place,
    Row,
    Sample,
    command,
    output,
    race,
)

_VERSIONS = 6
_PART = 256 / 38
_KIND = "own"
_SETTINGS: dict[str, tuple[str, ...]] = {
    "git's own settings": (),
    "pack.window=2": ("pack.window=2",),
    "pack.window=50": ("pack.window=50",),
    "pack.depth=10": ("pack.depth=10",),
    "core.bigFileThreshold=1m": ("core.bigFileThreshold=1m",),
    "the attribute -delta": (),
}
_WITHOUT_DELTAS = "the attribute -delta"
_REMOTES = {"": (), ", receive.unpackLimit=1 there": ("receive.unpackLimit", "1")}


def packs(place: Place, size: int) -> list[Row]:
    """Versions of 38 MiB where `size` is 256, in each of which 1% of the rows changed.

    A gc with each setting, then a push of one more changed row to a bare repository that has
    had the same gc.
    """
    model = model_of(place, max(1, int(size / _PART)))
    first = repository(place, _KIND, model)
    first.renew()
    command(place, "git", "add", NAME, cwd=first.path)
    for version in range(_VERSIONS):
        if version:
            changed_rows(first.file, place.top / "next", turn=version).replace(first.file)
        _commit(first, str(version))
    repos = {name: _copy(first, f"pack-{number}") for number, name in enumerate(_SETTINGS)}
    attributes = repos[_WITHOUT_DELTAS].path / ".git/info/attributes"
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_text(f"{NAME} -delta\n")
    text = int(_said(first, "cat-file", "-s", f":{NAME}"))
    gcs = race(
        [
            Entrant(
                f"gc: {name}",
                _VERSIONS * model.stat().st_size,
                () if not number else (Against(f"gc: {next(iter(_SETTINGS))}"),),
                f"{_VERSIONS} versions of {model.stat().st_size // MIB} MiB",
                action=_Collecting(repos[name], options),
                stored=repos[name].stored,
            )
            for number, (name, options) in enumerate(_SETTINGS.items())
        ],
        1,
    )
    found = [
        replace(row, note=f"{row.note}; {(row.stored or 0) / text:.2f} of a version's text")
        for row in gcs
    ]
    for name, repo in repos.items():
        found += _pushes(repo, name)
        repo.remove()
    first.remove()
    shutil.rmtree(place.top / f"template-{_KIND}")
    return found


@dataclass(frozen=True)
class _Collecting:
    """A gc with options; they are the repository's own from then on."""

    repo: Repository
    options: tuple[str, ...]

    def __call__(self) -> Sample:
        for option in self.options:
            key, _, value = option.partition("=")
            _git(self.repo, "config", key, value)
        return _git(self.repo, "gc", "--quiet", "--prune=now")


def _pushes(repo: Repository, name: str) -> Iterator[Row]:
    bares = {what: _bare(repo, config) for what, config in _REMOTES.items()}
    changed = bytearray(repo.file.read_bytes())
    changed[-4096:] = bytes(4096)
    repo.drop_file()
    repo.file.write_bytes(changed)
    _commit(repo, "one row")
    for what, bare in bares.items():
        yield _pushed(repo, f"push: {name}{what}", bare)
        shutil.rmtree(bare)


def _bare(repo: Repository, config: tuple[str, ...]) -> Path:
    bare = repo.place.top / f"bare-{len(config)}.git"
    kept = shutil.ignore_patterns("index", "logs", "hooks")
    shutil.copytree(repo.path / ".git", bare, copy_function=os.link, ignore=kept)
    path = bare / "config"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    for words in (("core.bare", "true"), config):
        if words:
            command(repo.place, "git", "config", *words, cwd=bare)
    return bare


def _pushed(repo: Repository, name: str, bare: Path) -> Row:
    had = _nbytes(bare)
    (row,) = race([Entrant(name, action=lambda: _git(repo, "push", "-q", str(bare), "main"))], 1)
    script = "git rev-parse HEAD ^HEAD~1 | git pack-objects --revs --thin --stdout -q | wc -c"
    sent = int(output(repo.place, "sh", "-c", script, cwd=repo.path)[1])
    told = f"one row more: {sent / 1024:.0f} KiB sent, {(_nbytes(bare) - had) / MIB:.1f} MiB more"
    return replace(row, note=f"{told} there until its gc")


def _copy(repo: Repository, kind: str) -> Repository:
    copy = Repository(repo.place, kind, repo.model)
    shutil.copytree(repo.path, copy.path, symlinks=True, copy_function=os.link)
    # Git writes into these two.
    for name in (".git/config", ".git/index"):
        path = copy.path / name
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
    return copy


def _commit(repo: Repository, message: str) -> None:
    _git(repo, "commit", "-q", "-a", "-m", message)


def _git(repo: Repository, *words: str) -> Sample:
    return command(repo.place, "git", *words, cwd=repo.path)


def _said(repo: Repository, *words: str) -> str:
    return output(repo.place, "git", *words, cwd=repo.path)[1].decode().strip()


def _nbytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
