"""A model that is too large for its forge, from `track --detached` to an audit in another clone.

The forge is a bare repository whose pre-receive hook refuses large blobs. The model has a MiB,
or as many as WTXTGIT_TOUR says; from 1 GiB on the limit is the 100 MiB that forges have.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from hashlib import file_digest
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from tests.e2e.sealed import Sealed
from tests.kit import Repo
from tests.kit.starts import WTXTGIT
from tests.kit.temporary import DISK
from wtxtgit.git import run

NAME = "model.safetensors"
MIB = 1024**2
SIZE = int(os.environ.get("WTXTGIT_TOUR", "1")) * MIB
LIMIT = 100 * MIB if SIZE >= 1024 * MIB else SIZE
"""Under what the whole text has, and over what a pack has."""
REFUSED = "over the limit"
HOOK = f"""\
#!/bin/sh
while read -r old new ref; do
    git rev-list --objects "$new" --not --all | cut -d' ' -f1 |
    git cat-file --batch-check='%(objecttype) %(objectsize) %(objectname)' |
    while read -r type size name; do
        if [ "$type" = blob ] && [ "$size" -gt {LIMIT} ]; then
            echo "error: $ref: blob $name has $size bytes, {REFUSED} of {LIMIT}" >&2
            exit 1
        fi
    done || exit 1
done
"""
ROWS, PARTS = 64, 4
"""Of each tensor."""


def save(path: Path, changed: int | None = None) -> None:
    """Write a model of bf16 tensors; in one version a row of a tensor is another."""
    columns = SIZE // (2 * ROWS * PARTS)
    nbytes = 2 * ROWS * columns
    header = {
        f"layers.{part}.w": {
            "dtype": "BF16",
            "shape": [ROWS, columns],
            "data_offsets": [part * nbytes, (part + 1) * nbytes],
        }
        for part in range(PARTS)
    }
    spelled = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(spelled)) + spelled)
        for part in range(PARTS):
            random = np.random.default_rng(part)
            # A row at a time: the whole may be larger than the memory.
            for row in range(ROWS):
                values = random.standard_normal(columns, dtype=np.float32)
                if changed == part and row == 7:
                    values *= 1.5
                file.write((values.view(np.uint32) >> 16).astype(np.uint16))


def content(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A folder on a real disk, where the files are too large for memory."""
    if SIZE < 64 * MIB:
        yield tmp_path
        return
    with TemporaryDirectory(dir=DISK) as folder:
        yield Path(folder)


@pytest.fixture
def forge(tmp_path: Path) -> Path:
    folder = tmp_path / "forge.git"
    run.git("init", "-q", "--bare", "--initial-branch=main", str(folder))
    hook = folder / "hooks/pre-receive"
    hook.write_text(HOOK)
    hook.chmod(0o755)
    return folder


def configured(repo: Repo) -> Sealed:
    """A clone with a signing key, and with the hook that `install --hooks` sets up."""
    repo.git("config", "wtxtgit.signingKey", "alice")
    hook = repo.path / ".git/hooks/pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\nexec {WTXTGIT} hook pre-push "$@"\n')
    hook.chmod(0o755)
    return Sealed(repo.path)


def cloned(forge: Path, name: str, **env: str) -> Sealed:
    folder = forge.parent / name
    run.git("clone", "-q", forge.as_uri(), str(folder), env={**os.environ, **env})
    return configured(Repo(folder))


@pytest.mark.slow
@pytest.mark.usefixtures("driver", "keys")
def test_a_model_that_is_too_large_for_the_forge(forge: Path) -> None:
    mine = cloned(forge, "mine")
    mine.git("symbolic-ref", "HEAD", "refs/heads/main")
    save(mine.path / NAME)

    # As a whole text it is refused, here before it is sent and there.
    mine.git("config", "wtxtgit.maxBlob", str(LIMIT))
    if LIMIT == SIZE:
        mine.call("track", "*.safetensors")
        mine.add(".gitattributes", NAME)
        mine.commit("whole")
        refused = mine.run(run.executable(), "push", "-q", "--no-verify", "origin", "main", ok=(1,))
        assert REFUSED.encode() in refused.stderr
        told = mine.call("doctor", ok=(0, 1)).out
        assert "sizes: wtxtgit track --detached" in told
        mine.git("update-ref", "-d", "HEAD")

    mine.call("track", "--detached", "*.safetensors")
    mine.git("add", "--renormalize", ".")
    mine.add(".")
    mine.add_signer("alice")
    mine.seal()
    mine.commit("a large model")
    first = content(mine.path / NAME)
    mine.git("push", "-q", "-u", "origin", "main")

    theirs = cloned(forge, "theirs")
    assert content(theirs.path / NAME) == first
    assert theirs.status() == b""
    theirs.git("checkout", "-q", "-b", "tuned")
    save(theirs.path / NAME, changed=2)
    shown = theirs.git("diff", "--", NAME).decode()
    assert "1 changed" in shown
    assert "layers.2.w" in shown
    assert "1 of 64: 7" in shown
    theirs.add(NAME)
    theirs.seal(NAME)
    theirs.commit("tuned")
    tuned = content(theirs.path / NAME)
    theirs.git("push", "-q", "origin", "tuned")

    mine.git("fetch", "-q")
    review = json.loads(mine.call("review", "main...origin/tuned", "--json").out)
    (model,) = (one for one in review["artifacts"] if one["path"] == NAME)
    assert [t["name"] for t in model["diff"]["tensors"] if t["status"] == "changed"] == [
        "layers.2.w"
    ]
    mine.git("merge", "-q", "--ff-only", "origin/tuned")
    assert content(mine.path / NAME) == tuned
    root = mine.git("rev-list", "--max-parents=0", "HEAD").decode().strip()
    report = mine.audit(root=root).report
    assert report["ok"]
    assert report["detached"] == {"verified": 1, "held": 0}
    # A clone that has the texts alone holds them against what was sealed.
    third = cloned(forge, "third", WTXTGIT_SKIP_SMUDGE="1")
    assert (third.path / NAME).stat().st_size < SIZE / 50
    report = third.audit(root=root).report
    assert report["ok"]
    assert report["detached"] == {"verified": 0, "held": 1}
