"""`PATH@gen:12`, `PATH@latest`, `PATH@signed-by:NAME` where commands and Python take a revision."""

from __future__ import annotations

from pathlib import Path

import pytest

import wtxtgit
from tests.e2e.sealed import LEDGER, MODEL, Sealed, checkpoint, text

pytestmark = pytest.mark.slow


@pytest.fixture
def generations(chain: Sealed) -> Sealed:
    """Three generations, the second by bob; the file of the work tree is none of them."""
    chain.add_signer("bob")
    chain.change_signers("alice")
    chain.generation(2.0, key="bob")
    chain.generation(3.0)
    (chain.path / MODEL).write_bytes(checkpoint(9.0))
    return chain


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (f"{MODEL}@gen:1", 1.0),
        (f"{MODEL}@gen:2", 2.0),
        (f"{MODEL}@latest", 3.0),
        (f"HEAD~1:{MODEL}@latest", 2.0),
        (f"{MODEL}@signed-by:bob@example.com", 2.0),
        (f"{MODEL}@signed-by:alice@example.com", 3.0),
    ],
)
def test_a_name_means_what_its_record_seals(
    generations: Sealed, name: str, value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.safetensors"
    generations.call("restore", name, "-o", str(out))
    assert out.read_bytes() == checkpoint(value)
    generations.call("emit", name, "-o", str(tmp_path / "out.wtxt"))
    assert (tmp_path / "out.wtxt").read_bytes() == text(value)
    generations.call("verify", name)
    generations.call("diff", name, str(out))
    generations.call("convert", name, str(tmp_path / "out.npz"))
    generations.call("inspect", name)
    monkeypatch.chdir(generations.path)
    assert wtxtgit.load(name)["first"][0] == value
    with wtxtgit.open(name) as opened:
        assert opened["first"][0] == value


def test_a_file_of_that_name_wins(generations: Sealed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(generations.path)
    Path(f"{MODEL}@latest").write_bytes(checkpoint(7.0))
    assert wtxtgit.load(f"{MODEL}@latest")["first"][0] == 7.0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{MODEL}@gen:9", ": no generation"),
        (f"{MODEL}@signed-by:mallory@example.com", ": no generation"),
        ("nothing@latest", "no ledger in HEAD"),
        (f"nowhere:{MODEL}@latest", "names nothing"),
    ],
)
def test_what_there_is_not(generations: Sealed, name: str, message: str) -> None:
    assert message in generations.call("verify", name, ok=(3, 5)).err


def test_a_name_below_the_top_level_is_as_gits(generations: Sealed) -> None:
    folder = generations.path / "sub"
    folder.mkdir()
    for name in (f"../{MODEL}@gen:2", f"HEAD:{MODEL}@gen:2", f"HEAD:../{MODEL}@gen:2"):
        done = generations.wtxtgit("verify", name, cwd=folder)
        assert done.returncode == 0


def test_a_commit_that_has_other_content_than_the_record_is_refused(generations: Sealed) -> None:
    """Whoever may commit puts a record of alice's beside a content of his own."""
    ledger = (generations.path / LEDGER).read_bytes()
    generations.git("checkout", "-q", "-f", "HEAD~1")
    (generations.path / LEDGER).write_bytes(ledger)
    (generations.path / MODEL).write_bytes(text(66.0))
    generations.git("add", "-A")
    generations.git("commit", "-qm", "a content that nobody sealed")
    for name in (f"{MODEL}@gen:3", f"{MODEL}@latest", f"{MODEL}@signed-by:alice@example.com"):
        said = generations.call("verify", name, ok=(1,))
        assert "does not have the content that generation 3 seals" in said.err
    generations.call("verify", f"{MODEL}@gen:2")
