"""Where an audit must pass: trust roots, changes of signers, and kinds of repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e import sealed
from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    OTHER,
    ROOT,
    SIGNERS,
    SIGNERS_LEDGER,
    Sealed,
    assert_found,
    assert_holds,
    text,
)
from tests.kit import LAUNCHER
from wtxtgit.git import run
from wtxtgit.model.array import Array, Meta, Snapshot
from wtxtgit.text.grammar import CAP
from wtxtgit.text.write import TextWriter


class TestSigners:
    def test_rotation_with_a_threshold_of_two(self, chain: Sealed) -> None:
        chain.add_signer("bob")
        chain.set_threshold(2)
        chain.change_signers("alice")
        assert_holds(chain)
        # Alice goes, carol comes: both of the signers before say so.
        chain.add_signer("carol")
        chain.call("signers", "remove", "alice@example.com")
        chain.add(SIGNERS)
        chain.change_signers("alice", "bob")
        chain.generation(2.0, key="carol")
        chain.generation(3.0, key="bob")
        said = assert_holds(chain)
        assert said.report["signers"] == ["bob@example.com", "carol@example.com"]
        assert_holds(chain, "HEAD~1..HEAD")
        assert_holds(chain, root=None)
        # What alice has signed stays good.
        assert_holds(chain, root="HEAD")

    @pytest.mark.slow
    def test_a_change_that_is_cosigned_in_a_later_commit(self, chain: Sealed) -> None:
        """The change counts from the commit that has the second signature."""
        chain.add_signer("bob")
        chain.set_threshold(2)
        chain.change_signers("alice")
        chain.branch("pr")
        chain.add_signer("carol")
        change = chain.change_signers("alice")
        chain.seal("--cosign", SIGNERS, key="bob")
        chain.commit("cosigned")
        chain.generation(2.0, key="carol")
        assert_found(chain, (change, SIGNERS, "signers-changed"), code=4)
        # Merged as one it is in order.
        chain.switch("main")
        chain.merge("pr")
        assert_holds(chain)

    def test_a_merge_of_a_branch_that_changed_them(self, chain: Sealed) -> None:
        chain.branch("pr")
        chain.add_signer("bob")
        chain.change_signers("alice")
        chain.generation(2.0, key="bob")
        chain.switch("main")
        chain.generation(2.0, name=OTHER)
        chain.merge("pr")
        for args in ((), ("--every",), ("HEAD~1..HEAD",), (f"{ROOT}..HEAD",)):
            assert_holds(chain, *args)
        chain.generation(3.0, key="bob")
        assert_holds(chain)

    @pytest.mark.parametrize("way", ["squash", "rebase"])
    @pytest.mark.slow
    def test_a_squashed_or_rebased_branch_that_changed_them(self, chain: Sealed, way: str) -> None:
        chain.branch("pr")
        chain.add_signer("bob")
        chain.change_signers("alice")
        chain.generation(2.0, key="bob")
        chain.switch("main")
        chain.generation(2.0, name=OTHER)
        if way == "squash":
            chain.git("merge", "-q", "--squash", "pr")
            chain.commit("squashed")
        else:
            chain.switch("pr")
            chain.git("rebase", "-q", "main")
        assert_holds(chain)

    def test_changes_of_both_sides_joined_by_a_record(self, chain: Sealed) -> None:
        chain.branch("pr")
        chain.add_signer("bob")
        chain.change_signers("alice")
        chain.switch("main")
        chain.add_signer("carol")
        chain.change_signers("alice")
        chain.merge("pr", ok=(1,))
        chain.take("main", SIGNERS)
        chain.add_signer("bob")
        chain.seal("--reseal")
        chain.commit("merged")
        for key in ("bob", "carol"):
            chain.generation(float(len(key)), key=key)
        said = assert_holds(chain)
        assert len(said.report["signers"]) == 3
        assert_holds(chain, "--every")

    def test_a_repository_without_signers(self, tmp_path: Path, keys: None) -> None:
        """Records are chained, whoever signs them; nothing is trusted."""
        (tmp_path / "chain").mkdir()
        repo = Sealed(tmp_path / "chain")
        repo.git("init", "-q")
        repo.track("*.safetensors")
        for number in (1.0, 2.0):
            repo.generation(number)
        said = assert_holds(repo, root=None)
        assert said.report["notes"] == [
            "no trust root is given: nobody is trusted, since no commit has signers"
        ]


class TestTrustRoot:
    @pytest.fixture
    def late(self, tmp_path: Path, keys: None) -> Sealed:
        """A repository of raw binaries, tracked and sealed by its third commit."""
        folder = tmp_path / "late"
        folder.mkdir()
        repo = Sealed(folder)
        repo.git("init", "-q")
        repo.write(MODEL, sealed.checkpoint(1.0))
        repo.commit_all("raw")
        repo.track("*.safetensors")
        repo.commit("tracked, not yet renormalized")
        repo.git("tag", "before")
        repo.add_signer("alice")
        repo.put(1.0)
        repo.seal()
        repo.commit("adopted")
        repo.git("tag", ROOT)
        repo.generation(2.0)
        return repo

    def test_a_repository_adopted_late(self, late: Sealed) -> None:
        assert assert_holds(late).report["unjudged"] == 3
        # Without one trust starts at the first signers, as well.
        assert assert_holds(late, root=None).report["unjudged"] == 3
        # What was before it is judged from a root that is older.
        assert "raw-binary" in late.audit(root="before~1").kinds

    def test_branches_begun_before_the_root(self, late: Sealed) -> None:
        late.branch("old", "before")
        late.write("notes", "x\n")
        late.commit_all("notes")
        late.switch("main")
        late.merge("old")
        assert_holds(late)
        assert_holds(late, "--every")
        assert_holds(late, "HEAD~1..HEAD")
        late.generation(3.0)
        assert_holds(late)

    @pytest.mark.slow
    def test_a_checkpoint_of_a_branch_begun_before_the_root(self, late: Sealed) -> None:
        late.branch("old", "before")
        late.put(5.0, name=OTHER)
        late.commit("a checkpoint that nobody seals")
        late.switch("main")
        late.git("merge", "-q", "--no-ff", "--no-commit", "old")
        late.seal()
        late.commit("merged, and sealed")
        assert_holds(late)

    def test_a_root_moved_past_an_accepted_fault(self, chain: Sealed) -> None:
        chain.put(2.0)
        fault = chain.commit("nobody seals")
        chain.generation(3.0)
        assert_found(chain, (fault, MODEL, "content-mismatch"))
        assert_holds(chain, root=fault)
        assert_holds(chain, f"{fault}..HEAD")

    @pytest.mark.parametrize("kind", ["rewritten", "removed"])
    @pytest.mark.slow
    def test_a_root_moved_past_an_accepted_loss(self, chain: Sealed, kind: str) -> None:
        chain.git("rm", "-q", "--cached", LEDGER)
        (chain.path / LEDGER).unlink()
        if kind == "rewritten":
            chain.seal()
        fault = chain.commit("a new ledger")
        assert f"ledger-{kind}" in chain.audit().kinds
        if kind == "removed":
            chain.seal()
            fault = chain.commit("begun anew")
        chain.generation(3.0)
        assert_holds(chain, root=fault)

    def test_the_root_is_a_file(self, chain: Sealed, tmp_path: Path) -> None:
        file = tmp_path / "trusted"
        file.write_bytes(chain.blob(SIGNERS, ROOT))
        chain.add_signer("bob")
        chain.change_signers("alice")
        chain.generation(2.0, key="bob")
        (tmp_path / "trusted.wsum").write_bytes(chain.blob(SIGNERS_LEDGER, ROOT))
        said = assert_holds(chain, root=str(file))
        assert (said.report["commits"], said.report["unjudged"]) == (3, 0)
        assert_holds(chain, "HEAD~1..HEAD", root=str(file))

    def test_the_root_is_a_file_that_fixes_the_signers(self, chain: Sealed, tmp_path: Path) -> None:
        """Without its ledger: then the tip has the same signers, and nobody else seals."""
        file = tmp_path / "trusted"
        file.write_bytes(chain.blob(SIGNERS, ROOT))
        chain.generation(2.0)
        assert_holds(chain, root=str(file))
        chain.add_signer("bob")
        chain.change_signers("alice")
        bad = chain.generation(3.0, key="bob")
        found = [(bad, SIGNERS, "signers-changed"), (bad, MODEL, "untrusted-signer")]
        said = assert_found(chain, *found, code=4, root=str(file))
        assert said.report["signers"] == ["alice@example.com"]

    def test_the_root_is_a_file_of_later_signers(self, chain: Sealed, tmp_path: Path) -> None:
        """Commits whose ledger begins its own are from before it; no older record comes back."""
        chain.put(2.0)
        chain.commit("nobody seals")
        chain.generation(3.0)
        chain.add_signer("bob")
        chain.change_signers("alice")
        file = tmp_path / "trusted"
        for suffix, name in (("", SIGNERS), (".wsum", SIGNERS_LEDGER)):
            (tmp_path / f"trusted{suffix}").write_bytes(chain.blob(name, "HEAD"))
        chain.generation(4.0, key="bob")
        said = assert_holds(chain, root=str(file))
        assert (said.report["commits"], said.report["unjudged"]) == (2, 3)
        chain.take(ROOT, SIGNERS, SIGNERS_LEDGER)
        bad = chain.commit("older signers")
        found = [(bad, SIGNERS, kind) for kind in ("signers-changed", "ledger-rewritten")]
        assert_found(chain, *found, root=str(file))

    def test_the_root_of_the_configuration(self, chain: Sealed) -> None:
        chain.git("config", "wtxtgit.trustRoot", ROOT)
        chain.generation(2.0)
        assert assert_holds(chain, root=None).report["unjudged"] == 1

    def test_the_root_is_the_tip(self, chain: Sealed) -> None:
        said = assert_holds(chain, root="HEAD")
        proved = "no commit was judged, but the files at the tip match their seals"
        assert (said.report["commits"], said.report["notes"]) == (0, [proved])


class TestKinds:
    def test_sha256(self, tmp_path: Path, keys: None) -> None:
        repo = sealed.make(tmp_path / "chain", "--object-format=sha256")
        repo.generation(2.0)
        assert len(repo.head) == 64
        assert_holds(repo)
        repo.put(3.0)
        assert_found(repo, (repo.commit(), MODEL, "content-mismatch"))

    def test_a_bare_clone(self, chain: Sealed) -> None:
        chain.generation(2.0)
        bare = Sealed(chain.clone("bare", "--bare").path)
        assert_holds(bare)
        assert (bare.path / "wtxtgit/facts.sqlite").exists()
        assert_holds(bare)

    def test_a_linked_worktree(self, chain: Sealed, tmp_path: Path) -> None:
        chain.git("worktree", "add", "-q", "-b", "linked", str(tmp_path / "linked"))
        linked = Sealed(tmp_path / "linked")
        linked.generation(2.0)
        assert_holds(linked)
        assert_holds(chain, "linked")

    @pytest.mark.slow
    def test_a_subfolder(self, chain: Sealed) -> None:
        chain.generation(2.0, name=f"sub/{MODEL}")
        assert_holds(Sealed(chain.path / "sub"))

    def test_a_partial_clone(self, chain: Sealed) -> None:
        chain.generation(2.0)
        chain.git("config", "uploadpack.allowFilter", "true")
        clone = chain.path.parent / "partial"
        source = f"file://{chain.path}"
        chain.git("clone", "-q", "--filter=blob:none", "--no-checkout", source, str(clone))
        missing = Sealed(clone).git("rev-list", "--objects", "--all", "--missing=print")
        assert b"\n?" in missing
        assert_holds(Sealed(clone))

    @pytest.mark.slow
    def test_a_single_branch(self, chain: Sealed) -> None:
        chain.generation(2.0)
        chain.branch("other")
        chain.generation(3.0)
        clone = Sealed(chain.clone("single", "--single-branch", "--branch", "main").path)
        assert_holds(clone)


def test_native_texts_with_generations_of_their_own(chain: Sealed) -> None:
    """Their records have their own gen, ts and build."""
    chain.track("*.safetensors", "*.wtxt")
    for gen in (7, 19):
        meta = Meta(gen=gen, ts=f"2026-01-{gen:02}T00:00:00Z", build=f"b{gen}")
        array = Array("w", "u8", (1,), memoryview(bytes([gen])))
        chain.write("weights.wtxt", b"".join(TextWriter(Snapshot(meta, (array,), CAP)).stream()))
        chain.add("weights.wtxt")
        chain.seal()
        chain.commit(f"generation {gen}")
    assert b" gen=000019 ts=2026-01-19T00:00:00Z build=b19 " in chain.ledger("weights.wtxt.wsum")
    assert_holds(chain)


@pytest.mark.slow
def test_with_the_driver(chain: Sealed, home: Path) -> None:
    """The commands as processes, files as people have them, texts in git alone."""
    for key, value in LAUNCHER.values().items():
        run.git("config", "--global", key, value, cwd=home)
    (chain.path / MODEL).unlink()
    chain.git("checkout", "-q", "--", ".")
    assert (chain.path / MODEL).read_bytes() == sealed.checkpoint(1.0)
    chain.write(MODEL, sealed.checkpoint(2.0))
    # Sealed from the work tree: what git will store is what counts.
    chain.wtxtgit("seal", "--key", "alice")
    chain.add(MODEL, LEDGER)
    chain.commit("second")
    assert chain.blob(MODEL, "HEAD") == text(2.0)
    done = chain.wtxtgit("audit", "--trust-root", ROOT)
    assert done.stdout.startswith(b"ok: 1 commit judged")
    chain.write(MODEL, sealed.checkpoint(3.0))
    chain.add(MODEL)
    chain.commit("nobody seals")
    done = chain.wtxtgit("audit", "--trust-root", ROOT, ok=(1,))
    assert b"content-mismatch" in done.stdout
