"""Hunks of a text that git takes or drops one by one: the file that is gone then comes back."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from tests.kit import Repo
from tests.kit.pasting import HERE, make_pastable, typed

pytestmark = pytest.mark.slow

NAME = "model.safetensors"
HINT = re.compile(r"git cat-file blob [0-9a-f]+ >OUT\.wtxt && wtxtgit restore OUT\.wtxt")
KEPT = "the file that stood there is kept by git"


def model(value: float) -> bytes:
    rows = np.random.default_rng(0).standard_normal((3, 400, 64)).astype("f4")
    rows[0, 1] += value
    rows[2, 390] += value
    return save({name: rows[at] for at, name in enumerate("abc")})


@pytest.fixture(params=["", "--detached"])
def edited(repo: Repo, driver: None, request: pytest.FixtureRequest) -> Repo:
    """A checkpoint that was committed, and changed since."""
    make_pastable(repo)
    repo.wtxtgit("track", *filter(None, [request.param]), "*.safetensors")
    repo.write(NAME, model(1.0))
    repo.add()
    repo.commit()
    repo.write(NAME, model(2.0))
    return repo


def by_hunks(repo: Repo, command: str, only: int) -> str:
    """Answer "yes" for one hunk, and "no" for all others; returns what is told."""
    answers = b"".join(b"y\n" if number == only else b"n\n" for number in range(50))
    done = repo.run("git", *command.split(), stdin=answers, ok=(0, 1))
    return (done.stdout + done.stderr).decode("utf-8", "replace")


def restored(repo: Repo, said: str) -> bytes:
    """Follow the hint in a folder, where it writes OUT; give what that is."""
    command = HINT.search(said)
    assert command is not None, said
    assert typed(repo, command[0])[0] == 0
    return (repo.path / HERE / "OUT").read_bytes()


@pytest.mark.parametrize("hunk", [0, -1])
@pytest.mark.parametrize("command", ["checkout -p", "restore -p", "stash -p"])
def test_the_file_that_was_replaced_is_kept(edited: Repo, command: str, hunk: int) -> None:
    count = edited.git("diff", "--no-ext-diff").count(b"\n@@ ")
    said = by_hunks(edited, command, hunk % count)
    assert KEPT in said
    assert (edited.path / NAME).read_bytes() != model(2.0)
    assert restored(edited, said) == model(2.0)


def test_recover_names_it_later(edited: Repo) -> None:
    by_hunks(edited, "checkout -p", 0)
    done = edited.wtxtgit("recover", NAME, ok=(0, 1))
    assert restored(edited, done.stderr.decode()) == model(2.0)
    told = json.loads(edited.wtxtgit("recover", "--json", NAME, ok=(0, 1)).stdout)
    (version,) = told["versions"]
    assert 0 < version["same"] <= version["hashes"]
    assert (edited.path / NAME).read_bytes()[:4] == b"WTXT"


def test_what_was_dropped_of_a_stash_is_named(edited: Repo) -> None:
    edited.git("stash", "push", "-q")
    edited.git("stash", "drop", "-q")
    text = edited.blob(NAME)
    # What is in the work tree was damaged otherwise, and has little in common with that.
    edited.write(NAME, text.replace(b"\nroot ", b"\nrooT ", 1))
    done = edited.wtxtgit("recover", NAME, ok=(0, 1))
    assert restored(edited, done.stderr.decode()) == model(2.0)


def test_what_is_in_the_stash_is_named(edited: Repo) -> None:
    edited.git("stash", "push", "-q")
    edited.write(NAME, edited.blob(NAME).replace(b"\nroot ", b"\nrooT ", 1))
    done = edited.wtxtgit("recover", NAME, ok=(0, 1))
    assert restored(edited, done.stderr.decode()) == model(2.0)


def test_a_damaged_object_hides_no_other(edited: Repo) -> None:
    by_hunks(edited, "checkout -p", 0)
    for number in range(4):
        oid = edited.git("hash-object", "-w", "--stdin", stdin=b"WTXT 1\n%d" % number).decode()
        broken = edited.path / ".git/objects" / oid[:2] / oid[2:].strip()
        broken.chmod(0o644)
        broken.write_bytes(b"x\x9c" if number else b"")
    done = edited.wtxtgit("recover", NAME, ok=(0, 1))
    assert restored(edited, done.stderr.decode()) == model(2.0)


def test_adding_by_hunks_leaves_the_file(edited: Repo) -> None:
    """The index has a damaged text then, which the hook and `check` refuse."""
    by_hunks(edited, "add -p", 0)
    assert (edited.path / NAME).read_bytes() == model(2.0)
    assert b"corrupt-text" in edited.wtxtgit("check", "--staged", ok=(1,)).stdout
    edited.add(NAME)
    edited.wtxtgit("check", "--staged", ok=(0, 1))
    assert (edited.path / NAME).read_bytes() == model(2.0)


def test_many_files_of_one_patch(edited: Repo, tmp_path: Path) -> None:
    """`git stash -p` applies one patch to all files, and smudges the first after the last."""
    names = ["a.safetensors", "b.safetensors"]
    for number, name in enumerate(names):
        edited.write(name, model(3.0 + number))
    edited.add(*names)
    edited.commit()
    for number, name in enumerate(names):
        edited.write(name, model(5.0 + number))
    edited.git("add", NAME)
    edited.commit()
    patch = tmp_path / "patch"
    text = edited.git("diff", "--no-ext-diff", "-U0")
    patch.write_bytes(re.sub(rb"(?m)^@@.*\n(?:[+-]root .*\n)+", b"", text))
    done = edited.run("git", "apply", "-R", "--unidiff-zero", str(patch), ok=(0,))
    said = done.stderr.decode()
    assert said.count(KEPT) == len(names)
    found = []
    for command in HINT.findall(said):
        assert typed(edited, command.replace("OUT", f"OUT{len(found)}"))[0] == 0
        found.append((edited.path / HERE / f"OUT{len(found)}").read_bytes())
    assert set(found) == {model(5.0), model(6.0)}
