"""Files at URLs: what is read, what is refused, and what messages tell of a URL."""

from __future__ import annotations

import io
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import fsspec
import pytest
from fsspec import AbstractFileSystem

from tests.cluster.stores import HTTP, USER, http_store
from tests.docs.pages import tables
from wtxtgit.checkpoint.members import members
from wtxtgit.checkpoint.open import read
from wtxtgit.errors import EnvironmentFailure, InputError, RemoteUnavailable, WtxtgitError
from wtxtgit.io.spool import IN_MEMORY
from wtxtgit.io.view import write_all
from wtxtgit.remotes import urls

CONTENT = bytes(range(256)) * 10


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The URL of a store whose folder is `tmp_path`, with what may not be shown."""
    (tmp_path / "file").write_bytes(CONTENT)
    with http_store(tmp_path) as host:
        yield f"{HTTP}{USER}@{host}"


class Least(AbstractFileSystem):
    """A store with the methods alone that CONTRIBUTING asks for."""

    protocol = "least"
    store: ClassVar[dict[str, bytes]] = {}

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        if path not in self.store:
            raise FileNotFoundError(path)
        return {"name": path, "size": len(self.store[path]), "type": "file"}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        names = [name for name in self.store if name.startswith(f"{path}/")]
        return [self.info(name) for name in names] if detail else names

    def open(self, path: str, mode: str = "rb", **_: Any) -> io.BytesIO:
        return io.BytesIO(self.store[self._strip_protocol(path)])

    def put_file(self, lpath: str, rpath: str, **_: Any) -> None:
        self.store[rpath] = Path(lpath).read_bytes()

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        self.store[path2] = self.store[path1]

    def rm_file(self, path: str) -> None:
        del self.store[path]


def test_a_store_needs_no_more_than_contributing_asks_for() -> None:
    (row,) = [row for row in tables("CONTRIBUTING.md", "Adding a remote")[0] if "store's" in row[0]]
    asked = {span for span in re.findall(r"`(\w+)`", row[1]) if hasattr(AbstractFileSystem, span)}
    assert asked == {name for name, one in vars(Least).items() if callable(one)}
    fsspec.register_implementation(Least.protocol, Least, clobber=True)
    urls.write_url("least://run/x", lambda descriptor: write_all(descriptor, (CONTENT,)))
    assert bytes(urls.read_url("least://run/x")) == CONTENT
    assert Least.store.keys() == {"run/x"}
    assert urls.files_below("least://run") == [("x", len(CONTENT))]
    assert isinstance(refused("least://run/gone"), InputError)


def refused(url: str) -> WtxtgitError:
    with pytest.raises(WtxtgitError) as raised:
        urls.read_url(url)
    told = str(raised.value)
    assert "pass-word" not in told
    assert "token" not in told
    return raised.value


@pytest.mark.parametrize("name", ["s3://b/x", f"{HTTP}h/x", "a+b.c-1://x", "file:///x"])
def test_urls(name: str) -> None:
    assert urls.is_url(name)


@pytest.mark.parametrize("name", ["x", "HEAD:x", ":x", "C:/x", "a:/x", "/a://b", "://x", "S3://b"])
def test_no_urls(name: str) -> None:
    assert not urls.is_url(name)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (f"{HTTP}u:p@h/x?token=1#y", f"{HTTP}h/x"),
        (f"{HTTP}u:p@p@h/x@y", f"{HTTP}h/x@y"),
        (f"{HTTP}u:se/cret@h/x", f"{HTTP}h/x"),
        (f"{HTTP}u:se?cret@h/x", f"{HTTP}h/x"),
        (f"{HTTP}h:80/x@y", f"{HTTP}h:80/x@y"),
        (f"simplecache::{HTTP}u:p@h/x", f"simplecache::{HTTP}h/x"),
        ("s3://bucket/a\nb", "s3://bucket/a\\x0ab"),
    ],
)
def test_what_is_shown(url: str, told: str) -> None:
    assert urls.shown_url(url) == told


def test_the_name_of_a_file() -> None:
    assert urls.file_name(f"{HTTP}h/a/model.aero?x=/y") == "model.aero"


class TestReading:
    def test_over_http(self, url: str) -> None:
        assert bytes(urls.read_url(f"{url}/file?token=1")) == CONTENT
        assert bytes(read(f"{url}/file")) == CONTENT

    def test_more_than_stays_in_memory(self, url: str, tmp_path: Path) -> None:
        content = os.urandom(IN_MEMORY + 12345)
        (tmp_path / "large").write_bytes(content)
        assert bytes(urls.read_url(f"{url}/large")) == content

    def test_from_memory(self) -> None:
        import fsspec

        fsspec.filesystem("memory").pipe("/x", CONTENT)
        assert bytes(urls.read_url("memory://x")) == CONTENT

    def test_from_this_machine(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(CONTENT)
        assert bytes(urls.read_url(f"file://{tmp_path}/x")) == CONTENT
        assert urls.local_path(f"file://{tmp_path}/x") == tmp_path / "x"
        assert urls.local_path("memory://x") is None

    def test_a_file_that_is_called_so(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "s3:").mkdir()
        (tmp_path / "s3:" / "x").write_bytes(CONTENT)
        monkeypatch.chdir(tmp_path)
        assert bytes(read("s3://x")) == CONTENT

    def test_not_there(self, url: str) -> None:
        error = refused(f"{url}/gone?token=1")
        assert type(error) is InputError
        assert error.message.endswith("/gone: no such file")
        assert refused("file:///gone/x").exit_code == 3

    def test_a_server_that_does_not_answer(self) -> None:
        """Which says nothing about the file."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        error = refused(f"http://127.0.0.1:{port}/x")
        assert type(error) is RemoteUnavailable
        assert error.message == f"http://127.0.0.1:{port}/x: can't be reached: ClientConnectorError"

    def test_a_package_that_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def lacking(*_: object, **__: object) -> None:
            raise ModuleNotFoundError("No module named 'aiohttp'", name="aiohttp")

        monkeypatch.setattr("fsspec.core.url_to_fs", lacking)
        error = refused("http://127.0.0.1:1/x")
        assert error.message == "http://127.0.0.1:1/x: reading it needs aiohttp"
        assert error.hint == "pip install 'wtxtgit[dask]'"

    def test_without_the_password(self, url: str) -> None:
        error = refused(url.replace(USER, "user:other") + "/file")
        assert "other" not in error.message
        assert error.exit_code in (3, 5)

    def test_nobody_listens(self) -> None:
        assert refused(f"{HTTP}{USER}@127.0.0.1:1/x").exit_code in (3, 5)

    @pytest.mark.parametrize("wrong", [-5, 5])
    def test_of_another_length_than_told(self, tmp_path: Path, wrong: int) -> None:
        (tmp_path / "file").write_bytes(CONTENT)
        with http_store(tmp_path, wrong=wrong) as host:
            error = refused(f"{HTTP}{USER}@{host}/file")
        assert type(error) is InputError
        word = "more than" if wrong < 0 else f"ends after {len(CONTENT)} of"
        assert word in error.message

    def test_a_folder(self) -> None:
        import fsspec

        fsspec.filesystem("memory").mkdirs("/folder", exist_ok=True)
        assert refused("memory://folder").message == "memory://folder: is a folder"

    def test_no_room(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        class Usage(NamedTuple):
            free: int

        monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(len(CONTENT) - 1))
        error = refused(f"{url}/file")
        assert (error.exit_code, error.hint) == (5, "export TMPDIR=FOLDER chooses another folder")

    def test_no_such_store(self) -> None:
        error = refused("gopher://host/x")
        assert error.message == "gopher://host/x: no fsspec package for such URLs is installed"

    def test_a_store_whose_package_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "gcsfs", None)
        error = refused("gs://bucket/x")
        told = "gs://bucket/x: please install gcsfs to access Google Storage"
        assert (error.exit_code, error.message) == (5, told)

    def test_without_fsspec(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "fsspec.core", None)
        error = refused("s3://bucket/x")
        assert (error.exit_code, error.hint) == (5, "pip install 'wtxtgit[dask]'")


class TestMembers:
    def test_beside_the_index(self, url: str, tmp_path: Path) -> None:
        (tmp_path / "set" / "more").mkdir(parents=True)
        (tmp_path / "set" / "more" / "a b").write_bytes(CONTENT)
        for index in (f"{url}/set/index?token=1", f"file://{tmp_path}/set/index"):
            assert bytes(members(index)("more/a b")) == CONTENT

    @pytest.mark.parametrize(
        "path", ["a?b", "a#b", "%2e%2e/file", "..%2ffile", f"{HTTP}h/x", "a::b", "*", "[a]", "a\nb"]
    )
    def test_names_with_a_meaning(self, url: str, path: str) -> None:
        with pytest.raises(InputError, match="characters with a special meaning in URLs"):
            members(f"{url}/set/index")(path)

    @pytest.mark.parametrize("path", ["../file", "/file", "a/../../file", ""])
    def test_paths_that_lead_out(self, url: str, path: str) -> None:
        with pytest.raises(InputError, match="leads out of the set's folder"):
            members(f"{url}/set/index")(path)


class TestWriting:
    def test_to_memory(self) -> None:
        import fsspec

        assert urls.write_url("memory://out", lambda fd: _write(fd, CONTENT)) == len(CONTENT)
        assert fsspec.filesystem("memory").cat("/out") == CONTENT

    def test_what_was_sent_is_told(self) -> None:
        content, told = bytes(9 << 20), list[int]()
        urls.write_url("memory://large", lambda fd: _write(fd, content), told.append)
        assert sum(told) == len(content)
        assert max(told) < len(content)

    def test_to_this_machine(self, tmp_path: Path) -> None:
        urls.write_url(f"file://{tmp_path}/out", lambda fd: _write(fd, CONTENT))
        assert (tmp_path / "out").read_bytes() == CONTENT

    def test_where_nothing_can_be_written(self, url: str) -> None:
        with pytest.raises(EnvironmentFailure) as raised:
            urls.write_url(f"{url}/out", lambda fd: _write(fd, CONTENT))
        assert "pass-word" not in str(raised.value)


def _write(descriptor: int, content: bytes) -> None:
    os.write(descriptor, content)
