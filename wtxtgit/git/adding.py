"""What `git add` would take up, found without running a filter; and `git add` itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.errors import UsageError
from wtxtgit.git import run
from wtxtgit.git.config import UNFILTERED
from wtxtgit.git.repository import Repository

_EVERYTHING = (":/",)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user wants added: pathspecs as given in the folder of the repository's prefix.

    `only_tracked` is `git add -u`, `with_ignored` is `-f`. No pathspec means everything.
    """

    pathspecs: Sequence[str]
    only_tracked: bool = False
    with_ignored: bool = False


@dataclass(frozen=True, slots=True)
class Candidates:
    """Paths from the top level: tracked ones that may have changed, gone ones too, and new ones."""

    tracked: list[bytes]
    untracked: list[bytes]


def candidates(repo: Repository, wanted: Wanted) -> Candidates:
    """List what may have to be added; raises UsageError for a pathspec that git would refuse."""
    here = repo.here
    named = tuple(wanted.pathspecs) or _EVERYTHING
    others: tuple[str, ...] = ()
    if not wanted.only_tracked:
        others = ("--others",) if wanted.with_ignored else ("--others", "--exclude-standard")
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
        return Candidates(tracked, [])
    listed = run.git("ls-files", "-z", *others, "--full-name", "--", *named, cwd=here)
    return Candidates(tracked, run.records(listed))


def add(repo: Repository, paths: Iterable[bytes], *, with_ignored: bool = False) -> None:
    """Have git add paths, from the top level, each as it is; raises GitFailure."""
    chosen = run.joined(paths)
    if chosen:
        repo.git(
            "--literal-pathspecs",
            "add",
            *(("--force",) if with_ignored else ()),
            "--pathspec-from-file=-",
            "--pathspec-file-nul",
            stdin=chosen,
        )


def _check(here: Path, wanted: Wanted, others: Sequence[str]) -> None:
    """Raise UsageError, in git's own words, for pathspecs that `git add` would refuse."""
    if not wanted.pathspecs:
        return
    listed = ("ls-files", "--error-unmatch", "--cached", *others, "--", *wanted.pathspecs)
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
    said = " ".join(line for line in lines if not line.startswith("hint: "))
    return said.removeprefix("fatal: ").removeprefix("The ")
