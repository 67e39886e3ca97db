"""Texts that are read through windows give the same verdicts, files and deltas."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import Case, DeltaCase, cases, delta_cases, fixture, golden, valid_cases
from tests.io.copies import windowed
from wtxtgit.containers.any_format import split
from wtxtgit.filter.smudge import smudge
from wtxtgit.io.view import ByteView
from wtxtgit.text import index as text_index
from wtxtgit.text.arrays import LazySnapshot
from wtxtgit.text.delta.index import check
from wtxtgit.text.delta.patch import Regeneration, apply, make
from wtxtgit.text.delta.sides import side_of_text, text_pieces
from wtxtgit.text.index import index
from wtxtgit.text.layout import snapshot_of
from wtxtgit.text.verify import verify
from wtxtgit.text.write import dumps

BIG = 16 * 1024 * 1024
"""Bytes of an array that are hashed at a time."""


@pytest.fixture(autouse=True)
def little_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are looked at in parts that most of them are longer than."""
    monkeypatch.setattr(text_index, "NEAR", 150)
    monkeypatch.setattr(text_index, "LEAST", 100)


@pytest.mark.parametrize("case", cases(), ids=lambda c: c.file)
def test_a_text_has_the_same_verdict(case: Case) -> None:
    found = verify(windowed(case.text), threads=1, **case.given)
    assert found == verify(memoryview(case.text), threads=1, **case.given)


@given(st.sampled_from([case.text for case in valid_cases()]), st.data())
def test_a_text_that_is_cut_or_changed_is_indexed_alike(text: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    broken = text[:at] + data.draw(st.sampled_from([b"", b"\n", b"0" * 500, b"endch\n"]))
    broken += data.draw(st.sampled_from([b"", text[at:]]))
    assert index(windowed(broken)) == index(memoryview(broken))


@pytest.mark.slow
@pytest.mark.parametrize("path", golden())
def test_a_file_gives_the_same_text_and_comes_back(path: str) -> None:
    content = fixture(path)
    text = dumps(snapshot_of(split(memoryview(content))))
    assert dumps(snapshot_of(split(windowed(content)))) == text
    smudged = smudge(windowed(text), threads=2)
    assert smudged.layout is not None
    assert b"".join(map(bytes, smudged.pieces())) == content


def test_one_block_is_mapped_at_a_time() -> None:
    """However long a text is, its lines are looked at in parts."""
    content = b"\1" * (BIG + 1)
    text = dumps(snapshot_of(split(memoryview(content))))
    assert dumps(snapshot_of(split(windowed(content, most=BIG)))) == text
    # A block is 16 chunks.
    assert verify(windowed(text, most=1_600_000)).ok


@pytest.mark.parametrize("case", valid_cases(), ids=lambda c: c.file)
def test_arrays_are_decoded_alike(case: Case) -> None:
    whole, parts = LazySnapshot(memoryview(case.text)), LazySnapshot(windowed(case.text))
    for name in whole:
        assert parts[name][...].tobytes() == whole[name][...].tobytes()


@pytest.mark.parametrize("case", delta_cases(), ids=lambda c: c.name)
def test_deltas_are_checked_made_and_applied_alike(case: DeltaCase) -> None:
    def made(view: Callable[[bytes], ByteView]) -> bytes:
        base, target = view(case.base), view(case.target)
        sides = side_of_text(base, index(base)), side_of_text(target, index(target))
        return b"".join(map(bytes, make(*sides, plain=case.plain).pieces()))

    def applied(view: Callable[[bytes], ByteView]) -> bytes:
        base, delta = view(case.base), view(case.delta)
        report = check(delta)
        assert report.ok
        regeneration = Regeneration(case.ts, case.build, case.hmac_key)
        found = apply(side_of_text(base, index(base)), delta, report.index, regeneration)
        return b"".join(map(bytes, text_pieces(found.side)))

    assert made(windowed) == made(memoryview)
    assert applied(windowed) == case.target
