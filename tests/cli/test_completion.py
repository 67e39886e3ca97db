"""What shells complete, asked as they ask."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit import LAUNCHER, Repo, safetensors

HOSTILE = "$(touch${IFS}owned)"


def completed(repo: Repo, *words: str) -> list[str]:
    """What bash gets for the last of the words."""
    env = {
        "_WTXTGIT_COMPLETE": "bash_complete",
        "COMP_LINE": " ".join(("wtxtgit", *words)),
    }
    done = repo.run(*LAUNCHER.arguments, env=env)
    assert done.stderr == b""
    return [line.partition(",")[2] for line in done.stdout.decode().splitlines() if line]


@pytest.fixture
def model(repo: Repo) -> Repo:
    repo.write("sub/a.safetensors", safetensors(1.0, name="layers.0.q"))
    repo.write("sub/b.safetensors", safetensors(1.0, name=HOSTILE))
    repo.write(f"sub/{HOSTILE}", "x")
    repo.git("add", "-f", ".")
    repo.commit()
    repo.git("branch", "topic")
    repo.git("branch", HOSTILE)
    return repo


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("ins",), ["install", "inspect"]),
        (("inspect", "--js"), ["--json"]),
        (("inspect", "HEAD:s"), ["HEAD:sub/"]),
        (("diff", "topic:sub/"), ["topic:sub/a.safetensors", "topic:sub/b.safetensors"]),
        (("inspect", "HEAD~0:s"), ["HEAD~0:sub/"]),
        (("verify", "nowhere:"), []),
        (("inspect", "sub/a.safetensors", "lay"), ["layers.0.q"]),
        (("inspect", "sub/b.safetensors", ""), []),
        (("inspect", "nothing", ""), []),
        (("log", "sub/a.safetensors", "to"), ["topic"]),
        (("review", "main..."), ["main...HEAD", "main...main", "main...topic"]),
        (("review", "main..t"), ["main..topic"]),
    ],
)
def test_a_word_is_completed(model: Repo, words: tuple[str, ...], wanted: list[str]) -> None:
    assert completed(model, *words) == wanted


def test_a_file_is_left_to_the_shell(model: Repo) -> None:
    assert completed(model, "convert", "sub/a") == ["sub/a"]


def test_keys_are_completed(model: Repo) -> None:
    model.wtxtgit("key", "new", "--name", "alice", "--no-passphrase")
    assert completed(model, "seal", "--key", "al") == ["alice", "al"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(repo: Repo, shell: str) -> None:
    script = repo.run(*LAUNCHER.arguments, env={"_WTXTGIT_COMPLETE": f"{shell}_source"}).stdout
    assert b"_WTXTGIT_COMPLETE" in script


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("inspect sub/a.safetensors lay", ["layers.0.q"]),
        # Bash takes this for two words, and puts in what stands behind the colon.
        ("diff topic:sub/a", ["sub/a.safetensors"]),
        ("seal --key=al", ["alice"]),
        # A branch, and a file.
        ("inspect to", ["topic", "tools"]),
        ("review main..to", ["main..topic"]),
    ],
)
def test_bash_completes_by_its_script(
    model: Repo, tmp_path: Path, typed: str, wanted: list[str]
) -> None:
    """By `complete -p` what bash would call, called as bash calls it."""
    model.wtxtgit("key", "new", "--name", "alice", "--no-passphrase")
    model.write("tools", "")
    program = tmp_path / "wtxtgit"
    program.write_text(f'#!/bin/sh\nexec {LAUNCHER.command()} "$@"\n')
    program.chmod(0o755)
    asked = """
        eval "$(_WTXTGIT_COMPLETE=bash_source wtxtgit)"
        [[ "$(complete -p wtxtgit)" =~ -F\\ ([_a-z]+) ]] || exit 1
        COMP_LINE="wtxtgit $1 and more" COMP_POINT=$((${#1} + 8))
        "${BASH_REMATCH[1]}" wtxtgit
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = model.run("bash", "-c", asked, "bash", typed, env={"PATH": path})
    assert done.stdout.decode().splitlines() == wanted, done.stderr


def test_outside_of_a_repository_nothing_fails(
    repo: Repo, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = Repo(tmp_path_factory.mktemp("elsewhere"))
    assert completed(elsewhere, "review", "") == ["HEAD"]
    assert completed(elsewhere, "diff", "HEAD:") == []
