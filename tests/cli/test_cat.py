"""`wtxtgit cat`: one tensor, part or value of a checkpoint."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import warnings
import zipfile
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import wtxtgit as api
from tests.cli.command import Command
from tests.data import FIXTURES, GOLDEN, all_entries, name_of, path_of
from tests.kit import text_of

ALL_DTYPES = [
    "fold/none_sten_alldtypes_a.fold",
    "fold/zstd3_sten_npz_a.fold",
    "aero/all_dtypes_a.aero",
    "aero/low_wtsh_zstd_a.aero",
    "plain/exotic_a.safetensors",
    "plain/arrays_c_a.npz",
    "plain/nested_a.pt",
    "plain/legacy_a.pt",
]
ENTRIES = {entry["file"]: entry for entry in all_entries()}


@pytest.mark.parametrize("file", ALL_DTYPES)
def test_tensors_are_the_original_writers(file: str, wtxtgit: Command) -> None:
    entry = ENTRIES[file]
    compared = 0
    for wanted in entry["tensors"]:
        digest = wanted.get("sha256_in_file", wanted.get("sha256"))
        done = wtxtgit("cat", path_of(entry), name_of(entry, wanted))
        if digest is None or done.code:
            continue
        compared += 1
        assert sha256(done.out).hexdigest() == digest, wanted
    assert compared > len(entry["tensors"]) // 2


def made(wtxtgit: Command, name: str, **arrays: Any) -> Path:
    path = wtxtgit.folder / name
    api.dump(arrays, path)
    return path


def test_parts_come_as_their_bytes_decoded(wtxtgit: Command) -> None:
    fold = FIXTURES / "fold/neuron_default_a.fold"
    metrics = json.loads(wtxtgit("cat", fold, "metrics").out)
    assert metrics["type"] == "MPJRDNeuron"
    inner = safetensors.numpy.load(wtxtgit("cat", fold, "torch_state").out)
    assert inner["circadian_phase"].shape == ()
    aero = FIXTURES / "aero/from_gguf_a.aero"
    assert json.loads(wtxtgit("cat", aero, "meta.json").out)["architecture"] == "llama"
    shard = wtxtgit("cat", aero, "weights.shard0").out
    # Padding behind its items is none of the tensor.
    assert shard[:48] == wtxtgit("cat", aero, "a.f16").out
    nested = FIXTURES / "plain/nested_a.pt"
    with zipfile.ZipFile(nested) as archive:
        pickled = archive.read("nested_a/data.pkl")
    assert wtxtgit("cat", nested, "nested_a/data.pkl").out == pickled
    np.savez_compressed(wtxtgit.folder / "m.npz", w=np.arange(9.0))
    member = np.load(BytesIO(wtxtgit("cat", "m.npz", "w.npy").out))
    assert (member == np.arange(9.0)).all()


def test_metadata_come_as_text_or_json(wtxtgit: Command) -> None:
    mixed = FIXTURES / "plain/mixed_meta_a.safetensors"
    assert wtxtgit("cat", mixed, "note").out.decode() == "ação 日本"
    assert json.loads(wtxtgit("cat", mixed, "__metadata__").out)["k"] == "a"
    header = wtxtgit("cat", mixed, "_header").out
    assert header == mixed.read_bytes()[: len(header)]
    assert len(header) == 344


def test_a_value_may_be_null(wtxtgit: Command) -> None:
    fold = FIXTURES / "fold/neuron_default_a.fold"
    assert wtxtgit("cat", fold, "trust_block").out.strip() == b"null"
    assert api.cat(fold, "trust_block") == b"null"


def test_a_vocabulary_comes_whole(wtxtgit: Command) -> None:
    import gguf

    words = [f"word {n} é" for n in range(2345)]
    writer = gguf.GGUFWriter(wtxtgit.folder / "v.gguf", "llama")
    writer.add_token_list(words)
    writer.add_array("nested.scores", [[1.5, 2.5], [float("nan"), 3.0]])
    writer.add_string("tokenizer.chat_template", "{{ é }}")
    writer.add_tensor("w", np.zeros(4, "f4"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert json.loads(wtxtgit("cat", "v.gguf", "tokenizer.ggml.tokens").out) == words
    assert json.loads(wtxtgit("cat", "v.gguf", "nested.scores").out) == [[1.5, 2.5], ["nan", 3.0]]
    template = wtxtgit("cat", "v.gguf", "tokenizer.chat_template").out
    assert template.decode() == "{{ é }}"


def test_an_output_has_dtype_and_shape(wtxtgit: Command) -> None:
    values = np.arange(12, dtype="f2").reshape(3, 4)
    made(wtxtgit, "m.safetensors", w=values, b=np.zeros(3, "i8"))
    assert wtxtgit("cat", "m.safetensors", "w", "-o", "w.npy").code == 0
    assert (np.load(wtxtgit.folder / "w.npy") == values).all()
    assert wtxtgit("cat", "m.safetensors", "w", "b", "w", "-o", "two.safetensors").code == 0
    found = safetensors.numpy.load_file(wtxtgit.folder / "two.safetensors")
    assert set(found) == {"w", "b"}
    assert (found["w"] == values).all()
    assert wtxtgit("cat", "m.safetensors", "w", "-o", "w.bin").code == 0
    assert (wtxtgit.folder / "w.bin").read_bytes() == values.tobytes()
    assert wtxtgit("cat", "m.safetensors", "w", "-o", "-").out == values.tobytes()


@pytest.mark.parametrize("name", ["q", "_header"])
def test_the_file_itself_is_not_replaced_by_a_part_of_it(name: str, wtxtgit: Command) -> None:
    path = wtxtgit.folder / "m.safetensors"
    api.dump({"q": np.ones(3, "f4"), "k": np.ones(3, "f4")}, path)
    before = path.read_bytes()
    done = wtxtgit("cat", "m.safetensors", name, "-o", "./m.safetensors")
    assert (done.code, done.complaint()) == (
        2,
        "m.safetensors: the output would replace the file that is read",
    )
    assert path.read_bytes() == before


def test_what_an_output_can_not_hold_is_refused(wtxtgit: Command) -> None:
    mixed = FIXTURES / "plain/mixed_meta_a.safetensors"
    done = wtxtgit("cat", mixed, "model.embed.weight", "-o", "e.npy")
    assert (done.code, "bf16" in done.complaint()) == (3, True)
    done = wtxtgit("cat", mixed, "ids", "model.l.0.w")
    assert (done.code, "2 names" in done.complaint()) == (2, True)
    done = wtxtgit("cat", mixed, "ids", "_header", "-o", "x.safetensors")
    assert (done.code, "not a tensor" in done.complaint()) == (2, True)
    assert not list(wtxtgit.folder.glob("[ex].*"))


def test_a_name_that_there_is_not_has_the_nearest_as_hint(wtxtgit: Command) -> None:
    made(wtxtgit, "m.npz", **{"layers.0.q_proj": np.zeros(2), "layers.0.k_proj": np.zeros(2)})
    done = wtxtgit("cat", "m.npz", "layer.0.q_prj")
    assert done.code == 2
    assert "no part is named 'layer.0.q_prj'" in done.complaint()
    assert "did you mean layers.0.q_proj" in done.err
    assert "layers.0.k_proj" in wtxtgit("cat", "m.npz", "K_PROJ").err
    assert "did you mean" not in wtxtgit("cat", "m.npz", "zzzz").err


def test_names_that_are_there_twice_need_an_array(wtxtgit: Command) -> None:
    fold = FIXTURES / "fold/duplicate_names_a.fold"
    listed = json.loads(wtxtgit("inspect", fold, "--json").out)
    names = [part.get("name") for part in listed["parts"]]
    twice = next(name for name in names if name and names.count(name) > 1)
    done = wtxtgit("cat", fold, twice)
    assert (done.code, "2 parts are named" in done.complaint()) == (2, True)
    arrays = [part["array"] for part in listed["parts"] if part.get("name") == twice]
    for array in set(arrays) - {twice}:
        assert wtxtgit("cat", fold, array).code == 0


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_each_of_those_named_alike_has_a_name(wtxtgit: Command, method: int) -> None:
    values = [np.full(3, n, "f4") for n in range(3)]
    with zipfile.ZipFile(wtxtgit.folder / "m.npz", "w", method) as zipped:
        for value in values:
            member = BytesIO()
            np.save(member, value)
            with warnings.catch_warnings(action="ignore"):
                zipped.writestr("w.npy", member.getvalue())
    done = wtxtgit("cat", "m.npz", "w")
    assert (done.code, "3 parts are named 'w'" in done.complaint()) == (2, True)
    assert "w__1 names the first" in done.err
    for n, value in enumerate(values, 1):
        assert wtxtgit("cat", "m.npz", f"w__{n}").out == value.tobytes()
        assert wtxtgit("cat", "m.npz", f"w.npy__{n}").out.endswith(value.tobytes())
    for none in ("w__0", "w__4", "w__01", "x__1", f"w__{10**30}"):
        assert "no part is named" in wtxtgit("cat", "m.npz", none).complaint()


def test_texts_commits_and_folders_give_the_same(wtxtgit: Command) -> None:
    values = np.arange(40, dtype="f4").reshape(10, 4)
    path = made(wtxtgit, "m.safetensors", w=values, b=np.ones(5))
    (wtxtgit.folder / "m.wtxt").write_bytes(text_of(path.read_bytes()))
    api.dump({"layers.w": values}, wtxtgit.folder / "native.wtxt")
    assert wtxtgit("cat", "m.wtxt", "w").out == values.tobytes()
    assert wtxtgit("cat", "m.wtxt", "_header").out == wtxtgit("cat", path, "_header").out
    assert wtxtgit("cat", "native.wtxt", "layers.w").out == values.tobytes()
    assert wtxtgit("cat", "native.wtxt", "layers_w").out == values.tobytes()
    folder = FIXTURES / "aero/aeroset_multi_a"
    listed = json.loads(wtxtgit("inspect", folder, "--json").out)["tensors"]
    for tensor in listed[:3]:
        assert sha256(wtxtgit("cat", folder, tensor["name"]).out).hexdigest() == tensor["sha256"]
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@x"]
    for words in (["init", "-q"], ["add", "m.wtxt"], ["commit", "-qm", "1"]):
        subprocess.run([*git, *words], cwd=wtxtgit.folder, check=True)
    (wtxtgit.folder / "m.wtxt").unlink()
    assert wtxtgit("cat", "HEAD:m.wtxt", "w").out == values.tobytes()


def test_a_part_of_a_text_is_decoded_for_it(wtxtgit: Command) -> None:
    fold = FIXTURES / "fold/none_sten_alldtypes_a.fold"
    (wtxtgit.folder / "f.wtxt").write_bytes(text_of(fold.read_bytes()))
    assert wtxtgit("cat", "f.wtxt", "torch_state").out == wtxtgit("cat", fold, "torch_state").out


def test_damage_of_what_is_read_gives_nothing(wtxtgit: Command) -> None:
    path = made(wtxtgit, "m.safetensors", a=np.arange(400.0), b=np.arange(400.0, 800.0))
    text = bytearray(text_of(path.read_bytes()))
    text[-700] = ord("A") if text[-700] != ord("A") else ord("B")
    (wtxtgit.folder / "m.wtxt").write_bytes(text)
    codes = {name: wtxtgit("cat", "m.wtxt", name) for name in ("a", "b")}
    assert sorted(done.code for done in codes.values()) == [0, 1]
    assert all(done.code == 0 or done.out == b"" for done in codes.values())


def test_what_is_encrypted_is_told(wtxtgit: Command) -> None:
    entry = ENTRIES["fold/encrypted_high_a.fold"]
    name = name_of(entry, entry["tensors"][0])
    chunk = name.partition("/")[0]
    done = wtxtgit("cat", path_of(entry), chunk)
    assert (done.code, "encrypted" in done.complaint()) == (3, True)
    (wtxtgit.folder / "key").write_text(entry["options"]["key_hex"])
    done = wtxtgit("cat", path_of(entry), name, "--key", "key")
    assert (done.code, sha256(done.out).hexdigest()) == (0, entry["tensors"][0]["sha256"])


def on_a_terminal(wtxtgit: Command, *arguments: str) -> tuple[int, bytes, bytes]:
    """Exit code, what the terminal shows, and standard error."""
    leader, follower = pty.openpty()
    argv = wtxtgit.argv(*arguments)
    done = subprocess.run(
        argv, stdout=follower, stderr=subprocess.PIPE, check=False, **wtxtgit.options()
    )
    os.write(follower, b"\nend")
    os.close(follower)
    shown = b""
    while not shown.endswith(b"end"):
        shown += os.read(leader, 4096)
    os.close(leader)
    return done.returncode, shown.replace(b"\r\n", b"\n").removesuffix(b"\nend"), done.stderr


def test_a_terminal_gets_short_texts_alone(wtxtgit: Command) -> None:
    shutil.copy(FIXTURES / "plain/mixed_meta_a.safetensors", wtxtgit.folder / "m.safetensors")
    code, shown, told = on_a_terminal(wtxtgit, "cat", "m.safetensors", "model.l.0.w")
    assert (code, shown) == (2, b"")
    assert b"-o FILE" in told
    code, shown, _ = on_a_terminal(wtxtgit, "cat", "m.safetensors", "note")
    assert (code, shown.decode()) == (0, "ação 日本\n")
    assert on_a_terminal(wtxtgit, "cat", "m.safetensors", "ids", "-o", "-")[0] == 0


def test_a_terminal_is_not_controlled(wtxtgit: Command) -> None:
    safetensors.numpy.save_file(
        {"w": np.zeros(1)}, wtxtgit.folder / "m.safetensors", metadata={"k": "\x1b[31mred"}
    )
    code, shown, _ = on_a_terminal(wtxtgit, "cat", "m.safetensors", "k")
    assert (code, shown) == (2, b"")


def test_what_is_no_checkpoint_is_refused(wtxtgit: Command) -> None:
    (wtxtgit.folder / "junk").write_bytes(b"junk")
    assert wtxtgit("cat", "junk", "w").code == 3
    assert wtxtgit("cat", "none", "w").code == 3
    whole = (GOLDEN / "gguf/quantised.gguf").read_bytes()
    (wtxtgit.folder / "cut.gguf").write_bytes(whole[:300])
    assert wtxtgit("cat", "cut.gguf", "w").code in (2, 3)
