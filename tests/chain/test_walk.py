"""States along a history: as the rules say of every commit, each computed by itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from tests.git.histories import History
from tests.kit import Repo
from wtxtgit.chain.reader import ChainReader, signed
from wtxtgit.chain.walk import BadRoot, Walk
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.filter.content import examine
from wtxtgit.git import history
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.commit_files import CommitFilesReader
from wtxtgit.git.trees import TreeReader
from wtxtgit.model.array import Signature
from wtxtgit.model.ledger import NO_REPO, SIGNERS_LEDGER, SIGNERS_PATH, Ledger, LedgerHead
from wtxtgit.text.digest import keyid
from wtxtgit.text.ledger import covered, format_ledger, next_record, with_signature
from wtxtgit.trust.openssh import PublicKey, format_public
from wtxtgit.trust.state import TrustState, Violation, join
from wtxtgit.trust.step import step

KEYS = [SigningKey(bytes([number]) * 32) for number in range(1, 5)]
PUBLIC = [bytes(key.verify_key) for key in KEYS]
MODEL, LEDGER = b"model", b"model.wsum"
Files = dict[bytes, bytes]


@dataclass(frozen=True)
class World:
    """Files, and the ledgers that they have."""

    files: Files
    ledgers: dict[bytes, Ledger]

    def put(self, path: bytes, content: bytes) -> World:
        return World({**self.files, path: content}, self.ledgers)

    def without(self, *paths: bytes) -> World:
        return World({k: v for k, v in self.files.items() if k not in paths}, self.ledgers)

    def sealed(self, path: bytes, *by: int) -> World:
        """With a record of a file, signed by keys."""
        ledger = self.ledgers.get(path)
        repo = NO_REPO
        if path != SIGNERS_PATH and SIGNERS_PATH in self.ledgers:
            repo = self.ledgers[SIGNERS_PATH].records[0].merkle_this
        head = LedgerHead(repo, path) if ledger is None else ledger.head
        sha256_all = examine(memoryview(self.files[path])).sha256_all
        assert sha256_all is not None
        record = next_record(
            ledger, sha256_all=sha256_all, ts="2025-01-01T00:00:00Z", build="b", schema="opaque/v1"
        )
        for number in by:
            made = KEYS[number].sign(covered(head, record)).signature
            record = with_signature(record, Signature(made, keyid(PUBLIC[number])))
        grown = Ledger(head, (*(ledger.records if ledger else ()), record))
        files = {**self.files, path + b".wsum": format_ledger(grown)}
        return World(files, {**self.ledgers, path: grown})


def signers(*numbers: int, threshold: int = 1) -> bytes:
    keys = {n: format_public(PublicKey(PUBLIC[n], f"k{n}")) for n in numbers}
    lines = [f"user{n}@example.com {key}\n" for n, key in keys.items()]
    return f"# threshold: {threshold}\n{''.join(lines)}".encode()


NOTHING = World({}, {})
PLAIN = NOTHING.put(b"readme", b"0")
FIRST = PLAIN.put(SIGNERS_PATH, signers(0, 1)).sealed(SIGNERS_PATH, 0)
SEALED = FIRST.put(MODEL, b"1").sealed(MODEL, 0)
SECOND = SEALED.put(SIGNERS_PATH, signers(0, 2)).sealed(SIGNERS_PATH, 0)


@contextmanager
def walked(repo: Repo, tips: Sequence[str], root: str | None = None) -> Iterator[Walk]:
    with BlobReader(repo.repository) as blobs, CommitFilesReader(repo.repository) as snapshots:
        yield Walk.to(repo.repository, tips, root, ChainReader(blobs), snapshots)


def each_by_itself(
    walk: Walk, tips: Sequence[str]
) -> tuple[dict[str, TrustState], dict[str, list[Violation]]]:
    """States of all commits, and what fails at each, by the rules and nothing else."""
    states: dict[str, TrustState] = {}
    violations: dict[str, list[Violation]] = {}
    root = [] if walk.root is None else [walk.root]
    for commit in history.commits(walk.repo, tips, root):
        before = [states.get(oid, walk.start) for oid in commit.parents] or [walk.start]
        tree = walk.tree(commit.oid)
        states[commit.oid], violations[commit.oid] = step(tree, join(before), signed)
    return states, violations


def assert_same(repo: Repo, tips: Sequence[str], root: str | None = None) -> Walk:
    with walked(repo, tips, root) as walk:
        states, violations = each_by_itself(walk, tips)
        assert walk.commits.keys() == states.keys()
        assert {oid: walk.standing(oid) for oid in states} == {
            oid: state.facts for oid, state in states.items()
        }
        assert {oid: list(walk.violations(oid)) for oid in states} == violations
        # Those of tips are kept, the others found anew.
        for oid in (*tips, *list(states)[::7]):
            assert walk.state(oid) == states.get(oid, walk.start)
        return walk


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_any_history_with_merges(repo: Repo, seed: int) -> None:
    """Commits that change signers and models, sealed well or badly, and merges of any two."""
    chance = random.Random(seed)  # noqa: S311
    made = History(repo)

    def some(most: int) -> list[int]:
        return chance.sample(range(4), chance.randrange(most + 1))

    commits = [(made.commit(PLAIN.files), PLAIN)]
    commits.append((made.commit(SEALED.files, [commits[0][0]]), SEALED))
    acts: list[Callable[[World], World]] = [
        lambda one: one.put(b"readme", chance.randbytes(4)),
        lambda one: one.put(MODEL, chance.randbytes(4)).sealed(MODEL, *some(2)),
        lambda one: one.put(MODEL, chance.randbytes(4)).sealed(MODEL, 0),
        lambda one: one.put(
            SIGNERS_PATH, signers(*chance.sample(range(4), 2))
        ).sealed(SIGNERS_PATH, *some(2)),
        lambda one: one.put(SIGNERS_PATH, signers(chance.randrange(4))),
        lambda one: one.without(SIGNERS_PATH),
        lambda one: one.without(LEDGER),
        lambda one: one.put(SIGNERS_PATH, b"no signers\n"),
    ]  # fmt: skip
    for _ in range(40):
        oid, world = chance.choice(commits[-6:])
        if chance.random() < 0.3:
            other, theirs = chance.choice(commits[-6:])
            taken = chance.choice([world, theirs])
            parents = list(dict.fromkeys([oid, other]))
            commits.append((made.commit(taken.files, parents), taken))
        else:
            world = chance.choice(acts)(world)
            commits.append((made.commit(world.files, [oid]), world))
    tips = [oid for oid, _ in commits[-8:]]
    walk = assert_same(repo, tips)
    assert any(map(walk.violations, walk.commits))
    readable = [oid for oid, one in commits if one.files.get(SIGNERS_PATH) != b"no signers\n"]
    for root in readable[:12:3]:
        reached = [tip for tip in tips if history.is_ancestor(repo.repository, root, tip)]
        if reached:
            assert_same(repo, reached, root)


class TestRoots:
    def test_a_commit(self, repo: Repo) -> None:
        """What it reaches has its state, and so has what begins beside it."""
        made = History(repo)
        before = made.commit(PLAIN.files)
        root = made.commit(SEALED.files, [before])
        tip = made.commit(SECOND.files, [root])
        orphan = made.commit({b"page": b"x"})
        merged = made.commit({**SECOND.files, b"page": b"x"}, [tip, orphan])
        with walked(repo, [merged], root) as walk:
            assert walk.commits.keys() == {tip, orphan, merged}
            assert walk.state(before) == walk.state(root) == walk.start
            assert walk.state(orphan).newest == walk.start.newest
            assert walk.standing(merged).trusted == {PUBLIC[0], PUBLIC[2]}
            assert walk.count_unjudged() == 2
            assert not walk.is_first_use

    def test_first_use(self, repo: Repo) -> None:
        """The oldest commit with signers on the line of first parents."""
        made = History(repo)
        plain = made.commit(PLAIN.files)
        nobody = made.commit(PLAIN.put(SIGNERS_PATH, signers()).files, [plain])
        first = made.commit(SEALED.files, [nobody])
        tip = made.commit(SECOND.files, [first])
        older = made.commit(PLAIN.put(SIGNERS_PATH, signers(3)).files)
        merged = made.commit(SECOND.files, [tip, older])
        with walked(repo, [merged]) as walk:
            assert (walk.root, walk.is_first_use) == (first, True)
            assert walk.start.trusted == {PUBLIC[0], PUBLIC[1]}
            assert [v.kind for v in walk.violations(older)][:1] == ["signers-changed"]
        with walked(repo, [plain]) as walk:
            assert (walk.root, walk.start.is_signed) == (None, False)

    def test_one_that_no_tip_descends_from(self, repo: Repo) -> None:
        made = History(repo)
        one, two = made.commit({b"a": b"1"}), made.commit({b"a": b"2"})
        with (
            pytest.raises(BadRoot, match="does not descend from the trust root"),
            walked(repo, [two], one),
        ):
            pass
        with walked(repo, [two, one], one) as walk:
            assert walk.commits.keys() == {two}

    def test_one_whose_signers_do_not_read(self, repo: Repo) -> None:
        bad = History(repo).commit({SIGNERS_PATH: b"no signers\n"})
        with pytest.raises(BadRoot, match="signers of the trust root"), walked(repo, [bad], bad):
            pass

    @pytest.mark.slow
    def test_a_commit_comes_before_a_file_of_its_name(
        self, repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        oid = History(repo).commit(FIRST.files)
        monkeypatch.chdir(tmp_path)
        for name, content in ((oid, signers(3)), ("given", signers(3))):
            (tmp_path / name).write_bytes(content)
        with walked(repo, [oid], oid) as walk:
            assert walk.start.trusted == {PUBLIC[0], PUBLIC[1]}
        with walked(repo, [oid], "given") as walk:
            assert walk.start.trusted == {PUBLIC[3]}


class TestFileWithLedger:
    """A signers file with its ledger: the state before the first commit."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        (tmp_path / "root").write_bytes(SECOND.files[SIGNERS_PATH])
        (tmp_path / "root.wsum").write_bytes(SECOND.files[SIGNERS_LEDGER])
        return str(tmp_path / "root")

    def test_commits_from_before_it_are_not_judged(self, repo: Repo, root: str) -> None:
        made = History(repo)
        plain = made.commit(PLAIN.files)
        first = made.commit(FIRST.files, [plain])
        second = made.commit(FIRST.put(SIGNERS_PATH, SECOND.files[SIGNERS_PATH]).sealed(
            SIGNERS_PATH, 0).files, [first])  # fmt: skip
        back = made.commit(FIRST.files, [second])
        beside = made.commit(FIRST.files, [first])
        with walked(repo, [back, beside], root) as walk:
            assert walk.unjudged == {plain, first, beside}
            assert walk.root is None
            assert walk.count_unjudged() == 3
            assert walk.violations(second) == ()
            assert {v.kind for v in walk.violations(back)} == {
                "signers-changed",
                "ledger-rewritten",
            }
            # What is asked for again takes none of it back.
            walk.state(first)
            assert walk.unjudged == {plain, first, beside}

    def test_another_ledger_of_as_many_records_is_none_of_before(
        self, repo: Repo, root: str
    ) -> None:
        strange = PLAIN.put(SIGNERS_PATH, signers(3)).sealed(SIGNERS_PATH, 3)
        oid = History(repo).commit(strange.files)
        with walked(repo, [oid], root) as walk:
            assert walk.unjudged == frozenset()
            assert "signers-changed" in {v.kind for v in walk.violations(oid)}

    def test_alone_it_fixes_the_signers(self, repo: Repo, root: str) -> None:
        Path(root + ".wsum").unlink()
        oid = History(repo).commit(FIRST.files)
        with walked(repo, [oid], root) as walk:
            assert walk.unjudged == frozenset()
            assert walk.standing(oid).trusted == {PUBLIC[0], PUBLIC[2]}

    @pytest.mark.parametrize(
        ("content", "ledger", "why"),
        [
            (signers(), None, "names no signer"),
            (b"no signers\n", None, "root: "),
            (
                signers(3),
                SECOND.files[SIGNERS_LEDGER],
                "its last record does not match these signers",
            ),
            (SECOND.files[SIGNERS_PATH], b"no ledger\n", "root.wsum: "),
            (SECOND.files[SIGNERS_PATH], SEALED.files[LEDGER], "the ledger of another file"),
        ],
    )
    def test_what_is_no_root(
        self, repo: Repo, root: str, content: bytes, ledger: bytes | None, why: str
    ) -> None:
        Path(root).write_bytes(content)
        if ledger is not None:
            Path(root + ".wsum").write_bytes(ledger)
        oid = History(repo).commit(FIRST.files)
        with pytest.raises(BadRoot, match=why), walked(repo, [oid], root):
            pass

    def test_one_that_there_is_not(self, repo: Repo, tmp_path: Path) -> None:
        oid = History(repo).commit(FIRST.files)
        with (
            pytest.raises(EnvironmentFailure, match="names nothing"),
            walked(repo, [oid], str(tmp_path / "absent")),
        ):
            pass


class TestBrought:
    """What a commit breaks that its first parent keeps, or at files that it changes."""

    def test_at_the_commit_that_did_it(self, repo: Repo) -> None:
        made = History(repo)
        root = made.commit(SEALED.files)
        bad = made.commit(SEALED.without(LEDGER).files, [root])
        same = made.commit(SEALED.without(LEDGER).put(b"readme", b"1").files, [bad])
        strange = SEALED.put(MODEL, b"9").sealed(MODEL, 3)
        worse = made.commit(strange.files, [same])
        later = made.commit(strange.put(MODEL, b"8").sealed(MODEL, 3).files, [worse])
        with walked(repo, [later], root) as walk:
            told = {oid: [v.kind for v in walk.brought(oid)] for oid in walk.commits}
        assert told == {
            bad: ["ledger-removed"],
            same: [],
            worse: ["untrusted-signer"],
            later: ["untrusted-signer"],
        }

    def test_of_a_merge(self, repo: Repo) -> None:
        """By its first parent, and by others only where they were told of."""
        made = History(repo)
        root = made.commit(SEALED.files)
        main = made.commit(SEALED.put(b"readme", b"1").files, [root])
        bad = made.commit(SEALED.without(LEDGER).files, [root])
        merged = made.commit(SEALED.without(LEDGER).files, [main, bad])
        with walked(repo, [merged], root) as walk:
            assert [v.kind for v in walk.brought(merged)] == ["ledger-removed"]
            assert walk.brought(merged, {bad}) == []

    def test_of_a_branch_from_before_the_root(self, repo: Repo) -> None:
        """It has neither signers nor ledgers, and did nothing to them."""
        made = History(repo)
        before = made.commit(PLAIN.files)
        root = made.commit(SEALED.files, [before])
        old = made.commit(PLAIN.put(b"notes", b"x").files, [before])
        merged = made.commit(SEALED.put(b"notes", b"x").files, [root, old])
        back = made.commit(PLAIN.files, [before, root])
        with walked(repo, [merged, back], root) as walk:
            assert {v.kind for v in walk.violations(old)} == {"signers-changed", "ledger-removed"}
            assert walk.brought(old) == []
            assert walk.brought(merged) == []
            # A merge that takes its files is another matter.
            kinds = {v.kind for v in walk.brought(back)}
            assert kinds == {"signers-changed", "ledger-removed"}


def test_what_stands_at_the_paths(repo: Repo) -> None:
    made = History(repo)
    trees = {
        "file": {SIGNERS_PATH: b"a"},
        "link": {SIGNERS_PATH: (0o120000, b"a")},
        "folder": {SIGNERS_PATH + b"/x": b"a"},
        "above": {b".wtxt": b"a"},
        "others": {b"x": b"a"},
    }
    oids = {name: made.tree(files) for name, files in trees.items()}
    places = (SIGNERS_PATH, SIGNERS_LEDGER)
    with TreeReader(repo.repository) as reader:
        found = {name: reader.at(oid, places) for name, oid in oids.items()}
        assert reader.at(made.tree({}), places) == {}
    assert {name for name, entries in found.items() if entries} == {"file", "link"}
    assert found["file"][SIGNERS_PATH].is_file
    assert not found["link"][SIGNERS_PATH].is_file


@pytest.mark.slow
def test_who_touches_a_path(repo: Repo) -> None:
    made = History(repo)
    one = made.commit({b"a": b"1", b"b": b"1"})
    two = made.commit({b"a": b"1", b"b": b"2"}, [one])
    three = made.commit({b"a": b"2", b"b": b"1"}, [one])
    merged = made.commit({b"a": b"2", b"b": b"2"}, [two, three])
    evil = made.commit({b"a": b"3", b"b": b"2"}, [two, three])

    def touching(tips: list[str], excluded: tuple[str, ...] | list[str] = ()) -> set[str]:
        found = history.commits(repo.repository, tips, excluded, touching=[b"a"])
        return {commit.oid for commit in found}

    same = made.commit({b"a": b"1", b"b": b"3"}, [one, two])
    assert touching([same]) == {one}
    assert touching([merged]) == {one, three, merged}
    assert touching([evil], [one]) == {three, evil}
    assert touching([two], [one]) == set()
    assert touching([]) == set()
