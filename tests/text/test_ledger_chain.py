"""What is appended to ledgers, who signed it, and that nobody else can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from tests.data import LedgerCase, case_named, ledger_cases, ledger_named, seeded
from tests.fuzz.mutations import text_mutant
from tests.text.edits import in_turn, inside_of_words
from tests.text.ledgers import HEADS, PATHS, SIGNATURES, chain_of
from tests.text.test_grammar import HASHES, TIMES, TOKENS
from wtxtgit.containers import any_format
from wtxtgit.errors import TextError
from wtxtgit.model.array import Meta, Signature
from wtxtgit.model.ledger import DELETED_CONTENT, Ledger, LedgerHead, Record, is_deletion
from wtxtgit.text import grammar, ledger
from wtxtgit.text.digest import SignatureState, keyid, sign
from wtxtgit.text.layout import snapshot_of
from wtxtgit.text.ledger import (
    RecordSigners,
    covered,
    deletion_record,
    format_ledger,
    format_record,
    native_record,
    next_record,
    read,
    signed_by,
    with_signature,
)
from wtxtgit.text.write import TextWriter

MUTANTS = 400
SIGNED = [case for case in ledger_cases() if case.valid and all(case.signed_by or (0,))]
HEAD = LedgerHead(bytes(32), b"model.fold")
SEEDS = [bytes([n]) * 32 for n in range(10)]
PUBLIC = [bytes(SigningKey(seed).verify_key) for seed in SEEDS]
NOW = "2026-03-01T12:00:00Z"


def ledger_of(text: bytes) -> Ledger:
    found = read(text).ledger
    assert found is not None
    return found


def first(**given_values: object) -> Record:
    values = {"sha256_all": bytes(32), "ts": NOW, "build": "b", "schema": "fold/v1"}
    return next_record(None, **{**values, **given_values})  # type: ignore[arg-type]


class TestNextRecord:
    def test_the_first(self) -> None:
        record = first()
        assert record.meta == Meta("fold/v1", 1, NOW, "b", "any", "off")
        assert record.merkle_prev == bytes(32)
        assert record.signatures == ()

    @given(chain_of(), HASHES, TIMES, TOKENS)
    def test_a_ledger_goes_on(self, made: Ledger, content: bytes, ts: str, build: str) -> None:
        record = next_record(made, sha256_all=content, ts=ts, build=build, schema="fold/v1")
        assert record.meta.gen == made.last.meta.gen + 1
        assert record.meta.ts == max(ts, made.last.meta.ts)
        assert record.sha256_all == content
        longer = Ledger(made.head, (*made.records, record))
        assert read(format_ledger(longer)).ok
        assert format_ledger(longer) == format_ledger(made) + format_record(record)

    def test_time_does_not_go_back(self) -> None:
        made = Ledger(HEAD, (first(),))
        for ts, wanted in (
            ("2026-02-28T23:59:59Z", NOW),
            (NOW, NOW),
            ("2026-03-01T12:00:01Z", "2026-03-01T12:00:01Z"),
        ):
            record = next_record(made, sha256_all=bytes(32), ts=ts, build="b", schema="fold/v1")
            assert record.meta.ts == wanted

    def test_a_generation_of_ones_own(self) -> None:
        assert first(gen=0).meta.gen == 0
        assert first(gen=700).meta.gen == 700
        made = Ledger(HEAD, (first(gen=700),))
        values = {"sha256_all": bytes(32), "ts": NOW, "build": "b", "schema": "s"}
        assert next_record(made, **values, gen=800).meta.gen == 800  # type: ignore[arg-type]
        for gen in (0, 699, 700):
            with pytest.raises(TextError) as caught:
                next_record(made, **values, gen=gen)  # type: ignore[arg-type]
            assert caught.value.kind == "structure"

    def test_the_meta_of_a_text(self) -> None:
        meta = Meta("weights/v1", 12, NOW, "abc", "cpu", "12.4")
        record = native_record(None, sha256_all=bytes(32), meta=meta)
        assert record.meta == meta
        assert read(format_ledger(Ledger(HEAD, (record,)))).ok
        made = Ledger(HEAD, (record,))
        for wrong in (meta, replace(meta, gen=13, ts="2026-02-28T00:00:00Z")):
            with pytest.raises(TextError) as caught:
                native_record(made, sha256_all=bytes(32), meta=wrong)
            assert caught.value.kind == "structure"

    @pytest.mark.parametrize(
        "values",
        [
            {"ts": "now"},
            {"ts": "2026-03-01T12:00:60Z"},
            {"ts": "9"},
            {"build": ""},
            {"build": "a b"},
            {"build": "a\n"},
            {"build": "é"},
            {"schema": ""},
            {"gen": -1},
            {"gen": grammar.MAX_GEN + 1},
            {"sha256_all": bytes(31)},
        ],
        ids=str,
    )
    def test_what_no_record_can_hold(self, values: dict[str, object]) -> None:
        with pytest.raises(TextError):
            first(**values)

    def test_a_wrong_time_is_refused_after_a_record_too(self) -> None:
        made = Ledger(HEAD, (first(),))
        for ts in ("1", "now"):
            with pytest.raises(TextError):
                next_record(made, sha256_all=bytes(32), ts=ts, build="b", schema="fold/v1")

    @given(chain_of(), PATHS, PATHS)
    def test_a_move(self, made: Ledger, one: bytes, two: bytes) -> None:
        values = {"sha256_all": bytes(32), "ts": NOW, "build": "b", "schema": "s"}
        for path in (one, two):
            if path == made.place:
                with pytest.raises(TextError) as caught:
                    next_record(made, **values, at=path)  # type: ignore[arg-type]
                assert caught.value.kind == "structure"
                continue
            record = next_record(made, **values, at=path)  # type: ignore[arg-type]
            still = next_record(made, **values)  # type: ignore[arg-type]
            assert (record.at, still.at) == (path, None)
            assert record.merkle_this == still.merkle_this
            made = Ledger(made.head, (*made.records, record))
            assert made.place == path
            assert read(format_ledger(made)).ok

    def test_a_move_to_what_is_no_path(self) -> None:
        with pytest.raises(TextError):
            first(at=b"/a")

    def test_numbers_end(self) -> None:
        made = Ledger(HEAD, (first(gen=grammar.MAX_GEN),))
        with pytest.raises(TextError):
            next_record(made, sha256_all=bytes(32), ts=NOW, build="b", schema="fold/v1")


class TestDeletion:
    @given(chain_of(), TIMES)
    def test_a_ledger_goes_on_with_it(self, made: Ledger, ts: str) -> None:
        record = deletion_record(made, ts=ts)
        assert is_deletion(record)
        assert record.meta.ts == max(ts, made.last.meta.ts)
        assert record.meta.gen == made.last.meta.gen + 1
        longer = Ledger(made.head, (*made.records, record))
        assert read(format_ledger(longer)).ok
        assert longer.place == made.place

    def test_it_is_of_what_emit_makes_of_an_empty_file(self) -> None:
        text = TextWriter(snapshot_of(any_format.split(memoryview(b""))))
        assert text.root.sha256_all == DELETED_CONTENT
        record = deletion_record(Ledger(HEAD, (first(),)), ts=NOW)
        assert record.meta.schema == text.meta.schema
        assert case_named("valid/layout_empty_file.wtxt").expected["sha256_all"] == (
            DELETED_CONTENT.hex()
        )

    def test_content_and_build_together_make_it(self) -> None:
        assert is_deletion(first(sha256_all=DELETED_CONTENT, build="deleted"))
        assert not is_deletion(first(sha256_all=DELETED_CONTENT, build="c1"))
        assert not is_deletion(first(sha256_all=bytes(32), build="deleted"))

    def test_the_vectors(self) -> None:
        told = {
            name: [is_deletion(record) for record in ledger_of(ledger_named(name).text).records]
            for name in ("deleted", "deleted_and_back", "emptied")
        }
        assert told == {
            "deleted": [False, True],
            "deleted_and_back": [False, True, False],
            "emptied": [False, False],
        }

    def test_no_time(self) -> None:
        with pytest.raises(TextError):
            deletion_record(Ledger(HEAD, (first(),)), ts="now")


class TestWithSignature:
    @given(st.lists(SIGNATURES, max_size=8, unique_by=lambda s: s.keyid))
    def test_the_order_in_which_they_come_does_not_matter(self, signed: list[Signature]) -> None:
        one = two = first()
        for signature in signed:
            one = with_signature(one, signature)
        for signature in reversed(signed):
            two = with_signature(two, signature)
        assert one == two
        assert set(one.signatures) == set(signed)
        assert read(format_ledger(Ledger(HEAD, (one,)))).ok

    def test_none_is_replaced(self) -> None:
        record = with_signature(first(), Signature(bytes(64), "0" * 16))
        with pytest.raises(TextError) as caught:
            with_signature(record, Signature(bytes([1]) * 64, "0" * 16))
        assert caught.value.kind == "structure"

    def test_eight_are_enough(self) -> None:
        record = first()
        for n in range(8):
            record = with_signature(record, Signature(bytes(64), f"{n:016x}"))
        with pytest.raises(TextError) as caught:
            with_signature(record, Signature(bytes(64), "f" * 16))
        assert caught.value.kind == "limit"

    @pytest.mark.parametrize(
        "bad",
        [
            Signature(bytes(63), "0" * 16),
            Signature(bytes(64), "0" * 15),
            Signature(bytes(64), "F" * 16),
        ],
    )
    def test_what_no_line_can_hold(self, bad: Signature) -> None:
        with pytest.raises(TextError):
            with_signature(first(), bad)


class TestSignedBy:
    def signed(self, *which: int, head: LedgerHead = HEAD) -> Record:
        record = first()
        for n in which:
            record = with_signature(record, sign(SEEDS[n], covered(head, record)))
        return record

    def test_each_state(self) -> None:
        one = keyid(PUBLIC[1])
        other = self.signed(1, head=replace(HEAD, path=b"other.fold"))
        for record, keys, wanted, state in (
            (self.signed(), PUBLIC, (set(), 0, (), ()), SignatureState.ABSENT),
            (self.signed(1), [], (set(), 0, (), (one,)), SignatureState.UNKNOWN_KEY),
            (self.signed(1), PUBLIC[:1], (set(), 0, (), (one,)), SignatureState.UNKNOWN_KEY),
            (self.signed(1), PUBLIC, ({PUBLIC[1]}, 1, (), ()), SignatureState.VALID),
            (other, PUBLIC, (set(), 0, (one,), ()), SignatureState.INVALID),
            (other, PUBLIC[2:], (set(), 0, (), (one,)), SignatureState.UNKNOWN_KEY),
        ):
            valid, count, invalid, unknown = wanted
            found = signed_by(HEAD, record, keys)
            assert found == RecordSigners(frozenset(valid), count, invalid, unknown)
            assert found.state is state

    def test_several(self) -> None:
        record = self.signed(0, 1, 2)
        assert signed_by(HEAD, record, set(PUBLIC)).valid == set(PUBLIC[:3])
        found = signed_by(HEAD, record, PUBLIC[1:2])
        assert (found.valid, len(found.unknown), found.state) == (
            {PUBLIC[1]},
            2,
            SignatureState.VALID,
        )

    def test_one_that_does_not_hold_makes_the_record_invalid(self) -> None:
        record = with_signature(self.signed(0), Signature(bytes(64), keyid(PUBLIC[1])))
        found = signed_by(HEAD, record, PUBLIC)
        assert found.valid == {PUBLIC[0]}
        assert found.invalid == (keyid(PUBLIC[1]),)
        assert found.state is SignatureState.INVALID

    def test_a_key_counts_once(self) -> None:
        case = ledger_named("sign_twice")
        made = ledger_of(case.text)
        found = signed_by(made.head, made.last, case.public_keys)
        assert (len(found.valid), found.signatures) == (1, 2)

    def test_every_key_of_the_keyid_is_tried(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ledger.digest, "keyid", lambda _: "0" * 16)
        record = first()
        made = sign(SEEDS[3], covered(HEAD, record))
        record = with_signature(record, replace(made, keyid="0" * 16))
        for keys in (PUBLIC, PUBLIC[::-1], [PUBLIC[3]]):
            found = signed_by(HEAD, record, keys)
            assert (found.valid, found.invalid) == ({PUBLIC[3]}, ())
        found = signed_by(HEAD, record, PUBLIC[4:])
        assert (found.valid, found.invalid) == (frozenset(), ("0" * 16,))

    @given(HEADS, chain_of(), st.sampled_from(["host", "cuda", "schema", "build", "ts", "gen"]))
    def test_a_signature_covers_every_field(
        self, head: LedgerHead, made: Ledger, field: str
    ) -> None:
        record = replace(made.last, signatures=())
        record = with_signature(record, sign(SEEDS[0], covered(head, record)))
        assert signed_by(head, record, PUBLIC).state is SignatureState.VALID
        value = {"ts": "2026-03-01T12:00:00Z", "gen": record.meta.gen + 1}.get(field, "other")
        changed = replace(record, meta=replace(record.meta, **{field: value}))
        if changed != record:
            assert signed_by(head, changed, PUBLIC).state is SignatureState.INVALID
        for path in (None, b"elsewhere", b"elsewhere2"):
            if path != record.at:
                moved = replace(record, at=path)
                assert signed_by(head, moved, PUBLIC).state is SignatureState.INVALID
        for field_of_record in ("sha256_all", "merkle_prev", "merkle_this"):
            flipped = bytes(byte ^ 1 for byte in getattr(record, field_of_record))
            changed = replace(record, **{field_of_record: flipped})
            assert signed_by(head, changed, PUBLIC).state is SignatureState.INVALID
        for other in (replace(head, path=head.path + b"x"), replace(head, repo=bytes(32))):
            if other != head:
                assert signed_by(other, record, PUBLIC).state is SignatureState.INVALID


def good(case: LedgerCase, made: Ledger) -> list[frozenset[bytes]]:
    return [signed_by(made.head, record, case.public_keys).valid for record in made.records]


def says(case: LedgerCase, made: Ledger) -> set[tuple[LedgerHead, Record]]:
    """What keys vouch for: the records that they signed, without the signatures."""
    return {
        (made.head, replace(record, signatures=()))
        for record, keys in zip(made.records, good(case, made), strict=True)
        if keys
    }


@pytest.mark.slow
@pytest.mark.parametrize("case", SIGNED, ids=lambda c: c.file)
def test_no_byte_of_a_signed_ledger_can_be_changed(case: LedgerCase) -> None:
    """Every byte by others, of each kind: a problem, or a signature that is no longer good."""
    text = case.text
    whole = good(case, ledger_of(text))
    unknown = case == ledger_named("one_key_unknown")
    survivors = 0
    for at in range(len(text)):
        kinds: Sequence[int] = (*b"\n 0", text[at] ^ 1, text[at] ^ 0x20)
        if at in inside_of_words(text):
            kinds = in_turn(kinds, at)
        for new in {*kinds} - {text[at]}:
            report = read(text[:at] + bytes([new]) + text[at + 1 :])
            if report.ok:
                assert report.ledger is not None
                if good(case, report.ledger) == whole:
                    # Of what a key made that is not known, nothing can be said.
                    start = text.rindex(b"\n", 0, at) + 1
                    line = text[start : text.index(b"\n", at)]
                    assert unknown, at
                    assert line.startswith(b"sign ")
                    assert b"keyid=436fe053345cb651" not in line
                    survivors += 1
    assert bool(survivors) is unknown


@pytest.mark.parametrize("case", SIGNED, ids=lambda c: c.file)
def test_a_mutant_never_says_what_nobody_signed(case: LedgerCase) -> None:
    rng = seeded(case.file)
    original = says(case, ledger_of(case.text))
    for _ in range(MUTANTS):
        mutant = text_mutant(case.text, rng)
        report = read(mutant)
        assert report == read(mutant, after=read(case.text))
        assert all(p.line is not None and p.message for p in report.problems)
        if report.ledger is not None:
            assert format_ledger(report.ledger) == mutant
            assert says(case, report.ledger) <= original
