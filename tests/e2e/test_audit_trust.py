"""What an audit must find of keys and signers; where nothing but trust fails it exits with 4."""

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
    Sealed,
    assert_found,
    assert_holds,
    forged,
    secret,
    text,
)


class TestRecords:
    def test_by_a_foreign_signer(self, chain: Sealed) -> None:
        bad = chain.generation(2.0, key="mallory")
        assert_found(chain, (bad, MODEL, "untrusted-signer"), code=4)

    def test_that_nobody_signed(self, chain: Sealed) -> None:
        chain.write(LEDGER, forged(chain.ledger(), text(2.0), None))
        chain.write(MODEL, text(2.0))
        assert_found(chain, (chain.commit_all(), MODEL, "missing-signature"), code=4)

    def test_with_a_forged_signature(self, chain: Sealed) -> None:
        """It names alice's key, and mallory made it."""
        made = forged(chain.ledger(), text(2.0), secret("mallory"))
        names = [sealed.digest.keyid(secret(n).public_key).encode() for n in ("mallory", "alice")]
        chain.write(LEDGER, made.replace(*names))
        chain.write(MODEL, text(2.0))
        assert_found(chain, (chain.commit_all(), MODEL, "bad-signature"), code=4)

    def test_of_another_content_than_was_signed(self, chain: Sealed) -> None:
        """A signed record whose hashes are made to fit other content."""
        signed = forged(chain.ledger(), text(2.0), secret("alice"))
        bare = forged(chain.ledger(), text(3.0), None)
        chain.write(LEDGER, bare + signed.splitlines(keepends=True)[-1])
        chain.write(MODEL, text(3.0))
        assert_found(chain, (chain.commit_all(), MODEL, "bad-signature"), code=4)

    def test_of_another_checkpoint(self, chain: Sealed) -> None:
        """A signature is over the ledger's first line: it does not hold elsewhere."""
        signed = forged(chain.ledger(), text(2.0), secret("alice"))
        made = forged(chain.ledger(sealed.OTHER_LEDGER), text(2.0), None)
        chain.write(sealed.OTHER_LEDGER, made + signed.splitlines(keepends=True)[-1])
        chain.write(OTHER, text(2.0))
        assert_found(chain, (chain.commit_all(), OTHER, "bad-signature"), code=4)

    @pytest.mark.slow
    def test_one_of_several_that_is_bad(self, chain: Sealed) -> None:
        keys = ("mallory", "alice", "bob")
        made = [chain.generation(float(n), key=key) for n, key in enumerate(keys, start=2)]
        # What goes on from a record that does not count does not count either.
        wanted = [(commit, MODEL, "untrusted-signer") for commit in made]
        assert_found(chain, *wanted, code=4)
        assert_found(chain, *wanted[1:], code=4, args=[f"{made[0]}..HEAD"])

    def test_a_trusted_signature_beside_a_foreign_one(self, chain: Sealed) -> None:
        chain.put(2.0)
        chain.seal(key="mallory")
        chain.seal("--cosign", MODEL)
        chain.commit()
        assert_holds(chain)

    @pytest.mark.slow
    def test_signatures_are_not_asked_for_where_there_are_no_signers(
        self, tmp_path: Path, keys: None
    ) -> None:
        (tmp_path / "chain").mkdir()
        repo = Sealed(tmp_path / "chain")
        repo.git("init", "-q")
        repo.track("*.safetensors")
        signed = repo.generation(1.0)
        assert_holds(repo, root=None)
        repo.write(LEDGER, forged(repo.ledger(), text(2.0), None))
        repo.write(MODEL, text(2.0))
        unsigned = repo.commit_all()
        assert_holds(repo, root=None)
        for root in (None, signed, unsigned):
            bad = ("", "", "bad-root")
            assert_found(repo, bad, code=4, args=["--require-signed"], root=root)

    def test_a_seal_is_asked_for_only_where_there_are_signers(
        self, tmp_path: Path, keys: None
    ) -> None:
        (tmp_path / "chain").mkdir()
        repo = Sealed(tmp_path / "chain")
        repo.git("init", "-q")
        repo.track("*.safetensors")
        repo.put(1.0)
        bad = repo.commit()
        said = repo.audit(root=None)
        assert said.code == 0
        assert said.found == [sealed.Found(bad, MODEL, "unsealed", "warning")]
        said = repo.audit("--require-signed", root=None)
        assert (said.code, said.kinds) == (4, {"bad-root", "unsealed"})


class TestRequests:
    """A pull request that adds its own key, and signs with it."""

    @pytest.fixture
    def pr(self, chain: Sealed) -> Sealed:
        chain.branch("pr")
        chain.add_signer("mallory")
        chain.change_signers("mallory")
        chain.generation(2.0, key="mallory")
        return chain

    def wanted(self, commit: str) -> list[tuple[str, str, str]]:
        return [
            (commit, SIGNERS, "signers-changed"),
            (commit, MODEL, "untrusted-signer"),
        ]

    def test_commit_by_commit(self, pr: Sealed) -> None:
        (_, last), (first, _) = map(self.wanted, (pr.head, pr.oid("HEAD~1")))
        assert_found(pr, first, last, code=4)
        assert_found(pr, first, last, code=4, args=["main..HEAD"])
        # The tip's whole tree is judged, whatever the range.
        assert_found(pr, *self.wanted(pr.head), code=4, args=["HEAD~1..HEAD"])

    def test_merged(self, pr: Sealed) -> None:
        pr.switch("main")
        pr.write("readme", "x")
        pr.commit_all()
        merged = pr.merge("pr")
        assert_found(pr, *self.wanted(merged), code=4)
        assert_found(pr, *self.wanted(merged), code=4, args=["HEAD~1..HEAD"])
        worse = pr.generation(3.0, key="mallory")
        assert_found(pr, *self.wanted(worse), code=4, args=["HEAD~1..HEAD"])

    def test_squashed(self, pr: Sealed) -> None:
        pr.switch("main")
        pr.git("merge", "-q", "--squash", "pr")
        assert_found(pr, *self.wanted(pr.commit("squashed")), code=4)

    def test_rebased(self, pr: Sealed) -> None:
        pr.switch("main")
        pr.write("readme", "x")
        pr.commit_all()
        pr.switch("pr")
        pr.git("rebase", "-q", "main")
        (_, last), (first, _) = map(self.wanted, (pr.head, pr.oid("HEAD~1")))
        assert_found(pr, first, last, code=4)

    def test_with_the_file_changed_and_never_sealed(self, chain: Sealed) -> None:
        chain.add_signer("mallory")
        bad = chain.commit("mine")
        assert_found(chain, (bad, SIGNERS, "signers-changed"), (bad, SIGNERS, "content-mismatch"))
        worse = chain.generation(2.0, key="mallory")
        found = assert_found(
            chain,
            (bad, SIGNERS, "signers-changed"),
            (bad, SIGNERS, "content-mismatch"),
            (worse, MODEL, "untrusted-signer"),
        )
        assert found.report["signers"] == ["alice@example.com"]

    @pytest.mark.slow
    def test_with_the_keys_last_record_cosigned_by_nobody_trusted(self, pr: Sealed) -> None:
        """Once a trusted signer seals the change it counts from there on, not before."""
        before = pr.audit()
        pr.seal("--cosign", SIGNERS, key="alice")
        pr.commit("alice agrees")
        pr.generation(3.0, key="mallory")
        assert pr.audit().found == before.found


def test_a_file_as_root_that_others_signed_before(chain: Sealed, tmp_path: Path) -> None:
    """The root's file trusts carol; the history was begun by alice."""
    (tmp_path / "carol").write_text(
        f"carol@example.com {(Path.home() / '.config/wtxtgit/keys/carol.pub').read_text()}"
    )
    said = chain.audit(root=str(tmp_path / "carol"))
    assert said.code == 1
    # The repository is named by signers who count for nothing.
    assert said.kinds == {"signers-changed", "untrusted-signer", "bad-record"}
    assert said.report["signers"] == ["carol@example.com"]


class TestNamesOfTheRoot:
    """A push must not be able to give the root's name to another commit."""

    @pytest.mark.parametrize(
        "spelled", ["{:.12}", "{:.7}^{{commit}}", "v1-0-g{:.10}", "HEAD^{{/.}}"]
    )
    def test_that_a_push_can_take_is_refused(self, chain: Sealed, spelled: str) -> None:
        name = spelled.format(chain.oid(ROOT))
        said = chain.call("audit", "--trust-root", name, ok=(4, 5))
        assert "is not a whole commit id" in said.out + said.err

    @pytest.mark.parametrize("kind", ["branch", "tag"])
    def test_abbreviated_that_was_taken_is_refused(self, chain: Sealed, kind: str) -> None:
        short = chain.oid(ROOT)[:12]
        chain.git(kind, short, "HEAD")
        assert "may mean refs/" in chain.call("audit", "--trust-root", short, ok=(4,)).out

    def test_that_a_branch_and_a_tag_have_is_refused(self, chain: Sealed) -> None:
        chain.git("branch", ROOT, "HEAD")
        said = chain.call("audit", "--trust-root", ROOT, ok=(4,)).out
        assert f"may mean refs/tags/{ROOT} or refs/heads/{ROOT}" in said
        chain.call("audit", "--trust-root", f"refs/tags/{ROOT}")

    def test_that_is_a_whole_id_holds_whatever_refs_there_are(self, chain: Sealed) -> None:
        root = chain.oid(ROOT)
        chain.git("update-ref", f"refs/tags/{root}", "HEAD")
        for name in (root, root.upper()):
            chain.call("audit", "--trust-root", name)
