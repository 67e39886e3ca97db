"""One character of a text or a ledger edited: refused, or what it gives is the same."""

from __future__ import annotations

import pytest

from tests.data import case_named, ledger_named
from tests.text.edits import edits
from wtxtgit.model.ledger import Ledger
from wtxtgit.text.file import file_pieces
from wtxtgit.text.ledger import read
from wtxtgit.text.verify import TextReport, verify

pytestmark = pytest.mark.slow


def given(text: bytes, report: TextReport) -> object:
    """What restoring a text gives: the file, or the arrays with their bytes' hashes."""
    if report.layout is not None and report.is_container:
        view = memoryview(text)
        return b"".join(map(bytes, file_pieces(view, report.index, report.layout, threads=1)))
    return [array.claim for array in report.index.arrays]


@pytest.mark.parametrize(
    "name", ["one_byte", "no_arrays", "scalar_and_empty", "audit_line", "layout_hex_zeros"]
)
def test_an_edited_text_gives_the_same_or_nothing(name: str) -> None:
    text = case_named(f"valid/{name}.wtxt").text
    expected = given(text, verify(memoryview(text), threads=1))
    accepted = 0
    for edited in edits(text):
        report = verify(memoryview(edited), threads=1)
        if report.ok:
            accepted += 1
            assert given(edited, report) == expected
    assert accepted


def chained(ledger: Ledger) -> list[object]:
    """What a ledger says of contents, and of their order."""
    return [
        (r.sha256_all, r.merkle_prev, r.merkle_this, r.meta.gen, r.meta.ts, r.meta.build)
        for r in ledger.records
    ]


@pytest.mark.parametrize("name", ["one", "unsigned", "moved", "deleted"])
def test_an_edited_ledger_says_the_same_of_contents_or_nothing(name: str) -> None:
    text = ledger_named(name).text
    whole = read(text).ledger
    assert whole is not None
    accepted = 0
    for edited in edits(text):
        report = read(edited)
        if report.ok:
            assert report.ledger is not None
            accepted += 1
            assert chained(report.ledger) == chained(whole)
    assert accepted
