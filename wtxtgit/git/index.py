"""Reading the index: its entries, and how HEAD, the work tree and `git add` differ from it.

Git is asked for stat fields and names alone; no filter is run but by `changes`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure, UsageError
from wtxtgit.git import run
from wtxtgit.git.driver import UNFILTERED
from wtxtgit.git.repository import Repository
from wtxtgit.git.trees import TreeEntry as TreeEntry

_HASHES = {40: "sha1", 64: "sha256"}
"""The repository's hash, by the length of an object id in hex."""


class FileChange(Enum):
    """How a work-tree file differs from its index entry, as `git status` sees it."""

    NONE = "."
    MODIFIED = "M"
    TYPE = "T"
    DELETED = "D"
    UNMERGED = "U"

    @classmethod
    def _missing_(cls, value: object) -> FileChange:  # noqa: ARG003 - enum passes it
        """Take a letter that says no more to us, such as `A` after `git add -N`, for a change."""
        return cls.MODIFIED


def entries(repo: Repository, pathspecs: Sequence[str] = ()) -> list[TreeEntry]:
    """List the index, conflicts as one entry a stage.

    Or what pathspecs name of it, as given in the folder of the repository's prefix.
    """
    listed = []
    asked = ("ls-files", "-s", "-t", "-z", "--full-name")
    output = run.git(*asked, "--", *pathspecs, cwd=repo.here) if pathspecs else repo.git(*asked)
    for record in run.records(output):
        about, tab, path = record.partition(b"\t")
        tag, mode, oid, stage = about.split(b" ")
        # A path may hold anything but NUL; without the tab the record is not git's.
        if not tab:
            raise EnvironmentFailure(f"git ls-files gives {record[:200]!r}")
        listed.append(TreeEntry(path, int(mode, 8), oid.decode(), int(stage), tag == b"S"))
    return _with_intent(repo, listed)


def staged_paths(repo: Repository) -> set[bytes]:
    """Paths whose index entry differs from HEAD; deleted ones are not among them.

    Honours GIT_INDEX_FILE. Before the first commit that is every path.
    """
    head = repo.call("rev-parse", "--verify", "--quiet", "HEAD^{tree}", ok=(0, 1, 128))
    if head.code:
        return {entry.path for entry in entries(repo)}
    tree = head.stdout.decode("ascii").strip()
    changed = repo.git(
        "diff-index", "--cached", "-z", "--name-only", "--no-renames", "--diff-filter=d", tree, "--"
    )
    return set(run.records(changed))


def untracked_paths(repo: Repository) -> list[bytes]:
    """List the files that `git add` would take up."""
    return run.records(repo.git("ls-files", "--others", "--exclude-standard", "-z"))


def changes(repo: Repository) -> dict[bytes, FileChange]:
    """Compare the work tree with the index, once, through `git status`.

    Paths that are not there are unchanged.
    """
    changed = {}
    output = repo.git(
        "status",
        "--porcelain=v2",
        "-z",
        "--untracked-files=no",
        "--ignore-submodules=all",
        "--no-renames",
    )
    for record in run.records(output):
        kind, _, rest = record.partition(b" ")
        if kind == b"1":
            fields = rest.split(b" ", 7)
            changed[fields[7]] = FileChange(fields[0][1:2].decode("ascii"))
        elif kind == b"u":
            changed[rest.split(b" ", 9)[9]] = FileChange.UNMERGED
    return changed


def _with_intent(repo: Repository, listed: list[TreeEntry]) -> list[TreeEntry]:
    """Mark the entries of `git add -N`, which `git ls-files` shows as empty files."""
    empty = {entry.path for entry in listed if entry.oid == _empty("blob", len(entry.oid))}
    if not empty:
        return listed
    # Against the empty tree every entry is added, but for those that a commit leaves out.
    against = ("--ita-invisible-in-index", _empty("tree", len(listed[0].oid)))
    names = ("--name-only", "-z", "--no-renames")
    staged = run.records(repo.git("diff-index", "--cached", *names, *against, "--"))
    intended = empty.difference(staged)
    return [entry._replace(intended=entry.path in intended) for entry in listed]


@cache
def _empty(kind: str, length: int) -> str:
    """Give the id of the empty blob or tree, as long as others here."""
    return hashlib.new(
        _HASHES[length], b"%s 0\0" % kind.encode(), usedforsecurity=False
    ).hexdigest()


@dataclass(frozen=True, slots=True)
class Touched:
    """What `change` a file's stat fields and mode tell of; `is_content` where the mode is the same.

    Then only its content can tell whether it is changed.
    """

    change: FileChange
    is_content: bool


def touched(repo: Repository) -> dict[bytes, Touched]:
    """Compare the work tree with the index by stat fields; no filter is run."""
    output = run.records(
        repo.git(
            *UNFILTERED,
            "diff-files",
            "--raw",
            "-z",
            "--no-renames",
            "--ignore-submodules=all",
        )
    )
    changes = {}
    for about, path in zip(output[::2], output[1::2], strict=True):
        fields = about.removeprefix(b":").split(b" ")
        if len(fields) != 5:
            raise EnvironmentFailure(f"git diff-files gives {about[:200]!a}")
        change = FileChange(fields[4][:1].decode("ascii", "replace"))
        changes[path] = Touched(change, change is FileChange.MODIFIED and fields[0] == fields[1])
    return changes


_EVERYTHING = (":/",)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user wants added: pathspecs as given in the folder of the repository's prefix.

    `only_tracked` is `git add -u`, `with_ignored` is `-f`. No pathspec means everything.
    """

    pathspecs: Sequence[str]
    only_tracked: bool = False
    with_ignored: bool = False


def candidates(repo: Repository, wanted: Wanted) -> tuple[list[bytes], list[bytes]]:
    """List tracked files that may have changed, deleted ones too, and new ones.

    Paths from the top level. Raises UsageError for a pathspec that git would refuse.
    """
    here = repo.here
    named = tuple(wanted.pathspecs) or _EVERYTHING
    others: tuple[str, ...] = ()
    if not wanted.only_tracked:
        others = ("--others",) if wanted.with_ignored else ("--others", "--exclude-standard")
    # Before anything is listed: a pathspec that git refuses must not be half obeyed.
    _check(here, wanted, others)
    changed = run.git(
        *UNFILTERED,
        "diff-files",
        "-z",
        "--name-only",
        "--no-renames",
        "--no-relative",
        "--ignore-submodules=none",
        "--",
        *named,
        cwd=here,
    )
    tracked = list(dict.fromkeys(run.records(changed)))
    if not others:
        return tracked, []
    # gitignore(5) decides what is new, unless -f asks for what is ignored as well.
    listed = run.git("ls-files", "-z", *others, "--full-name", "--", *named, cwd=here)
    return tracked, run.records(listed)


def _check(here: Path, wanted: Wanted, others: Sequence[str]) -> None:
    """Raise UsageError, in git's own words, for pathspecs that `git add` would refuse."""
    if not wanted.pathspecs:
        return
    listed = ("ls-files", "--error-unmatch", "--cached", *others, "--", *wanted.pathspecs)
    # git-ls-files(1): --error-unmatch ends with 1 for a pathspec that names nothing.
    if run.call(*listed, cwd=here, ok=(0, 1, 128)).code or _are_skipped(here, wanted):
        # Nothing there that is tracked or new: ignored, empty, outside, misspelled.
        given = {"--update": wanted.only_tracked, "--force": wanted.with_ignored}
        options = [option for option, is_given in given.items() if is_given]
        try:
            run.git(*UNFILTERED, "add", "--dry-run", *options, "--", *wanted.pathspecs, cwd=here)
        except run.GitFailure as error:
            raise UsageError(_words(error.stderr)) from error


def _are_skipped(here: Path, wanted: Wanted) -> bool:
    """Whether some of what is named is left out of a sparse checkout, which git may refuse."""
    tagged = run.records(run.git("ls-files", "-t", "-z", "--", *wanted.pathspecs, cwd=here))
    return any(record.startswith(b"S ") for record in tagged)


def _words(stderr: bytes) -> str:
    """What git says, without its advice, as one line."""
    lines = stderr.decode("utf-8", "backslashreplace").splitlines()
    words = " ".join(line for line in lines if not line.startswith("hint: "))
    return words.removeprefix("fatal: ").removeprefix("The ")
