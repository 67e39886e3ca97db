"""Attacks on those who commit, merge and push: hooks refuse what an audit would."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.e2e import hostile
from tests.e2e.hostile import (
    BEFORE,
    DATA,
    NEW,
    REVOKED,
    SECOND,
    UNTRUSTED,
    appended,
    at_once,
    attributes,
    audit,
    commit_of,
    errors_at,
    put_copy,
    shortened,
    stage,
    stage_move,
    unstage,
)
from tests.e2e.sealed import LEDGER, MODEL, OTHER, ROOT, SIGNERS, Sealed, checkpoint, text
from tests.kit import LAUNCHER, Repo
from wtxtgit.setup import hooks

pytestmark = pytest.mark.slow

EVIL = checkpoint(66.0)


def drop_filter(repo: Sealed) -> None:
    attributes(repo, f"{MODEL} -filter")
    stage(repo, MODEL, EVIL)


def swap(repo: Sealed) -> None:
    put_copy(repo, "HEAD", MODEL, "third.safetensors")
    put_copy(repo, "HEAD", OTHER, MODEL)
    put_copy(repo, "HEAD", "model.safetensors", OTHER)
    unstage(repo, "third.safetensors", "third.safetensors.wsum")


def folder(repo: Sealed) -> None:
    unstage(repo, MODEL)
    stage(repo, f"{MODEL}/data.pkl", b"evil\n")


def link(repo: Sealed) -> None:
    unstage(repo, MODEL)
    stage(repo, MODEL, OTHER.encode(), "120000")


def rollback(repo: Sealed) -> None:
    put_copy(repo, ROOT, MODEL, MODEL)


def shorten(repo: Sealed) -> None:
    stage(repo, LEDGER, shortened(repo.blob(LEDGER), 1))


def stranger(repo: Sealed) -> None:
    stage(repo, MODEL, text(66.0))
    stage(repo, LEDGER, appended(repo.blob(LEDGER), text(66.0), "mallory"))


def stranger_signs_up(repo: Sealed) -> None:
    repo.add_signer("mallory")
    repo.seal(SIGNERS, key="mallory")


def delete_unsealed(repo: Sealed) -> None:
    unstage(repo, MODEL, LEDGER)


def broken(repo: Sealed) -> None:
    stage(repo, LEDGER, b"WLEDGER 1\n")


STAGED: dict[str, Callable[[Sealed], object]] = {
    "unsealed-content": lambda repo: stage(repo, MODEL, text(66.0)),
    "raw": lambda repo: stage(repo, MODEL, EVIL),
    "new": lambda repo: stage(repo, NEW, text(66.0)),
    "rollback": rollback,
    "shortened": shorten,
    "move": lambda repo: stage_move(repo, MODEL, NEW),
    "copy": lambda repo: put_copy(repo, SECOND, MODEL, NEW),
    "swap": swap,
    "filter-dropped": drop_filter,
    "prefix": lambda repo: stage(repo, DATA, b"WTXT = 1\n"),
    "folder": folder,
    "link": link,
    "twin": lambda repo: stage(repo, MODEL.upper(), EVIL),
    "ident": lambda repo: attributes(repo, f"{DATA} ident"),
    "eol": lambda repo: attributes(repo, f"{MODEL} text eol=crlf"),
    "stranger": stranger,
    "stranger-signs-up": stranger_signs_up,
    "deleted": delete_unsealed,
    "ledger-gone": lambda repo: unstage(repo, LEDGER),
    "broken": broken,
    "signers-gone": lambda repo: unstage(repo, SIGNERS),
}
staged = pytest.mark.parametrize("attack", STAGED.values(), ids=STAGED)


@pytest.fixture
def rooted(base: Sealed) -> Sealed:
    base.git("config", "wtxtgit.trustRoot", ROOT)
    return base


@staged
def test_check_says_what_the_audit_says(rooted: Sealed, attack: Callable[[Sealed], object]) -> None:
    """What is about to be committed, and the commit that is made of it past the hook."""
    attack(rooted)
    said = rooted.call("check", "--staged", "--json", ok=(1, 4))
    tip = at_once(rooted)
    audited = audit(rooted, f"{SECOND}..{tip}")
    assert audited.code in (1, 4)
    told = {
        (found["path"], found["kind"])
        for found in json.loads(said.out)["findings"]
        if found["severity"] == "error"
    }
    assert told == errors_at(audited)
    assert said.code == audited.code


@pytest.fixture
def hooked(rooted: Sealed) -> Sealed:
    hooks.install(rooted.repository, LAUNCHER)
    return rooted


@pytest.fixture
def remote(hooked: Sealed) -> Repo:
    bare = Repo(hooked.path.parent / "remote.git")
    hooked.git("init", "-q", "--bare", str(bare.path))
    hooked.git("remote", "add", "origin", str(bare.path))
    hooked.git("push", "-q", "origin", f"{SECOND}:refs/heads/main")
    return bare


def refused(repo: Sealed, *command: str) -> str:
    head = repo.head
    done = repo.run("git", *command, ok=(1, 128))
    assert repo.head == head
    return done.stderr.decode()


class TestCommits:
    @staged
    def test_pre_commit(self, hooked: Sealed, attack: Callable[[Sealed], object]) -> None:
        attack(hooked)
        assert "wtxtgit" in refused(hooked, "commit", "-qm", "evil")

    def test_on_a_red_one(self, hooked: Sealed) -> None:
        """Somebody passed the hook by; the next commit of that tree says so."""
        stage(hooked, MODEL, text(66.0))
        at_once(hooked)
        stage(hooked, "readme", b"x\n")
        assert "content-mismatch" in refused(hooked, "commit", "-qm", "innocent")


class TestMerges:
    """`pre-merge-commit`: git merges cleanly, and what comes in is not in order."""

    def merge(self, repo: Sealed, name: str) -> str:
        return refused(repo, "merge", "-q", "--no-ff", "--no-edit", name)

    def test_of_an_evil_branch(self, hooked: Sealed) -> None:
        hooked.branch("evil")
        stage(hooked, MODEL, text(66.0))
        at_once(hooked)
        hooked.git("checkout", "-q", "-f", "main")
        assert "content-mismatch" in self.merge(hooked, "evil")

    def test_of_a_move(self, hooked: Sealed) -> None:
        hooked.branch("evil")
        stage_move(hooked, MODEL, NEW)
        at_once(hooked)
        hooked.git("checkout", "-q", "-f", "main")
        assert "moved-unsealed" in self.merge(hooked, "evil")

    def test_of_a_branch_from_before_a_removal(self, revoked: Sealed) -> None:
        hooks.install(revoked.repository, LAUNCHER)
        revoked.git("config", "wtxtgit.trustRoot", ROOT)
        revoked.branch("late", BEFORE)
        revoked.put(66.0, name=NEW)
        revoked.seal(NEW, key="mallory")
        at_once(revoked)
        revoked.switch("main")
        said = self.merge(revoked, "late")
        assert any(kind in said for kind in UNTRUSTED)

    def test_by_ours(self, hooked: Sealed) -> None:
        """A branch that went on is dropped."""
        hooked.branch("pr")
        hooked.put(3.0)
        hooked.seal(MODEL)
        at_once(hooked)
        hooked.switch("main")
        said = refused(hooked, "merge", "-q", "-s", "ours", "--no-edit", "pr")
        assert "ledger-rewritten" in said

    def test_of_an_old_line_that_took_main_over(self, hooked: Sealed) -> None:
        """A fast-forward runs no hook: the next commit and the push are what refuses."""
        hooked.branch("old", ROOT)
        hooked.git("merge", "-q", "--no-verify", "-s", "ours", "--no-edit", "main")
        hooked.switch("main")
        hooked.git("merge", "-q", "--ff-only", "old")
        stage(hooked, "readme", b"x\n")
        assert "ledger-rewritten" in refused(hooked, "commit", "-qm", "innocent")


class TestPushes:
    """`pre-push`: nothing leaves a clone that an audit would refuse."""

    def push(self, repo: Sealed, remote: Repo, *words: str) -> str:
        before = remote.git("for-each-ref")
        done = repo.run("git", "push", "-q", "origin", *words, ok=(1,))
        assert remote.git("for-each-ref") == before
        return done.stderr.decode()

    @staged
    def test_a_commit_past_the_hook(
        self, hooked: Sealed, remote: Repo, attack: Callable[[Sealed], object]
    ) -> None:
        attack(hooked)
        at_once(hooked)
        assert "wtxtgit" in self.push(hooked, remote, "main")

    @pytest.mark.parametrize("ref", ["refs/heads/new", "refs/tags/v2"])
    def test_a_new_name(self, hooked: Sealed, remote: Repo, ref: str) -> None:
        stage(hooked, MODEL, text(66.0))
        at_once(hooked)
        assert "content-mismatch" in self.push(hooked, remote, f"HEAD:{ref}")

    def test_an_annotated_tag(self, hooked: Sealed, remote: Repo) -> None:
        stage(hooked, MODEL, text(66.0))
        at_once(hooked)
        hooked.git("tag", "-a", "-m", "x", "v2")
        assert "content-mismatch" in self.push(hooked, remote, "v2")

    def test_an_innocent_commit_on_a_red_one(self, hooked: Sealed, remote: Repo) -> None:
        """The red one was pushed already."""
        stage(hooked, MODEL, text(66.0))
        at_once(hooked)
        hooked.git("push", "-q", "--no-verify", "origin", "main")
        hooked.write("readme", "x\n")
        hooked.add("readme")
        at_once(hooked)
        assert "content-mismatch" in self.push(hooked, remote, "main")

    def test_a_laundered_rollback(self, hooked: Sealed, remote: Repo) -> None:
        rollback(hooked)
        rolled = at_once(hooked)
        tip = commit_of(hooked, ROOT, rolled, tree=rolled)
        assert "ledger-rewritten" in self.push(hooked, remote, f"{tip}:refs/heads/main")

    def test_a_branch_from_before_a_removal(self, revoked: Sealed) -> None:
        """Merged into a main that is pushed."""
        hooks.install(revoked.repository, LAUNCHER)
        revoked.git("config", "wtxtgit.trustRoot", ROOT)
        bare = Repo(revoked.path.parent / "remote.git")
        revoked.git("init", "-q", "--bare", str(bare.path))
        revoked.git("remote", "add", "origin", str(bare.path))
        revoked.git("push", "-q", "origin", f"{REVOKED}:refs/heads/main")
        revoked.branch("late", BEFORE)
        revoked.put(66.0, name=NEW)
        revoked.seal(NEW, key="mallory")
        at_once(revoked)
        revoked.switch("main")
        revoked.git("merge", "-q", "--no-verify", "--no-edit", "--no-ff", "late")
        said = self.push(revoked, bare, "main")
        assert any(kind in said for kind in UNTRUSTED)


def test_the_base_is_green(rooted: Sealed) -> None:
    """The control of all of them."""
    hostile.honest(rooted)
    assert rooted.call("check", "--staged").code == 0
