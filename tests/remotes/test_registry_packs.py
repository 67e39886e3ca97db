"""Packs of payload at a container registry, against the registry of Debian's packages."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.stores import HTTP
from tests.e2e.test_detached import ATTRIBUTES, MODEL
from tests.kit import Repo
from tests.remotes import servers
from tests.remotes.behaviour import SECRET, refused
from tests.remotes.killed_transfers import KilledTests, Killing
from tests.remotes.places import (
    NEW,
    OLD,
    PlaceTests,
    PushFaultTests,
    SilenceTests,
    fetched,
    pushed,
    text,
    three_packs,
)
from tests.remotes.servers import Fault, Front
from tests.remotes.test_registry import HASHED, PROGRAM, logged_in, started
from tests.remotes.transfers import Remote, TransferTests
from tests.store.chunks import added
from wtxtgit.errors import EnvironmentFailure, RemoteRefused
from wtxtgit.git import run
from wtxtgit.io.files import view_file
from wtxtgit.io.workers import Workers
from wtxtgit.remotes import oci, pace
from wtxtgit.remotes.payload import registry_packs
from wtxtgit.remotes.payload.place import OutgoingPack
from wtxtgit.remotes.payload.registry_packs import RegistryPacks
from wtxtgit.remotes.target import Outgoing, outgoing
from wtxtgit.store.pack import ChunkPack
from wtxtgit.store.store import Store

pytestmark = [
    pytest.mark.remote,
    pytest.mark.skipif(
        PROGRAM is None, reason="docker-registry is not installed: make remotes-deps"
    ),
]
NAME = "models/payload"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("registry")


@pytest.fixture(scope="module")
def host(folder: Path) -> Iterator[str]:
    yield from started(folder)


@pytest.fixture
def front(host: str) -> Iterator[Front]:
    with servers.before(host) as front:
        yield front


class RegistryBehind:
    """A repository in the registry's folder: blobs lie there under their digests."""

    def __init__(self, data: Path, name: str) -> None:
        self._blobs = data / "docker/registry/v2/blobs/sha256"
        self._manifests = data / "docker/registry/v2/repositories" / name / "_manifests"

    def read(self, file: str) -> bytes:
        return self._blob(file).read_bytes()

    def write(self, file: str, content: bytes) -> None:
        self._blob(file).write_bytes(content)

    def drop(self, file: str) -> None:
        shutil.rmtree(self._blob(file).parent)

    def _blob(self, file: str) -> Path:
        name, _, kind = file.partition(".")
        if kind == "pack":
            return self._at(name)
        link = self._manifests / "tags" / name / "current/link"
        manifest = json.loads(self._at(link.read_text().removeprefix("sha256:")).read_bytes())
        return self._at(manifest["layers"][1]["digest"].removeprefix("sha256:"))

    def _at(self, digest: str) -> Path:
        return self._blobs / digest[:2] / digest / "data"


class TestARegistry(PlaceTests, SilenceTests, PushFaultTests):
    tells_bytes = True

    @pytest.fixture
    def name(self, request: pytest.FixtureRequest) -> str:
        words = request.node.name.replace("_", "-").replace("[", "-").replace(" ", "-")
        return f"{NAME}/{words.rstrip(']')}"

    @pytest.fixture
    def place(self, front: Front, name: str) -> RegistryPacks:
        return RegistryPacks(f"{front.host}/{name}")

    @pytest.fixture
    def behind(self, folder: Path, name: str) -> RegistryBehind:
        return RegistryBehind(folder / "data", name)

    def test_all_pages_of_tags(
        self, place: RegistryPacks, packs: list[ChunkPack], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(oci, "_AT_ONCE", 1)
        place.put([OutgoingPack.of(pack) for pack in packs])
        assert list(place.packs()) == [pack.path.stem for pack in packs]

    def test_a_pack_that_its_artifact_outlived(
        self, place: RegistryPacks, behind: RegistryBehind, packs: list[ChunkPack]
    ) -> None:
        place.put([OutgoingPack.of(pack) for pack in packs])
        sizes = {pack.path.stem: pack.nbytes for pack in packs}
        assert list(place.lost(sizes)) == []
        (one, two, _) = sizes
        behind.drop(f"{one}.pack")
        behind.write(f"{two}.pack", b"short")
        assert list(place.lost(sizes)) == [one, two]

    def test_artifacts_of_others(
        self, place: RegistryPacks, front: Front, name: str, packs: list[ChunkPack]
    ) -> None:
        place.put([OutgoingPack.of(packs[0])])
        pack, end = packs[0].path.stem, packs[0].end
        where = oci.Reference(front.host, name, None)
        index = outgoing("x", memoryview(end))
        content = Outgoing("x", view_file(packs[0].path), pack)
        layers = [(registry_packs.PACK, content), (registry_packs.INDEX, index)]
        with oci.opened("x", where) as there:
            # One of ours under the name of another pack, one without an end, one of another kind.
            there.tag("a" * 64, oci.artifact(registry_packs.PAYLOAD, layers, {}))
            there.tag("b" * 64, oci.artifact(registry_packs.PAYLOAD, layers[:1], {}))
            there.tag("c" * 64, oci.artifact("application/x", layers, {}))
            there.tag("latest", oci.artifact(registry_packs.PAYLOAD, layers, {}))
        others = [sign * 64 for sign in "abc"]
        assert sorted(place.packs()) == sorted([pack, *others])
        assert dict(place.ends(place.packs())) == {pack: end}
        assert list(place.times(place.packs())) == [pack]
        place.remove(others)
        assert sorted(place.packs()) == sorted([pack, *others])

    def test_a_registry_that_takes_nothing_away(
        self, place: RegistryPacks, front: Front, packs: list[ChunkPack]
    ) -> None:
        place.put([OutgoingPack.of(packs[0])])
        front.faults.append(Fault("manifests", status=405, command="DELETE"))
        with pytest.raises(RemoteRefused, match="405") as raised:
            place.remove([packs[0].path.stem])
        refused(raised.value)

    def test_two_push_at_once(self, front: Front, name: str, own: Path, tmp_path: Path) -> None:
        places = [RegistryPacks(f"{front.host}/{name}") for _ in range(2)]
        tasks = [partial(pushed, own, place, text(OLD), text(NEW)) for place in places]
        with Workers(tasks, 2) as done:
            assert [one.lacking for one in done] == [(), ()]
        came = fetched(tmp_path / "other", places[0], text(OLD), text(NEW))
        assert (came.lacking, came.refused) == ((), ())

    def test_tags_that_never_change(
        self, place: RegistryPacks, front: Front, packs: list[ChunkPack]
    ) -> None:
        for _ in range(2):
            place.put([OutgoingPack.of(packs[0])])
            front.faults.append(Fault("manifests", status=400, command="PUT"))
        with pytest.raises(RemoteRefused, match="400"):
            place.put([OutgoingPack.of(packs[1])])


def test_with_a_password(tmp_path: Path, home: Path) -> None:
    (tmp_path / "users").write_text(f"user:{HASHED}\n")
    store = Store(tmp_path / "own")
    added(store, OLD)
    auth = f"auth: {{htpasswd: {{realm: x, path: {tmp_path}/users}}}}"
    for host in started(tmp_path, auth):
        place = RegistryPacks(f"{host}/x/private")
        with pytest.raises(RemoteRefused, match="authentication is required") as raised:
            pushed(store.folder, place, text(OLD))
        assert f"docker login {host}" in str(raised.value.hint)
        logged_in(home, host, SECRET)
        assert pushed(store.folder, place, text(OLD)).packs
        assert not fetched(tmp_path / "other", place, text(OLD)).lacking
        logged_in(home, host, "wrong")
        with pytest.raises(RemoteRefused, match="401") as raised:
            place.packs()
        refused(raised.value)


class Tokens(Front):
    """Gives who says the password a token, and the registry's answers to who has one."""

    def fault(self, command: str, path: str) -> Fault | None:
        told = self.told[-1]
        if path == "/token":
            self.asked.append("a token")
            basic = base64.b64encode(f"user:{SECRET}".encode()).decode()
            return Fault(status=200 if told == f"Basic {basic}" else 401, content=b'{"token": "t"}')
        if told != "Bearer t":
            about = f'Bearer realm="{HTTP}{self.host}/token",service="x",scope="all"'
            return Fault(status=401, headers={"WWW-Authenticate": about})
        return super().fault(command, path)


def test_with_tokens(host: str, home: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "own")
    added(store, OLD)
    with servers.before(host, kind=Tokens) as front:
        place = RegistryPacks(f"{front.host}/x/tokens")
        with pytest.raises(RemoteRefused, match="authentication is required"):
            place.packs()
        logged_in(home, front.host, SECRET)
        assert pushed(store.folder, place, text(OLD)).packs
        assert not fetched(tmp_path / "other", place, text(OLD)).lacking
        # One for each operation, and not for each request.
        assert front.asked.count("a token") < len(front.asked) / 2


class TestAStrangeRegistry:
    """What a registry that means no good would have asked for, and from whom."""

    @pytest.fixture
    def packs(self, tmp_path: Path) -> list[ChunkPack]:
        return three_packs(tmp_path / "store")

    @pytest.fixture
    def elsewhere(self, tmp_path: Path) -> Iterator[Front]:
        with servers.files(tmp_path) as host, servers.before(host) as front:
            yield front

    @pytest.fixture
    def place(self, front: Front, home: Path) -> RegistryPacks:
        logged_in(home, front.host, SECRET)
        return RegistryPacks(f"{front.host}/x/strange")

    def test_an_upload_to_another_host_is_not_told_who_asks(
        self,
        place: RegistryPacks,
        front: Front,
        elsewhere: Front,
        packs: list[ChunkPack],
    ) -> None:
        basic = {"WWW-Authenticate": "Basic realm=x"}
        front.faults.append(Fault("/v2/$", status=401, headers=basic))
        front.faults.append(Fault("uploads", status=401, headers=basic, command="POST"))
        at = {"Location": f"{HTTP}{elsewhere.host}/there"}
        front.faults.append(Fault("uploads", status=202, headers=at, command="POST"))
        elsewhere.faults.append(Fault("there", status=201, command="PUT", stays=True))
        with pytest.raises(RemoteRefused, match="400"):
            # Not all that the artifact names came to the registry.
            place.put([OutgoingPack.of(packs[0])])
        assert elsewhere.asked == ["PUT /there"]
        assert elsewhere.told == [None]
        assert any(told is not None for told in front.told)

    def test_pages_of_tags_of_another_host(
        self, place: RegistryPacks, front: Front, elsewhere: Front
    ) -> None:
        tags = json.dumps({"tags": ["a" * 64]}).encode()
        link = {"Link": f'<{HTTP}{elsewhere.host}/tags?last=x>; rel="next"'}
        front.faults.append(Fault("tags", status=200, headers=link, content=tags, stays=True))
        # The same page again and again would have no end.
        assert list(place.packs()) == ["a" * 64]
        assert len([line for line in front.asked if "tags" in line]) == 2
        assert not elsewhere.asked

    def test_too_many_tags_and_too_large_answers(
        self, place: RegistryPacks, front: Front, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tags = json.dumps({"tags": [f"{number:064}" for number in range(9)]}).encode()
        front.faults.append(Fault("tags", status=200, content=tags, stays=True))
        assert len(place.packs()) == 9
        monkeypatch.setattr(oci, "MAX_TAGS", 8)
        with pytest.raises(RemoteRefused, match="more than 8"):
            place.packs()
        monkeypatch.setattr(pace, "MOST", len(tags) - 1)
        with pytest.raises(RemoteRefused, match="too large"):
            place.packs()

    @pytest.mark.parametrize("content", [b"", b"[]", b'{"tags": 1}', b"<html>", b'{"tags": [1]}'])
    def test_what_is_no_list_of_tags(
        self, place: RegistryPacks, front: Front, content: bytes
    ) -> None:
        front.faults.append(Fault("tags", status=200, content=content))
        with suppress(EnvironmentFailure):
            assert list(place.packs()) == []

    def test_it_leads_to_where_there_is_no_tls(self) -> None:
        client = oci.OciRepository("x", oci.Reference("example.com", "x", None))
        for url in (f"{HTTP}127.0.0.1:1/", f"{HTTP}example.com/v2/"):
            with pytest.raises(RemoteRefused, match="without TLS"):
                client._client.session.get(url)


def test_the_commands(host: str, repo: Repo, driver: None, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    run.git("init", "-q", "--bare", "--initial-branch=main", str(bare))
    repo.git("symbolic-ref", "HEAD", "refs/heads/main")
    repo.git("remote", "add", "origin", bare.as_uri())
    repo.write(".gitattributes", ATTRIBUTES)
    repo.write("m.safetensors", MODEL)
    repo.add()
    repo.commit()
    url = f"oci://{host}/models/commands"
    assert url.encode() in repo.wtxtgit("store", "use", url).stdout
    assert url.encode() in repo.wtxtgit("push").stdout
    repo.git("push", "-q", "origin", "main")
    run.git("clone", "-q", bare.as_uri(), str(tmp_path / "other"))
    other = Repo(tmp_path / "other")
    other.wtxtgit("store", "use", url)
    other.wtxtgit("fetch")
    assert other.path.joinpath("m.safetensors").read_bytes() == MODEL
    gone = "oci://127.0.0.1:1/x/y"
    other.wtxtgit("store", "use", gone)
    shutil.rmtree(other.path / ".git/wtxt/store")
    done = other.wtxtgit("fetch", ok=(5,))
    assert (
        done.stderr == b"wtxtgit: error: oci://127.0.0.1:1/x/y: can't be reached: ConnectionError\n"
    )


@pytest.mark.slow
class TestTransfers(TransferTests):
    @pytest.fixture
    def remote(self, host: str, request: pytest.FixtureRequest) -> Iterator[Remote]:
        with servers.counted(host) as wire:
            place = RegistryPacks(f"{wire.host}/{NAME}/{request.node.name.replace('_', '-')}")
            yield Remote(wire, place, place)


@pytest.mark.slow
class TestKilled(KilledTests):
    @pytest.fixture
    def killing(self, host: str, request: pytest.FixtureRequest) -> Iterator[Killing]:
        with servers.counted(host) as wire:
            at = f"oci://{wire.host}/{NAME}/{request.node.name.replace('_', '-')}"

            def place(name: str) -> dict[str, str]:
                return {"wtxtgit.store": f"{at}/{name}"}

            yield Killing(wire, place, place)
