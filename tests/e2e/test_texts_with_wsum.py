"""A pending text and its WSUM in git: sealed, checked and audited as one. `docs/sealing.md`."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import wtxtgit
from tests.e2e.conftest import Grown
from tests.e2e.sealed import Sealed, assert_found, assert_holds
from wtxtgit.filter.content import opaque_hash
from wtxtgit.model.array import Meta, Signature
from wtxtgit.text import digest
from wtxtgit.text import ledger as text_ledger

TEXT, WSUM, TEXT_LEDGER = "p.wtxt", "p.wtxt.root.wsum", "p.wtxt.wsum"
META = Meta("weights/v1", 5, "2026-01-31T12:00:00Z", "x")


def stranger(message: bytes) -> Signature:
    return digest.sign(bytes(32), message)


def write(chain: Sealed, value: float = 1.0, name: str = TEXT, *, pending: bool = True) -> Path:
    path = chain.path / name
    # Whatever ending it has: `dump` would take that for its format.
    path.write_bytes(wtxtgit.dumps({"W": np.full(7, value)}, meta=META, pending=pending))
    return path


@pytest.fixture
def sealed(grown: Grown) -> Sealed:
    """Both are committed, sealed."""

    def grow(chain: Sealed) -> None:
        wtxtgit.finalize(write(chain))
        chain.add(TEXT, WSUM)
        chain.seal(TEXT)
        chain.call("check", "--staged")
        chain.commit()

    return grown("with a wsum", grow)


def checked(chain: Sealed) -> set[tuple[str, str, str]]:
    said = chain.call("check", "--staged", "--json", ok=(0, 1, 4))
    return {(one.path, one.kind, one.severity) for one in said.found}


class TestTogether:
    def test_the_seal_is_of_both(self, sealed: Sealed) -> None:
        assert_holds(sealed)
        assert_holds(sealed, "--every", "--strict")
        for target in (TEXT, f"HEAD:{TEXT}", f":{TEXT}"):
            sealed.call("verify", target)
            assert "problems" not in sealed.call("inspect", target).out

    def test_its_content_is_one_hash(self, sealed: Sealed) -> None:
        text, wsum = ((sealed.path / name).read_bytes() for name in (TEXT, WSUM))
        read = text_ledger.read(sealed.ledger(TEXT_LEDGER)).ledger
        assert read is not None
        parts = (b"WTXT and WSUM\0", opaque_hash(memoryview(text)), sha256(wsum).digest())
        assert read.last.sha256_all == sha256(b"".join(parts)).digest()
        assert read.last.meta == META

    def test_a_filtered_one_too(self, chain: Sealed) -> None:
        wtxtgit.finalize(write(chain, name="p.safetensors"))
        chain.add("p.safetensors", "p.safetensors.root.wsum")
        chain.seal("p.safetensors")
        chain.commit()
        assert_holds(chain)
        chain.git("rm", "-q", "p.safetensors.root.wsum")
        wanted = [(chain.commit(), "p.safetensors", kind) for kind in ("corrupt-text",)]
        said = chain.audit()
        assert {one[:3] for one in said.found} >= set(wanted)

    def test_they_move_together(self, sealed: Sealed) -> None:
        for end in ("", ".root.wsum", ".wsum"):
            sealed.git("mv", f"{TEXT}{end}", f"q.wtxt{end}")
        sealed.seal()
        sealed.commit()
        assert_holds(sealed)

    def test_the_next_generation(self, sealed: Sealed) -> None:
        write(sealed, 2.0)
        sealed.call("finalize", TEXT, "--prev", "HEAD")
        sealed.add(TEXT, WSUM)
        sealed.seal(TEXT)
        sealed.commit()
        assert_holds(sealed)
        before = wtxtgit.verify(sealed.path / TEXT)
        sealed.call("finalize", TEXT, "--inline")
        assert wtxtgit.verify(sealed.path / TEXT).merkle_this == before.merkle_this
        sealed.git("add", "--all")
        sealed.seal(TEXT)
        sealed.commit()
        assert_holds(sealed)

    def test_sealed_in_the_work_tree(self, chain: Sealed) -> None:
        wtxtgit.finalize(write(chain))
        chain.add(TEXT, WSUM)
        chain.call("seal", "--key", "alice", TEXT)
        chain.commit_all()
        assert_holds(chain)

    def test_what_is_damaged_is_proved_by_the_wsum(self, sealed: Sealed) -> None:
        path = sealed.path / TEXT
        whole = path.read_bytes()
        path.write_bytes(whole.replace(b"bytes=56 sha256=", b"bytes=56 sha256=x", 1))
        wsum = (sealed.path / WSUM).read_bytes()
        (sealed.path / WSUM).unlink()
        sealed.call("recover", TEXT, "-o", "back.wtxt", ok=(1,))
        (sealed.path / WSUM).write_bytes(wsum)
        sealed.call("recover", TEXT, "-o", "back.wtxt")
        assert (sealed.path / "back.wtxt").read_bytes() == whole

    def test_a_review_takes_both(self, chain: Sealed) -> None:
        chain.branch("topic")
        wtxtgit.finalize(write(chain))
        chain.add(TEXT, WSUM)
        chain.seal(TEXT)
        chain.commit()
        review = ("review", "--json", "--trust-root", "root", "main...topic")
        (one,) = chain.call(*review).report["artifacts"]
        assert (one["path"], one["seal"]["state"], one["flags"]) == (TEXT, "sealed", [])

    def test_no_delta_is_of_a_pending_text(self, sealed: Sealed) -> None:
        said = sealed.call("delta", "make", TEXT, TEXT, ok=(3,))
        assert f"hint: wtxtgit finalize --inline -- {TEXT}" in said.err

    def test_a_diff_shows_its_arrays(self, sealed: Sealed) -> None:
        write(sealed, 2.0)
        sealed.call("finalize", TEXT)
        told = sealed.call("diff", "--json", f"HEAD:{TEXT}", TEXT, ok=(0, 1)).report
        assert "W" in str(told)


class TestOneAlone:
    def test_nothing_is_sealed_without_the_wsum(self, chain: Sealed) -> None:
        write(chain)
        chain.add(TEXT)
        said = chain.call("seal", "--staged", "--key", "alice", TEXT, ok=(1,))
        assert f"hint: wtxtgit finalize -- {TEXT}" in said.err
        assert checked(chain) == {(TEXT, "corrupt-text", "error")}
        chain.call("finalize", "--", TEXT)
        said = chain.call("seal", "--staged", "--key", "alice", TEXT, ok=(1,))
        assert f"hint: git add -- {WSUM}" in said.err
        chain.add(WSUM)
        chain.seal(TEXT)

    def test_a_wsum_that_is_taken_away(self, sealed: Sealed) -> None:
        sealed.git("rm", "-q", WSUM)
        assert (TEXT, "corrupt-text", "error") in checked(sealed)
        assert_found(sealed, (sealed.commit(), TEXT, "content-mismatch"))

    def test_a_wsum_without_its_text(self, chain: Sealed) -> None:
        wtxtgit.finalize(write(chain))
        chain.add(WSUM)
        said = chain.call("check", "--staged", "--json")
        assert said.report["notes"] == [f"{WSUM} is useless without {TEXT}"]
        (chain.path / TEXT).unlink()
        chain.commit_all()
        assert_holds(chain)


class TestLies:
    def test_another_place_in_the_chain(self, sealed: Sealed) -> None:
        wtxtgit.finalize(sealed.path / TEXT, prev=bytes(range(32)))
        assert wtxtgit.verify(sealed.path / TEXT).ok
        sealed.add(WSUM)
        assert checked(sealed) == {(TEXT, "content-mismatch", "error")}
        assert_found(sealed, (sealed.commit(), TEXT, "content-mismatch"))

    def test_the_wsum_of_another_text(self, sealed: Sealed) -> None:
        wtxtgit.finalize(write(sealed, 9.0, "q.wtxt"))
        (sealed.path / "q.wtxt.root.wsum").rename(sealed.path / WSUM)
        (sealed.path / "q.wtxt").unlink()
        sealed.call("seal", "--key", "alice", TEXT, ok=(1,))
        sealed.add(WSUM)
        assert checked(sealed) >= {(TEXT, "corrupt-text", "error")}
        bad = sealed.commit()
        assert_found(sealed, (bad, TEXT, "content-mismatch"), (bad, TEXT, "corrupt-text"))

    def test_a_wsum_put_beside_a_text_that_has_a_root(self, chain: Sealed) -> None:
        write(chain, pending=False)
        chain.add(TEXT)
        chain.seal(TEXT)
        chain.commit()
        assert_holds(chain)
        wtxtgit.finalize(write(chain, name="q.wtxt"), prev=bytes(range(32)))
        (chain.path / "q.wtxt.root.wsum").rename(chain.path / WSUM)
        (chain.path / "q.wtxt").unlink()
        assert wtxtgit.verify(chain.path / TEXT).ok
        assert_found(chain, (chain.commit_all(), TEXT, "content-mismatch"))

    def test_a_signature_by_a_stranger(self, chain: Sealed) -> None:
        wtxtgit.finalize(write(chain), sign=stranger)
        chain.add(TEXT, WSUM)
        assert (TEXT, "untrusted-signer", "warning") in checked(chain)
        assert "not signed by any of the signers" in chain.seal(TEXT).err
        chain.commit()
        said = chain.audit()
        assert (said.code, said.kinds) == (0, {"untrusted-signer"})
        chain.call("verify", TEXT, "--signers", ".wtxt/signers", ok=(4,))

    def test_attributes_that_change_the_wsum(self, sealed: Sealed) -> None:
        attributes = sealed.path / ".gitattributes"
        attributes.write_text(f"{attributes.read_text()}\n{WSUM} filter=other\n")
        assert_found(sealed, (sealed.commit_all(), TEXT, "altered-checkout"))


class TestNames:
    def test_a_ledger_of_that_name_is_no_wsum(self, chain: Sealed) -> None:
        write(chain, pending=False)
        chain.write(f"{TEXT}.root", b"notes")
        chain.add(TEXT, f"{TEXT}.root")
        chain.seal(TEXT, f"{TEXT}.root")
        chain.commit()
        assert_holds(chain)
        assert chain.ledger(WSUM).startswith(b"WLEDGER ")
        chain.call("verify", TEXT)
        write(chain)
        chain.call("finalize", TEXT, ok=(2,))
        assert chain.ledger(WSUM).startswith(b"WLEDGER ")

    def test_a_wsum_is_no_ledger(self, sealed: Sealed) -> None:
        sealed.write(f"{TEXT}.root", b"notes")
        sealed.add(f"{TEXT}.root")
        sealed.call("seal", "--staged", "--key", "alice", f"{TEXT}.root", ok=(1,))
        assert (sealed.path / WSUM).read_bytes().startswith(b"WSUM ")

    def test_a_link_is_none(self, sealed: Sealed) -> None:
        (sealed.path / WSUM).rename(sealed.path / "elsewhere")
        (sealed.path / WSUM).symlink_to("elsewhere")
        sealed.call("verify", TEXT, ok=(1,))
        bad = sealed.commit_all()
        # Nor is it a ledger.
        others = (bad, f"{TEXT}.root", "bad-record")
        assert_found(sealed, (bad, TEXT, "content-mismatch"), others)
