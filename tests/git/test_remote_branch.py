"""Blobs, trees and commits that libgit2 makes are those that git makes."""

from __future__ import annotations

import pytest

from tests.kit import Repo
from wtxtgit.git.remote_branch import RemoteBranch

DATES = {
    "GIT_AUTHOR_DATE": "1700000000 -0330",
    "GIT_COMMITTER_DATE": "1700000001 +0545",
}
FILES = {
    "a/b/gen-1.wtxt": b"WTXT\n\r\n\0",
    "a-b": b"",
    "a.c": b"before a/",
    "gen-2.wtxt": bytes(range(256)) * 1000,
}
MESSAGE = "deliver gen-1.wtxt\n\nroot: ü\n"


def by_git(repo: Repo, parent: str | None, message: str) -> str:
    """A commit of the files on top of a parent, by git's own commands."""
    env = {**DATES, "GIT_INDEX_FILE": str(repo.path / ".git/other-index")}
    repo.git("read-tree", parent or "--empty", env=env)
    for path, content in FILES.items():
        oid = repo.git("hash-object", "-w", "--stdin", stdin=content).decode().strip()
        repo.git("update-index", "--add", "--cacheinfo", f"100644,{oid},{path}", env=env)
    tree = repo.git("write-tree", env=env).decode().strip()
    parents = ["-p", parent] if parent else []
    commit = repo.git("commit-tree", *parents, "-F", "-", tree, stdin=message.encode(), env=env)
    return commit.decode().strip()


@pytest.mark.parametrize("has_parent", [False, True])
def test_a_commit_is_the_one_that_git_makes(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, has_parent: bool
) -> None:
    for name, value in DATES.items():
        monkeypatch.setenv(name, value)
    repo.git("config", "user.name", "Ä. Name, Jr")
    repo.git("config", "core.autocrlf", "true")
    repo.write("a.b", "kept\n")
    repo.write("gen-2.wtxt", "is replaced\n")
    repo.add()
    parent = repo.commit() if has_parent else None
    branch = RemoteBranch(repo.repository, "origin", "snapshots")
    blobs = {path: branch.blob([content[:3], content[3:]]) for path, content in FILES.items()}
    assert branch.commit(parent, blobs, MESSAGE) == by_git(repo, parent, MESSAGE)
    repo.git("fsck", "--strict")
