"""Commands that are killed half-way: the next run ends as if they had not been."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Callable

import pytest

from tests.e2e.conftest import assert_clean
from tests.e2e.merging import held
from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    SIGNERS_LEDGER,
    Sealed,
    assert_holds,
    forged,
    secret,
)
from tests.e2e.test_merge_resolve import NAME, conflict
from tests.e2e.weights import SAFETENSORS, assert_model, base, edited
from tests.kit import Repo
from wtxtgit.merge import conflicts

__all__ = ["conflict"]
pytestmark = pytest.mark.slow


def killed_at(repo: Sealed, monkeypatch: pytest.MonkeyPatch, where: str, *command: str) -> None:
    """Run a command in a process that is killed where it calls a function."""

    def kill(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        monkeypatch.setattr(where, kill)
        try:
            repo.call(*command)
        finally:
            os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), "the command was not killed"


STAGE = "wtxtgit.git.staging.stage"
NEW = "new.safetensors"
Prepare = Callable[[Sealed], None]


def first_seal(repo: Sealed) -> None:
    repo.put(1.0, name=NEW)


def next_seal(repo: Sealed) -> None:
    repo.put(3.0)


def deletion(repo: Sealed) -> None:
    repo.git("rm", "-q", MODEL)


def move(repo: Sealed) -> None:
    repo.git("mv", MODEL, "moved.safetensors")


@pytest.mark.parametrize(
    ("prepare", "arguments"),
    [
        (first_seal, ("--staged", "--key", "alice", NEW)),
        (next_seal, ("--staged", "--key", "alice")),
        (deletion, ("--staged", "--key", "alice", MODEL)),
        (move, ("--staged", "--key", "alice")),
        (next_seal, ("--reseal", "--key", "alice", MODEL)),
    ],
)
def test_a_seal_that_was_not_staged_is_taken_up(
    chain: Sealed, monkeypatch: pytest.MonkeyPatch, prepare: Prepare, arguments: tuple[str, ...]
) -> None:
    prepare(chain)
    before = chain.git("ls-files", "-s")
    killed_at(chain, monkeypatch, STAGE, "seal", *arguments)
    assert chain.git("ls-files", "-s") == before
    assert chain.git("status", "--porcelain", "-z") != b""
    chain.call("seal", *arguments)
    assert chain.git("diff", "--name-only") == b""
    assert chain.git("ls-files", "--others") == b""
    chain.git("commit", "-q", "-m", "sealed")
    assert_holds(chain)
    # Nothing is left to do.
    chain.call("seal", "--staged", "--key", "alice")
    assert chain.status() == b""


@pytest.mark.parametrize("key", ["alice", "bob"])
def test_a_signature_that_was_not_staged_is_taken_up(
    chain: Sealed, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """Also where another key signs next: both are there then."""
    chain.add_signer("bob")
    chain.change_signers("alice")
    chain.put(4.0)
    chain.seal()
    killed_at(chain, monkeypatch, STAGE, "seal", "--staged", "--cosign", "--key", "bob", MODEL)
    chain.call("seal", "--staged", "--cosign", "--key", key, MODEL)
    assert chain.git("diff", "--name-only") == b""
    assert chain.blob(LEDGER).count(b"\nsign ") == chain.blob(LEDGER, "HEAD").count(b"\nsign ") + 2
    chain.git("commit", "-q", "-m", "cosigned")
    assert_holds(chain)


def test_the_first_ledger_of_signers_is_taken_up(
    repo: Sealed, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Sealed(repo.path)
    here.call("key", "new", "--name", "me", "--no-passphrase")
    here.call("signers", "add", "me@example.com", "me")
    here.add()
    killed_at(here, monkeypatch, STAGE, "seal", "--staged", "--key", "me")
    ledger = (here.path / SIGNERS_LEDGER).read_bytes()
    here.call("seal", "--staged", "--key", "me")
    assert here.blob(SIGNERS_LEDGER) == ledger


def followed(repo: Sealed, err: str) -> None:
    """Do what a hint says."""
    command = err.rpartition("wtxtgit: hint: ")[2]
    command = re.split(" removes | restores | sets it aside", command)[0]
    repo.run(*shlex.split(command))


@pytest.mark.parametrize("content", [b"WSUM 1\nnonsense\n", None, "fork"])
@pytest.mark.parametrize("is_staged", [True, False])
def test_what_is_no_continuation_is_told_with_a_hint_that_helps(
    chain: Sealed, content: bytes | str | None, is_staged: bool
) -> None:
    name = LEDGER if is_staged else f"{NEW}.wsum"
    chain.put(5.0)
    chain.put(6.0, name=NEW)
    if content == "fork":
        content = forged(chain.blob(LEDGER), chain.blob(MODEL), secret("bob"), keep=0)
    elif content is None:
        content = chain.blob(SIGNERS_LEDGER)
    assert isinstance(content, bytes)
    chain.write(name, content)
    said = chain.call("seal", "--staged", "--key", "alice", ok=(1,))
    assert "the work tree has another ledger than the index" in said.err
    followed(chain, said.err)
    chain.call("seal", "--staged", "--key", "alice")
    chain.git("commit", "-q", "-m", "sealed")
    assert_holds(chain)


@pytest.mark.parametrize("where", ["work_tree.write_file", "stage_files", "conflicts.forget"])
@pytest.mark.parametrize("how", ["theirs", "ours"])
def test_a_conflict_whose_end_was_broken_off_is_ended(
    conflict: Repo, monkeypatch: pytest.MonkeyPatch, where: str, how: str
) -> None:
    here = Sealed(conflict.path)
    place = f"wtxtgit.merge.resolve.{where}"
    killed_at(here, monkeypatch, place, "resolve", NAME, "--strategy", how)
    assert conflicts.dropped(here.repository) == []
    assert (here.path / NAME).exists()
    if where != "conflicts.forget":
        assert b"UU " in here.git("status", "--porcelain")
        assert here.call("resolve", ok=(1,)).out.splitlines()[1].startswith(NAME)
        # What was settled is not asked for again.
        here.call("resolve", NAME)
    here.git("commit", "-q", "--no-edit")
    taken = {
        "theirs": {"embed": {3: -4.0, 9: -4.0, 63: -4.0}, "head": {0: -5.0}},
        "ours": {"embed": {3: -1.0, 9: -1.0, 63: -4.0}, "head": {0: -2.0}},
    }
    assert_model(held(here, SAFETENSORS), edited(base(), {"norm": {1: 3.0}, **taken[how]}))
    assert_clean(here)
