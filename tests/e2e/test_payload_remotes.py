"""Detached texts of more than one person: git carries texts, a remote the data."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.cluster.stores import HTTP
from tests.e2e.test_detached import ATTRIBUTES, NAME
from tests.kit import LAUNCHER, Repo
from tests.kit.starts import WTXTGIT
from tests.remotes import servers
from wtxtgit.errors import UsageError
from wtxtgit.git import run
from wtxtgit.remotes.payload import store_url
from wtxtgit.remotes.payload.remote import push_commits

ROWS = 100


def model(seed: int = 0) -> bytes:
    """256 KiB of weights; of another seed one row in a hundred is another."""

    values = np.random.default_rng(1).standard_normal((ROWS, 656), dtype=np.float32)
    if seed:
        values[40] = np.random.default_rng(seed).standard_normal(656, dtype=np.float32)
    about = {"dtype": "F32", "shape": [ROWS, 656], "data_offsets": [0, values.nbytes]}
    header = json.dumps({"w": about}).encode()
    return struct.pack("<Q", len(header)) + header + values.tobytes()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A server of the repositories in the folder; gives its URL."""
    with servers.git_backend(tmp_path) as host:
        yield f"{HTTP}{host}"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    folder = tmp_path / "bare.git"
    run.git("init", "-q", "--bare", "--initial-branch=main", str(folder))
    return folder


@pytest.fixture
def own(repo: Repo, driver: None, bare: Path) -> Repo:
    """A repository with a committed checkpoint, its hooks, and a remote that has nothing yet."""
    repo.git("symbolic-ref", "HEAD", "refs/heads/main")
    repo.git("remote", "add", "origin", bare.as_uri())
    repo.write(".gitattributes", ATTRIBUTES)
    repo.write(NAME, model())
    repo.add()
    repo.commit()
    hook = repo.path / ".git/hooks/pre-push"
    hook.write_text(f'#!/bin/sh\nexec {WTXTGIT} hook pre-push "$@"\n')
    hook.chmod(0o755)
    return repo


def cloned(bare: Path | str, name: str, folder: Path) -> Repo:
    """A clone to which no data come by themselves."""
    run.git("clone", "-q", "-c", "wtxtgit.fetch=false", str(bare), str(folder / name))
    return Repo(folder / name)


def packs(folder: Path) -> dict[str, int]:
    """The packs at a git remote, with their bytes."""
    said = run.git(
        "for-each-ref", "--format=%(refname:lstrip=3) %(objectsize)", "refs/wtxt/store", cwd=folder
    )
    refs = dict(line.split() for line in said.decode().splitlines())
    return {name: int(size) for name, size in refs.items() if name.endswith(".pack")}


def fetched(clone: Repo, *words: str) -> bytes:
    done = clone.wtxtgit("fetch", *words)
    return done.stdout


class TestAGitRemote:
    @pytest.mark.slow
    def test_a_clone_gets_the_files_and_a_version_little(
        self, own: Repo, bare: Path, tmp_path: Path
    ) -> None:
        own.git("push", "-q", "origin", "main")
        first = packs(bare)
        assert len(first) == 1
        other = cloned(bare.as_uri(), "other", tmp_path)
        assert other.path.joinpath(NAME).read_bytes().startswith(b"WTXT-DETACHED ")
        fetched(other)
        assert other.path.joinpath(NAME).read_bytes() == model()
        assert other.status() == b""
        own.write(NAME, model(1))
        own.git("commit", "-qam", "two")
        own.git("push", "-q", "origin", "main")
        added = {name: size for name, size in packs(bare).items() if name not in first}
        assert sum(added.values()) < 0.02 * len(model())
        pulled = other.run(run.executable(), "pull", "-q")
        assert b"wtxtgit fetch" in pulled.stderr
        assert b"1 chunk fetched" in fetched(other)
        assert other.path.joinpath(NAME).read_bytes() == model(1)
        # Neither refs nor objects of packs stay in a clone.
        assert b"refs/wtxt" not in own.git("for-each-ref") + other.git("for-each-ref")
        objects = [*own.path.glob(".git/objects/**/*"), *other.path.glob(".git/objects/**/*")]
        assert max(path.stat().st_size for path in objects) < 20_000

    @pytest.mark.slow
    def test_by_http(self, own: Repo, bare: Path, server: str, tmp_path: Path) -> None:
        own.git("remote", "set-url", "origin", f"{server}/bare.git")
        own.git("push", "-q", "origin", "main")
        other = cloned(f"{server}/bare.git", "other", tmp_path)
        fetched(other)
        assert other.path.joinpath(NAME).read_bytes() == model()

    @pytest.mark.slow
    def test_two_push_at_once(self, own: Repo, bare: Path, tmp_path: Path) -> None:
        own.git("push", "-q", "origin", "main")
        others = [cloned(bare.as_uri(), f"other {number}", tmp_path) for number in (1, 2)]
        for number, clone in enumerate(others, 1):
            clone.write(NAME, model(number))
            clone.write("same.safetensors", model(3))
            clone.add()
            clone.commit()
        started = [
            subprocess.Popen(
                [*LAUNCHER.arguments, "push"], cwd=clone.path,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
            for clone in others
        ]  # fmt: skip
        said = [process.communicate() for process in started]
        assert [process.returncode for process in started] == [0, 0], said
        for number, clone in enumerate(others, 1):
            clone.git("push", "-q", "origin", f"HEAD:refs/heads/b{number}")
        last = cloned(bare.as_uri(), "last", tmp_path)
        fetched(last, "origin/b1", "origin/b2")
        for number in (1, 2):
            last.git("checkout", "-q", f"b{number}")
            assert last.path.joinpath(NAME).read_bytes() == model(number)
            assert last.path.joinpath("same.safetensors").read_bytes() == model(3)

    def test_a_push_without_the_data_is_refused(self, own: Repo, bare: Path) -> None:
        shutil.rmtree(own.path / ".git/wtxt/store")
        done = own.run(run.executable(), "push", "-q", "origin", "main", ok=(1,))
        assert NAME.encode() in done.stderr
        assert run.git("for-each-ref", "refs/heads", cwd=bare) == b""

    @pytest.mark.slow
    def test_a_remote_that_swaps_packs(self, own: Repo, bare: Path, tmp_path: Path) -> None:
        own.git("push", "-q", "origin", "main")
        (pack,) = packs(bare)
        oid = run.git("hash-object", "-w", "--stdin", stdin=b"other", cwd=bare).decode().strip()
        run.git("update-ref", f"refs/wtxt/store/{pack}", oid, cwd=bare)
        other = cloned(bare.as_uri(), "other", tmp_path)
        done = other.wtxtgit("fetch", ok=(5,))
        assert pack.removesuffix(".pack").encode() in done.stderr
        assert other.path.joinpath(NAME).read_bytes().startswith(b"WTXT-DETACHED ")


@pytest.mark.parametrize("name", ["\nm.safetensors", "a\nb/\n.safetensors", " .safetensors"])
def test_names_with_line_feeds(repo: Repo, driver: None, bare: Path, name: str) -> None:
    repo.git("remote", "add", "origin", bare.as_uri())
    repo.write(".gitattributes", ATTRIBUTES)
    repo.write(name, model())
    repo.add()
    repo.commit()
    assert b"1 pack" in repo.wtxtgit("push").stdout
    assert len(packs(bare)) == 1


class TestAFolder:
    @pytest.mark.slow
    def test_a_clone_gets_the_files(self, own: Repo, bare: Path, tmp_path: Path) -> None:
        there = tmp_path / "there"
        own.wtxtgit("store", "use", there.as_uri())
        own.git("push", "-q", "origin", "main")
        assert not packs(bare)
        other = cloned(bare.as_uri(), "other", tmp_path)
        other.wtxtgit("store", "use", there.as_uri())
        fetched(other)
        assert other.path.joinpath(NAME).read_bytes() == model()

    @pytest.mark.slow
    def test_it_is_served_to_all_others(self, own: Repo, bare: Path, tmp_path: Path) -> None:
        there = tmp_path / "there"
        own.wtxtgit("store", "use", there.as_uri())
        own.git("push", "-q", "origin", "main")
        other = cloned(bare.as_uri(), "other", tmp_path)
        with servers.files(there) as host, servers.before(host) as front:
            other.wtxtgit("store", "use", f"{HTTP}{front.host}/")
            (pack,) = there.glob("*.pack")
            for fault in (
                servers.Fault("txt", status=404),
                servers.Fault("[.]pack", status=503, stays=True),
                servers.Fault("[.]pack", bytes_given=9),
                servers.Fault("[.]pack", status=404),
            ):
                front.faults = [fault]
                done = other.wtxtgit("fetch", ok=(5,))
                assert front.host.encode() in done.stderr
                assert b"Traceback" not in done.stderr
            assert pack.stem.encode() in done.stderr
            front.faults.clear()
            fetched(other)
            assert other.path.joinpath(NAME).read_bytes() == model()
            # What already exists needs no folder that can be written to.
            other.git("commit", "-q", "--allow-empty", "-m", "nothing")
            other.wtxtgit("push")
            other.write(NAME, model(1))
            other.git("commit", "-qam", "more")
            done = other.wtxtgit("push", ok=(5,))
            told = done.stderr.decode().splitlines()
            assert "is read-only" in told[0]
            assert [line.partition(": ")[2].partition(": ")[0] for line in told[1:]] == ["hint"]

    def test_nothing_is_sent_where_the_tree_alone_says(self, own: Repo) -> None:
        own.write(".wtxt/store", "[store]\n\turl = s3://bucket/store\n")
        for command in (("wtxtgit", "push"), ("git", "push", "origin", "main")):
            call = own.wtxtgit if command[0] == "wtxtgit" else own.git
            with pytest.raises(AssertionError, match="wtxtgit store use s3://bucket/store"):
                call(*command[1:])

    def test_nor_where_nothing_can_be_sent(self, own: Repo) -> None:
        own.write(".wtxt/store", "[store]\n\turl = https://example.com/store\n")
        repo = own.repository
        tips = [own.git("rev-parse", "HEAD").decode().strip()]
        with pytest.raises(UsageError, match="only a file of the repository names") as raised:
            push_commits(repo, lambda: [store_url.chosen(repo)], tips)
        assert raised.value.hint == "wtxtgit store use URL, of the folder that it serves"
