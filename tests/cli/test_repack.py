"""`wtxtgit repack` and `wtxtgit recover`: other bytes, the same tensors."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.command import Command
from tests.cli.test_inspect import inspected
from tests.data import FIXTURES, all_entries, fixture

FOLDS = [
    entry["file"]
    for entry in all_entries()
    if entry["format"] == "FOLD"
    and entry["valid"]
    and not {"encrypted", "sha256_field_is_hmac"} & set(entry["quirks"])
]
AEROS = ["aero/ihsh_phsh_a.aero", "aero/low_uncompressed_a.aero", "aero/low_wtsh_zstd_a.aero"]


def tensors(wtxtgit: Command, path: str | Path) -> list[tuple[Any, ...]]:
    found = inspected(wtxtgit, path)["tensors"]
    return sorted((t["name"], t["dtype"], tuple(t["shape"]), t.get("sha256")) for t in found)


@pytest.mark.slow
@pytest.mark.parametrize("path", FOLDS[::3])
def test_a_fold_there_and_back(path: str, wtxtgit: Command) -> None:
    before = tensors(wtxtgit, FIXTURES / path)
    for compression, name in (("none", "a.fold"), ("zstd", "b.fold")):
        done = wtxtgit("repack", FIXTURES / path, "--compression", compression, "-o", name)
        assert (done.code, done.err) == (0, "")
        assert wtxtgit("verify", name).code == 0
        assert tensors(wtxtgit, name) == before
    again = wtxtgit("repack", "b.fold", "-o", "c.fold")
    assert again.code == 0
    flags = {chunk["flags"] for chunk in inspected(wtxtgit, "a.fold")["metadata"]["chunks"]}
    assert flags <= {0}
    a, c = ((wtxtgit.folder / name).read_bytes() for name in ("a.fold", "c.fold"))
    assert a == c


@pytest.mark.slow
@pytest.mark.parametrize("path", AEROS)
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_an_aero(path: str, compression: str, wtxtgit: Command) -> None:
    done = wtxtgit("repack", FIXTURES / path, "--compression", compression, "-o", "x.aero")
    assert (done.code, done.err) == (0, "")
    assert wtxtgit("verify", "x.aero").code == 0
    assert tensors(wtxtgit, "x.aero") == tensors(wtxtgit, FIXTURES / path)


def test_a_fold_in_place(wtxtgit: Command) -> None:
    (wtxtgit.folder / "m.fold").write_bytes(fixture("fold/zstd3_sten_npz_a.fold"))
    before = tensors(wtxtgit, "m.fold")
    assert wtxtgit("repack", "m.fold").code == 0
    assert wtxtgit("verify", "m.fold").code == 0
    assert tensors(wtxtgit, "m.fold") == before


def test_what_pyfolds_1_0_2_reads_stays_so(wtxtgit: Command) -> None:
    """It compares `sha256` with 64 hex digits, and takes what `torch.save` wrote as weights."""
    source = FIXTURES / "fold/old_76fbfa1_default_a.fold"
    assert wtxtgit("repack", source, "-o", "x.fold").code == 0
    before, after = (inspected(wtxtgit, path)["metadata"] for path in (source, "x.fold"))
    assert [c["ctype"] for c in after["chunks"]] == [c["ctype"] for c in before["chunks"]]
    data = (wtxtgit.folder / "x.fold").read_bytes()
    index = json.loads(data[int.from_bytes(data[12:20], "big") :])
    for chunk in index["chunks"]:
        at = chunk["offset"] + chunk["header_len"]
        payload = data[at : at + chunk["comp_len"]]
        assert chunk["sha256"] == hashlib.sha256(payload).hexdigest()
        assert wtxtgit("cat", source, chunk["name"]).out == payload


def test_hashes_that_are_hmacs_need_their_key(wtxtgit: Command, tmp_path: Path) -> None:
    entry = next(e for e in all_entries() if e["file"] == "fold/hmac_a.fold")
    key = tmp_path / "key"
    key.write_text(entry["options"]["env PYFOLDS_INTEGRITY_KEY"])
    source = FIXTURES / "fold/hmac_a.fold"
    done = wtxtgit("repack", source, "--compression", "zstd", "-o", "x.fold")
    assert done.code == 3
    assert "key" in done.complaint()
    assert wtxtgit.names() == []
    options = ("--compression", "zstd", "--hmac-key", key, "-o", "x.fold")
    assert wtxtgit("repack", source, *options).code == 0
    assert wtxtgit("verify", "x.fold", "--hmac-key", key).code == 0
    assert tensors(wtxtgit, "x.fold") == tensors(wtxtgit, source)


def test_an_npz_is_stored_in_place(wtxtgit: Command) -> None:
    path = wtxtgit.folder / "m.npz"
    np.savez_compressed(path, a=np.arange(1000), b=np.zeros((3, 4), "f4"))
    before = tensors(wtxtgit, "m.npz")
    done = wtxtgit("repack", "m.npz", "--json")
    assert (done.code, done.err) == (0, "")
    said = json.loads(done.out)
    assert said["size_after"] == path.stat().st_size > said["size_before"]
    assert tensors(wtxtgit, "m.npz") == before
    with zipfile.ZipFile(path) as archive:
        assert {member.compress_type for member in archive.infolist()} == {zipfile.ZIP_STORED}
        assert archive.testzip() is None
    np.testing.assert_array_equal(np.load(path)["a"], np.arange(1000))


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("plain/pair_v1.safetensors", "safetensors"),
        ("mlcp/one_shard_a.checkpoint", "mlcp"),
        ("taridx/pair_v1/train.taridx", "taridx"),
        ("fold/unfinalized_a.fold", "not finalized"),
        ("fold/encrypted_high_a.fold", "encrypted"),
        ("mlcp/sibling_multishard_a.shard", "no compression"),
    ],
)
def test_what_has_no_compression_to_change(path: str, word: str, wtxtgit: Command) -> None:
    done = wtxtgit("repack", FIXTURES / path, "-o", "x")
    assert done.code in (1, 3)
    assert done.out == b""
    assert word in done.complaint()
    assert wtxtgit.names() == []


@pytest.mark.parametrize("path", ["plain/arrays_c_a.npz", "plain/nested_a.pt"])
def test_a_compression_that_the_format_does_not_know(path: str, wtxtgit: Command) -> None:
    done = wtxtgit("repack", FIXTURES / path, "--compression", "zstd", "-o", "x")
    assert (done.code, done.out) == (2, b"")
    assert "zstd" in done.complaint()
    assert wtxtgit.names() == []


def test_a_damaged_file_is_not_repacked(wtxtgit: Command) -> None:
    data = bytearray(fixture("fold/none_sten_alldtypes_a.fold"))
    data[1500] ^= 1
    (wtxtgit.folder / "d.fold").write_bytes(data)
    done = wtxtgit("repack", "d.fold")
    assert (done.code, done.out) == (1, b"")
    assert "crc32c" in done.complaint() or "sha256" in done.complaint()
    assert (wtxtgit.folder / "d.fold").read_bytes() == data


def test_parity_mends_the_file_that_was(wtxtgit: Command) -> None:
    done = wtxtgit("recover", "--ecc", FIXTURES / "fold/none_rs16_flipped_a.fold", "-o", "m.fold")
    assert (done.code, done.err) == (0, "")
    assert "torch_state" in done.out.decode()
    assert (wtxtgit.folder / "m.fold").read_bytes() == fixture("fold/none_rs16_a.fold")


def test_parity_mends_in_place(wtxtgit: Command) -> None:
    (wtxtgit.folder / "m.fold").write_bytes(fixture("fold/none_rs16_flipped_a.fold"))
    done = wtxtgit("recover", "--ecc", "m.fold", "--json")
    assert (done.code, done.err) == (0, "")
    assert "torch_state" in json.loads(done.out)["mended"]
    assert (wtxtgit.folder / "m.fold").read_bytes() == fixture("fold/none_rs16_a.fold")
    again = wtxtgit("recover", "--ecc", "m.fold")
    assert (again.code, again.err) == (0, "")
    assert "nothing is damaged" in again.out.decode()


def test_what_parity_can_not_mend_is_left(wtxtgit: Command) -> None:
    data = bytearray(fixture("fold/none_rs16_a.fold"))
    for at in range(60, 100):
        data[at] ^= 0xFF
    (wtxtgit.folder / "m.fold").write_bytes(data)
    done = wtxtgit("recover", "--ecc", "m.fold")
    assert (done.code, done.out) == (1, b"")
    assert "torch_state" in done.complaint()
    assert (wtxtgit.folder / "m.fold").read_bytes() == data
    assert wtxtgit.names() == ["m.fold"]


def test_a_header_is_mended_though_it_keeps_the_file_from_being_read(wtxtgit: Command) -> None:
    whole = fixture("fold/none_rs16_a.fold")
    # The length in the first chunk's header leads out of the file.
    (wtxtgit.folder / "m.fold").write_bytes(whole[:44] + b"\xff" + whole[45:])
    assert wtxtgit("verify", "m.fold").code == 1
    done = wtxtgit("recover", "--ecc", "m.fold")
    assert (done.code, done.err) == (0, "")
    assert (wtxtgit.folder / "m.fold").read_bytes() == whole


def test_what_verify_fails_is_never_called_whole(wtxtgit: Command) -> None:
    data = fixture("fold/none_rs16_a.fold")
    for bad in (data + b"tail", data.replace(b'"format"', b'"formaT"', 1)):
        (wtxtgit.folder / "m.fold").write_bytes(bad)
        assert wtxtgit("verify", "m.fold").code == 1
        for arguments in ([], ["-o", "n.fold"]):
            done = wtxtgit("recover", "--ecc", "m.fold", *arguments)
            assert (done.code, done.out) == (1, b"")
            assert "no chunk needs mending, but the file is not valid: " in done.complaint()
        assert (wtxtgit.folder / "m.fold").read_bytes() == bad
        assert wtxtgit.names() == ["m.fold"]


def test_what_to_mend_from_is_said(wtxtgit: Command) -> None:
    (wtxtgit.folder / "m.fold").write_bytes(fixture("fold/none_rs16_flipped_a.fold"))
    done = wtxtgit("recover", "m.fold")
    assert done.code == 0
    assert b"which parity can mend" in done.out
    done = wtxtgit("recover")
    assert (done.code, done.out) == (2, b"")
    assert done.complaint()


def test_only_fold_files_hold_parity(wtxtgit: Command) -> None:
    done = wtxtgit("recover", "--ecc", FIXTURES / "plain/pair_v1.safetensors", "-o", "x")
    assert (done.code, done.out) == (3, b"")
    assert "parity" in done.complaint()
    assert wtxtgit.names() == []
