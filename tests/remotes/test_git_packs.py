"""Packs of a git remote that drops half-way: what came whole is not transferred again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.kit import Repo
from tests.remotes.test_payload import text
from tests.store.chunks import added, named, weights
from wtxtgit.errors import RemoteUnavailable
from wtxtgit.git import run
from wtxtgit.git.repository import Repository
from wtxtgit.remotes.payload import fetch as payload_fetch
from wtxtgit.remotes.payload.fetch import fetch_payload
from wtxtgit.remotes.payload.git_packs import GitPacks
from wtxtgit.remotes.payload.push import push_payload
from wtxtgit.report.store import PayloadFetched
from wtxtgit.store.store import Store

COUNT = 6


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A repository with packs of some 300 KB each."""
    folder = tmp_path / "bare.git"
    run.git("init", "-q", "--bare", str(folder))
    own = Store(tmp_path / "own")
    place = GitPacks(Repository.discover(folder), folder.as_uri())
    for seed in range(COUNT):
        added(own, weights(20, seed))
        assert not push_payload(own, place, [text(weights(20, seed))]).lacking
    assert len(place.packs()) == COUNT
    return folder


_SERVER = """\
#!{python} -S
import os, subprocess, sys
left = {most}
with subprocess.Popen(["git-upload-pack", *sys.argv[1:]], stdout=-1) as server:
    while left and (piece := server.stdout.read1(left)):
        left -= len(piece)
        with open("{log}", "ab") as log:
            log.write(piece)
        os.write(1, piece)
    server.kill()
"""


class Remote:
    """A remote whose server gives no more than some bytes, and counts them."""

    def __init__(self, repo: Repo, bare: Path) -> None:
        self._repo = repo
        self._log = bare.parent / "given"
        self._script = bare.parent / "upload-pack"
        repo.git("remote", "add", "origin", bare.as_uri())
        repo.git("config", "remote.origin.uploadpack", str(self._script))

    def fetch(self, store: Store, most: int) -> PayloadFetched:
        self._log.unlink(missing_ok=True)
        self._script.write_text(_SERVER.format(python=sys.executable, log=self._log, most=most))
        self._script.chmod(0o755)
        place = GitPacks(Repository.discover(self._repo.path), "origin")
        return fetch_payload(store, lambda: place, [text(all_chunks())])

    @property
    def given(self) -> int:
        return self._log.stat().st_size


def all_chunks() -> list[bytes]:
    return [chunk for seed in range(COUNT) for chunk in weights(20, seed)]


def test_what_came_whole_does_not_come_again(
    repo: Repo, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One connection: of several nobody knows what each has given.
    monkeypatch.setattr(payload_fetch, "_AT_ONCE", 1)
    remote = Remote(repo, bare)
    whole = remote.fetch(Store(tmp_path / "whole"), 1 << 30)
    total = remote.given
    assert whole.nbytes < total < 1.1 * whole.nbytes
    store = Store(tmp_path / "store")
    with pytest.raises(RemoteUnavailable):
        remote.fetch(store, whole.nbytes // 2)
    came = remote.given
    done = remote.fetch(store, 1 << 30)
    assert not done.lacking
    assert store.has(map(named, all_chunks())) == {*map(named, all_chunks())}
    # Twice comes what was under way, no more than a pack, and what is said beside it.
    assert came + remote.given < total + 1.2 * whole.nbytes / COUNT
    left = list(repo.path.glob(".git/wtxt/objects/??/*"))
    assert left == []


def test_what_is_damaged_when_it_is_left_comes_anew(repo: Repo, bare: Path, tmp_path: Path) -> None:
    remote = Remote(repo, bare)
    store = Store(tmp_path / "store")
    packs = ("for-each-ref", "--format=%(objectname)", "refs/wtxt/store/*.pack")
    oids = run.git(*packs, cwd=bare).decode().split()
    assert len(oids) == COUNT
    for oid in oids:
        left = repo.path / ".git/wtxt/objects" / oid[:2] / oid[2:]
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_bytes(b"")
    assert remote.fetch(store, 1 << 30).lacking
    assert not remote.fetch(store, 1 << 30).lacking


def test_a_partial_clone(bare: Path, tmp_path: Path) -> None:
    run.git("config", "uploadpack.allowFilter", "true", cwd=bare)
    run.git("clone", "-q", "--filter=blob:none", bare.as_uri(), str(tmp_path / "clone"))
    clone = Repository.discover(tmp_path / "clone")
    store = Store(tmp_path / "store")
    assert not fetch_payload(store, lambda: GitPacks(clone, "origin"), [text(all_chunks())]).lacking
    assert [
        p for p in clone.common_dir.rglob("*") if p.is_file() and p.stat().st_size > 99_000
    ] == []
