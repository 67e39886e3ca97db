"""The merge drivers that git calls: they never ask, and always leave a valid file.

If a checkpoint can't be merged there is a conflict: ours stays as it is, and a record beside git's
own state of the merge says which tensors and rows are in conflict. Of two ledgers, the one that
has all records of the other is taken. Records are never combined here: a record that joins
diverged sides has to be signed, and has to name what it follows.

Nearly all files of a merge were changed by only one side. What only other files need is imported
where it is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from wtxtgit.errors import CheckError, UsageError, WtxtgitError
from wtxtgit.git.repository import DETACHED_DRIVER, FILTERS, UNSET, UNSPECIFIED, Repository
from wtxtgit.io.files import read_whole, replace_file, shown_path, view_file
from wtxtgit.io.progress import shown
from wtxtgit.io.view import Buffer, ByteView, pieces, write_all
from wtxtgit.merge import conflicts
from wtxtgit.merge.policy import WHOLE, Policy, parse_strategy, stored_side_taken
from wtxtgit.report.merge import Conflict, MergedKind, MergeReport, Strategy

if TYPE_CHECKING:
    from wtxtgit.git.merging import MergedTrees
    from wtxtgit.git.store.reader import ObjectStore
    from wtxtgit.merge.sets import MergedSet
    from wtxtgit.model.tensor import ReadOptions

ATTRIBUTE = "wtxt-merge"
STRATEGY = "wtxtgit.mergeStrategy"
FOLD_KEY, FOLD_HMAC_KEY = "wtxtgit.foldKey", "wtxtgit.foldHmacKey"
"""Settings for files with the keys of encrypted FOLD chunks, and of FOLD hashes that are HMACs."""

MADE = "rebuilt from the files of its set"
STALE = "not rebuilt from the files of its set: "
"""Notes about the index of a set; the reason follows the second one."""


def merge(
    repo: Repository | None,
    base: Path,
    ours: Path,
    theirs: Path,
    path: bytes | None = None,
    *,
    threads: int | None = None,
    store: Callable[[], ObjectStore | None] = lambda: None,
    merging: Callable[[], MergedTrees | None] = lambda: None,
) -> MergeReport:
    """Merge three files with contents as git stores them; the result is left in `ours`.

    `base` is empty if both sides added the file. `path`, from the top level of `repo`, selects the
    attribute and the record. `store` returns the object store to which a merged content is written
    before git deflates it, None if that is left to git. `merging` returns the trees that git
    merges, from which the index of a set is rebuilt. Raises UsageError for an unknown strategy.
    """
    if repo is not None and path is not None:
        # A record of an earlier merge.
        conflicts.forget(repo, path)
    side = one_sided(base, ours, theirs)
    if side is not None:
        return MergeReport("", side)
    contents = view_file(base), view_file(ours), view_file(theirs)
    policy: Policy | None = None
    try:
        rebuilt = _rebuilt_index(repo, path, contents, merging, threads)
        stale_reason = None
    except CheckError as error:
        rebuilt, stale_reason = None, f"{STALE}{error.message}"
    if rebuilt is None:
        # Only looked up when needed: most files need no strategy, and looking it up starts git.
        policy = Policy(strategy_of(repo, path))
        report, merged = _merge_contents(repo, path, contents, policy, threads)
        if stale_reason is not None and report.ok:
            report = replace(report, notes=(*report.notes, stale_reason))
        elif stale_reason is not None:
            report = replace(report, conflicts=(Conflict(WHOLE, MergedKind.FILE, stale_reason),))
    else:
        report, merged = rebuilt
    if report.ok:
        # A side that is taken whole is already an object.
        content = _stored(merged, store, threads) if report.taken is None else pieces(merged)
        replace_file(ours, lambda descriptor: write_all(descriptor, content))
    elif repo is not None and path is not None and policy is not None:
        try:
            oid = repo.git("hash-object", "--no-filters", "--", os.fsencode(ours.absolute()))
            blobs = {conflicts.OURS: oid.decode("ascii").strip()}
            conflicts.save(repo, path, policy, report, blobs)
        except WtxtgitError as error:
            # The merge is valid without its record.
            return replace(report, notes=(*report.notes, f"not recorded: {error.message}"))
    return report


def _merge_contents(
    repo: Repository | None,
    path: bytes | None,
    contents: Sequence[ByteView],
    policy: Policy,
    threads: int | None,
) -> tuple[MergeReport, ByteView]:
    """Merge base, ours and theirs as git stores them; returns the report, and the same form."""
    # Imports numpy and the formats, which one-sided changes do not need.
    from wtxtgit.merge.container import Merger
    from wtxtgit.merge.texts import merge_texts

    base, ours, theirs = contents
    name = "a checkpoint" if path is None else shown_path(path)
    with shown(f"merging {name}") as advance:
        return merge_texts(
            base,
            ours,
            theirs,
            Merger(policy, reading_options(repo), advance),
            repo=repo,
            tracked=lambda: tracked_form(repo, path),
            threads=threads,
        )


def _set_of(
    repo: Repository | None, path: bytes | None, merging: Callable[[], MergedTrees | None]
) -> MergedSet | None:
    """Return the set that a file is in, if this merge rebuilds its index."""
    from wtxtgit.containers import registry

    if repo is None or path is None or registry.of_hashed_set(os.fsdecode(path)) is None:
        return None
    from wtxtgit.merge.sets import MergedSet

    return MergedSet.find(repo, path, merging)


def _is_index_of_set(path: bytes) -> bool:
    """Whether a file is named as the index with hashes of a set."""
    from wtxtgit.containers import registry

    return os.fsdecode(path).endswith(registry.hashing_indexes())


def _rebuilt_index(
    repo: Repository | None,
    path: bytes | None,
    contents: Sequence[ByteView],
    merging: Callable[[], MergedTrees | None],
    threads: int | None,
) -> tuple[MergeReport, ByteView] | None:
    """Return a file of a set's index, rebuilt, as git stores it; None for any other file.

    Raises CheckError that says why it can't be rebuilt.
    """
    merged_set = _set_of(repo, path, merging)
    if repo is None or path is None:
        return None
    if merged_set is None and _is_index_of_set(path):
        raise CheckError("it is unknown which trees git merges, or a file of the set is missing")
    if merged_set is None or path not in merged_set.index_paths:
        return None
    from wtxtgit.merge.texts import stored_as

    def merge_part(part: bytes, stored: Sequence[ByteView]) -> ByteView | None:
        # As the driver for the part does.
        report, merged = _merge_contents(
            repo, part, stored, Policy(strategy_of(repo, part)), threads
        )
        return merged if report.ok else None

    try:
        data = merged_set.rebuild(path, contents, merge_part, reading_options(repo), threads)
    except CheckError:
        if path == merged_set.listing:
            raise
        # The driver for the listing reports this.
        return None
    stored = stored_as(
        data, contents, repo=repo, tracked=lambda: tracked_form(repo, path), threads=threads
    )
    return MergeReport(merged_set.format.set_name, notes=(MADE,)), stored


def _stored(
    merged: ByteView, find: Callable[[], ObjectStore | None], threads: int | None
) -> Iterable[Buffer]:
    """Yield a merged content's bytes; after the last one, store it as an object if worthwhile."""
    from wtxtgit.filter.process import WORTH_STORING

    if len(merged) < WORTH_STORING or (store := find()) is None:
        return pieces(merged)
    from wtxtgit.git.store.streams import PlainContent
    from wtxtgit.git.store.writing import stored
    from wtxtgit.io.workers import default_threads

    return stored(store, PlainContent(merged), threads or default_threads())


def reading_options(repo: Repository | None) -> ReadOptions:
    """Return the keys that the config names; raises InputError for a file without a key."""
    from wtxtgit.model.tensor import ReadOptions

    paths = [None if repo is None else repo.config.get(key) for key in (FOLD_KEY, FOLD_HMAC_KEY)]
    if repo is None or not any(paths):
        return ReadOptions()
    from wtxtgit.checkpoint.key_file import aes_key, key_bytes

    # Paths are relative to home, absolute, or relative to the top level.
    top = repo.top or repo.git_dir
    decryption_file, integrity_file = (
        None if p is None else top / Path(p).expanduser() for p in paths
    )
    return ReadOptions(
        decryption_key=None if decryption_file is None else aes_key(decryption_file),
        integrity_key=key_bytes(integrity_file),
    )


def tracked_form(repo: Repository | None, path: bytes | None) -> bool | None:
    """Whether attributes keep a path (from the top level) as a detached text; None: not as text."""
    if repo is None or path is None:
        return None
    driver = repo.attributes([path], ["filter"], from_index=repo.is_bare)[path]["filter"]
    return driver == DETACHED_DRIVER if driver in FILTERS else None


def one_sided(base: Path, ours: Path, theirs: Path) -> str | None:
    """Take a file that only one side changed into `ours`; returns that side, None if both did."""
    other = view_file(theirs)
    side = stored_side_taken(view_file(base), view_file(ours), other)
    if side == "theirs":
        replace_file(ours, lambda descriptor: write_all(descriptor, pieces(other)))
    return side


def has_ledger(repo: Repository, path: bytes) -> bool:
    """Whether the index has a ledger of an artifact, in conflict or not."""
    from wtxtgit.model.ledger import LEDGER_SUFFIX

    return bool(repo.git("--literal-pathspecs", "ls-files", "-z", "--", path + LEDGER_SUFFIX))


def stale_index(
    repo: Repository, path: bytes, format_: str, merging: Callable[[], MergedTrees | None]
) -> str | None:
    """Return the path, from the top level, of the index with hashes of the merged file's set.

    None if there is no such tracked file, or if git calls the driver for it: that rebuilds it, or
    says why it can't.
    """
    from wtxtgit.containers import registry

    format_record = registry.by_name(format_)
    if (
        format_record is None
        or format_record.reseal_set is None
        or _set_of(repo, path, merging) is not None
    ):
        return None
    folder, slash, _ = path.rpartition(b"/")
    output = repo.git("--literal-pathspecs", "ls-files", "-z", "--", folder or b".")
    for name in output.split(b"\0"):
        is_beside = name.rpartition(b"/")[0] == folder or (not slash and b"/" not in name)
        if is_beside and os.fsdecode(name).endswith(format_record.index_endings):
            return os.fsdecode(name)
    return None


def strategy_of(repo: Repository | None, path: bytes | None) -> Strategy:
    """Return the strategy that a path's attribute says, or else the config; raises UsageError."""
    if repo is None:
        return Strategy.FAIL
    if path is not None:
        # Without a work tree (git merge-tree), gitattributes files are read from the index.
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
    """Words for the two sides of the current merge."""

    ours: str
    theirs: str


def side_names(repo: Repository, action: str = "") -> SideNames:
    """Find out from git's own state what its two sides are.

    `action` is what git says that it is doing (GIT_REFLOG_ACTION): a merge may be made while a
    rebase is stopped.
    """
    rebase = repo.git_dir / "rebase-merge"
    apply = repo.git_dir / "rebase-apply"
    # git-am(1) is running, not a rebase that applies patches.
    if (apply / "applying").is_file():
        return SideNames("ours (HEAD)", "theirs (the patch)")
    if action.startswith(_MERGES) or (repo.git_dir / "MERGE_HEAD").is_file():
        return SideNames("ours (HEAD)", "theirs (incoming)")
    if rebase.is_dir() or apply.is_dir():
        return SideNames("ours (what you rebase onto)", "theirs (your own commit)")
    return SideNames("ours (HEAD)", "theirs (incoming)")


def merge_ledgers(base: Path, ours: Path, theirs: Path) -> str | None:
    """Merge two ledgers, given as files; returns the side that is left in `ours`.

    Returns None for a conflict; ours stays. A file that is not a ledger, such as the WSUM line of
    one text, is merged like any file that only one side may change. An invalid ledger is never
    taken, unless both sides have the same one.
    """
    our_data, their_data = read_whole(ours), read_whole(theirs)
    if len(our_data) == len(their_data) and our_data == their_data:
        return "ours"
    from wtxtgit.model.ledger import extends
    from wtxtgit.text import ledger

    if ledger.MAGIC not in (bytes(data[: len(ledger.MAGIC)]) for data in (our_data, their_data)):
        return one_sided(base, ours, theirs)
    reports = [ledger.read(bytes(data)) for data in (our_data, their_data)]
    first, second = (report.ledger if report.ok else None for report in reports)
    # If one can't be read, neither is known to continue the other.
    if first is None or second is None:
        return None
    if extends(first, second):
        return "ours"
    if extends(second, first):
        replace_file(ours, lambda descriptor: write_all(descriptor, (their_data,)))
        return "theirs"
    return None
