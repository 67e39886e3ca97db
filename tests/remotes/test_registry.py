"""A container registry as a target, against the registry of Debian's packages."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.stores import HTTP
from tests.remotes.behaviour import SECRET, TEXT, TargetTests, file, refused, sha256
from wtxtgit.errors import (
    EnvironmentFailure,
    InputError,
    RemoteRefused,
    RemoteUnavailable,
    UsageError,
)
from wtxtgit.remotes.registry import Registry
from wtxtgit.remotes.target import Target

PROGRAM = shutil.which("docker-registry")
pytestmark = [
    pytest.mark.remote,
    pytest.mark.skipif(
        PROGRAM is None, reason="docker-registry is not installed: make remotes-deps"
    ),
]
HASHED = "$2y$05$abcdefghijklmnopqrstuu4XYrnjyxMF.SGjQrC5X43CRqFdyYs46"
"""SECRET by bcrypt, as htpasswd writes it."""
_READY = b"listening on"


def started(folder: Path, *more: str) -> Iterator[str]:
    """Run a registry that keeps its files in a folder; gives its host."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    lines = [
        "version: 0.1",
        "log: {level: info}",
        f"storage: {{filesystem: {{rootdirectory: {folder}/data}}, delete: {{enabled: true}}}}",
        f"http: {{addr: '{host}'}}",
        *more,
    ]
    config = folder / "config.yml"
    config.write_text("\n".join(lines))
    command = [str(PROGRAM), "serve", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stderr is not None
        try:
            told = b""
            for line in process.stderr:
                told += line
                if _READY in line:
                    break
            assert _READY in told, told
            # What it goes on to say would fill the pipe.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield host
        finally:
            process.kill()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from started(tmp_path_factory.mktemp("registry"))


class TestRegistry(TargetTests):
    @pytest.fixture
    def target(self, host: str, request: pytest.FixtureRequest) -> Target:
        return Registry(f"{host}/runs/{request.node.name.replace('_', '-')}:last")


def test_what_other_tools_see(host: str) -> None:
    from oras.provider import Registry as Client

    target = Registry(f"{host}/x/seen")
    target.put([file("a"), file("b", b"b")], about={"gen": "7", "root": "ab"})
    client = Client(hostname=host, insecure=True)
    for tag, titles in (("a", ["a"]), ("latest", ["a", "b"])):
        manifest = client.get_manifest(f"{host}/x/seen:{tag}")
        assert [
            layer["annotations"]["org.opencontainers.image.title"] for layer in manifest["layers"]
        ] == titles
        assert manifest["annotations"] == {"vnd.wtxtgit.gen": "7", "vnd.wtxtgit.root": "ab"}
        assert manifest["config"]["mediaType"] == "application/vnd.wtxtgit.delivery.v1+json"
    with pytest.raises(UsageError, match="can't be a tag"):
        target.put([file("latest")])
    with pytest.raises(UsageError, match="can't be a tag"):
        target.put([file("a/b")])


def test_artifacts_of_others(host: str, tmp_path: Path) -> None:
    from oras.provider import Registry as Client

    target = Registry(f"{host}/x/shared")
    target.put([file("a")])
    other = tmp_path / "other"
    other.write_bytes(b"other")
    client = Client(hostname=host, insecure=True)
    client.push(f"{host}/x/shared:theirs", files=[str(other)], disable_path_validation=True)
    assert [stored.name for stored in target.list()] == ["a"]
    with pytest.raises(InputError, match="not made by wtxtgit"):
        target.get("theirs")
    with pytest.raises(RemoteRefused, match="already has theirs"):
        target.put([file("theirs")])


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "users").write_text(f"user:{HASHED}\n")
    yield from started(tmp_path, f"auth: {{htpasswd: {{realm: x, path: {tmp_path}/users}}}}")


def test_with_a_password(guarded: str, home: Path) -> None:
    target = Registry(f"{guarded}/x/private")
    with pytest.raises(RemoteRefused) as raised:
        target.put([file("a")])
    refused(raised.value)
    logged_in(home, guarded, SECRET)
    assert list(target.put([file("a")])) == ["a"]
    assert target.has("a", sha256(TEXT))
    logged_in(home, guarded, "wrong")
    with pytest.raises(RemoteRefused) as raised:
        target.list()
    refused(raised.value)


def logged_in(home: Path, host: str, password: str) -> None:
    auth = base64.b64encode(f"user:{password}".encode()).decode()
    config = home / ".docker" / "config.json"
    config.parent.mkdir(exist_ok=True)
    config.write_text(json.dumps({"auths": {host: {"auth": auth}}}))


@pytest.mark.parametrize("package", ["requests", "oras.container"])
def test_without_oras(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(EnvironmentFailure, match="needs oras") as raised:
        Registry("127.0.0.1:1/x").list()
    assert raised.value.hint == "pip install 'wtxtgit[stream]'"


def test_nobody_listens() -> None:
    with pytest.raises(RemoteUnavailable, match="can't be reached"):
        Registry("127.0.0.1:1/x").put([file("a")])


@pytest.mark.parametrize(
    "reference", ["", "x", "host/", "host/UPPER", f"{HTTP}h/x", "h/x:t:u", "user:pw@h/x", "h/x@y"]
)
def test_what_is_no_reference(reference: str) -> None:
    with pytest.raises(UsageError):
        Registry(reference)
