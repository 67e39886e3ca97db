"""`wtxtgit.salvage`: what a damaged checkpoint still holds."""

from __future__ import annotations

from pathlib import Path

import pytest

import wtxtgit
from tests.kit import safetensors
from wtxtgit.errors import InputError, UsageError

WHOLE = safetensors(*range(100))


def test_tensors_by_state(tmp_path: Path) -> None:
    damaged, out = tmp_path / "m.safetensors", tmp_path / "left.npz"
    damaged.write_bytes(WHOLE[:-4])
    report = wtxtgit.salvage(damaged, out)
    assert (report.state, report.output) == ("partial", None)
    assert [(one.name, one.state) for one in report.tensors] == [("w", "lost")]
    assert not out.exists()
    damaged.write_bytes(WHOLE)
    assert wtxtgit.salvage(str(damaged)).output is None
    report = wtxtgit.salvage(damaged, out)
    assert (report.state, report.output) == ("intact", str(out))
    assert out.exists()


def test_the_damaged_file_stays(tmp_path: Path) -> None:
    damaged = tmp_path / "m.safetensors"
    damaged.write_bytes(WHOLE)
    with pytest.raises(UsageError, match="never overwritten"):
        wtxtgit.salvage(damaged, damaged)
    assert damaged.read_bytes() == WHOLE


def test_a_file_of_no_format(tmp_path: Path) -> None:
    other = tmp_path / "notes"
    other.write_bytes(b"no checkpoint")
    with pytest.raises(InputError, match="not a known checkpoint"):
        wtxtgit.salvage(other)
