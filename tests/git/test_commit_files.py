from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.git.histories import EXECUTABLE, LINK, SUBMODULE, Files, History, new_repo
from tests.kit import Repo
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import commit_files, history, run
from wtxtgit.git.commit_files import CommitFiles, CommitFilesReader
from wtxtgit.git.index import TreeEntry

FOLD = b"*.fold filter=wtxt -text\n"


def whole_tree(repo: Repo, commit: str) -> dict[bytes, TreeEntry]:
    listed = {}
    for record in run.records(repo.git("ls-tree", "-r", "-z", "--full-tree", commit)):
        about, _, path = record.partition(b"\t")
        mode, _, oid = about.split(b" ")
        listed[path] = TreeEntry(path, int(mode, 8), oid.decode())
    return listed


def slowly(repo: Repo, commit: str) -> CommitFiles:
    """The same by the words of its docstring: all of a tree, and an index of it."""
    there = whole_tree(repo, commit)
    env = {"GIT_INDEX_FILE": "slow-index"}
    repo.git("read-tree", commit, env=env)
    for path, entry in there.items():
        if path.split(b"/")[-1] == b".gitattributes" and entry.mode == LINK:
            repo.git("update-index", "--force-remove", "--", path, env=env)
    asked = run.joined(there)
    said = run.records(
        repo.git("check-attr", "--cached", "-z", "--stdin", "filter", stdin=asked, env=env)
    )
    marked = {path for path, value in zip(said[::3], said[2::3], strict=True) if value == b"wtxt"}
    special = {
        path
        for path in there
        if path.endswith(b".wsum")
        or path.split(b"/")[-1] == b".gitattributes"
        or path == b".wtxt/signers"
    }
    sealed = {path.removesuffix(b".wsum") for path in there if path.endswith(b".wsum")}
    kept = (marked | special | sealed) & there.keys()
    read = {
        path: entry.oid
        for path, entry in there.items()
        if path.split(b"/")[-1] == b".gitattributes" and entry.is_file
    }
    return CommitFiles({path: there[path] for path in kept}, frozenset(marked - special), read)


def check(repo: Repo, commits: Sequence[str]) -> None:
    expected = {commit: slowly(repo, commit) for commit in commits}
    for order in (list(commits), list(reversed(commits))):
        with CommitFilesReader(repo.repository) as made:
            for commit in order:
                assert made.files(commit) == expected[commit], commit
                assert made.files(commit).entries == expected[commit].entries
    for commit in commits:
        with CommitFilesReader(repo.repository) as made:
            assert made.files(commit) == expected[commit]


def of(repo: Repo, commit: str) -> Mapping[bytes, TreeEntry]:
    with CommitFilesReader(repo.repository) as made:
        return made.files(commit).entries


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_any_history(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small, so that trees are forgotten and told again.
    monkeypatch.setattr(commit_files, "_MOST_TREES", 7)
    repo = new_repo(tmp_path / "r", kind)
    make = History(repo)
    chance = random.Random(7)  # noqa: S311 - the same in every run
    width = {"sha1": 40, "sha256": 64}[kind]
    names = [b"a.fold", b"b.fold", b"x/a.fold", b"x/c\xff\n.bin", b"x/y/d.bin", b"e.bin"]
    paths = [*names, *(name + b".wsum" for name in names), b".wtxt/signers", b".wtxt/signers.wsum",
             b"plain", b"x/plain", b".wsum", b"x/.wsum", b"a.fold.wsum.wsum"]  # fmt: skip
    attributes = [b".gitattributes", b"x/.gitattributes", b"x/y/.gitattributes"]
    rules = [FOLD, FOLD, b"*.bin filter=wtxt\n", b"* filter=wtxt\n", b"*.fold -filter\n", b""]
    made: list[str] = []
    trees: dict[str, dict[bytes, bytes | tuple[int, bytes]]] = {}
    for number in range(60):
        count = chance.choice([0, 1, 1, 1, 1, 2, 2, 3]) if made else 0
        parents = chance.sample(made[-6:], min(count, len(made[-6:])))
        files = dict(trees[parents[0]]) if parents else {b".gitattributes": FOLD}
        for parent in parents[1:]:
            files.update(chance.sample(sorted(trees[parent].items()), len(trees[parent]) // 2))
        for path in chance.sample(paths, chance.randrange(5)):
            what = chance.randrange(8)
            if what < 3:
                files.pop(path, None)
            elif what == 3:
                files[path] = (chance.choice([LINK, EXECUTABLE]), b"link %d" % number)
            elif what == 4:
                files[path] = (SUBMODULE, b"%d" % (number % 9 + 1) * width)
            else:
                files[path] = b"%d" % chance.randrange(50)
        if chance.random() < 0.2:
            files[chance.choice(attributes)] = chance.choice(rules)
        if chance.random() < 0.05:
            files[b".gitattributes"] = (LINK, b"x/.gitattributes")
        commit = make.commit(files, parents, message=str(number))
        made.append(commit)
        trees[commit] = files
    check(repo, made)


@pytest.mark.slow
def test_merges_of_all_kinds(repo: Repo) -> None:
    make = History(repo)
    base: Files = {b".gitattributes": FOLD, b"a.fold": b"1", b"a.fold.wsum": b"1", b"t": b"t"}
    root = make.commit(base)
    ours = make.commit({**base, b"a.fold": b"2", b"a.fold.wsum": b"2"}, [root])
    theirs = make.commit({**base, b"b.fold": b"1", b"b.fold.wsum": b"1"}, [root])
    third = make.commit({**base, b"c.fold": (EXECUTABLE, b"1")}, [root])
    foreign = make.commit({b"z.fold": b"1", b"z.fold.wsum": b"1"})
    one_side = make.commit(repo.git("rev-parse", ours + "^{tree}").decode().strip(), [ours, theirs])
    both = {**base, b"a.fold": b"2", b"a.fold.wsum": b"2", b"b.fold": b"1", b"b.fold.wsum": b"1"}
    evil = make.commit({**both, b"a.fold": b"evil"}, [ours, theirs])
    octopus = make.commit(
        {**both, b"c.fold": b"1", b"z.fold": b"1"}, [ours, theirs, third, foreign]
    )
    renamed = make.commit(
        {b".gitattributes": FOLD, b"n.fold": b"1", b"n.fold.wsum": b"1"}, [octopus]
    )
    commits = [root, ours, theirs, third, foreign, one_side, evil, octopus, renamed]
    check(repo, commits)
    with CommitFilesReader(repo.repository) as made:
        assert made.files(one_side) is made.files(ours)
        # No gitattributes file is there, and what was sealed is still seen.
        assert set(made.files(foreign).entries) == {b"z.fold", b"z.fold.wsum"}
        assert made.files(third).entries[b"c.fold"].mode == EXECUTABLE


def test_what_stands_in_place_of_a_file(repo: Repo) -> None:
    make = History(repo)
    sealed: Files = {b".gitattributes": FOLD, b"a.fold": b"1", b"a.fold.wsum": b"1"}
    root = make.commit(sealed)
    link = make.commit({**sealed, b"a.fold": (LINK, b"b"), b"a.fold.wsum": (LINK, b"c")}, [root])
    submodule = make.commit({**sealed, b"a.fold": (SUBMODULE, b"1" * 40)}, [link])
    # Git would leave this out of a comparison.
    hidden = b'[submodule "s"]\n\tpath = a.fold\n\turl = u\n\tignore = all\n'
    repo.write(".gitmodules", hidden)
    gone = make.commit({b".gitattributes": FOLD, b"a.fold.wsum": b"1"}, [submodule])
    back = make.commit({**sealed, b"a.fold": (SUBMODULE, b"2" * 40)}, [gone])
    folder = make.commit({b".gitattributes": FOLD, b"a.fold/x.fold": b"1"}, [back])
    check(repo, [root, link, submodule, gone, back, folder])
    with CommitFilesReader(repo.repository) as made:
        modes = [
            entry.mode
            for commit in (root, link, submodule, back)
            if not (entry := made.files(commit).entries[b"a.fold"]).is_file or commit == root
        ]
    assert modes == [0o100644, LINK, SUBMODULE, SUBMODULE]


def test_a_filter_that_is_dropped(repo: Repo) -> None:
    make = History(repo)
    files: Files = {b".gitattributes": FOLD, b"x/a.fold": b"1", b"x/b.fold": b"1",
                    b"x/b.fold.wsum": b"1"}  # fmt: skip
    root = make.commit(files)
    dropped = make.commit({**files, b"x/.gitattributes": b"*.fold -filter\n"}, [root])
    unsealed = {path: content for path, content in files.items() if path != b"x/b.fold.wsum"}
    both = make.commit({**unsealed, b".gitattributes": b""}, [root])
    check(repo, [root, dropped, both])
    with CommitFilesReader(repo.repository) as made:
        assert made.files(root).filtered == {b"x/a.fold", b"x/b.fold"}
        assert made.files(dropped).filtered == frozenset()
        assert b"x/a.fold" not in made.files(dropped).entries
        assert b"x/b.fold" in made.files(dropped).entries
        assert set(made.files(both).entries) == {b".gitattributes"}


def test_a_ledger_for_a_file_that_nothing_filters(repo: Repo) -> None:
    make = History(repo)
    root = make.commit({b"a": b"1", b"b": b"1"})
    sealed = make.commit({b"a": b"1", b"b": b"1", b"a.wsum": b"1"}, [root])
    unsealed = make.commit({b"a": b"1", b"b": b"1"}, [sealed])
    after = make.commit({b"a": b"1", b"b": b"2"}, [unsealed])
    check(repo, [root, sealed, unsealed, after])
    assert set(of(repo, sealed)) == {b"a", b"a.wsum"}
    assert set(of(repo, unsealed)) == set()
    assert set(of(repo, after)) == set()


def test_a_ledger_of_a_ledger_that_goes(repo: Repo) -> None:
    make = History(repo)
    files: Files = {b"a.wsum": b"1", b".wtxt/signers": b"1", b"plain": b"1"}
    sealed = {f"{path.decode()}.wsum".encode(): b"1" for path in files}
    root = make.commit({**files, **sealed})
    after = make.commit(files, [root])
    last = make.commit({**files, b"other": b"2"}, [after])
    check(repo, [root, after, last])
    assert set(of(repo, after)) == {b"a.wsum", b".wtxt/signers"}
    assert set(of(repo, last)) == {b"a.wsum", b".wtxt/signers"}


def test_gitattributes_behind_a_link_say_nothing(repo: Repo) -> None:
    make = History(repo)
    root = make.commit({b".gitattributes": (LINK, b"*.fold filter=wtxt"), b"a.fold": b"1"})
    after = make.commit({b".gitattributes": (EXECUTABLE, FOLD), b"a.fold": b"1"}, [root])
    check(repo, [root, after])
    with CommitFilesReader(repo.repository) as made:
        assert made.files(root).filtered == frozenset()
        assert made.files(root).entries[b".gitattributes"].mode == LINK
        assert made.files(after).filtered == {b"a.fold"}


def test_a_bare_repository_and_a_linked_worktree(repo: Repo) -> None:
    make = History(repo)
    tip = make.commit({b".gitattributes": FOLD, b"a.fold": b"1"}, [make.commit({b"a": b"1"})])
    repo.git("update-ref", "refs/heads/main", tip)
    repo.git("worktree", "add", "-q", "--detach", "../linked", "main")
    repo.git("clone", "-q", "--bare", ".", "../bare")
    for name in ("linked", "bare"):
        assert of(Repo(repo.path.parent / name), tip) == of(repo, tip)


@pytest.mark.slow
def test_few_processes_for_many_commits(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    make = History(repo)
    files: dict[bytes, bytes | tuple[int, bytes]] = {b".gitattributes": FOLD, b"plain": b"1"}
    commits: list[str] = []
    for i in range(40):
        files[b"%d.fold" % (i % 4)] = b"%d" % i
        files[b"%d.fold.wsum" % (i % 4)] = b"%d" % i
        side = [make.commit({**files, b"side.fold": b"%d" % i}, commits[-1:])] if i % 5 == 4 else []
        commits.append(make.commit(files, commits[-1:] + side))
    repository = repo.repository
    started: list[object] = []

    class Counted(subprocess.Popen[bytes]):
        def __init__(self, arguments: list[str], **options: Any) -> None:
            started.append(arguments)
            super().__init__(arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", Counted)
    walked = history.commits(repository, [commits[-1]], first_parent=True)
    with CommitFilesReader(repository) as made:
        for commit in walked:
            made.files(commit.oid)
    assert len(walked) == 40
    assert len(started) <= 12, started


def test_what_is_no_commit(repo: Repo) -> None:
    make = History(repo)
    tree = make.tree({b"a": b"1"})
    with CommitFilesReader(repo.repository) as made:
        for oid in (tree, "1" * 40, "HEAD"):
            with pytest.raises(EnvironmentFailure):
                made.files(oid)
        good = make.commit({b"a.wsum": b"1"})
        assert set(made.files(good).entries) == {b"a.wsum"}
        # A commit whose tree is not there.
        text = repo.git("cat-file", "commit", good).replace(
            repo.git("rev-parse", good + "^{tree}").strip(), b"2" * 40
        )
        broken = repo.git("hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=text)
        with pytest.raises(EnvironmentFailure):
            made.files(broken.decode().strip())
        assert set(made.files(good).entries) == {b"a.wsum"}


@pytest.mark.parametrize("first", [b"1", b"2"])
def test_a_tree_that_names_a_path_twice(repo: Repo, first: bytes) -> None:
    make = History(repo)
    base = make.commit({b"a.wsum": b"1"})
    second = b"2" if first == b"1" else b"1"
    entries = b"".join(
        b"100644 a.wsum\0" + bytes.fromhex(make.blob(content).decode())
        for content in (first, second)
    )
    written = repo.git("hash-object", "-t", "tree", "-w", "--stdin", "--literally", stdin=entries)
    twice = make.commit(written.decode().strip(), [base])
    with (
        CommitFilesReader(repo.repository) as made,
        pytest.raises(EnvironmentFailure, match="twice"),
    ):
        made.files(twice)
    alone = make.commit(written.decode().strip())
    with (
        CommitFilesReader(repo.repository) as made,
        pytest.raises(EnvironmentFailure, match="twice"),
    ):
        made.files(alone)


def test_commits_that_share_nothing_relevant_share_a_snapshot(repo: Repo) -> None:
    make = History(repo)
    root = make.commit({b".gitattributes": FOLD, b"a.fold": b"1"})
    files: Files = {b".gitattributes": FOLD, b"a.fold": b"1", b"readme": os.urandom(9)}
    after = make.commit(files, [root])
    with CommitFilesReader(repo.repository) as made:
        assert made.files(after) is made.files(root)
