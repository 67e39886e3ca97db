"""A push beside a prune of the remote: what it relied on is there when its refs are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.test_detached import NAME
from tests.e2e.test_payload_remotes import cloned
from tests.e2e.test_store_prune import OLD, model, use_folder
from tests.kit import Repo
from wtxtgit.git import remotes, run
from wtxtgit.git.repository import Repository
from wtxtgit.remotes.payload import store_url
from wtxtgit.remotes.payload.remote import push_commits

pytestmark = pytest.mark.slow

LONG_AGO = 1_500_000_000


def step(content: bytes, count: int) -> bytes:
    """A version that is stored as the difference from the one before, in every chunk."""
    changed = bytearray(content)
    for number in range(count):
        changed[500 + (number * 7919) % (len(changed) - 500)] ^= 1
    return bytes(changed)


@pytest.fixture(params=["git", "folder"])
def clones(request: pytest.FixtureRequest, driver: None, tmp_path: Path) -> tuple[Repo, Repo]:
    """Two clones of a git remote, whose payload is at the remote itself, or in a folder."""
    run.git("init", "-q", "--bare", "--initial-branch=main", str(tmp_path / "bare.git"))
    made: list[Repo] = []
    for name in ("one", "two"):
        repo = cloned(tmp_path / "bare.git", name, tmp_path)
        if request.param == "folder":
            use_folder(repo, tmp_path / "there")
        if not made:
            repo.wtxtgit("track", "--detached", "*.safetensors")
            commit(repo, model(1))
            repo.wtxtgit("push")
            repo.git("push", "-q", "origin", "HEAD:main")
        made.append(repo)
    one, two = made
    two.git("fetch", "-q")
    two.git("checkout", "-q", "-B", "main", "origin/main")
    return one, two


def commit(repo: Repo, content: bytes) -> None:
    repo.write(NAME, content)
    repo.git("add", "-A")
    repo.git("commit", "-qm", "version", env=OLD)


@pytest.fixture
def given_up(clones: tuple[Repo, Repo]) -> tuple[Repo, Repo]:
    """The second clone has pushed an experiment, and deleted it; the first one saw it long ago."""
    one, two = clones
    two.git("checkout", "-q", "-b", "exp")
    commit(two, model(500))
    two.wtxtgit("push")
    two.git("push", "-q", "origin", "exp")
    two.git("push", "-q", "origin", ":exp")
    one.git("fetch", "-q", "--prune")
    one.wtxtgit("store", "prune", "--remote")
    make_old(one)
    return one, two


def make_old(repo: Repo) -> None:
    """All that is at the remote now was there long ago."""
    for folder in (repo.path / ".git/wtxt/store/remotes", repo.path.parent / "there"):
        for path in folder.rglob("*.*"):
            os.utime(path, (LONG_AGO, LONG_AGO))


def prune(repo: Repo) -> None:
    repo.wtxtgit("store", "prune", "--remote", "--force")


def arrives(repo: Repo, content: bytes) -> bool:
    """Whether a new clone gets a version of main."""
    fresh = cloned(repo.path.parent / "bare.git", "fresh", repo.path.parent)
    if (repo.path.parent / "there").exists():
        use_folder(fresh, repo.path.parent / "there")
    fresh.git("checkout", "-q", "main")
    fresh.wtxtgit("fetch")
    return (fresh.path / NAME).read_bytes() == content


def test_what_a_young_pack_is_decoded_with(given_up: tuple[Repo, Repo]) -> None:
    one, two = given_up
    content = step(model(500), 40)
    commit(two, content)
    two.git("checkout", "-q", "main")
    two.git("merge", "-q", "--squash", "exp")
    two.git("commit", "-qm", "squashed", env=OLD)
    two.wtxtgit("push")
    prune(one)
    prune(one)
    two.git("push", "-q", "origin", "main")
    prune(one)
    make_old(one)
    prune(one)
    assert arrives(two, content)


def test_what_a_push_left_out_as_it_was_there(given_up: tuple[Repo, Repo]) -> None:
    one, two = given_up
    assert b"0 chunks sent" in two.wtxtgit("push").stdout
    prune(one)
    two.git("push", "-q", "origin", "exp:main", "--force")
    make_old(one)
    prune(one)
    assert arrives(two, model(500))


def test_what_is_marked_is_sent_again(given_up: tuple[Repo, Repo]) -> None:
    one, two = given_up
    prune(one)
    assert b"0 chunks sent" not in two.wtxtgit("push").stdout
    assert b"0 chunks sent" in two.wtxtgit("push").stdout
    make_old(one)
    prune(one)
    two.git("push", "-q", "origin", "exp:main", "--force")
    make_old(one)
    prune(one)
    assert arrives(two, model(500))


def test_what_went_is_sent_again(given_up: tuple[Repo, Repo]) -> None:
    one, two = given_up
    for _ in range(2):
        prune(one)
        make_old(one)
    two.wtxtgit("push")
    two.git("push", "-q", "origin", "exp:main", "--force")
    assert arrives(two, model(500))


def test_with_hooks_what_went_is_sent_again(given_up: tuple[Repo, Repo]) -> None:
    """Although this clone last saw its branch at the remote."""
    one, two = given_up
    two.wtxtgit("install", "--local", "--hooks")
    two.git("update-ref", "refs/remotes/origin/exp", "exp")
    for _ in range(2):
        prune(one)
        make_old(one)
    two.git("push", "-q", "origin", "exp:main", "--force")
    assert arrives(two, model(500))


def test_commits_do_not_count_where_anything_is_marked(given_up: tuple[Repo, Repo]) -> None:
    """A branch comes back while its data is marked, and may go again before the next one comes."""
    one, two = given_up
    prune(one)
    two.git("push", "-q", "origin", "exp")
    known = two.git("rev-parse", "exp").decode().split()
    two.git("checkout", "-q", "-b", "next", "exp")
    repo = Repository.discover(two.path)

    def sent() -> int:
        places = store_url.to_push(repo, remotes.pushed_to(repo, "origin"))
        return push_commits(repo, lambda: places, known, known).chunks

    assert sent() > 0
    assert sent() == 0
    two.git("push", "-q", "origin", "exp:main", "--force")
    two.git("push", "-q", "origin", ":exp")
    make_old(one)
    prune(one)
    assert arrives(two, model(500))


def test_a_clone_without_the_data_sends_again_what_is_marked(given_up: tuple[Repo, Repo]) -> None:
    one, two = given_up
    prune(one)
    two.git("push", "-q", "origin", "exp")
    one.git("fetch", "-q")
    assert b"0 chunks sent" not in one.wtxtgit("push", "origin/exp").stdout
    make_old(one)
    prune(one)
    two.git("push", "-q", "origin", "exp:main", "--force")
    assert arrives(two, model(500))
