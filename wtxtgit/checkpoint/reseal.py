"""Reseal: makes the index of a set again, after its files were changed one by one.

If git has the index in conflict, both sides changed what it lists. If they differ only in hashes,
sizes and tensors, which follow from the files, no side has to be chosen: the new index is staged,
which ends the conflict.
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
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import ByteView, same_bytes, write_all
from wtxtgit.model.plain import JsonObject
from wtxtgit.model.tensor import ReadOptions

if TYPE_CHECKING:  # a set outside of a repository needs no git
    from wtxtgit.git.repository import Repository

_OURS, _THEIRS = 2, 3
"""Stages of git's index."""


@dataclass(frozen=True, slots=True)
class Resealing(JsonObject):
    """What happened to a set: `changed` are the files that were written, none if all were right.

    `staged` are the files that were staged; in a conflict, those for which that ended it.
    """

    path: str
    format: str
    tensors: int
    changed: tuple[str, ...]
    staged: tuple[str, ...] = ()


def reseal(
    target: str, options: ReadOptions, *, stage: bool = False, progress: Progress | None = None
) -> Resealing:
    """Make the index of a set again from its present files; the set is checked before.

    `target` is the file that lists the others, or its folder. What is made is staged if `stage` is
    set, or if that ends a conflict. `progress` gets counts of bytes of files that were read. Raises
    InputError if there is no such set, CheckError if a file of it is invalid, or in conflict.
    """
    path = file_of(target, "only a set in the work tree can be changed")
    if path.is_dir():
        index = folders.index_of(shown(path), folder_names(target) or ())
        if not isinstance(index, str):
            raise InputError(f"{shown(path)}: files of this set have no index")
        path = path / index
    conflict = _UnmergedSet.at(path)
    data = read(str(path)) if conflict is None else conflict.listing(path)
    known = registry.listed_by(data)
    if known is None or known.reseal_set is None:
        what = "not the index of a set" if known is None else f"a {known.set_name} has no hashes"
        raise InputError(f"{shown(path)}: {what}", hint="name an AEROSET's .aeroset.json")
    open_member: OpenMember = members(str(path))
    if conflict is not None:
        open_member = conflict.opener(path, open_member)
    with named(path):
        name, index_bytes, listed = known.reseal_set().reseal_set(
            data, _counting(open_member, progress)
        )

    def opened(member: str) -> ByteView:
        return memoryview(index_bytes) if member == name else open_member(member)

    if conflict is not None and known.read_set is not None:
        parts = set(known.read_set().read(memoryview(listed), opened).members)
        conflict.refuse_parts(path, parts - {name})
    # Before anything is written: what is invalid now was so before.
    for problem in any_format.check(memoryview(listed), options, opened).errors:
        raise problem.error(
            f"{shown(path)}: {problem}",
            hint=f"wtxtgit verify -- {shlex.quote(shown(path))} lists all problems",
        )
    description = any_format.describe(memoryview(listed), options, opened)
    changed = []
    with failures(path):
        # The JSON last: it vouches for the other files.
        for file, content in ((path.parent / name, index_bytes), (path, listed)):
            if not same_bytes(read(str(file)), memoryview(content)):
                replace_file(file, partial(_write, content))
                changed.append(str(file))
    staged = () if conflict is None else conflict.end(path, (name, path.name))
    if stage:
        staged = _staged((path.parent / name, path))
    return Resealing(str(path), known.set_name, len(description.tensors), tuple(changed), staged)


def _counting(open_member: OpenMember, progress: Progress | None) -> OpenMember:
    """Return what opens files, and counts the bytes of each."""

    def opened(name: str) -> ByteView:
        data = open_member(name)
        if progress is not None:
            progress(data.nbytes)
        return data

    return opened


def _staged(files: tuple[Path, ...]) -> tuple[str, ...]:
    """Have git add files, even unchanged ones; returns them."""
    from wtxtgit.git import staging
    from wtxtgit.git.repository import Repository

    repo = Repository.discover(files[0].parent)
    top = repo.worktree.resolve()
    there = (file.parent.resolve() / file.name for file in files)
    staging.add(repo, [os.fsencode(file.relative_to(top)) for file in there])
    return tuple(map(str, files))


@dataclass(frozen=True, slots=True)
class _UnmergedSet:
    """The conflicts in a set's folder: the stages of each file, by its name there.

    `folder` is the path from the top level, empty or with a slash at its end.
    """

    repo: Repository
    folder: str
    stages: dict[str, set[int]]

    @classmethod
    def at(cls, path: Path) -> _UnmergedSet | None:
        """Return the conflicts in the folder of a set's index; None if there are none."""
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
        """Return the JSON, ours if it is in conflict.

        Raises CheckError if the sides differ in more than follows from the files.
        """
        if path.name not in self.stages:
            return read(str(path))
        place = TargetPlace(path.parent)
        if {_OURS, _THEIRS} <= self.stages[path.name]:
            ours, theirs = (read(self._at(n, path.name), place) for n in (_OURS, _THEIRS))
            with named(path):
                if shape_of(ours) == shape_of(theirs):
                    return ours
        quoted = shlex.quote(shown(path))
        raise CheckError(
            f"{shown(path)}: the two sides list different files or describe the model differently",
            hint=f"mv -i -- {quoted} {quoted}.old sets it aside, git checkout --ours -- {quoted} "
            f"or --theirs takes one, then git add -- {quoted}",
        )

    def opener(self, path: Path, otherwise: OpenMember) -> OpenMember:
        """Return an opener for files of the set; those in conflict are opened as ours."""
        ours = members(self._at(_OURS, path.name), TargetPlace(path.parent))
        return lambda member: ours(member) if member in self.stages else otherwise(member)

    def refuse_parts(self, path: Path, parts: Set[str]) -> None:
        """Raise CheckError if a part is in conflict: its final content is not known yet."""
        for name in sorted(self.stages.keys() & parts):
            file = shown(path.parent / name)
            raise CheckError(
                f"{file}: in conflict", hint=f"wtxtgit resolve {shlex.quote(file)} shows it"
            )

    def end(self, path: Path, names: Iterable[str]) -> tuple[str, ...]:
        """Stage the new files that were in conflict; returns them."""
        from wtxtgit.git import staging

        ended = [name for name in names if name in self.stages]
        staging.add(self.repo, [os.fsencode(self.folder + name) for name in ended])
        return tuple(str(path.parent / name) for name in ended)


def shape_of(data: ByteView) -> object:
    """Return the JSON of a set without what follows from its files; raises FormatError."""
    from wtxtgit.containers import json_text

    value = json_text.parse(data, "index")
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
