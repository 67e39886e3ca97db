"""Files of sets, checked each by itself: the same is found as in the set as a whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.data import FIXTURES
from wtxtgit.checkpoint.members import members
from wtxtgit.checkpoint.open import read
from wtxtgit.containers import any_format
from wtxtgit.errors import FormatError
from wtxtgit.model.tensor import ReadOptions

AERO, PLAIN = FIXTURES / "aero", FIXTURES / "plain"
AEROSET, SAFETENSORS = "model.aeroset.json", "model.safetensors.index.json"
OPTIONS = ReadOptions()


@pytest.fixture(params=["aeroset_multi_a", "aeroset_from_sharded_a", "safetensors"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The index of a set, in a folder with its files."""
    if request.param != "safetensors":
        shutil.copytree(AERO / request.param, tmp_path / "set")
        return tmp_path / "set" / AEROSET
    (tmp_path / "set").mkdir()
    shards = {}
    for name in ("pair_v1.safetensors", "mixed_meta_a.safetensors"):
        data = (PLAIN / name).read_bytes()
        (tmp_path / "set" / name).write_bytes(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        shards |= {tensor: name for tensor in header if tensor != "__metadata__"}
    index: Path = tmp_path / "set" / SAFETENSORS
    about = {"metadata": {"total_size": 1}, "weight_map": {**shards, "lost": name}}
    index.write_text(json.dumps(about))
    return index


def assert_same(index: Path) -> None:
    data, open_member = read(str(index)), members(str(index))
    whole = any_format.check(data, OPTIONS, open_member)
    paths = any_format.members(data, open_member)
    assert len(paths) > 1
    # In another order than theirs, each in a process of its own.
    found = {
        path: any_format.check_members(data, [path], OPTIONS, open_member)[0]
        for path in reversed(paths)
    }
    checked = [found[path] for path in paths]
    assert any_format.check(data, OPTIONS, open_member, checked) == whole


def test_as_they_are(index: Path) -> None:
    assert_same(index)


def test_a_file_is_damaged(index: Path) -> None:
    for file in sorted(index.parent.iterdir()):
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2])
        if file != index:
            assert_same(index)
        file.write_bytes(content)


def test_a_file_is_gone(index: Path) -> None:
    for file in sorted(index.parent.iterdir()):
        content = file.read_bytes()
        if file != index:
            file.unlink()
            assert_same(index)
        file.write_bytes(content)


def test_files_that_a_set_has_not(index: Path) -> None:
    data, open_member = read(str(index)), members(str(index))
    with pytest.raises(FormatError, match="no longer has the same files"):
        any_format.check_members(data, ["other"], OPTIONS, open_member)


@pytest.mark.parametrize("data", [b"", b"{}", b"{", b'{"format": {"name": "AEROSET"}}'])
def test_no_set(data: bytes) -> None:
    def open_member(path: str) -> memoryview:
        raise AssertionError(path)

    view = memoryview(data)
    assert any_format.members(view, open_member) == ()
    with pytest.raises(FormatError):
        any_format.check_members(view, [], OPTIONS, open_member)
