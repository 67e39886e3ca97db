"""The data of detached texts goes where git sends the texts, and comes from where they are from."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.e2e.test_detached import ATTRIBUTES, NAME
from tests.e2e.test_payload_remotes import model, packs
from tests.kit import Repo
from tests.kit.starts import WTXTGIT
from wtxtgit.git import run

pytestmark = pytest.mark.slow


def made(name: str, folder: Path) -> Path:
    place = folder / name
    run.git("init", "-q", "--bare", "--initial-branch=main", str(place))
    return place


def hooked(repo: Repo) -> Repo:
    hook = repo.path / ".git/hooks/pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\nexec {WTXTGIT} hook pre-push "$@"\n')
    hook.chmod(0o755)
    return repo


def changed(repo: Repo, seed: int) -> bytes:
    """Commit another version of the checkpoint."""
    content = model(seed)
    repo.write(NAME, content)
    repo.add()
    repo.commit(f"seed {seed}")
    return content


def checked_out(place: Path | str, name: str, folder: Path, *options: str) -> bytes:
    """The checkpoint in a fresh clone that fetches its data."""
    run.git("clone", "-q", *options, str(place), str(folder / name))
    return (folder / name / NAME).read_bytes()


@pytest.fixture
def up(tmp_path: Path) -> Path:
    return made("up.git", tmp_path)


@pytest.fixture
def own(repo: Repo, driver: None, up: Path) -> Repo:
    """A repository whose commits, and their data, the remote `origin` has."""
    repo.git("symbolic-ref", "HEAD", "refs/heads/main")
    repo.git("remote", "add", "origin", "../up.git")
    repo.write(".gitattributes", ATTRIBUTES)
    changed(repo, 0)
    hooked(repo).git("push", "-q", "origin", "main")
    return repo


class TestPush:
    """Each to a repository without any data, of commits that `origin` has."""

    @pytest.mark.parametrize("spelled", ["../other.git", "{}", "file://{}"])
    def test_to_a_path_or_url(self, own: Repo, tmp_path: Path, spelled: str) -> None:
        other = made("other.git", tmp_path)
        (own.path / "sub").mkdir()
        run.git("push", "-q", spelled.format(other), "main", cwd=own.path / "sub")
        assert checked_out(other, "clone", tmp_path) == model()
        # What is there already does not go again.
        sent = packs(other)
        own.git("push", "-q", spelled.format(other), "main:again")
        changed(own, 1)
        own.git("push", "-q", spelled.format(other), "main")
        added = [size for name, size in packs(other).items() if name not in sent]
        assert len(added) == 1
        assert added[0] < len(model()) / 10
        assert checked_out(other, "later", tmp_path) == model(1)

    def test_to_push_urls(self, own: Repo, tmp_path: Path) -> None:
        others = [made(f"{name}.git", tmp_path) for name in ("one", "two")]
        for other in others:
            own.git("config", "--add", "remote.origin.pushUrl", str(other))
        content = changed(own, 1)
        own.git("push", "-q", "origin", "main")
        for other in others:
            assert checked_out(other, f"clone of {other.name}", tmp_path) == content

    @pytest.mark.parametrize("key", ["insteadOf", "pushInsteadOf"])
    def test_to_a_url_that_git_replaces(self, own: Repo, tmp_path: Path, key: str) -> None:
        other = made("other.git", tmp_path)
        own.git("config", f"url.{tmp_path}/.{key}", "host:")
        # Would replace it once more if git were told of the result.
        own.git("config", f"url.nowhere:.{key}", str(tmp_path)[:-1])
        own.git("remote", "add", "named", "host:other.git")
        own.git("push", "-q", "named", "main")
        assert checked_out(other, "clone", tmp_path) == model()

    @pytest.mark.parametrize("setting", ["remote.pushDefault", "branch.main.pushRemote"])
    @pytest.mark.parametrize("command", ["git", "wtxtgit"])
    def test_to_what_git_takes_on_its_own(
        self, own: Repo, tmp_path: Path, setting: str, command: str
    ) -> None:
        other = made("other.git", tmp_path)
        own.git("remote", "add", "fork", str(other))
        own.git("config", setting, "fork")
        own.git("config", "push.default", "current")
        if command == "git":
            own.git("push", "-q")
        else:
            own.git("push", "-q", "--no-verify")
            assert not packs(other)
            own.wtxtgit("push")
        assert checked_out(other, "clone", tmp_path) == model()

    def test_of_the_command_to_a_url(self, own: Repo, tmp_path: Path) -> None:
        other = made("other.git", tmp_path)
        own.git("push", "-q", "--no-verify", str(other), "main")
        own.wtxtgit("push", str(other), "main")
        assert checked_out(other, "clone", tmp_path) == model()

    def test_to_a_url_with_a_password(self, own: Repo, tmp_path: Path) -> None:
        """It is in no argument of a process, and in no message."""
        made("other.git", tmp_path)
        address = "https:" + "//user:secret@localhost:1/other.git"
        told = tmp_path / "told"
        git = tmp_path / "bin/git"
        git.parent.mkdir()
        git.write_text(f'#!/bin/sh\necho "$@" >> {told}\nexec {run.executable()} "$@"\n')
        git.chmod(0o755)
        line = f"refs/heads/main {own.git('rev-parse', 'main').decode().strip()} refs/heads/x "
        said = own.wtxtgit(
            "hook", "pre-push", address, address, stdin=f"{line}{'0' * 40}\n".encode(), ok=(5,),
            env={"PATH": f"{git.parent}{os.pathsep}{os.environ['PATH']}"},
        )  # fmt: skip
        assert b"secret" not in said.stderr
        assert "ls-remote" in told.read_text()
        assert "secret" not in told.read_text()

    def test_into_itself(self, own: Repo) -> None:
        own.git("push", "-q", ".", "main:other")
        assert not packs(own.path)

    def test_of_a_branch_that_the_remote_no_longer_has(self, own: Repo, up: Path) -> None:
        """What remote-tracking branches say may be old: the remote is asked."""
        for ref in run.git("for-each-ref", "--format=%(refname)", cwd=up).decode().split():
            run.git("update-ref", "-d", ref, cwd=up)
        own.git("push", "-q", "origin", "main:new")
        assert packs(up)

    def test_to_a_store_that_was_set_later(self, own: Repo, tmp_path: Path) -> None:
        """What the git remote has says nothing of another store."""
        folder = tmp_path / "store"
        own.wtxtgit("store", "use", folder.as_uri())
        own.git("commit", "-q", "--allow-empty", "-m", "another")
        own.git("push", "-q", "origin", "main")
        shutil.rmtree(own.path / ".git/wtxt/store")
        (own.path / NAME).unlink()
        own.git("checkout", "--", NAME)
        assert (own.path / NAME).read_bytes() == model()


def test_a_lock_that_a_killed_git_left_at_the_remote(own: Repo, up: Path, tmp_path: Path) -> None:
    other = made("other.git", tmp_path)
    before = packs(up)
    changed(own, 1)
    own.git("remote", "add", "other", str(other))
    own.git("fetch", "-q", "origin", "main:refs/remotes/other/main")
    run.git("fetch", "-q", str(up), "refs/*:refs/*", cwd=other)
    own.git("push", "-q", "other", "main")
    (name,) = packs(other).keys() - before.keys()
    lock = up / f"refs/wtxt/store/{name}.lock"
    lock.touch()
    said = own.run("git", "push", "-q", "origin", "main", ok=(1,)).stderr.decode()
    assert f"{name}.lock is there: a git that was killed at the remote has left it" in said
    assert "hint: once no git is at work at the remote, remove that file there" in said
    lock.unlink()
    own.git("push", "-q", "origin", "main")
    assert packs(up) == packs(other)


class TestMirrors:
    """Git deletes what the remote alone has: refs of packs, too."""

    @pytest.fixture
    def pushed(self, own: Repo) -> Repo:
        own.git("branch", "gone")
        own.git("push", "-q", "origin", "gone")
        own.git("branch", "-D", "gone")
        return own

    @pytest.mark.parametrize(
        "arguments",
        [
            ("--mirror", "origin"),
            ("--prune", "origin", "refs/*:refs/*"),
            ("origin",),
            ("-f", "--mir", "../up.git"),
        ],
    )
    @pytest.mark.true_start
    def test_a_mirror_keeps_the_data(
        self, pushed: Repo, up: Path, arguments: tuple[str, ...]
    ) -> None:
        if arguments == ("origin",):
            pushed.git("config", "remote.origin.mirror", "true")
        before = packs(up)
        said = pushed.run("git", "push", "-q", *arguments, ok=(1,)).stderr.decode()
        assert "refs of payload would be deleted at " in said
        (hint,) = [line for line in said.splitlines() if "hint: " in line]
        command = hint.partition("hint: ")[2].removesuffix(" mirrors all other refs")
        pushed.run("sh", "-c", command)
        assert packs(up) == before
        assert "refs/heads/gone" not in run.git("for-each-ref", cwd=up).decode()

    def test_a_ref_of_a_pack(self, own: Repo, up: Path) -> None:
        (name,) = packs(up)
        own.run("git", "push", "-q", "origin", f":refs/wtxt/store/{name}", ok=(1,))
        assert packs(up)


class TestForks:
    @pytest.fixture
    def fork(self, own: Repo, up: Path, tmp_path: Path) -> Path:
        """A fork with a branch `pr`, whose last commit's data only the fork has."""
        place = tmp_path / "fork.git"
        shutil.copytree(up, place)
        run.git("clone", "-q", str(up), str(tmp_path / "contributor"))
        theirs = hooked(Repo(tmp_path / "contributor"))
        theirs.git("remote", "add", "fork", str(place))
        theirs.git("checkout", "-q", "-b", "pr")
        changed(theirs, 1)
        theirs.git("push", "-q", "fork", "pr")
        return place

    def test_a_checkout(self, own: Repo, fork: Path) -> None:
        own.git("remote", "add", "con", str(fork))
        own.git("fetch", "-q", "con")
        assert own.run("git", "checkout", "-q", "pr").stderr == b""
        assert (own.path / NAME).read_bytes() == model(1)

    @pytest.mark.parametrize("words", [[], ["con/pr"]])
    def test_a_fetch(self, own: Repo, fork: Path, words: list[str]) -> None:
        """Of the index, or of a commit; also where the main remote can't be reached."""
        own.git("config", "wtxtgit.fetch", "false")
        own.git("remote", "add", "con", str(fork))
        own.git("fetch", "-q", "con")
        if not words:
            own.git("checkout", "-q", "pr")
        foreseen = own.wtxtgit("fetch", "--dry-run", *words).stdout
        assert foreseen.startswith(b"1 chunk would be fetched from git+con")
        own.git("remote", "set-url", "origin", "../nowhere.git")
        own.wtxtgit("fetch", *words)
        own.git("checkout", "-q", "-f", "con/pr")
        own.wtxtgit("checkout")
        assert (own.path / NAME).read_bytes() == model(1)

    def test_a_branch_that_gh_made(self, own: Repo, fork: Path) -> None:
        """The branch's remote is a URL."""
        own.git("fetch", "-q", str(fork), "pr:pr")
        own.git("config", "branch.pr.remote", str(fork))
        own.git("config", "wtxtgit.fetch", "false")
        own.git("checkout", "-q", "pr")
        own.wtxtgit("fetch")
        assert (own.path / NAME).read_bytes() == model(1)

    def test_what_nobody_has(self, own: Repo, fork: Path) -> None:
        shutil.rmtree(fork / "refs/wtxt", ignore_errors=True)
        for ref in packs(fork):
            run.git("update-ref", "-d", f"refs/wtxt/store/{ref}", cwd=fork)
        own.git("remote", "add", "con", str(fork))
        own.git("remote", "add", "gone", "../nowhere.git")
        own.git("fetch", "-q", "con")
        said = own.run("git", "checkout", "-q", "pr").stderr.decode()
        assert "1 chunk not at git+origin, git+con; git+gone: " in said
        told = own.wtxtgit("fetch", ok=(5,)).stderr.decode()
        assert f"{NAME}: 1 chunk not at git+con, git+origin" in told
        assert "error: git+gone: " in told

    def test_a_store_that_is_set_counts_alone(self, own: Repo, fork: Path) -> None:
        own.git("remote", "add", "con", str(fork))
        own.git("config", "wtxtgit.store", "git+origin")
        own.git("fetch", "-q", "con")
        own.git("checkout", "-q", "pr")
        assert b"1 chunk not at git+origin\n" in own.wtxtgit("fetch", ok=(5,)).stderr
