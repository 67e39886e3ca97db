from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.kit import Repo
from wtxtgit.git import locks
from wtxtgit.git.run import GitFailure, executable
from wtxtgit.setup import doctor
from wtxtgit.setup.diagnosis import Level

pytestmark = pytest.mark.slow

NAMES = (
    "index.lock",
    "HEAD.lock",
    "config.lock",
    "packed-refs.lock",
    "shallow.lock",
    "refs/heads/topic.lock",
    "logs/refs/heads/topic.lock",
    "objects/info/commit-graph.lock",
    "objects/pack/multi-pack-index.lock",
    "worktrees/linked/index.lock",
    "worktrees/linked/HEAD.lock",
)


@pytest.fixture
def linked(tracked: Repo) -> Repo:
    tracked.commit()
    tracked.git("worktree", "add", "-q", "../linked")
    return tracked


def locked(repo: Repo, name: str = "index.lock") -> Path:
    return repo.write(f".git/{name}", b"")


def found(repo: Repo) -> dict[str, bool]:
    folder = repo.path / ".git"
    return {
        str(one.path.relative_to(folder)): one.is_left_behind for one in locks.find(repo.repository)
    }


def test_locks_that_a_killed_git_left_are_removed(linked: Repo) -> None:
    for name in NAMES:
        locked(linked, name)
    assert found(linked) == dict.fromkeys(NAMES, True)
    said = linked.wtxtgit("doctor", ok=(0, 1)).stdout
    assert b"locks: wtxtgit doctor --fix" in said
    linked.wtxtgit("doctor", "--fix")
    assert found(linked) == {}
    linked.commit()


def test_files_of_other_tools_are_no_locks_of_git(linked: Repo) -> None:
    for name in ("lfs/tmp/x.lock", "annex/index.lock", "tool.lock", "wtxtgit/x.lock"):
        locked(linked, name)
    assert found(linked) == {}


def test_a_wtxtgit_that_meets_such_a_lock_says_what_helps(tracked: Repo) -> None:
    lock = locked(tracked)
    tracked.write("file", "x")
    assert b"wtxtgit doctor --fix" in tracked.wtxtgit("add", "-A", ok=(5,)).stderr
    tracked.wtxtgit("doctor", "--fix")
    assert not lock.exists()
    tracked.wtxtgit("add", "-A")


def test_a_lock_at_a_remote_is_not_told_as_one_here(tracked: Repo) -> None:
    remote = tracked.clone("remote.git", "--bare")
    remote.write("refs/heads/main.lock", b"")
    tracked.commit("new")
    with pytest.raises(GitFailure, match="cannot lock ref") as failure:
        tracked.repository.git("push", str(remote.path), "main")
    assert failure.value.hint is None


def test_a_lock_that_a_process_has_open_stays(tracked: Repo) -> None:
    lock = locked(tracked)
    with lock.open("rb") as opened, subprocess.Popen(["sleep", "600"], stdin=opened) as process:
        opened.close()
        try:
            (one,) = locks.find(tracked.repository)
            assert one.holders == (process.pid,)
            doctor.repair(tracked.repository)
            assert lock.exists()
        finally:
            process.kill()


@pytest.mark.parametrize("told", ["here", "by an option", "by a variable"])
def test_a_git_that_is_at_work_may_hold_a_lock(tracked: Repo, tmp_path: Path, told: str) -> None:
    """As `git commit` does while the message is edited: then it does not have the file open."""
    folder = str(tracked.path / ".git")
    option = [f"--git-dir={folder}"] if told == "by an option" else []
    with subprocess.Popen(
        [executable(), *option, "cat-file", "--batch"],
        cwd=tracked.path if told == "here" else tmp_path,
        env={**os.environ, **({"GIT_DIR": folder} if told == "by a variable" else {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as git:
        assert git.stdin is not None
        assert git.stdout is not None
        git.stdin.write(b"HEAD\n")
        git.stdin.flush()
        git.stdout.readline()
        lock = locked(tracked)
        assert found(tracked) == {"index.lock": False}
        checks = {one.name: one for one in doctor.repair(tracked.repository).checks}
        assert checks["locks"].level is Level.OK
        assert str(git.pid) in checks["locks"].message
        assert lock.exists()
        # One that was started long after the lock was made can't have made it.
        os.utime(lock, (time.time() - 3600,) * 2)
        assert found(tracked) == {"index.lock": True}
        git.stdin.close()


def test_a_git_in_another_repository_holds_none_here(tracked: Repo) -> None:
    other = tracked.clone("other")
    with subprocess.Popen(
        [executable(), "cat-file", "--batch"], cwd=other.path, stdin=subprocess.PIPE
    ) as git:
        locked(tracked)
        assert found(tracked) == {"index.lock": True}
        assert git.stdin is not None
        git.stdin.close()


def test_without_a_list_of_processes_nobody_can_tell(
    tracked: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_PROCESSES", tmp_path)
    lock = locked(tracked)
    checks = {one.name: one for one in doctor.repair(tracked.repository).checks}
    assert checks["locks"].level is Level.WARN
    assert checks["locks"].fix is not None
    assert checks["locks"].fix.startswith("rm -- ")
    assert lock.exists()
