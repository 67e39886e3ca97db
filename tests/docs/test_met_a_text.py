"""docs/met-a-text.md: what loaders say of a text, and that its commands end it."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file

from tests.docs.pages import blocks, prose, tables
from tests.kit import LAUNCHER, Repo, safetensors, text_of
from wtxtgit.setup.track import ABOUT

PAGE, SHOWN = "docs/met-a-text.md", "What you see"
NAME = "model.safetensors"
CONTENT = safetensors(*map(float, range(40_000)))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / NAME
    path.write_bytes(text_of(CONTENT))
    return path


def said_by(reader: str) -> str:
    (row,) = (row for row in tables(PAGE, SHOWN)[-1] if row[0].startswith(f"`{reader}`"))
    return row[1]


def test_loaders_say_what_the_page_says(text: Path) -> None:
    with pytest.raises(SafetensorError, match="header too large") as raised:
        load_file(text)
    assert f"`{raised.value}`" in said_by("safetensors")
    with pytest.raises(pickle.UnpicklingError) as unpickling, text.open("rb") as file:
        pickle.load(file)  # noqa: S301 - it is of this test
    for reader in ("pickle.load", "torch.load"):
        assert str(unpickling.value).removesuffix(".") in said_by(reader)
    with pytest.raises(ValueError, match="pickled"):
        np.load(text)


@pytest.mark.torch
def test_torch_says_what_the_page_says(text: Path) -> None:
    import torch

    text = text.rename(text.with_name("model.pt"))
    for is_limited in (True, False):
        with pytest.raises(pickle.UnpicklingError) as raised:
            torch.load(text, weights_only=is_limited)
        spans = said_by("torch.load").split("`")[1::2]
        assert any(span in str(raised.value) for span in spans)


@pytest.mark.parametrize("form", [(), ("--detached",)])
def test_a_clone_says_what_to_do_and_that_does_it(
    repo: Repo, home: Path, form: tuple[str, ...]
) -> None:
    repo.wtxtgit("install")
    repo.wtxtgit("track", *form, "*.safetensors")
    repo.write(NAME, CONTENT)
    repo.add()
    repo.commit()
    bare = repo.clone("bare.git", "--bare")
    repo.git("remote", "add", "origin", str(bare.path))
    repo.wtxtgit("push")
    # Another machine.
    repo.wtxtgit("uninstall")
    clone = bare.clone("clone")
    assert (clone.path / NAME).read_bytes().startswith(b"WTXT")
    told = (clone.path / ".gitattributes").read_bytes().splitlines()[0]
    assert told == ABOUT
    page = next(word for word in told.decode().split() if word.endswith(".md"))
    assert page == PAGE
    printed = "".join(block.text for block in blocks(PAGE, "console", "Get the files"))
    commands = printed.splitlines()
    assert "$ pip install wtxtgit" in commands
    for line in commands:
        if line.startswith("$ wtxtgit "):
            assert clone.wtxtgit(*line.split()[2:]).returncode == 0
    assert (clone.path / NAME).read_bytes() == CONTENT
    assert clone.status() == b""


def test_one_text_is_restored_by_itself(text: Path) -> None:
    (block,) = blocks(PAGE, "console", "A single text, without a repository")
    shutil.move(text, text.with_name("model.wtxt"))
    words = block.text.removeprefix("$ wtxtgit ").split()
    assert Repo(text.parent).run(*LAUNCHER.arguments, *words).returncode == 0
    assert text.read_bytes() == CONTENT


def test_pointers_are_told_from_texts() -> None:
    assert "git lfs pull" in prose(PAGE, SHOWN)
