"""Walking commits from the trust root on: the state after each, and what each violates.

A state is computed from the states of all parents and the commit's own tree, so no commit is
skipped and none is judged by the trees of its parents alone. `docs/spec/trust.md` has the rules,
`trust.state` implements them.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from wtxtgit.chain.reader import ChainReader, signed
from wtxtgit.errors import EnvironmentFailure, TrustError
from wtxtgit.git import history
from wtxtgit.git.commit_files import CommitFiles, CommitFilesReader
from wtxtgit.git.history import REVISIONS_HINT, Commit, CommitGraph, resolve, resolve_commit
from wtxtgit.git.repository import Repository
from wtxtgit.git.trees import TreeReader
from wtxtgit.io.files import read_small, shown
from wtxtgit.model.ledger import LEDGER_SUFFIX, SIGNERS_LEDGER, SIGNERS_PATH
from wtxtgit.text import ledger as ledger_text
from wtxtgit.trust.openssh import MAX_SIGNERS_FILE
from wtxtgit.trust.state import SignersState, Tree, TrustFacts, TrustState, Violation, join, start
from wtxtgit.trust.step import step

if TYPE_CHECKING:
    from wtxtgit.chain.state_cache import StateCache

_NEAR = 256
"""The number of commits before the tips whose states are looked up in the cache."""
_ABBREVIATED = re.compile(r"(?:.*-g)?[0-9a-f]{4,63}", re.IGNORECASE | re.DOTALL)
"""A part of an object id, alone or as `git describe` prints it."""
_OPERATOR = re.compile(r"[~^:]|@\{")
_SEARCH = "^{/"
"""It looks for words in messages, which anybody may write: gitrevisions(7)."""
_SIGNERS_SPEC = b":(top,literal)" + SIGNERS_PATH
NOBODY = TrustState(frozenset({SignersState()}))
"""The state without any knowledge: nobody is trusted."""


class BadRoot(TrustError):
    """A trust root is invalid, or the tip does not descend from it."""


@dataclass(slots=True)
class Walk:
    """Commits from the trust root on, with the states after those that are asked for.

    `start` is the state of all commits that the trust root reaches, and the first state of
    histories that begin independently of it.
    """

    repo: Repository
    reader: ChainReader
    snapshots: CommitFilesReader
    start: TrustState = NOBODY
    root: str | None = None
    """The commit where trust starts."""
    is_first_use: bool = False
    """Whether the root was not given, and is the first commit with signers."""
    commits: dict[str, Commit] = field(default_factory=dict)
    """The commits by id, parents first, without those that the root reaches."""
    graph: CommitGraph = field(init=False)
    """The listed part of the history; its base is the root."""
    unjudged: frozenset[str] = frozenset()
    """Commits older than a root that is a file; they are not judged as changes."""
    _states: dict[str, TrustState] = field(default_factory=dict)
    _facts: dict[str, TrustFacts] = field(default_factory=dict)
    _violations: dict[str, tuple[Violation, ...]] = field(default_factory=dict)
    _cached: frozenset[str] = frozenset()
    """The commits whose states came from the cache; the walk starts after them."""

    def __post_init__(self) -> None:
        self.graph = CommitGraph(self.repo, self.root)

    @classmethod
    def to(
        cls,
        repo: Repository,
        tips: Sequence[str],
        root: str | None,
        reader: ChainReader,
        snapshots: CommitFilesReader,
        cache: StateCache | None = None,
    ) -> Walk:
        """Create a walk and go to these commits; raises as `go` does."""
        walk = cls(repo, reader, snapshots)
        walk.go(tips, root, cache=cache)
        return walk

    def go(
        self,
        tips: Sequence[str],
        root: str | None,
        *,
        cache: StateCache | None = None,
        judged_before: Sequence[str] | None = None,
        visit: Callable[[str], None] | None = None,
    ) -> None:
        """Walk to commits, given by object id, from a trust root: a revision or a signers file.

        If the states in `cache` suffice the walk starts from them; earlier commits are then not in
        `commits`. Commits that are to be judged are never skipped: only those that `judged_before`
        reach may be, by default all. `visit` is called with each commit while its files are in
        memory; by then all `commits` are known. Raises BadRoot,
        EnvironmentFailure for a revision that names nothing, and KeyFileError for an unreadable
        file.
        """
        if root is not None:
            self._start_at(root, tips)
        elif tips:
            self._start_at_first_use(tips[0])
        bases = tips if judged_before is None else judged_before
        if cache is None or self.root is None or not self._continue_from(cache, bases, tips, visit):
            self._advance(self.graph.listed(tips), set(tips), visit)
        if cache is not None and self.root is not None:
            for tip in tips:
                if tip in self.commits and not self.violations(tip):
                    cache.put(self.root, tip, self.state(tip), self.snapshot(tip), self.reader)

    def snapshot(self, oid: str) -> CommitFiles:
        """Return the files of a commit."""
        return self.snapshots.files(oid)

    def has_had_signers(self, oid: str) -> bool:
        """Tell whether a commit, or one that it reaches, has a file of signers."""
        if SIGNERS_PATH in self.snapshot(oid).entries:
            return True
        return bool(history.commits(self.repo, [oid], touching=(_SIGNERS_SPEC,)))

    def tree(self, oid: str) -> Tree:
        """Return a commit's files in the form that the trust rules take."""
        return self.reader.tree(self.snapshot(oid))

    def state(self, oid: str) -> TrustState:
        """Return the state after a commit."""
        state = self._states.get(oid)
        if state is None:
            if oid not in self.commits and not self._cached:
                return self.start
            # The commit was skipped, or its state was dropped.
            self._advance(self.graph.listed([oid]), {oid})
            state = self._states.get(oid, self.start)
        return state

    def standing(self, oid: str) -> TrustFacts:
        """Return the trust facts after a commit, by which its files are judged."""
        return self._facts.get(oid, self.start.facts)

    def before(self, parents: Iterable[str]) -> TrustState:
        """Return the state before a commit with these parents."""
        states = [self.state(oid) for oid in dict.fromkeys(parents)]
        return join(states) if states else self.start

    def violations(self, oid: str) -> tuple[Violation, ...]:
        """Return the rules that a commit's tree violates.

        Also for commits that the root reaches.
        """
        if oid not in self._violations and self._is_reached(oid):
            self._violations[oid] = tuple(step(self.tree(oid), self.start, signed)[1])
        return self._violations.get(oid, ())

    def _is_reached(self, oid: str) -> bool:
        """Tell whether the trust root reaches a commit."""
        root = self.root
        return root is not None and (
            oid == root or (oid not in self.commits and history.is_ancestor(self.repo, oid, root))
        )

    def brought(self, oid: str, judged: Container[str] = ()) -> list[Violation]:
        """Return the violations that a commit adds compared with its first parent, or at paths it
        changes.

        Left out are violations that a parent in `judged` has as well, with the same files; what a
        branch had where it began, before the root; and a move that its first parent has not sealed
        either, since one record seals it.
        """
        parents = list(dict.fromkeys(self.commits[oid].parents))
        violations = []
        for violation in self.violations(oid):
            subject = (violation.path, violation.kind)
            for n, parent in enumerate(parents or [None]):
                if n and parent not in judged:
                    continue
                if len(parents) > 1 and parent != self.root and parent not in self.commits:
                    continue  # from before the root: a merge takes nothing back from there
                if parent is not None and self._has_moved(parent, violation):
                    break
                if self._is_same_place(parent, oid, violation.path) and (
                    parent is None or subject in {(v.path, v.kind) for v in self.violations(parent)}
                ):
                    break
            else:
                violations.append(violation)
        return violations

    def _has_moved(self, oid: str, violation: Violation) -> bool:
        """Tell whether a commit has the same unsealed move, perhaps of an earlier generation."""
        moved = violation.moved
        return moved is not None and any(
            one.path == violation.path and one.moved is not None and one.moved.place == moved.place
            for one in self.violations(oid)
        )

    def _is_same_place(self, before: str | None, after: str, path: bytes) -> bool:
        entries = [self.snapshot(oid).entries if oid else {} for oid in (before, after)]
        paths = path, path + LEDGER_SUFFIX
        return all(entries[0].get(one) == entries[1].get(one) for one in paths)

    def count_unjudged(self) -> int:
        """Count the commits that the trust root reaches, or that precede it."""
        reached = 0 if self.root is None else history.count(self.repo, self.root)
        return reached + len(self.unjudged)

    # Where trust starts.

    def _start_at(self, root: str, tips: Sequence[str]) -> None:
        # A commit takes precedence: whoever can add a file must not be able to replace it.
        try:
            pinned = root_commit(self.repo, root)
        except EnvironmentFailure as error:
            if not Path(root).is_file():
                raise
            if os.sep not in root and self._is_in_work_tree(Path(root)):
                # The name may be that of a tag that is missing here, while a branch added such a
                # file.
                hint = f"to name a signers file, write ./{root}"
                raise EnvironmentFailure(error.message, hint=hint) from None
            self.start = self._file_state(Path(root))
            return
        graph = CommitGraph(self.repo, pinned, tips)
        if not any(graph.reaches_base(tip) for tip in tips):
            raise BadRoot(f"the tip does not descend from the trust root {pinned[:12]}")
        tree = self.tree(pinned)
        if tree.signers is None and tree.signers_fault is not None:
            raise BadRoot(f".wtxt/signers of the trust root: {tree.signers_fault}")
        self.root, self.start, self.graph = pinned, _root_state(tree), graph

    def _is_in_work_tree(self, file: Path) -> bool:
        top = self.repo.top
        return top is not None and file.resolve().is_relative_to(top.resolve())

    def _file_state(self, file: Path) -> TrustState:
        """Return the state before the first commit, from a signers file and its ledger, if any."""
        content = read_small(file, MAX_SIGNERS_FILE, "a signers file")
        signers, fault = self.reader.parse_signers(content)
        if signers is None or not signers.keys:
            raise BadRoot(f"{shown(file)}: {fault or 'it names no signer'}")
        ledger_file = file.with_name(file.name + os.fsdecode(LEDGER_SUFFIX))
        if not ledger_file.is_file():
            return start(SignersState(signers, is_fixed=True), Tree())
        report = ledger_text.read(read_small(ledger_file, ledger_text.MAX_SIZE, "a ledger"))
        if report.ledger is None or report.problems:
            raise BadRoot(f"{shown(ledger_file)}: {report.problems[0]}")
        # The signers file may be anywhere, but its ledger has to be that of .wtxt/signers.
        if report.ledger.place != SIGNERS_PATH:
            raise BadRoot(f"{shown(ledger_file)}: the ledger of another file")
        if report.ledger.last.sha256_all != signers.sha256_all:
            raise BadRoot(f"{shown(ledger_file)}: its last record does not match these signers")
        return start(SignersState(signers, report.ledger), Tree())

    def _start_at_first_use(self, tip: str) -> None:
        """Start at the oldest commit with signers on the first-parent line."""
        reader = self.reader
        with TreeReader(self.repo) as trees:
            for commit in history.commits(
                self.repo, [tip], first_parent=True, touching=(_SIGNERS_SPEC,)
            ):
                entry = trees.at(commit.tree, (SIGNERS_PATH,)).get(SIGNERS_PATH)
                if entry is None or not entry.is_file:
                    continue
                signers, _ = reader.signers(entry.oid)
                # A file without keys trusts nobody: trust starts with the first that has one.
                if signers is not None and signers.keys:
                    self.root, self.is_first_use = commit.oid, True
                    self.start = _root_state(self.tree(commit.oid))
                    self.graph = CommitGraph(self.repo, self.root)
                    return

    # Walking forward.

    def _continue_from(
        self,
        cache: StateCache,
        bases: Sequence[str],
        tips: Sequence[str],
        visit: Callable[[str], None] | None,
    ) -> bool:
        """Walk from commits whose states are cached; returns whether that was possible."""
        root = self.root or ""
        recent = [commit.oid for commit in self.graph.listed(bases)[-_NEAR:]]
        # Cached states are those of commits without violations, from this very root. Only near the
        # tips: hooks run on every commit, and mostly need the state of the one before.
        states = cache.get(root, recent, self.reader)
        remaining = self.graph.listed(tips, states)
        reachable = {*states, root, *(commit.oid for commit in remaining)}
        if not states or any(parent not in reachable for c in remaining for parent in c.parents):
            return False
        self._states |= states
        self._facts |= {oid: state.facts for oid, state in states.items()}
        self._cached = frozenset(states)
        self._advance(remaining, set(tips), visit)
        return True

    def _advance(
        self,
        commits: Sequence[Commit],
        needed: set[str],
        visit: Callable[[str], None] | None = None,
    ) -> None:
        """Compute all states; those that no child needs any more are dropped."""
        children = Counter(parent for commit in commits for parent in set(commit.parents))
        trees: dict[str, Tree] = {}
        before_root: set[str] = set()
        self.commits |= {commit.oid: commit for commit in commits}
        for commit in commits:
            # Git lists commits without hashing them.
            if self.snapshots.commit(commit.oid) != commit:
                raise EnvironmentFailure(
                    f"git lists different parents for {commit.oid} than the commit has",
                    hint="git fsck --full",
                )
            # A commit may name a parent twice; joining a state with itself changes nothing.
            parents = list(dict.fromkeys(commit.parents))
            tree = trees[commit.oid] = self.tree(commit.oid)
            # The same files as in the only parent: the step would have the same result.
            if len(parents) == 1 and trees.get(parents[0]) is tree:
                state, violations = self._states[parents[0]], self._violations[parents[0]]
            else:
                state, broken_rules = step(tree, self.before(parents), signed)
                violations = tuple(broken_rules)
            self._states[commit.oid], self._violations[commit.oid] = state, violations
            self._facts[commit.oid] = state.facts
            if visit is not None:
                visit(commit.oid)
            if self._is_before_root(tree) and before_root.issuperset(parents):
                before_root.add(commit.oid)
            for parent in parents:
                children[parent] -= 1
                if not children[parent]:
                    trees.pop(parent, None)
                    # Only the states of open branches are kept: all would not fit into memory.
                    if parent not in needed and parent not in self._cached:
                        self._states.pop(parent, None)
        self.unjudged |= before_root

    def _is_before_root(self, tree: Tree) -> bool:
        """Tell whether a tree is older than the signers file that is the trust root."""
        (signers,) = self.start.signers if self.root is None else (SignersState(),)
        if signers.ledger is None:
            return False
        ledger = tree.ledgers.get(SIGNERS_LEDGER)
        if ledger is None:
            return tree.signers is None
        length = len(ledger.records)
        return length < len(signers.ledger.records) and (
            ledger.head == signers.ledger.head
            and ledger.last.merkle_this == signers.ledger.records[length - 1].merkle_this
        )


def _root_state(tree: Tree) -> TrustState:
    ledger = tree.ledgers.get(SIGNERS_LEDGER)
    if ledger is not None and ledger.place != SIGNERS_PATH:
        ledger = None
    return start(SignersState(tree.signers, ledger), tree)


def commit_of(repo: Repository, revision: str) -> str:
    """Return the object id of the commit that a revision names; raises EnvironmentFailure."""
    try:
        return resolve_commit(repo, revision)
    except EnvironmentFailure:
        if revision == "HEAD" and history.find(repo, revision) is None:
            raise
        return _refuse(repo, revision)


def root_commit(repo: Repository, root: str) -> str:
    """Return the object id of the commit where trust starts.

    Raises EnvironmentFailure if there is none, BadRoot for a name that a push may give to another
    commit: an abbreviated id, which a tag can take, a name that several refs have, a search.
    """
    commit = commit_of(repo, root)
    if root.lower() == commit:
        return commit
    name = _OPERATOR.split(root)[0]
    refs = history.refs_named(repo, name)
    if len(refs) > 1 or _ABBREVIATED.fullmatch(name) or _SEARCH in root:
        why = f"may mean {' or '.join(refs)}" if refs else "is not a whole commit id"
        raise BadRoot(
            f"the trust root {root!a} {why}: whoever can push can have it name another commit",
            hint=f"git show {commit} shows what it names now; write the whole id of a commit, or "
            "refs/tags/NAME",
        )
    return commit


def _refuse(repo: Repository, revision: str) -> NoReturn:
    """Raise EnvironmentFailure that says why a revision is no commit."""
    oid = resolve(repo, revision)
    result = repo.call("cat-file", "-t", oid, ok=(0, 128))
    kind = result.stdout.decode("ascii").strip()
    what = f"a {kind}, not a commit" if kind not in ("", "commit") else "nothing in this repository"
    raise EnvironmentFailure(f"{revision!r} names {what}", hint=REVISIONS_HINT) from None
