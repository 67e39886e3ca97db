"""Checkouts that fetch what they lack: real git, which lets the filter wait, and its remote."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.e2e.test_detached import ATTRIBUTES, SMALL, drop_store
from tests.e2e.test_payload_remotes import model
from tests.kit import LAUNCHER, Repo
from tests.kit.templates import Templates
from wtxtgit.filter.process import NOT_SENT
from wtxtgit.git import run

pytestmark = pytest.mark.slow

FILES = {"a.safetensors": 1, "b.safetensors": 2, "sub/c.safetensors": 3}
PARALLEL = ("-c", "checkout.workers=4", "-c", "checkout.thresholdForParallelism=0")


@pytest.fixture
def own(templates: Templates, tmp_path: Path, driver: None) -> Repo:
    """A repository with detached and attached files of two commits, and its remote."""
    folder = templates.copy("delayed", _make, tmp_path / "world")
    made = Repo(folder / "repo")
    made.git("remote", "set-url", "origin", (folder / "bare.git").as_uri())
    return made


@pytest.fixture
def bare(own: Repo) -> Path:
    """The remote."""
    return own.path.with_name("bare.git")


def _make(folder: Path) -> None:
    run.git("init", "-q", "--bare", "--initial-branch=main", str(folder / "bare.git"))
    run.git("init", "-q", str(folder / "repo"))
    repo = Repo(folder / "repo")
    repo.git("remote", "add", "origin", (folder / "bare.git").as_uri())
    repo.write(".gitattributes", ATTRIBUTES)
    for name, seed in FILES.items():
        repo.write(name, model(seed))
    repo.write("small.safetensors", SMALL)
    repo.write("readme", "words")
    repo.add()
    repo.commit()
    repo.wtxtgit("push")
    repo.write("a.safetensors", model(4))
    repo.git("commit", "-qam", "two")
    repo.wtxtgit("push")
    repo.git("push", "-q", "origin", "main")


SKIP = {"WTXTGIT_SKIP_SMUDGE": "1"}


def cloned(own: Repo, *arguments: str, env: dict[str, str] | None = None) -> tuple[Repo, bytes]:
    """A clone of the remote, and what git said."""
    folder = own.path.parent / "clone"
    url = own.git("remote", "get-url", "origin").decode().strip()
    done = own.run(run.executable(), "clone", "-q", *arguments, url, str(folder), env=env)
    return Repo(folder), done.stderr


def are_files(repo: Repo, seeds: dict[str, int]) -> bool:
    return all(repo.path.joinpath(name).read_bytes() == model(n) for name, n in seeds.items())


def are_texts(repo: Repo, names: Iterable[str]) -> bool:
    heads = [repo.path.joinpath(name).read_bytes()[:14] for name in names]
    return set(heads) == {b"WTXT-DETACHED "}


class Trace:
    """The git commands that were started since, by the filter as well."""

    def __init__(self, repo: Repo) -> None:
        self._file = repo.path.parent / "trace"
        self._file.unlink(missing_ok=True)
        self.env = {"GIT_TRACE": os.fspath(self._file)}

    def count(self, command: str) -> int:
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        return sum(f" {command} --quiet" in line and "built-in" in line for line in lines)


@pytest.mark.parametrize("options", [(), PARALLEL], ids=["one", "parallel"])
def test_a_clone_gets_all_files_by_one_fetch(own: Repo, options: tuple[str, ...]) -> None:
    trace = Trace(own)
    clone, said = cloned(own, *options, env=trace.env)
    assert said == b""
    assert are_files(clone, {**FILES, "a.safetensors": 4})
    assert (clone.path / "small.safetensors").read_bytes() == SMALL
    assert clone.status() == b""
    # Which packs there are, what is in them, and they.
    assert (trace.count("ls-remote"), trace.count("fetch")) == (1, 2)


def test_a_switch_fetches_what_is_not_at_hand(own: Repo) -> None:
    clone, _ = cloned(own)
    clone.settle(*FILES)
    drop_store(clone)
    trace = Trace(own)
    clone.git("checkout", "-q", "HEAD~1", env=trace.env)
    # Two other files of the first commit are in the same pack. So before it or parts of it, which
    # parts it has.
    assert (are_files(clone, FILES), trace.count("fetch")) == (True, 3)
    clone.git("checkout", "-q", "main", env=trace.env)
    assert are_files(clone, {**FILES, "a.safetensors": 4})
    assert clone.status() == b""


def test_where_nothing_comes_texts_stand_and_one_warning_says_why(own: Repo, bare: Path) -> None:
    away = bare.rename(bare.with_name("away.git"))
    clone = Repo(own.path.parent / "clone")
    run.git("clone", "-q", "-n", str(away), str(clone.path))
    clone.git("remote", "set-url", "origin", bare.as_uri())
    done = clone.run(run.executable(), "checkout", "-q", "main")
    (warning, hint) = done.stderr.splitlines()
    assert b"does not appear to be a git repository" in warning
    assert b"2 more files" in warning
    assert b"wtxtgit fetch" in hint
    assert are_texts(clone, FILES)
    assert (clone.path / "small.safetensors").read_bytes() == SMALL
    assert clone.status() == b""
    # The same of our own checkout; and once the remote is there again.
    again = clone.run(*LAUNCHER.arguments, "checkout")
    assert again.stderr.splitlines() == [warning, hint]
    away.rename(bare)
    assert clone.run(*LAUNCHER.arguments, "checkout").stderr == b""
    assert are_files(clone, {**FILES, "a.safetensors": 4})
    assert clone.status() == b""


def test_what_the_remote_lacks_is_told_and_holds_nothing_up(own: Repo, bare: Path) -> None:
    own.write("b.safetensors", model(8))
    own.git("commit", "-qam", "three")
    own.git("push", "-q", "origin", "main")
    clone, said = cloned(own)
    assert b"1 chunk not at git+origin): b.safetensors" in said
    # Another fetch would not bring it either.
    remedy = f"wtxtgit: hint: {NOT_SENT}".encode()
    assert (remedy in said.splitlines(), b"wtxtgit fetch" in said) == (True, False)
    for words in (["fetch"], ["checkout"]):
        lines = clone.run(*LAUNCHER.arguments, *words, ok=(0, 5)).stderr.splitlines()
        hints = {line for line in lines if line.startswith(b"wtxtgit: hint: ")}
        assert hints == {remedy}, (words, lines)
    listed = clone.run(*LAUNCHER.arguments, "doctor", ok=(0, 1)).stdout
    assert b"detached texts without their data: b.safetensors" in listed
    assert b"the work tree holds binaries" not in listed
    review = clone.run(*LAUNCHER.arguments, "review", "HEAD~1..HEAD", ok=(0, 1)).stdout.decode()
    ends = [clone.git("rev-parse", end).decode().strip()[:12] for end in ("HEAD~1", "HEAD")]
    assert f"wtxtgit fetch {' '.join(ends)} fetches it" in review
    assert are_texts(clone, ["b.safetensors"])
    assert are_files(clone, {"a.safetensors": 4, "sub/c.safetensors": 3})
    assert clone.status() == b""


def test_nothing_comes_where_the_user_has_not_chosen_the_remote(own: Repo) -> None:
    clone, _ = cloned(own, env=SKIP)
    # As a pull request may have it.
    clone.write(".wtxt/store", "[store]\n\turl = s3://somebody/store\n")
    trace = Trace(own)

    def checked_out(*config: str) -> bytes:
        for name in FILES:
            (clone.path / name).unlink(missing_ok=True)
        done = clone.run(run.executable(), *config, "checkout", "--", ".", env=trace.env)
        assert are_texts(clone, FILES)
        return done.stderr

    assert b"wtxtgit fetch" in checked_out()
    (clone.path / ".wtxt/store").unlink()
    assert b"wtxtgit fetch" in checked_out("-c", "wtxtgit.fetch=false")
    assert (trace.count("ls-remote"), trace.count("fetch")) == (0, 0)
    clone.wtxtgit("checkout", env=trace.env)
    assert are_files(clone, {**FILES, "a.safetensors": 4})
    assert (trace.count("ls-remote"), trace.count("fetch")) == (1, 2)


def test_an_interrupted_checkout_goes_on(own: Repo) -> None:
    clone, _ = cloned(own, env=SKIP)
    meeting = own.path.parent / "meeting"
    os.mkfifo(meeting)
    stuck = own.path.parent / "stuck"
    stuck.write_text(f"#!/bin/sh\necho > '{meeting}'\nexec cat '{meeting}'\n")
    stuck.chmod(0o755)
    clone.git("config", "remote.origin.uploadpack", str(stuck))
    for name in FILES:
        (clone.path / name).unlink()
    checkout = subprocess.Popen(
        [run.executable(), "checkout", "--", "."], cwd=clone.path, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    # The remote was asked.
    meeting.read_bytes()
    os.killpg(checkout.pid, signal.SIGINT)
    checkout.communicate()
    assert checkout.returncode != 0
    clone.git("config", "--unset", "remote.origin.uploadpack")
    clone.git("checkout", "--", ".")
    assert are_files(clone, {**FILES, "a.safetensors": 4})
    assert clone.status() == b""
    left = [path for path in clone.path.rglob("*") if path.name.startswith(".wtxtgit-")]
    assert not left


@pytest.mark.parametrize("how", ["--depth=1", "--filter=blob:none", "--bare"])
def test_clones_of_all_kinds(own: Repo, bare: Path, how: str) -> None:
    run.git("config", "uploadpack.allowFilter", "true", cwd=bare)
    run.git("config", "uploadpack.allowAnySHA1InWant", "true", cwd=bare)
    clone, said = cloned(own, how)
    if how == "--bare":
        clone.git("worktree", "add", "-q", str(own.path.parent / "tree"), "main")
        clone = Repo(own.path.parent / "tree")
    assert said == b""
    assert are_files(clone, {**FILES, "a.safetensors": 4})
    assert clone.status() == b""


def test_a_rebase_fetches_for_each_commit(own: Repo) -> None:
    own.git("checkout", "-q", "-b", "side", "HEAD~1")
    own.write("b.safetensors", model(7))
    own.git("commit", "-qam", "three")
    own.wtxtgit("push")
    own.git("push", "-q", "origin", "side")
    clone, _ = cloned(own)
    drop_store(clone)
    shutil.rmtree(own.path.parent / "aside")
    clone.git("rebase", "-q", "main", "origin/side")
    assert are_files(clone, {**FILES, "a.safetensors": 4, "b.safetensors": 7})
    assert clone.status() == b""
