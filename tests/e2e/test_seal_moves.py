"""Moves are sealed: with the ledger, or the file alone; and what may begin where one was."""

from __future__ import annotations

import pytest

from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    OTHER,
    OTHER_LEDGER,
    SIGNERS,
    SIGNERS_LEDGER,
    Sealed,
    assert_holds,
    assert_holds_by_any_range,
    text,
)
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import staging
from wtxtgit.text import ledger as text_ledger

NEW, THIRD = "models/new.safetensors", "third.safetensors"
NEW_LEDGER, THIRD_LEDGER = f"{NEW}.wsum", f"{THIRD}.wsum"


def move(repo: Sealed, before: str, after: str, *, ledger: bool = True) -> None:
    (repo.path / after).parent.mkdir(exist_ok=True)
    repo.git("mv", before, after)
    if ledger:
        repo.git("mv", f"{before}.wsum", f"{after}.wsum")


def places(repo: Sealed, name: str) -> list[bytes | None]:
    """Where each record of a staged ledger moved it."""
    read = text_ledger.read(repo.blob(f"{name}.wsum", "")).ledger
    assert read is not None
    return [record.at for record in read.records]


def refused(repo: Sealed, *arguments: str) -> str:
    before = repo.git("ls-files", "-s")
    said = repo.call("seal", "--staged", "--key", "alice", *arguments, ok=(1,))
    assert repo.git("ls-files", "-s") == before
    return said.err


class TestWithTheLedger:
    @pytest.mark.parametrize("value", [1.0, 2.0], ids=["the same", "another content"])
    def test_sealed(self, chain: Sealed, value: float) -> None:
        move(chain, MODEL, NEW)
        chain.put(value, name=NEW)
        said = chain.seal(NEW)
        assert said.out.startswith(f"moved     {NEW}  generation 2, ")
        assert said.out.endswith(f", from {MODEL}\n")
        assert places(chain, NEW) == [None, NEW.encode()]
        chain.commit()
        assert_holds_by_any_range(chain)
        assert chain.seal().out == "all 3 are already sealed\n"

    def test_as_data(self, chain: Sealed) -> None:
        move(chain, MODEL, NEW)
        (told,) = [
            one for one in chain.seal("--json").report["sealed"] if one["action"] != "unchanged"
        ]
        assert (told["path"], told["action"], told["moved_from"]) == (NEW, "moved", MODEL)
        assert (told["gen"], told["generations"]) == (2, [2])

    def test_in_the_work_tree(self, chain: Sealed) -> None:
        move(chain, MODEL, NEW)
        assert f"moved     {NEW}" in chain.call("seal", "--key", "alice").out
        chain.commit_all()
        assert_holds_by_any_range(chain)

    def test_and_back(self, chain: Sealed) -> None:
        for before, after in ((MODEL, NEW), (NEW, THIRD), (THIRD, MODEL)):
            move(chain, before, after)
            chain.seal()
            chain.commit()
        wanted = [None, NEW.encode(), THIRD.encode(), MODEL.encode()]
        assert places(chain, MODEL) == wanted
        assert_holds_by_any_range(chain)

    def test_two_that_change_places(self, chain: Sealed) -> None:
        chain.generation(2.0)
        move(chain, MODEL, THIRD)
        move(chain, OTHER, MODEL)
        move(chain, THIRD, OTHER)
        assert chain.seal().out.count("moved ") == 2
        chain.commit()
        assert_holds_by_any_range(chain)
        assert chain.blob(OTHER) == text(2.0)
        chain.generation(5.0)
        assert_holds_by_any_range(chain)

    def test_three_in_a_row(self, chain: Sealed) -> None:
        move(chain, MODEL, THIRD)
        move(chain, OTHER, MODEL)
        chain.seal()
        chain.commit()
        assert_holds_by_any_range(chain)
        assert places(chain, MODEL) == [None, MODEL.encode()]

    def test_one_begins_in_its_place(self, chain: Sealed) -> None:
        """In the same commit, of the same content and at the same time."""
        move(chain, MODEL, NEW)
        chain.put(1.0)
        said = chain.seal().out
        assert f"moved     {NEW}" in said
        assert f"sealed    {MODEL}" in said
        chain.commit()
        assert_holds_by_any_range(chain)
        assert places(chain, MODEL) == [None]

    def test_one_begins_in_its_place_later(self, chain: Sealed) -> None:
        move(chain, MODEL, NEW)
        chain.seal()
        chain.commit()
        chain.generation(7.0)
        assert_holds_by_any_range(chain)

    def test_none_begins_where_a_move_is_not_sealed(self, chain: Sealed) -> None:
        move(chain, MODEL, NEW)
        chain.put(7.0)
        said = refused(chain, MODEL)
        assert f"{MODEL}: its ledger was moved to {NEW}, but the move is not sealed" in said
        assert f"wtxtgit seal -- {NEW} {MODEL} seals both" in said
        chain.seal(NEW, MODEL)
        chain.commit()
        assert_holds_by_any_range(chain)

    def test_onto_another_one(self, chain: Sealed) -> None:
        chain.generation(2.0)
        chain.git("mv", "-f", MODEL, OTHER)
        chain.git("mv", "-f", LEDGER, OTHER_LEDGER)
        said = refused(chain)
        assert f"{OTHER}: a new ledger must continue the one that was there" in said
        chain.git("checkout", "-q", "HEAD", "--", OTHER_LEDGER)
        chain.seal(OTHER, MODEL)
        chain.commit()
        assert_holds_by_any_range(chain)
        assert chain.blob(OTHER) == text(2.0)

    def test_a_copy_is_no_move(self, chain: Sealed) -> None:
        for source, copy in ((MODEL, NEW), (LEDGER, NEW_LEDGER)):
            chain.write(copy, (chain.path / source).read_bytes())
        chain.add()
        assert f"{NEW}: {MODEL} has the same ledger" in refused(chain)
        chain.call("seal", "--reseal", "--key", "alice", "--", NEW)
        chain.commit()
        assert_holds_by_any_range(chain)

    def test_the_signers_stay(self, chain: Sealed) -> None:
        chain.git("mv", SIGNERS, "who")
        chain.git("mv", SIGNERS_LEDGER, "who.wsum")
        assert "the signers file can't be moved" in refused(chain)


class TestTheFileAlone:
    def test_the_ledger_is_taken_along(self, chain: Sealed) -> None:
        move(chain, MODEL, NEW, ledger=False)
        said = chain.seal()
        assert f"moved     {NEW}  generation 2, " in said.out
        assert f", from {MODEL}\n" in said.out
        assert not (chain.path / LEDGER).exists()
        assert chain.git("ls-files", "--", LEDGER) == b""
        chain.commit()
        assert chain.status() == b""
        assert_holds_by_any_range(chain)

    def test_in_the_work_tree(self, chain: Sealed) -> None:
        move(chain, MODEL, NEW, ledger=False)
        assert f"moved     {NEW}" in chain.call("seal", "--key", "alice").out
        assert not (chain.path / LEDGER).exists()
        chain.commit_all()
        assert_holds_by_any_range(chain)

    def test_of_another_content_it_is_another_one(self, chain: Sealed) -> None:
        move(chain, MODEL, NEW, ledger=False)
        chain.put(2.0, name=NEW)
        assert f"sealed    {NEW}  generation 1" in chain.seal().out
        chain.commit()
        assert_holds_by_any_range(chain)

    def test_two_that_may_have_been_it(self, chain: Sealed) -> None:
        move(chain, MODEL, NEW, ledger=False)
        chain.git("rm", "-q", OTHER)
        said = refused(chain)
        told = f"it may have been moved with any of the ledgers {LEDGER} and {OTHER_LEDGER}"
        assert f"{NEW}: {told}" in said
        chain.git("mv", OTHER_LEDGER, NEW_LEDGER)
        chain.seal()
        chain.commit()
        assert_holds_by_any_range(chain)
        assert places(chain, NEW) == [None, NEW.encode()]

    def test_two_that_it_may_be(self, chain: Sealed) -> None:
        move(chain, MODEL, NEW, ledger=False)
        chain.put(1.0, name=THIRD)
        said = refused(chain)
        assert f"{LEDGER}: it may be the ledger of " in said
        chain.seal(THIRD)
        chain.seal(NEW)
        chain.commit()
        assert places(chain, THIRD) == [None, THIRD.encode()]
        assert places(chain, NEW) == [None]
        assert_holds_by_any_range(chain)

    def test_what_has_a_ledger_takes_none(self, chain: Sealed) -> None:
        chain.git("rm", "-q", MODEL)
        chain.put(2.0, name=OTHER)
        chain.put(1.0, name=OTHER)
        assert "are already sealed" in chain.seal().out
        chain.commit()
        assert_holds_by_any_range(chain)


def test_a_failure_takes_the_move_back(chain: Sealed) -> None:
    move(chain, MODEL, NEW, ledger=False)
    before = chain.git("ls-files", "-s")
    (chain.path / ".git/index.lock").touch()
    chain.call("seal", "--staged", "--key", "alice", ok=(5,))
    assert (chain.path / LEDGER).is_file()
    assert not (chain.path / NEW_LEDGER).exists()
    (chain.path / ".git/index.lock").unlink()
    assert chain.git("ls-files", "-s") == before


def test_what_fails_once_the_index_has_it_takes_nothing_back(chain: Sealed) -> None:
    def fail(*_: object) -> None:
        raise EnvironmentFailure("as a signal that comes late")

    chain.put(2.0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(staging, "add", fail)
        chain.call("seal", "--staged", "--key", "alice", ok=(5,))
    assert (chain.path / LEDGER).read_bytes() == chain.blob(LEDGER, "")
    assert "are already sealed" in chain.seal().out
    chain.commit()
    assert_holds(chain)


def test_a_reviewer_sees_the_chain(chain: Sealed) -> None:
    """The log of the new path has the generations from before."""
    move(chain, MODEL, NEW)
    chain.seal()
    chain.commit()
    told = chain.call("log", "--json", NEW).report
    assert [one["gen"] for one in told["generations"]] == [2, 1]
    assert_holds(chain)
