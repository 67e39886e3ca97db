"""S3 as a target, against moto's server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.cluster.stores import HTTP
from tests.remotes.behaviour import SECRET, RangedTests, TargetTests, file, refused
from tests.remotes.killed_transfers import KilledTests, Killing
from tests.remotes.places import FaultTests, FileTests, PushFaultTests
from tests.remotes.servers import Front, Wire, before, counted
from tests.remotes.test_pack_places import StoreBehind
from tests.remotes.transfers import Remote, TransferTests
from wtxtgit.errors import RemoteRefused
from wtxtgit.remotes.folder import Folder
from wtxtgit.remotes.payload.place import TargetPacks

pytestmark = pytest.mark.remote


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    running = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"{HTTP}{host}:{port}"
    running.stop()


@pytest.fixture(autouse=True)
def credentials(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _configure(server, monkeypatch)


def _configure(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.fixture(scope="module")
def bucket(server: str) -> Iterator[str]:
    import s3fs

    with pytest.MonkeyPatch.context() as patch:
        _configure(server, patch)
        # The server's first answer may take so long that the request is sent again.
        with suppress(FileExistsError):
            s3fs.S3FileSystem().mkdir("bucket")
    yield "bucket"
    s3fs.S3FileSystem.clear_instance_cache()


class TestS3(RangedTests, TargetTests):
    @pytest.fixture
    def target(self, bucket: str, request: pytest.FixtureRequest) -> Folder:
        return Folder(f"s3://{bucket}/runs/{request.node.name}")


def test_a_bucket_that_is_not_there() -> None:
    with pytest.raises(RemoteRefused) as raised:
        Folder("s3://gone/x").put([file("y")])
    refused(raised.value)


class TestPacks(FileTests, FaultTests, PushFaultTests):
    tells_times = True
    is_dear = True

    @pytest.fixture
    def front(self, server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
        import s3fs

        with before(server.removeprefix(HTTP)) as front:
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"{HTTP}{front.host}")
            monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
            s3fs.S3FileSystem.clear_instance_cache()
            yield front
        s3fs.S3FileSystem.clear_instance_cache()

    @pytest.fixture
    def folder(self, bucket: str, request: pytest.FixtureRequest) -> str:
        return f"{bucket}/packs/{request.node.name}"

    @pytest.fixture
    def place(self, folder: str) -> TargetPacks:
        return TargetPacks(Folder(f"s3://{folder}"))

    @pytest.fixture
    def behind(self, folder: str) -> StoreBehind:
        import s3fs

        return StoreBehind(s3fs.S3FileSystem(), folder)


@pytest.fixture
def wire(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """A relay before the server, by which everything goes."""
    with counted(server.removeprefix(HTTP)) as relay:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"{HTTP}{relay.host}")
        yield relay


@pytest.mark.slow
class TestTransfers(TransferTests):
    @pytest.fixture
    def remote(self, wire: Wire, bucket: str, request: pytest.FixtureRequest) -> Iterator[Remote]:
        import s3fs

        s3fs.S3FileSystem.clear_instance_cache()
        place = TargetPacks(Folder(f"s3://{bucket}/transfers/{request.node.name}"))
        yield Remote(wire, place, place)
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.slow
class TestKilled(KilledTests):
    @pytest.fixture
    def killing(self, wire: Wire, bucket: str, request: pytest.FixtureRequest) -> Killing:
        def place(name: str) -> dict[str, str]:
            return {"wtxtgit.store": f"s3://{bucket}/{request.node.name}/{name}"}

        return Killing(wire, place, place)
