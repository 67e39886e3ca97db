"""What is imported before a command can do its work: git starts some of them all the time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import Command

HEAVY = {
    "blake3",
    "click",
    "crc32c",
    "cryptography",
    "jinja2",
    "msgpack",
    "nacl",
    "numpy",
    "pygit2",
    "rich",
    "zstandard",
}
GREETING = (
    b"0016git-filter-client\n000eversion=2\n00000015capability=clean\n0016capability=smudge\n0000"
)


def imported(
    wtxtgit: Command, *arguments: str | Path, stdin: bytes = b"", code: int = 0
) -> set[str]:
    """Packages that a process imports to its end."""
    done = wtxtgit(
        *arguments,
        stdin=stdin,
        prefix=[sys.executable, "-X", "importtime", "-m", "wtxtgit"],
        stdout=subprocess.DEVNULL,
    )
    assert done.code == code, done.err
    names = [line.rpartition("|")[2].strip() for line in done.err.splitlines() if "|" in line]
    assert "wtxtgit.errors" in names
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize(
    ("argument", "stdin"),
    [("--help", b""), ("-h", b""), ("--version", b""), ("filter-process", GREETING)],
)
def test_nothing_heavy_is_imported(wtxtgit: Command, argument: str, stdin: bytes) -> None:
    assert imported(wtxtgit, argument, stdin=stdin) & HEAVY == set()


def test_help_of_a_command_needs_click_alone(wtxtgit: Command) -> None:
    for name in ("status", "hook", "verify", "audit", "seal"):
        assert imported(wtxtgit, name, "--help") & HEAVY == {"click"}


@pytest.mark.parametrize("words", ["hook pre-commit", "check --staged", "status", "ls-files"])
def test_where_no_checkpoint_is_click_is_the_most(wtxtgit: Command, words: str) -> None:
    subprocess.run(["git", "init", "-q", "."], check=True, **wtxtgit.options())
    (wtxtgit.folder / ".gitattributes").write_text("*.safetensors filter=wtxt -text\n")
    subprocess.run(["git", "add", "."], check=True, **wtxtgit.options())
    most = set() if words == "hook pre-commit" else {"click"}
    assert imported(wtxtgit, *words.split()) & HEAVY == most
