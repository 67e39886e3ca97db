"""Commits from the trust root on: S after each, and what each did to ledgers.

S depends on the signers file and its ledger alone, and on parents. So trees
are read at these two paths, and only of commits that change them, of merges,
and of what comes after commits that the root reaches: all others have what
their parent has.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from wtxtgit.errors import EnvironmentFailure, TrustError
from wtxtgit.git import history
from wtxtgit.git.history import Commit, CommitReader
from wtxtgit.git.index import Entry, resolve
from wtxtgit.git.path_history import PathReader, touching
from wtxtgit.git.repository import Repository
from wtxtgit.git.snapshots import Snapshot, Snapshots
from wtxtgit.model.ledger import LEDGER_SUFFIX, SIGNERS_LEDGER, SIGNERS_PATH, Head, Ledger
from wtxtgit.ops.chain import ChainReader, signed
from wtxtgit.ops.files import read_small, shown
from wtxtgit.trust.ledger_rules import check_ledgers
from wtxtgit.trust.policy import Parent, Tree, Trust, Violation, advance
from wtxtgit.trust.signers import MAX_SIGNERS_FILE

OF_ORDER = frozenset({"ledger-rewritten", "ledger-removed"})
"""Kinds of what a ledger lost."""

_PATHS = (SIGNERS_PATH, SIGNERS_LEDGER)
_REVISIONS_HINT = "git log --oneline --all lists the commits that are here"
_DEEPEST = 50
"""Merges within merges that are looked into; what is deeper joins nothing."""


class BadRoot(TrustError):
    """A trust root that the tip does not descend from."""


@dataclass(slots=True)
class Walk:
    """Commits from the trust root on, and S after each.

    `start` is S before them. A commit that is not among them is one that the
    root reaches: its S is `start` as well.
    """

    repo: Repository
    reader: ChainReader
    snapshots: Snapshots
    start: Trust = field(default_factory=Trust)
    root: str | None = None
    """The commit where trust starts."""
    require_signed: bool = False
    commits: dict[str, Commit] = field(default_factory=dict)
    """Parents before their children."""
    trusts: dict[str, Trust] = field(default_factory=dict)
    changes: dict[str, list[Violation]] = field(default_factory=dict)
    """What is wrong with a commit's change of the signers."""
    adopted: str | None = None
    """The commit whose signers were taken on first use."""
    _violations: dict[str, list[Violation]] = field(default_factory=dict)
    _depth: int = 0

    @classmethod
    def to(
        cls,
        repo: Repository,
        tips: Sequence[str],
        root: str | None,
        reader: ChainReader,
        snapshots: Snapshots,
        *,
        require_signed: bool = False,
    ) -> Walk:
        """Walk to commits, by their object ids, from a trust root: a revision or a signers file.

        Raises BadRoot, EnvironmentFailure for a revision that names nothing, and
        KeyFileError for a file that can't be read.
        """
        walk = cls(repo, reader, snapshots, require_signed=require_signed)
        if root is not None:
            walk._start_at(root, tips)
        excluded = [] if walk.root is None else [walk.root]
        walk._advance(history.commits(repo, tips, excluded), tips, excluded)
        return walk

    def state(self, oid: str) -> Snapshot:
        """What a commit holds."""
        return self.snapshots.snapshot(oid)

    def tree(self, oid: str) -> Tree:
        """What the rules see of a commit."""
        return self.reader.tree(self.state(oid))

    def trust(self, oid: str) -> Trust:
        """S after a commit."""
        return self.trusts.get(oid, self.start)

    def parents(self, oids: Sequence[str]) -> list[Parent]:
        """Parents as the rules see them, each once."""
        return [Parent(self.trust(oid), self.tree(oid)) for oid in dict.fromkeys(oids)]

    def count_unjudged(self) -> int:
        """Count the commits that the trust root reaches."""
        return 0 if self.root is None else len(history.commits(self.repo, [self.root]))

    def violations(self, commit: Commit) -> list[Violation]:
        """What a commit did to ledgers that it may not."""
        if commit.oid not in self._violations:
            tree, after = self.tree(commit.oid), self.trust(commit.oid)
            self._violations[commit.oid] = self.violations_of(tree, commit.parents, after)
        return self._violations[commit.oid]

    def violations_of(
        self, tree: Tree, parent_oids: Sequence[str], after: Trust
    ) -> list[Violation]:
        """The same of what is about to become a commit with these parents."""
        parents = self.parents(parent_oids)
        if parents and all(parent.tree is tree for parent in parents):
            return []
        require = self.require_signed
        taken = list(self._taken(tree, parents, parent_oids))
        found = [*check_ledgers(tree, parents, after, signed, require_signed=require), *taken]
        if len(parents) < 2 or all(violation.kind not in OF_ORDER for violation in found):
            return found
        # A merge may leave a ledger that it has merged before: the commits between tell.
        oids = list(dict.fromkeys(parent_oids))
        kept = history.parents_not_implied(self.repo, Commit("", tuple(oids), ""))
        joined = {oid for oid in oids if oid not in kept and self.is_kept_up_to(oid, kept)}
        if not joined:
            return found
        parents = [
            Parent(parent.trust, parent.tree, oid in joined)
            for oid, parent in zip(oids, parents, strict=True)
        ]
        return [*check_ledgers(tree, parents, after, signed, require_signed=require), *taken]

    def _taken(
        self, tree: Tree, parents: Sequence[Parent], oids: Sequence[str]
    ) -> Iterator[Violation]:
        """Ledgers that moved to a path that another one had once.

        Else two could change places, a move at a time.
        """
        for path, ledger in tree.ledgers.items():
            if any(path in parent.tree.ledgers for parent in parents):
                continue
            heads = (other.head for parent in parents for other in parent.tree.ledgers.values())
            if ledger.head.path + LEDGER_SUFFIX == path or ledger.head not in heads:
                continue
            if self._heads_at(path, oids) - {ledger.head}:
                message = "the ledger moved to a path that another one had before"
                yield Violation("ledger-rewritten", path.removesuffix(LEDGER_SUFFIX), message)

    def _heads_at(self, path: bytes, tips: Sequence[str]) -> set[Head]:
        """First lines of all ledgers that a path had in the history of commits."""
        return {ledger.head for _, ledger in self.ledgers_at(path, tips)}

    def ledgers_at(self, path: bytes, tips: Sequence[str]) -> Iterator[tuple[Commit, Ledger]]:
        """Each commit that changed what stands at a path, with the ledger there, the oldest first.

        The trust root does not matter; commits whose ledger does not read are left out.
        """
        literal = b":(top,literal)" + path
        with PathReader(self.repo, [path]) as paths:
            for commit in history.commits(self.repo, tips, touching=(literal,)):
                entry = paths.entries(commit.tree).get(path)
                report = None
                if entry is not None and entry.is_file:
                    report = self.reader.ledger(path, entry.oid)
                if report is not None and report.ledger is not None:
                    yield commit, report.ledger

    def is_kept_up_to(self, ancestor: str, descendants: Sequence[str]) -> bool:
        """Whether no commit between lost a ledger, or a part of one.

        One that does not read any more is lost as well: what comes next at its
        place has nothing to extend.
        """
        if self._depth == _DEEPEST:
            return False
        self._depth += 1
        try:
            # Parents first: what a commit needs of those before it is known then.
            between = dict.fromkeys(
                oid for other in descendants for oid in history.between(self.repo, ancestor, other)
            )
            broken = self.tree(ancestor).broken
            return all(
                self.tree(oid).broken <= broken
                and all(v.kind not in OF_ORDER for v in self.violations(self.commits[oid]))
                for oid in between
                if oid in self.commits
            )
        finally:
            self._depth -= 1

    def _start_at(self, root: str, tips: Sequence[str]) -> None:
        # A commit comes first: whoever can add a file must not be able to take its place.
        try:
            pinned = commit_of(self.repo, root)
        except EnvironmentFailure as error:
            if not Path(root).is_file():
                raise
            if os.sep not in root and self._is_in_work_tree(Path(root)):
                # A tag that is not here, and a branch that has a file of its name.
                hint = f"a file of signers is named with its folder: ./{root}"
                raise EnvironmentFailure(error.message, hint=hint) from None
            self._start_with(Path(root))
            return
        if not any(history.is_ancestor(self.repo, pinned, tip) for tip in tips):
            raise BadRoot(f"the tip does not descend from the trust root {pinned[:12]}")
        tree = self.tree(pinned)
        if tree.signers is None and tree.signers_fault is not None:
            raise BadRoot(f".wtxt/signers of the trust root: {tree.signers_fault}")
        self.root = pinned
        self.start = Trust(tree.signers, tree.signers_ledger)

    def _is_in_work_tree(self, file: Path) -> bool:
        top = self.repo.top
        return top is not None and file.resolve().is_relative_to(top.resolve())

    def _start_with(self, file: Path) -> None:
        content = read_small(file, MAX_SIGNERS_FILE, "a signers file")
        signers, fault = self.reader.parse_signers(content)
        if signers is None or not signers.keys:
            raise BadRoot(f"{shown(file)}: {fault or 'it names no signer'}")
        self.start = Trust(signers, None)

    def _advance(
        self, commits: Sequence[Commit], tips: Sequence[str], excluded: Sequence[str]
    ) -> None:
        changed = touching(self.repo, tips, excluded, _PATHS)
        with _SignersTrees(self.repo, self.reader) as trees:
            for commit in commits:
                self.commits[commit.oid] = commit
                parents = list(dict.fromkeys(commit.parents))
                is_same = len(parents) == 1 and commit.oid not in changed
                tree = trees.of(commit, parents[0] if is_same else None)
                before = [Parent(self.trust(oid), trees.of_parent(oid)) for oid in parents]
                after, wrong = advance(tree, before, signed, self.start)
                self.trusts[commit.oid] = after
                if wrong:
                    self.changes[commit.oid] = wrong
                if not self.start.keys and self.adopted is None and after.keys:
                    self.adopted = commit.oid


class _SignersTrees:
    """What the rules see of commits' signers, and of nothing else; a context manager."""

    def __init__(self, repo: Repository, reader: ChainReader) -> None:
        self._reader = reader
        self._paths = PathReader(repo, _PATHS)
        self._commits = CommitReader(repo)
        self._by_commit: dict[str, Tree] = {}
        self._by_entries: dict[frozenset[tuple[bytes, Entry]], Tree] = {}

    def __enter__(self) -> _SignersTrees:
        return self

    def __exit__(self, *_: object) -> None:
        self._paths.__exit__()
        self._commits.__exit__()

    def of(self, commit: Commit, same: str | None) -> Tree:
        """A commit's; `same` is a commit that has the same, if one is known."""
        tree = self._by_commit.get(same) if same is not None else None
        self._by_commit[commit.oid] = tree or self._read(self._paths.entries(commit.tree))
        return self._by_commit[commit.oid]

    def of_parent(self, oid: str) -> Tree:
        """That of a parent, which may be one that the root reaches."""
        if oid not in self._by_commit:
            commit = self._commits.commit(oid)
            self._by_commit[oid] = self._read(self._paths.entries(commit.tree))
        return self._by_commit[oid]

    def _read(self, entries: Mapping[bytes, Entry]) -> Tree:
        key = frozenset(entries.items())
        if key not in self._by_entries:
            self._by_entries[key] = self._reader.tree(Snapshot(entries, frozenset()))
        return self._by_entries[key]


def commit_of(repo: Repository, revision: str) -> str:
    """The object id of the commit that a revision names; raises EnvironmentFailure."""
    try:
        return resolve(repo, revision + "^{commit}")
    except EnvironmentFailure:
        if revision == "HEAD" and history.head(repo) is None:
            raise EnvironmentFailure("there is no commit yet") from None
        return _refuse(repo, revision)


def _refuse(repo: Repository, revision: str) -> NoReturn:
    """Say why a revision is no commit."""
    try:
        oid = resolve(repo, revision)
    except EnvironmentFailure as error:
        raise EnvironmentFailure(error.message, hint=_REVISIONS_HINT) from None
    found = repo.call("cat-file", "-t", oid, ok=(0, 128))
    kind = found.stdout.decode("ascii").strip()
    told = f"a {kind}, not a commit" if kind not in ("", "commit") else "nothing in this repository"
    raise EnvironmentFailure(f"{revision!r} names {told}", hint=_REVISIONS_HINT) from None
