"""A branch of a git remote as a target, with real bare repositories."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.cluster.stores import HTTP
from tests.kit import Repo
from tests.remotes.behaviour import SECRET, TEXT, TargetTests, fetched, file, names, refused
from wtxtgit.errors import EnvironmentFailure, RemoteRefused, RemoteUnavailable, UsageError
from wtxtgit.git.remote_branch import RemoteBranch
from wtxtgit.remotes.git_target import Git

HTTPS = HTTP.replace("p:", "ps:")


@pytest.fixture
def bare(repo: Repo) -> Repo:
    """A bare repository, the remote `origin` of `repo`, which has a commit that it pushed."""
    made = Repo(repo.path.parent / "bare.git")
    repo.git("init", "-q", "--bare", str(made.path))
    repo.git("remote", "add", "origin", str(made.path))
    repo.write("file", "mine\n")
    repo.add()
    repo.commit("mine")
    repo.git("push", "-q", "origin", "main")
    return made


@pytest.fixture
def target(repo: Repo, bare: Repo) -> Git:
    return Git("origin", "snapshots", "runs/1", repository=repo.path)


@pytest.mark.slow
class TestABranch(TargetTests):
    @pytest.fixture
    def target(self, repo: Repo, bare: Repo) -> Git:
        return Git("origin", "snapshots", "runs/1", repository=repo.path)


def log(bare: Repo, what: str = "%s") -> list[str]:
    return bare.git("log", f"--format={what}", "snapshots").decode().splitlines()


def test_one_commit_with_all_files(target: Git, bare: Repo, repo: Repo) -> None:
    repo.git("config", "user.name", "Ä Name")
    target.put([file("gen-1.wtxt"), file("gen-1.wtxt.wsum")], about={"gen": "1", "root": "a\nb"})
    target.put([file("gen-2.wtxt", b"2")])
    assert log(bare) == ["deliver gen-2.wtxt", "deliver gen-1.wtxt and 1 more"]
    told = bare.git("log", "-1", "--format=%an <%ae> %cn%n%b", "snapshots~").decode().split("\n")
    assert told[:3] == ["Ä Name <author@example.com> Ä Name", "gen: 1", "root: a b"]
    assert bare.git("cat-file", "blob", "snapshots:runs/1/gen-1.wtxt") == TEXT
    listed = bare.git("ls-tree", "-r", "--name-only", "snapshots").decode().split()
    assert listed == [
        f"runs/1/{name}"
        for name in (".gitattributes", "gen-1.wtxt", "gen-1.wtxt.wsum", "gen-2.wtxt")
    ]
    bare.git("fsck", "--strict", "--full")


def test_the_users_repository_is_left_alone(target: Git, repo: Repo, home: Path) -> None:
    repo.write("file", "changed\n")
    repo.write("staged", "x\n")
    repo.add("staged")
    hooks = repo.path / ".git/hooks"
    for hook in ("pre-push", "reference-transaction", "pre-commit", "post-commit"):
        script = hooks / hook
        script.write_text(f"#!/bin/sh\ntouch '{home}/ran'\nexit 1\n")
        script.chmod(0o755)
    for key, value in {
        "filter.x.clean": f"touch '{home}/ran'",
        "core.autocrlf": "true",
        "fetch.prune": "true",
        "push.followTags": "true",
        "commit.gpgSign": "true",
    }.items():
        repo.git("config", key, value)
    repo.write(".git/info/attributes", "* filter=x\n")
    before = [repo.status(), (repo.path / ".git/index").read_bytes(), refs(repo), head(repo)]
    # Git's own status asks the filter, if the index is as young as the file.
    (home / "ran").unlink(missing_ok=True)
    target.put([file("x", b"a\r\nb\n")])
    other = Git("origin", "snapshots", "runs/1", repository=repo.path)
    assert fetched(other, "x", b"a\r\nb\n") == b"a\r\nb\n"
    assert not (home / "ran").exists()
    assert before == [
        repo.status(),
        (repo.path / ".git/index").read_bytes(),
        refs(repo),
        head(repo),
    ]
    assert not (repo.path / ".git/FETCH_HEAD").exists()


def refs(repo: Repo) -> list[bytes]:
    lines = repo.git("for-each-ref").splitlines()
    # git-push(1) itself notes what it pushed.
    ours = (b"\trefs/wtxtgit/targets/", b"\trefs/remotes/origin/snapshots")
    return [line for line in lines if not any(name in line for name in ours)]


def head(repo: Repo) -> bytes:
    return (repo.path / ".git/HEAD").read_bytes()


def test_a_branch_that_has_files(bare: Repo, repo: Repo) -> None:
    at_top = Git("origin", "main", repository=repo.path)
    assert names(at_top) == ["file"]
    at_top.put([file("x")])
    # Its attributes are its users' business.
    assert bare.git("ls-tree", "--name-only", "main").split() == [b"file", b"x"]
    for name in ("x/below", "file/a/b"):
        with pytest.raises(RemoteRefused, match=f"already has {name}, with"):
            at_top.put([file(name)], replace=True)
    with pytest.raises(RemoteRefused, match="a file is in the place of the folder"):
        Git("origin", "main", "file", repository=repo.path).put([file("y")])


def test_line_ends_survive_a_checkout(target: Git, bare: Repo, home: Path) -> None:
    target.put([file("x", b"a\nb\n")])
    bare.git("clone", "-q", "-c", "core.autocrlf=true", "-b", "snapshots", ".", str(home / "c"))
    assert (home / "c/runs/1/x").read_bytes() == b"a\nb\n"


def test_somebody_else_pushes(target: Git, bare: Repo, repo: Repo) -> None:
    target.put([file("a")])
    clone = bare.clone("clone", "-b", "snapshots")
    clone.write("runs/1/b", b"theirs")
    clone.add()
    clone.commit("theirs")
    clone.git("push", "-q", "origin", "snapshots")
    # What this one saw last is out of date.
    with pytest.raises(RemoteRefused, match="already has b, with different content"):
        target.put([file("b", b"mine"), file("c")])
    assert list(target.put([file("b", b"theirs"), file("c")])) == ["c"]
    assert log(bare) == ["deliver b and 1 more", "theirs", "deliver a"]
    assert names(target) == ["a", "b", "c"]


@pytest.mark.slow
def test_two_writers_at_once(bare: Repo, repo: Repo) -> None:
    clone = bare.clone("clone")
    failures: list[Exception] = []

    def write(place: Path, number: int) -> None:
        try:
            target = Git("origin", "snapshots", repository=place)
            for gen in range(3):
                assert list(target.put([file(f"w{number}-{gen}")])) == [f"w{number}-{gen}"]
        except Exception as error:  # noqa: BLE001 - told by the test
            failures.append(error)

    # Two in one repository, one in another.
    writers = [
        threading.Thread(target=write, args=(place, number))
        for number, place in enumerate((repo.path, repo.path, clone.path))
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert failures == []
    assert names(Git("origin", "snapshots", repository=repo.path)) == [
        f"w{number}-{gen}" for number in range(3) for gen in range(3)
    ]
    assert len(log(bare)) == 9
    bare.git("fsck", "--strict", "--full")


@pytest.mark.parametrize("when", ["before the push", "after the push"])
def test_killed_around_the_push(target: Git, bare: Repo, repo: Repo, when: str) -> None:
    target.put([file("a")])

    def die(*_: object) -> bool:
        os.kill(os.getpid(), signal.SIGKILL)
        return False

    child = os.fork()
    if not child:
        if when == "before the push":
            RemoteBranch.push = die  # type: ignore[method-assign]
        else:
            RemoteBranch._set_local_ref = die  # type: ignore[assignment,method-assign]
        target.put([file("b"), file("c")])
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    expected = ["b", "c"] if when == "before the push" else []
    assert list(target.put([file("b"), file("c")])) == expected
    assert log(bare) == ["deliver b and 1 more", "deliver a"]
    assert names(target) == ["a", "b", "c"]
    repo.git("fsck", "--strict")


def test_a_branch_that_was_removed(target: Git, bare: Repo) -> None:
    target.put([file("a")])
    bare.git("update-ref", "-d", "refs/heads/snapshots")
    # What is not there any more is delivered again.
    assert list(target.put([file("a")])) == ["a"]
    assert names(target) == ["a"]


def test_a_hook_of_the_remote_that_refuses(target: Git, bare: Repo) -> None:
    hook = bare.path / "hooks/pre-receive"
    hook.write_text("#!/bin/sh\necho no blobs over 1 byte >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(RemoteRefused, match="pre-receive hook declined"):
        target.put([file("a")])
    hook.unlink()
    assert list(target.put([file("a")])) == ["a"]


@pytest.mark.parametrize(
    ("remote", "kind"),
    [
        ("gone", RemoteRefused),
        ("/gone/away", RemoteRefused),
        ("git://127.0.0.1:1/x", RemoteUnavailable),
        ("ext::false", RemoteRefused),
    ],
)
def test_remotes_that_are_not_there(
    repo: Repo, remote: str, kind: type[EnvironmentFailure]
) -> None:
    target = Git(remote, "b", repository=repo.path)
    for use in (lambda: target.put([file("a")]), target.list):
        with pytest.raises(EnvironmentFailure) as raised:
            use()
        assert type(raised.value) is kind, raised.value
        assert "fatal:" not in str(raised.value)
        refused(raised.value)


@pytest.mark.parametrize(
    ("remote", "branch", "path"),
    [
        (f"{HTTPS}user:{SECRET}@example.com/x", "b", ""),
        (f"{HTTPS}{SECRET}@example.com/x", "b", ""),
        ("--upload-pack=x", "b", ""),
        ("", "b", ""),
        ("origin", "", ""),
        ("origin", "a..b", ""),
        ("origin", "-b", "../x"),
        ("origin", "b", ".git"),
    ],
)
def test_what_can_not_be(repo: Repo, remote: str, branch: str, path: str) -> None:
    with pytest.raises(UsageError) as raised:
        Git(remote, branch, path, repository=repo.path)
    assert SECRET not in str(raised.value)


class TestWhatIsNoRace:
    """A ref that can't be updated for another reason than that somebody else was faster."""

    def refused(self, target: Git) -> EnvironmentFailure:
        with pytest.raises(EnvironmentFailure) as caught:
            target.put([file("gen-2.wtxt", b"2")])
        assert "others keep pushing" not in caught.value.message
        return caught.value

    def test_a_lock_that_a_killed_git_left_there(self, target: Git, bare: Repo) -> None:
        target.put([file("gen-1.wtxt")])
        lock = bare.path / "refs/heads/snapshots.lock"
        lock.touch()
        error = self.refused(target)
        assert isinstance(error, RemoteUnavailable)
        assert "refs/heads/snapshots.lock is there: a git that was killed" in error.message
        assert error.hint is not None
        assert "remove that file there" in error.hint
        lock.unlink()
        target.put([file("gen-2.wtxt", b"2")])

    def test_a_lock_that_is_held_for_a_moment(self, target: Git, bare: Repo) -> None:
        target.put([file("gen-1.wtxt")])
        lock = bare.path / "refs/heads/snapshots.lock"
        lock.touch()
        # What the remote does before it takes the lock: at the second attempt it is gone.
        hook = bare.path / "hooks/pre-receive"
        hook.write_text(f'#!/bin/sh\ntest -e seen && rm -f "{lock}"\ntouch seen\n')
        hook.chmod(0o755)
        target.put([file("gen-2.wtxt", b"2")])
        assert (bare.path / "seen").exists()

    def test_a_branch_in_the_place_of_a_folder(self, bare: Repo, repo: Repo) -> None:
        error = self.refused(Git("origin", "main/snapshots", repository=repo.path))
        assert isinstance(error, RemoteRefused)
        assert "'refs/heads/main' exists" in error.message


def test_outside_of_a_repository(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="not in a git repository"):
        Git("origin", "b", repository=tmp_path)


def test_without_a_name(
    target: Git, repo: Repo, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".gitconfig").write_text("[user]\nuseConfigOnly = true\n")
    with pytest.raises(EnvironmentFailure):
        target.put([file("a")])
