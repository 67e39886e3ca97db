"""`wtxtgit emit` and `restore`: files to texts and back."""

from __future__ import annotations

import json
import subprocess
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wtxtgit as api
from tests.cli.command import Command
from tests.data import FIXTURES, VECTORS, fixture, fixture_path, golden
from wtxtgit.text.arrays import read

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


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES)
def test_emit_gives_the_frozen_text_to_a_file_and_a_pipe(path: str, wtxtgit: Command) -> None:
    piped = wtxtgit("emit", fixture_path(path))
    assert (piped.code, piped.err) == (0, "")
    assert sha256(piped.out).hexdigest() == golden()[path]["sha256"]
    done = wtxtgit("emit", fixture_path(path), "-o", "out.wtxt")
    assert (done.code, done.out, done.err) == (0, b"", "")
    assert (wtxtgit.folder / "out.wtxt").read_bytes() == piped.out
    assert wtxtgit.names() == ["out.wtxt"]


@pytest.mark.parametrize("threads", ["1", "2", "7"])
def test_threads_do_not_change_what_is_emitted(threads: str, wtxtgit: Command) -> None:
    path = "plain/pair_v1.safetensors"
    env = {"WTXTGIT_THREADS": threads}
    piped = wtxtgit("emit", FIXTURES / path, "-o", "-", env=env)
    assert sha256(piped.out).hexdigest() == golden()[path]["sha256"]
    assert wtxtgit("emit", FIXTURES / path, "--output", "out.wtxt", env=env).code == 0
    assert (wtxtgit.folder / "out.wtxt").read_bytes() == piped.out


@pytest.mark.parametrize("threads", ["0", "-1", "two", "1.5"])
def test_a_number_of_threads_that_is_none_is_refused(threads: str, wtxtgit: Command) -> None:
    done = wtxtgit("emit", FIXTURES / EXAMPLES[0], env={"WTXTGIT_THREADS": threads})
    assert (done.code, done.out) == (2, b"")
    assert threads in done.complaint()


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES)
def test_restore_gives_the_file_back(path: str, wtxtgit: Command) -> None:
    name = Path(path).name
    assert wtxtgit("emit", fixture_path(path), "-o", f"{name}.wtxt").code == 0
    done = wtxtgit("restore", f"{name}.wtxt")
    assert (done.code, done.out, done.err) == (0, b"", "")
    assert (wtxtgit.folder / name).read_bytes() == fixture(path)
    assert wtxtgit("restore", f"{name}.wtxt", "-o", "other").code == 0
    assert (wtxtgit.folder / "other").read_bytes() == fixture(path)
    assert wtxtgit("restore", f"{name}.wtxt", "-o", "-").out == fixture(path)
    assert wtxtgit.names() == sorted([name, f"{name}.wtxt", "other"])


def test_the_empty_file_is_emitted_and_restored(wtxtgit: Command) -> None:
    (wtxtgit.folder / "empty").touch()
    done = wtxtgit("emit", "empty", "-o", "empty.wtxt")
    assert (done.code, done.err) == (0, "")
    text = (wtxtgit.folder / "empty.wtxt").read_bytes()
    assert sha256(text).hexdigest() == golden()[""]["sha256"]
    assert wtxtgit("restore", "empty.wtxt", "-o", "-").out == b""


def test_options_make_a_generation(wtxtgit: Command, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"key")
    done = wtxtgit(
        "emit", FIXTURES / EXAMPLES[0], "-o", "g.wtxt", "--gen", "7",
        "--ts", "2026-01-31T12:00:00Z", "--build", "abc", "--prev", "ab" * 32,
        "--hmac-key", tmp_path / "key", "--audit", "loss=0.5", "--audit", "note=two words",
        "--rows-per-chunk", "3",
    )  # fmt: skip
    assert (done.code, done.out, done.err) == (0, b"", "")
    weights = read(memoryview((wtxtgit.folder / "g.wtxt").read_bytes()), hmac_key=b"key")
    meta = weights.meta
    assert api.load(wtxtgit.folder / "g.wtxt", hmac_key=b"key").meta == meta
    assert (meta.gen, meta.ts, meta.build) == (7, "2026-01-31T12:00:00Z", "abc")
    assert weights.snapshot.prev == b"\xab" * 32
    assert weights.snapshot.audit == 'loss=0.5 note="two words"'
    assert weights.report.authenticated
    assert all(a.rows is not None and a.rows.rows_per_chunk == 3 for a in weights.snapshot.arrays)
    assert wtxtgit("restore", "g.wtxt", "-o", "-").out == fixture(EXAMPLES[0])


def test_a_pending_text_needs_its_wsum(wtxtgit: Command) -> None:
    assert wtxtgit("emit", FIXTURES / EXAMPLES[0], "--pending", "-o", "p.wtxt").code == 0
    assert wtxtgit.names() == ["p.wtxt", "p.wtxt.root.wsum"]
    assert wtxtgit("verify", "p.wtxt").code == 0
    (wtxtgit.folder / "p.wtxt.root.wsum").rename(wtxtgit.folder / "apart.wsum")
    assert wtxtgit("verify", "p.wtxt").code == 1
    assert wtxtgit("verify", "p.wtxt", "--wsum", "apart.wsum").code == 0
    refused = wtxtgit("restore", "p.wtxt", "-o", "x")
    assert refused.code == 1
    assert "pending" in refused.complaint()
    assert "--wsum" in refused.err
    done = wtxtgit("restore", "p.wtxt", "-o", "x", "--wsum", "apart.wsum")
    assert (done.code, done.err) == (0, "")
    assert (wtxtgit.folder / "x").read_bytes() == fixture(EXAMPLES[0])


@pytest.mark.parametrize("options", [[], ["-o", "-"]])
def test_a_pending_text_has_no_place_for_its_wsum_in_a_pipe(
    options: list[str], wtxtgit: Command
) -> None:
    done = wtxtgit("emit", FIXTURES / EXAMPLES[0], "--pending", *options)
    assert (done.code, done.out) == (2, b"")
    done.complaint()


@pytest.mark.parametrize(
    "options",
    [
        ["--ts", "now"],
        ["--build", "two words"],
        ["--gen", "1" + "0" * 20],
        ["--gen", "-1"],
        ["--gen", "x"],
        ["--prev", "ab"],
        ["--prev", "AB" * 32],
        ["--rows-per-chunk", "0"],
        ["--rows-per-chunk", "1" + "0" * 20],
        ["--audit", "novalue"],
        ["--audit", "=v"],
        ["--audit", 'a=b"c'],
        ["--audit", "note=naïve"],
        ["--audit", "a=1\n"],
        ["--no-such-option"],
    ],
    ids=" ".join,
)
def test_an_option_that_no_text_can_hold_writes_nothing(
    options: list[str], wtxtgit: Command
) -> None:
    done = wtxtgit("emit", FIXTURES / EXAMPLES[0], "-o", "out.wtxt", *options)
    assert done.code in (2, 3)
    done.complaint()
    assert wtxtgit.names() == []


def test_a_native_text_becomes_npz_or_safetensors(wtxtgit: Command) -> None:
    arrays: dict[str, Any] = {
        "W": np.arange(12, dtype="f4").reshape(3, 4),
        "a b": np.array([True, False]),
        "層": np.float16(1.5),
        "z": np.zeros((0, 3)),
        "file": np.arange(3),
    }
    api.dump(arrays, wtxtgit.folder / "n.wtxt")
    assert wtxtgit("restore", "n.wtxt", "-o", "n.npz").code == 0
    with np.load(wtxtgit.folder / "n.npz", allow_pickle=False) as found:
        assert set(found.files) == set(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
    with zipfile.ZipFile(wtxtgit.folder / "n.npz") as archive:
        assert archive.testzip() is None
    assert wtxtgit("restore", "n.wtxt", "-o", "n.safetensors").code == 0
    listed = json.loads(wtxtgit("inspect", "n.safetensors", "--json").out)["tensors"]
    assert {t["name"]: t["shape"] for t in listed} == {
        name: list(np.shape(array)) for name, array in arrays.items()
    }
    once = (wtxtgit.folder / "n.npz").read_bytes()
    assert wtxtgit("restore", "n.wtxt", "-o", "n.npz").code == 0
    assert (wtxtgit.folder / "n.npz").read_bytes() == once
    for out in ("n.bin", "-", "n"):
        done = wtxtgit("restore", "n.wtxt", "-o", out)
        assert done.code == 2
        done.complaint()
    assert wtxtgit.names() == ["n.npz", "n.safetensors", "n.wtxt"]


def test_a_damaged_text_is_not_restored(wtxtgit: Command) -> None:
    path = VECTORS / "invalid/flipped_char.wtxt"
    for out in ("x", "-"):
        done = wtxtgit("restore", path, "-o", out)
        assert (done.code, done.out) == (1, b"")
        assert "line " in done.complaint()
        assert "wtxtgit recover" in done.err
    assert wtxtgit.names() == []


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in EXAMPLES if "mlcp" not in p])
def test_clean_and_smudge_through_pipes_are_inverse(path: str, wtxtgit: Command) -> None:
    text = wtxtgit("clean", "model", stdin=fixture(path))
    assert (text.code, text.err) == (0, "")
    back = wtxtgit("smudge", "model", stdin=text.out)
    assert (back.code, back.out, back.err) == (0, fixture(path), "")


def test_a_link_is_replaced_and_permissions_are_kept(wtxtgit: Command) -> None:
    out = wtxtgit.folder / "out.wtxt"
    out.write_bytes(b"old")
    out.chmod(0o600)
    assert wtxtgit("emit", FIXTURES / EXAMPLES[0], "-o", out).code == 0
    assert out.stat().st_mode & 0o777 == 0o600


def test_the_scripts_are_the_module(wtxtgit: Command) -> None:
    version = wtxtgit("--version").out
    assert version == f"wtxtgit {api.__version__}\n".encode()
    for name in ("wtxtgit", "git-wtxt"):
        script = Path(wtxtgit.argv()[0]).parent / name
        done = subprocess.run(
            [script, "--version"], capture_output=True, check=True, **wtxtgit.options()
        )
        assert done.stdout == version
