"""A migration that was cut off between the moving of refs and the following of index and work tree.

What the index has to follow is noted down before any ref moves, so that the next run can end it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from wtxtgit.git.blobs import check_oid
from wtxtgit.git.history import resolve_commit
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import replace_file
from wtxtgit.io.view import write_all

PENDING = "wtxtgit-migration"
"""The file's name in the git directory of a work tree, whose HEAD and index are its own."""
_TEXTS, _FILES = "texts", "files"


class CutOff(NamedTuple):
    """The commits that HEAD named before and names after, and whether files become texts."""

    before: str
    after: str
    are_texts: bool


def note(repo: Repository, what: CutOff) -> None:
    """Note down what is to follow; `forget` takes it back."""
    line = f"{what.before} {what.after} {_TEXTS if what.are_texts else _FILES}\n"
    replace_file(_file(repo), lambda descriptor: write_all(descriptor, (line.encode(),)))


def forget(repo: Repository) -> None:
    """Take the note back: index and work tree are as HEAD is."""
    _file(repo).unlink(missing_ok=True)


def cut_off(repo: Repository) -> CutOff | None:
    """What has to be ended; None where no ref had moved, or index or HEAD are others by now."""
    try:
        before, after, kind = _file(repo).read_text("ascii").split()
    except (FileNotFoundError, ValueError):
        return None
    found = CutOff(check_oid(before), check_oid(after), kind == _TEXTS)
    if resolve_commit(repo, "HEAD") != found.after:
        return None
    staged = ("diff-index", "--cached", "--quiet", "--ignore-submodules=all")
    is_either = any(not repo.call(*staged, tip, "--", ok=(0, 1)).code for tip in found[:2])
    return found if is_either else None


def _file(repo: Repository) -> Path:
    return repo.git_dir / PENDING
