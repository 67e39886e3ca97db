"""`wtxtgit convert` and `dump` with parity, and with hashes of tensors and pages."""

from __future__ import annotations

import json
from pathlib import Path

import blake3
import msgpack
import numpy as np
import pytest

import wtxtgit as api
from tests.cli.command import Command
from tests.cli.test_inspect import inspected
from tests.data import FIXTURES
from wtxtgit.errors import UsageError

VALUES = np.random.default_rng(0).standard_normal((40, 30)).astype("f4")


@pytest.fixture
def model(wtxtgit: Command) -> Path:
    path = wtxtgit.folder / "m.safetensors"
    api.dump({"w": VALUES, "b": np.arange(4.0)}, path)
    return path


def test_parity_mends_what_is_damaged(model: Path, wtxtgit: Command) -> None:
    assert wtxtgit("convert", model, "m.fold", "--ecc", "16").code == 0
    api.dump({"w": VALUES, "b": np.arange(4.0)}, wtxtgit.folder / "two.fold", ecc=32)
    for name, parity in (("m.fold", "rs(16)"), ("two.fold", "rs(32)")):
        chunks = inspected(wtxtgit, name)["metadata"]["chunks"]
        assert {chunk["ecc_algo"] for chunk in chunks} == {parity}
        path = wtxtgit.folder / name
        assert wtxtgit("verify", path, "--strict").code == 0
        data = bytearray(path.read_bytes())
        at = bytes(data).index(VALUES.tobytes()[:64])
        data[at : at + 5] = b"WRONG"
        path.write_bytes(data)
        assert wtxtgit("recover", "--ecc", name, "-o", f"mended-{name}").code == 0
        assert (api.load(wtxtgit.folder / f"mended-{name}")["torch_state/w"] == VALUES).all()


def test_hashes_of_tensors_and_pages(model: Path, wtxtgit: Command) -> None:
    assert wtxtgit("convert", model, "m.aero", "--hash-b3", "--page-hashes", "1KiB").code == 0
    index = msgpack.unpackb(wtxtgit("cat", "m.aero", "tensors").out)
    wanted = {"w": VALUES.tobytes(), "b": np.arange(4.0).tobytes()}
    found = {entry["name"]: entry["hash_b3"] for entry in index["tensors"]}
    assert found == {name: blake3.blake3(raw).hexdigest() for name, raw in wanted.items()}
    pages = msgpack.unpackb(wtxtgit("cat", "m.aero", "weights.shard0.phsh").out)
    shard = wtxtgit("cat", "m.aero", "weights.shard0").out
    assert pages["page_size"] == 1024
    assert pages["digests"] == [
        blake3.blake3(shard[at : at + 1024]).digest() for at in range(0, len(shard), 1024)
    ]
    assert wtxtgit("verify", "m.aero", "--strict").code == 0
    api.dump(wanted_arrays(), wtxtgit.folder / "two.aero", tensor_hashes=True, page_size=1024)
    index = msgpack.unpackb(wtxtgit("cat", "two.aero", "tensors").out)
    assert {entry["name"]: entry["hash_b3"] for entry in index["tensors"]} == found


def wanted_arrays() -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    return {"w": VALUES, "b": np.arange(4.0)}


def test_parts_of_a_set_have_pages_too(model: Path, wtxtgit: Command) -> None:
    options = ("--max-shard", "1KiB", "--page-hashes", "512")
    assert wtxtgit("convert", model, "s.aero", *options).code == 0
    assert wtxtgit("verify", "s.aeroset.json", "--strict").code == 0
    part = sorted(wtxtgit.folder.glob("s-part-*.aero"))[0]
    assert msgpack.unpackb(wtxtgit("cat", part, "weights.shard0.phsh").out)["page_size"] == 512


@pytest.mark.parametrize(
    "arguments",
    [
        ("out.npz", "--ecc", "16"),
        ("out.aero", "--ecc", "16"),
        ("out.fold", "--hash-b3"),
        ("out.safetensors", "--page-hashes", "4KiB"),
        ("out.fold", "--ecc", "255"),
    ],
)
def test_what_a_format_does_not_write_is_refused(
    arguments: tuple[str, ...], model: Path, wtxtgit: Command
) -> None:
    done = wtxtgit("convert", model, *arguments)
    assert (done.code, done.out) == (2, b"")
    assert not list(wtxtgit.folder.glob("out.*"))


def test_a_text_has_none_of_them(tmp_path: Path) -> None:
    for extra in ({"ecc": 16}, {"tensor_hashes": True}, {"page_size": 4096}):
        with pytest.raises(UsageError, match="parity"):
            api.dump({"w": VALUES}, tmp_path / "m.wtxt", **extra)


def test_fold_has_what_pyfolds_loads_whatever_it_was_made_of(wtxtgit: Command) -> None:
    arrays = {"w": VALUES, "b": np.arange(4.0)}
    hyperparameters = {"n_dendrites": 2, "w_scale": 5.0}
    tags = {"model_type": "MPJRDNeuron", "hyperparameters": json.dumps(hyperparameters), "exp": "t"}
    api.dump(arrays, wtxtgit.folder / "m.safetensors", tags=tags)
    api.dump(arrays, wtxtgit.folder / "m.aero", tags={"architecture": "MPJRDNeuron"})
    api.dump(arrays, wtxtgit.folder / "m.pt")
    for name, model_type, kept in (
        ("m.safetensors", "MPJRDNeuron", hyperparameters),
        ("m.aero", "MPJRDNeuron", {}),
        ("m.pt", None, {}),
    ):
        assert wtxtgit("convert", name, "m.fold").code == 0
        manifest = json.loads(wtxtgit("cat", "m.fold", "llm_manifest").out)
        assert (manifest["model_type"], manifest["hyperparameters"]) == (model_type, kept)
        assert manifest["routing"]["resume_training"] == "torch_state"
        assert manifest["chunks_expected"] == ["torch_state", "llm_manifest", "metrics"]
        assert json.loads(wtxtgit("cat", "m.fold", "metrics").out) == {}
        assert wtxtgit("verify", "m.fold", "--strict").code == 0


@pytest.mark.parametrize("name", ["neuron_default_a", "old_76fbfa1_default_a", "zstd3_sten_npz_a"])
def test_training_metadata_of_fold_go_along(name: str, wtxtgit: Command) -> None:
    source = FIXTURES / "fold" / f"{name}.fold"
    before = inspected(wtxtgit, str(source))["metadata"]
    assert wtxtgit("convert", source, "again.fold", "--ecc", "16").code == 0
    after = inspected(wtxtgit, "again.fold")["metadata"]
    assert after["created_at_unix"] == before["created_at_unix"]
    assert [c["name"] for c in after["chunks"]] == [c["name"] for c in before["chunks"]]
    for chunk in before["chunks"]:
        if chunk["ctype"] == "JSON":
            was = wtxtgit("cat", source, chunk["name"]).out
            assert wtxtgit("cat", "again.fold", chunk["name"]).out == was
    for key in ("expression", "tags", "model_type", "reproducibility"):
        assert after["metadata"].get(key) == before["metadata"].get(key)
    found = api.load(wtxtgit.folder / "again.fold")
    wanted = api.load(source)
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(found[name], wanted[name], equal_nan=False) for name in wanted)


def test_training_metadata_of_fold_pass_through_another_format_and_through_python(
    wtxtgit: Command,
) -> None:
    source = FIXTURES / "fold" / "neuron_default_a.fold"
    loaded = api.load(source)
    api.dump({**loaded}, wtxtgit.folder / "python.fold", tags=loaded.tags)
    assert wtxtgit("convert", source, "m.safetensors").code == 0
    assert wtxtgit("convert", "m.safetensors", "back.fold").code == 0
    for chunk in ("llm_manifest", "metrics", "telemetry"):
        was = json.loads(wtxtgit("cat", source, chunk).out)
        for name in ("python.fold", "back.fold"):
            assert json.loads(wtxtgit("cat", name, chunk).out) == was
