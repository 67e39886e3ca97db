"""Reseal: the index of a set made anew, once its files were changed one by one.

Where git has the index in conflict, both sides changed what it lists. As long as they differ in
nothing but hashes, sizes and tensors, which follow from the files, no side needs to be taken: what
is made anew is staged, and ends the conflict.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from wtxtgit.checkpoint import folders
from wtxtgit.checkpoint.members import members
from wtxtgit.checkpoint.open import TargetPlace, file_of, folder_names, read
from wtxtgit.containers import any_format, registry
from wtxtgit.containers.format import OpenMember
from wtxtgit.errors import CheckError, InputError
from wtxtgit.io.files import failures, named, replace_file, shown
from wtxtgit.io.view import ByteView, same_bytes, write_all
from wtxtgit.model.plain import JsonObject
from wtxtgit.model.tensor import ReadOptions

if TYPE_CHECKING:  # a set outside of a repository needs no git
    from wtxtgit.git.repository import Repository

_OURS, _THEIRS = 2, 3
"""Stages of git's index."""


@dataclass(frozen=True, slots=True)
class Resealing(JsonObject):
    """What became of a set: `changed` are the files that were written, of none where all fits.

    `staged` are the files that were staged, in a conflict those of them that this ended.
    """

    path: str
    format: str
    tensors: int
    changed: tuple[str, ...]
    staged: tuple[str, ...] = ()


def reseal(target: str, options: ReadOptions, *, stage: bool = False) -> Resealing:
    """Make the index of a set anew, of its files as they are; the set is proved before.

    `target` is the file that lists the others, or its folder. What is made anew is staged where
    that is asked for (`stage`), or ends a conflict. Raises InputError for what is no such set,
    CheckError where a file of it does not hold, or is in conflict.
    """
    path = file_of(target, "a set in the work tree is what can be changed")
    if path.is_dir():
        index = folders.index_of(shown(path), folder_names(target) or ())
        if not isinstance(index, str):
            raise InputError(f"{shown(path)}: its files need no index")
        path = path / index
    conflict = _UnmergedSet.at(path)
    data = read(str(path)) if conflict is None else conflict.listing(path)
    known = registry.listed_by(data)
    if known is None or known.reseal_set is None:
        what = "no index of a set" if known is None else f"a {known.set_name} has no hashes"
        raise InputError(f"{shown(path)}: {what}", hint="an AEROSET's .aeroset.json is what has")
    open_member: OpenMember = members(str(path))
    if conflict is not None:
        open_member = conflict.opener(path, open_member)
    with named(path):
        name, index_bytes, listed = known.reseal_set().reseal_set(data, open_member)

    def opened(member: str) -> ByteView:
        return memoryview(index_bytes) if member == name else open_member(member)

    if conflict is not None and known.read_set is not None:
        parts = set(known.read_set().read(memoryview(listed), opened).members)
        conflict.refuse_parts(path, parts - {name})
    # Before anything is written: what does not hold now did not before, either.
    for problem in any_format.check(memoryview(listed), options, opened).errors:
        raise CheckError(
            f"{shown(path)}: {problem}",
            hint=f"wtxtgit verify -- {shlex.quote(shown(path))} lists all problems",
        )
    description = any_format.describe(memoryview(listed), options, opened)
    changed = []
    with failures(path):
        # The JSON comes last: it is what says that the others are right.
        for file, content in ((path.parent / name, index_bytes), (path, listed)):
            if not same_bytes(read(str(file)), memoryview(content)):
                replace_file(file, partial(_write, content))
                changed.append(str(file))
    staged = () if conflict is None else conflict.end(path, (name, path.name))
    if stage:
        staged = _staged((path.parent / name, path))
    return Resealing(str(path), known.set_name, len(description.tensors), tuple(changed), staged)


def _staged(files: tuple[Path, ...]) -> tuple[str, ...]:
    """Have git add files, which need not have been changed just now; gives them."""
    from wtxtgit.git import staging
    from wtxtgit.git.repository import Repository

    repo = Repository.discover(files[0].parent)
    top = repo.worktree.resolve()
    there = (file.parent.resolve() / file.name for file in files)
    staging.add(repo, [os.fsencode(file.relative_to(top)) for file in there])
    return tuple(map(str, files))


@dataclass(frozen=True, slots=True)
class _UnmergedSet:
    """What git has in conflict in a set's folder: the stages of each file, by its name there.

    `folder` is the set's, from the top level, with a slash at its end where it is not that.
    """

    repo: Repository
    folder: str
    stages: dict[str, set[int]]

    @classmethod
    def at(cls, path: Path) -> _UnmergedSet | None:
        """The conflicts in the folder of a set's index; None where there are none."""
        from wtxtgit.git import index
        from wtxtgit.git.repository import Repository

        repo = Repository.find(path.parent)
        if repo is None or repo.top is None:
            return None
        relative = path.parent.resolve().relative_to(repo.top.resolve()).as_posix()
        folder = "" if relative == "." else f"{relative}/"
        stages: dict[str, set[int]] = {}
        for entry in index.entries(repo):
            name = os.fsdecode(entry.path)
            if entry.stage and name.startswith(folder) and "/" not in name[len(folder) :]:
                stages.setdefault(name[len(folder) :], set()).add(entry.stage)
        return cls(repo, folder, stages) if stages else None

    def _at(self, stage: int, name: str) -> str:
        return f":{stage}:{self.folder}{name}"

    def listing(self, path: Path) -> ByteView:
        """The JSON, ours where it is in conflict; raises CheckError where it is not to be told."""
        if path.name not in self.stages:
            return read(str(path))
        place = TargetPlace(path.parent)
        if {_OURS, _THEIRS} <= self.stages[path.name]:
            ours, theirs = (read(self._at(n, path.name), place) for n in (_OURS, _THEIRS))
            if _shape_of(ours) == _shape_of(theirs):
                return ours
        quoted = shlex.quote(shown(path))
        raise CheckError(
            f"{shown(path)}: the sides list other files, or say something else of the model",
            hint=f"git checkout --ours -- {quoted} or --theirs takes one, then git add -- {quoted}",
        )

    def opener(self, path: Path, otherwise: OpenMember) -> OpenMember:
        """Opens files of the set; those that are in conflict as ours has them."""
        ours = members(self._at(_OURS, path.name), TargetPlace(path.parent))
        return lambda member: ours(member) if member in self.stages else otherwise(member)

    def refuse_parts(self, path: Path, parts: Set[str]) -> None:
        """Raise CheckError where a part is in conflict: nobody knows yet what will be in it."""
        for name in sorted(self.stages.keys() & parts):
            file = shown(path.parent / name)
            raise CheckError(
                f"{file}: is in conflict", hint=f"wtxtgit resolve {shlex.quote(file)} shows it"
            )

    def end(self, path: Path, names: Iterable[str]) -> tuple[str, ...]:
        """Stage what was made anew and was in conflict; gives those files."""
        from wtxtgit.git import staging

        ended = [name for name in names if name in self.stages]
        staging.add(self.repo, [os.fsencode(self.folder + name) for name in ended])
        return tuple(str(path.parent / name) for name in ended)


def _shape_of(data: ByteView) -> object:
    """What the JSON of a set says but what follows from its files."""
    from wtxtgit.containers import json_text
    from wtxtgit.errors import FormatError

    try:
        value = json_text.parse(data, "index")
    except FormatError:
        return None
    if not isinstance(value, dict):
        return value
    parts = value.get("parts")
    listed = parts if isinstance(parts, list) else [parts]
    return {
        **value,
        "parts": list(map(_without_hashes, listed)),
        "global_tidx": _without_hashes(value.get("global_tidx")),
    }


def _without_hashes(file: object) -> object:
    if not isinstance(file, dict):
        return file
    return {key: item for key, item in file.items() if key not in ("sha256", "size_bytes")}


def _write(content: bytes, descriptor: int) -> None:
    write_all(descriptor, (content,))
