"""The data of detached texts goes where git sends the texts, and comes from where they are from."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.e2e.runner import ROOT
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

    def test_to_a_second_url(self, own: Repo, up: Path, tmp_path: Path) -> None:
        """A remote with two URLs is pushed to both, and fetched from the first."""
        other = made("other.git", tmp_path)
        own.git("remote", "set-url", "--add", "origin", str(other))
        content = changed(own, 1)
        own.git("push", "-q", "origin", "main")
        for place in (up, other):
            assert checked_out(place, f"clone of {place.name}", tmp_path) == content
        later = changed(own, 2)
        own.git("push", "-q", "--no-verify", "origin", "main")
        own.wtxtgit("push", "origin")
        for place in (up, other):
            assert checked_out(place, f"later clone of {place.name}", tmp_path) == later

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

    def test_of_the_pre_commit_framework(self, own: Repo, tmp_path: Path) -> None:
        """It reads what git says, and tells of it in the environment."""
        other = made("other.git", tmp_path)
        told = {"LOCAL_BRANCH": "refs/heads/main", "REMOTE_BRANCH": "refs/heads/main"}
        told |= {"REMOTE_NAME": str(other), "REMOTE_URL": str(other)}
        env = {f"PRE_COMMIT_{name}": value for name, value in told.items()}
        own.wtxtgit("hook", "pre-push", env={**env, "PRE_COMMIT": "1"})
        assert packs(other)

    def test_of_a_bare_repository(self, own: Repo, tmp_path: Path) -> None:
        run.git("clone", "-q", "--bare", str(own.path), str(tmp_path / "bare.git"))
        bare = Repo(tmp_path / "bare.git")
        line = f"refs/heads/main {own.git('rev-parse', 'main').decode().strip()} refs/heads/main "
        other = str(made("other.git", tmp_path))
        push = ("hook", "pre-push", other, other)
        stdin = f"{line}{'0' * 40}\n".encode()
        said = bare.wtxtgit(*push, stdin=stdin, ok=(5,)).stderr.decode()
        assert "hint: whoever committed it has to run wtxtgit push" in said
        # The remote of the clone has no data, and another one does.
        bare.git("remote", "add", "up", own.git("remote", "get-url", "origin").decode().strip())
        bare.wtxtgit(*push, stdin=stdin)
        assert packs(Path(other))

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


class TestWhatIsNotHere:
    """A clone fetches the data that it checks out, and pushes all that another remote lacks."""

    @pytest.fixture
    def clone(self, own: Repo, up: Path, tmp_path: Path) -> Repo:
        """A clone of two versions, with the data of the second alone."""
        another = np.random.default_rng(7).standard_normal(20_000).astype(np.float32).tobytes()
        own.write(NAME, model()[: -len(another)] + another)
        own.add(NAME)
        own.commit("another")
        own.git("push", "-q", "origin", "main")
        run.git("clone", "-q", str(up), str(tmp_path / "clone"))
        return hooked(Repo(tmp_path / "clone"))

    def test_it_is_fetched_for_a_push(self, clone: Repo, tmp_path: Path) -> None:
        other = made("other.git", tmp_path)
        clone.git("push", "-q", str(other), "main")
        run.git("branch", "old", "main~1", cwd=other)
        assert checked_out(other, "far", tmp_path, "-b", "old") == model()

    def test_a_store_that_was_set_later(self, clone: Repo, tmp_path: Path) -> None:
        clone.wtxtgit("store", "use", (tmp_path / "store").as_uri())
        changed(clone, 2)
        clone.git("push", "-q", "origin", "main")
        shutil.rmtree(clone.path / ".git/wtxt/store")
        clone.git("checkout", "-q", "main~2")
        assert (clone.path / NAME).read_bytes() == model()

    def test_what_no_remote_has_any_more(self, clone: Repo, up: Path, tmp_path: Path) -> None:
        """It stops no push of later commits to a store that was set later, but one of its own."""
        for name in packs(up):
            run.git("update-ref", "-d", f"refs/wtxt/store/{name}", cwd=up)
        other = made("other.git", tmp_path)
        said = clone.run("git", "push", "-q", str(other), "main", ok=(1,)).stderr.decode()
        assert f"{NAME}: 2 chunks of its data missing both here and at git+" in said
        clone.wtxtgit("store", "use", (tmp_path / "store").as_uri())
        clone.git("commit", "-q", "--allow-empty", "-m", "another")
        clone.git("push", "-q", "origin", "main")

    def test_a_merge_of_a_fork_that_was_not_checked_out(
        self, clone: Repo, own: Repo, up: Path, tmp_path: Path
    ) -> None:
        fork = tmp_path / "fork.git"
        shutil.copytree(up, fork)
        changed(own, 3)
        own.git("push", "-q", str(fork), "main:pr")
        clone.git("remote", "add", "con", str(fork))
        clone.git("fetch", "-q", "con")
        clone.git("push", "-q", "origin", "con/pr:refs/heads/main")
        assert checked_out(up, "merged", tmp_path) == model(3)


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


class TestMergesOnAForge:
    """A forge merges a fork's branch: the main repository gets its texts, and no data."""

    @pytest.fixture
    def merged(self, own: Repo, up: Path, tmp_path: Path) -> Repo:
        fork = tmp_path / "fork.git"
        shutil.copytree(up, fork)
        own.git("config", "wtxtgit.fetch", "false")
        run.git("clone", "-q", str(up), str(tmp_path / "contributor"))
        theirs = hooked(Repo(tmp_path / "contributor"))
        changed(theirs, 1)
        theirs.git("push", "-q", str(fork), "main:pr")
        run.git("fetch", "-q", str(fork), "pr:main", cwd=up)
        own.git("remote", "add", "con", str(fork))
        own.git("fetch", "-q", "--multiple", "con", "origin")
        own.git("checkout", "-q", "-B", "main", "--track", "origin/main")
        return own

    def mended(self, merged: Repo, hint: str, up: Path, tmp_path: Path) -> None:
        """Follow a hint; then clones of the main repository have all data."""
        merged.run("sh", "-c", hint.replace("wtxtgit ", f"{WTXTGIT} "))
        assert checked_out(up, "clone", tmp_path) == model(1)

    def test_a_fetch_tells(self, merged: Repo, up: Path, tmp_path: Path) -> None:
        said = merged.wtxtgit("fetch").stderr.decode()
        assert "git+origin has the commit, but not all of its data, which another" in said
        self.mended(merged, said.partition("hint: ")[2], up, tmp_path)
        assert merged.wtxtgit("fetch").stderr == b""

    @pytest.mark.parametrize("fetched", [False, True])
    def test_doctor_tells(self, merged: Repo, up: Path, tmp_path: Path, fetched: bool) -> None:
        assert "data" not in self.found(merged), "nothing is asked"
        merged.git("config", "--unset", "wtxtgit.fetch")
        if fetched:
            merged.wtxtgit("fetch")
        told = self.found(merged)["data"]
        assert told["level"] == "warn"
        assert told["message"] == (
            f"git+origin lacks 1 chunk that origin/main needs, git+con has: {NAME}"
        )
        assert told["fix"] == "wtxtgit push origin origin/main"
        self.mended(merged, told["fix"], up, tmp_path)
        assert self.found(merged)["data"]["message"] == "git+origin has the data of origin/main"
        shutil.rmtree(up)
        assert self.found(merged)["data"]["message"].startswith("not known: git+origin: ")

    def test_the_workflow_sends_it(self, merged: Repo, up: Path, tmp_path: Path) -> None:
        workflow = yaml.safe_load((ROOT / "docs/ci/github-data.yml").read_text())
        *_, step = workflow["jobs"]["send"]["steps"]
        run.git("clone", "-q", "-c", "wtxtgit.fetch=true", str(up), str(tmp_path / "job"))
        job = Repo(tmp_path / "job")
        shutil.rmtree(job.path / ".git/wtxt", ignore_errors=True)
        script = step["run"].replace("wtxtgit ", f"{WTXTGIT} ")
        job.run("sh", "-ec", script, env={"FORK": str(tmp_path / "fork.git")})
        assert checked_out(up, "clone", tmp_path) == model(1)

    def found(self, repo: Repo) -> dict[str, dict[str, str]]:
        said = json.loads(repo.wtxtgit("doctor", "--json", ok=(0, 1)).stdout)
        return {check["name"]: check for check in said["checks"]}
