"""Hints with paths work in the folder where they are told: each is run there, as it is printed."""

from __future__ import annotations

import re

import pytest

from tests.kit import Repo, text_of
from tests.review.repos import file, weights

pytestmark = pytest.mark.slow

FOLDER = "models of ours"
NAMES = ("it's.safetensors", "b.safetensors")


def hinted(repo: Repo, said: bytes) -> None:
    """Run what follows `git add --renormalize`, in the folder."""
    (line,) = [one for one in said.decode().splitlines() if "--renormalize" in one]
    command = re.search(r"git add --renormalize -- .*?(?= stages |, then commit)", line)
    assert command, line
    repo.run("sh", "-c", command[0], cwd=FOLDER)


@pytest.fixture
def binaries(repo: Repo, driver: None) -> Repo:
    """Two binaries in a folder, committed before they were tracked, and one beside it."""
    for name in (*(f"{FOLDER}/{one}" for one in NAMES), "c.safetensors"):
        repo.write(name, file(weights(layers=1)))
    repo.add()
    repo.commit()
    return repo


def stored(repo: Repo) -> set[bool]:
    text = text_of(file(weights(layers=1)))
    return {repo.blob(f"{FOLDER}/{name}") == text for name in NAMES}


def test_track_and_untrack_in_a_folder(binaries: Repo) -> None:
    said = binaries.wtxtgit("track", "*.safetensors", cwd=FOLDER).stderr
    binaries.add(f"{FOLDER}/.gitattributes")
    hinted(binaries, said)
    assert stored(binaries) == {True}
    binaries.commit()
    said = binaries.wtxtgit("untrack", "*.safetensors", cwd=FOLDER).stderr
    binaries.git("add", "-A", "--", f"{FOLDER}/.gitattributes")
    hinted(binaries, said)
    assert stored(binaries) == {False}


def test_doctor_in_a_folder(binaries: Repo) -> None:
    binaries.track("*.safetensors")
    binaries.commit()
    said = binaries.wtxtgit("doctor", cwd=FOLDER, ok=(1,)).stdout
    assert b"../c.safetensors" in said
    hinted(binaries, said)
    assert stored(binaries) == {True}
    done = binaries.wtxtgit("doctor", cwd=FOLDER, ok=(0, 1)).stdout
    assert b"--renormalize" not in done
