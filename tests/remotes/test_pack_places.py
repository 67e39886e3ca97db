"""Places of packs: folders, stores, git remotes, and folders that a web server serves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.stores import HTTP
from tests.kit import Repo
from tests.kit.packs import content_of
from tests.remotes import servers
from tests.remotes.behaviour import SECRET, refused
from tests.remotes.killed_transfers import MIB, SIZES, KilledTests, Killing
from tests.remotes.places import FileTests, PlaceTests, ReadingTests, SilenceTests, three_packs
from tests.remotes.transfers import Remote, TransferTests
from wtxtgit.errors import RemoteRefused, RemoteUnavailable
from wtxtgit.git import run
from wtxtgit.git.repository import Repository
from wtxtgit.remotes.folder import Folder
from wtxtgit.remotes.payload import cut_packs, git_packs
from wtxtgit.remotes.payload.git_packs import REFS, GitPacks
from wtxtgit.remotes.payload.place import OutgoingPack, TargetPacks
from wtxtgit.remotes.payload.served_packs import ServedPacks
from wtxtgit.store.pack import ChunkPack


class FilesBehind:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, file: str) -> bytes:
        return (self._folder / file).read_bytes()

    def write(self, file: str, content: bytes) -> None:
        (self._folder / file).write_bytes(content)

    def drop(self, file: str) -> None:
        (self._folder / file).unlink()


class StoreBehind:
    """A folder of a store of fsspec."""

    def __init__(self, fs: Any, folder: str) -> None:
        self._fs, self._folder = fs, folder

    def read(self, file: str) -> bytes:
        return bytes(self._fs.cat_file(f"{self._folder}/{file}"))

    def write(self, file: str, content: bytes) -> None:
        self._fs.pipe_file(f"{self._folder}/{file}", content)

    def drop(self, file: str) -> None:
        self._fs.rm_file(f"{self._folder}/{file}")


class RefsBehind:
    def __init__(self, bare: Path) -> None:
        self._bare = bare

    def read(self, file: str) -> bytes:
        return content_of(self._bare, f"{REFS}{file}")

    def write(self, file: str, content: bytes) -> None:
        oid = run.git("hash-object", "-w", "--stdin", stdin=content, cwd=self._bare)
        run.git("update-ref", f"{REFS}{file}", oid.decode().strip(), cwd=self._bare)

    def drop(self, file: str) -> None:
        run.git("update-ref", "-d", f"{REFS}{file}", cwd=self._bare)


class _FolderBehind:
    @pytest.fixture
    def writer(self, tmp_path: Path) -> TargetPacks:
        return TargetPacks(Folder(tmp_path / "there"))

    @pytest.fixture
    def behind(self, tmp_path: Path) -> FilesBehind:
        return FilesBehind(tmp_path / "there")


class TestAFolder(_FolderBehind, FileTests):
    tells_times = True
    tells_bytes = True

    @pytest.fixture
    def place(self, writer: TargetPacks) -> TargetPacks:
        return writer


class TestAStore(FileTests):
    tells_times = True

    @pytest.fixture
    def place(self) -> Iterator[TargetPacks]:
        import fsspec

        yield TargetPacks(Folder("memory://there"))
        fsspec.filesystem("memory").store.clear()

    @pytest.fixture
    def behind(self) -> StoreBehind:
        import fsspec

        return StoreBehind(fsspec.filesystem("memory"), "/there")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    run.git("init", "-q", "--bare", str(tmp_path / "bare.git"))
    return tmp_path / "bare.git"


@pytest.mark.slow
class TestAGitRemote(FileTests):
    gives_parts = False
    is_dear = True

    @pytest.fixture
    def place(self, repo: Repo, bare: Path) -> GitPacks:
        return GitPacks(Repository.discover(repo.path), bare.as_uri())

    @pytest.fixture
    def behind(self, bare: Path) -> RefsBehind:
        return RefsBehind(bare)

    def test_a_remote_that_takes_nothing_away(
        self, place: GitPacks, bare: Path, packs: list[ChunkPack]
    ) -> None:
        place.put([OutgoingPack.of(packs[0])])
        hook = bare / "hooks/update"
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
        with pytest.raises(RemoteRefused, match="hook declined"):
            place.remove([packs[0].path.stem])
        assert list(place.packs()) == [packs[0].path.stem]


class _Cut:
    """Of places where packs are cut, even small ones."""

    @pytest.fixture(autouse=True)
    def _is_cut(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (cut_packs, git_packs):
            monkeypatch.setattr(module, "CUT", 4096)
        monkeypatch.setattr(cut_packs, "_LEAST", 4096)


@pytest.mark.slow
class TestAGitRemoteWithCutPacks(_Cut, FileTests):
    is_dear = True

    @pytest.fixture
    def place(self, repo: Repo, bare: Path) -> GitPacks:
        return GitPacks(Repository.discover(repo.path), bare.as_uri())

    @pytest.fixture
    def behind(self, bare: Path) -> RefsBehind:
        return RefsBehind(bare)


@pytest.mark.slow
class TestAGitServerWithCutPacks(_Cut, PlaceTests):
    is_dear = True

    @pytest.fixture
    def behind(self, bare: Path) -> RefsBehind:
        return RefsBehind(bare)

    @pytest.fixture
    def place(self, repo: Repo, bare: Path, tmp_path: Path) -> Iterator[GitPacks]:
        run.git("config", "http.receivepack", "true", cwd=bare)
        with servers.git_backend(tmp_path) as host:
            yield GitPacks(Repository.discover(repo.path), f"{HTTP}{host}/{bare.name}")


@pytest.mark.slow
class TestAGitServer(PlaceTests):
    gives_parts = False
    is_dear = True

    @pytest.fixture
    def behind(self, bare: Path) -> RefsBehind:
        return RefsBehind(bare)

    @pytest.fixture
    def place(self, repo: Repo, bare: Path, tmp_path: Path) -> Iterator[GitPacks]:
        run.git("config", "http.receivepack", "true", cwd=bare)
        with servers.git_backend(tmp_path) as host:
            yield GitPacks(Repository.discover(repo.path), f"{HTTP}{host}/{bare.name}")


@pytest.mark.slow
class TestTransfersOfAGitServer(TransferTests):
    @pytest.fixture
    def remote(self, repo: Repo, bare: Path, tmp_path: Path) -> Iterator[Remote]:
        run.git("config", "http.receivepack", "true", cwd=bare)
        with servers.git_backend(tmp_path) as host, servers.counted(host) as wire:
            place = GitPacks(Repository.discover(repo.path), f"{HTTP}{wire.host}/{bare.name}")
            yield Remote(wire, place, place)


@pytest.mark.slow
class TestAGitServerThatIsStrange:
    @pytest.fixture
    def packs(self, tmp_path: Path) -> list[ChunkPack]:
        return three_packs(tmp_path / "store")

    @pytest.fixture
    def front(self, bare: Path, tmp_path: Path) -> Iterator[servers.Front]:
        with (
            servers.git_backend(tmp_path, asks_who=True) as host,
            servers.before(host) as front,
        ):
            yield front

    @pytest.fixture
    def place(self, repo: Repo, front: servers.Front) -> GitPacks:
        helper = repo.path.parent / "helper"
        helper.write_text(f"#!/bin/sh\necho username={servers.USER}\necho password={SECRET}\n")
        helper.chmod(0o755)
        repo.git("config", "credential.helper", str(helper))
        return GitPacks(Repository.discover(repo.path), f"{HTTP}{front.host}/bare.git")

    def test_it_wants_to_know_who_asks(
        self, repo: Repo, place: GitPacks, packs: list[ChunkPack]
    ) -> None:
        place.put([OutgoingPack.of(packs[0])])
        assert dict(place.ends(place.packs())) == {packs[0].path.stem: packs[0].end}
        repo.git("config", "--unset", "credential.helper")
        with pytest.raises(RemoteRefused) as raised:
            place.packs()
        refused(raised.value)

    def test_it_fails_once(
        self, place: GitPacks, front: servers.Front, packs: list[ChunkPack]
    ) -> None:
        place.put([OutgoingPack.of(packs[0])])
        name, size = packs[0].path.stem, packs[0].nbytes
        place.packs()
        for fault in (
            servers.Fault("info/refs", status=503, stays=True),
            servers.Fault("upload-pack$", bytes_given=50, command="POST", stays=True),
        ):
            front.faults = [fault]
            with pytest.raises(RemoteUnavailable) as raised:
                list(place.contents({name: size}))
            assert "\n" not in refused(raised.value)
        front.faults.clear()
        ((_, blocks),) = (
            (one, b"".join(map(bytes, came))) for one, came in place.contents({name: size})
        )
        assert blocks == packs[0].path.read_bytes()

    def test_it_hides_refs_or_takes_none(
        self, place: GitPacks, bare: Path, packs: list[ChunkPack]
    ) -> None:
        run.git("config", "receive.hideRefs", "refs/wtxt", cwd=bare)
        with pytest.raises(RemoteRefused, match="hidden"):
            place.put([OutgoingPack.of(packs[0])])
        run.git("config", "http.receivepack", "false", cwd=bare)
        with pytest.raises(RemoteRefused):
            place.put([OutgoingPack.of(packs[0])])


class TestAServedFolder(_FolderBehind, ReadingTests, SilenceTests):
    @pytest.fixture
    def front(self, tmp_path: Path) -> Iterator[servers.Front]:
        (tmp_path / "there").mkdir()
        with servers.files(tmp_path) as host, servers.before(host) as front:
            yield front

    @pytest.fixture
    def place(self, repo: Repo, front: servers.Front) -> ServedPacks:
        return ServedPacks(Repository.discover(repo.path), f"{HTTP}{front.host}/there")


class TestAServerOfWholeFiles(_FolderBehind, ReadingTests):
    gives_parts = False

    @pytest.fixture
    def place(self, repo: Repo, tmp_path: Path) -> Iterator[ServedPacks]:
        (tmp_path / "there").mkdir()
        with servers.files(tmp_path / "there", gives_parts=False) as host:
            yield ServedPacks(Repository.discover(repo.path), f"{HTTP}{host}")


@pytest.mark.slow
class TestKilledOfAGitServer(KilledTests):
    twice_of_push = sum(SIZES) * MIB
    """Git sends several packs at once."""

    @pytest.fixture
    def killing(self, tmp_path: Path) -> Iterator[Killing]:
        with servers.git_backend(tmp_path) as host, servers.counted(host) as wire:

            def place(name: str) -> dict[str, str]:
                bare = tmp_path / f"{name}.git"
                run.git("init", "-q", "--bare", str(bare))
                run.git("config", "http.receivepack", "true", cwd=bare)
                url = f"{HTTP}{wire.host}/{bare.name}"
                return {"wtxtgit.store": "git+origin", "remote.origin.url": url}

            yield Killing(wire, place, place)
