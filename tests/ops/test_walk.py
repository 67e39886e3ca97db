"""S along a history: as the rules say of every commit, whole trees read."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from conftest import Repo
from git.histories import History
from nacl.signing import SigningKey
from wtxtgit.trust.policy import Parent, Trust, Violation, advance

from wtxtgit.git import history
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.path_history import PathReader, touching
from wtxtgit.git.snapshots import Snapshots
from wtxtgit.model import Signature
from wtxtgit.model.ledger import NO_REPO, SIGNERS_LEDGER, SIGNERS_PATH, Head, Ledger
from wtxtgit.ops.chain import ChainReader, signed
from wtxtgit.ops.examine import examine
from wtxtgit.ops.walk import BadRoot, Walk
from wtxtgit.text.digest import keyid
from wtxtgit.text.ledger import covered, format_ledger
from wtxtgit.text.ledger_chain import next_record, with_signature
from wtxtgit.trust.keys import PublicKey, format_public

KEYS = [SigningKey(bytes([number]) * 32) for number in range(1, 5)]
HEAD = Head(NO_REPO, SIGNERS_PATH)
Files = dict[bytes, bytes]


def signers(*numbers: int, threshold: int = 1) -> bytes:
    keys = {n: format_public(PublicKey(bytes(KEYS[n].verify_key), f"k{n}")) for n in numbers}
    lines = [f"user{n}@example.com {key}\n" for n, key in keys.items()]
    return f"# threshold: {threshold}\n{''.join(lines)}".encode()


def sealed(files: Files, ledger: Ledger | None, *by: int) -> tuple[Files, Ledger]:
    """The files with a record of their signers file, signed by keys."""
    content = memoryview(files[SIGNERS_PATH])
    sha256_all = examine(content).sha256_all
    assert sha256_all is not None
    record = next_record(
        ledger, sha256_all=sha256_all, ts="2025-01-01T00:00:00Z", build="none", schema="opaque/v1"
    )
    for number in by:
        made = KEYS[number].sign(covered(HEAD, record)).signature
        signature = Signature(made, keyid(bytes(KEYS[number].verify_key)))
        record = with_signature(record, signature)
    grown = Ledger(HEAD, (*(ledger.records if ledger else ()), record))
    return {**files, SIGNERS_LEDGER: format_ledger(grown)}, grown


def whole_walk(
    repo: Repo, tips: Sequence[str], root: str | None
) -> tuple[dict[str, Trust], dict[str, list[Violation]]]:
    """S after every commit, by the rules and nothing else."""
    repository = repo.repository
    trusts: dict[str, Trust] = {}
    changes: dict[str, list[Violation]] = {}
    with BlobReader(repository) as blobs, Snapshots(repository) as snapshots:
        reader = ChainReader(blobs)
        start = Trust()
        if root is not None:
            tree = reader.tree(snapshots.snapshot(root))
            start = Trust(tree.signers, tree.signers_ledger)
        for commit in history.commits(repository, tips, [root] if root else []):
            before = [
                Parent(trusts.get(oid, start), reader.tree(snapshots.snapshot(oid)))
                for oid in dict.fromkeys(commit.parents)
            ]
            tree = reader.tree(snapshots.snapshot(commit.oid))
            trusts[commit.oid], wrong = advance(tree, before, signed, start)
            if wrong:
                changes[commit.oid] = wrong
    return trusts, changes


def walk(repo: Repo, tips: Sequence[str], root: str | None) -> Walk:
    repository = repo.repository
    with BlobReader(repository) as blobs, Snapshots(repository) as snapshots:
        return Walk.to(repository, tips, root, ChainReader(blobs), snapshots)


def assert_same(repo: Repo, tips: Sequence[str], root: str | None = None) -> Walk:
    found = walk(repo, tips, root)
    assert (found.trusts, found.changes) == whole_walk(repo, tips, root)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_any_history_with_merges(repo: Repo, seed: int) -> None:
    """Commits that change the signers, sealed well or badly, others, and merges of any two."""
    chance = random.Random(seed)  # noqa: S311
    made = History(repo)
    plain = {b"readme": b"0"}
    first, ledger = sealed({**plain, SIGNERS_PATH: signers(0, 1)}, None, 0)
    commits: list[tuple[str, Files, Ledger | None]] = [
        (made.commit(plain), plain, None),
    ]
    commits.append((made.commit(first, [commits[0][0]]), first, ledger))
    actions: list[Callable[[Files, Ledger | None], tuple[Files, Ledger | None]]] = [
        lambda files, ledger: ({**files, b"readme": chance.randbytes(4)}, ledger),
        lambda files, ledger: ({**files, b"readme": chance.randbytes(4)}, ledger),
        lambda files, ledger: sealed(
            {**files, SIGNERS_PATH: signers(*chance.sample(range(4), 2), threshold=1)},
            ledger,
            *chance.sample(range(4), chance.choice([0, 1, 2])),
        ),
        lambda files, ledger: ({**files, SIGNERS_PATH: signers(chance.randrange(4))}, ledger),
        lambda files, ledger: ({k: v for k, v in files.items() if k != SIGNERS_PATH}, ledger),
        lambda files, ledger: ({**files, SIGNERS_PATH: b"no signers\n"}, ledger),
    ]
    for _ in range(40):
        oid, files, ledger = chance.choice(commits[-6:])
        if chance.random() < 0.3:
            other, files_other, ledger_other = chance.choice(commits[-6:])
            taken = chance.choice([(files, ledger), (files_other, ledger_other)])
            parents = [oid] if other == oid else [oid, other]
            commits.append((made.commit(taken[0], parents), *taken))
        else:
            files, ledger = chance.choice(actions)(files, ledger)
            commits.append((made.commit(files, [oid]), files, ledger))
    tips = [oid for oid, _, _ in commits[-8:]]
    found = assert_same(repo, tips)
    assert len({trust.keys for trust in found.trusts.values()}) > 1
    assert found.changes
    readable = [oid for oid, files, _ in commits if files.get(SIGNERS_PATH) != b"no signers\n"]
    for root in readable[:12:3]:
        reached = [tip for tip in tips if history.is_ancestor(repo.repository, root, tip)]
        if reached:
            assert_same(repo, reached, root)


@pytest.mark.slow
def test_trees_are_read_at_two_paths_alone(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    made = History(repo)
    files, _ = sealed({SIGNERS_PATH: signers(0)}, None, 0)
    oid = made.commit(files)
    for number in range(30):
        oid = made.commit({**files, b"x": b"%d" % number}, [oid])
    asked: list[str] = []
    real = PathReader.entries

    def entries(reader: PathReader, tree: str) -> object:
        asked.append(tree)
        return real(reader, tree)

    def snapshot(_: Snapshots, oid: str) -> object:
        raise AssertionError(oid)

    monkeypatch.setattr(PathReader, "entries", entries)
    monkeypatch.setattr(Snapshots, "snapshot", snapshot)
    found = walk(repo, [oid], None)
    assert found.trust(oid).keys == {bytes(KEYS[0].verify_key)}
    assert len(asked) == 1


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
    with PathReader(repo.repository, (SIGNERS_PATH, SIGNERS_LEDGER)) as reader:
        found = {name: reader.entries(oid) for name, oid in oids.items()}
        assert reader.entries(made.tree({})) == {}
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
    repository = repo.repository
    same = made.commit({b"a": b"1", b"b": b"3"}, [one, two])
    assert touching(repository, [same], [], [b"a"]) == {one}
    assert touching(repository, [merged], [], [b"a"]) == {one, three, merged}
    assert touching(repository, [evil], [one], [b"a"]) == {three, evil}
    assert touching(repository, [two], [one], [b"a"]) == set()
    assert touching(repository, [], [], [b"a"]) == set()


def test_a_root_that_no_tip_descends_from(repo: Repo) -> None:
    made = History(repo)
    one, two = made.commit({b"a": b"1"}), made.commit({b"a": b"2"})
    with pytest.raises(BadRoot, match="does not descend from the trust root"):
        walk(repo, [two], one)
    assert walk(repo, [two, one], one).trusts == {two: Trust()}


@pytest.mark.slow
def test_a_commit_comes_before_a_file_of_its_name(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = History(repo)
    files, _ = sealed({SIGNERS_PATH: signers(0)}, None, 0)
    oid = made.commit(files)
    monkeypatch.chdir(tmp_path)
    (tmp_path / oid).write_bytes(signers(3))
    assert walk(repo, [oid], oid).start.keys == {bytes(KEYS[0].verify_key)}
    (tmp_path / "given").write_bytes(signers(3))
    assert walk(repo, [oid], "given").start.keys == {bytes(KEYS[3].verify_key)}
