"""What an audit must let pass: conflicts of ledgers, settled with `seal --reseal`."""

from __future__ import annotations

import pytest

from tests.e2e.sealed import (
    MODEL,
    OTHER,
    OTHER_LEDGER,
    Sealed,
    assert_holds_by_any_range,
)
from wtxtgit.io import clock


class TestUpdateBranch:
    """Main and a pull request went on with one checkpoint; main is merged into the request."""

    @pytest.fixture
    def updated(self, chain: Sealed) -> Sealed:
        chain.git("clone", "-q", "--bare", ".", "../upstream")
        chain.branch("pr")
        for number in (2.0, 3.0):
            chain.generation(number)
        chain.switch("main")
        chain.generation(9.0)
        chain.switch("pr")
        return chain

    def update(self, repo: Sealed) -> None:
        repo.merge("main", ok=(1,))
        repo.git("checkout", "-q", "--ours", "--", MODEL)
        repo.add(MODEL)
        repo.seal("--reseal")
        repo.commit("update branch")

    @pytest.mark.parametrize("fast", ["--no-ff", "--ff-only"])
    def test_merged_without_a_remote(self, updated: Sealed, fast: str) -> None:
        self.update(updated)
        # No upstream tells otherwise: the request's own records are kept.
        assert updated.ledger().startswith(updated.ledger(revision="HEAD^1"))
        updated.switch("main")
        updated.git("merge", "-q", fast, "--no-edit", "pr")
        assert_holds_by_any_range(updated)
        updated.generation(10.0)
        assert_holds_by_any_range(updated)

    @pytest.mark.parametrize("way", ["merge", "squash"])
    def test_merged_with_a_known_default_branch(self, updated: Sealed, way: str) -> None:
        updated.git("remote", "add", "origin", "../upstream")
        updated.git("push", "-q", "origin", "main")
        updated.git("fetch", "-q", "origin")
        updated.git("remote", "set-head", "origin", "main")
        self.update(updated)
        assert updated.ledger().startswith(updated.ledger(revision="main"))
        assert updated.ledger().count(b"WSUM 1") == 3
        updated.switch("main")
        if way == "merge":
            updated.merge("pr")
        else:
            updated.git("merge", "-q", "--squash", "pr")
            updated.commit("squashed")
        assert_holds_by_any_range(updated)

    @pytest.mark.slow
    def test_kept_records_by_name(self, updated: Sealed) -> None:
        updated.merge("main", ok=(1,))
        updated.git("checkout", "-q", "--theirs", "--", MODEL)
        updated.add(MODEL)
        updated.seal("--reseal=main")
        updated.commit("update branch")
        assert updated.ledger().startswith(updated.ledger(revision="main"))
        updated.switch("main")
        updated.git("merge", "-q", "--squash", "pr")
        updated.commit("squashed")
        assert_holds_by_any_range(updated)

    @pytest.mark.slow
    def test_updated_twice(self, updated: Sealed) -> None:
        self.update(updated)
        updated.switch("main")
        updated.generation(11.0)
        updated.switch("pr")
        self.update(updated)
        updated.switch("main")
        updated.merge("pr")
        assert_holds_by_any_range(updated)

    def test_a_ledger_with_which_one_side_alone_went_on_is_kept(
        self, updated: Sealed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        updated.switch("main")
        updated.generation(5.0, name=OTHER)
        updated.switch("pr")
        # A record that was made anew in the same second would be the same one.
        tomorrow = clock.now() + 24 * 60 * 60
        monkeypatch.setattr(clock, "now", lambda: tomorrow)
        self.update(updated)
        assert updated.ledger(OTHER_LEDGER) == updated.ledger(OTHER_LEDGER, revision="main")
        assert updated.ledger().count(b"WSUM 1") == 4

    @pytest.mark.slow
    def test_updated_while_another_checkpoint_went_on(self, updated: Sealed) -> None:
        updated.switch("main")
        updated.generation(5.0, name=OTHER)
        updated.switch("pr")
        self.update(updated)
        updated.generation(12.0)
        updated.switch("main")
        updated.merge("pr")
        assert updated.ledger(OTHER_LEDGER).count(b"WSUM 1") == 2
        assert_holds_by_any_range(updated)


def test_a_conflict_settled_in_the_merge_into_main(chain: Sealed) -> None:
    chain.branch("pr")
    chain.generation(2.0)
    chain.switch("main")
    chain.generation(3.0)
    chain.merge("pr", ok=(1,))
    chain.git("checkout", "-q", "--theirs", "--", MODEL)
    chain.add(MODEL)
    chain.seal("--reseal")
    chain.commit("merged")
    assert chain.ledger().startswith(chain.ledger(revision="HEAD^1"))
    assert_holds_by_any_range(chain)


def test_a_rebase_with_a_conflict(chain: Sealed) -> None:
    chain.branch("pr")
    chain.generation(2.0)
    chain.switch("main")
    chain.generation(3.0)
    chain.switch("pr")
    chain.run("git", "rebase", "-q", "main", ok=(1,))
    chain.git("checkout", "-q", "--theirs", "--", MODEL)
    chain.add(MODEL)
    chain.seal("--reseal")
    chain.git("-c", "core.editor=true", "rebase", "--continue")
    assert len(chain.git("log", "--format=%H").split()) == 3
    assert_holds_by_any_range(chain)
