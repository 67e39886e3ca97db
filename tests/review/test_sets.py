"""Checkpoints in several files in a review: a set is one, whatever its shards are called."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.data import DATA
from tests.kit import Repo, text_of
from tests.review.repos import file, reviewed, risks
from wtxtgit.report.review import Fate, Review, Reviewed, Risk

INDEX = "m/model.safetensors.index.json"
ONE, TWO, THREE = (f"m/part{n}.safetensors" for n in (1, 2, 3))
A, B = np.arange(12, dtype="f4").reshape(4, 3), np.ones((2, 3), "f4")


def shard(repo: Repo, name: str, **tensors: Any) -> None:
    repo.write(name, text_of(file(tensors)))


def listed(repo: Repo, name: str = INDEX, **weight_map: str) -> None:
    repo.write(name, json.dumps({"weight_map": weight_map}))


def committed(repo: Repo, branch: str = "") -> None:
    if branch:
        repo.git("checkout", "-q", "-b", branch)
    repo.git("add", "-A", "-f")
    repo.commit()


@pytest.fixture
def sharded(repo: Repo) -> Repo:
    """A set of two shards, whose index the filter is not for."""
    repo.track("*.safetensors", "*.distcp")
    shard(repo, ONE, a=A)
    shard(repo, TWO, b=B)
    listed(repo, a="part1.safetensors", b="part2.safetensors")
    committed(repo)
    return repo


def by_path(found: Review) -> dict[str, Reviewed]:
    return {one.path.decode(): one for one in found.artifacts}


def statuses(one: Reviewed) -> dict[str, str]:
    assert one.diff is not None, one.reason
    return {tensor.name: str(tensor.status) for tensor in one.diff.tensors}


def test_a_shard_changes(sharded: Repo) -> None:
    shard(sharded, TWO, b=B * np.float32(np.nan))
    committed(sharded, "topic")
    found = by_path(reviewed(sharded))
    assert found.keys() == {INDEX, TWO}
    assert statuses(found[INDEX]) == {"a": "same", "b": "changed"}
    assert Risk.NEW_NAN in risks(found[INDEX])
    assert found[TWO].diff is None
    assert found[TWO].reason == f"a part of {INDEX}, which is compared as one"
    assert risks(found[TWO]) == set()
    # The commit that changed a shard changed the set.
    assert len(found[INDEX].commits) == 1


def test_what_is_no_tensor_of_a_shard(sharded: Repo) -> None:
    """It is told of the shard: the set has nothing of it."""
    content = file({"b": B * np.float32(2)}, {"license": "none"})
    sharded.write(TWO, text_of(content + b"more"))
    committed(sharded, "topic")
    found = by_path(reviewed(sharded))
    assert {Risk.METADATA, Risk.HIDDEN} <= risks(found[TWO])
    assert found[TWO].diff is None
    assert statuses(found[INDEX]) == {"a": "same", "b": "changed"}


@pytest.mark.parametrize("others", [False, True])
def test_further_values_of_the_index(sharded: Repo, *, others: bool) -> None:
    weight_map = {"a": "part1.safetensors", "b": "part2.safetensors"}
    sharded.write(INDEX, json.dumps({"weight_map": weight_map, "auto_map": "x.py"}))
    if others:
        shard(sharded, TWO, b=B * np.float32(2))
    committed(sharded, "topic")
    flags = by_path(reviewed(sharded))[INDEX].flags
    (message,) = (flag.message for flag in flags if flag.risk is Risk.METADATA)
    assert message == "1 value: added /further/auto_map"


def test_an_index_that_can_not_be_read_any_more(sharded: Repo) -> None:
    """It is still there: it was not removed."""
    sharded.write(INDEX, '{"weight_map":{"a":"part1.safetensors","a":"part2.safetensors"}}')
    committed(sharded, "topic")
    one = by_path(reviewed(sharded))[INDEX]
    assert (one.fate, one.diff) == (Fate.CHANGED, None)
    assert Risk.REMOVED not in risks(one)
    assert Risk.UNREAD in risks(one), one.flags


def test_shards_are_cut_anew(sharded: Repo) -> None:
    sharded.git("rm", "-q", TWO)
    shard(sharded, THREE, b=B)
    shard(sharded, ONE, c=A)
    listed(sharded, c="part1.safetensors", b="part3.safetensors")
    committed(sharded, "topic")
    found = by_path(reviewed(sharded))
    assert statuses(found[INDEX]) == {"c": "renamed", "b": "same"}
    assert {one.fate for path, one in found.items() if path != INDEX} == {
        Fate.CHANGED,
        Fate.RENAMED,
    }
    assert all(one.diff is None for path, one in found.items() if path != INDEX)


def test_a_set_is_new_moves_and_goes(sharded: Repo) -> None:
    sharded.git("mv", "m", "n")
    committed(sharded, "moved")
    found = by_path(reviewed(sharded, "main...moved"))
    moved = found[INDEX.replace("m/", "n/", 1)]
    assert (moved.fate, moved.base_path) == (Fate.RENAMED, INDEX.encode())
    assert set(statuses(moved).values()) == {"same"}
    assert len(found) == 3
    sharded.git("rm", "-rq", "n")
    committed(sharded, "gone")
    found = by_path(reviewed(sharded, "moved...gone"))
    assert {one.fate for one in found.values()} == {Fate.REMOVED}
    assert set(statuses(found["n/model.safetensors.index.json"]).values()) == {"removed"}
    found = by_path(reviewed(sharded, "gone..main"))
    assert {one.fate for one in found.values()} == {Fate.ADDED}
    assert risks(found[INDEX]) == set()


def test_the_index_alone_changes(sharded: Repo) -> None:
    listed(sharded, a="part1.safetensors")
    committed(sharded, "topic")
    (one,) = reviewed(sharded).artifacts
    assert one.path == INDEX.encode()
    assert statuses(one) == {"a": "same", "b": "removed"}
    assert Risk.REMOVED in risks(one)


def test_what_an_index_does_not_list_is_told(sharded: Repo) -> None:
    shard(sharded, TWO, b=B, hidden=A)
    committed(sharded, "topic")
    found = by_path(reviewed(sharded))
    (flag,) = [flag for flag in found[INDEX].flags if flag.risk is Risk.UNREAD]
    assert "'hidden'" in flag.message


def test_a_set_that_cannot_be_compared_hides_no_change(sharded: Repo) -> None:
    shard(sharded, TWO, b=B * 2)
    listed(sharded, a="part1.safetensors", b="part2.safetensors", gone="part2.safetensors")
    committed(sharded, "topic")
    found = by_path(reviewed(sharded))
    assert Risk.UNREAD in risks(found[INDEX])
    assert statuses(found[TWO]) == {"b": "changed"}


def test_an_index_that_comes_along_hides_no_change(sharded: Repo) -> None:
    shard(sharded, "whole.safetensors", w=A)
    committed(sharded)
    shard(sharded, "whole.safetensors", w=A * 2, v=A)
    listed(sharded, "new.safetensors.index.json", v="whole.safetensors")
    committed(sharded, "topic")
    found = by_path(reviewed(sharded))
    assert statuses(found["whole.safetensors"]) == {"w": "changed", "v": "added"}


@pytest.mark.parametrize("path", ["../whole.safetensors", "/whole.safetensors"])
def test_files_outside_of_the_folder_are_no_parts(sharded: Repo, path: str) -> None:
    shard(sharded, "whole.safetensors", w=A)
    listed(sharded, a="part1.safetensors", w=path)
    committed(sharded)
    shard(sharded, "whole.safetensors", w=A * 2)
    committed(sharded, "topic")
    (one,) = reviewed(sharded).artifacts
    assert statuses(one) == {"w": "changed"}


def test_distributed_checkpoints(sharded: Repo) -> None:
    # Of torch's own writing: the same tensors of one process, and of ranks.
    for name in ("ranks", "single"):
        for source in (DATA / "distributed" / name).iterdir():
            content = source.read_bytes()
            is_tracked = source.suffix == ".distcp"
            sharded.write(f"{name}/{source.name}", text_of(content) if is_tracked else content)
    committed(sharded)
    shard_ = sharded.path / "ranks/__0_0.distcp"
    content = (DATA / "distributed/ranks/__0_0.distcp").read_bytes()
    start = np.arange(20, dtype="<f4").tobytes()
    changed = content.replace(start, (np.arange(20, dtype="<f4") * 2).tobytes())
    assert changed != content
    shard_.write_bytes(text_of(changed))
    committed(sharded, "topic")
    found = by_path(reviewed(sharded))
    assert found.keys() == {"ranks/.metadata", "ranks/__0_0.distcp"}
    changed_names = {k for k, v in statuses(found["ranks/.metadata"]).items() if v != "same"}
    assert changed_names == {"rows"}
    # A file of several archives is no archive with hidden bytes in front.
    assert found["ranks/__0_0.distcp"].flags == ()


def test_a_distributed_shard_without_its_index(sharded: Repo) -> None:
    content = (DATA / "distributed/ranks/__1_0.distcp").read_bytes()
    sharded.write("x/__1_0.distcp", text_of(content))
    committed(sharded, "topic")
    (one,) = reviewed(sharded).artifacts
    assert one.diff is None
    assert one.reason is not None
    assert "a shard of a torch-distributed checkpoint" in one.reason
    assert Risk.OPAQUE in risks(one)
