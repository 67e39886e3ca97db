"""`wtxtgit convert` of quantised tensors: as they are, as bytes with a tag, and back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from tests.cli.command import Command
from tests.cli.test_inspect import inspected
from tests.data import FIXTURES, GOLDEN

QUANTISED = GOLDEN / "gguf/quantised.gguf"
Q8 = gguf.GGMLQuantizationType.Q8_0


@pytest.fixture
def model(wtxtgit: Command) -> Path:
    """A model with quantised tensors and metadata of all kinds, by the original library."""
    path = wtxtgit.folder / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.rope.freq_base", 10000.0)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_token_list([f"w{n}" for n in range(300)])
    writer.add_quantization_version(2)
    chance = np.random.default_rng(0)
    for n in range(2):
        values = chance.standard_normal((8, 64)).astype("f4")
        writer.add_tensor(f"blk.{n}.w", gguf.quantize(values, Q8), raw_dtype=Q8)
        writer.add_tensor(f"blk.{n}.norm", chance.standard_normal(64).astype("f4"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def content(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Type, dimensions and bytes of each tensor, by the original library."""
    return {
        t.name: (t.tensor_type.name, tuple(map(int, t.shape)), t.data.tobytes())
        for t in gguf.GGUFReader(path).tensors
    }


def metadata(path: Path) -> dict[str, Any]:
    fields = gguf.GGUFReader(path).fields.values()
    return {
        field.name: (field.types, field.contents())
        for field in fields
        if not field.name.startswith("GGUF.")
    }


def test_gguf_to_gguf_keeps_all_metadata(model: Path, wtxtgit: Command) -> None:
    done = wtxtgit("convert", model, "out.gguf", "--json")
    assert json.loads(done.out)["dropped"] == []
    assert content(wtxtgit.folder / "out.gguf") == content(model)
    assert metadata(wtxtgit.folder / "out.gguf") == metadata(model)


@pytest.mark.parametrize("ending", [".aero", ".safetensors", ".fold"])
def test_there_and_back(ending: str, model: Path, wtxtgit: Command) -> None:
    for number, source in enumerate((model, QUANTISED)):
        there, back = f"there{number}{ending}", f"back{number}.gguf"
        assert wtxtgit("convert", source, there).code == 0
        assert wtxtgit("verify", there, "--strict").code == 0
        assert wtxtgit("convert", there, back).code == 0
        assert content(wtxtgit.folder / back) == content(source)
        assert wtxtgit("verify", back, "--strict").code == 0


def test_safetensors_have_rows_of_bytes_and_a_tag(model: Path, wtxtgit: Command) -> None:
    done = json.loads(wtxtgit("convert", model, "m.safetensors", "--json").out)
    assert [note for note in done["notes"] if "Q8_0" in note]
    path = wtxtgit.folder / "m.safetensors"
    found = safetensors.numpy.load_file(path)
    assert (found["blk.0.w"].dtype, found["blk.0.w"].shape) == (np.uint8, (8, 68))
    assert found["blk.0.w"].tobytes() == content(model)["blk.0.w"][2]
    with safetensors.safe_open(path, "np") as file:
        assert (file.metadata() or {})["wtxtgit.packed:blk.0.w"] == "ggml:Q8_0"
    # By way of a second file of bytes, and of shards, nothing is lost.
    assert wtxtgit("convert", path, "two.safetensors", "--max-shard", "600").code == 0
    assert wtxtgit("convert", "two.safetensors.index.json", "back.gguf").code == 0
    assert content(wtxtgit.folder / "back.gguf") == content(model)


def test_a_tag_that_does_not_fit_changes_nothing(wtxtgit: Command) -> None:
    path = wtxtgit.folder / "m.safetensors"
    tags = {"wtxtgit.packed:a": "ggml:Q8_0", "wtxtgit.packed:b": "ggml:Q4_K"}
    tensors = {"a": np.zeros((2, 33), "u1"), "b": np.zeros(144, "i1")}
    safetensors.numpy.save_file(tensors, path, metadata=tags)
    assert wtxtgit("convert", path, "out.safetensors").code == 0
    with safetensors.safe_open(wtxtgit.folder / "out.safetensors", "np") as file:
        assert file.metadata() == tags
    assert wtxtgit("convert", path, "out.npz").code == 0


def test_aero_says_the_codec_as_its_original_writer(model: Path, wtxtgit: Command) -> None:
    original = FIXTURES / "aero/from_gguf_a.aero"
    assert wtxtgit("convert", original, "a.gguf").code == 0
    found = content(wtxtgit.folder / "a.gguf")
    assert {name: one[0] for name, one in found.items()} == {
        "a.f16": "F16",
        "b.f32": "F32",
        "blk.0.q4": "Q4_0",
        "blk.0.q8": "Q8_0",
    }
    assert wtxtgit("convert", "a.gguf", "b.aero").code == 0
    ours, theirs = (inspected(wtxtgit, path)["metadata"] for path in ("b.aero", original))
    assert ours["mjsn"]["quant_descriptors"] == theirs["mjsn"]["quant_descriptors"]
    assert ours["tidx"] == theirs["tidx"]
    assert wtxtgit("convert", model, "set.aero", "--max-shard", "600").code == 0
    assert wtxtgit("convert", "set.aeroset.json", "back.gguf").code == 0
    assert content(wtxtgit.folder / "back.gguf") == content(model)


def test_a_model_is_split_as_by_llama_cpp(model: Path, wtxtgit: Command) -> None:
    folder = wtxtgit.folder / "split"
    folder.mkdir()
    done = wtxtgit("convert", model, folder / "m.gguf", "--max-shard", "700")
    assert (done.code, b"from " in done.out) == (0, True)
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == [f"m-0000{n}-of-00004.gguf" for n in (1, 2, 3, 4)]
    whole = metadata(model)
    for number, file in enumerate(files):
        values = metadata(file)
        assert values["split.no"][1] == number
        assert values["split.count"][1] == 4
        assert values["split.tensors.count"][1] == 4
        rest = {key: value for key, value in values.items() if not key.startswith("split.")}
        assert rest == (whole if number == 0 else {})
    assert wtxtgit("verify", folder, *files, "--strict").code == 0
    assert wtxtgit("convert", folder, "back.gguf").code == 0
    assert content(wtxtgit.folder / "back.gguf") == content(model)
    assert metadata(wtxtgit.folder / "back.gguf") == whole
    assert b"all identical" in wtxtgit("diff", folder, model).out
    assert len(wtxtgit("cat", folder, "blk.1.w").out) == 8 * 68


def test_a_split_model_that_lacks_a_file_is_told(model: Path, wtxtgit: Command) -> None:
    folder = wtxtgit.folder / "split"
    folder.mkdir()
    wtxtgit("convert", model, folder / "m.gguf", "--max-shard", "700")
    _, second, third, _ = sorted(folder.iterdir())
    kept = second.read_bytes()
    second.unlink()
    done = wtxtgit("verify", folder)
    assert (done.code, second.name.encode() in done.out) == (1, True)
    shutil.copy(third, second)
    done = wtxtgit("verify", folder)
    assert (done.code, b"split.no is 2, not 1" in done.out) == (1, True)
    second.write_bytes(kept)
    writer = gguf.GGUFWriter(third, "x")
    writer.add_uint16("split.no", 2)
    writer.add_uint16("split.count", 4)
    writer.add_int32("split.tensors.count", 4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    done = wtxtgit("verify", folder)
    assert (done.code, b"split.tensors.count is 4" in done.out) == (1, True)
    assert wtxtgit("convert", folder, "x.gguf").code == 1


def test_what_can_not_be_held_is_named_and_skipped(model: Path, wtxtgit: Command) -> None:
    done = wtxtgit("convert", model, "m.npz")
    assert done.code == 3
    assert "is Q8_0, for which it has no place (and 1 more)" in done.complaint()
    assert "--skip" in done.err
    done = wtxtgit("convert", model, "m.npz", "--skip")
    assert done.code == 0
    skipped = [line for line in done.out.decode().splitlines() if line.startswith("skipped: ")]
    assert [line for line in skipped if "'blk.0.w'" in line]
    assert len(skipped) == 2
    assert set(np.load(wtxtgit.folder / "m.npz")) == {"blk.0.norm", "blk.1.norm"}


def test_what_a_writer_refuses_is_skipped_too(wtxtgit: Command) -> None:
    tensors = {"w": np.zeros((1, 1, 1, 1, 2), "f4"), "n" * 64: np.zeros(2, "f4"), "ok": np.zeros(3)}
    safetensors.numpy.save_file(tensors, wtxtgit.folder / "m.safetensors")
    assert wtxtgit("convert", "m.safetensors", "m.gguf").code == 3
    done = json.loads(wtxtgit("convert", "m.safetensors", "m.gguf", "--skip", "--json").out)
    assert (done["tensors"], len(done["skipped"])) == (1, 2)


def test_where_nothing_is_left_nothing_is_written(wtxtgit: Command) -> None:
    safetensors.numpy.save_file({"b": np.zeros(2, bool)}, wtxtgit.folder / "m.safetensors")
    done = wtxtgit("convert", "m.safetensors", "m.gguf", "--skip")
    assert (done.code, "bool" in done.complaint()) == (3, True)
    assert not (wtxtgit.folder / "m.gguf").exists()


def test_blocks_of_the_other_byte_order_are_not_written(wtxtgit: Command) -> None:
    path = wtxtgit.folder / "big.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian.BIG)
    writer.add_tensor("q", gguf.quantize(np.ones((2, 32), "f4"), Q8), raw_dtype=Q8)
    writer.add_tensor("f", np.ones(2, "f4"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    done = wtxtgit("convert", path, "out.gguf")
    assert (done.code, "'q' is Q8_0" in done.complaint()) == (3, True)
    assert wtxtgit("convert", path, "out.gguf", "--skip").code == 0


def test_cat_of_a_quantised_tensor(model: Path, wtxtgit: Command) -> None:
    assert wtxtgit("cat", model, "blk.0.w", "-o", "w.safetensors").code == 0
    assert wtxtgit("convert", "w.safetensors", "w.gguf").code == 0
    assert content(wtxtgit.folder / "w.gguf") == {"blk.0.w": content(model)["blk.0.w"]}
    done = wtxtgit("cat", model, "blk.0.w", "-o", "w.npy")
    assert (done.code, "Q8_0" in done.complaint()) == (3, True)
