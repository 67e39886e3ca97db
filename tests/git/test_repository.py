"""Where a repository is, from every place in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit import Repo
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git.repository import Repository


def found(folder: Path) -> Repository:
    return Repository.discover(folder)


def test_each_folder_has_its_prefix(repo: Repo) -> None:
    inner = repo.path / "a" / "b\nc"
    inner.mkdir(parents=True)
    git_dir = repo.path / ".git"
    assert found(repo.path) == Repository(git_dir, git_dir, repo.path, b"")
    assert found(repo.path / "a") == Repository(git_dir, git_dir, repo.path, b"a/")
    assert found(inner) == Repository(git_dir, git_dir, repo.path, b"a/b\nc/")


def test_a_folder_whose_name_has_lines_is_found(repo: Repo) -> None:
    top = repo.path / "a\n\nb"
    top.mkdir()
    repo.git("init", "-q", str(top))
    (top / "c").mkdir()
    git_dir = top / ".git"
    assert found(top / "c") == Repository(git_dir, git_dir, top, b"c/")
    assert found(git_dir) == Repository(git_dir, git_dir, None, b"")


def test_a_bare_repository_and_a_git_folder_have_no_work_tree(repo: Repo) -> None:
    bare = repo.path / "bare"
    repo.git("init", "-q", "--bare", str(bare))
    for folder, git_dir in ((bare, bare), (repo.path / ".git" / "refs", repo.path / ".git")):
        assert found(folder) == Repository(git_dir, git_dir, None, b"")


def test_a_linked_worktree_has_a_git_folder_of_its_own(repo: Repo) -> None:
    repo.write("f", "f")
    repo.add("f")
    repo.commit()
    linked = repo.path.parent / "linked"
    repo.git("worktree", "add", "-q", str(linked))
    (linked / "x").mkdir()
    common = repo.path / ".git"
    assert found(linked / "x") == Repository(common / "worktrees/linked", common, linked, b"x/")


def test_outside_there_is_none(tmp_path: Path, home: Path) -> None:
    assert Repository.find(tmp_path) is None
    with pytest.raises(EnvironmentFailure):
        found(tmp_path)
