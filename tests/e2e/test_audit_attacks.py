"""Attacks on ledgers and contents: what an audit must find in whichever way they get in."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e import sealed
from tests.e2e.attacks import assert_told, brought_in, commit_of, ways
from tests.e2e.conftest import Grown
from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    OTHER,
    OTHER_LEDGER,
    Sealed,
    assert_found,
    assert_holds,
    assert_holds_by_any_range,
    forged,
    secret,
    text,
)
from wtxtgit.model.ledger import LedgerHead
from wtxtgit.text import ledger as text_ledger

NEW, NEW_LEDGER = "new.safetensors", "new.safetensors.wsum"
REWRITTEN = (MODEL, "ledger-rewritten")


@pytest.fixture
def long(grown: Grown) -> Sealed:
    """Three generations of one checkpoint, two of the other."""

    def grow(chain: Sealed) -> None:
        for number in (2.0, 3.0):
            chain.generation(number)
        chain.generation(8.0, name=OTHER)

    return grown("three and two", grow)


def move(repo: Sealed, old: str, new: str) -> str:
    """Commit a rename of a checkpoint and its ledger."""
    for suffix in ("", ".wsum"):
        repo.git("mv", old + suffix, new + suffix)
    return repo.commit(f"{old} to {new}")


def put_copy(repo: Sealed, revision: str, old: str, new: str) -> None:
    """Write a checkpoint and its ledger as they are elsewhere."""
    for suffix in ("", ".wsum"):
        repo.write(new + suffix, repo.blob(old + suffix, revision))


class TestPlaces:
    """Ledgers that anyone can copy and move, no key being needed."""

    ELSEWHERE = (MODEL, "bad-record"), ("attic/x", "bad-record")

    @ways("merge")
    def test_another_checkpoint_where_a_ledger_moved_away(self, long: Sealed, way: str) -> None:
        main = long.head
        long.branch("experiment")
        long.generation(77.0, name=NEW)
        long.branch("pr", main)
        long.write("attic/x.wsum", long.ledger())
        put_copy(long, "experiment", NEW, MODEL)
        tip = brought_in(long, way, long.commit_all(), main)
        assert long.blob(MODEL, tip) == text(77.0)
        assert_told(long, tip, *self.ELSEWHERE, was=main)

    def test_a_chain_begun_anew_under_another_name(self, long: Sealed) -> None:
        """By a signer, who signs the first content as a first generation again."""
        main = long.head
        long.write("attic/x.wsum", long.ledger())
        read = text_ledger.read(long.ledger()).ledger
        assert read is not None
        other = replace(
            read, head=LedgerHead(read.head.repo, b"any/name"), records=read.records[:1]
        )
        made = forged(text_ledger.format_ledger(other), text(1.0), secret("alice"), keep=0)
        long.write(LEDGER, made)
        long.write(MODEL, text(1.0))
        assert_told(long, long.commit_all(), *self.ELSEWHERE, was=main)

    def test_two_checkpoints_swapped_in_three_moves(self, long: Sealed) -> None:
        first = move(long, MODEL, "third.safetensors")
        second = move(long, OTHER, MODEL)
        third = move(long, "third.safetensors", OTHER)
        assert long.blob(MODEL, "HEAD") == text(8.0)
        wanted = (
            (first, "third.safetensors", "moved-unsealed"),
            # A ledger stands again where it says that it is.
            (second, "third.safetensors", "bad-record"),
            (second, MODEL, "moved-unsealed"),
            (third, MODEL, "bad-record"),
            (third, OTHER, "bad-record"),
        )
        assert_found(long, *wanted)
        assert_found(long, *wanted, args=["--every", "HEAD~3..HEAD"])
        assert_found(long, *wanted[3:], args=["HEAD~1..HEAD"])

    @ways("merge")
    def test_three_moves_as_one(self, long: Sealed, way: str) -> None:
        main = long.head
        for old, new in ((MODEL, NEW), (OTHER, MODEL), (NEW, OTHER)):
            move(long, old, new)
        if way != "fast-forward":
            tip = brought_in(long, way, long.head, main)
            assert_told(long, tip, (MODEL, "bad-record"), (OTHER, "bad-record"), was=main)
        else:
            wanted = [(long.head, name, "bad-record") for name in (MODEL, OTHER)]
            assert_found(long, *wanted, args=["HEAD~1..HEAD", "--was", main])

    @ways("merge")
    def test_a_ledger_of_a_branch_that_was_not_merged(self, long: Sealed, way: str) -> None:
        """Sealed as an experiment, it stands in as another checkpoint."""
        main = long.head
        long.branch("experiment")
        long.generation(77.0, name=NEW)
        long.branch("pr", main)
        put_copy(long, "experiment", NEW, "product.safetensors")
        side = long.commit_all()
        tip = brought_in(long, way, side, main)
        assert_told(long, tip, ("product.safetensors", "bad-record"), was=main)

    @ways("merge")
    def test_a_ledger_of_another_repository(
        self, chain: Sealed, tmp_path: Path, keys: None, way: str
    ) -> None:
        """Its signer is the same person, and its path as well."""
        (tmp_path / "foreign").mkdir()
        foreign = Sealed(tmp_path / "foreign")
        foreign.git("init", "-q")
        foreign.track("*.safetensors")
        foreign.add_signer("alice")
        foreign.add_signer("bob")
        foreign.put(7.0, name=NEW)
        foreign.seal()
        foreign.commit()
        main = chain.head
        for name in (NEW, NEW_LEDGER):
            chain.write(name, foreign.blob(name, "HEAD"))
        side = chain.commit_all("foreign")
        tip = brought_in(chain, way, side, main)
        assert_told(chain, tip, (NEW, "bad-record"), was=main)
        if way == "merge":
            # Of all commits it is the one that did it which is told.
            assert_found(chain, (side, NEW, "bad-record"), args=["--every", tip])


class TestSignatures:
    """Signatures added to a record that already exists: no signer can add their own then."""

    @pytest.fixture
    def cosigned(self, chain: Sealed) -> Sealed:
        chain.add_signer("bob")
        chain.change_signers("alice")
        chain.generation(2.0)
        return chain

    def add_junk(self, repo: Sealed, *keyids: str) -> str:
        """Commit signatures of random bytes on the last record."""
        *lines, last = repo.ledger().splitlines(keepends=True)
        junk = base64.b64encode(bytes(range(64))).decode()
        made = [f"sign ed25519={junk} keyid={keyid}\n".encode() for keyid in keyids]
        ordered = sorted((last, *made), key=lambda line: line.split(b"keyid=")[1])
        repo.write(LEDGER, b"".join((*lines, *ordered)))
        return repo.commit_all("junk")

    @ways("merge")
    def test_random_bytes_of_a_signer(self, cosigned: Sealed, way: str) -> None:
        main = cosigned.head
        keyid = sealed.digest.keyid(secret("bob").public_key)
        tip = brought_in(cosigned, way, self.add_junk(cosigned, keyid), main)
        assert_told(cosigned, tip, (MODEL, "bad-signature"), was=main)

    @ways("merge")
    def test_keys_that_there_are_not(self, cosigned: Sealed, way: str) -> None:
        main = cosigned.head
        evil = self.add_junk(cosigned, *map("{:016x}".format, range(7)))
        tip = brought_in(cosigned, way, evil, main)
        assert_told(cosigned, tip, (MODEL, "untrusted-signer"), was=main)

    def test_on_a_record_before_the_last_one(self, cosigned: Sealed) -> None:
        main = cosigned.head
        lines = cosigned.ledger().splitlines(keepends=True)
        at = next(n for n, line in enumerate(lines) if line.startswith(b"sign "))
        junk = lines[at].replace(lines[at].split(b"keyid=")[1], b"f" * 16 + b"\n")
        cosigned.write(LEDGER, b"".join((*lines[: at + 1], junk, *lines[at + 1 :])))
        assert_told(cosigned, cosigned.commit_all(), (MODEL, "untrusted-signer"), was=main)


class TestMended:
    """What was wrong on a side branch, mended, and taken from there again."""

    @ways("merge")
    def test_a_content_comes_back(self, chain: Sealed, way: str) -> None:
        """By a merge of the side commit that had it, which the range does not judge."""
        chain.generation(2.0)
        chain.branch("pr")
        chain.put(66.0)
        fault = chain.commit("nobody seals")
        chain.git("revert", "--no-edit", "HEAD")
        chain.switch("main")
        chain.write("readme", "x")
        chain.commit_all()
        main = chain.merge("pr")
        assert_holds(chain)
        chain.take(fault, MODEL)
        bad = commit_of(chain, main, fault)
        tip = brought_in(chain, way, bad, main)
        args = [f"{main}..{tip}", "--was", main]
        assert_found(chain, (tip, MODEL, "content-mismatch"), args=args)
        assert_found(chain, (tip, MODEL, "content-mismatch"), root=main, args=[tip])
        wanted = [(one, MODEL, "content-mismatch") for one in dict.fromkeys((bad, tip))]
        told = wanted if way == "merge" else wanted[-1:]
        assert_found(chain, *told, args=["--every", args[0]])
        if way == "fast-forward":
            other = commit_of(chain, fault, main)
            args = [f"{main}..{other}", "--was", main]
            assert_found(chain, (other, MODEL, "content-mismatch"), args=args)

    @ways("merge")
    def test_a_rollback_through_a_broken_ledger(self, long: Sealed, way: str) -> None:
        main = long.head
        long.write(LEDGER, b"WLEDGER 1 broken\n")
        long.commit_all("broken")
        long.take(sealed.ROOT, MODEL, LEDGER)
        evil = long.commit("as of the first generation")
        if way == "fast-forward":
            evil = commit_of(long, main, evil, tree=evil)
        tip = brought_in(long, way, evil, main)
        assert long.blob(MODEL, tip) == text(1.0)
        assert_told(long, tip, REWRITTEN, was=main)

    def test_a_broken_ledger_removed_by_a_second_push(self, long: Sealed) -> None:
        long.write(LEDGER, b"WLEDGER 1\n")
        first = long.commit_all("broken")
        long.git("rm", "-q", LEDGER, MODEL)
        second = long.commit("removed")
        wanted = [(first, MODEL, "bad-record"), (second, MODEL, "ledger-removed")]
        assert_found(long, *wanted)
        assert_found(long, *wanted[1:], args=[f"{first}..{second}", "--was", first])
        # Of a root that has no ledger to read there is none to go on from.
        assert_holds(long, root=first)

    @pytest.mark.parametrize("words", [("--reseal",), ("--reseal=HEAD^1", "--", MODEL)], ids=str)
    def test_a_merge_by_ours_amended(self, chain: Sealed, words: tuple[str, ...]) -> None:
        """An honest merge that dropped a branch's generation, and does as it is told."""
        chain.branch("old")
        chain.generation(9.0)
        chain.switch("main")
        chain.generation(2.0)
        chain.git("merge", "-q", "-s", "ours", "--no-edit", "old")
        assert_found(chain, (chain.head, *REWRITTEN))
        chain.seal(*words)
        chain.git("commit", "-q", "--amend", "--no-edit")
        assert_holds_by_any_range(chain)
        assert chain.ledger().count(b"WSUM 1") == 3


class TestTexts:
    @ways("merge")
    def test_in_the_place_of_a_file_without_a_filter(self, chain: Sealed, way: str) -> None:
        """It has the file's hash, and says more than the file does."""
        content = b"the true content\n"
        chain.write("data.tar", content)
        chain.add("data.tar")
        chain.seal("data.tar")
        main = chain.commit("tar")
        assert_holds(chain)
        file = chain.write("../data", content)
        words = ("--audit", "note=other words", "--build", "other", "--gen", "9")
        chain.call("emit", str(file), "-o", str(chain.path / "text"), *words)
        (chain.path / "text").rename(chain.path / "data.tar")
        tip = brought_in(chain, way, chain.commit_all("as a text"), main)
        assert_told(chain, tip, ("data.tar", "untracked-artifact"), was=main)


class TestSealing:
    def test_what_follows_reseal_is_a_path(self, chain: Sealed) -> None:
        """Even where a revision has its name: records of that one would be kept."""
        chain.git("tag", MODEL)
        chain.generation(2.0)
        chain.put(3.0)
        chain.put(3.0, name=OTHER)
        said = chain.seal("--reseal", MODEL)
        assert said.out.startswith(f"sealed    {MODEL}  generation 3, ")
        assert OTHER not in said.out
        assert chain.blob(OTHER_LEDGER) == chain.blob(OTHER_LEDGER, "HEAD")

    def test_a_folder_that_leads_into_git(self, chain: Sealed) -> None:
        """A ledger is neither written to where its folder leads, nor staged."""
        chain.put(4.0, name="sub/new.safetensors")
        (chain.path / "sub/new.safetensors").unlink()
        (chain.path / "sub").rmdir()
        (chain.path / "sub").symlink_to(".git/hooks")
        hooks = chain.path / ".git/hooks"
        before = chain.git("ls-files", "-s"), sorted(hooks.iterdir())
        said = chain.call("seal", "--staged", "--key", "alice", ok=(1,))
        assert "sub/new.safetensors.wsum: a link is in the way" in said.err
        assert (chain.git("ls-files", "-s"), sorted(hooks.iterdir())) == before
