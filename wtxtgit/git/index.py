"""Reading the index: its entries, and how HEAD, the work tree and `git add` differ from it.

Git is asked for names and stat fields only; `changes` is the one function that runs filters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import NamedTuple

from wtxtgit.errors import CheckError, EnvironmentFailure, UsageError
from wtxtgit.git import run
from wtxtgit.git.driver import UNFILTERED
from wtxtgit.git.repository import Repository
from wtxtgit.git.trees import TreeEntry as TreeEntry

_HASHES = {40: "sha1", 64: "sha256"}
"""The repository's hash, by the length of an object id in hex."""

_FATAL = 128
"""The exit code of git if it refuses what it was given."""


class FileChange(Enum):
    """How a work-tree file differs from its index entry, as `git status` sees it."""

    NONE = "."
    MODIFIED = "M"
    TYPE = "T"
    DELETED = "D"
    UNMERGED = "U"

    @classmethod
    def _missing_(cls, value: object) -> FileChange:  # noqa: ARG003 - enum passes it
        """Treat other letters, such as `A` after `git add -N`, as a modification."""
        return cls.MODIFIED


def entries(repo: Repository, pathspecs: Sequence[str] = ()) -> list[TreeEntry]:
    """List the entries of the index; a conflict has one entry for each stage.

    `pathspecs` limit the list; they are relative to the folder of the repository's prefix. Raises
    UsageError for one that git does not take.
    """
    index_entries = []
    command = ("ls-files", "-s", "-t", "-z", "--full-name")
    if pathspecs:
        result = run.call(*command, "--", *pathspecs, cwd=repo.here, ok=(0, _FATAL))
        if result.code:
            # If the index can't be read, this raises the error for that.
            repo.git(*command)
            raise UsageError(_message(result.stderr))
        output = result.stdout
    else:
        output = repo.git(*command)
    for record in run.records(output):
        details, tab, path = record.partition(b"\t")
        tag, mode, oid, stage = details.split(b" ")
        # A path may contain anything but NUL; a record without the tab is not git's.
        if not tab:
            raise EnvironmentFailure(f"git ls-files returned {record[:200]!r}")
        index_entries.append(TreeEntry(path, int(mode, 8), oid.decode(), int(stage), tag == b"S"))
    return _with_intent(repo, index_entries)


def half_staged(repo: Repository) -> set[bytes]:
    """Return the paths whose content in the index is neither in HEAD nor in the work tree.

    The index is the repository's own: another one, which git names in the hook of a `git commit`
    that stages files, goes with that commit.
    """
    env = {"GIT_INDEX_FILE": str(repo.git_dir.absolute() / "index")}
    return staged_paths(repo, env) & touched(repo, env).keys()


def staged_paths(repo: Repository, env: run.Environment | None = None) -> set[bytes]:
    """Return the paths whose index entry differs from HEAD, without deleted ones.

    Honours GIT_INDEX_FILE. Before the first commit these are all paths.
    """
    head = repo.call("rev-parse", "--verify", "--quiet", "HEAD^{tree}", ok=(0, 1, 128))
    if head.code:
        return {entry.path for entry in entries(repo)}
    tree = head.stdout.decode("ascii").strip()
    changed = repo.git(
        *("diff-index", "--cached", "-z", "--name-only", "--no-renames", "--diff-filter=d"),
        *(tree, "--"),
        env=env,
    )
    return set(run.records(changed))


def untracked_paths(repo: Repository) -> list[bytes]:
    """List the untracked files that `git add` would add."""
    return run.records(repo.git("ls-files", "--others", "--exclude-standard", "-z"))


def changes(repo: Repository) -> dict[bytes, FileChange]:
    """Compare the work tree with the index through one `git status`.

    Unchanged paths are left out.
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


def _with_intent(repo: Repository, index_entries: list[TreeEntry]) -> list[TreeEntry]:
    """Mark the entries of `git add -N`, which `git ls-files` shows as empty files."""
    empty = {entry.path for entry in index_entries if entry.oid == _empty("blob", len(entry.oid))}
    if not empty:
        return index_entries
    # Compared with the empty tree every entry is an addition, except those that a commit would
    # leave out.
    tree_options = ("--ita-invisible-in-index", _empty("tree", len(index_entries[0].oid)))
    names = ("--name-only", "-z", "--no-renames")
    staged = run.records(repo.git("diff-index", "--cached", *names, *tree_options, "--"))
    intended = empty.difference(staged)
    return [entry._replace(intended=entry.path in intended) for entry in index_entries]


@cache
def _empty(kind: str, length: int) -> str:
    """Return the id of the empty blob or tree, in a repository whose ids have `length` digits."""
    return hashlib.new(
        _HASHES[length], b"%s 0\0" % kind.encode(), usedforsecurity=False
    ).hexdigest()


@dataclass(frozen=True, slots=True)
class Touched:
    """How a file's stat fields and mode differ from its index entry.

    `is_content` says that the mode is the same, so that only its content can tell whether it
    changed.
    """

    change: FileChange
    is_content: bool


def touched(repo: Repository, env: run.Environment | None = None) -> dict[bytes, Touched]:
    """Compare the work tree with the index by stat fields, without running filters."""
    output = run.records(
        repo.git(
            *UNFILTERED,
            "diff-files",
            "--raw",
            "-z",
            "--no-renames",
            "--ignore-submodules=all",
            env=env,
        )
    )
    changes = {}
    for details, path in zip(output[::2], output[1::2], strict=True):
        fields = details.removeprefix(b":").split(b" ")
        if len(fields) != 5:
            raise EnvironmentFailure(f"git diff-files returned {details[:200]!a}")
        change = FileChange(fields[4][:1].decode("ascii", "replace"))
        changes[path] = Touched(change, change is FileChange.MODIFIED and fields[0] == fields[1])
    return changes


_EVERYTHING = (":/",)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user wants added; pathspecs are relative to the folder of the repository's prefix.

    `only_tracked` is `git add -u`, `with_ignored` is `-f`. No pathspec means everything.
    """

    pathspecs: Sequence[str]
    only_tracked: bool = False
    with_ignored: bool = False


class Candidates(NamedTuple):
    """Files that `git add` may have to add; paths are relative to the top level.

    `tracked` are those that may have changed, `new` are untracked, and in place of the `removed`
    ones there is no file: nothing, a folder, or something beyond a link. `refused` is the reason if
    git leaves out some of the named files and adds the rest; None if it adds all. `doubtful` are
    tracked files that git may silently leave out: those outside of a sparse checkout.
    """

    tracked: list[bytes]
    new: list[bytes]
    removed: list[bytes]
    refused: CheckError | None
    doubtful: list[bytes]


def candidates(repo: Repository, wanted: Wanted) -> Candidates:
    """List what `git add` would look at; raises UsageError for a pathspec that makes it stop."""
    here = repo.here
    pathspecs = tuple(wanted.pathspecs) or _EVERYTHING
    others: tuple[str, ...] = ()
    if not wanted.only_tracked:
        others = ("--others",) if wanted.with_ignored else ("--others", "--exclude-standard")
    # Before anything is listed: a misspelled pathspec makes git add nothing at all.
    dry_run = _dry_run(repo, wanted, others)
    refused = None if dry_run is None else refusal(dry_run)
    changed = run.git(
        *UNFILTERED,
        "diff-files",
        "-z",
        "--name-status",
        "--no-renames",
        "--no-relative",
        "--ignore-submodules=none",
        "--",
        *pathspecs,
        cwd=here,
    )
    fields = run.records(changed)
    kinds = dict(zip(fields[1::2], fields[::2], strict=True))
    doubtful: list[bytes] = []
    if dry_run is not None and repo.config.is_true("core.sparseCheckout"):
        # A file may exist outside of the sparse checkout, and its entry does not show that.
        printed = {*dry_run.stdout.split(b"\n")}
        said = {
            path: b"%b '%b'" % (b"remove" if kind == b"D" else b"add", path)
            for path, kind in kinds.items()
        }
        doubtful = [path for path in kinds if said[path] not in printed]
        kinds = {path: kind for path, kind in kinds.items() if said[path] in printed}
    tracked = [path for path, kind in kinds.items() if kind != b"D"]
    removed = [path for path, kind in kinds.items() if kind == b"D"]
    if not others:
        return Candidates(tracked, [], removed, refused, doubtful)
    # gitignore(5) decides which files are new, unless -f asks for ignored ones too.
    untracked = run.git("ls-files", "-z", *others, "--full-name", "--", *pathspecs, cwd=here)
    return Candidates(tracked, run.records(untracked), removed, refused, doubtful)


def _dry_run(repo: Repository, wanted: Wanted, others: Sequence[str]) -> run.Result | None:
    """Return the result of `git add --dry-run`; None if it is clear that git would add everything.

    Raises UsageError for a pathspec that makes git stop.
    """
    here = repo.here
    is_sparse = repo.config.is_true("core.sparseCheckout")
    if not wanted.pathspecs and not is_sparse:
        return None
    query = ("ls-files", "--error-unmatch", "--cached", *others, "--", *wanted.pathspecs)
    # git-ls-files(1): --error-unmatch exits with 1 if a pathspec matches nothing.
    is_whole = run.call(*query, cwd=here, ok=(0, 1, 128)).code == 0
    if is_whole and not is_sparse and not _skips(here, wanted):
        return None
    # Something named is neither tracked nor new (ignored, empty, outside, misspelled), or may lie
    # outside of the sparse checkout.
    given = {
        "--update": wanted.only_tracked,
        "--force": wanted.with_ignored,
        "--all": not (wanted.pathspecs or wanted.only_tracked),
    }
    options = [option for option, is_given in given.items() if is_given]
    command = (*UNFILTERED, "add", "--dry-run", *options, "--", *wanted.pathspecs)
    result = run.call(*command, cwd=here, ok=(0, 1, _FATAL))
    if result.code == _FATAL:
        raise UsageError(_message(result.stderr))
    return result


def refusal(added: run.Result) -> CheckError | None:
    """Return why a `git add` that ran to its end left something out; None if it added all."""
    return CheckError(_message(added.stderr), hint=_advice(added.stderr)) if added.code else None


def _skips(here: Path, wanted: Wanted) -> bool:
    """Tell whether some named files have the skip-worktree bit, for which git may refuse them."""
    tagged = run.records(run.git("ls-files", "-t", "-z", "--", *wanted.pathspecs, cwd=here))
    return any(record.startswith(b"S ") for record in tagged)


def _message(stderr: bytes) -> str:
    """Return git's message without its advice, as one line."""
    lines = stderr.decode("utf-8", "backslashreplace").splitlines()
    message = " ".join(line for line in lines if not line.startswith("hint: "))
    return message.removeprefix("fatal: ").removeprefix("The ")


def _advice(stderr: bytes) -> str | None:
    """Return the hint for git's advice, if there is one that we know."""
    if b"--sparse" in stderr:
        return "git add --sparse adds them anyway"
    return "-f adds them anyway" if b"Use -f" in stderr else None
