"""Attacks on the trusted signers: merges whose parents are chosen, files that were trusted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.attacks import WAYS, assert_told, brought_in, commit_of, ways
from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    ROOT,
    SIGNERS,
    SIGNERS_LEDGER,
    Sealed,
    assert_found,
    assert_holds,
    forged,
    secret,
    text,
)

CHANGED = (SIGNERS, "signers-changed")
UNTRUSTED = (CHANGED, (MODEL, "untrusted-signer"))
MALLORY = "mallory@example.com"


@pytest.fixture
def begun(tmp_path: Path, keys: None) -> Sealed:
    """A repository without a commit."""
    (tmp_path / "begun").mkdir()
    repo = Sealed(tmp_path / "begun")
    repo.git("init", "-q")
    repo.track("*.safetensors")
    return repo


def signers_of(repo: Sealed) -> bytes:
    """The signers file of the work tree."""
    return (repo.path / SIGNERS).read_bytes()


def stage_takeover(
    repo: Sealed, main: str, signers: bytes, *, sealed_by: str = "mallory", model: bool = True
) -> None:
    """Stage main with other signers, sealed after its own, and a generation by mallory."""
    repo.git("reset", "-q", "--hard", main)
    repo.write(SIGNERS, signers)
    ledger = repo.blob(SIGNERS_LEDGER, main)
    repo.write(SIGNERS_LEDGER, forged(ledger, signers, secret(sealed_by)))
    if model:
        repo.put(66.0)
        repo.write(LEDGER, forged(repo.ledger(LEDGER, main), text(66.0), secret("mallory")))
    repo.add()


def remove_mallory(repo: Sealed) -> str:
    repo.call("signers", "remove", MALLORY)
    repo.add(SIGNERS)
    return repo.change_signers("alice")


class TestDiverged:
    """Two signers from where S diverged on: main then asks for both."""

    @pytest.fixture
    def side(self, chain: Sealed) -> Sealed:
        """Bob alone puts out alice and lets in mallory, on a branch begun before."""
        chain.add_signer("bob")
        fork = chain.change_signers("alice")
        chain.set_threshold(2)
        chain.change_signers("alice")
        chain.branch("side", fork)
        chain.call("signers", "remove", "alice@example.com")
        chain.add_signer("mallory")
        chain.change_signers("bob")
        return chain

    @pytest.mark.parametrize("way", WAYS)
    def test_one_of_two_takes_over(self, side: Sealed, way: str) -> None:
        """By a record at the end of the branch's ledger, and with the branch as first parent."""
        mine = signers_of(side)
        ledger = side.blob(SIGNERS_LEDGER, "side")
        side.write(SIGNERS_LEDGER, forged(ledger, mine, secret("bob")))
        side.put(66.0)
        side.write(LEDGER, forged(side.ledger(LEDGER, "main"), text(66.0), secret("mallory")))
        side.add()
        main = side.oid("main")
        tip = brought_in(side, way, commit_of(side, "side", "main"), main)
        wanted = {
            "fast-forward": [CHANGED, (MODEL, "untrusted-signer")],
            "merge": [CHANGED, (MODEL, "untrusted-signer")],
            "squash": [
                CHANGED,
                (SIGNERS, "ledger-rewritten"),
                (MODEL, "untrusted-signer"),
            ],
        }
        assert_told(side, tip, *wanted[way], was=main)


class TestFilesOfBefore:
    """Signers that main has put out, or never had, come back with a parent that knew no better."""

    @pytest.fixture
    def rid(self, begun: Sealed) -> Sealed:
        """Alice and mallory were the first signers, mallory is none any more; tag `root`."""
        begun.add_signer("alice")
        begun.add_signer("mallory")
        begun.commit("nobody seals them yet")
        begun.git("tag", ROOT)
        begun.seal(SIGNERS)
        begun.generation(1.0)
        remove_mallory(begun)
        return begun

    @ways("fast-forward")
    def test_a_root_whose_signers_were_not_sealed(self, rid: Sealed, way: str) -> None:
        main = rid.head
        assert_holds(rid)
        stage_takeover(rid, main, rid.blob(SIGNERS, ROOT))
        tip = brought_in(rid, way, commit_of(rid, ROOT, main), main)
        assert_told(rid, tip, *UNTRUSTED, was=main)

    @ways("fast-forward")
    @pytest.mark.parametrize("first", ["orphan", ROOT])
    def test_a_file_as_root(self, rid: Sealed, tmp_path: Path, first: str, way: str) -> None:
        """With its ledger: its signers are those before any history's first commit."""
        main, start = rid.head, rid.blob(SIGNERS, ROOT)
        (tmp_path / "trusted").write_bytes(start)
        (tmp_path / "trusted.wsum").write_bytes(rid.blob(SIGNERS_LEDGER, "HEAD~1"))
        root = str(tmp_path / "trusted")
        if first == "orphan":
            rid.git("read-tree", "--empty")
            first = commit_of(rid)
        stage_takeover(rid, main, start)
        tip = brought_in(rid, way, commit_of(rid, first, main), main)
        assert_told(rid, tip, *UNTRUSTED, was=main, root=root)
        assert rid.audit(tip, root=root).report["signers"] == ["alice@example.com"]

    @ways("fast-forward")
    def test_a_threshold_of_a_root_that_was_not_sealed(self, begun: Sealed, way: str) -> None:
        begun.add_signer("alice")
        begun.add_signer("bob")
        first = begun.commit("nobody seals them yet")
        begun.seal()
        begun.commit("sealed")
        begun.set_threshold(2)
        main = begun.change_signers("alice")
        stage_takeover(begun, main, begun.blob(SIGNERS, first), sealed_by="bob", model=False)
        tip = brought_in(begun, way, commit_of(begun, first, main), main)
        assert_told(begun, tip, CHANGED, was=main, root=first)

    @ways("fast-forward")
    def test_a_threshold_of_before(self, chain: Sealed, way: str) -> None:
        """Bob alone puts back the file that asked for one, which its commit still has."""
        chain.add_signer("bob")
        first = chain.change_signers("alice")
        chain.set_threshold(2)
        main = chain.change_signers("alice")
        stage_takeover(chain, main, chain.blob(SIGNERS, first), sealed_by="bob", model=False)
        tip = brought_in(chain, way, commit_of(chain, first, main), main)
        assert_told(chain, tip, CHANGED, was=main)
        assert_told(chain, tip, CHANGED, was=main, root=first)

    @ways("fast-forward")
    @pytest.mark.parametrize("is_pinned", [True, False], ids=["root", "no-root"])
    def test_signers_from_before_the_first_ones(
        self, begun: Sealed, way: str, is_pinned: bool
    ) -> None:
        """Mallory, who never was a signer, branches off where there were none."""
        before = begun.commit("no signers yet")
        begun.add_signer("alice")
        begun.put(1.0)
        begun.seal()
        main = begun.commit("sealed")
        root = before if is_pinned else None
        assert_holds(begun, root=main)
        begun.branch("evil", before)
        begun.add_signer("mallory")
        evil = begun.commit("no ledger")
        stage_takeover(begun, main, begun.blob(SIGNERS, evil))
        tip = brought_in(begun, way, commit_of(begun, evil, main), main)
        wanted = UNTRUSTED
        if way == "fast-forward" and not is_pinned:
            # The first signers on the line of first parents are mallory's: alice is the stranger.
            wanted = (CHANGED, (SIGNERS, "untrusted-signer"), (MODEL, "bad-record"))
        assert_told(begun, tip, *wanted, was=main, root=root)


class TestThreshold:
    def test_over_the_number_of_keys(self, chain: Sealed) -> None:
        """Else nobody could ever change the signers again."""
        chain.set_threshold(2)
        # `seal` refuses them: whoever wants them writes the record without it.
        signers = (chain.path / SIGNERS).read_bytes()
        ledger = chain.ledger(SIGNERS_LEDGER)
        chain.write(SIGNERS_LEDGER, forged(ledger, signers, secret("alice")))
        chain.add(SIGNERS_LEDGER)
        bad = chain.commit("a threshold of 2")
        assert_found(chain, (bad, *CHANGED), code=4)
        # It counts for nothing: alice alone goes on, and changes them.
        chain.generation(2.0)
        chain.set_threshold(1)
        chain.add_signer("bob")
        chain.change_signers("alice")
        chain.generation(3.0, key="bob")
        said = assert_found(chain, (bad, *CHANGED), code=4)
        assert said.report["signers"] == ["alice@example.com", "bob@example.com"]


class TestOtherHistories:
    @pytest.mark.parametrize("args", [(), ("--every",)], ids=str)
    def test_one_without_signers_merged(self, chain: Sealed, args: tuple[str, ...]) -> None:
        """Pages of docs, say: it has taken nobody's signers away."""
        chain.git("checkout", "-q", "--orphan", "pages")
        chain.git("rm", "-rqf", ".")
        chain.write("page", "x")
        chain.commit_all("pages")
        chain.switch("main")
        chain.git("merge", "-q", "--no-edit", "--allow-unrelated-histories", "pages")
        assert_holds(chain, *args)
        chain.generation(2.0)
        assert_holds(chain, *args)


class TestRoots:
    """A name that is to be a commit's is never taken for that of a file of the repository."""

    @pytest.mark.parametrize("name", ["v1.0", "0" * 39 + "1"], ids=["tag", "id"])
    @pytest.mark.parametrize("is_configured", [False, True], ids=["option", "config"])
    def test_a_file_of_the_name_of_what_is_missing(
        self, chain: Sealed, name: str, is_configured: bool
    ) -> None:
        """Else a branch whose tag was not fetched brings its own signers."""
        chain.write(name, chain.blob(SIGNERS, "HEAD"))
        chain.commit_all("mine")
        if is_configured:
            chain.git("config", "wtxtgit.trustRoot", name)
        pinned = () if is_configured else ("--trust-root", name)
        said = chain.call("audit", *pinned, ok=(5,))
        assert said.out == ""
        assert f"hint: to name a signers file, write ./{name}\n" in said.err
        # With its folder it is what was meant.
        assert_holds(chain, root=f"./{name}")

    def test_a_file_in_a_folder(self, chain: Sealed) -> None:
        chain.write("ci/signers", chain.blob(SIGNERS, "HEAD"))
        chain.commit_all("mine")
        said = assert_holds(chain, root="ci/signers")
        assert said.report["commits"] == 2

    def test_no_commit_was_judged(self, chain: Sealed) -> None:
        said = assert_holds(chain, "HEAD..HEAD")
        assert said.report["commits"] == 0
        proved = "no commit was judged, but the files at the tip match their seals"
        assert said.report["notes"] == [proved]
        assert proved in chain.call("audit", "--trust-root", ROOT, "HEAD..HEAD").out

    def test_the_tip_is_judged_whatever_the_range(self, chain: Sealed) -> None:
        chain.put(2.0)
        bad = chain.commit("nobody seals")
        said = assert_found(chain, (bad, MODEL, "content-mismatch"), args=["HEAD..HEAD"])
        assert said.report["notes"] == ["no commit was judged"]
