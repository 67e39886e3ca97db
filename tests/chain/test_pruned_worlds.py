"""What `prune --prove` accepts keeps the claim of docs/spec/pruned.md, in all small worlds.

The proof, and a reader of the page that shares nothing with it, agree on each, and on which rule
ends it; what both accept is held against who sealed and stated what.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations

import pytest

from tests.chain import naive_pruned as naive
from tests.chain.pruned_worlds import ALICE, BOB, OLD, Made, Store, Truth, branch_of, edited
from tests.kit import Repo
from tests.kit.changes import AUDIT, is_nightly
from wtxtgit.chain.pruned import prove, prove_audited
from wtxtgit.chain.reader import Facts
from wtxtgit.errors import CheckError, TrustError
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.repository import Repository
from wtxtgit.report.audit import AuditReport

_KEYS = {"rotated": (ALICE, BOB)}
RULES = {0: "ok", 1: "report", 5: "signers", 9: "report"}
"""How the command ends where a rule fails; by an error for those that are not named."""


@pytest.fixture
def repository(repo: Repo) -> Iterator[Repository]:
    found = repo.repository
    # While a reader is open, the processes of git that answer go on.
    with BlobReader(found):
        yield found


def ended(proof: Callable[[], object]) -> str:
    try:
        return "report" if isinstance(proof(), AuditReport) else "ok"
    except TrustError:
        return "signers"
    except CheckError:
        return "error"


class Worlds:
    """Worlds of one old history, and what becomes of them."""

    def __init__(self, repository: Repository, name: str) -> None:
        self.store = Store(repository.common_dir / "objects")
        self.truth = Truth(self.store)
        self.repository = repository
        self.facts = Facts(repository, 1)
        self.old = OLD[name](self.truth)
        self.keys = _KEYS.get(name, (ALICE,))
        self.count: Counter[int] = Counter()
        self.wrong: list[str] = []

    def kept(self) -> list[tuple[Made, ...]]:
        """All choices of commits of the old line, the tip among them."""
        *line, tip = self.old.line
        return [
            (*some, tip) for count in range(len(line) + 1) for some in combinations(line, count)
        ]

    def judge(self, how: str, branch: Made) -> None:
        """Hold a branch against both, once the old history is known to hold."""
        tip, old = self.store.commit(branch), self.store.commit(self.old)
        rule = naive.failing_from_2(self.store.objects, old, tip)
        told = ended(lambda: prove_audited(self.repository, old, tip, self.facts))
        self._counted(how, rule, told, branch)

    def judge_all(self, how: str, old: Made, branch: Made, root: Made) -> None:
        """The same with another old tip, or another root."""
        tip, was, start = map(self.store.commit, (branch, old, root))
        rule = naive.failing(self.store.objects, was, tip, start)
        told = ended(lambda: prove(self.repository, was, tip, start, self.facts))
        self._counted(how, rule, told, branch, old)

    def _counted(
        self, how: str, rule: int, told: str, branch: Made, old: Made | None = None
    ) -> None:
        self.count[rule] += 1
        if told != RULES.get(rule, "error"):
            self.wrong.append(f"{how}: rule {rule} fails for the naive reader, {told} is told")
        if told == "ok" and not self.truth.claims(old or self.old, branch):
            self.wrong.append(f"{how}: accepted, and it is not so")


def _chosen() -> list[tuple[str, int]]:
    """Old histories, and by their numbers choices of what is kept: every night all of them.

    Else the tip alone, all four commits, and two of them that are no neighbours.
    """
    return [(name, n) for name in OLD for n in (range(8) if is_nightly() else (0, 2, 7))]


@pytest.mark.slow
@pytest.mark.sampled(AUDIT)
@pytest.mark.parametrize(("name", "choice"), _chosen())
def test_every_edit_of_a_pruning(repository: Repository, name: str, choice: int) -> None:
    worlds = Worlds(repository, name)
    kept = worlds.kept()[choice]
    for how, branch in edited(worlds.truth, worlds.old, kept, worlds.keys):
        worlds.judge(how, branch)
    assert not worlds.wrong, "\n".join(worlds.wrong)
    assert worlds.count.total() > 80
    # Each rule is the first that fails in some of them.
    lacking = {1} if len(kept) < len(worlds.old.line) else {1, 6}
    assert {*range(10)} - {*worlds.count} <= lacking | ({7} if len(kept) == 1 else set())
    assert worlds.count[0] >= 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rotated", "merged"])
def test_every_other_tip_and_root(repository: Repository, name: str) -> None:
    """A branch is held against tips and roots that it is none of, and old ones that don't hold."""
    worlds = Worlds(repository, name)
    truth, old = worlds.truth, worlds.old
    branch = branch_of(truth, old, worlds.kept()[2], worlds.keys)
    evil = Made({**old.files, b"m.bin": (0o100644, b"evil")}, old, is_honest=False)
    begun = Made({b"README": (0o100644, b"0\n")}, message=b"nobody\n")
    of_evil = branch_of(truth, evil, (evil,), worlds.keys)
    tips = {"the branch": branch, "the old one": old, "evil": of_evil}
    for which, tip in tips.items():
        for n, was in enumerate([*old.line, *old.below[-2:], branch, evil]):
            for m, root in enumerate([*old.line, branch, branch.line[0], begun]):
                worlds.judge_all(f"{which}, old tip {n}, root {m}", was, tip, root)
    assert not worlds.wrong, "\n".join(worlds.wrong)
    assert {0, 1} <= {*worlds.count}
