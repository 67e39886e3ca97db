"""Reseal: the index of a set made anew, once its files were changed one by one."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial

from wtxtgit.checkpoint import folders
from wtxtgit.checkpoint.members import members
from wtxtgit.checkpoint.open import file_of, folder_names, read
from wtxtgit.containers import any_format, registry
from wtxtgit.errors import CheckError, InputError
from wtxtgit.io.files import failures, named, replace_file, shown
from wtxtgit.io.view import ByteView, same_bytes, write_all
from wtxtgit.model.plain import JsonObject
from wtxtgit.model.tensor import ReadOptions


@dataclass(frozen=True, slots=True)
class Resealing(JsonObject):
    """What became of a set: `changed` are the files that were written, of none where all fits."""

    path: str
    format: str
    tensors: int
    changed: tuple[str, ...]


def reseal(target: str, options: ReadOptions) -> Resealing:
    """Make the index of a set anew, of its files as they are; the set is proved before.

    `target` is the file that lists the others, or its folder. Raises InputError for what is no
    such set, CheckError where a file of it does not hold.
    """
    path = file_of(target, "a set in the work tree is what can be changed")
    if path.is_dir():
        index = folders.index_of(shown(path), folder_names(target) or ())
        if not isinstance(index, str):
            raise InputError(f"{shown(path)}: its files need no index")
        path = path / index
    data = read(str(path))
    known = registry.listed_by(data)
    if known is None or known.reseal_set is None:
        what = "no index of a set" if known is None else f"a {known.set_name} has no hashes"
        raise InputError(f"{shown(path)}: {what}", hint="an AEROSET's .aeroset.json is what has")
    open_member = members(str(path))
    with named(path):
        name, index_bytes, listed = known.reseal_set().reseal_set(data, open_member)

    def opened(member: str) -> ByteView:
        return memoryview(index_bytes) if member == name else open_member(member)

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
    return Resealing(str(path), known.set_name, len(description.tensors), tuple(changed))


def _write(content: bytes, descriptor: int) -> None:
    write_all(descriptor, (content,))
