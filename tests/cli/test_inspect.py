"""`wtxtgit inspect`: parts, tensors, values."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wtxtgit as api
from tests.cli.command import Command
from tests.data import (
    FIXTURES,
    all_entries,
    delta_named,
    fixture,
    fixture_path,
    golden,
    name_of,
    path_of,
    valid_cases,
)
from tests.kit import Repo, safetensors
from wtxtgit.cli.main import main

EXAMPLES = [
    "fold/none_sten_alldtypes_a.fold",
    "fold/zstd3_sten_npz_a.fold",
    "aero/all_dtypes_a.aero",
    "mlcp/all_dtypes_a.checkpoint",
    "mlcp/sibling_multishard_a.shard",
    "taridx/collisions_a/train.taridx",
    "plain/pair_v1.safetensors",
    "plain/arrays_c_a.npz",
    "golden/npy/fortran.npy",
    "golden/torch/views.pt",
    "golden/gguf/quantised.gguf",
]


def inspected(wtxtgit: Command, path: str | Path) -> dict[str, Any]:
    done = wtxtgit("inspect", path, "--json")
    assert (done.code, done.err) == (0, "")
    found: dict[str, Any] = json.loads(done.out)
    return found


@pytest.fixture
def _signal_handlers() -> Iterator[None]:
    """The command line sets handlers; in this process they are put back."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


WITH_TENSORS = [entry for entry in all_entries() if entry["valid"] and "tensors" in entry]


@pytest.mark.usefixtures("_signal_handlers")
@pytest.mark.parametrize("entry", WITH_TENSORS, ids=lambda e: e["file"])
def test_the_original_writers_tensors(
    entry: dict[str, Any], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["inspect", str(path_of(entry)), "--json"]
    if "key_hex" in entry["options"]:
        key = tmp_path / "key"
        key.write_text(entry["options"]["key_hex"] + "\n")
        arguments += ["--key", str(key)]
    assert main(arguments) == 0
    printed = capfd.readouterr()
    assert printed.err == ""
    found = json.loads(printed.out)
    listed: dict[str, list[dict[str, Any]]] = {}
    for tensor in found["tensors"]:
        listed.setdefault(tensor["name"], []).append(tensor)
    data = path_of(entry).read_bytes()
    for wanted in entry["tensors"]:
        candidates = listed[name_of(entry, wanted)]
        tensor = candidates.pop(0) if len(candidates) > 1 else candidates[0]
        assert tensor["shape"] == list(wanted["shape"])
        digest = wanted.get("sha256_in_file", wanted.get("sha256"))
        if digest is None or "absent" in tensor:
            continue
        assert tensor["sha256"] == digest
        start = tensor.get("offset")
        raw = b"" if start is None else data[start : start + tensor["size"]]
        if start is not None and sha256(raw).hexdigest() != digest:
            # Stored in another order, or a view of a larger storage.
            assert {"fortran_order_on_disk"} & set(wanted) or wanted["dtype"][0] in ">f"


def test_values_of_a_tensor(wtxtgit: Command) -> None:
    values = np.array([[0.0, -2.5, np.nan], [4.0, np.inf, 1.5]], "f4")
    np.savez(wtxtgit.folder / "v.npz", v=values, i=np.array([-3, 7], "i2"), e=np.zeros(0))
    found = {t["name"]: t for t in inspected(wtxtgit, "v.npz")["tensors"]}
    assert found["v"]["statistics"] == {
        "count": 6,
        "min": -2.5,
        "max": 4.0,
        "mean": pytest.approx(0.75),
        "std": pytest.approx(np.std([0, -2.5, 4, 1.5])),
        "zeros": 1,
        "zeros_share": pytest.approx(1 / 6),
        "nan": 1,
        "inf": 1,
    }
    assert (found["i"]["statistics"]["min"], found["i"]["statistics"]["max"]) == (-3, 7)
    assert "statistics" not in found["e"]


def test_an_odd_tensor_does_not_hide_the_others(wtxtgit: Command) -> None:
    found = inspected(wtxtgit, FIXTURES / "mlcp/size_lies_version_null_a.checkpoint")
    assert len(found["tensors"]) == 2
    header = b'{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]},'
    header += b'"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}'
    (wtxtgit.folder / "odd.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + np.arange(3, dtype="f4").tobytes()
    )
    by_name = {t["name"]: t for t in inspected(wtxtgit, "odd.safetensors")["tensors"]}
    assert by_name["b"]["statistics"]["max"] == 2.0
    assert "statistics" not in by_name["a"]


def test_a_file_of_a_commit(repo: Repo, driver: None) -> None:
    repo.track("*.safetensors")
    repo.write("m/w.safetensors", safetensors(1.0, 2.0))
    repo.add()
    repo.commit()
    repo.write("m/w.safetensors", safetensors(3.0))
    found = json.loads(repo.wtxtgit("inspect", "HEAD:m/w.safetensors", "--json").stdout)
    assert found["tensors"][0]["statistics"]["max"] == 2.0
    beside = repo.wtxtgit("inspect", "HEAD:./w.safetensors", "--json", cwd="m")
    assert json.loads(beside.stdout)["tensors"] == found["tensors"]


@pytest.mark.parametrize("path", EXAMPLES)
def test_the_parts_of_a_file_cover_it(path: str, wtxtgit: Command) -> None:
    found = inspected(wtxtgit, fixture_path(path))
    assert found["stored_as"] == golden()[path]["format"]
    end = 0
    for part in found["parts"]:
        assert part["offset"] == end
        end += part["size"]
    assert end == found["size"] == len(fixture(path))


def test_a_text_of_a_file_is_inspected_as_the_file(wtxtgit: Command) -> None:
    assert wtxtgit("emit", FIXTURES / EXAMPLES[0], "-o", "x.wtxt").code == 0
    of_text = inspected(wtxtgit, "x.wtxt")
    of_file = inspected(wtxtgit, FIXTURES / EXAMPLES[0])
    assert {**of_text, "path": ""} == {**of_file, "path": ""}


@pytest.mark.parametrize("case", valid_cases()[:6], ids=lambda c: c.file)
def test_a_native_text_is_inspected_by_its_arrays(case: Any, wtxtgit: Command) -> None:
    found = inspected(wtxtgit, case.path)
    keys = ("name", "dtype", "shape", "sha256")
    listed = [{key: tensor[key] for key in keys} for tensor in found["tensors"]]
    assert listed == case.expected["arrays"]
    assert found["metadata"]["sha256_all"] == case.expected["sha256_all"]


def test_a_native_text_has_the_names_dtypes_and_values_of_its_arrays(wtxtgit: Command) -> None:
    arrays = {
        "layers.0.q": np.ones((2, 3), "f2"),
        "embed": np.array([[0.0, -1.0], [2.0, np.nan]], "f4"),
        "mask": np.array([True, False]),
        "text": np.array(["ab", "c"]),
        "none": np.zeros((0, 4)),
    }
    api.dump(arrays, wtxtgit.folder / "n.wtxt")
    found = {tensor["name"]: tensor for tensor in inspected(wtxtgit, "n.wtxt")["tensors"]}
    assert {name: (t["dtype"], t["shape"]) for name, t in found.items()} == {
        "layers.0.q": ("f16", [2, 3]),
        "embed": ("f32", [2, 2]),
        "mask": ("bool", [2]),
        "text": ("<U2", [2]),
        "none": ("f64", [0, 4]),
    }
    for name, values in arrays.items():
        assert found[name]["sha256"] == sha256(values.tobytes()).hexdigest()
        assert found[name]["size"] == values.nbytes
    assert found["layers.0.q"]["array"] == "layers_0_q"
    assert found["layers.0.q"]["statistics"]["mean"] == 1
    assert found["embed"]["statistics"]["min"] == -1
    assert found["embed"]["statistics"]["nan"] == 1
    assert found["mask"]["statistics"]["zeros"] == 1
    assert "statistics" not in found["text"]
    api.dump({}, wtxtgit.folder / "empty.wtxt")
    diffed = json.loads(wtxtgit("diff", "empty.wtxt", "n.wtxt", "--json").out)["tensors"]
    assert {t["name"]: (t["dtype"], t["shape"]) for t in diffed} == {
        name: (t["dtype"], t["shape"]) for name, t in found.items()
    }


def test_a_damaged_native_text_still_lists_its_arrays(wtxtgit: Command) -> None:
    api.dump({"layers.0.q": np.arange(8, dtype="f2")}, wtxtgit.folder / "n.wtxt")
    text = (wtxtgit.folder / "n.wtxt").read_bytes()
    at = text.index(b" merkle_this=")
    (wtxtgit.folder / "n.wtxt").write_bytes(text[: at + 20] + b"0" * 4 + text[at + 24 :])
    found = inspected(wtxtgit, "n.wtxt")
    assert found["reason"] == "damaged: 1 problem, as wtxtgit verify lists"
    assert [tensor["array"] for tensor in found["tensors"]] == ["layers_0_q"]
    assert "statistics" not in found["tensors"][0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"junk", "no known magic"),
        (fixture("fold/none_json_a.fold")[:400], ""),
        (fixture("aero/all_dtypes_a.aero")[:400], ""),
        (fixture("mlcp/sibling_multishard_a.shard"), "RAHS"),
    ],
)
def test_why_a_file_is_stored_whole_is_told(content: bytes, words: str, wtxtgit: Command) -> None:
    (wtxtgit.folder / "f").write_bytes(content)
    found = inspected(wtxtgit, "f")
    assert found["stored_as"] == "opaque"
    assert found["reason"]
    assert words in found["reason"]
    done = wtxtgit("inspect", "f")
    assert (done.code, done.err) == (0, "")
    assert f"stored whole: {found['reason']}" in done.out.decode()


def test_a_table_names_every_tensor(wtxtgit: Command) -> None:
    done = wtxtgit("inspect", FIXTURES / EXAMPLES[0])
    assert (done.code, done.err) == (0, "")
    lines = done.out.decode().splitlines()
    assert lines[0].endswith(": fold, 4.48 KiB")
    assert any(line.startswith("torch_state/embed.weight ") for line in lines)
    assert all(line == line.rstrip() for line in lines)


def test_tensors_come_first_and_once(wtxtgit: Command) -> None:
    names = ["layers.10.q", "layers.2.q", "layers.1.q"]
    header: dict[str, Any] = {
        name: {"dtype": "F32", "shape": [2], "data_offsets": [8 * n, 8 * n + 8]}
        for n, name in enumerate(names)
    }
    spelled = json.dumps(header).encode()
    content = len(spelled).to_bytes(8, "little") + spelled + np.arange(6, dtype="f4").tobytes()
    (wtxtgit.folder / "m.safetensors").write_bytes(content)
    out = wtxtgit("inspect", "m.safetensors").out.decode()
    shown = re.findall(r"^layers\S+", out, re.MULTILINE)
    assert shown == ["layers.1.q", "layers.2.q", "layers.10.q"]
    assert "offset" not in out
    assert "3 tensors, 6 parameters, 24 B" in out
    out = wtxtgit("inspect", "m.safetensors", "--parts").out.decode()
    _, _, parts = out.partition("\npart ")
    assert re.findall(r"^layers\S+", parts, re.MULTILINE) == [
        "layers_10_q",
        "layers_2_q",
        "layers_1_q",
    ]
    assert re.search(r"^layers_1_q +tensor +8 B +\d+$", parts, re.MULTILINE)


def test_what_is_no_tensor_is_listed_without_its_offset(wtxtgit: Command) -> None:
    npz_in_fold = FIXTURES / EXAMPLES[1]
    out = wtxtgit("inspect", npz_in_fold).out.decode()
    assert "offset" not in out
    assert "gaps" not in out
    listed = inspected(wtxtgit, npz_in_fold)
    inside = [child for part in listed["parts"] for child in part.get("children", [])]
    assert inside
    assert all(out.count(f"{child} ") == 1 for child in inside), "only in the table of tensors"
    told = wtxtgit("inspect", FIXTURES / "fold/none_json_a.fold").out.decode()
    assert re.search(r"^msg +JSON +17 B$", told, re.MULTILINE)


def test_parts_are_of_the_whole_file(wtxtgit: Command) -> None:
    refused = wtxtgit("inspect", FIXTURES / EXAMPLES[0], "torch_state/embed.weight", "--parts")
    assert refused.code == 2
    assert "--parts lists the whole file" in refused.err


def test_names_that_control_a_terminal_are_escaped(wtxtgit: Command) -> None:
    api.dump({"a\x1b[31m\nb": np.zeros(1)}, wtxtgit.folder / "n.wtxt")
    assert wtxtgit("restore", "n.wtxt", "-o", "n.safetensors").code == 0
    out = wtxtgit("inspect", "n.safetensors").out
    assert b"\x1b" not in out
    assert b"a\\x1b[31m\\x0ab" in out


@pytest.mark.parametrize(
    ("content", "kind", "command"),
    [
        (delta_named("one_chunk").delta, "delta", "wtxtgit diff"),
        (b"WLEDGER 1 ", "ledger", "wtxtgit log"),
    ],
)
def test_our_own_files_are_known(content: bytes, kind: str, command: str, wtxtgit: Command) -> None:
    (wtxtgit.folder / "x").write_bytes(content)
    done = wtxtgit("inspect", "x")
    first, note = done.out.decode().splitlines()[:2]
    assert first.startswith(f"x: {kind}, ")
    assert note.startswith(f"note: {command} ")
    assert inspected(wtxtgit, "x")["format"] == kind
