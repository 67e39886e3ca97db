"""The format's vectors through the Python interface."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest

import wtxtgit
from tests.data import DATA, VECTORS, Case, case_named, cases, invalid_cases, valid_cases
from tests.text import edge_texts
from tests.text.reading import read_text
from wtxtgit.errors import TextError
from wtxtgit.text.grammar import characters
from wtxtgit.text.verify import TextReport, verify
from wtxtgit.text.write import TextWriter

EDGES = DATA / "texts.json"


def report_of(case: Case, threads: int | None = None) -> TextReport:
    return verify(memoryview(case.text), threads=threads, **case.given)


def test_the_manifests_name_every_vector_once() -> None:
    manifests = [json.loads(file.read_bytes()) for file in (VECTORS / "manifest.json", EDGES)]
    files = [record["file"] for manifest in manifests for record in manifest["cases"]]
    assert len(files) == len(set(files)) == len(cases())
    assert len(valid_cases()) > 20
    assert len(invalid_cases()) > 80


@pytest.mark.parametrize("name", edge_texts.made())
def test_the_texts_at_the_edges_are_what_the_spec_makes(name: str) -> None:
    made = edge_texts.made()[name]
    record = edge_texts.record(name, made)
    assert record in json.loads(EDGES.read_bytes())["cases"]
    case = case_named(record["file"])
    assert (case.text, case.wsum) == (made.text, made.wsum)


@pytest.mark.parametrize("case", valid_cases(), ids=lambda c: c.file)
def test_a_valid_text_verifies_with_these_facts(case: Case) -> None:
    for threads in (1, 2):
        report = report_of(case, threads)
        assert report.problems == [], threads
        assert report.sha256_all is not None, threads
        assert report.sha256_all.hex() == case.expected["sha256_all"], threads
        assert report.signature == case.expected["signature"], threads
        assert report.authenticated == case.expected["authenticated"], threads


@pytest.mark.parametrize("case", valid_cases(), ids=lambda c: c.file)
def test_a_valid_text_gives_these_arrays(case: Case) -> None:
    weights = read_text(case.text, **case.given)
    found = [
        {
            "name": array.name,
            "dtype": array.dtype,
            "shape": list(array.shape),
            "sha256": sha256(array.data).hexdigest(),
        }
        for array in weights.snapshot.arrays
    ]
    assert found == case.expected["arrays"]
    for array in weights.snapshot.arrays:
        assert array.nbytes == array.data.nbytes


@pytest.mark.parametrize("case", valid_cases(), ids=lambda c: c.file)
def test_a_valid_text_that_is_read_and_written_is_the_same_text(case: Case) -> None:
    weights = read_text(case.text, **case.given)
    assert wtxtgit.dumps(weights) == case.text


@pytest.mark.parametrize(
    "case", [c for c in valid_cases() if c.wsum_file is not None], ids=lambda c: c.file
)
def test_the_wsum_of_what_was_read_is_the_given_one_without_its_signature(case: Case) -> None:
    weights = read_text(case.text, **case.given)
    assert case.wsum is not None
    bare = case.wsum.removesuffix(b"\n").split(b" sign=")[0] + b"\n"
    assert TextWriter(weights.snapshot).wsum().split()[2] == bare.split()[2]
    if weights.snapshot.pending and weights.snapshot.prev == bytes(32):
        prev = bytes.fromhex(bare.split()[3].removeprefix(b"merkle_prev=").decode())
        if prev == bytes(32):
            assert TextWriter(weights.snapshot).wsum() == bare


STOPPING = frozenset({"syntax", "structure"})


@pytest.mark.parametrize("case", invalid_cases(), ids=lambda c: c.file)
def test_an_invalid_text_is_refused_for_these_kinds(case: Case) -> None:
    for threads in (1, 2, None):
        report = report_of(case, threads)
        assert not report.ok, threads
        assert {problem.kind for problem in report.problems} >= case.kinds, threads
        # A reading that stopped gives no root.
        if case.kinds & STOPPING and case.wsum is None:
            assert report.sha256_all is None, threads
            assert report.layout is None, threads


@pytest.mark.parametrize("case", invalid_cases(), ids=lambda c: c.file)
def test_an_invalid_text_is_never_loaded(case: Case) -> None:
    with pytest.raises(TextError) as caught:
        read_text(case.text, **case.given)
    assert str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_key_with_unauthenticated_arrays_is_accepted_on_request_only() -> None:
    case = case_named("invalid/hmac_asked_none_there.wtxt")
    report = verify(memoryview(case.text), hmac_key=case.hmac_key, allow_unauthenticated=True)
    assert report.ok
    assert not report.authenticated


def test_a_wsum_for_a_text_with_a_wrong_magic_is_no_way_around() -> None:
    case = case_named("valid/pending_with_wsum.wtxt")
    assert case.wsum is not None
    for wsum in (b"", case.wsum[:-1], case.wsum + case.wsum, b"WSUM 2" + case.wsum[6:]):
        report = verify(memoryview(case.text), wsum=wsum)
        assert [problem.kind for problem in report.problems] == ["syntax"]


def test_the_count_of_characters_is_that_of_base64() -> None:
    assert [characters(n) for n in (0, 1, 2, 3, 56, 57)] == [0, 2, 3, 4, 75, 76]
