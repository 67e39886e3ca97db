"""Patterns that are taken back, files that are renamed out of one, and a machine that does without:
ordinary files stay, and `git status` is clean."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path

import pytest

from tests.kit import Repo, safetensors

pytestmark = pytest.mark.slow

A, B = "a.safetensors", "sub/b c.safetensors"
VALUES = tuple(map(float, range(40_000)))
CONTENTS = {A: safetensors(1.0, *VALUES), B: safetensors(2.0, *VALUES)}
forms = pytest.mark.parametrize(
    "made", [(), ("--detached",)], ids=["whole", "detached"], indirect=True
)


@pytest.fixture
def made(repo: Repo, home: Path, request: pytest.FixtureRequest) -> Repo:
    repo.wtxtgit("install")
    form = getattr(request, "param", ())
    repo.wtxtgit("track", *form, "*.safetensors")
    for name, content in CONTENTS.items():
        file = repo.write(name, content)
        # Older than the index: git then goes by stat fields alone.
        os.utime(file, (1_700_000_000, 1_700_000_000))
    repo.add()
    repo.commit("texts")
    return repo


def hint_of(stderr: bytes) -> list[str]:
    """The commands of a hint, which `then` divides."""
    (line,) = [one for one in stderr.decode().splitlines() if one.startswith("wtxtgit: hint: ")]
    commands = line.removeprefix("wtxtgit: hint: ").split(", then ")
    return [command for command in commands if command != "commit"]


def follow(repo: Repo, commands: list[str]) -> None:
    for command in commands:
        program, *words = shlex.split(command)
        assert program in ("git", "wtxtgit"), command
        repo.git(*words) if program == "git" else repo.wtxtgit(*words)


def assert_plain(repo: Repo) -> None:
    """Git has the files themselves, as the work tree has them, and nothing has changed."""
    assert repo.status() == b""
    for name, content in CONTENTS.items():
        assert repo.blob(name, "HEAD") == (repo.path / name).read_bytes() == content
    other = repo.clone("other")
    assert (other.path / B).read_bytes() == CONTENTS[B]


def finding(repo: Repo) -> dict[str, str]:
    checks = json.loads(repo.wtxtgit("doctor", "--json", ok=(0, 1)).stdout)["checks"]
    (one,) = (check for check in checks if check["name"] == "unfiltered")
    return one


@forms
def test_an_untracked_pattern_leaves_plain_files(made: Repo) -> None:
    follow(made, hint_of(made.wtxtgit("untrack", "*.safetensors").stderr))
    made.commit("plain")
    assert_plain(made)
    assert finding(made)["level"] == "ok"


def test_another_work_tree_stays_as_it_is(made: Repo) -> None:
    other = Repo(made.path.parent / "linked")
    made.git("worktree", "add", "-q", "-b", "other", str(other.path))
    follow(made, hint_of(made.wtxtgit("untrack", "*.safetensors").stderr))
    made.commit("plain")
    assert other.status() == b""
    other.git("merge", "-q", "main")
    assert other.status() == b""
    for name, content in CONTENTS.items():
        assert (other.path / name).read_bytes() == content


@pytest.mark.parametrize("lacks", ["sparse", "data"])
def test_what_is_not_there_keeps_its_pattern(made: Repo, lacks: str) -> None:
    if lacks == "sparse":
        made.git("sparse-checkout", "set", "--no-cone", "/*", "!/sub/")
    else:
        made.wtxtgit("track", "--detached", "*.safetensors")
        made.git("add", "--renormalize", ".")
        made.commit("detached")
        shutil.rmtree(made.path / "sub")
        shutil.move(made.path / ".git/wtxt/store", made.path.parent / "store")
        made.git("checkout", "--", ".")
    before = (made.path / ".gitattributes").read_bytes()
    refused = made.wtxtgit("untrack", "*.safetensors", ok=(1,))
    assert B in refused.stderr.decode()
    assert (made.path / ".gitattributes").read_bytes() == before
    if lacks == "data":
        shutil.move(made.path.parent / "store", made.path / ".git/wtxt/store")
    follow(made, hint_of(refused.stderr))
    follow(made, hint_of(made.wtxtgit("untrack", "*.safetensors").stderr))
    made.commit("plain")
    assert_plain(made)


@forms
def test_uninstall_leaves_files_that_git_takes_for_unchanged(made: Repo) -> None:
    other = Repo(made.path.parent / "linked")
    made.git("worktree", "add", "-q", "-b", "other", str(other.path))
    said = made.wtxtgit("uninstall")
    for repo in (made, other):
        assert (repo.path / A).read_bytes() == CONTENTS[A]
    assert made.status() == b""
    # What it says makes plain files of them, without the filter.
    (command,) = hint_of(said.stderr)
    untracked = made.wtxtgit(*shlex.split(command.partition(", and follow")[0])[1:])
    follow(made, hint_of(untracked.stderr))
    made.commit("plain")
    assert_plain(made)
    assert b"files are still tracked here" not in made.wtxtgit("uninstall").stderr


@pytest.mark.parametrize("way", ["track", "plain"])
def test_a_file_that_was_renamed_out_of_its_pattern_is_told(made: Repo, way: str) -> None:
    made.wtxtgit("install", "--hooks")
    made.git("mv", A, "a b.bin")
    said = made.run("git", "commit", "-m", "renamed").stderr.decode()
    assert "a b.bin: unfiltered-text" in said
    told = finding(made)
    assert told["level"] == "warn"
    # The hook has said it of the commit that did it.
    again = made.run("git", "commit", "--allow-empty", "-m", "next").stderr.decode()
    assert "unfiltered-text" not in again
    track, _, plain = told["fix"].removesuffix("; then commit").partition(", or ")
    follow(made, [track] if way == "track" else [plain.partition(" to store")[0]])
    made.add()
    made.commit("mended")
    assert finding(made)["level"] == "ok"
    assert made.status() == b""
    assert (made.path / "a b.bin").read_bytes() == CONTENTS[A]
    assert made.clone("other").path.joinpath("a b.bin").read_bytes() == CONTENTS[A]


@forms
def test_uninstall_tells_of_texts_without_a_pattern(made: Repo) -> None:
    """Git takes such files for unchanged, but a clone would have their texts."""
    made.wtxtgit("untrack", "*.safetensors")
    made.git("add", "-A", "--", ".gitattributes")
    made.commit("hint not followed")
    said = made.wtxtgit("uninstall").stderr
    assert f"a checkout writes it: {A} '{B}'\n" in said.decode()
    follow(made, hint_of(said))
    made.commit("plain")
    assert_plain(made)
    assert made.wtxtgit("uninstall").stderr == b""


def test_a_pattern_that_was_taken_back_alone_is_told_by_the_hook(made: Repo) -> None:
    made.wtxtgit("install", "--hooks")
    made.wtxtgit("untrack", "*.safetensors")
    made.git("add", "-A", "--", ".gitattributes")
    said = made.run("git", "commit", "-m", "untracked").stderr.decode()
    assert said.count("unfiltered-text") == len(CONTENTS)
