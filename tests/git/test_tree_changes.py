"""Renames between trees."""

from __future__ import annotations

import pytest

from tests.git.histories import History
from tests.kit import Repo
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import history
from wtxtgit.git.trees import ChosenPaths, TreeReader, renames

LINES = [b"line %d\n" % n for n in range(100)]


def tree(repo: Repo) -> str:
    repo.git("add", "--all")
    return repo.git("write-tree").decode().strip()


def test_by_content_the_same_or_similar(repo: Repo) -> None:
    strange = b":(top)*\n\xff"
    repo.write("a", b"".join(LINES))
    repo.write("b", b"".join(reversed(LINES)) * 2)
    repo.write("c", b"another")
    repo.write("untouched", b"u" * 500)
    before = tree(repo)
    repo.git("mv", "a", strange)
    repo.git("mv", "b", "moved")
    repo.write("moved", b"".join(reversed(LINES)) * 2 + b"more\n")
    (repo.path / "c").unlink()
    repo.write("d", b"nothing like it at all")
    after = tree(repo)
    paths = [b"a", b"b", b"c", b"d", strange, b"moved"]
    assert renames(repo.repository, before, after, paths) == {strange: b"a", b"moved": b"b"}
    assert renames(repo.repository, before, after, [b"b", b"moved"]) == {b"moved": b"b"}
    assert renames(repo.repository, before, after, [b"c", b"d"]) == {}


def test_paths_that_git_can_not_be_started_with(repo: Repo) -> None:
    make = History(repo)
    long = b"x" * 200_000
    before, after = make.tree({b"a": b"1"}), make.tree({b"a": b"2", long: b"1"})
    assert renames(repo.repository, before, after, [b"a", long]) is None
    many = [b"%04d" % n * 1000 for n in range(600)]
    assert renames(repo.repository, before, after, many) is None
    for paths, changed in (([long], [long]), ([*many, b"a"], [b"a"])):
        with TreeReader(repo.repository) as trees:
            found = trees.between(before, after, ChosenPaths.of(paths))
            assert [change.path for change in found] == changed
    for paths in ([b"a", long, b"no"], [b"a", long, *many, b"a"]):
        listed = history.listing(repo.repository, after, *paths)
        assert [entry.path for entry in listed] == [b"a", long]


def test_trees_by_their_ids_alone(repo: Repo) -> None:
    with pytest.raises(EnvironmentFailure, match="not an object id"):
        renames(repo.repository, "HEAD", "--help", [b"a"])
