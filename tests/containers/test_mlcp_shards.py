"""MLCP checkpoints in shards: the JSON, the files of the ranks, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.containers.sources import content, models, source
from tests.data import fixture
from wtxtgit.checkpoint.convert import convert
from wtxtgit.containers import any_format
from wtxtgit.containers.format import SetFolder
from wtxtgit.containers.mlcp.read import read as read_single
from wtxtgit.containers.mlcp.shards import shard_header
from wtxtgit.containers.mlcp.write import DTYPES
from wtxtgit.containers.mlcp.write_shards import build_set
from wtxtgit.errors import FormatError, InputError
from wtxtgit.io.view import ByteView
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import Description, ReadOptions, TensorSource

INDEX = "m.metadata.json"
FIRST, SECOND = "m_shard_0.shard", "m_shard_1.shard"
Files = dict[str, bytes]


def opener(files: Files, index: str = INDEX) -> SetFolder:
    def open_member(path: str) -> ByteView:
        if path not in files:
            raise InputError("no such file")
        return memoryview(files[path])

    return SetFolder(open_member, lambda: index)


def made(tensors: list[TensorSource] | None = None, max_shard: int = 8, **tags: str) -> Files:
    """A checkpoint in shards, as it is written here."""
    two = [source("a", "f32", (2,)), source("b", "i16", (2, 2))]
    built = build_set(two if tensors is None else tensors, tags, "m", max_shard)
    return {name: b"".join(map(bytes, pieces)) for name, pieces in built}


def edited(files: Files, edit: Callable[[dict[str, Any]], object]) -> Files:
    """The files with another JSON."""
    value = json.loads(files[INDEX])
    edit(value)
    return files | {INDEX: json.dumps(value).encode()}


def check(files: Files) -> Findings:
    return any_format.check(memoryview(files[INDEX]), ReadOptions(), opener(files))


def errors(files: Files) -> list[tuple[str | None, object]]:
    return [(problem.field, problem.chunk) for problem in check(files).errors]


def describe(files: Files, open_member: SetFolder | None = None) -> Description:
    data = memoryview(files[INDEX])
    return any_format.describe(data, ReadOptions(), open_member or opener(files))


def test_what_the_framework_wrote() -> None:
    single = read_single(memoryview(fixture("mlcp/one_shard_a.checkpoint")))
    metadata = bytes(single.data[single.metadata_start : single.header_end])
    files = {INDEX: metadata, FIRST: fixture("mlcp/sibling_multishard_a.shard")}
    assert any_format.identify(memoryview(metadata)) == "sharded-mlcp"
    found = describe(files)
    data = files[FIRST][-584:]
    assert {tensor.name: tensor.data.tobytes() for tensor in found.tensors} == {
        "encoder.weight": data[:512],
        "encoder.bias": data[512:576],
        "step": data[576:],
    }
    assert [(tensor.dtype, tensor.shape) for tensor in found.tensors] == [
        ("Float32", (16, 8)),
        ("Float32", (16,)),
        ("Int64", ()),
    ]
    assert (found.format, found.size, found.unlisted) == ("sharded-mlcp", 612, ())
    told = check(files)
    assert told.errors == []
    (warning,) = told.warnings
    assert "'deadbeef' is not a SHA-256" in warning.message


@given(models(sorted(DTYPES)), st.integers(1, 100))
def test_what_is_written_is_read_back(tensors: list[TensorSource], max_shard: int) -> None:
    files = made(tensors, max_shard, run="é")
    found = describe(files)
    # Large tensors have shards of their own, before those that are still filled.
    assert {t.name: (t.element, t.shape, t.data.tobytes()) for t in found.tensors} == {
        t.name: (t.element, t.shape, content(t)) for t in tensors
    }
    assert found.tags == {"run": "é"}
    told = check(files)
    assert (told.errors, told.warnings) == ([], [])


def test_training_state_goes_along(tmp_path: Path) -> None:
    def train(value: dict[str, Any]) -> None:
        value["training"] = {"epoch": 3, "step": 7, "optimizerState": {"beta": 0.9}}
        value["customFields"] = {"run": "x"}
        value["sharding"]["strategy"] = value["shardingStrategy"]["strategy"] = "fsdp"
        value["worldSize"] = 8

    for name, data in edited(made(), train).items():
        (tmp_path / name).write_bytes(data)
    one, again = tmp_path / "one.checkpoint", tmp_path / "n.checkpoint"
    options = ReadOptions()
    done = convert(str(tmp_path / INDEX), one, options, inline_data=True)
    assert done.dropped == ()
    assert convert(str(one), again, options, max_shard=8).dropped == ()
    (before, after) = (json.loads((tmp_path / n).read_bytes()) for n in (INDEX, "n.metadata.json"))
    for shard in before["shards"]:
        shard["filePath"] = f"n{shard['filePath'][1:]}"
    assert after == before


@pytest.mark.parametrize("name", ["sharding", "shardingStrategy"])
def test_one_name_of_sharding_is_enough(tmp_path: Path, name: str) -> None:
    def leave_one(value: dict[str, Any]) -> None:
        value[name]["strategy"] = "fsdp"
        del value[{"sharding": "shardingStrategy", "shardingStrategy": "sharding"}[name]]

    for file, data in edited(made(), leave_one).items():
        (tmp_path / file).write_bytes(data)
    convert(str(tmp_path / INDEX), tmp_path / "n.checkpoint", ReadOptions(), max_shard=100)
    after = json.loads((tmp_path / "n.metadata.json").read_bytes())
    assert after["sharding"] == after["shardingStrategy"]
    assert (after[name]["strategy"], after[name]["shardCount"]) == ("fsdp", 1)


@pytest.mark.parametrize(
    "tensors",
    [
        [source("a", "c64", (1,))],
        [source("a", "i8", (1,)), source("a", "i8", (1,))],
        [TensorSource("a", "i8", (2**31,), 2**31, lambda: iter(()))],
    ],
)
def test_what_can_not_be_written(tensors: list[TensorSource]) -> None:
    with pytest.raises(FormatError):
        build_set(tensors, {}, "m", 8)


def test_shards_are_called_after_the_index() -> None:
    files = edited(made(), lambda value: value["shards"][0].update(filePath="/x/other.shard"))
    assert errors(files) == []
    # One that is called otherwise has only what it says.
    renamed = opener(files, "x.json")
    data = memoryview(files[INDEX])
    with pytest.raises(FormatError, match="is not a path in the folder"):
        any_format.describe(data, ReadOptions(), renamed)
    files = made()
    found = describe(files, opener(files, ""))
    assert all(tensor.absent is None for tensor in found.tensors)


def test_files_without_a_header() -> None:
    """As the framework's coordinator writes them."""
    files = made()

    def name_raw(value: dict[str, Any]) -> None:
        for shard, size in zip(value["shards"], (8, 8), strict=True):
            shard.update(filePath=f"x_shard_{shard['rank']}.bin", fileSize=size)

    raw = edited(files, name_raw) | {
        "m_shard_0.bin": files[FIRST][-8:],
        "m_shard_1.bin": files[SECOND][-8:],
    }
    assert errors(raw) == []
    assert [t.data.tobytes() for t in describe(raw).tensors] == [
        t.data.tobytes() for t in describe(files).tensors
    ]


def test_tensors_whose_offsets_nobody_set() -> None:
    files = made(max_shard=100)
    unset = edited(files, lambda v: [t.update(offset=0) for t in v["shards"][0]["tensors"]])
    assert [t.data.tobytes() for t in describe(unset).tensors] == [
        t.data.tobytes() for t in describe(files).tensors
    ]
    assert errors(unset) == []


def test_tensors_of_several_ranks_that_are_called_alike() -> None:
    files = made()
    alike = edited(files, lambda value: value["shards"][1]["tensors"][0].update(name="a"))
    assert [tensor.name for tensor in describe(alike).tensors] == ["shard_0/a", "shard_1/a"]
    assert errors(alike) == []


def digest_of(files: Files, which: str) -> str:
    file = files[FIRST]
    seen = {"data": file[-8:], "file": file, "before": shard_header(0, "", 1) + file[-12:]}
    return sha256(seen[which]).hexdigest()


@pytest.mark.parametrize("which", ["data", "file", "before"])
@pytest.mark.parametrize("spelled", ["{}", "sha256:{}"])
def test_a_checksum_of_the_data_or_of_the_file(which: str, spelled: str) -> None:
    files = made()
    told = spelled.format(digest_of(files, which))
    sealed = edited(files, lambda value: value["shards"][0].update(checksum=told))
    if which == "file":
        # A file can't hold its own hash, so there it is the JSON alone that has it.
        assert ("checksum", FIRST) in errors(sealed)
        return
    file = shard_header(0, told, 1) + files[FIRST][-12:]
    sealed = edited(sealed, lambda value: value["shards"][0].update(fileSize=len(file)))
    sealed[FIRST] = file
    assert errors(sealed) == []
    sealed[FIRST] = file[:-1] + bytes([file[-1] ^ 1])
    (problem,) = check(sealed).errors
    assert (problem.kind, problem.field, problem.chunk) == ("sha256", "checksum", FIRST)


def _shard(value: dict[str, Any]) -> dict[str, Any]:
    shard: dict[str, Any] = value["shards"][0]
    return shard


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (lambda v: _shard(v)["tensors"][0].update(size=9), "size"),
        (lambda v: _shard(v)["tensors"][0].update(shape=[3]), "size"),
        (lambda v: _shard(v)["tensors"][0].update(shape=[-1]), "shape"),
        (lambda v: _shard(v)["tensors"][0].update(offset=1), "offset"),
        (lambda v: _shard(v).update(fileSize=1), "fileSize"),
        (lambda v: _shard(v).update(fileSize="x"), "fileSize"),
        (lambda v: _shard(v)["tensors"].append(_shard(v)["tensors"][0]), "tensor count"),
        (lambda v: v["shards"].pop(), "shardCount"),
        (lambda v: v["sharding"].update(shardCount=3), "shardCount"),
        (lambda v: v.update(tensorInfos=[]), "tensorInfos"),
        (lambda v: v.update(ddpRank="x"), "ddpRank"),
        (lambda v: _shard(v).update(rank=5), "rank"),
    ],
)
def test_what_the_json_says_wrongly(edit: Callable[[dict[str, Any]], object], field: str) -> None:
    assert field in [name for name, _ in errors(edited(made(), edit))]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda v: v.update(shards={}), "no list of shards"),
        (lambda v: v.update(shards=[1]), "a shard is not an object"),
        (lambda v: _shard(v).update(rank=-1), "wrong rank"),
        (lambda v: _shard(v).update(rank=1), "two shards have the rank 1"),
        (lambda v: _shard(v).update(tensors=3), "no list of tensors"),
        (lambda v: _shard(v).update(tensors=[3]), "not an object"),
        (lambda v: _shard(v).update(checksum=3), "not a string"),
        (lambda v: _shard(v)["tensors"][0].update(name=None), "no name"),
        (lambda v: _shard(v)["tensors"][0].update(shape=[True]), "wrong shape"),
        (lambda v: _shard(v)["tensors"][0].update(dataType="f"), "wrong dtype"),
        (lambda v: _shard(v)["tensors"][0].update(offset=-1), "wrong offset"),
        (lambda v: _shard(v)["tensors"][0].update(size=1.0), "wrong size"),
    ],
)
def test_json_that_is_refused(edit: Callable[[dict[str, Any]], object], words: str) -> None:
    files = edited(made(), edit)
    with pytest.raises(FormatError, match=words):
        describe(files)
    assert check(files).errors


@pytest.mark.parametrize("index", ["../m.metadata.json", "a\\b.metadata.json"])
def test_no_path_leads_out_of_the_folder(index: str) -> None:
    files = made()
    with pytest.raises(FormatError, match="is not a path in the folder"):
        any_format.describe(memoryview(files[INDEX]), ReadOptions(), opener(files, index))


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (b"", "not a .shard file"),
        (b"PCLM" + bytes(20), "not a .shard file"),
        (shard_header(1, "", 1) + pack("<i", 0), "rank is 1, not 0"),
        (shard_header(0, "", 2) + pack("<i", 0), "tensor count is 2"),
        (shard_header(0, "", 1) + pack("<i", -1), "negative length"),
        (shard_header(0, "", 1) + pack("<i", 9) + bytes(8), "cut short"),
        (b"RAHS" + pack("<ii", 0, 2**31 - 1), "cut short"),
        (b"RAHS" + pack("<ii", 0, 2) + b"\xff\xff", "not UTF-8"),
    ],
)
def test_a_shard_that_is_none_has_no_tensors(file: bytes, words: str) -> None:
    files = made() | {FIRST: file}
    first, second = describe(files).tensors
    assert words in (first.absent or "")
    assert second.absent is None
    assert words in " ".join(problem.message for problem in check(files).errors)


def test_shards_that_are_missing_or_stand_in_one_another_s_place() -> None:
    files = made()
    del files[SECOND]
    assert [tensor.absent is None for tensor in describe(files).tensors] == [True, False]
    assert errors(files) == [("rank", SECOND)]
    files = made()
    files[FIRST], files[SECOND] = files[SECOND], files[FIRST]
    assert errors(files) == [("rank", FIRST), ("rank", SECOND)]


def test_bytes_that_are_no_tensor_s_are_told() -> None:
    files = made()
    files[FIRST] += b"hidden"
    assert ("offset", FIRST) in errors(files)
    assert describe(files).unlisted == (f"6 bytes of {FIRST!r} belong to no tensor",)
    inside = edited(made(), lambda value: _shard(value)["tensors"][0].update(size=4, shape=[1]))
    assert ("offset", FIRST) in errors(inside)


def test_a_checksum_as_long_as_data_is_told() -> None:
    files = edited(made(), lambda value: _shard(value).update(checksum="", fileSize=8))
    for length, told in ((128, ()), (129, (f"129 bytes of {FIRST!r} are not a checksum",))):
        files[FIRST] = shard_header(0, "x" * length, 1) + pack("<i", 8) + bytes(8)
        assert not errors(files)
        assert describe(files).unlisted == told


def test_tensors_that_share_bytes() -> None:
    def share(value: dict[str, Any]) -> None:
        value["shards"][0]["tensors"][1]["offset"] = 4

    assert ("offset", FIRST) in errors(edited(made(max_shard=100), share))


def test_a_key_that_is_there_twice() -> None:
    files = made()
    files[INDEX] = files[INDEX].replace(b'"rank": 0,', b'"rank": 0, "rank": 0,')
    assert errors(files) == [("metadata", None)]
