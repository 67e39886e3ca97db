"""Putting a checkpoint into git and getting it out again, with git and beside it."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.data import model_of, text_of
from bench.floors import hashing
from bench.measure import (
    WTXTGIT,
    Against,
    BenchError,
    Entrant,
    Place,
    Row,
    command,
    output,
    race,
)

NAME = "model.safetensors"
RAW, LFS = "raw git add", "git-lfs add"
TOLD, BY_FILTER = "git add, a filter that knows the answer", "git add through the filter"
LFS_CHECKOUT, CAT = "git-lfs checkout", "git checkout through cat"


@dataclass(frozen=True)
class Repository:
    """A kind of repository that is made anew from a template before each `git add`."""

    place: Place
    kind: str
    model: Path

    @property
    def path(self) -> Path:
        return self.place.top / f"repo-{self.kind}"

    @property
    def file(self) -> Path:
        return self.path / NAME

    def renew(self) -> None:
        """Empty, with the model in its work tree."""
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self.place.top / f"template-{self.kind}", self.path, symlinks=True)
        self.replace_file(self.model)

    def replace_file(self, content: Path) -> None:
        """Have another file in the work tree."""
        self.drop_file()
        os.link(content, self.file)

    def drop_file(self) -> None:
        self.file.unlink(missing_ok=True)

    def remove(self) -> None:
        """Take it away, for the room."""
        shutil.rmtree(self.path)

    def stored(self) -> int:
        """Bytes of what `git add` put under the git folder."""
        return sum(path.stat().st_size for path in self.path.glob(".git/**/*") if path.is_file())


def adds_and_checkouts(place: Place, size: int, runs: int) -> list[Row]:
    """`git add` and checkout: raw, git-lfs, the filter, and wtxtgit's own commands."""
    model = model_of(place, size)
    raw, by_filter, own = (repository(place, kind, model) for kind in ("raw", "filter", "own"))
    told = _told(place, model)
    repositories = {RAW: raw, TOLD: told, BY_FILTER: by_filter, "wtxtgit add": own}
    with_lfs = shutil.which("git-lfs") is not None
    if with_lfs:
        lfs = repository(place, "lfs", model)
        repositories[LFS] = lfs
    found = race(_adds(place, model, repositories), runs)
    _same_blob(told, by_filter, own)
    cat = _through_cat(own)
    found += race(_checkouts(place, model, raw, cat, own, lfs if with_lfs else None), runs)
    told.remove()
    del repositories[TOLD]
    for repo in repositories.values():
        if repo.file.read_bytes() != model.read_bytes():
            raise BenchError(f"the checkout of {repo.kind} differs")
    found += race(_looks(place, model, own), runs)
    for repo in (*repositories.values(), cat):
        repo.remove()
    return found


def _adds(place: Place, model: Path, repositories: dict[str, Repository]) -> list[Entrant]:
    nbytes = model.stat().st_size
    against = {
        TOLD: (Against(RAW),),
        BY_FILTER: (Against(RAW, 0.3), Against(TOLD), Against(LFS)),
        "wtxtgit add": (Against(LFS, 1.25), Against(RAW, 0.2)),
        LFS: (Against(RAW),),
    }
    entrants = [
        Entrant(
            "git hash-object", nbytes, action=partial(command, place, "git", "hash-object", model)
        )
    ]
    for name, repo in repositories.items():
        program = WTXTGIT if name == "wtxtgit add" else ("git",)
        entrants.append(
            Entrant(
                name,
                nbytes,
                against.get(name, ()),
                action=partial(command, place, *program, "add", NAME, cwd=repo.path),
                before=repo.renew,
                stored=repo.stored,
            )
        )
    return entrants


def _checkouts(
    place: Place,
    model: Path,
    raw: Repository,
    cat: Repository,
    own: Repository,
    lfs: Repository | None,
) -> list[Entrant]:
    nbytes = model.stat().st_size

    def entrant(name: str, repo: Repository, argv: tuple[str, ...], *against: Against) -> Entrant:
        return Entrant(
            name,
            nbytes,
            against,
            action=partial(command, place, *argv, NAME, cwd=repo.path),
            before=repo.drop_file,
        )

    checkout = ("git", "checkout", "--")
    entrants = [
        entrant("raw git checkout", raw, checkout),
        entrant(CAT, cat, checkout),
        entrant("git checkout", own, checkout, Against(CAT, 0.5, "beyond"), Against(CAT)),
        entrant(
            "wtxtgit checkout",
            own,
            (*WTXTGIT, "checkout"),
            Against(LFS_CHECKOUT, 1.3),
            Against(CAT),
        ),
    ]
    if lfs is not None:
        entrants.insert(1, entrant(LFS_CHECKOUT, lfs, checkout, Against("raw git checkout")))
    return entrants


def _looks(place: Place, model: Path, repo: Repository) -> list[Entrant]:
    """What a file that was touched, and is as it was, costs."""
    nbytes = model.stat().st_size
    floor = "hashlib pass"

    minutes = itertools.count(1)

    def touch() -> None:
        # Into the past: of a file as young as the index git reads the content each time.
        then = time.time() - 60 * next(minutes)
        os.utime(repo.file, (then, then))

    listed: list[tuple[str, tuple[str | Path, ...], bool]] = [
        (floor, hashing(model), False),
        ("git status of a touched file", ("git", "status", "--porcelain"), True),
        ("wtxtgit status of a touched file", (*WTXTGIT, "status"), True),
        ("wtxtgit status, untouched", (*WTXTGIT, "status"), False),
    ]
    return [
        Entrant(
            name,
            nbytes,
            () if name == floor else (Against(floor),),
            action=partial(command, place, *argv, cwd=repo.path),
            before=touch if touched else None,
        )
        for name, argv, touched in listed
    ]


def repository(
    place: Place, kind: str, model: Path, names: tuple[str, ...] = (NAME,)
) -> Repository:
    """The template of a kind, and a repository made of it when that is due; `names` are tracked."""
    template = place.folder(f"template-{kind}")
    command(place, "git", "init", "-q", "-b", "main", template)
    match kind:
        case "lfs":
            command(place, "git", "lfs", "install", "--local", cwd=template)
            command(place, "git", "lfs", "track", *names, cwd=template)
        case "filter" | "own" | "detached" | "own-detached":
            form = ("--detached",) if kind.endswith("detached") else ()
            command(place, *WTXTGIT, "install", "--local", cwd=template)
            command(place, *WTXTGIT, "track", *form, *names, cwd=template)
        case "told":
            (template / ".gitattributes").write_text(f"{NAME} filter=told -text\n")
    if kind != "raw":
        command(place, "git", "add", ".gitattributes", cwd=template)
    return Repository(place, kind, model)


def _told(place: Place, model: Path) -> Repository:
    """A repository that has the blob already, and a filter that gives the text it was told.

    What is left is git's own part: it hands the file over, takes the text and hashes it.
    """
    repo = repository(place, "told", model)
    template, text = place.top / "template-told", text_of(place, model)
    answer = f"cat >{os.devnull} && cat {shlex.quote(str(text))}"
    command(place, "git", "config", "filter.told.clean", answer, cwd=template)
    store = ("git", "-c", "core.looseCompression=0", "hash-object", "-w", "--no-filters", text)
    command(place, *store, cwd=template)
    return repo


def _through_cat(repo: Repository) -> Repository:
    """A copy of a repository whose filter gives every blob as it is."""
    copy = Repository(repo.place, "cat", repo.model)
    shutil.copytree(repo.path, copy.path, symlinks=True, copy_function=os.link)
    (copy.path / ".git/info/attributes").write_text(f"{NAME} filter=cat -text\n")
    for word in ("clean", "smudge"):
        command(repo.place, "git", "config", f"filter.cat.{word}", "cat", cwd=copy.path)
    return copy


def _same_blob(*repositories: Repository) -> None:
    """Whoever adds the model, the blob is the same."""
    listed = {
        output(repo.place, "git", "ls-files", "-s", NAME, cwd=repo.path)[1] for repo in repositories
    }
    if len(listed) != 1:
        raise BenchError(f"the blobs differ: {listed}")
