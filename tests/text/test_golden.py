"""Canonical form 1, frozen: the text of every file, and every file from its text."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from tests.data import fixture, fixture_path, golden, golden_of
from wtxtgit.checkpoint.emit import NewGeneration, emit, write_text
from wtxtgit.containers.registry import FORMATS
from wtxtgit.filter.clean import clean, text_of
from wtxtgit.filter.content import examine
from wtxtgit.filter.smudge import smudge
from wtxtgit.text.verify import verify

THREADS = (1, 2, 3)


@pytest.mark.parametrize("path", golden())
def test_clean_gives_the_frozen_text_and_smudge_the_file(path: str) -> None:
    data = fixture(path)
    expected = golden()[path]
    for threads in THREADS:
        cleaned = text_of(memoryview(data), threads=threads)
        assert cleaned.warning is None, threads
        text = b"".join(cleaned.pieces())
        assert len(text) == expected["bytes"], threads
        assert sha256(text).hexdigest() == expected["sha256"], threads
        smudged = smudge(memoryview(text), threads=threads)
        assert smudged.warning is None, threads
        assert b"".join(smudged.pieces()) == data, threads


@pytest.mark.parametrize("path", golden())
def test_the_frozen_text_verifies_as_its_format_and_clean_leaves_it(path: str) -> None:
    text = b"".join(clean(memoryview(fixture(path))).pieces())
    again = clean(memoryview(text))
    assert again.warning is None
    assert b"".join(again.pieces()) == text
    report = verify(memoryview(text or b"".join(text_of(memoryview(b"")).pieces())))
    assert report.ok
    assert report.layout is not None
    assert report.layout.format == golden()[path]["format"]
    assert report.layout.size == len(fixture(path))
    assert report.sha256_all is not None
    assert report.sha256_all.hex() == golden()[path]["sha256_all"]


def test_the_empty_file_is_an_empty_blob_sealed_as_its_text() -> None:
    text = b"".join(text_of(memoryview(b"")).pieces())
    assert sha256(text).hexdigest() == golden()[""]["sha256"]
    for content in (b"", text):
        assert b"".join(clean(memoryview(content)).pieces()) == b""
        assert b"".join(smudge(memoryview(content)).pieces()) == b""
        facts = examine(memoryview(content), opaque=True)
        assert facts.sha256_all is not None
        assert facts.sha256_all.hex() == golden()[""]["sha256_all"]
        assert facts.opaque in (facts.sha256_all, examine(memoryview(text), opaque=True).opaque)
        # The text is no longer what clean gives; neither is a binary.
        assert (facts.is_canonical, facts.is_raw) == (not content, False)


@pytest.mark.parametrize("path", [path for path in golden() if path])
def test_emit_to_a_file_gives_the_frozen_text(path: str, tmp_path: Path) -> None:
    out = tmp_path / "out.wtxt"
    for threads in THREADS:
        write_text(emit(fixture_path(path), NewGeneration(), threads=threads), out)
        content = out.read_bytes()
        assert len(content) == golden()[path]["bytes"], threads
        assert sha256(content).hexdigest() == golden()[path]["sha256"], threads
        assert [p.name for p in (tmp_path).iterdir()] == ["out.wtxt"], threads
        out.unlink()


def test_every_format_has_golden_texts() -> None:
    formats = {*(f.name for f in FORMATS), "opaque"}
    assert {record["format"] for record in golden().values()} == formats


def test_legacy_torch_files_and_what_can_not_be_read_are_stored_whole() -> None:
    assert set(golden_of("opaque")) == {
        "",
        "fold/unfinalized_a.fold",
        "mlcp/sibling_multishard_a.shard",
        "plain/legacy_a.pt",
        "golden/torch/legacy.pt",
    }
