"""`wtxtgit convert`: tensors from format to format, nothing rounded, nothing half written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from gguf import GGUFReader

from tests.cli.command import Command
from tests.cli.test_inspect import inspected
from tests.data import FIXTURES, fixture
from tests.kit import Repo
from wtxtgit.containers.any_format import describe
from wtxtgit.containers.fold.write import ChunkSource, build

WEIGHTS: dict[str, np.ndarray[Any, Any]] = {
    "layers.0.w": np.arange(24, dtype="f4").reshape(4, 6) - 3.5,
    "layers.0.b": np.array([1, -2, 3], "i4"),
    "step": np.arange(5, dtype="f8"),
    "half": np.array([[0.5, -0.25]], "f2"),
}
TAGS = {"author": "A U Thor", "note": "caf\u00e9 \u6a21"}
ENDINGS = [".safetensors", ".npz", ".pt", ".gguf", ".fold", ".mind", ".aero", ".checkpoint"]
KEEPS_TAGS = {".safetensors", ".gguf", ".fold", ".mind", ".aero", ".checkpoint"}


def options_for(ending: str) -> list[str]:
    return ["--inline-data"] if ending == ".checkpoint" else []


def values(wtxtgit: Command, path: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape (as numpy has it) and SHA-256 of each tensor, by its name without a chunk's."""
    found = {}
    for tensor in inspected(wtxtgit, path)["tensors"]:
        shape = tuple(tensor["shape"])
        if tensor.get("order") == "reversed":
            shape = shape[::-1]
        found[tensor["name"].rpartition("/")[2]] = (shape, tensor["sha256"])
    return found


@pytest.fixture
def model(wtxtgit: Command) -> str:
    path = wtxtgit.folder / "model.safetensors"
    safetensors.numpy.save_file(WEIGHTS, path, metadata=TAGS)
    return path.name


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_there_and_back(ending: str, model: str, wtxtgit: Command) -> None:
    there = wtxtgit("convert", model, f"out{ending}", *options_for(ending), "--json")
    assert (there.code, there.err) == (0, "")
    said = json.loads(there.out)
    assert said["tensors"] == len(WEIGHTS)
    assert said["files"] == [f"out{ending}"]
    assert bool(said["dropped"]) is (ending not in KEEPS_TAGS)
    assert wtxtgit("verify", f"out{ending}").code == 0
    assert values(wtxtgit, f"out{ending}") == values(wtxtgit, model)
    assert wtxtgit("convert", f"out{ending}", "back.safetensors").code == 0
    back = safetensors.numpy.load_file(wtxtgit.folder / "back.safetensors")
    assert back.keys() == WEIGHTS.keys()
    for name, array in WEIGHTS.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)
    if ending in KEEPS_TAGS:
        with safetensors.safe_open(wtxtgit.folder / "back.safetensors", "np") as file:
            assert (file.metadata() or {}).items() >= TAGS.items()
    else:
        assert [d for d in said["dropped"] if "author" in d]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second"), list(zip(ENDINGS, ENDINGS[3:] + ENDINGS[:3], strict=True))
)
def test_from_each_format_to_another(first: str, second: str, model: str, wtxtgit: Command) -> None:
    assert wtxtgit("convert", model, f"a{first}", *options_for(first)).code == 0
    done = wtxtgit("convert", f"a{first}", f"b{second}", *options_for(second))
    assert (done.code, done.err) == (0, "")
    assert values(wtxtgit, f"b{second}") == values(wtxtgit, model)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_same_tensors_give_the_same_bytes(ending: str, model: str, wtxtgit: Command) -> None:
    for name in ("one", "two"):
        assert wtxtgit("convert", model, name + ending, *options_for(ending)).code == 0
    one, two = ((wtxtgit.folder / (name + ending)).read_bytes() for name in ("one", "two"))
    assert one == two


READERS: dict[str, Callable[[Path], dict[str, np.ndarray[Any, Any]]]] = {
    ".npz": lambda path: dict(np.load(path, allow_pickle=False)),
    ".safetensors": lambda path: safetensors.numpy.load_file(path),
    ".gguf": lambda path: {t.name: np.array(t.data) for t in GGUFReader(path).tensors},
}


@pytest.mark.parametrize("ending", READERS)
def test_the_libraries_of_the_formats_read_what_is_written(
    ending: str, model: str, wtxtgit: Command
) -> None:
    assert wtxtgit("convert", model, f"out{ending}").code == 0
    found = READERS[ending](wtxtgit.folder / f"out{ending}")
    assert found.keys() == WEIGHTS.keys()
    for name, array in WEIGHTS.items():
        np.testing.assert_array_equal(found[name].reshape(array.shape), array)


def test_one_array_becomes_npy(wtxtgit: Command) -> None:
    np.savez(wtxtgit.folder / "one.npz", w=WEIGHTS["half"])
    assert wtxtgit("convert", "one.npz", "w.npy").code == 0
    np.testing.assert_array_equal(np.load(wtxtgit.folder / "w.npy"), WEIGHTS["half"])


def test_strings_go_where_strings_are_held(wtxtgit: Command) -> None:
    words = np.array([b"ab", b"c"])
    np.savez(wtxtgit.folder / "words.npz", words=words)
    assert wtxtgit("convert", "words.npz", "copy.npz").code == 0
    np.testing.assert_array_equal(np.load(wtxtgit.folder / "copy.npz")["words"], words)
    done = wtxtgit("convert", "words.npz", "words.safetensors")
    assert done.code == 3
    assert "'words' is |S2, for which it has no dtype" in done.complaint()
    assert "FILE.npz can hold all of these dtypes" in done.err


def test_records_are_not_converted(wtxtgit: Command) -> None:
    np.savez(wtxtgit.folder / "records.npz", r=np.zeros(2, [("a", "<i4")]))
    for target in ("copy.npz", "records.safetensors"):
        done = wtxtgit("convert", "records.npz", target)
        assert done.code == 3
        assert "which can be listed but not converted" in done.complaint()


def test_several_arrays_do_not_fit_npy(model: str, wtxtgit: Command) -> None:
    done = wtxtgit("convert", model, "w.npy")
    assert (done.code, done.out) == (3, b"")
    assert "4 tensors" in done.complaint() or "one" in done.complaint()
    assert wtxtgit.names() == [model]


@pytest.mark.parametrize(
    ("source", "out", "word"),
    [
        ("plain/mixed_meta_a.safetensors", "x.npz", "bf16"),
        ("plain/exotic_a.safetensors", "x.npz", "f8"),
        ("plain/exotic_a.safetensors", "x.gguf", ""),
        ("plain/numpy_a.safetensors", "x.npy", ""),
        ("aero/from_gguf_a.aero", "x.npz", "Q4_0"),
        ("mlcp/one_shard_a.checkpoint", "x.npz", "no bytes"),
        ("taridx/pair_v1/train.taridx", "x.npz", "without tensors"),
        ("mlcp/sibling_multishard_a.shard", "x.npz", ""),
        ("fold/unfinalized_a.fold", "x.npz", ""),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    source: str, out: str, word: str, wtxtgit: Command
) -> None:
    done = wtxtgit("convert", FIXTURES / source, out)
    assert done.code in (1, 3)
    assert done.out == b""
    assert word in done.complaint()
    assert wtxtgit.names() == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["m.safetensors", "x.unknown"],
        ["m.safetensors", "x"],
        ["m.safetensors", "x.npz", "--max-shard", "1MiB"],
        ["m.safetensors", "x.npz", "--inline-data"],
        ["m.safetensors", "x.safetensors", "--max-shard", "big"],
        ["m.safetensors", "x.safetensors", "--max-shard", "0"],
        ["m.safetensors"],
    ],
)
def test_usage(arguments: list[str], wtxtgit: Command) -> None:
    (wtxtgit.folder / "m.safetensors").write_bytes(fixture("plain/pair_v1.safetensors"))
    done = wtxtgit("convert", *arguments)
    assert (done.code, done.out) == (2, b"")
    assert done.complaint()
    assert wtxtgit.names() == ["m.safetensors"]


def test_a_damaged_source_is_not_converted(wtxtgit: Command) -> None:
    data = bytearray(fixture("fold/none_sten_alldtypes_a.fold"))
    data[1500] ^= 1
    (wtxtgit.folder / "d.fold").write_bytes(data)
    done = wtxtgit("convert", "d.fold", "x.npz")
    assert (done.code, done.out) == (1, b"")
    assert "wtxtgit verify" in done.err
    assert wtxtgit.names() == ["d.fold"]


@pytest.mark.parametrize("ending", [".safetensors", ".aero"])
def test_shards_of_a_size(ending: str, wtxtgit: Command) -> None:
    rng = np.random.default_rng(5)
    weights = {f"w{n}": rng.standard_normal((64, 64), "f4") for n in range(10)}
    safetensors.numpy.save_file(weights, wtxtgit.folder / "m.safetensors", metadata=TAGS)
    (wtxtgit.folder / "out").mkdir()
    done = wtxtgit("convert", "m.safetensors", f"out/m{ending}", "--max-shard", "64KiB", "--json")
    assert (done.code, done.err) == (0, "")
    files = json.loads(done.out)["files"]
    assert sorted(files) == sorted(str(p.relative_to(wtxtgit.folder)) for p in
                                   (wtxtgit.folder / "out").iterdir())  # fmt: skip
    assert len(files) > 3
    # Headers come on top of the tensors' bytes.
    assert all((wtxtgit.folder / file).stat().st_size <= 65_536 + 4096 for file in files)
    index = files[-1]
    assert index.endswith(".json")
    assert wtxtgit("verify", index).code == 0
    assert values(wtxtgit, index) == values(wtxtgit, "m.safetensors")
    assert wtxtgit("convert", index, "back.npz").code == 0
    back = np.load(wtxtgit.folder / "back.npz")
    for name, array in weights.items():
        np.testing.assert_array_equal(back[name], array)


def test_a_set_is_proved_before_it_takes_its_place(wtxtgit: Command) -> None:
    weights = {f"w{n}": np.arange(1024, dtype="f4") + n for n in range(4)}
    safetensors.numpy.save_file(weights, wtxtgit.folder / "m.safetensors")
    (wtxtgit.folder / "out").mkdir()
    old = wtxtgit.folder / "out" / "we:ird-00001-of-00004.safetensors"
    old.write_bytes(b"old")
    done = wtxtgit("convert", "m.safetensors", "out/we:ird.safetensors", "--max-shard", "4kB")
    assert (done.code, done.out) == (3, b"")
    assert "we:ird" in done.complaint()
    assert old.read_bytes() == b"old"
    assert [path.name for path in (wtxtgit.folder / "out").iterdir()] == [old.name]


def test_what_chunks_hold_beside_tensors_is_listed(wtxtgit: Command) -> None:
    path = FIXTURES / "fold/tsav_folds_io_a.fold"
    done = wtxtgit("convert", path, "x.pt", "--json")
    assert (done.code, done.err) == (0, "")
    dropped = " ".join(json.loads(done.out)["dropped"])
    assert "config of chunk 'torch_state'" in dropped


def test_a_tag_that_has_no_place_is_dropped_and_listed(wtxtgit: Command) -> None:
    tags = {"schl\u00fcssel": "x", "general.alignment": "y", "kept": "z"}
    safetensors.numpy.save_file(WEIGHTS, wtxtgit.folder / "m.safetensors", metadata=tags)
    done = wtxtgit("convert", "m.safetensors", "m.gguf", "--json")
    assert (done.code, done.err) == (0, "")
    assert len(json.loads(done.out)["dropped"]) == 2
    assert inspected(wtxtgit, "m.gguf")["metadata"]["metadata_kv"]["kept"] == "z"


def test_records_without_bytes_are_said_to_be(model: str, wtxtgit: Command) -> None:
    done = wtxtgit("convert", model, "m.checkpoint", "--json")
    assert (done.code, done.err) == (0, "")
    assert any("bytes of" in what for what in json.loads(done.out)["dropped"])
    assert (wtxtgit.folder / "m.checkpoint").stat().st_size < 4096


def test_an_output_that_is_there_is_replaced_only_when_all_is_well(
    model: str, wtxtgit: Command
) -> None:
    out = wtxtgit.folder / "out.npz"
    out.write_bytes(b"old")
    assert wtxtgit("convert", FIXTURES / "plain/exotic_a.safetensors", "out.npz").code == 3
    assert out.read_bytes() == b"old"
    assert wtxtgit("convert", model, "out.npz").code == 0
    assert np.load(out)["step"].shape == (5,)


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize(
    "ending", [pytest.param(".pt", marks=pytest.mark.torch), ".checkpoint", ".npy"]
)
def test_the_source_is_not_replaced_by_less_than_it_has(
    ending: str, link: bool, model: str, wtxtgit: Command
) -> None:
    made = wtxtgit.folder / f"own{ending}"
    if ending == ".pt":
        torch = pytest.importorskip("torch", reason="torch is not installed: make torch-deps")
        torch.save({"w": torch.ones(3), "epoch": 7}, made)
    elif ending == ".checkpoint":
        assert wtxtgit("convert", model, made.name, "--inline-data").code == 0
    else:
        safetensors.numpy.save_file({"w": WEIGHTS["step"]}, made)
    before = made.read_bytes()
    out = made
    if link:
        out = made.with_name(f"link{ending}")
        out.symlink_to(made)
    done = wtxtgit("convert", made.name, out.name)
    said = f"{made.name}: the output would replace the file that is read"
    assert (done.code, done.complaint()) == (2, said)
    assert made.read_bytes() == before


def test_the_source_may_be_replaced_by_as_much(model: str, wtxtgit: Command) -> None:
    before = values(wtxtgit, model)
    assert wtxtgit("convert", model, model).code == 0
    assert values(wtxtgit, model) == before


def test_in_words(model: str, wtxtgit: Command) -> None:
    done = wtxtgit("convert", model, "out.npz")
    lines = done.out.decode().splitlines()
    assert lines[0].startswith("out.npz: npz, 4 tensors, ")
    assert "dropped: tag 'author'" in lines


def index_of(member: str) -> str:
    return json.dumps({"metadata": {}, "weight_map": {"w": member}})


def test_a_set_of_a_commit_has_its_files_there_alone(repo: Repo, driver: None) -> None:
    repo.write("e.index.json", index_of("e.safetensors"))
    repo.add()
    repo.commit()
    outside = repo.path.parent / "secret.safetensors"
    safetensors.numpy.save_file({"w": WEIGHTS["step"]}, outside)
    (repo.path / "HEAD:e.safetensors").symlink_to(outside)
    done = repo.wtxtgit("verify", "HEAD:e.index.json", ok=(5,))
    assert b"can't be opened" in done.stdout


@pytest.mark.parametrize("kind", ["loop", "pipe", "long", "missing", "outside", "folder"])
def test_a_file_of_a_set_that_can_not_be_opened_is_a_finding(kind: str, wtxtgit: Command) -> None:
    name = "x" * 300 + ".safetensors" if kind == "long" else "x.safetensors"
    member = wtxtgit.folder / "x.safetensors"
    if kind == "loop":
        member.symlink_to(member)
    elif kind == "pipe":
        os.mkfifo(member)
    elif kind == "folder":
        member.mkdir()
    elif kind == "outside":
        member.symlink_to(FIXTURES / "plain/pair_v1.safetensors")
    (wtxtgit.folder / "m.index.json").write_text(index_of(name))
    good = FIXTURES / "plain/pair_v1.safetensors"
    done = wtxtgit("verify", "m.index.json", good, "--json")
    # The first two are what the system refuses.
    assert (done.code, done.err) == (5 if kind in ("loop", "long") else 1, "")
    bad, fine = json.loads(done.out)["files"]
    assert not bad["ok"]
    assert fine["ok"]


def test_damage_in_a_chunks_file_is_not_converted(wtxtgit: Command) -> None:
    inner = bytearray(fixture("plain/nested_a.pt"))
    inner[describe(memoryview(bytes(inner))).tensors[0].offset or 0] ^= 1
    chunk = ChunkSource("t", b"TSAV", len(inner), lambda: iter([bytes(inner)]))
    (wtxtgit.folder / "m.fold").write_bytes(b"".join(build([chunk])))
    assert wtxtgit("verify", "m.fold").code == 0
    done = wtxtgit("convert", "m.fold", "m.safetensors")
    assert (done.code, done.out) == (1, b"")
    assert "crc32" in done.complaint()
    assert wtxtgit.names() == ["m.fold"]
