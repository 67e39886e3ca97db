"""Deltas: the vectors, one spelling, and what is refused for which reason."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.data import DATA, DeltaCase, EdgeDelta, case_named, delta_cases, delta_named
from tests.data import edge_deltas as data_edge_deltas
from tests.text import edge_deltas
from tests.text.deltas import applied, made, side
from tests.text.reading import read_text
from wtxtgit.errors import TextError
from wtxtgit.model.array import Meta, Rows, Snapshot
from wtxtgit.tensors.program_arrays import snapshot_from
from wtxtgit.text import ledger, verify
from wtxtgit.text.delta.index import check, index
from wtxtgit.text.delta.patch import make
from wtxtgit.text.delta.sides import side_of_writer
from wtxtgit.text.digest import SignatureState, sign
from wtxtgit.text.write import TextWriter, dumps

ONE = delta_named("one_chunk")
ADDED = delta_named("added_removed")
PLAIN = delta_named("plain")
ROTATED = delta_named("salt_rotated")
AUDIT = delta_named("audit")


def given(case: DeltaCase) -> dict[str, object]:
    return {"ts": case.ts, "build": case.build, "hmac_key": case.hmac_key}


def text_of(*, gen: int = 0, **arrays: object) -> bytes:
    return dumps(snapshot_of(gen=gen, **arrays))


def snapshot_of(*, gen: int = 0, **arrays: object) -> Snapshot:
    return snapshot_from(arrays, meta=Meta(gen=gen))  # type: ignore[arg-type]


def cut(snapshot: Snapshot, rows: Rows | None) -> bytes:
    """The snapshot's text, all of its arrays cut by `rows`."""
    arrays = tuple(replace(array, rows=rows) for array in snapshot.arrays)
    return dumps(replace(snapshot, arrays=arrays))


def refusal(base: bytes, delta: bytes) -> TextError:
    with pytest.raises(TextError) as caught:
        applied(base, delta)
    return caught.value


def kinds(delta: bytes) -> list[str]:
    return [problem.kind for problem in check(memoryview(delta)).problems]


class TestVectors:
    def test_there_are_both_forms(self) -> None:
        assert len(delta_cases()) >= 11
        assert {case.plain for case in delta_cases()} == {True, False}

    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("case", delta_cases(), ids=lambda c: c.name)
    def test_made(self, case: DeltaCase, threads: int) -> None:
        assert made(case.base, case.target, plain=case.plain, threads=threads) == case.delta

    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("case", delta_cases(), ids=lambda c: c.name)
    def test_applied(self, case: DeltaCase, threads: int) -> None:
        assert applied(case.base, case.delta, threads=threads, **given(case)) == case.target

    @pytest.mark.parametrize("case", delta_cases(), ids=lambda c: c.name)
    def test_alone(self, case: DeltaCase) -> None:
        report = check(memoryview(case.delta))
        assert report.ok
        assert (report.index.head is None) == case.plain
        signed = b"\nsign " in case.delta
        assert report.signature == ("unknown-key" if signed else "absent")

    @pytest.mark.parametrize("case", delta_cases(), ids=lambda c: c.name)
    def test_on_any_other_base(self, case: DeltaCase) -> None:
        own = side(case.base).root.sha256_all
        others = {c.base for c in delta_cases() if side(c.base).root.sha256_all != own}
        assert len(others) >= 2
        for other in others:
            error = refusal(other, case.delta)
            assert error.kind == "root"
            found = side(other).root.sha256_all
            assert own.hex()[:16] in error.message
            assert found.hex()[:16] in error.message


class TestEdges:
    """Deltas at which two readers could differ."""

    def test_they_are_what_the_spec_makes(self) -> None:
        records = [made.record for made in edge_deltas.made()]
        assert json.loads((DATA / "deltas.json").read_bytes())["cases"] == records

    @pytest.mark.parametrize("case", data_edge_deltas(), ids=lambda c: c.name)
    def test_applied_or_refused(self, case: EdgeDelta) -> None:
        assert (case.target is None) != (case.kind is None)
        if case.kind is None:
            assert applied(case.base, case.delta, hmac_key=case.hmac_key) == case.target
            return
        with pytest.raises(TextError) as caught:
            applied(case.base, case.delta, hmac_key=case.hmac_key)
        assert caught.value.kind == case.kind

    @pytest.mark.parametrize("case", data_edge_deltas(), ids=lambda c: c.name)
    def test_made(self, case: EdgeDelta) -> None:
        """There is one bound delta of two texts."""
        is_bound = b"\nmeta " in case.delta
        if case.target is not None and is_bound:
            assert made(case.base, case.target) == case.delta


class TestSigned:
    CASE = delta_named("signed")

    def test_the_target_is_signed_as_it_was(self) -> None:
        target = applied(self.CASE.base, self.CASE.delta)
        assert target.splitlines()[4] == self.CASE.delta.splitlines()[4]
        assert target.splitlines()[4].startswith(b"sign ")

    def test_a_signature_is_checked_without_the_base(self) -> None:
        seed = bytes(range(32))
        snapshot = snapshot_of(a=np.arange(4))
        text = dumps(snapshot, sign=lambda message: sign(seed, message))
        delta = made(text_of(a=np.arange(5)), text)
        from nacl.signing import SigningKey

        public = bytes(SigningKey(seed).verify_key)
        assert check(memoryview(delta), public_keys=[public]).signature is SignatureState.VALID
        changed = delta.replace(b"host=any", b"host=all")
        report = check(memoryview(changed), public_keys=[public])
        assert report.signature is SignatureState.INVALID
        assert [problem.kind for problem in report.problems] == ["signature"]


class TestWhole:
    """Where the block has all of an array."""

    def test_other_rows(self) -> None:
        snapshot = snapshot_of(a=np.arange(1000, dtype="f4"))
        base = cut(snapshot, Rows(128, 4))
        for rows in (Rows(64, 4), Rows(128, 4, False), Rows(64, 8)):
            delta = made(base, cut(snapshot, rows))
            assert delta.count(b"idx ") == 1
            assert applied(base, delta) == cut(snapshot, rows)

    def test_the_same_chunks_by_another_line(self) -> None:
        snapshot = snapshot_of(a=np.arange(1000, dtype="f4"))
        base, target = cut(snapshot, Rows(128, 4)), cut(snapshot, Rows(64, 8))
        assert made(base, target).count(b"\nch ") == 8

    def test_an_idx_line_that_the_base_lacks(self) -> None:
        snapshot = snapshot_of(a=np.arange(1000, dtype="f4"))
        base, target = cut(snapshot, None), cut(snapshot, Rows(128, 4))
        assert applied(base, made(base, target)) == target

    def test_no_idx_line_on_either_side(self) -> None:
        base = cut(snapshot_of(a=np.arange(30_000, dtype="f4")), None)
        edited = np.arange(30_000, dtype="f4")
        edited[-1] = 0
        target = cut(snapshot_of(a=edited), None)
        delta = made(base, target)
        assert delta.count(b"\nch ") == 1
        assert b"\nidx " not in delta
        assert applied(base, delta) == target

    def test_an_idx_line_that_the_target_lacks_can_not_be_said(self) -> None:
        snapshot = snapshot_of(a=np.arange(10))
        with pytest.raises(TextError, match="lost its idx line"):
            made(dumps(snapshot), cut(snapshot, None))

    def test_new_typed_and_shaped_without_an_idx_line(self) -> None:
        base = text_of(a=np.arange(10, dtype="u4"), b=np.arange(10, dtype="u4"))
        arrays = {"a": np.arange(10, dtype="i4"), "b": np.zeros((2, 5), "u4"), "c": np.ones(3)}
        target = cut(snapshot_of(**arrays), None)
        delta = made(base, target)
        assert b"\nidx " not in delta
        assert applied(base, delta) == target

    def test_nothing_in_common(self) -> None:
        base, target = text_of(a=np.arange(9)), text_of(b=np.arange(9), c=np.ones(2))
        making = make(side(base), side(target))
        assert making.takes_nothing
        assert applied(base, b"".join(making.pieces())) == target

    def test_something_in_common(self) -> None:
        base, target = text_of(a=np.arange(9)), text_of(a=np.arange(9), c=np.ones(2))
        assert not make(side(base), side(target)).takes_nothing

    def test_no_arrays(self) -> None:
        some, none = text_of(a=np.arange(9)), text_of()
        assert applied(some, made(some, none)) == none
        assert applied(none, made(none, some)) == some
        assert applied(none, made(none, none)) == none

    def test_empty_and_scalar_arrays(self) -> None:
        base = text_of(a=np.zeros((0, 3)), b=np.float32(1), c=np.zeros(0, "u1"))
        target = text_of(a=np.zeros((3, 0)), b=np.float32(2), c=np.zeros(1, "u1"))
        assert applied(base, made(base, target)) == target


class TestOneSpelling:
    """A delta that says what it need not say is refused."""

    def test_an_arr_line_that_is_the_bases(self) -> None:
        start = ADDED.base.index(b"arr name=R")
        line = ADDED.base[start : ADDED.base.index(b"\n", start) + 1]
        delta = ADDED.delta.replace(b"del name=S\n", line + b"endarr\ndel name=S\n")
        error = refusal(ADDED.base, delta)
        assert (error.kind, error.array) == ("structure", "R")

    def test_a_chunk_that_is_the_bases(self) -> None:
        start = ONE.base.index(b"ch ix=000000")
        chunk = ONE.base[start : ONE.base.index(b"endch\n", start) + 6]
        for case in (ONE, PLAIN):
            error = refusal(ONE.base, case.delta.replace(b"ch ix=000001", chunk + b"ch ix=000001"))
            assert (error.kind, error.array, error.chunk) == ("structure", "R", 0)

    def test_an_idx_line_that_is_the_bases(self) -> None:
        base, target = text_of(a=np.arange(9)), text_of(a=np.ones(9, "i8"))
        start = base.index(b"idx ")
        idx = base[start : base.index(b"\n", start) + 1]
        delta = made(base, target)
        error = refusal(base, delta.replace(b"\nch ", b"\n" + idx + b"ch ", 1))
        assert (error.kind, error.array) == ("structure", "a")

    def test_a_plain_block_without_chunks(self) -> None:
        assert kinds(PLAIN.delta.replace(b"enddelta", b"arr name=S\nendarr\nenddelta")) == [
            "structure"
        ]


class TestRefused:
    @pytest.mark.parametrize(
        ("old", "new", "kind"),
        [
            (b"WTXT-DELTA 2", b"WTXT-DELTA 1", "syntax"),
            (b"WTXT-DELTA 2", b"WTXT-DELTA 3", "syntax"),
            (b"base_sha256_all=0", b"base_sha256_all=G", "syntax"),
            (b"meta ", b"mate ", "syntax"),
            (b"cap ", b"cup ", "syntax"),
            (b"root ", b"root  ", "syntax"),
            (b"gen=000006", b"gen=000007", "merkle"),
            (b"build=b6", b"build=b7", "merkle"),
            (b"del name=S\n", b"del name=S \n", "syntax"),
            (b"del name=S\n", b"del name=W\n", "structure"),
            (b"del name=S\n", b"del name=V\n", "structure"),
            (b"ix=000000", b"ix=000001", "structure"),
            (b"off=000000000000", b"off=000000000001", "structure"),
            (b"len=10", b"len=11", "structure"),
            (b"lines=1", b"lines=2", "structure"),
            (b"lines=1", b"lines=" + b"9" * 20, "structure"),
            (b"shape=10 ", b"shape=11 ", "structure"),
            (b"rows_per_chunk=65536", b"rows_per_chunk=5", "structure"),
            (b"rows_per_chunk=65536", b"rows_per_chunk=0", "structure"),
            (b"endch\n", b"", "syntax"),
            (b"endarr\n", b"", "syntax"),
            (b"enddelta\n", b"", "syntax"),
            (b"enddelta\n", b"enddelta", "syntax"),
            (b"enddelta\n", b"enddelta\n\n", "syntax"),
            (b"enddelta\n", b"audit a=1\naudit a=1\nenddelta\n", "syntax"),
            (b"enddelta\n", b"audit a\nenddelta\n", "syntax"),
            (b"enddelta\n", b"endwtxt\n", "syntax"),
        ],
        ids=lambda value: value.decode()[:30] if isinstance(value, bytes) else value,
    )
    def test_alone(self, old: bytes, new: bytes, kind: str) -> None:
        assert old in ADDED.delta
        assert kind in kinds(ADDED.delta.replace(old, new, 1))

    @pytest.mark.parametrize("line", [b"del name=S\n", b"audit a=1\n"])
    def test_lines_that_only_a_bound_delta_has(self, line: bytes) -> None:
        assert kinds(PLAIN.delta.replace(b"enddelta\n", line + b"enddelta\n")) == ["syntax"]

    def test_a_full_arr_line_in_a_plain_delta(self) -> None:
        line = ONE.delta.splitlines(keepends=True)[4]
        assert line.startswith(b"arr name=R dtype")
        assert kinds(PLAIN.delta.replace(b"arr name=R\n", line)) == ["syntax"]

    def test_a_plain_arr_line_in_a_bound_delta(self) -> None:
        line = ONE.delta.splitlines(keepends=True)[4]
        assert kinds(ONE.delta.replace(line, b"arr name=R\n")) == ["syntax"]

    @pytest.mark.parametrize(
        ("at", "kind"), [(0, "chunk_sha256"), (30, "crc32c"), (77, "parity"), (76, "syntax")]
    )
    def test_a_damaged_line(self, at: int, kind: str) -> None:
        start = ONE.delta.index(b"lines=1150\n") + len(b"lines=1150\n") + at
        other = bytes([ONE.delta[start] ^ 1])
        report = check(memoryview(ONE.delta[:start] + other + ONE.delta[start + 1 :]))
        found = {problem.kind for problem in report.problems}
        assert kind in found
        assert {problem.chunk for problem in report.problems if problem.chunk is not None} == {1}

    @pytest.mark.parametrize("case", delta_cases(), ids=lambda c: c.name)
    def test_cut_off_anywhere(self, case: DeltaCase) -> None:
        size = len(case.delta)
        for end in {*range(min(size, 1300)), *range(0, size, 4999), *range(size - 30, size)}:
            found = index(memoryview(case.delta)[:end])
            assert found.stop is not None
            assert found.stop.kind == "syntax"

    @pytest.mark.parametrize("name", ["del name=Q\n", "arr name=Q\n"])
    def test_an_array_that_the_base_lacks(self, name: str) -> None:
        if name.startswith("del"):
            delta = ADDED.delta.replace(b"del name=S\n", b"del name=Q\n")
        else:
            delta = PLAIN.delta.replace(b"arr name=R\n", b"arr name=Q\n")
        error = refusal(ADDED.base, delta)
        assert (error.kind, error.array) == ("structure", "Q")
        assert 'no array "Q"' in error.message

    def test_a_new_array_without_all_of_its_chunks(self) -> None:
        base = text_of()
        target = text_of(a=np.arange(20_000))
        delta = made(base, target)
        start = delta.index(b"ch ix=000001")
        lacking = delta[:start] + delta[delta.index(b"ch ix=000002") :]
        assert kinds(lacking) == ["structure"]
        none = delta[: delta.index(b"ch ix=000000")] + delta[delta.index(b"endarr") :]
        assert kinds(none) == ["structure"]

    def test_chunks_of_another_size_than_the_bases(self) -> None:
        base = cut(snapshot_of(a=np.arange(1000, dtype="f4")), Rows(128, 4))
        other = cut(snapshot_of(a=np.arange(1000, dtype="f4")), Rows(64, 4))
        edited = cut(snapshot_of(a=np.zeros(1000, "f4")), Rows(64, 4))
        assert read_text(base)["a"].tolist() == read_text(other)["a"].tolist()
        assert refusal(base, made(other, edited)).kind == "structure"

    def test_a_root_that_is_not_the_targets(self) -> None:
        one, other = text_of(a=np.arange(9)), text_of(a=np.arange(8))
        base = text_of(a=np.arange(7))
        lines = made(base, one).splitlines(keepends=True)
        lines[3] = other.splitlines(keepends=True)[3]
        assert refusal(base, b"".join(lines)).kind == "root"

    def test_a_wrong_fastxor(self) -> None:
        fastxor = ONE.delta.split(b"fastxor=")[1][:16]
        delta = ONE.delta.replace(fastxor, b"0123456789abcdef")
        assert refusal(ONE.base, delta).kind == "fastxor"

    def test_a_wrong_hash_of_a_patched_array(self) -> None:
        line = ONE.delta.splitlines()[4]
        own = line.split(b"sha256=")[1][:64]
        assert refusal(ONE.base, ONE.delta.replace(own, b"0" * 64)).kind == "array_sha256"

    def test_a_cap_line_with_a_layout_that_is_not_there(self) -> None:
        delta = ONE.delta.replace(b"row_blocking\n", b"row_blocking,layout\n")
        assert refusal(ONE.base, delta).kind == "layout"

    def test_a_pending_text(self) -> None:
        pending = case_named("valid/pending_with_wsum.wtxt").text
        for base, target in ((pending, ONE.base), (ONE.base, pending)):
            with pytest.raises(TextError) as caught:
                made(base, target)
            assert caught.value.kind == "pending"


class TestPlain:
    def test_what_is_not_given_is_the_bases(self) -> None:
        meta = read_text(applied(PLAIN.base, PLAIN.delta)).meta
        before = read_text(PLAIN.base).meta
        assert meta == replace(before, gen=before.gen + 1)

    def test_the_audit_line_and_the_signature_are_dropped(self) -> None:
        for case, line in ((delta_named("signed"), b"\nsign "), (AUDIT, b"\naudit ")):
            assert line in case.target
            result = applied(case.target, made(case.target, case.base, plain=True))
            assert read_text(result)
            assert line not in result

    def test_hmacs_without_the_key(self) -> None:
        base, target = delta_named("hmac").base, delta_named("hmac").target
        delta = made(base, target, plain=True)
        result = read_text(applied(base, delta)).snapshot
        before = read_text(base).snapshot
        for array, was in zip(result.arrays, before.arrays, strict=True):
            assert array.salt == was.salt
            assert (array.hmac is None) == (array.name == "S")

    def test_hmacs_with_the_key(self) -> None:
        case = delta_named("hmac")
        delta = made(case.base, case.target, plain=True)
        result = applied(case.base, delta, hmac_key=case.hmac_key)
        report = verify.verify(memoryview(result), hmac_key=case.hmac_key)
        assert report.ok
        assert report.authenticated

    @pytest.mark.parametrize(
        ("name", "what"),
        [
            ("added_removed", "is (new|removed)"),
            ("reshaped", "changed its dtype, shape or chunk size"),
            ("retyped", "changed its dtype, shape or chunk size"),
        ],
    )
    def test_what_it_can_not_say(self, name: str, what: str) -> None:
        case = delta_named(name)
        with pytest.raises(TextError, match=what) as caught:
            made(case.base, case.target, plain=True)
        assert caught.value.kind == "structure"

    def test_layouts(self) -> None:
        base = text_of(**{"a.b": np.arange(9)})
        target = text_of(**{"a.b": np.arange(9) + 1})
        with pytest.raises(TextError) as caught:
            made(base, target, plain=True)
        assert caught.value.kind == "layout"
        bound = made(base, target)
        assert applied(base, bound) == target
        hashed = b"WTXT-DELTA 2 base_sha256_all=%b\n" % side(base).root.sha256_all.hex().encode()
        assert refusal(base, hashed + b"enddelta\n").kind == "layout"

    def test_nothing_changed(self) -> None:
        delta = made(PLAIN.base, PLAIN.base, plain=True)
        assert len(delta.splitlines()) == 2
        result = read_text(applied(PLAIN.base, delta))
        assert result.meta.gen == read_text(PLAIN.base).meta.gen + 1


class TestHmac:
    CASE = delta_named("hmac")

    def test_another_key(self) -> None:
        with pytest.raises(TextError) as caught:
            applied(self.CASE.base, self.CASE.delta, hmac_key=b"another")
        assert caught.value.kind == "hmac"

    def test_a_target_without_hmacs(self) -> None:
        with pytest.raises(TextError) as caught:
            applied(ONE.base, ONE.delta, hmac_key=b"key")
        assert caught.value.kind == "hmac"


def test_a_side_of_a_snapshot_is_that_of_its_text() -> None:
    rng = np.random.default_rng(0)
    arrays = {"w": rng.standard_normal((3000, 64), "f4"), "b": np.arange(3), "e": np.zeros(0)}
    snapshot = snapshot_of(gen=3, **arrays)
    raw, written = side_of_writer(TextWriter(snapshot)), side(dumps(snapshot))
    assert (raw.header, raw.footer) == (written.header, written.footer)
    for one, other in zip(raw.arrays, written.arrays, strict=True):
        assert (one.lead, list(one.sha256)) == (other.lead, list(other.sha256))
        for first in range(one.chunks):
            for last in (first + 1, one.chunks):
                for give in ("raw", "text"):
                    pieces = [
                        b"".join(bytes(task()) for task in getattr(array, give)(first, last))
                        for array in (one, other)
                    ]
                    assert pieces[0] == pieces[1]


@pytest.mark.parametrize("text", [b"", b"\n", b"WTXT-DELTA 2", b"WTXT 1\n", b"\xff" * 99])
def test_what_is_no_delta(text: bytes) -> None:
    report = check(memoryview(text))
    assert [problem.kind for problem in report.problems] == ["syntax"]
    assert report.index.base is None


def test_a_delta_is_no_ledger_and_no_text() -> None:
    assert not ONE.delta.startswith(ledger.MAGIC)
    assert verify.verify(memoryview(ONE.delta)).index.stop is not None
