"""Wrong settings and hostile names at the command line."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import wtxtgit
from tests.data import FIXTURES, VECTORS
from tests.kit.starts import PYTHON

WTXTGIT = (PYTHON, "-E", "-P", "-m", "wtxtgit")
TEXT = VECTORS / "valid" / "layout_safetensors.wtxt"


def run(
    *arguments: str | Path, content: bytes = b"", **env: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*WTXTGIT, *arguments],
        input=content,
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **env},
    )


@pytest.mark.slow
@pytest.mark.parametrize("value", ["abc", "0", "-1", "9" * 5000, "²"])
def test_a_wrong_number_of_threads_does_not_fail_a_checkout(value: str) -> None:
    done = run("smudge", content=TEXT.read_bytes(), WTXTGIT_THREADS=value)
    assert done.returncode == 0
    assert b"WTXTGIT_THREADS" in done.stderr
    assert done.stdout == run("smudge", content=TEXT.read_bytes()).stdout
    assert (
        run("emit", FIXTURES / "plain/pair_v1.safetensors", WTXTGIT_THREADS=value).returncode == 2
    )


def test_a_damaged_texts_hint_quotes_its_name() -> None:
    damaged = TEXT.read_bytes().replace(b"A", b"B", 1)
    done = run("smudge", "--", "x; touch y;.fold", content=damaged)
    assert (done.returncode, done.stdout) == (0, damaged)
    assert b"recover -- 'x; touch y;.fold'" in done.stderr


def test_one_file_that_can_not_be_read_is_a_finding_in_json(tmp_path: Path) -> None:
    done = run("verify", "--json", tmp_path / "nofile")
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"]) == (3, False)
    assert "no such file" in found["files"][0]["errors"][0]["message"]


@pytest.mark.slow
def test_names_that_a_file_can_not_hold_are_refused(tmp_path: Path) -> None:
    for name, ending in (("__metadata__", "safetensors"), ("a\0b", "npz"), ("n" * 70_000, "npz")):
        text = tmp_path / "x.wtxt"
        wtxtgit.dump({name: np.zeros(2)}, text)
        done = run("restore", text, "-o", tmp_path / f"out.{ending}")
        assert done.returncode == 3, name[:20]
        assert len(done.stderr) < 1_000
        assert not (tmp_path / f"out.{ending}").exists()


def test_restore_replaces_only_what_is_named(tmp_path: Path) -> None:
    text, out = tmp_path / "m.bin.wtxt", tmp_path / "m.bin"
    text.write_bytes(TEXT.read_bytes())
    out.write_bytes(b"mine")
    assert run("restore", text).returncode == 2
    assert out.read_bytes() == b"mine"
    assert run("restore", text, "-o", out).returncode == 0
    assert out.read_bytes() != b"mine"


def test_a_damaged_text_given_another_generation_is_told_with_its_place(tmp_path: Path) -> None:
    text = tmp_path / "m.wtxt"
    text.write_bytes((VECTORS / "invalid/flipped_char.wtxt").read_bytes())
    done = run("emit", text, "--gen", "3")
    assert done.returncode == 3
    assert b'm.wtxt: line 8, array "R", chunk 0: ' in done.stderr


def test_a_name_of_a_megabyte_is_cut_in_messages(tmp_path: Path) -> None:
    text = tmp_path / "m.wtxt"
    wtxtgit.dump({"n" * 1_000_000: np.zeros(2)}, text)
    text.write_bytes(text.read_bytes().replace(b"AAAA", b"AAAB", 1))
    done = run("verify", text)
    assert done.returncode == 1
    assert len(done.stdout) < 5_000


@pytest.mark.slow
def test_output_in_ascii_escapes_what_it_can_not_spell(tmp_path: Path) -> None:
    path = tmp_path / "é.wtxt"
    path.write_bytes(TEXT.read_bytes())
    done = run("verify", path, PYTHONIOENCODING="ascii")
    # -E makes Python ignore its own variables; the locale decides then.
    assert done.returncode == 0
    plain = subprocess.run(
        [PYTHON, "-m", "wtxtgit", "verify", path],
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"], "PYTHONIOENCODING": "ascii"},
    )
    assert plain.returncode == 0
    assert b"\\xe9.wtxt" in plain.stdout
