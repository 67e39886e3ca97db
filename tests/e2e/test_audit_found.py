"""What an audit must find of checkpoints and ledgers: each tamper, and the commit that did it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    OTHER,
    OTHER_LEDGER,
    ROOT,
    SIGNERS,
    Sealed,
    assert_found,
    assert_holds,
    checkpoint,
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
        assert_found(chain, (bad, MODEL, "raw-binary"))

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

    @pytest.mark.slow
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

    @pytest.mark.slow
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
        kinds = ("bad-record", "ledger-removed")
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
        kinds = ("signers-changed", "untracked-artifact")
        found = [(bad, SIGNERS, kind) for kind in kinds]
        assert_found(chain, *found, (bad, "moved/signers", "bad-record"))

    @pytest.mark.slow
    def test_a_submodule_in_the_place_of_a_checkpoint(self, chain: Sealed) -> None:
        chain.git("rm", "-q", "--cached", MODEL)
        chain.git("update-index", "--add", "--cacheinfo", f"160000,{chain.head},{MODEL}")
        assert_found(chain, (chain.commit(), MODEL, "untracked-artifact"))


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
        graph.chmod(0o644)
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

    @pytest.mark.slow
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
