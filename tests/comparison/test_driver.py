"""What a diff of git shows of two files, or of one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import wtxtgit as api
from tests.comparison.test_diff import WEIGHTS, changed_rows, edited, file, text_of
from tests.data import FIXTURES
from wtxtgit.comparison.driver import Inventory, compare_pair
from wtxtgit.errors import CheckError, EnvironmentFailure, InputError
from wtxtgit.git.external_diff import DiffFile, Pair
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.report.diff import DiffReport, TensorStatus


def pair(old: Path | None, new: Path | None) -> Pair:
    before, after = (None if p is None else DiffFile(p, None, 0o100644) for p in (old, new))
    return Pair(b"sub/m", before, after)


def compared(old: Path, new: Path) -> DiffReport:
    found = compare_pair(pair(old, new), ReadOptions())
    assert isinstance(found, DiffReport)
    return found


def listed(old: Path | None, new: Path | None) -> Inventory:
    found = compare_pair(pair(old, new), ReadOptions())
    assert isinstance(found, Inventory)
    return found


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return file(tmp_path / "old", WEIGHTS)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return file(tmp_path / "new", edited(embed=changed_rows(3)))


@pytest.mark.parametrize("old_is_text", [False, True])
@pytest.mark.parametrize("new_is_text", [False, True])
def test_files_and_texts(old: Path, new: Path, old_is_text: bool, new_is_text: bool) -> None:
    found = compared(text_of(old) if old_is_text else old, text_of(new) if new_is_text else new)
    (changed,) = found.of(TensorStatus.CHANGED)
    assert changed.name == "embed"
    assert (found.a, found.b, found.notes) == ("before", "after", ())
    assert (found.a_format, found.b_format) == ("safetensors", "safetensors")


def test_native_texts(tmp_path: Path) -> None:
    for number in (1, 2):
        api.dump({"w": np.full(3, float(number))}, tmp_path / f"{number}")
    found = compared(tmp_path / "1", tmp_path / "2")
    assert (found.a_format, found.summary.changed_elements) == ("wtxt", 3)


def test_one_side_alone(old: Path) -> None:
    added, removed = listed(None, old), listed(old, None)
    assert added == removed
    assert (added.format, added.size) == ("safetensors", old.stat().st_size)
    assert (added.tensors, added.elements) == (3, 640 + 64 + 1)
    totals = [(t.dtype, t.tensors, t.elements, t.nbytes) for t in added.dtypes]
    assert totals == [("f32", 1, 640, 2560), ("f16", 1, 64, 128), ("i64", 1, 1, 8)]


def test_one_side_as_text(old: Path) -> None:
    assert listed(None, text_of(old)) == listed(None, old)


def test_a_file_without_tensors(tmp_path: Path) -> None:
    found = listed(None, file(tmp_path / "none", {}))
    assert (found.tensors, found.elements, found.dtypes) == (0, 0, ())


def test_tensors_that_are_only_listed(tmp_path: Path) -> None:
    path = FIXTURES / "mlcp/pair_v1_a.checkpoint"
    assert listed(None, path).format == "mlcp"


class TestWhatIsNoTensor:
    def test_another_order(self, old: Path, tmp_path: Path) -> None:
        other = tmp_path / "turned"
        file(other, dict(reversed(WEIGHTS.items())))
        (part,) = compared(old, other).parts
        assert part.reordered == 2

    def test_the_same_bytes(self, old: Path, tmp_path: Path) -> None:
        again = tmp_path / "again"
        again.write_bytes(old.read_bytes())
        assert compared(old, again).notes == ()
        assert compared(old, text_of(again)).notes == ()

    def test_metadata(self, old: Path, tmp_path: Path) -> None:
        found = compared(old, file(tmp_path / "other", WEIGHTS, {"step": "2"}))
        assert [change.path for change in found.metadata][-1:] == ["/__metadata__/step"]
        assert found.notes == ()


class TestFailures:
    """Messages name the side, and no temporary file."""

    def test_no_checkpoint(self, old: Path, tmp_path: Path) -> None:
        bad = tmp_path / "bad"
        bad.write_bytes(b"junk")
        with pytest.raises(InputError, match=r"^after: not a known checkpoint"):
            compared(old, bad)
        with pytest.raises(InputError, match=r"^before: not a known checkpoint"):
            compared(bad, old)
        with pytest.raises(InputError, match=r"^sub/m: not a known checkpoint"):
            listed(bad, None)

    def test_a_damaged_text(self, old: Path, new: Path) -> None:
        text = text_of(new)
        lines = text.read_bytes().split(b"\n")
        number = max(n for n, line in enumerate(lines) if len(line) == 78)
        lines[number] = (b"B" if lines[number][:1] == b"A" else b"A") + lines[number][1:]
        text.write_bytes(b"\n".join(lines))
        with pytest.raises(CheckError, match=r"^after: .*line "):
            compared(old, text)

    def test_files_that_are_gone(self, old: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"^after: no such file"):
            compared(old, tmp_path / "gone")

    def test_links_are_not_followed(self, old: Path, tmp_path: Path) -> None:
        link = tmp_path / "link"
        link.symlink_to(old)
        with pytest.raises(EnvironmentFailure, match=r"^before: "):
            compared(link, old)

    def test_pipes_are_not_waited_for(self, old: Path, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(InputError, match=r"^after: not a regular file"):
            compared(old, tmp_path / "pipe")

    def test_files_beside_an_index_are_not_opened(self, old: Path, tmp_path: Path) -> None:
        """They may be of another commit than the index."""
        index = tmp_path / "model.safetensors.index.json"
        shard = file(tmp_path / "a.safetensors", {"w": np.ones(2, "f4")})
        index.write_text(json.dumps({"metadata": {}, "weight_map": {"w": shard.name}}))
        with pytest.raises(InputError, match=r"not part of this diff; wtxtgit diff REV:PATH PATH"):
            listed(None, index)
