"""The merge drivers that git calls: they never ask, and always leave a valid file.

Of checkpoints, what can't be merged is a conflict: then ours stays as it is,
and a record beside git's own state of the merge says which tensors and rows it
is about. Of ledgers the side is taken that has all records of the other;
records are never put together here: one that joins diverged sides has to be
signed, and names what it follows.

Nearly all files of a merge were changed on one side alone: what only the
others need is imported where it is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from wtxtgit.errors import UsageError, WtxtgitError
from wtxtgit.git.repository import DETACHED_DRIVER, FILTERS, UNSET, UNSPECIFIED, Repository
from wtxtgit.io.files import read_whole, replace_file, view_file
from wtxtgit.io.view import Buffer, ByteView, pieces, write_all
from wtxtgit.merge import conflicts
from wtxtgit.merge.policy import Policy, parse_strategy, stored_side_taken
from wtxtgit.report.merge import MergeReport, Strategy

if TYPE_CHECKING:
    from wtxtgit.git.store.reader import ObjectStore
    from wtxtgit.model.tensor import ReadOptions

ATTRIBUTE = "wtxt-merge"
STRATEGY = "wtxtgit.mergeStrategy"
FOLD_KEY, FOLD_HMAC_KEY = "wtxtgit.foldKey", "wtxtgit.foldHmacKey"
"""Files with the keys of encrypted FOLD chunks, and of FOLD hashes that are HMACs."""


def merge(
    repo: Repository | None,
    base: Path,
    ours: Path,
    theirs: Path,
    path: bytes | None = None,
    *,
    threads: int | None = None,
    store: Callable[[], ObjectStore | None] = lambda: None,
) -> MergeReport:
    """Merge three contents as git stores them, given as files; the result stands in `ours`.

    `base` is empty where both sides added the file. `path`, from the top
    level of `repo`, is whose attribute and record it is. `store` gives where a merged
    content becomes an object before git deflates it, None where git is to do that. Raises
    UsageError for a strategy that there is not.
    """
    if repo is not None and path is not None:
        # Of a merge before this one.
        conflicts.forget(repo, path)
    side = one_sided(base, ours, theirs)
    if side is not None:
        return MergeReport("", side)
    # Numpy and the formats, which one-sided changes do without.
    from wtxtgit.merge.container import Merger
    from wtxtgit.merge.texts import merge_texts

    # Asked only now: most files need no strategy, and git would be started for each.
    policy = Policy(strategy_of(repo, path))
    contents = view_file(base), view_file(ours), view_file(theirs)
    report, merged = merge_texts(
        *contents,
        Merger(policy, reading_options(repo)),
        repo=repo,
        tracked=lambda: tracked_form(repo, path),
        threads=threads,
    )
    if report.ok:
        # What is taken whole is an object already.
        content = _stored(merged, store, threads) if report.taken is None else pieces(merged)
        replace_file(ours, lambda descriptor: write_all(descriptor, content))
    elif repo is not None and path is not None:
        try:
            oid = repo.git("hash-object", "--no-filters", "--", os.fsencode(ours.absolute()))
            blobs = {conflicts.OURS: oid.decode("ascii").strip()}
            conflicts.save(repo, path, policy, report, blobs)
        except WtxtgitError as error:
            # The merge is what it is without a record of it.
            return replace(report, notes=(*report.notes, f"not recorded: {error.message}"))
    return report


def _stored(
    merged: ByteView, find: Callable[[], ObjectStore | None], threads: int | None
) -> Iterable[Buffer]:
    """The bytes of a merged content; once they are taken, it is an object if that is worth it."""
    from wtxtgit.filter.process import WORTH_STORING

    if len(merged) < WORTH_STORING or (store := find()) is None:
        return pieces(merged)
    from wtxtgit.git.store.streams import PlainContent
    from wtxtgit.git.store.writing import stored
    from wtxtgit.io.workers import default_threads

    return stored(store, PlainContent(merged), threads or default_threads())


def reading_options(repo: Repository | None) -> ReadOptions:
    """What the config says of keys; raises InputError for a file that holds none."""
    from wtxtgit.model.tensor import ReadOptions

    paths = [None if repo is None else repo.config.get(key) for key in (FOLD_KEY, FOLD_HMAC_KEY)]
    if repo is None or not any(paths):
        return ReadOptions()
    from wtxtgit.checkpoint.key_file import aes_key, key_bytes

    # From home, from the root, or from the top level.
    top = repo.top or repo.git_dir
    opened, checked = (None if p is None else top / Path(p).expanduser() for p in paths)
    return ReadOptions(
        decryption_key=None if opened is None else aes_key(opened),
        integrity_key=key_bytes(checked),
    )


def tracked_form(repo: Repository | None, path: bytes | None) -> bool | None:
    """Whether attributes keep a path (from the top level) as a detached text; None: as no text."""
    if repo is None or path is None:
        return None
    said = repo.attributes([path], ["filter"], from_index=repo.is_bare)[path]["filter"]
    return said == DETACHED_DRIVER if said in FILTERS else None


def one_sided(base: Path, ours: Path, theirs: Path) -> str | None:
    """Take a file that one side alone changed into `ours`; gives that side, None if both did."""
    other = view_file(theirs)
    side = stored_side_taken(view_file(base), view_file(ours), other)
    if side == "theirs":
        replace_file(ours, lambda descriptor: write_all(descriptor, pieces(other)))
    return side


def has_ledger(repo: Repository, path: bytes) -> bool:
    """Whether the index has a ledger of an artifact, settled or not."""
    from wtxtgit.model.ledger import LEDGER_SUFFIX

    return bool(repo.git("--literal-pathspecs", "ls-files", "-z", "--", path + LEDGER_SUFFIX))


def listing_set(repo: Repository, path: bytes, format_: str) -> str | None:
    """The tracked index, beside a merged file, of a set whose index has hashes; None without one.

    From the top level. Other files of the set may yet be merged, so it is not made anew here.
    """
    from wtxtgit.containers import registry

    known = registry.by_name(format_)
    if known is None or known.reseal_set is None:
        return None
    folder, slash, _ = path.rpartition(b"/")
    listed = repo.git("--literal-pathspecs", "ls-files", "-z", "--", folder or b".")
    for name in listed.split(b"\0"):
        is_beside = name.rpartition(b"/")[0] == folder or (not slash and b"/" not in name)
        if is_beside and os.fsdecode(name).endswith(known.index_endings):
            return os.fsdecode(name)
    return None


def strategy_of(repo: Repository | None, path: bytes | None) -> Strategy:
    """What the attribute says of a path, or else the config; raises UsageError."""
    if repo is None:
        return Strategy.FAIL
    if path is not None:
        # Without a work tree (git merge-tree) gitattributes files are those of the index.
        value = repo.attributes([path], [ATTRIBUTE], from_index=repo.is_bare)[path][ATTRIBUTE]
        if value == UNSET:
            return Strategy.FAIL
        if value != UNSPECIFIED:
            return _parsed(os.fsdecode(value), f"the attribute {ATTRIBUTE} in .gitattributes")
    configured = repo.config.get(STRATEGY)
    return Strategy.FAIL if configured is None else _parsed(configured, f"the config {STRATEGY}")


def _parsed(value: str, where: str) -> Strategy:
    try:
        return parse_strategy(value)
    except UsageError as error:
        raise UsageError(error.message, hint=f"set by {where}") from None


_MERGES = ("merge", "pull")


class SideNames(NamedTuple):
    """Words for the two sides of the merge that is under way."""

    ours: str
    theirs: str


def side_names(repo: Repository, action: str = "") -> SideNames:
    """Tell from git's own state what its two sides are.

    `action` is what git says that it does (GIT_REFLOG_ACTION): a merge may be
    made while a rebase has stopped.
    """
    rebase = repo.git_dir / "rebase-merge"
    apply = repo.git_dir / "rebase-apply"
    # git-am(1) is under way, not a rebase that applies patches.
    if (apply / "applying").is_file():
        return SideNames("ours (HEAD)", "theirs (the patch)")
    if action.startswith(_MERGES) or (repo.git_dir / "MERGE_HEAD").is_file():
        return SideNames("ours (HEAD)", "theirs (incoming)")
    if rebase.is_dir() or apply.is_dir():
        return SideNames("ours (what you rebase onto)", "theirs (your own commit)")
    return SideNames("ours (HEAD)", "theirs (incoming)")


def merge_ledgers(base: Path, ours: Path, theirs: Path) -> str | None:
    """Merge two ledgers, given as files; gives the side that stands in `ours` then.

    None is a conflict, and ours stays. What is no ledger, such as the WSUM
    line of one text, is merged as any other file that only one side may
    change. A ledger that does not hold is never taken, unless both sides have
    the same.
    """
    mine, other = read_whole(ours), read_whole(theirs)
    if len(mine) == len(other) and mine == other:
        return "ours"
    from wtxtgit.model.ledger import extends
    from wtxtgit.text import ledger

    if ledger.MAGIC not in (bytes(one[: len(ledger.MAGIC)]) for one in (mine, other)):
        return one_sided(base, ours, theirs)
    reports = [ledger.read(bytes(one)) for one in (mine, other)]
    first, second = (report.ledger if report.ok else None for report in reports)
    # Neither can be told to go on from one that does not read.
    if first is None or second is None:
        return None
    if extends(first, second):
        return "ours"
    if extends(second, first):
        replace_file(ours, lambda descriptor: write_all(descriptor, (other,)))
        return "theirs"
    return None
