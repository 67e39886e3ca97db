"""A process that was forked tells and leaves what a fresh one does: each command once in both."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import numpy as np
import pyrage
import pytest

from tests.cli.test_start import GREETING
from tests.data import fixture
from tests.e2e.sealed import Sealed, checkpoint, text
from tests.kit.changes import PRODUCT
from tests.kit.starts import BIN, FOLDER, TRUE_START
from tests.stream.rings import filled
from wtxtgit.api.functions import dumps
from wtxtgit.cli.front_page import COMMANDS

ONCE = [
    "install --local --hooks",
    "uninstall --local",
    "track *.npy",
    "untrack *.safetensors",
    "migrate info",
    "migrate import --include *.fold --everything",
    "migrate export --everything",
    "doctor",
    "add b.safetensors",
    "checkout model.safetensors",
    "status",
    "ls-files",
    "inspect a.safetensors",
    "cat whole.fold msg",
    "verify model.safetensors",
    "diff a.safetensors b.safetensors",
    "review root...HEAD",
    "history model.safetensors",
    "merge-file a.safetensors b.safetensors c.safetensors --take *=theirs -o m.safetensors",
    "resolve model.safetensors",
    "emit a.safetensors",
    "restore model.safetensors -o restored.safetensors",
    "attach a.wtxt -o attached.wtxt",
    "detach a.wtxt -o detached.wtxt",
    "finalize pending.wtxt --json",
    "encrypt a.safetensors -R recipients -o new.wtxt.age",
    "decrypt old.wtxt.age -i identity -o opened.wtxt",
    "rekey old.wtxt.age -R recipients -i identity",
    "convert a.safetensors a.npz",
    "repack whole.fold --compression zstd -o other.fold",
    "reseal aeroset",
    "recover damaged.fold --ecc -o mended.fold",
    "delta make a.wtxt b.wtxt -o d.wtxt",
    "taridx ls index.taridx",
    "fetch",
    "push",
    "store ls",
    "ring ls exp1",
    "pull exp1 -o pulled.npz",
    "seal model.safetensors --key alice",
    "check --staged",
    "key list",
    "signers list",
    "log model.safetensors",
    "audit --trust-root root",
    "release root --trust-root root --key alice -o root.sig",
    "filter-process",
    "clean a.safetensors",
    "smudge a.safetensors",
    f"diff-driver -- a.safetensors a.wtxt {40 * 'a'} 100644 b.wtxt {40 * 'b'} 100644",
    "merge-driver -- a.wtxt b.wtxt c.wtxt 7 model.safetensors",
    "hook pre-commit",
]
NOT_ZERO = {"untrack": 1, "resolve": 3, "merge-driver": 1}
"""Exit codes where there is something to tell."""
STDIN = {"filter-process": GREETING, "clean": checkpoint(1.0), "smudge": text(1.0)}
VARYING = (".wsum", ".npz", ".age")
"""Endings of files with signatures, times, or fresh keys in them."""
_VARYING = re.compile(rb"[0-9a-f]{7,}|\d+[-T:.]\d\S*")
"""Ids, and times."""


def test_every_command_is_here() -> None:
    assert {line.split()[0] for line in ONCE} == set(COMMANDS)


@pytest.fixture
def files(base: Sealed, driver: None) -> Sealed:
    """A repository with sealed checkpoints, and files for every command."""
    for number, name in enumerate("abc"):
        base.write(f"{name}.safetensors", checkpoint(1.0, float(number)))
        base.write(f"{name}.wtxt", text(1.0, float(number)))
    base.write("whole.fold", fixture("fold/none_json_a.fold"))
    for name in ("model.aeroset.json", "index.aero", "part-000.aero"):
        base.write(f"aeroset/{name}", fixture(f"aero/aeroset_onepart_a/{name}"))
    base.write("damaged.fold", fixture("fold/none_rs16_flipped_a.fold"))
    base.write("pending.wtxt", dumps({"w": np.zeros(3)}, pending=True))
    secret = pyrage.x25519.Identity.generate()
    base.write("identity", f"{secret}\n".encode())
    (base.path / "identity").chmod(0o600)
    base.write("recipients", f"{secret.to_public()}\n".encode())
    encrypted = pyrage.encrypt(text(1.0), [secret.to_public()], armored=True)
    base.write("old.wtxt.age", encrypted)
    filled(base.path / "exp1", base.path / "target", count=2)
    base.write("index.taridx", fixture("taridx/dots_a/train.taridx"))
    return base


@pytest.mark.slow
@pytest.mark.skipif(
    FOLDER == BIN, reason="without a C compiler all starts are true ones: apt install gcc"
)
@pytest.mark.sampled(PRODUCT)
@pytest.mark.parametrize("line", ONCE)
def test_a_forked_start_is_as_a_true_one(files: Sealed, line: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    shutil.copytree(files.path, kept, symlinks=True)
    told = []
    for env in ({}, {TRUE_START: "1"}):
        shutil.rmtree(files.path)
        shutil.copytree(kept, files.path, symlinks=True)
        words = line.split()
        done = files.wtxtgit(*words, env=env, ok=range(6), stdin=STDIN.get(words[0], b""))
        output = done.stdout.replace(bytes(FOLDER), bytes(BIN))
        told.append((done.returncode, *map(same, (output, done.stderr)), left(files.path)))
    assert told[0] == told[1]
    assert told[0][0] == NOT_ZERO.get(line.split()[0], 0), told[0]


def same(output: bytes) -> bytes:
    return _VARYING.sub(b"...", output)


def left(folder: Path) -> dict[str, str]:
    """Files of the work tree by name, with what is in them but for signatures."""
    return {
        path.name: hashlib.sha256(same(path.read_bytes())).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.parts and path.suffix not in VARYING
    }
