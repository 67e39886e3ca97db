"""Sentences of the specifications that are easily read otherwise: the code does what they say.

Each test quotes its sentence, so that neither changes without the other.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
from nacl.signing import SigningKey

import wtxtgit
from tests.data import case_named
from tests.docs.pages import lines
from tests.kit import Repo
from tests.text.deltas import applied, made
from tests.text.edge_texts import ALICE, Arr, Text, crc32c, file_text, with_parity, wsum_line
from tests.text.moved import BEGAN, BOB, Chain, at
from wtxtgit.chain.reader import ChainReader
from wtxtgit.containers import any_format
from wtxtgit.containers.ranges import cut, part
from wtxtgit.errors import TextError
from wtxtgit.filter.clean import clean
from wtxtgit.git.blobs import BlobReader
from wtxtgit.model.array import ArrayNames
from wtxtgit.report.audit import UNTRUSTED
from wtxtgit.text import ledger
from wtxtgit.text.verify import TextReport, verify

WTXT, CONTAINERS = "docs/spec/wtxt.md", "docs/spec/containers.md"
DELTA, LEDGER = "docs/spec/delta.md", "docs/spec/ledger.md"
TRUST = "docs/spec/trust.md"
A, B = Arr("a", bytes(range(200))), Arr("b", bytes(range(100, 200)))


def says(page: str, sentence: str) -> None:
    told = " ".join(" ".join(line.text for line in lines(page)).split())
    assert sentence in told.replace("**", "").replace("*", "")


def report(text: bytes, **given: object) -> TextReport:
    return verify(memoryview(text), **given)  # type: ignore[arg-type]


def kinds(text: bytes, **given: object) -> list[str]:
    return [problem.kind for problem in report(text, **given).problems]


def signed_wsum(text: Text, key: SigningKey) -> bytes:
    line = wsum_line(text).removesuffix(b"\n")
    return line + b" sign=" + base64.b64encode(key.sign(line).signature) + b"\n"


class TestTexts:
    def test_chunking_is_no_part_of_the_hash(self) -> None:
        says(WTXT, "`idx` and `ch` lines are not part of it: chunking can change without changing")
        cuts = [(16, 1, "on"), (1, 64, "on"), (7, 7, "off")]
        texts = [Text((A,)), *(Text((replace(A, rows=rows),)) for rows in cuts)]
        texts.append(Text((replace(A, idx=False),)))
        assert len({text.bytes for text in texts}) == 5
        assert {report(text.bytes).sha256_all for text in texts} == {texts[0].hash_all}

    def test_no_hash_covers_the_audit_line(self) -> None:
        says(WTXT, "No hash covers this line. It can be changed without trace")
        text = Text((A,), sign=ALICE).bytes
        keys = [bytes(ALICE.verify_key)]
        for line in (b"", b"audit a=1\n", b'audit by="the devil"\n'):
            told = report(text.replace(b"endwtxt", line + b"endwtxt"), public_keys=keys)
            assert (told.problems, told.signature) == ([], "valid")

    def test_damaged_content_is_no_error_of_the_chain(self) -> None:
        says(WTXT, "damaged content is a `root` error, and `merkle` is added only if")
        text = Text((A,)).bytes
        line = A.line
        other = line.replace(sha256(A.raw).hexdigest().encode(), b"0" * 64)
        assert kinds(text.replace(line, other)) == ["array_sha256", "root"]

    def test_a_keyid_is_a_hint(self) -> None:
        says(WTXT, "It is a hint that selects the keys to try, no proof.")
        text = Text((A,), sign=ALICE).bytes
        alice, bob = bytes(ALICE.verify_key), bytes(BOB.verify_key)
        keyid = text.partition(b" keyid=")[2][:16]
        renamed = text.replace(keyid, b"0" * 16)
        assert report(renamed, public_keys=[alice]).signature == "unknown-key"
        assert report(text, public_keys=[bob]).signature == "unknown-key"
        assert report(text, public_keys=[bob, alice]).signature == "valid"

    def test_where_the_reading_stops(self) -> None:
        says(
            WTXT,
            "When the reading stops, the chunks before that place are still reported on, and what "
            "covers the whole text (root, fastxor, merkle, layout) is not judged; the signatures "
            "of a text and its WSUM are, if their lines were read.",
        )
        text = Text((A, B), sign=ALICE).bytes
        crc = f"crc32c={crc32c(A.raw):08x}".encode()
        broken = text.replace(crc, b"crc32c=00000000").replace(b"fastxor=", b"fastxor=", 1)
        cut_off = broken[: broken.index(b"arr name=b")]
        keys = [bytes(BOB.verify_key)]
        told = report(cut_off, public_keys=keys)
        assert [problem.kind for problem in told.problems] == ["crc32c", "syntax"]
        assert (told.sha256_all, told.signature) == (None, "unknown-key")
        unsigned = Text((A, B))
        cut_off = unsigned.bytes[: unsigned.bytes.index(b"arr name=b")]
        by_alice = signed_wsum(unsigned, ALICE)
        told = report(cut_off, wsum=by_alice, public_keys=[bytes(ALICE.verify_key)])
        assert ([problem.kind for problem in told.problems], told.signature) == (
            ["syntax"],
            "valid",
        )

    def test_more_errors_where_the_reading_stops(self) -> None:
        says(
            WTXT,
            "In the array where the reading stops, a reader may report more errors than the one "
            "that stops it.",
        )
        text = Text((A,)).bytes
        at_ = text.index(b" lines=4\n") + len(b" lines=4\n")
        short = with_parity(text[at_ : at_ + 72] + b"====")
        broken = text[:at_] + short + text[at_ + 79 :]
        assert kinds(broken) == ["base64"]
        assert kinds(broken.replace(b"endch\n", b"")) == ["base64", "syntax"]

    def test_the_worse_of_two_signatures(self) -> None:
        says(
            WTXT,
            "If a text and its WSUM are both signed, the worse state is reported: `invalid`, then "
            "`unknown-key`, then `valid`.",
        )
        alice, bob = bytes(ALICE.verify_key), bytes(BOB.verify_key)
        text = Text((A,), sign=ALICE)
        states = {
            (signer, keys): report(
                text.bytes, wsum=signed_wsum(text, signer), public_keys=keys
            ).signature
            for signer in (ALICE, BOB)
            for keys in ((alice,), (bob,), (alice, bob))
        }
        assert states == {
            (ALICE, (alice,)): "valid",
            (ALICE, (bob,)): "invalid",
            (ALICE, (alice, bob)): "valid",
            (BOB, (alice,)): "invalid",
            (BOB, (bob,)): "unknown-key",
            (BOB, (alice, bob)): "valid",
        }

    def test_one_line_of_each_kind_in_a_chunk(self) -> None:
        says(WTXT, "within a chunk, at most the first line of each kind is named")
        text = Text((A,)).bytes
        at_ = text.index(b" lines=4\n") + len(b" lines=4\n")
        broken = bytearray(text)
        for line in range(3):
            broken[at_ + 79 * line + 77] ^= 1
        told = [p for p in report(bytes(broken)).problems if p.kind == "parity"]
        assert len(told) == 1

    def test_one_namespace_in_extent_order(self) -> None:
        says(WTXT, "`__n` goes after it, with the smallest n >= 2 that makes it free")
        names = ArrayNames()
        given = ["a", "a__2", "a", "a!", "_gap", "__2"]
        assert [names.for_name(name) for name in given] == [
            "a", "a__2", "a__3", "a_", "t_gap", "t__2",
        ]  # fmt: skip
        assert [names.for_role("_gap") for _ in range(2)] == ["_gap", "_gap__2"]


class TestContainers:
    def test_what_a_dropped_range_takes(self) -> None:
        says(CONTAINERS, "it is dropped, and takes nothing from the ranges after it.")
        data = memoryview(bytes(range(1, 101)))
        ranges = [part(0, 40, "a"), part(30, 90, "b"), part(40, 60, "c"), part(60, 80, "d")]
        found = [extent.array for extent in cut("fold", data, ranges).layout.extents]
        assert found == ["a", "c", "d", None]

    def test_gaps_of_zeros_that_are_too_many(self) -> None:
        says(CONTAINERS, "every one of them is a `_gap` array instead.")
        size, run = 17 * 2**20, 65_536
        data = memoryview(bytes(size))
        marks = [part(start, start + 1, "x") for start in range(0, size, run + 1)]
        some = cut("fold", data[: 16 * 2**20], marks[:240])
        assert {extent.zeros for extent in some.layout.extents} >= {run}
        # A gap that is no run of zeros in any case counts for nothing.
        many = cut("fold", data, marks)
        assert not any(extent.zeros for extent in many.layout.extents)
        assert sum(
            extent.array.startswith("_gap") for extent in many.layout.extents if extent.array
        )

    def test_a_text_of_a_text(self) -> None:
        says(CONTAINERS, "stands for a file that itself starts with `WTXT `")
        inner = b"WTXT of no kind\n"
        extents = f'[{{"hex":"{inner.hex()}"}}]'
        layout = f'{{"extents":{extents},"format":"opaque","size":{len(inner)},"v":1}}'
        text = file_text(layout).bytes
        assert kinds(text) == []
        assert b"".join(clean(memoryview(text), threads=1).pieces()) == text

    def test_cutting_never_judges(self) -> None:
        says(CONTAINERS, "A damaged file is stored as it is.")
        file = np.arange(4, dtype="<f4").tobytes()
        assert any_format.split(memoryview(file)).layout.format == "opaque"


class TestDeltas:
    def test_how_the_base_is_cut(self) -> None:
        says(DELTA, "arrays that did not change keep the cut of the base that is there.")
        base = Text((A, B))
        target = Text((A, replace(B, raw=bytes(100))))
        delta = made(base.bytes, target.bytes)
        other = Text((replace(A, rows=(50, 1, "on")), B))
        assert other.hash_all == base.hash_all
        kept = Text((other.arrays[0], target.arrays[1]))
        assert applied(other.bytes, delta) == kept.bytes
        unfit = Text((A, replace(B, rows=(50, 1, "on"))))
        assert unfit.hash_all == base.hash_all
        with pytest.raises(TextError) as caught:
            applied(unfit.bytes, delta)
        assert caught.value.kind == "structure"

    def test_another_name_on_a_plain_delta(self) -> None:
        says(DELTA, "puts a change on another array of the same shape, and the result verifies.")
        c = replace(A, name="c", raw=bytes(200))
        base = Text((A, c))
        delta = made(base.bytes, Text((replace(A, raw=b"x" * 200), c)).bytes, plain=True)
        result = applied(base.bytes, delta.replace(b"arr name=a\n", b"arr name=c\n"))
        assert wtxtgit.loads(result)["c"].tobytes() == b"x" * 200

    def test_the_same_content_in_other_chunks(self) -> None:
        says(DELTA, "The `arr` line of a block without an `idx` line differs from the base's.")
        base, target = (Text((replace(A, rows=(rows, 1, "on")),)).bytes for rows in (16, 64))
        delta = made(base, target)
        assert delta.count(b"arr name=a ") == 1
        assert applied(base, delta) == target


class TestAudits:
    def test_which_errors_are_of_trust_alone(self) -> None:
        kinds_of_trust = (
            "4 if all errors are of the kinds `missing-signature`, `bad-signature`, "
            "`untrusted-signer`, `signers-changed` and `bad-root`; otherwise 1."
        )
        says(TRUST, kinds_of_trust)
        named = {word.strip("`,;") for word in kinds_of_trust.split() if word.startswith("`")}
        assert named == UNTRUSTED

    def test_a_large_file_in_the_place_of_a_ledger(
        self, repo: Repo, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        says(TRUST, "Nor can a file at such a path that is larger than a")
        monkeypatch.setattr(ledger, "MAX_SIZE", 100)
        oids = [repo.git("hash-object", "-w", "--stdin", stdin=b"x" * n) for n in (100, 101)]
        with BlobReader(repo.repository) as blobs:
            found = [ChainReader(blobs).ledger(b"m.wsum", oid.decode().strip()) for oid in oids]
        assert found[0] is None
        assert found[1] is not None
        assert [problem.kind for problem in found[1].problems] == ["limit"]


class TestLedgers:
    def test_a_signature_does_not_cover_others(self) -> None:
        says(LEDGER, "It does not cover the other signatures: one can be added later.")
        both, one = Chain().seal(keys=(ALICE, BOB)), Chain().seal()
        assert set(one.lines) < set(both.lines)

    def test_the_chain_holds_no_move(self) -> None:
        says(LEDGER, "merkle_this covers no `at` line, so the chain does not hold one")
        moved = Chain().seal().seal(at(b"models/b.fold"), keys=())
        stays = moved.text.replace(at(b"models/b.fold"), b"")
        for text, place in ((moved.text, b"models/b.fold"), (stays, BEGAN)):
            read = ledger.read(text)
            assert read.ok
            assert read.ledger is not None
            assert read.ledger.place == place

    def test_a_single_wsum_line_is_none(self) -> None:
        says(LEDGER, "A file of a single `WSUM` line is no ledger.")
        wsum = case_named("valid/pending_with_wsum.wtxt").wsum
        assert wsum is not None
        assert not wsum.startswith(ledger.MAGIC)
        assert ledger.read(wsum).ledger is None
