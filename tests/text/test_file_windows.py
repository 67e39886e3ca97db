"""Commands on files that are read, or mapped, a small part at a time give the same as ever."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from tests.data import fixture, fixture_path, golden, one_of_each
from wtxtgit.checkpoint.emit import NewGeneration, emit, write_text
from wtxtgit.checkpoint.restore import restore
from wtxtgit.checkpoint.verify import demands, verify_files
from wtxtgit.filter.clean import text_of as emitted
from wtxtgit.filter.smudge import smudge
from wtxtgit.io import files, view
from wtxtgit.io.files import view_file
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import Windowed


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "AT_ONCE", 0)
    monkeypatch.setattr(view, "BLOCK", 4096)
    monkeypatch.setattr(view, "NEAR", 1024)
    monkeypatch.setattr(view, "WHOLE", 0)
    monkeypatch.setattr(view, "WINDOW", 64 * 1024)


def check(path: str, folder: Path) -> None:
    """Emit, verify and restore a file, and take it and its text through the filter."""
    content, expected = fixture(path), golden()[path]
    source, text, back = folder / "file", folder / "file.wtxt", folder / "back"
    source.write_bytes(content)
    write_text(emit(source, NewGeneration(), threads=2), text)
    assert sha256(text.read_bytes()).hexdigest() == expected["sha256"]
    found = verify_files([text], demands(), threads=2).files[0]
    assert (found.errors, found.sha256_all) == ((), expected["sha256_all"])
    restore(str(text), back, threads=2)
    assert back.read_bytes() == content
    cleaned = emitted(spooled([content], in_memory=0), threads=2)
    assert b"".join(map(bytes, cleaned.pieces())) == text.read_bytes()
    again = emitted(view_file(text), threads=2)
    assert b"".join(map(bytes, again.pieces())) == text.read_bytes()
    smudged = smudge(spooled([text.read_bytes()], in_memory=0), threads=2)
    assert b"".join(map(bytes, smudged.pieces())) == content


def test_files_are_read_and_mapped_in_parts() -> None:
    path = next(path for path in golden() if len(fixture(path)) > 64 * 1024)
    assert isinstance(view_file(fixture_path(path)), Windowed)
    assert isinstance(spooled([fixture(path)], in_memory=0), Windowed)


@pytest.mark.parametrize("path", one_of_each())
def test_a_file_of_each_format(path: str, tmp_path: Path) -> None:
    check(path, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("path", golden())
def test_every_file(path: str, tmp_path: Path) -> None:
    check(path, tmp_path)
