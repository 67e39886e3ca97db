"""Rewriting a history so that files have another form, and everything else is unchanged.

Git reads the old commits and writes the new ones (`git.fast_stream`). Each new commit is then
compared with the old one, byte for byte: if git has lost anything, the migration ends. No ref moves
before all objects exist and are proved; then all refs move together, and work tree and index are
updated. If the process ends before that, nothing visible has changed.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from wtxtgit.errors import CheckError, EnvironmentFailure
from wtxtgit.filter.process import FilterSettings, Warn
from wtxtgit.git.cut_off import CutOff, cut_off, forget, note
from wtxtgit.git.fast_stream import Change, ScratchRepository, StreamedCommit, scratch
from wtxtgit.git.history import CommitReader, refuse_altered, resolve_commit
from wtxtgit.git.index_file import refuse_locked
from wtxtgit.git.repository import TRUST_ROOT, Repository
from wtxtgit.git.store.reader import BlobHead, blob_heads
from wtxtgit.git.trees import TreeReader
from wtxtgit.git.turn import turn
from wtxtgit.io.files import replace_file
from wtxtgit.io.progress import Progress, expect
from wtxtgit.io.view import write_all
from wtxtgit.model.ledger import LEDGER_SUFFIX, SIGNERS_PATH
from wtxtgit.remotes.lfs_objects import LfsObjects
from wtxtgit.remotes.lfs_pointer import LfsObject, parse_pointer
from wtxtgit.report.migrate import LackingVersion, Migrated, MigratedBlobs, MovedRef, VersionLeft
from wtxtgit.rewrite import work_tree
from wtxtgit.rewrite.blobs import Form, NewBlobs, make_blobs
from wtxtgit.rewrite.migrations import LFS, RAW
from wtxtgit.rewrite.refs import (
    ChosenRef,
    Stash,
    TagWriter,
    add_stashes,
    chosen_refs,
    drop_stashes,
    leading_to,
    move_refs,
    next_backup,
    notes_refs,
    refuse_partial,
    stashes,
    stashes_on,
    without_signatures,
)
from wtxtgit.rewrite.walk import FileVersion, HistoryWalk, MigratedCommit, Migration
from wtxtgit.text.grammar import is_text

_MAPS = "migrated"


@dataclass(frozen=True)
class MigrationOptions:
    """What is migrated: the branches and tags that are named, or all of them.

    `reads_pointers` replaces git-lfs's pointers by the objects that they point to.
    """

    refs: tuple[str, ...] = ()
    everything: bool = False
    reads_pointers: bool = False
    dry_run: bool = False
    reason: str = "wtxtgit migrate"


@dataclass
class _MigrationPlan:
    """What has to be done: versions of files with a path each, and the gitattributes files.

    The blobs of versions in `left` stay as they are; `changed` has the numbers of the commits that
    change, with their ids.
    """

    commits: int = 0
    rewritten: int = 0
    changed: dict[int, str] = field(default_factory=dict)
    versions: dict[FileVersion, bytes] = field(default_factory=dict)
    left: dict[FileVersion, bytes] = field(default_factory=dict)
    heads: dict[str, BlobHead] = field(default_factory=dict)
    files: set[bytes] = field(default_factory=set)
    """Paths of versions that change."""
    paths: dict[bytes, bytes] = field(default_factory=dict)
    """The form that each path gets, where that is known."""
    attribute_blobs: dict[str, bytes] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)
    """Commits that change although their parents do not."""


def migrate(
    repo: Repository,
    migration: Migration,
    form: Form,
    options: MigrationOptions,
    settings: FilterSettings,
    warn: Warn,
    *,
    progress: Progress | None = None,
) -> Migrated:
    """Rewrite a history. `form` makes blobs; `settings` and `warn` are for files that are written.

    `progress` receives counts of bytes of the blobs that are replaced. Raises CheckError for what
    can't be proved or obtained, and EnvironmentFailure if the repository is not in a state for it.
    Nothing has changed then.
    """
    if not options.dry_run:
        _finish_interrupted(repo, settings, warn)
    refuse_altered(repo)
    chosen = chosen_refs(repo, options.refs, everything=options.everything)
    tips = list(dict.fromkeys(ref.commit for ref in chosen))
    refuse_partial(repo, tips)
    names = [ref.name for ref in chosen]
    # Checked early, since a migration may take hours.
    follows = work_tree.check(repo, names)
    entries = stashes(repo) if options.everything else stashes_on(repo, tips)
    followers = {oid for entry in entries for oid in (entry.oid, *entry.parents[1:])}
    tips += [entry.oid for entry in entries]
    with (
        scratch(repo) as streams,
        HistoryWalk(repo, migration, followers) as walk,
        ExitStack() as until,
    ):
        rewriting = _Rewriting(repo, walk, streams, tips, form)
        plan = rewriting.planned(followers)
        if follows:
            work_tree.check_filters(repo, plan.paths.values())
        lacking, why_lacking = _missing_objects(repo, plan, options)
        result = Migrated(
            plan.commits,
            plan.rewritten,
            tuple(sorted(plan.files)),
            MigratedBlobs(len(plan.versions), left=_texts_left(plan)),
            passed_over=tuple(sorted(walk.candidates - plan.paths.keys())),
            others=tuple(leading_to(repo, plan.first, names)),
            stashes=len(entries),
            sealed=tuple(sorted(p for p in plan.files if p + LEDGER_SUFFIX in walk.paths)),
            unsealed=_unsealed(plan, walk.paths) if migration.makes_texts else (),
            lacking=lacking,
            why_lacking=why_lacking,
            dry_run=options.dry_run,
        )
        if options.dry_run or not plan.rewritten or lacking:
            return replace(result, signatures=_signatures(repo, plan, chosen))
        sizes = [plan.heads[version.oid].size for version in plan.versions]
        expect(progress, sum(sizes), len(sizes))
        blobs = until.enter_context(
            make_blobs(
                repo,
                plan.versions,
                plan.attribute_blobs,
                form,
                threads=settings.threads,
                progress=progress,
            )
        )
        blobs.left = [*result.blobs.left, *blobs.left]
        blobs.ids.update((version, version.oid) for version in plan.left)
        ids, signatures = rewriting.rewritten(plan, blobs)
        tags = TagWriter(repo, ids)
        moves = _moves(chosen, ids, tags)
        moves += _notes(repo, streams, ids, is_whole=options.everything)
        rewriting.check_tips(ids, blobs)
        stashed = [_rewritten_stash(entry, ids) for entry in entries]
        dropped = {one.oid for one in entries} - {one.oid for one in stashed}
        if not (moves or dropped):
            return replace(result, rewritten=0, blobs=blobs.report())
        unwritten: tuple[bytes, ...] = ()
        with turn(repo):
            before = resolve_commit(repo, "HEAD") if work_tree.check(repo, names) else None
            backup = next_backup(repo)
            # Before the refs move, so that an interruption afterwards does not lose them.
            file = _write_map(repo, backup, {**ids, **tags.ids})
            if before is not None:
                follows_to = ids.get(before, before)
                note(repo, CutOff(before, follows_to, migration.makes_texts))
            # Added before the old ones are dropped, so that an interruption loses none.
            add_stashes(repo, stashed if dropped else ())
            old = [entry for entry in entries if entry.oid in dropped]
            move_refs(repo, moves, backup, options.reason, old)
            drop_stashes(repo, dropped)
            if before is not None:
                unwritten = work_tree.follow(
                    repo, before, settings, warn, are_texts=migration.makes_texts
                )
                forget(repo)
        return replace(
            result,
            rewritten=sum(old != new for old, new in ids.items() if old not in followers),
            stashes=len(dropped),
            blobs=blobs.report(),
            signatures=signatures + tags.signatures,
            refs=tuple(MovedRef(*move) for move in moves),
            backup=backup,
            map=file,
            trust_root=ids.get(repo.config.get(TRUST_ROOT) or ""),
            unwritten=unwritten,
        )


class _Rewriting:
    """A history that is read several times, with the same result each time."""

    def __init__(
        self,
        repo: Repository,
        walk: HistoryWalk,
        streams: ScratchRepository,
        tips: Sequence[str],
        form: Form,
    ) -> None:
        self._repo = repo
        self._walk = walk
        self._streams = streams
        self._tips = tips
        self._form = form
        self._history = streams.exported(tips)

    def planned(self, followers: Container[str]) -> _MigrationPlan:
        """Find what has to be done; `followers` are commits that are not counted."""
        plan = _MigrationPlan()
        self._walk.look(self._history)
        by_path: dict[bytes, list[FileVersion]] = {}
        touched: list[_TouchedCommit] = []
        for one in self._commits():
            plan.commits += one.commit.oid not in followers
            if not one.touched:
                continue
            touched.append(_TouchedCommit.of(one))
            for change, version in one.changes:
                if version is not None:
                    plan.paths[change.path] = version.form
                    by_path.setdefault(change.path, []).append(version)
                elif change.oid is not None and change.oid in self._walk.unwritten:
                    plan.attribute_blobs[change.oid] = self._walk.unwritten[change.oid]
        versions = {version for path_versions in by_path.values() for version in path_versions}
        plan.heads = blob_heads(self._repo, {version.oid for version in versions})
        # The versions of a path together, oldest first: each differs little from the one before.
        for path, path_versions in by_path.items():
            for version in path_versions:
                is_left = self._form.leaves(version, plan.heads[version.oid])
                (plan.left if is_left else plan.versions).setdefault(version, path)
                if not is_left:
                    plan.files.add(path)
        for commit in touched:
            has_parent = not plan.changed.keys().isdisjoint(commit.parents)
            has_new = not plan.versions.keys().isdisjoint(commit.versions)
            if has_parent or has_new or commit.is_other:
                plan.changed[commit.mark] = commit.oid
                plan.rewritten += commit.oid not in followers
                if not has_parent:
                    plan.first.append(commit.oid)
        return plan

    def rewritten(self, plan: _MigrationPlan, blobs: NewBlobs) -> tuple[dict[str, str], int]:
        """Write the commits; returns new ids by old ones, and how many signatures were dropped."""
        old: dict[int, str] = {}
        with self._streams.importing() as writer:
            for one in self._commits():
                commit = one.commit
                old[commit.mark] = commit.oid
                if commit.mark in plan.changed:
                    parents = [p if p in plan.changed else old[p] for p in commit.parents]
                    writer.commit(commit, parents, _with_ids(one, blobs))
        ids = {old[mark]: oid for mark, oid in writer.written.items()}
        return ids, _check_commits(self._repo, ids)

    def check_tips(self, ids: Mapping[str, str], blobs: NewBlobs) -> None:
        """Check that the trees of all tips differ only in what was migrated."""
        converted = {(version.oid, new) for version, new in blobs.ids.items()}
        with CommitReader(self._repo) as commits, TreeReader(self._repo) as trees:
            for tip in self._tips:
                old, new = commits.commit(tip).tree, commits.commit(ids.get(tip, tip)).tree
                for path, before, after in trees.between(old, new):
                    if work_tree.is_attributes(path):
                        continue
                    if (
                        before is None
                        or after is None
                        or before.mode != after.mode
                        or (before.oid, after.oid) not in converted
                    ):
                        raise EnvironmentFailure(f"commit {tip}: {path!r} became something else")

    def _commits(self) -> Iterator[MigratedCommit]:
        return self._walk.commits(self._history)


class _TouchedCommit(NamedTuple):
    """What a plan has to know of a commit whose files may get another form.

    If `is_other` it changes even if its `versions` stay as they are.
    """

    mark: int
    oid: str
    parents: tuple[int, ...]
    versions: tuple[FileVersion, ...]
    is_other: bool

    @classmethod
    def of(cls, one: MigratedCommit) -> _TouchedCommit:
        commit = one.commit
        versions = tuple(version for _, version in one.changes if version is not None)
        is_other = {change for change, _ in one.changes} != {*commit.changes}
        return cls(commit.mark, commit.oid, commit.parents, versions, is_other)


def _texts_left(plan: _MigrationPlan) -> tuple[VersionLeft, ...]:
    return tuple(
        VersionLeft(path, version.oid)
        for version, path in plan.left.items()
        if is_text(plan.heads[version.oid].head)
    )


def _unsealed(plan: _MigrationPlan, paths: Container[bytes]) -> tuple[bytes, ...]:
    """Return the files for which an audit will require a ledger, if there are signers."""
    if SIGNERS_PATH not in paths:
        return ()
    return tuple(sorted(path for path in plan.files if path + LEDGER_SUFFIX not in paths))


def _signatures(repo: Repository, plan: _MigrationPlan, chosen: Sequence[ChosenRef]) -> int:
    """Count the signatures that commits and tags would lose."""
    commits, tags = {*plan.changed.values()}, TagWriter(repo, {})
    with CommitReader(repo) as reader:
        heads = (reader.content(oid)[0] for oid in commits)
        count = sum(without_signatures(head) != head for head in heads)
    tag_oids = [ref.oid for ref in chosen if ref.is_tag_object and ref.commit in commits]
    return count + len({tag for oid in tag_oids for tag in tags.signed(oid)})


def _rewritten_stash(entry: Stash, ids: Mapping[str, str]) -> Stash:
    return entry._replace(oid=ids.get(entry.oid, entry.oid))


def _with_ids(one: MigratedCommit, blobs: NewBlobs) -> Iterator[Change]:
    for change, version in one.changes:
        yield change if version is None else change._replace(oid=blobs.ids[version])


def _check_commits(repo: Repository, ids: Mapping[str, str]) -> int:
    """Compare new commits with the old ones; returns how many signatures those had.

    Raises CheckError if anything else is lost in one.
    """
    signatures = 0
    with CommitReader(repo) as commits:
        for old, new in ids.items():
            head, message = commits.content(old)
            unsigned = without_signatures(head)
            signatures += unsigned != head
            old_head, new_head = unsigned.split(b"\n"), commits.content(new)[0].split(b"\n")
            parents = [
                b"parent %b" % ids.get(parent, parent).encode()
                for parent in commits.commit(old).parents
            ]
            count = 1 + len(parents)
            if new_head[1:] != [*parents, *old_head[count:]] or commits.content(new)[1] != message:
                raise CheckError(
                    f"commit {old} has a part that git fast-import can't reproduce",
                    hint="no ref was moved; git cat-file -p shows the commit",
                )
    return signatures


def _moves(
    chosen: Sequence[ChosenRef], ids: Mapping[str, str], tags: TagWriter
) -> list[tuple[str, str, str]]:
    moves = []
    for ref in chosen:
        new = tags.tag(ref.oid) if ref.is_tag_object else ids.get(ref.oid, ref.oid)
        if new != ref.oid:
            moves.append((ref.name, ref.oid, new))
    return moves


def _notes(
    repo: Repository, streams: ScratchRepository, ids: Mapping[str, str], *, is_whole: bool
) -> list[tuple[str, str, str]]:
    """Make new notes, in which commits have their new names.

    Unless the history `is_whole`, notes also stay with old commits that other refs still reach.
    """
    refs = notes_refs(repo)
    old: dict[int, str] = {}
    touched: set[int] = set()
    if not refs:
        return []
    tips = list(dict.fromkeys(ref.commit for ref in refs))
    with streams.importing() as writer:
        for commit in streams.exported(tips):
            old[commit.mark] = commit.oid
            changes = list(_renamed(commit, ids, is_whole=is_whole))
            if changes == [*commit.changes] and touched.isdisjoint(commit.parents):
                continue
            touched.add(commit.mark)
            parents = [p if p in touched else old[p] for p in commit.parents]
            writer.commit(commit, parents, changes)
    new = {old[mark]: oid for mark, oid in writer.written.items()}
    _check_commits(repo, new)
    return [(ref.name, ref.oid, new[ref.oid]) for ref in refs if ref.oid in new]


def _renamed(commit: StreamedCommit, ids: Mapping[str, str], *, is_whole: bool) -> Iterator[Change]:
    for change in commit.changes:
        # git-notes(1): a note's path is the object's id, split into folders after each second
        # digit.
        name = change.path.replace(b"/", b"").decode("ascii", "replace")
        new = ids.get(name)
        if new is None or not is_whole:
            yield change
        if new is not None:
            cut, digits = [], new.encode()
            for part in change.path.split(b"/"):
                cut.append(digits[: len(part)])
                digits = digits[len(part) :]
            yield change._replace(path=b"/".join(cut))


def _missing_objects(
    repo: Repository, plan: _MigrationPlan, options: MigrationOptions
) -> tuple[tuple[LackingVersion, ...], str | None]:
    """Return objects of git-lfs that are neither here nor available, and why if that is known.

    In a dry run none is requested. Raises CheckError for pointers if nobody asked to replace them.
    """
    forms = {
        version: path for version, path in plan.versions.items() if version.form not in (LFS, RAW)
    }
    oids = {version.oid: path for version, path in forms.items()}
    pointers = {
        oid: target
        for oid in oids
        if plan.heads[oid].size == len(plan.heads[oid].head)
        and (target := parse_pointer(plan.heads[oid].head)) is not None
    }
    if pointers and not options.reads_pointers:
        raise CheckError(
            f"git-lfs pointers in place of files: {len(pointers):,}",
            hint="--from-lfs converts the files that they point to",
        )
    objects = LfsObjects(repo)

    def missing() -> dict[LfsObject, bytes]:
        return {
            target: oids[oid]
            for oid, target in pointers.items()
            if objects.checked(target)[0] is None
        }

    lacking, why = missing(), None
    if lacking and not options.dry_run:
        why = objects.fetch(list(lacking))
        lacking = missing()
    return tuple(LackingVersion(path, *target) for target, path in lacking.items()), why


def _finish_interrupted(repo: Repository, settings: FilterSettings, warn: Warn) -> None:
    """Finish a migration that was interrupted: update index and work tree."""
    if repo.is_bare:
        return
    with turn(repo):
        pending = cut_off(repo)
        if pending is not None:
            refuse_locked(repo)
            work_tree.follow(repo, pending.before, settings, warn, are_texts=pending.are_texts)
            warn("finished a migration that was interrupted: updated index and work tree", None)
        forget(repo)


def _write_map(repo: Repository, backup: str, ids: Mapping[str, str]) -> Path:
    """Write the old and new ids, one pair per line; returns the file."""
    folder = repo.state_dir() / _MAPS
    folder.mkdir(exist_ok=True)
    file = folder / f"{backup.rpartition('/')[2]}.map"
    content = "".join(f"{old} {new}\n" for old, new in ids.items()).encode()
    replace_file(file, lambda descriptor: write_all(descriptor, (content,)))
    return file
