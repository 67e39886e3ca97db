"""Very many tensors in one file: everything is done, and work grows with their number alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.kit.changes import PRODUCT
from tests.scale.many import ENDINGS, MANY, assert_linear, calls, make


@pytest.fixture(autouse=True)
def _in_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are counted in one thread."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)


def text_of(wtxtgit: Command, file: Path) -> Path:
    text = file.with_name(file.name + ".wtxt")
    done = wtxtgit("emit", file, "-o", text)
    assert done.code == 0, done.err
    return text


def there_and_back(wtxtgit: Command, file: Path) -> None:
    """Emit, verify and restore a file."""
    text = text_of(wtxtgit, file)
    back = file.with_name(file.name + ".back")
    for arguments in (("verify", file), ("verify", text), ("restore", text, "-o", back)):
        done = wtxtgit(*arguments)
        assert done.code == 0, done.err
    assert back.read_bytes() == file.read_bytes()
    text.unlink()
    back.unlink()


def looked_at(wtxtgit: Command, file: Path, other: Path, count: int) -> None:
    """List the tensors of a file, and compare them with those of another."""
    listed = json.loads(wtxtgit("inspect", "--json", file).out)
    assert len(listed["tensors"]) == count
    compared = json.loads(wtxtgit("diff", "--json", file, other).out)
    assert [one["status"] for one in compared["tensors"]] == ["changed"] * count


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(ending, marks=() if ending == "safetensors" else pytest.mark.slow)
        for ending in ENDINGS
    ],
)
def test_work_grows_with_the_number_of_tensors(wtxtgit: Command, ending: str) -> None:
    there_and_back(wtxtgit, make(wtxtgit, ending, 3))
    files = [make(wtxtgit, ending, count) for count in (50, 100, 200)]
    counts = [calls(lambda file=file: there_and_back(wtxtgit, file)) for file in files]
    assert_linear((counts[0], counts[1], counts[2]))


@pytest.mark.slow
@pytest.mark.sampled(PRODUCT)
@pytest.mark.parametrize("ending", ENDINGS)
def test_looking_grows_with_the_number_of_tensors(wtxtgit: Command, ending: str) -> None:
    sizes = (3, 100, 200, 400)
    pairs = [(make(wtxtgit, ending, n, 0), make(wtxtgit, ending, n, 1), n) for n in sizes]
    counts = [calls(lambda pair=pair: looked_at(wtxtgit, *pair)) for pair in pairs]
    assert_linear((counts[1], counts[2], counts[3]))


@pytest.mark.slow
@pytest.mark.sampled(PRODUCT)
@pytest.mark.parametrize("ending", ENDINGS)
def test_very_many_tensors(wtxtgit: Command, ending: str) -> None:
    # In other formats work grows in the same way, which the counts above tell.
    count = MANY * (10_000 if ending == "safetensors" else 1_000)
    there_and_back(wtxtgit, make(wtxtgit, ending, count))


@pytest.mark.slow
@pytest.mark.sampled(PRODUCT)
def test_very_many_tensors_are_listed_and_compared(wtxtgit: Command) -> None:
    count = 10_000 * MANY
    before = make(wtxtgit, "safetensors", count, 0)
    after = make(wtxtgit, "safetensors", count, 1)
    looked_at(wtxtgit, before, after, count)
