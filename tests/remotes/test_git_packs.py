"""Packs of a git remote that drops half-way: what came whole is not transferred again."""

from __future__ import annotations

import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.kit import Repo
from tests.kit.packs import blobs_of, content_of
from tests.kit.templates import Templates
from tests.kit.told import Told
from tests.remotes.test_fetched_parts import needed
from tests.remotes.test_payload import text
from tests.store.chunks import added, named, weights
from wtxtgit.errors import RemoteRefused, RemoteUnavailable
from wtxtgit.git import run
from wtxtgit.git.repository import Repository
from wtxtgit.remotes.payload import cut_packs, git_packs
from wtxtgit.remotes.payload import fetch as payload_fetch
from wtxtgit.remotes.payload.fetch import fetch_payload
from wtxtgit.remotes.payload.git_packs import GitPacks
from wtxtgit.remotes.payload.place import OutgoingPack
from wtxtgit.remotes.payload.push import push_payload
from wtxtgit.report.store import PayloadFetched
from wtxtgit.store.store import Store

COUNT = 6


@pytest.fixture
def bare(templates: Templates, tmp_path: Path) -> Path:
    """A repository with packs of some 300 KB each."""

    def make(folder: Path) -> None:
        run.git("init", "-q", "--bare", str(folder))
        own = Store(tmp_path / "own")
        place = GitPacks(Repository.discover(folder), folder.as_uri())
        for seed in range(COUNT):
            added(own, weights(20, seed))
            assert not push_payload(own, place, [text(weights(20, seed))]).lacking
        assert len(place.packs()) == COUNT

    return templates.copy("six packs", make, tmp_path / "bare.git")


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
        self.bare = bare
        repo.git("remote", "add", "origin", bare.as_uri())
        repo.git("config", "remote.origin.uploadpack", str(self._script))

    def fetch(
        self, store: Store, most: int, chunks: Sequence[bytes] | None = None
    ) -> PayloadFetched:
        """Fetch chunks, by default all; the server ends each connection after `most` bytes."""
        self._log.unlink(missing_ok=True)
        self._script.write_text(_SERVER.format(python=sys.executable, log=self._log, most=most))
        self._script.chmod(0o755)
        place = GitPacks(Repository.discover(self._repo.path), "origin")
        return fetch_payload(store, lambda: [place], [text(chunks or all_chunks())])

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
    # Twice comes what was under way, no more than a part of a pack, and what is said beside it.
    assert came + remote.given < total + 0.5 * whole.nbytes / COUNT
    left = list(repo.path.glob(".git/wtxt/objects/??/*"))
    assert left == []


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_what_killed_fetches_left_is_pruned(
    repo: Repo, bare: Path, options: tuple[str, ...]
) -> None:
    """After two weeks; what git has not named yet, after an hour."""
    repo.git("remote", "add", "origin", bare.as_uri())
    repo.git("config", "wtxtgit.store", "git+origin")
    repo.commit()
    day, now = 24 * 60 * 60, time.time()
    ages = {"11/old": 15 * day, "11/tmp_obj_old": day, "11/young": 13 * day, "11/tmp_obj_young": 60}
    for name, age in ages.items():
        left = repo.path / ".git/wtxt/objects" / name
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_bytes(b"left")
        os.utime(left, (now - age, now - age))
    repo.wtxtgit("store", "prune", *options)
    stays = {path.name for path in repo.path.glob(".git/wtxt/objects/11/*")}
    gone = set() if options else {"old", "tmp_obj_old"}
    assert stays == {"old", "tmp_obj_old", "young", "tmp_obj_young"} - gone


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


def test_packs_are_pushed_in_several_steps(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "bare.git"
    run.git("init", "-q", "--bare", str(bare))
    own = Store(tmp_path / "own")
    texts = [text(weights(20, seed)) for seed in range(2)]
    for seed in range(2):
        added(own, weights(20, seed))
    monkeypatch.setattr(git_packs, "_AT_ONCE", 400_000)
    hook = bare / "hooks/pre-receive"
    hook.write_text("#!/bin/sh\ncd .. && test ! -e pushed.once && : >pushed.once\n")
    hook.chmod(0o755)
    place = GitPacks(Repository.discover(repo.path), bare.as_uri())
    told = Told()
    with pytest.raises(RemoteRefused, match="pre-receive hook declined"):
        push_payload(own, place, texts, told)
    (there,) = place.packs()
    # As soon as it is there.
    assert 0 < sum(told.counts) < told.expected
    hook.unlink()
    (sent,) = push_payload(own, place, texts).packs
    assert set(place.packs()) == {there, sent}


@pytest.mark.slow
def test_more_packs_than_git_takes_as_arguments(repo: Repo, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    run.git("init", "-q", "--bare", str(bare))
    pack = tmp_path / "pack"
    pack.write_bytes(b"pack")
    place = GitPacks(Repository.discover(repo.path), bare.as_uri())
    names = [f"{number:064x}" for number in range(2500)]
    place.put([OutgoingPack(name, pack, 4, name.encode("ascii")) for name in names])
    assert place.packs() == names
    assert dict(place.ends(names[-2:])) == {name: name.encode("ascii") for name in names[-2:]}


def test_a_partial_clone(bare: Path, tmp_path: Path) -> None:
    run.git("config", "uploadpack.allowFilter", "true", cwd=bare)
    run.git("clone", "-q", "--filter=blob:none", bare.as_uri(), str(tmp_path / "clone"))
    clone = Repository.discover(tmp_path / "clone")
    store = Store(tmp_path / "store")
    assert not fetch_payload(
        store, lambda: [GitPacks(clone, "origin")], [text(all_chunks())]
    ).lacking
    assert [
        p for p in clone.common_dir.rglob("*") if p.is_file() and p.stat().st_size > 99_000
    ] == []


class TestCutPacks:
    """Packs that are trees of blobs, of which a fetch takes some."""

    @pytest.fixture
    def chunks(self) -> list[bytes]:
        return weights(60)

    @pytest.fixture
    def bare(self, templates: Templates, chunks: list[bytes], tmp_path: Path) -> Path:
        def make(folder: Path) -> None:
            run.git("init", "-q", "--bare", str(folder))
            own = Store(tmp_path / "own")
            added(own, chunks)
            place = GitPacks(Repository.discover(folder), folder.as_uri())
            assert len(push_payload(own, place, [text(chunks)]).packs) == 1

        return templates.copy("a cut pack", make, tmp_path / "bare.git")

    @pytest.fixture
    def remote(self, repo: Repo, bare: Path) -> Remote:
        return Remote(repo, bare)

    def ref(self, bare: Path, kind: str) -> str:
        said = run.git("for-each-ref", "--format=%(refname)", "refs/wtxt/store", cwd=bare)
        (ref,) = (name for name in said.decode().split() if name.endswith(kind))
        return ref

    def put(self, bare: Path, ref: str, tree: dict[str, bytes]) -> None:
        """Have a ref lead to a tree of these blobs."""
        lines = []
        for name, content in tree.items():
            oid = run.git("hash-object", "-w", "--stdin", stdin=content, cwd=bare).decode().strip()
            lines.append(f"100644 blob {oid}\t{name}\n")
        oid = run.git("mktree", stdin="".join(lines).encode(), cwd=bare).decode().strip()
        run.git("update-ref", ref, oid, cwd=bare)

    def tree(self, bare: Path, ref: str) -> dict[str, bytes]:
        blobs = blobs_of(bare, ref)
        return {n: run.git("cat-file", "blob", oid, cwd=bare) for n, oid in blobs.items()}

    def test_some_chunks_of_a_pack(
        self, remote: Remote, chunks: list[bytes], tmp_path: Path
    ) -> None:
        store = Store(tmp_path / "store")
        whole = remote.fetch(Store(tmp_path / "whole"), 1 << 30, chunks).nbytes
        total = remote.given
        done = remote.fetch(store, 1 << 30, chunks[20:26])
        assert (done.lacking, done.refused) == ((), ())
        # A tenth, and what stands beside it in two parts.
        assert done.nbytes < remote.given < 0.1 * total + 2 * 32 * 1024 + 8192 < 0.3 * whole
        assert store.has(map(named, chunks)) == {*map(named, chunks[20:26])}
        # The parts that are here are not fetched for the others.
        assert not remote.fetch(store, 1 << 30, chunks[20:30]).lacking
        assert store.has(map(named, chunks)) == {*map(named, chunks[20:30])}

    def test_a_server_that_gives_no_objects_by_their_ids(
        self, repo: Repo, remote: Remote, chunks: list[bytes], tmp_path: Path
    ) -> None:
        repo.git("config", "protocol.version", "0")
        store = Store(tmp_path / "store")
        done = remote.fetch(store, 1 << 30, chunks[20:26])
        assert (done.lacking, done.refused) == ((), ())
        assert store.has(map(named, chunks)) == {*map(named, chunks)}
        # Of a tree that a killed process left some blobs are missing.
        place = GitPacks(Repository.discover(repo.path), "origin")
        (name,) = place.packs()
        oid = run.git("rev-parse", f"refs/wtxt/store/{name}.pack", cwd=remote.bare).decode().strip()
        left = repo.path / ".git/wtxt/objects" / oid[:2] / oid[2:]
        there = remote.bare / "objects" / oid[:2] / oid[2:]
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_bytes(there.read_bytes())
        assert not remote.fetch(Store(tmp_path / "other"), 1 << 30, chunks).lacking

    @pytest.mark.parametrize("kind", [".pack", ".index"])
    def test_what_a_killed_process_left_does_not_come_again(
        self,
        repo: Repo,
        bare: Path,
        remote: Remote,
        chunks: list[bytes],
        tmp_path: Path,
        kind: str,
    ) -> None:
        ref = self.ref(bare, kind)
        tree = run.git("rev-parse", ref, cwd=bare).decode().strip()
        blobs = [*blobs_of(bare, ref).values()]
        for oid in (tree, *blobs[: len(blobs) // 2]):
            left = repo.path / ".git/wtxt/objects" / oid[:2] / oid[2:]
            left.parent.mkdir(parents=True, exist_ok=True)
            # The remote can't give it any more.
            (bare / "objects" / oid[:2] / oid[2:]).rename(left)
        store = Store(tmp_path / "store")
        assert not remote.fetch(store, 1 << 30, chunks).lacking
        assert list(repo.path.glob(".git/wtxt/objects/??/*")) == []

    def test_the_tree_is_removed_last(
        self,
        remote: Remote,
        chunks: list[bytes],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        gone: list[bytes] = []

        def drop(path: Path) -> None:
            gone.append(zlib.decompress(path.read_bytes())[:4])
            path.unlink()

        monkeypatch.setattr(cut_packs, "drop", drop)
        assert not remote.fetch(Store(tmp_path / "store"), 1 << 30, chunks).lacking
        assert [number for number, kind in enumerate(gone) if kind == b"tree"] == [2, len(gone) - 1]

    def test_a_remote_that_was_written_to_before_packs_were_cut(
        self, repo: Repo, bare: Path, remote: Remote, chunks: list[bytes], tmp_path: Path
    ) -> None:
        for kind in (".pack", ".index"):
            ref = self.ref(bare, kind)
            content = content_of(bare, ref)
            oid = run.git("hash-object", "-w", "--stdin", stdin=content, cwd=bare).decode().strip()
            run.git("update-ref", ref, oid, cwd=bare)
        store = Store(tmp_path / "store")
        done = remote.fetch(store, 1 << 30, chunks[20:26])
        assert (done.lacking, done.refused) == ((), ())
        assert store.has(map(named, chunks)) == {*map(named, chunks)}
        # Nothing is sent again.
        place = GitPacks(Repository.discover(repo.path), bare.as_uri())
        assert push_payload(store, place, [text(chunks)]).packs == ()

    @pytest.mark.parametrize(
        "lie",
        {
            "nothing": lambda _: b"",
            "no number": lambda given: b"x" + given,
            "no bytes": lambda given: b"0\n" + given.partition(b"\n")[2],
            "too many bytes": lambda given: b"99999999\n" + given.splitlines(keepends=True)[1],
            "a part less": lambda given: b"".join(given.splitlines(keepends=True)[:-1]),
            "no ids": lambda given: re.sub(rb"[0-9a-f]{40}", b"x", given),
            "an option": lambda given: given.replace(given.splitlines()[1], b"--upload-pack=x"),
        }.items(),
        ids=lambda lie: lie[0],
    )
    def test_a_list_that_is_none(
        self,
        bare: Path,
        remote: Remote,
        chunks: list[bytes],
        tmp_path: Path,
        lie: tuple[str, Callable[[bytes], bytes]],
    ) -> None:
        ref = self.ref(bare, ".index")
        tree = self.tree(bare, ref)
        self.put(bare, ref, tree | {"parts": lie[1](tree["parts"])})
        # The whole pack is what it should be.
        done = remote.fetch(Store(tmp_path / "store"), 1 << 30, chunks[20:26])
        assert (done.lacking, done.refused) == ((), ())

    def test_a_list_of_other_parts(
        self, bare: Path, remote: Remote, chunks: list[bytes], tmp_path: Path
    ) -> None:
        ref = self.ref(bare, ".index")
        tree = self.tree(bare, ref)
        first, *oids = tree["parts"].splitlines(keepends=True)
        self.put(bare, ref, tree | {"parts": b"".join([first, *reversed(oids)])})
        store = Store(tmp_path / "store")
        done = remote.fetch(store, 1 << 30, chunks[20:26])
        assert [pack.pack for pack in done.refused] == [ref.rpartition("/")[2][:64]]
        assert done.lacking
        assert not store.has(map(named, chunks))

    @pytest.mark.parametrize(
        "lie",
        {
            "empty": lambda _: {"x": b""},
            "a part less": lambda tree: dict([*tree.items()][1:]),
            "a part more": lambda tree: tree | {"zz": b"more"},
            "parts exchanged": lambda tree: tree | {"0000": tree["0001"], "0001": tree["0000"]},
        }.items(),
        ids=lambda lie: lie[0],
    )
    def test_a_tree_of_other_parts(
        self,
        bare: Path,
        remote: Remote,
        chunks: list[bytes],
        tmp_path: Path,
        lie: tuple[str, Callable[[dict[str, bytes]], dict[str, bytes]]],
    ) -> None:
        ref = self.ref(bare, ".pack")
        self.put(bare, ref, lie[1](self.tree(bare, ref)))
        store = Store(tmp_path / "store")
        done = remote.fetch(store, 1 << 30, chunks)
        assert [pack.pack for pack in done.refused] == [ref.rpartition("/")[2][:64]]
        assert not store.has(map(named, chunks))

    @pytest.mark.parametrize("kind", [".pack", ".index"])
    def test_a_ref_that_leads_to_a_commit(
        self, bare: Path, remote: Remote, chunks: list[bytes], tmp_path: Path, kind: str
    ) -> None:
        ref = self.ref(bare, kind)
        tree = run.git("rev-parse", ref, cwd=bare).decode().strip()
        commit = run.git("commit-tree", "-m", "x", tree, cwd=bare).decode().strip()
        run.git("update-ref", ref, commit, cwd=bare)
        store = Store(tmp_path / "store")
        assert remote.fetch(store, 1 << 30, chunks).lacking
        assert not store.has(map(named, chunks))


@pytest.mark.slow
def test_versions_in_which_a_block_changed(repo: Repo, tmp_path: Path) -> None:
    folder = tmp_path / "bare.git"
    run.git("init", "-q", "--bare", str(folder))
    place = GitPacks(Repository.discover(repo.path), folder.as_uri())
    own = tmp_path / "own"
    version = weights(256)
    for number in range(10):
        before, at = version, number * 71 % 230
        version = [*version[:at], *weights(25, 100 + number), *version[at + 25 :]]
        added(Store(own), version, before=before)
        push_payload(Store(own), place, [text(version)])
    remote = Remote(repo, folder)
    assert not remote.fetch(Store(tmp_path / "fresh"), 1 << 30, version).lacking
    # A pack that was a single blob would bring all that later versions have replaced.
    assert remote.given <= 1.1 * needed(own, version)
    assert remote.given < 0.7 * sum(path.stat().st_size for path in own.glob("packs/*.pack"))
