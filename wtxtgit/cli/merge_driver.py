"""What git calls for a file that both sides of a merge changed: `merge-driver`.

Git starts it for each such file, and most were changed on one side alone since
their common ancestor: nothing heavy is imported for those; click never is.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from wtxtgit.cli import boundary, environment
from wtxtgit.cli.boundary import complain, note
from wtxtgit.errors import MAX_NAME, CheckError, UsageError, WtxtgitError, clipped, counted
from wtxtgit.merge.driver import (
    MADE,
    STALE,
    SideNames,
    has_ledger,
    merge,
    merge_ledgers,
    side_names,
    stale_index,
)
from wtxtgit.merge.policy import WHOLE
from wtxtgit.model.ledger import LEDGER_SUFFIX
from wtxtgit.report.merge import Conflict, MergedKind, MergeReport

if TYPE_CHECKING:
    from wtxtgit.git.merging import MergedTrees
    from wtxtgit.git.repository import Repository
    from wtxtgit.git.store.reader import ObjectStore

CONFLICT = CheckError.exit_code
_MOST_NAMED = 3
"""The most conflicts that a message names."""
_MOST_RANGES = 3
PLAIN = SideNames("ours", "theirs")


def main(arguments: list[str]) -> int:
    """Merge one file for git, the result in OURS; `arguments` start with the command's name."""
    return boundary.run(lambda: _run(arguments[1:]))


def _run(words: list[str]) -> int:
    end = words.index("--") if "--" in words else len(words)
    options = {word for word in words[:end] if word.startswith("-")}
    arguments = [word for word in words[:end] if word not in options] + words[end + 1 :]
    # %O %A %B, then %L for drivers that write markers, and %P: gitattributes(5).
    if not 3 <= len(arguments) <= 5 or options - {"--ledger"}:
        raise UsageError("merge-driver takes [--ledger] BASE OURS THEIRS [MARKER_SIZE] [PATH]")
    base, ours, theirs = map(Path, arguments[:3])
    path = arguments[4] if len(arguments) > 4 else None
    # A pattern for a folder that an earlier version wrote names the other driver for ledgers, too.
    if options or (path or "").endswith(os.fsdecode(LEDGER_SUFFIX)):
        return _merge_ledgers(base, ours, theirs, path or os.fspath(ours))
    return _merge(base, ours, theirs, path)


def _merge_ledgers(base: Path, ours: Path, theirs: Path, shown: str) -> int:
    if merge_ledgers(base, ours, theirs) is not None:
        return 0
    complain(
        f"{shown}: both sides added records; ours is kept for now: settle the file it seals, git "
        f"add that file, then run wtxtgit seal --reseal"
    )
    return CONFLICT


def _merge(base: Path, ours: Path, theirs: Path, path: str | None) -> int:
    from wtxtgit.git.repository import Repository

    shown = path or os.fspath(ours)
    from_top = None if path is None else os.fsencode(path)
    try:
        # Each file that both sides have starts this: git is asked once.
        repo = Repository.find()
        store = partial(_store, repo)
        threads = environment.threads()
        merging = cache(partial(_merging, repo))
        report = merge(
            repo, base, ours, theirs, from_top, threads=threads, store=store, merging=merging
        )
    except WtxtgitError as error:
        complain(f"{shown}: {error.message}; ours is kept for now", error.hint)
        return CONFLICT
    names = PLAIN if repo is None else side_names(repo, environment.git_action())
    if not report.ok:
        _complain(shown, report, names)
    elif MADE not in report.notes and (report.taken is None or report.decided):
        note(f"{shown}: {outcome(report, names)}")
    for line in report.notes:
        hint = _reseal_hint(shown) if line.startswith(STALE) else None
        note(f"{shown}: {line}", hint)
    if not report.ok:
        return CONFLICT
    if report.taken is not None or repo is None or from_top is None:
        return 0
    index = stale_index(repo, from_top, report.format, merging)
    if index is not None:
        note(f"{shown}: {index} lists its old hashes", _reseal_hint(index))
    if has_ledger(repo, from_top):
        # The conflict of the ledger, and the hooks, say what to do.
        note(sealing(shown)[0])
    return 0


def _store(repo: Repository | None) -> ObjectStore | None:
    """Return the object store in which git will look for the merged text before it writes it."""
    if repo is None:
        return None
    from wtxtgit.filter.process import is_merging
    from wtxtgit.git.store.reader import ObjectStore

    return ObjectStore.ahead_of_git(repo) if is_merging() else None


def _merging(repo: Repository | None) -> MergedTrees | None:
    """Return the trees that git is merging, if that is known."""
    if repo is None:
        return None
    from wtxtgit.filter.process import git_command
    from wtxtgit.git.merging import merged_trees

    return merged_trees(repo, environment.merged_commits(), git_command())


def _reseal_hint(index: str) -> str:
    return f"wtxtgit reseal --stage -- {_quoted(index)}"


def _quoted(path: str) -> str:
    """Return a path from the top level as the user has to type it in the current folder."""
    return shlex.quote(os.path.relpath(path, environment.git_prefix() or "."))


def _complain(path: str, report: MergeReport, names: SideNames) -> None:
    named = [_named(conflict) for conflict in report.conflicts[:_MOST_NAMED]]
    more = len(report.conflicts) - len(named)
    what = ", ".join(named) + (f" and {more} more" if more > 0 else "")
    quoted = _quoted(path)
    hint = (
        f"wtxtgit resolve {quoted} lists all conflicts, and --take NAME=theirs settles one; git "
        f"checkout --theirs -- {quoted} takes the other file, then git add -- {quoted}"
    )
    if any(conflict.reason.startswith(STALE) for conflict in report.conflicts):
        hint = _reseal_hint(path)
    complain(
        f"{path}: both sides changed it; {names.ours} is kept for now: {what}; the file has no "
        f"changes from {names.theirs} yet",
        hint,
    )


def _named(conflict: Conflict) -> str:
    if conflict.name == WHOLE:
        return conflict.reason
    name = clipped(conflict.name, MAX_NAME)
    if conflict.rows is None:
        return f"{name}: {conflict.reason}"
    return f"{name} {rows_of(conflict)}"


def rows_of(conflict: Conflict) -> str:
    """Format rows, such as `rows 3-5, 9`."""
    if conflict.rows is None or conflict.ranges is None:
        return ""
    if len(conflict.ranges) > _MOST_RANGES or not conflict.exact:
        return counted(conflict.rows, "row")
    spans = [str(a) if b == a + 1 else f"{a}-{b - 1}" for a, b in conflict.ranges]
    return f"{'row' if conflict.rows == 1 else 'rows'} {', '.join(spans)}"


def outcome(report: MergeReport, names: SideNames) -> str:
    """Return the result of a merge without conflicts, in words."""
    sides = {"ours": names.ours, "theirs": names.theirs}
    if report.taken is not None:
        by = ", by the strategy" if report.decided else ""
        return f"{sides.get(report.taken, report.taken)} is taken{by}"
    counts = Counter((change.how, change.strategy is not None) for change in report.settled)
    words = {
        ("ours", False): f"from {names.ours}",
        ("theirs", False): f"from {names.theirs}",
        ("both", False): "row by row",
        ("equal", False): "with the same change",
        ("later", False): "by later time",
        ("larger", False): "by larger count",
        ("measured", False): f"measured, kept from {names.ours}",
        ("ours", True): f"decided for {names.ours}",
        ("theirs", True): f"decided for {names.theirs}",
        ("base", True): "decided for the base",
        ("average", True): "by average",
        ("task", True): "by task",
    }
    kinds = {change.kind for change in report.settled}
    noun = "tensor" if kinds == {MergedKind.TENSOR} else "change"
    parts = [(counts[key], word) for key, word in words.items() if counts[key]]
    # The first one says what is counted.
    phrases = [
        f"{count} {word}" if n else f"{counted(count, noun)} {word}"
        for n, (count, word) in enumerate(parts)
    ]
    return f"merged, {', '.join(phrases)}" if phrases else "merged"


def sealing(path: str) -> tuple[str, str]:
    return (
        f"{path}: the merged file is not sealed yet",
        f"once it is staged: wtxtgit seal --reseal -- {shlex.quote(path)}",
    )
