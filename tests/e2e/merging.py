"""Branches that change one checkpoint, and git's ways to bring them together."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.sealed import Said, Sealed
from tests.e2e.weights import Kind, Model, assert_model
from tests.kit import Repo

PATTERNS = ("*.aero", "*.fold", "*.safetensors")
WAYS = ("merge", "rebase", "cherry-pick", "stash pop")
RECORDS = "wtxt-conflicts"

Sides = tuple[bytes | None, bytes, bytes]
"""A file in the base, in ours and in theirs; without a base both sides add it."""


def diverge(repo: Repo, files: Mapping[str, Sides]) -> None:
    """Commit files on `base`, `main` and `topic`; main is checked out."""
    if not (repo.path / ".gitattributes").exists():
        repo.track(*PATTERNS)
    for branch, place in (("base", 0), ("topic", 2), ("main", 1)):
        if branch != "base":
            repo.git("checkout", "-q", "-B", branch, "base")
        for name, contents in files.items():
            content = contents[place]
            if content is not None:
                repo.write(name, content)
        repo.add()
        repo.commit(branch)
        if branch == "base":
            repo.git("branch", "-f", "base")


def bring(repo: Repo, way: str, ok: Sequence[int] = (0,)) -> subprocess.CompletedProcess[bytes]:
    """Bring what topic changed to main; what git calls ours is main in every way."""
    if way == "merge":
        return repo.run("git", "merge", "--no-edit", "topic", ok=ok)
    if way == "cherry-pick":
        return repo.run("git", "cherry-pick", "topic", ok=ok)
    if way == "rebase":
        repo.git("checkout", "-q", "topic")
        return repo.run("git", "rebase", "main", ok=ok)
    repo.git("checkout", "-q", "base")
    repo.git("checkout", "-q", "topic", "--", ".")
    repo.git("stash", "push", "-q")
    repo.git("checkout", "-q", "main")
    return repo.run("git", "stash", "pop", ok=ok)


def unmerged(repo: Repo) -> list[str]:
    """Paths that git has in conflict."""
    listed = repo.git("ls-files", "-u", "-z").decode().split("\0")
    return sorted({entry.partition("\t")[2] for entry in listed if entry})


def resolve(repo: Repo, *arguments: str, ok: Sequence[int] = (0,)) -> Said:
    """Run `wtxtgit resolve`, in this process."""
    return Sealed(repo.path).call("resolve", *arguments, ok=ok)


def records(repo: Repo) -> dict[str, dict[str, Any]]:
    """The records of conflicts of this worktree, by path."""
    folder = repo.path / os.fsdecode(repo.git("rev-parse", "--git-dir").strip()) / RECORDS
    return {
        file.relative_to(folder).as_posix().removesuffix(".json"): json.loads(file.read_bytes())
        for file in folder.glob("**/*")
        if file.is_file()
    }


def open_names(repo: Repo, path: str) -> dict[str, list[list[int]] | None]:
    """What the record of a path says is open: its row ranges by name."""
    return {one["name"]: one.get("row_ranges") for one in records(repo)[path]["conflicts"]}


def held(repo: Repo, kind: Kind, name: str | None = None) -> Model:
    """The model in the work tree, by a reader of its own; `verify` has nothing to say of it."""
    name = name or kind.name
    Sealed(repo.path).call("verify", "--", name)
    return kind.read((repo.path / name).read_bytes())


def assert_merged(repo: Repo, kind: Kind, wanted: Model, name: str | None = None) -> None:
    """The file is in no conflict, has no record of one, and holds exactly this."""
    path = name or kind.name
    assert path not in unmerged(repo)
    assert path not in records(repo)
    assert_model(held(repo, kind, path), wanted)


def file_of(repo: Repo, name: str) -> bytes:
    return Path(repo.path, name).read_bytes()
