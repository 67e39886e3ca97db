"""Texts of several files, in a folder or at URLs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.cli.test_keys import ring, with_fd
from tests.data import FIXTURES

FOLD, AERO = FIXTURES / "fold" / "standard_a.fold", FIXTURES / "aero" / "single_a.aero"


@pytest.fixture
def folder(wtxtgit: Command) -> Path:
    """The command's folder, with two files and an empty folder."""
    for file in (FOLD, AERO):
        shutil.copy(file, wtxtgit.folder)
    (wtxtgit.folder / "out").mkdir()
    return wtxtgit.folder


def alone(wtxtgit: Command, name: str) -> bytes:
    done = wtxtgit("emit", name)
    assert done.code == 0
    return done.out


@pytest.mark.parametrize("out", ["out", "out/"])
def test_each_gets_a_text_of_its_name(wtxtgit: Command, folder: Path, out: str) -> None:
    done = wtxtgit("emit", FOLD.name, f"./{AERO.name}", "-o", out)
    assert (done.code, done.out, done.err) == (0, b"", "")
    assert {file.name: file.read_bytes() for file in (folder / "out").iterdir()} == {
        f"{name}.wtxt": alone(wtxtgit, name) for name in (FOLD.name, AERO.name)
    }


def test_a_single_one_in_a_folder(wtxtgit: Command, folder: Path) -> None:
    assert wtxtgit("emit", FOLD.name, "-o", "out/").code == 0
    assert (folder / "out" / f"{FOLD.name}.wtxt").read_bytes() == alone(wtxtgit, FOLD.name)
    done = wtxtgit("emit", FOLD.name, "-o", "out")
    assert (done.code, done.complaint()) == (5, "out: is a directory")


def test_to_and_from_urls(wtxtgit: Command, folder: Path) -> None:
    out = f"file://{folder}/out/"
    assert wtxtgit("emit", f"file://{folder}/{FOLD.name}", AERO.name, "-o", out).code == 0
    for name in (FOLD.name, AERO.name):
        assert (folder / "out" / f"{name}.wtxt").read_bytes() == alone(wtxtgit, name)
    url = f"file://{folder}/{FOLD.name}"
    assert alone(wtxtgit, url) == alone(wtxtgit, FOLD.name)
    done = wtxtgit("verify", url)
    assert (done.code, done.out.split()[:2]) == (0, [b"ok", url.encode()])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((FOLD.name, AERO.name), "several FILES need -o FOLDER"),
        ((FOLD.name, AERO.name, "-o", "-"), "several FILES need -o FOLDER"),
        (
            (FOLD.name, f"./{FOLD.name}", "-o", "out"),
            f"2 FILES would be written to out/{FOLD.name}.wtxt",
        ),
        (
            (FOLD.name, AERO.name, "-o", "out", "--prev", "0" * 64),
            "--prev takes a single FILE",
        ),
        (
            (FOLD.name, "--pending", "-o", "file:///out"),
            "--pending needs -o PATH: the WSUM is written beside the text",
        ),
    ],
)
def test_what_is_not_meant(
    wtxtgit: Command, folder: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = wtxtgit("emit", *arguments)
    assert (done.code, done.complaint()) == (2, said)
    assert list((folder / "out").iterdir()) == []


def test_texts_before_one_that_fails_stay(wtxtgit: Command, folder: Path) -> None:
    done = wtxtgit("emit", FOLD.name, "gone", AERO.name, "-o", "out")
    assert (done.code, done.complaint()) == (3, "gone: no such file or directory")
    assert [file.name for file in (folder / "out").iterdir()] == [f"{FOLD.name}.wtxt"]


@pytest.mark.slow
def test_a_passphrase_is_asked_for_once(wtxtgit: Command, folder: Path) -> None:
    made = with_fd(wtxtgit, b"words\n", "key", "new", "--name", "alice")
    assert made.code == 0, made.err
    key = next(file for file in ring(wtxtgit).iterdir() if file.suffix != ".pub")
    about = ("--gen", "1", "--ts", "2026-01-31T12:00:00Z", "--sign", str(key))
    done = with_fd(wtxtgit, b"words\n", "emit", FOLD.name, AERO.name, *about, "-o", "out")
    assert (done.code, done.err) == (0, "")
    for file in (folder / "out").iterdir():
        done = wtxtgit("verify", file, "--signers", key.with_suffix(".pub"), "--require-signed")
        assert done.code == 0
