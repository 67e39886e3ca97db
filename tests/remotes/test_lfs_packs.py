"""Payload on a git-lfs server: giftless, with a bare repository that says what is there."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.cluster.stores import HTTP
from tests.e2e.test_detached import ATTRIBUTES, MODEL, NAME
from tests.kit import Repo
from tests.kit.starts import WTXTGIT
from tests.remotes.behaviour import SECRET
from tests.remotes.killed_transfers import MIB, KilledTests, Killing
from tests.remotes.lfs_server import Server, server, started
from tests.remotes.places import NEW, OLD, FileTests, holds, text, three_packs
from tests.remotes.servers import counted
from tests.remotes.transfers import Remote, TransferTests
from tests.store.chunks import added, weights
from wtxtgit.errors import InputError, RemoteUnavailable, UsageError
from wtxtgit.git import run
from wtxtgit.io.progress import Progress
from wtxtgit.remotes import lfs_batch
from wtxtgit.remotes.payload import push as payload_push
from wtxtgit.remotes.payload.detached_texts import DetachedText
from wtxtgit.remotes.payload.fetch import fetch_payload
from wtxtgit.remotes.payload.git_packs import GitPacks
from wtxtgit.remotes.payload.lfs_packs import LfsPacks
from wtxtgit.remotes.payload.place import OutgoingPack
from wtxtgit.remotes.payload.push import push_payload
from wtxtgit.report.store import PayloadFetched, PayloadPushed
from wtxtgit.store.pack import ChunkPack
from wtxtgit.store.store import Store

__all__ = ["server", "started"]
pytestmark = pytest.mark.remote


@pytest.fixture
def bare(repo: Repo, server: Server) -> Path:
    folder = repo.path.parent / "bare.git"
    run.git("init", "-q", "--bare", str(folder))
    repo.git("remote", "add", "origin", folder.as_uri())
    repo.git("config", "lfs.url", server.url)
    return folder


@pytest.fixture
def place(repo: Repo, bare: Path) -> LfsPacks:
    return LfsPacks(repo.repository, "origin")


@pytest.fixture
def _each_text_a_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_push, "_ENOUGH", 1)


def pushed(store: Path, place: LfsPacks, *texts: DetachedText) -> PayloadPushed:
    return push_payload(Store(store), place, texts)


def fetched(store: Path, place: LfsPacks, *texts: DetachedText) -> PayloadFetched:
    return fetch_payload(Store(store), lambda: [place], texts)


def names(refs: str, bare: Path) -> list[str]:
    listed = run.git("for-each-ref", "--format=%(refname)", refs, cwd=bare)
    return listed.decode().split()


class LfsBehind:
    """Refs of the git remote say which files there are; packs lie in the server's folder."""

    def __init__(self, bare: Path, server: Server) -> None:
        self._bare, self._server = bare, server

    def read(self, file: str) -> bytes:
        return self._path(file).read_bytes()

    def write(self, file: str, content: bytes) -> None:
        self._path(file).write_bytes(content)

    def drop(self, file: str) -> None:
        run.git("update-ref", "-d", f"refs/wtxt/lfs/{file}", cwd=self._bare)

    def _path(self, file: str) -> Path:
        name = file.removesuffix(".pack")
        return next(path for path in self._server.paths() if path.name == name)


class TestPlace(FileTests):
    tells_bytes = True

    gives_parts = False
    is_dear = True

    @pytest.fixture
    def behind(self, bare: Path, server: Server) -> LfsBehind:
        return LfsBehind(bare, server)


@pytest.fixture
def packs(tmp_path: Path) -> list[ChunkPack]:
    return three_packs(tmp_path / "store")


class TestParts:
    def test_as_far_as_the_server_gives_them(
        self, place: LfsPacks, server: Server, packs: Sequence[ChunkPack]
    ) -> None:
        pack = packs[0]
        content = pack.path.read_bytes()
        place.put([OutgoingPack.of(pack)])
        server.gate.gives_parts = True
        spans = [(5, 9), (0, 1), (len(content) - 3, len(content))]
        found = place.ranges(pack.path.stem, pack.nbytes, spans)
        assert found is not None
        assert [bytes(part) for part in found] == [content[a:b] for a, b in spans]
        # A byte was to see that it does.
        assert server.gate.sent == 8 + 1
        beyond = [(0, 1), (pack.nbytes, pack.nbytes + 1)]
        for name, wanted in ((pack.path.stem, beyond), ("00" * 32, spans)):
            with pytest.raises(InputError):
                list(place.ranges(name, pack.nbytes, wanted) or ())

    def test_of_a_server_that_gives_none(
        self, place: LfsPacks, server: Server, packs: Sequence[ChunkPack]
    ) -> None:
        place.put([OutgoingPack.of(packs[0])])
        for spans in ([], [(5, 9)]):
            assert place.ranges(packs[0].path.stem, packs[0].nbytes, spans) is None
        assert server.count("GET") == 1

    @pytest.mark.parametrize("gives_parts", [False, True])
    def test_some_chunks_of_a_pack(
        self, own: Path, place: LfsPacks, server: Server, gives_parts: bool
    ) -> None:
        server.gate.gives_parts = gives_parts
        sent = pushed(own, place, text(OLD), text(NEW))
        done = fetched(own.parent / "other", place, text(OLD[2:3]))
        assert not done.lacking
        assert holds(own.parent / "other", OLD[2:3])
        assert (done.nbytes < sent.nbytes / 3) == gives_parts


class TestSmallPacks:
    """Where objects can be had whole alone, a pack has 32 KiB, or a 256th of a text."""

    VERSION = weights(64)

    @pytest.fixture
    def own(self, tmp_path: Path) -> Path:
        store = Store(tmp_path / "own")
        added(store, self.VERSION)
        return store.folder

    @pytest.mark.parametrize("gives_parts", [False, True])
    def test_a_first_push(
        self, own: Path, place: LfsPacks, server: Server, gives_parts: bool
    ) -> None:
        server.gate.gives_parts = gives_parts
        sent = pushed(own, place, text(self.VERSION))
        assert not sent.lacking
        # A pack goes ahead, with which it is tested once.
        sizes = sorted(path.stat().st_size for path in server.paths())
        assert (len(sizes), server.count("GET")) == (2 if gives_parts else 32, 1)
        assert sizes[0] < 34_000
        assert (sizes[-1] < 34_000) == (not gives_parts)
        assert not fetched(own.parent / "other", place, text(self.VERSION)).lacking
        assert holds(own.parent / "other", self.VERSION)

    @pytest.mark.parametrize("gives_parts", [False, True])
    @pytest.mark.parametrize("is_lost", [False, True])
    def test_whole_packs_that_are_there(
        self, own: Path, place: LfsPacks, server: Server, gives_parts: bool, is_lost: bool
    ) -> None:
        server.gate.gives_parts = True
        pushed(own, place, text(self.VERSION[:2]))
        if is_lost:
            server.paths()[0].unlink()
        server.gate.gives_parts, server.gate.asked = gives_parts, []
        again = LfsPacks(place._repo, "origin")
        wanted = self.VERSION[0 if is_lost else 2 :]
        sent = pushed(own, again, text(wanted))
        # It is tested with one that is there; otherwise one goes ahead.
        assert len(sent.packs) == (len(wanted) // 2 if not gives_parts else 2 if is_lost else 1)
        assert server.count("GET") == 1
        assert not fetched(own.parent / "other", again, text(self.VERSION)).lacking
        assert holds(own.parent / "other", self.VERSION)

    def test_a_dry_run_tests_nothing(self, own: Path, place: LfsPacks, server: Server) -> None:
        done = push_payload(Store(own), place, [text(self.VERSION)], dry_run=True)
        assert (done.chunks, server.paths()) == (len(self.VERSION), [])


def test_what_was_sent_comes_elsewhere(
    own: Path, place: LfsPacks, server: Server, bare: Path, repo: Repo
) -> None:
    sent = pushed(own, place, text([*OLD, *NEW[:2]]))
    assert server.objects() == list(sent.packs)
    (name,) = sent.packs
    size = server.paths()[0].stat().st_size
    assert run.git("cat-file", "blob", f"refs/wtxt/lfs/{name}.pack", cwd=bare).decode() == (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{name}\nsize {size}\n"
    )
    assert names("refs", bare) == [f"refs/wtxt/lfs/{name}.{kind}" for kind in ("index", "pack")]
    other = own.parent / "other"
    done = fetched(other, place, text(NEW))
    assert (done.lacking, done.refused) == ((), ())
    assert holds(other, NEW)
    assert done.remote == "lfs of git+origin"
    # What both have is sent and fetched no more.
    asked = len(server.gate.asked)
    assert not fetched(other, place, text(NEW)).nbytes
    assert not pushed(other, place, text(NEW)).packs
    assert server.count("PUT") == 1
    assert len(server.gate.asked) == asked + 1
    # The git remote's own packs are others.
    assert not GitPacks(repo.repository, "origin").packs()
    assert repo.git("count-objects").startswith(b"0 objects")


@pytest.mark.usefixtures("_each_text_a_pack")
def test_packs_are_asked_for_together_and_a_version_is_little(
    own: Path, place: LfsPacks, server: Server
) -> None:
    other = own.parent / "other"
    first = pushed(own, place, text(OLD[:3]), text(OLD[3:]))
    assert len(first.packs) == 2
    assert server.count("POST /o/r.git/info/lfs/objects/batch") == 1
    assert fetched(other, place, text(OLD)).nbytes == first.nbytes
    assert server.count("POST /o/r.git/info/lfs/objects/batch") == 2
    second = pushed(own, place, text(NEW))
    before = server.gate.sent
    assert fetched(other, place, text(NEW)).nbytes == second.nbytes
    assert server.gate.sent - before == second.nbytes < first.nbytes / 4
    assert holds(other, [*OLD, *NEW])


@pytest.mark.usefixtures("_each_text_a_pack")
def test_addresses_that_are_old_are_asked_for_again(
    own: Path, place: LfsPacks, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lfs_batch, "_FRESH", -1)
    sent = pushed(own, place, text(OLD[:3]), text(OLD[3:]))
    assert len(sent.packs) == server.count("POST /o/r.git/info/lfs/objects/batch") == 2
    assert not fetched(own.parent / "other", place, text(OLD)).lacking


class TestAServerThat:
    def fails(self, own: Path, place: LfsPacks) -> str:
        """Fetch, of which nothing comes; gives why."""
        other = own.parent / "other"
        done = fetched(other, place, text(OLD))
        assert done.lacking
        assert not Store(other).own.names
        (refused,) = done.refused
        return refused.why

    def test_loses_a_pack(self, own: Path, place: LfsPacks, server: Server) -> None:
        pushed(own, place, text(OLD))
        server.paths()[0].unlink()
        assert self.fails(own, place) == "could not be fetched"
        # Whoever has the chunks mends it.
        assert pushed(own, place, text(OLD)).chunks == 6
        assert not fetched(own.parent / "other", place, text(OLD)).lacking

    def test_swaps_packs(self, own: Path, place: LfsPacks, server: Server) -> None:
        pushed(own, place, text(OLD))
        (path,) = server.paths()
        content = path.read_bytes()
        path.write_bytes(content[:-1] + b"!")
        assert self.fails(own, place) == "has a SHA-256 other than its name states"
        path.write_bytes(content)
        assert not fetched(own.parent / "other", place, text(OLD)).lacking

    @pytest.mark.usefixtures("_each_text_a_pack")
    def test_drops_half_way(self, own: Path, place: LfsPacks, server: Server) -> None:
        other = own.parent / "other"
        pushed(own, place, text(OLD[:3]), text(OLD[3:]))
        last = place.packs()[-1]
        cut = ("200 OK", [("Content-Length", "5000")], b"WTXTPACK")
        server.gate.answers = [(last, *cut)]
        with pytest.raises(RemoteUnavailable, match="can't be reached"):
            fetched(other, place, text(OLD))
        came = Store(other).own.names
        assert not fetched(other, place, text(OLD)).lacking
        assert holds(other, OLD)
        # What came whole does not come again.
        gets = [line for line in server.gate.asked if line.startswith("GET")]
        assert len(gets) == 3
        assert all(sum(name in line for line in gets) == 1 for name in came)

    def test_wants_a_password(self, own: Path, place: LfsPacks, server: Server, repo: Repo) -> None:
        server.gate.is_closed = True
        asks = repo.path.parent / "asks"
        helper = f"!echo x >>{asks}; echo username=user; echo password={SECRET}; :"
        repo.git("config", "credential.helper", helper)
        pushed(own, place, text(OLD))
        fetched(own.parent / "other", place, text(OLD))
        # The first answer is remembered, and git told that it was good.
        assert asks.read_text().split() == ["x", "x"]


def test_another_server_than_the_remotes(own: Path, server: Server, bare: Path, repo: Repo) -> None:
    repo.git("config", "--unset", "lfs.url")
    with pytest.raises(UsageError, match="git-lfs server is unknown"):
        LfsPacks(repo.repository, "origin")
    place = LfsPacks(repo.repository, "origin", server.url)
    sent = pushed(own, place, text(OLD))
    assert server.objects() == list(sent.packs)
    assert sent.remote == f"lfs+{server.url} of git+origin"


def test_by_ssh_the_host_is_asked_who_asks(
    own: Path, server: Server, bare: Path, repo: Repo, tmp_path: Path
) -> None:
    server.gate.is_closed = True
    token = base64.b64encode(f"user:{SECRET}".encode()).decode()
    told = {"href": f"{server.url}/", "header": {"Authorization": f"Basic {token}"}}
    (tmp_path / "told").write_text(json.dumps(told))
    ssh = tmp_path / "my folder/ssh"
    ssh.parent.mkdir()
    ssh.write_text(
        f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\nfor last; do :; done\n'
        f'case "$last" in git-lfs-*) cat {tmp_path}/told;; *) eval "$last";; esac\n'
    )
    ssh.chmod(0o755)
    repo.git("config", "core.sshCommand", f"'{ssh}'")
    repo.git("config", "--unset", "lfs.url")
    repo.git("remote", "set-url", "origin", f"ssh:{'//'}git@127.0.0.1:7{bare}")
    place = LfsPacks(repo.repository, "origin")
    sent = pushed(own, place, text(OLD))
    assert not fetched(own.parent / "other", place, text(OLD)).lacking
    assert server.objects() == list(sent.packs)
    asked = (tmp_path / "asked").read_text()
    # Each once, whatever the requests.
    for operation in ("upload", "download"):
        assert asked.count(f"-p 7 git@127.0.0.1 git-lfs-authenticate {bare} {operation}\n") == 1
    # Without an answer the server is asked by HTTPS, as ever.
    (tmp_path / "told").write_text('{"href": "http://example.com/x", "header": {}}')
    with pytest.raises(RemoteUnavailable, match="can't be reached"):
        pushed(own, LfsPacks(repo.repository, "origin"), text(NEW))


def test_two_push_at_once(own: Path, place: LfsPacks, repo: Repo) -> None:
    both = [*OLD, *weights(2, seed=9)]
    other = Store(own.parent / "other")
    added(other, both)

    class Slow(LfsPacks):
        def put(self, packs: Sequence[OutgoingPack], progress: Progress | None = None) -> None:
            pushed(other.folder, place, text(both))
            super().put(packs, progress)

    pushed(own, Slow(repo.repository, "origin"), text(OLD))
    assert len(place.packs()) == 2
    assert not fetched(own.parent / "last", place, text(both)).lacking
    assert holds(own.parent / "last", both)


def test_a_clone_knows_it_from_the_tree(
    repo: Repo, driver: None, bare: Path, server: Server
) -> None:
    repo.git("config", "--global", "lfs.url", server.url)
    repo.write(".gitattributes", ATTRIBUTES)
    repo.write(NAME, MODEL)
    repo.write(".wtxt/store", "[store]\n\turl = lfs\n")
    # Never followed: anybody's pull request may have it.
    repo.write(".lfsconfig", "[lfs]\n\turl = https://example.com/elsewhere\n")
    repo.add()
    repo.commit()
    refused = repo.wtxtgit("push", ok=(2,))
    assert b"wtxtgit store use lfs" in refused.stderr
    assert not server.gate.asked
    repo.wtxtgit("store", "use", "lfs")
    hook = repo.path / ".git/hooks/pre-push"
    hook.write_text(f'#!/bin/sh\nexec {WTXTGIT} hook pre-push "$@"\n')
    hook.chmod(0o755)
    repo.git("push", "-q", "origin", "HEAD:refs/heads/main")
    there = server.objects()
    assert there
    assert b"0 chunks sent to lfs of git+origin" in repo.wtxtgit("push", "origin").stdout
    run.git("symbolic-ref", "HEAD", "refs/heads/main", cwd=bare)
    clone = Repo(repo.path.parent / "clone")
    repo.git("clone", "-q", bare.as_uri(), str(clone.path))
    assert b"fetched from lfs of git+origin" in clone.wtxtgit("fetch").stdout
    assert clone.path.joinpath(NAME).read_bytes() == MODEL
    assert clone.status() == b""
    assert b"refs/wtxt" not in clone.git("for-each-ref")
    run.git("update-ref", "-d", "refs/heads/main", cwd=bare)
    for name in repo.git("for-each-ref", "--format=%(refname)").decode().split():
        repo.git("update-ref", "-d", name)
    repo.git("rm", "-q", "--cached", NAME)
    shutil.rmtree(repo.path / ".git/logs")
    done = repo.wtxtgit("store", "prune", "--remote", "--force", "--expire", "0")
    assert done.stdout.endswith(b"keeps the objects: it can't be asked to delete any\n")
    assert names("refs/wtxt", bare) == []
    assert server.objects() == there


class _Served(TransferTests):
    """Of its payload alone: the refs that say what is there are in another repository."""

    gives_parts = True

    @pytest.fixture
    def remote(self, repo: Repo, bare: Path, server: Server) -> Iterator[Remote]:
        server.gate.gives_parts = self.gives_parts
        host, _, path = server.url.removeprefix(HTTP).partition("/")
        with counted(host) as wire:
            repo.git("config", "lfs.url", f"{HTTP}{wire.host}/{path}")
            place = LfsPacks(repo.repository, "origin")
            yield Remote(wire, place, place)


@pytest.mark.slow
class TestTransfers(_Served):
    """As of stores in the cloud, which give parts of objects."""


@pytest.mark.slow
class TestTransfersOfWholeObjects(_Served):
    """As giftless gives them that keeps its objects on its own disk."""

    gives_parts = False


class _Killed(KilledTests):
    gives_parts = True

    @pytest.fixture
    def killing(self, tmp_path: Path, server: Server) -> Iterator[Killing]:
        server.gate.gives_parts = self.gives_parts
        host, _, path = server.url.removeprefix(HTTP).partition("/")
        with counted(host) as wire:

            def place(name: str) -> dict[str, str]:
                bare = tmp_path / f"{name}.git"
                run.git("init", "-q", "--bare", str(bare))
                at = f"{HTTP}{wire.host}/{path.replace('r.git', f'{name}.git')}"
                url = bare.as_uri()
                return {"wtxtgit.store": "lfs", "lfs.url": at, "remote.origin.url": url}

            yield Killing(wire, place, place)


@pytest.mark.slow
class TestKilled(_Killed):
    """Of payload at a server that gives parts of objects."""


@pytest.mark.slow
class TestKilledOfWholeObjects(_Killed):
    gives_parts = False
    twice_of_push = MIB
