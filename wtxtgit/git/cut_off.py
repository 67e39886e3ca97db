"""A migration that was interrupted after it moved refs, but before it updated index and work tree.

Before any ref moves, HEAD's commits before and after the migration are recorded in a file, so that
the next run can finish it.
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
FINISHES = "run the same wtxtgit migrate command again to finish it"
"""The hint for a migration that was interrupted."""
_TEXTS, _FILES = "texts", "files"


class CutOff(NamedTuple):
    """The commits of HEAD before and after, and whether files become texts or texts files."""

    before: str
    after: str
    are_texts: bool


def note(repo: Repository, migration: CutOff) -> None:
    """Record a migration before refs move; `forget` removes the record."""
    line = f"{migration.before} {migration.after} {_TEXTS if migration.are_texts else _FILES}\n"
    replace_file(_file(repo), lambda descriptor: write_all(descriptor, (line.encode(),)))


def forget(repo: Repository) -> None:
    """Remove the record: index and work tree now match HEAD."""
    _file(repo).unlink(missing_ok=True)


def cut_off(repo: Repository) -> CutOff | None:
    """Return the migration that has to be finished.

    Returns None if no ref had moved, or if HEAD or the index have changed since.
    """
    try:
        before, after, kind = _file(repo).read_text("ascii").split()
    except (FileNotFoundError, ValueError):
        return None
    interrupted = CutOff(check_oid(before), check_oid(after), kind == _TEXTS)
    if resolve_commit(repo, "HEAD") != interrupted.after:
        return None
    staged = ("diff-index", "--cached", "--quiet", "--ignore-submodules=all")
    is_either = any(not repo.call(*staged, tip, "--", ok=(0, 1)).code for tip in interrupted[:2])
    return interrupted if is_either else None


def _file(repo: Repository) -> Path:
    return repo.git_dir / PENDING
