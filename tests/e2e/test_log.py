"""`wtxtgit log`: the generations of a checkpoint, from its ledger and the commits."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

from tests.e2e.sealed import LEDGER, MODEL, ROOT, Sealed, text


def generations(repo: Sealed, *arguments: str) -> list[dict[str, object]]:
    said = repo.call("log", MODEL, *arguments, "--json")
    found: list[dict[str, object]] = said.report["generations"]
    return found


def test_the_newest_comes_first_with_its_commit_and_signer(chain: Sealed) -> None:
    commits = [chain.generation(2.0), chain.generation(3.0)]
    found = generations(chain)
    assert [row["gen"] for row in found] == [3, 2, 1]
    assert [row["commit"] for row in found][:2] == commits[::-1]
    assert {row["verdict"] for row in found} == {"ok"}
    assert {tuple(row["signers"]) for row in found} == {("alice@example.com",)}  # type: ignore[arg-type]
    assert [row["size"] for row in found] == [len(text(n)) for n in (3.0, 2.0, 1.0)]
    assert generations(chain, "HEAD~1") == found[1:]


def test_several_generations_of_one_commit_have_one_size(chain: Sealed) -> None:
    for number in (2.0, 3.0):
        chain.put(number)
        chain.seal(MODEL)
    commit = chain.commit("squashed")
    found = generations(chain)
    assert [(row["commit"], row["size"]) for row in found[:2]] == [
        (commit, len(text(3.0))),
        (commit, None),
    ]


def test_generations_from_before_a_move_have_their_own_commits(chain: Sealed) -> None:
    """The move was sealed in a commit of its own, so nothing is left to be told of it."""
    second = chain.generation(2.0)
    for name in (MODEL, LEDGER):
        chain.git("mv", name, f"sub-{name}")
    chain.commit("moved")
    chain.seal()
    sealed = chain.commit("sealed")
    said = chain.call("log", f"sub-{MODEL}", "--json")
    found = said.report["generations"]
    assert [row["gen"] for row in found] == [3, 2, 1]
    assert [row["commit"] for row in found] == [sealed, second, chain.oid(ROOT)]
    assert {row["verdict"] for row in found} == {"ok"}
    assert all(row["size"] is not None for row in found)


def test_a_record_by_nobody_who_is_trusted_has_a_verdict(chain: Sealed) -> None:
    chain.generation(2.0, key="mallory")
    newest, *others = generations(chain, "--trust-root", ROOT)
    assert newest["verdict"] == "untrusted-signer"
    assert [len(str(who)) for who in newest["signers"]] == [16]  # type: ignore[attr-defined]
    assert [row["verdict"] for row in others] == ["ok"]


def test_the_table(chain: Sealed) -> None:
    chain.generation(2.0)
    lines = chain.call("log", LEDGER).out.splitlines()
    columns = ["gen", "time", "build", "signers", "hash", "commit", "blob size", "verdict"]
    assert re.split("  +", lines[0]) == columns
    assert [line.split()[0] for line in lines[1:]] == ["2", "1"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nothing",), 3, "nothing: no commit of HEAD has it"),
        ((MODEL, "no-such-revision"), 5, "names nothing"),
        ((MODEL, "--trust-root", "no-such-root"), 5, "names nothing"),
        ((), 2, "missing argument"),
    ],
)
def test_what_is_refused(
    arguments: tuple[str, ...], code: int, message: str, chain: Sealed
) -> None:
    assert message in chain.call("log", *arguments, ok=(code,)).err


def test_a_ledger_that_does_not_read_is_a_finding(chain: Sealed) -> None:
    chain.write(LEDGER, chain.ledger() + b"x\n")
    chain.commit_all()
    assert f"{MODEL}: line" in chain.call("log", MODEL, ok=(1,)).err


def test_what_was_never_sealed_has_its_commits(chain: Sealed) -> None:
    name = "not sealed.safetensors"
    commits = []
    for number in (1.0, 2.0):
        chain.put(number, name=name)
        commits.append(chain.commit(f"to {number}"))
        chain.generation(number + 5)
    chain.git("rm", "-q", name)
    commits.append(chain.commit("gone"))
    chain.put(3.0, name=name)
    commits.append(chain.commit("back"))
    found = chain.call("log", name, "--json").report
    assert found["generations"] == []
    assert [row["commit"] for row in found["commits"]] == commits[::-1]
    assert [row["size"] for row in found["commits"]] == [
        len(text(3.0)), None, len(text(2.0)), len(text(1.0)),
    ]  # fmt: skip
    author, seconds, subject = chain.git("log", "-1", "--format=%an%n%at%n%s").decode().splitlines()
    row = found["commits"][0]
    assert (row["author"], row["subject"]) == (author, subject)
    # Git itself ends a time in UTC with Z, or with +00:00 before 2.46.
    assert row["date"].endswith("+00:00")
    assert datetime.fromisoformat(row["date"]).timestamp() == int(seconds)
    lines = chain.call("log", name).out.splitlines()
    assert lines[0] == "never sealed; the commits that changed it:"
    assert [line.split()[0] for line in lines[2:]] == [oid[:10] for oid in commits[::-1]]
