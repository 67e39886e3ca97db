"""Merges of sealed checkpoints: the artifact is merged, the ledger alone is in conflict."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.merging import records, unmerged
from tests.e2e.sealed import ROOT, Sealed, assert_holds
from tests.e2e.weights import SAFETENSORS, Model, assert_model, base, edited
from tests.kit import LAUNCHER, Repo
from wtxtgit.setup import hooks

NAME = SAFETENSORS.name
LEDGER = f"{NAME}.wsum"
OURS, THEIRS = ({"embed": {3: -1.0}}, {"embed": {40: -2.0}})
BOTH = edited(edited(base(), OURS), THEIRS)


@pytest.fixture
def driven(chain: Sealed, driver: None) -> Sealed:
    """The whole driver is set up, and the hooks."""
    chain.git("checkout", "-q", "--", ".")
    hooks.install(chain.repository, LAUNCHER)
    chain.git("config", "wtxtgit.trustRoot", ROOT)
    chain.git("config", "wtxtgit.signingKey", "alice")
    chain.write(
        ".gitattributes",
        "*.safetensors filter=wtxt diff=wtxt merge=wtxt -text\n"
        "*.wsum text eol=lf merge=wtxt-ledger\n.wtxt/* text eol=lf\n",
    )
    train(chain, base())
    return chain


def train(repo: Sealed, model: Model, *, seal: bool = True) -> None:
    """Commit a generation."""
    repo.write(NAME, SAFETENSORS.make(model))
    repo.add()
    if seal:
        repo.seal(NAME)
    repo.commit("generation", *(() if seal else ("--no-verify",)))


def diverge(repo: Sealed, ours: Model, theirs: Model) -> None:
    repo.branch("side")
    train(repo, theirs)
    repo.switch("main")
    train(repo, ours)


def held(repo: Repo) -> Model:
    return SAFETENSORS.read((repo.path / NAME).read_bytes())


def go_on(repo: Sealed, way: str) -> None:
    """Have git finish what it stopped in."""
    command = {"merge": ("commit", "-q", "--no-edit")}.get(way, (way, "--continue"))
    repo.git(*command, env={"GIT_EDITOR": "true"})


@pytest.mark.slow
@pytest.mark.parametrize(
    "way",
    ["merge", *(pytest.param(way, marks=pytest.mark.slow) for way in ("rebase", "cherry-pick"))],
)
def test_the_ledger_alone_conflicts(driven: Sealed, way: str) -> None:
    diverge(driven, edited(base(), OURS), edited(base(), THEIRS))
    said = driven.run("git", way, "side", ok=(1,)).stderr.decode()
    assert unmerged(driven) == [LEDGER]
    assert records(driven) == {}
    assert_model(held(driven), BOTH)
    (line,) = [line for line in said.splitlines() if "wtxtgit seal --reseal" in line]
    assert line.startswith(
        f"wtxtgit: error: {LEDGER}: both sides added records; ours is kept for now: "
    )

    stopped = driven.run("git", "commit", "-q", "--no-edit", ok=(1, 128)).stderr.decode()
    assert "unmerged files" in stopped
    driven.call("seal", "--reseal")
    driven.git("add", LEDGER)
    go_on(driven, way)
    assert_model(held(driven), BOTH)
    assert driven.status() == b""
    assert_holds(driven)


@pytest.mark.slow
def test_the_hook_refuses_a_ledger_of_one_side(driven: Sealed) -> None:
    diverge(driven, edited(base(), OURS), edited(base(), THEIRS))
    driven.run("git", "merge", "side", ok=(1,))
    driven.git("checkout", "--ours", "--", LEDGER)
    driven.git("add", LEDGER)
    said = driven.run("git", "commit", "-q", "--no-edit", ok=(1,)).stderr.decode()
    assert f"{NAME}: content-mismatch" in said
    assert "wtxtgit seal --reseal" in said


@pytest.mark.slow
def test_one_side_alone_is_sealed(driven: Sealed) -> None:
    """The ledger merges; what is merged is sealed by nobody, and is not committed."""
    driven.branch("side")
    train(driven, edited(base(), THEIRS))
    driven.switch("main")
    train(driven, edited(base(), OURS), seal=False)
    done = driven.run("git", "merge", "--no-edit", "side", ok=(1,))
    said = done.stderr.decode()
    assert f"wtxtgit: note: {NAME}: the merged file is not sealed yet" in said
    assert unmerged(driven) == []
    assert_model(held(driven), BOTH)
    assert f"{NAME}: content-mismatch" in said


@pytest.mark.slow
def test_both_are_in_conflict(driven: Sealed, tmp_path: Path) -> None:
    """The artifact is settled first, and staged; then the ledger."""
    diverge(driven, edited(base(), OURS), edited(base(), {"embed": {3: -3.0}}))
    driven.run("git", "merge", "side", ok=(1,))
    assert unmerged(driven) == [NAME, LEDGER]
    said = driven.call("resolve", NAME, "--take", "embed=theirs")
    assert f"wtxtgit: note: {NAME}: the merged file is not sealed yet\n" in said.err
    assert f"wtxtgit: hint: once it is staged: wtxtgit seal --reseal -- {NAME}\n" in said.err
    refused = driven.call("resolve", LEDGER, ok=(3,))
    assert "a ledger" in refused.err
    driven.call("seal", "--reseal", "--", NAME)
    driven.git("add", LEDGER)
    go_on(driven, "merge")
    assert_model(held(driven), edited(base(), {"embed": {3: -3.0}}))
    assert_holds(driven)


@pytest.mark.slow
def test_a_stash(driven: Sealed) -> None:
    """What was sealed in a stash, and is merged when it is taken out."""
    driven.write(NAME, SAFETENSORS.make(edited(base(), THEIRS)))
    driven.add()
    driven.seal(NAME)
    driven.git("stash", "push", "-q")
    train(driven, edited(base(), OURS))
    driven.run("git", "stash", "pop", ok=(1,))
    assert unmerged(driven) == [LEDGER]
    assert_model(held(driven), BOTH)
    driven.call("seal", "--reseal")
    driven.git("add", "-u")
    driven.git("commit", "-q", "-m", "popped")
    assert_holds(driven)
