"""What an audit must find of checkpoints and ledgers: each tamper, and the commit that did it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from e2e import sealed
from e2e.sealed import (
    LEDGER,
    MODEL,
    OTHER,
    OTHER_LEDGER,
    ROOT,
    SIGNERS,
    SIGNERS_LEDGER,
    Found,
    Sealed,
    assert_found,
    assert_holds,
    checkpoint,
    forged,
    secret,
    text,
)


def link(repo: Sealed, name: str, target: str) -> None:
    """Stage a symbolic link in the place of what is there."""
    file = repo.path / name
    repo.git("rm", "-rq", "--cached", "--", name)
    if file.is_dir():
        file.rename(repo.path / "moved")
    else:
        file.unlink()
    file.symlink_to(target)
    repo.add(name)


class TestContents:
    def test_a_bypassed_hook(self, chain: Sealed) -> None:
        chain.put(2.0)
        bad = chain.commit("nobody seals")
        assert_found(chain, (bad, MODEL, "content-mismatch"))
        # It stays found, whatever comes later.
        chain.generation(3.0)
        assert_found(chain, (bad, MODEL, "content-mismatch"))

    def test_a_checkpoint_that_nobody_sealed(self, chain: Sealed) -> None:
        chain.put(2.0, name="new.safetensors")
        assert_found(chain, (chain.commit(), "new.safetensors", "unsealed"))

    def test_a_raw_binary(self, chain: Sealed) -> None:
        chain.write(MODEL, checkpoint(2.0))
        chain.add(MODEL)
        bad = chain.commit("without the driver")
        assert_found(chain, (bad, MODEL, "raw-binary"), (bad, MODEL, "content-mismatch"))

    def test_a_raw_binary_that_is_sealed(self, chain: Sealed) -> None:
        chain.write(MODEL, checkpoint(2.0))
        chain.call("seal", "--key", "alice")
        assert_found(chain, (chain.commit_all(), MODEL, "raw-binary"))

    def test_a_damaged_text(self, chain: Sealed) -> None:
        damaged = text(1.0).replace(b"AACAPw", b"AACAPg", 1)
        chain.write(MODEL, damaged)
        assert_found(chain, (chain.commit_all(), MODEL, "corrupt-text"))

    def test_a_text_that_is_not_canonical(self, chain: Sealed, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(checkpoint(1.0))
        made = ("--gen", "7", "-o", str(tmp_path / "text"))
        chain.call("emit", str(tmp_path / "file"), *made)
        chain.write(MODEL, (tmp_path / "text").read_bytes())
        assert_found(chain, (chain.commit_all(), MODEL, "not-canonical"))

    def test_a_blended_merge(self, chain: Sealed) -> None:
        """Two sides change two tensors; git blends the lines of both."""
        chain.branch("pr")
        chain.generation(1.0, 5.0)
        chain.switch("main")
        chain.generation(5.0, 0.0)
        chain.git("merge", "-q", "--no-edit", "-X", "theirs", "pr")
        blended = chain.blob(MODEL, "HEAD")
        assert blended not in (text(1.0, 5.0), text(5.0, 0.0), text(5.0, 5.0))
        assert_found(
            chain, (chain.head, MODEL, "corrupt-text"), (chain.head, MODEL, "ledger-rewritten")
        )

    def test_a_merge_that_takes_the_content_of_one_and_the_ledger_of_the_other(
        self, chain: Sealed
    ) -> None:
        chain.branch("pr")
        chain.generation(2.0)
        chain.switch("main")
        chain.write("readme", "x")
        chain.commit_all()
        chain.git("merge", "-q", "--no-ff", "--no-commit", "pr")
        chain.take("main", MODEL)
        assert_found(chain, (chain.commit("merged"), MODEL, "content-mismatch"))

    def test_an_octopus_merge_that_changes_a_checkpoint(self, chain: Sealed) -> None:
        for number in range(2):
            chain.branch(f"topic-{number}", "main")
            chain.write(f"file-{number}", "x")
            chain.commit_all()
        chain.switch("main")
        chain.merge("topic-0", "topic-1")
        chain.put(2.0)
        chain.git("commit", "-q", "--amend", "--no-edit")
        assert_found(chain, (chain.head, MODEL, "content-mismatch"))

    def test_a_plain_revert(self, chain: Sealed) -> None:
        chain.generation(2.0)
        chain.git("revert", "--no-edit", "HEAD")
        assert_found(chain, (chain.head, MODEL, "ledger-rewritten"))

    @pytest.mark.parametrize("folder", ["", "sub/"])
    def test_attributes_that_drop_the_filter(self, chain: Sealed, folder: str) -> None:
        name = f"{folder}new.safetensors"
        chain.generation(2.0, name=name)
        file = chain.path / folder / ".gitattributes"
        before = file.read_text() if file.exists() else ""
        file.write_text(before + "new.safetensors -filter\n")
        bad = chain.commit_all("attributes")
        assert_found(chain, (bad, name, "untracked-artifact"))
        # From then on raw bytes go in; the ledger still tells.
        chain.write(name, checkpoint(3.0))
        worse = chain.commit_all("raw")
        assert_found(chain, (bad, name, "untracked-artifact"), (worse, name, "content-mismatch"))

    @pytest.mark.parametrize("change", ["removed", "link"])
    def test_attributes_that_are_gone(self, chain: Sealed, change: str) -> None:
        if change == "removed":
            chain.git("rm", "-q", ".gitattributes")
        else:
            chain.write("attributes", chain.blob(".gitattributes", "HEAD"))
            link(chain, ".gitattributes", "attributes")
        bad = chain.commit("attributes")
        assert_found(chain, (bad, MODEL, "untracked-artifact"), (bad, OTHER, "untracked-artifact"))


class TestLinks:
    def test_in_the_place_of_a_checkpoint(self, chain: Sealed) -> None:
        link(chain, MODEL, OTHER)
        assert_found(chain, (chain.commit(), MODEL, "untracked-artifact"))

    def test_in_the_place_of_a_ledger(self, chain: Sealed) -> None:
        link(chain, LEDGER, OTHER_LEDGER)
        bad = chain.commit()
        kinds = ("bad-record", "ledger-removed", "unsealed")
        assert_found(chain, *((bad, MODEL, kind) for kind in kinds))

    def test_in_the_place_of_the_signers(self, chain: Sealed) -> None:
        chain.write("mine", "")
        link(chain, SIGNERS, "../mine")
        bad = chain.commit_all()
        kinds = ("signers-changed", "untracked-artifact")
        assert_found(chain, *((bad, SIGNERS, kind) for kind in kinds))

    def test_in_the_place_of_their_folder(self, chain: Sealed) -> None:
        link(chain, ".wtxt", "moved")
        bad = chain.commit_all()
        kinds = ("signers-changed", "ledger-removed")
        # The ledger of the signers stands elsewhere now: moved, but for a checkpoint's.
        found = chain.audit()
        assert found.code == 1
        assert {one for one in found.found if one.kind == "signers-changed"} == {
            Found(bad, SIGNERS, kinds[0])
        }

    def test_a_submodule_in_the_place_of_a_checkpoint(self, chain: Sealed) -> None:
        chain.git("rm", "-q", "--cached", MODEL)
        chain.git("update-index", "--add", "--cacheinfo", f"160000,{chain.head},{MODEL}")
        assert_found(chain, (chain.commit(), MODEL, "untracked-artifact"))


class TestLedgers:
    @pytest.fixture
    def long(self, chain: Sealed) -> Sealed:
        """Three generations of each checkpoint."""
        for number in (2.0, 3.0):
            chain.generation(number)
            chain.generation(number + 10, name=OTHER)
        return chain

    def test_rewritten(self, long: Sealed) -> None:
        """The same contents, sealed by the same signer, at another time."""
        made = long.ledger()
        for keep, content in enumerate((text(1.0), text(2.0), text(3.0))):
            made = forged(made, content, secret("alice"), keep=keep, ts="2026-01-01T00:00:00Z")
        long.write(LEDGER, made)
        assert_found(long, (long.commit_all(), MODEL, "ledger-rewritten"))

    def test_shortened(self, long: Sealed) -> None:
        long.take("HEAD~2", LEDGER)
        bad = long.commit()
        kinds = ("ledger-rewritten", "content-mismatch")
        assert_found(long, *((bad, MODEL, kind) for kind in kinds))

    def test_shortened_in_its_middle(self, long: Sealed) -> None:
        made = forged(long.ledger(), text(3.0), secret("alice"), keep=1)
        long.write(LEDGER, made)
        assert_found(long, (long.commit_all(), MODEL, "ledger-rewritten"))

    def test_an_old_record_that_lost_a_signature(self, chain: Sealed) -> None:
        chain.add_signer("bob")
        chain.change_signers("alice")
        chain.put(2.0)
        chain.seal()
        chain.seal("--cosign", MODEL, key="bob")
        chain.commit()
        assert_holds(chain)
        lines = chain.ledger().splitlines(keepends=True)
        chain.write(LEDGER, b"".join(lines[:-1]))
        assert_found(chain, (chain.commit_all(), MODEL, "ledger-rewritten"))

    def test_removed(self, long: Sealed) -> None:
        long.git("rm", "-q", LEDGER)
        bad = long.commit()
        kinds = ("ledger-removed", "unsealed")
        assert_found(long, *((bad, MODEL, kind) for kind in kinds))

    def test_removed_with_its_checkpoint(self, long: Sealed) -> None:
        long.git("rm", "-q", LEDGER, MODEL)
        assert_found(long, (long.commit(), MODEL, "ledger-removed"))

    def test_begun_anew_in_one_commit(self, long: Sealed) -> None:
        long.git("rm", "-q", LEDGER)
        long.generation(4.0)
        assert long.ledger().count(b"WSUM 1") == 1
        assert_found(long, (long.head, MODEL, "ledger-rewritten"))

    def test_begun_anew_in_two_commits(self, long: Sealed) -> None:
        long.git("rm", "-q", LEDGER, MODEL)
        bad = long.commit()
        long.generation(4.0)
        assert_found(long, (bad, MODEL, "ledger-removed"))

    def test_begun_anew_on_a_branch(self, long: Sealed) -> None:
        """As a whole: of the branch nothing but the merge is judged."""
        long.branch("pr")
        long.git("rm", "-q", LEDGER, MODEL)
        long.commit()
        long.generation(4.0)
        long.switch("main")
        assert_found(long, (long.merge("pr"), MODEL, "ledger-rewritten"))

    def test_swapped_with_their_checkpoints(self, long: Sealed) -> None:
        for one, two in ((MODEL, OTHER), (LEDGER, OTHER_LEDGER)):
            first, second = long.blob(one, "HEAD"), long.blob(two, "HEAD")
            long.write(one, second)
            long.write(two, first)
        bad = long.commit_all()
        assert_found(long, *((bad, name, "ledger-rewritten") for name in (MODEL, OTHER)))

    def test_an_old_checkpoint_with_its_old_ledger(self, long: Sealed) -> None:
        long.take("HEAD~2", MODEL, LEDGER)
        assert_found(long, (long.commit(), MODEL, "ledger-rewritten"))

    def test_moved_onto_another_one(self, long: Sealed) -> None:
        long.git("mv", "-f", MODEL, OTHER)
        long.git("mv", "-f", LEDGER, OTHER_LEDGER)
        bad = long.commit()
        assert_found(long, *((bad, name, "ledger-rewritten") for name in (MODEL, OTHER)))

    def test_copied_to_a_second_checkpoint(self, long: Sealed) -> None:
        long.write("copy.safetensors", long.blob(MODEL, "HEAD"))
        long.write("copy.safetensors.wsum", long.ledger())
        bad = long.commit_all()
        said = long.audit()
        assert said.code == 1
        assert len(said.found) == 1
        assert said.found[0].commit == bad
        assert said.found[0].kind == "bad-record"
        assert said.found[0].path in (MODEL, "copy.safetensors")

    def test_of_another_repository(self, long: Sealed, tmp_path: Path, keys: None) -> None:
        """Its signer is the same person, and its path as well."""
        foreign = sealed.make(tmp_path / "foreign")
        foreign.generation(2.0, name="new.safetensors")
        for name in ("new.safetensors", "new.safetensors.wsum"):
            long.write(name, foreign.blob(name, "HEAD"))
        assert_found(long, (long.commit_all(), "new.safetensors", "bad-record"))

    @pytest.mark.parametrize(
        "meta", [{"gen": 3}, {"gen": 2}, {"ts": "2026-01-01T00:00:00Z"}], ids=str
    )
    def test_that_goes_back(self, long: Sealed, meta: dict[str, object]) -> None:
        content = text(4.0)
        long.write(LEDGER, forged(long.ledger(), content, secret("alice"), **meta))
        long.write(MODEL, content)
        assert_found(long, (long.commit_all(), MODEL, "bad-record"))

    @pytest.mark.parametrize("end", [b"\n", b"meta\n", b"\xff\n", b"sign ed25519=AAAA keyid=0\n"])
    def test_with_lines_that_are_none(self, long: Sealed, end: bytes) -> None:
        long.write(LEDGER, long.ledger() + end)
        assert_found(long, (long.commit_all(), MODEL, "bad-record"))

    def test_that_is_something_else(self, long: Sealed) -> None:
        long.write(LEDGER, b"a note\n")
        bad = long.commit_all()
        kinds = ("ledger-removed", "unsealed")
        assert_found(long, *((bad, MODEL, kind) for kind in kinds))

    def test_a_chain_that_does_not_hold(self, long: Sealed) -> None:
        made = long.ledger()
        at = made.rindex(b"merkle_prev=") + 12
        long.write(LEDGER, made[:at] + b"0" * 64 + made[at + 64 :])
        assert_found(long, (long.commit_all(), MODEL, "bad-record"))


class TestMerges:
    @pytest.fixture
    def forked(self, chain: Sealed) -> Sealed:
        """An old branch, and a main that went on."""
        chain.branch("old")
        chain.write("readme", "x")
        chain.commit_all()
        chain.switch("main")
        for number in (2.0, 3.0):
            chain.generation(number)
        return chain

    def test_a_rollback_onto_an_old_branch(self, forked: Sealed) -> None:
        """`merge -s ours` made on the old branch, and taken by main."""
        forked.switch("old")
        forked.git("merge", "-q", "-s", "ours", "--no-edit", "main")
        bad = forked.head
        assert_found(forked, (bad, MODEL, "ledger-rewritten"))
        forked.switch("main")
        merged = forked.merge("old")
        assert forked.blob(MODEL, "HEAD") == text(1.0)
        assert_found(forked, (merged, MODEL, "ledger-rewritten"))
        assert_found(forked, (merged, MODEL, "ledger-rewritten"), args=["HEAD~1..HEAD"])
        assert_found(
            forked,
            (bad, MODEL, "ledger-rewritten"),
            (merged, MODEL, "ledger-rewritten"),
            args=["--all"],
        )

    def test_a_rollback_onto_an_old_branch_the_other_way_round(self, forked: Sealed) -> None:
        """Parents of the merge as if it was made on main, with the tree of the old branch."""
        tree = forked.git("rev-parse", "old^{tree}").decode().strip()
        made = forked.git("commit-tree", "-p", "main", "-p", "old", "-m", "x", tree)
        forked.git("reset", "-q", "--hard", made.decode().strip())
        assert_found(forked, (forked.head, MODEL, "ledger-rewritten"))

    def test_a_branch_that_went_on_is_dropped(self, forked: Sealed) -> None:
        """`merge -s ours` of a branch with generations of its own, from main."""
        forked.switch("old")
        forked.generation(9.0)
        forked.switch("main")
        forked.git("merge", "-q", "-s", "ours", "--no-edit", "old")
        assert_found(forked, (forked.head, MODEL, "ledger-rewritten"))
        # Said by a signer it is in order.
        forked.seal("--reseal")
        forked.git("commit", "-q", "--amend", "--no-edit")

    def test_a_join_that_nobody_trusted_signed(self, forked: Sealed) -> None:
        forked.switch("old")
        forked.generation(9.0)
        forked.switch("main")
        forked.merge("old", ok=(1,))
        forked.take("main", MODEL, LEDGER)
        forked.write(LEDGER, forged(forked.ledger(), text(3.0), None))
        forked.add(LEDGER)
        bad = forked.commit("joined")
        kinds = ("ledger-rewritten", "missing-signature")
        assert_found(forked, *((bad, MODEL, kind) for kind in kinds))

    def test_an_unrelated_ledger_of_the_same_path(self, chain: Sealed) -> None:
        """Both sides began a checkpoint of the same name: one of them is lost."""
        chain.branch("pr")
        chain.generation(2.0, name="new.safetensors")
        chain.switch("main")
        chain.generation(3.0, name="new.safetensors")
        chain.merge("pr", ok=(1,))
        chain.take("main", "new.safetensors", "new.safetensors.wsum")
        assert_found(chain, (chain.commit("merged"), "new.safetensors", "ledger-rewritten"))

    def test_a_checkpoint_lost_in_a_merge(self, chain: Sealed) -> None:
        chain.branch("pr")
        chain.generation(2.0, name="new.safetensors")
        chain.switch("main")
        chain.git("merge", "-q", "-s", "ours", "--no-edit", "--no-ff", "pr")
        assert_found(chain, (chain.head, "new.safetensors", "ledger-removed"))


class TestHistories:
    def test_a_shallow_clone(self, chain: Sealed) -> None:
        chain.generation(2.0)
        chain.git("clone", "-q", "--depth", "1", f"file://{chain.path}", "../shallow")
        shallow = Sealed(chain.path.parent / "shallow")
        said = assert_found(shallow, ("", "", "shallow"), root=None)
        assert "the clone is shallow" in said.report["findings"][0]["message"]

    def test_replaced_objects(self, chain: Sealed) -> None:
        chain.put(2.0)
        bad = chain.commit("nobody seals")
        chain.git("replace", bad, ROOT)
        assert_found(chain, ("", "", "shallow"))

    def test_grafts(self, chain: Sealed) -> None:
        chain.put(2.0)
        bad = chain.commit("nobody seals")
        chain.generation(3.0)
        (chain.path / ".git/info/grafts").write_text(f"{chain.head} {bad}~1\n")
        assert_found(chain, ("", "", "shallow"))

    def test_a_commit_graph_that_lies(self, chain: Sealed) -> None:
        chain.put(2.0)
        bad = chain.commit("nobody seals")
        chain.generation(3.0)
        chain.git("commit-graph", "write", "--reachable")
        graph = chain.path / ".git/objects/info/commit-graph"
        data = graph.read_bytes()
        os.chmod(graph, 0o644)
        trees = [
            bytes.fromhex(chain.git("rev-parse", f"{c}^{{tree}}").decode()) for c in (bad, ROOT)
        ]
        assert trees[0] in data
        graph.write_bytes(data.replace(*trees))
        assert_found(chain, (bad, MODEL, "content-mismatch"))

    def test_a_force_push(self, chain: Sealed) -> None:
        was = chain.generation(2.0)
        chain.git("reset", "-q", "--hard", ROOT)
        chain.generation(3.0)
        assert_holds(chain)
        assert_found(
            chain,
            (chain.head, "", "bad-root"),
            (chain.head, MODEL, "ledger-rewritten"),
            args=["--was", was],
        )

    def test_a_force_push_that_touches_no_ledger(self, chain: Sealed) -> None:
        chain.write("readme", "x")
        was = chain.commit_all()
        chain.git("reset", "-q", "--hard", ROOT)
        assert_found(chain, (chain.head, "", "bad-root"), args=["--was", was], code=4)

    def test_a_force_push_that_is_a_rebase(self, chain: Sealed) -> None:
        """All generations are kept, and still the branch is another one."""
        was = chain.generation(2.0)
        chain.git("commit", "-q", "--amend", "-m", "other words")
        assert_found(chain, (chain.head, "", "bad-root"), args=["--was", was], code=4)

    def test_a_root_that_the_tip_does_not_descend_from(self, chain: Sealed) -> None:
        chain.branch("side")
        side = chain.generation(2.0)
        chain.switch("main")
        assert_found(chain, ("", "", "bad-root"), root=side, code=4)
