"""A git-lfs server behind a branch as a target: giftless, and git-lfs itself as a reader."""

from __future__ import annotations

import base64
import pickle
import shutil
from pathlib import Path

import pytest

from tests.cluster.stores import HTTP
from tests.kit import Repo
from tests.remotes.behaviour import SECRET, TEXT, TargetTests, fetched, file, names, refused, sha256
from tests.remotes.lfs_server import Server, server, started
from wtxtgit.errors import (
    EnvironmentFailure,
    InputError,
    RemoteRefused,
    RemoteUnavailable,
    UsageError,
)
from wtxtgit.git.credentials import Login
from wtxtgit.remotes.lfs_batch import _BatchSession
from wtxtgit.remotes.lfs_target import LFS

__all__ = ["server", "started"]
pytestmark = pytest.mark.remote
HTTPS = HTTP.replace("p:", "ps:")


@pytest.fixture
def bare(repo: Repo, server: Server) -> Repo:
    made = Repo(repo.path.parent / "bare.git")
    repo.git("init", "-q", "--bare", "-b", "main", str(made.path))
    repo.git("remote", "add", "origin", str(made.path))
    repo.git("config", "lfs.url", server.url)
    return made


@pytest.fixture
def target(repo: Repo, bare: Repo) -> LFS:
    return LFS("origin", "snapshots", "runs/1", repository=repo.path)


class TestLfs(TargetTests):
    @pytest.fixture
    def target(self, repo: Repo, bare: Repo) -> LFS:
        return LFS("origin", "snapshots", "runs/1", repository=repo.path)


def test_the_branch_has_pointers(target: LFS, bare: Repo, server: Server) -> None:
    target.put([file("x"), file("empty", b"")])
    assert bare.git("cat-file", "blob", "snapshots:runs/1/x").decode() == (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(TEXT)}\nsize {len(TEXT)}\n"
    )
    assert bare.git("cat-file", "blob", "snapshots:runs/1/empty") == b""
    assert server.objects() == [sha256(TEXT)]
    assert [stored.sha256 for stored in target.list()] == [None, sha256(TEXT)]
    # The content is asked for by its name, and sent once.
    puts = [line for line in server.gate.asked if line.startswith("PUT")]
    target.put([file("y")])
    assert [line for line in server.gate.asked if line.startswith("PUT")] == puts


@pytest.mark.skipif(
    shutil.which("git-lfs") is None, reason="git-lfs is not installed: apt install git-lfs"
)
def test_git_lfs_reads_it(target: LFS, bare: Repo, server: Server, home: Path) -> None:
    target.put([file("x", b"a\r\n"), file("empty", b"")])
    bare.git("config", "--global", "filter.lfs.process", "git-lfs filter-process")
    bare.git("config", "--global", "filter.lfs.required", "true")
    bare.git("config", "--global", "lfs.url", server.url)
    clone = bare.clone("clone", "-b", "snapshots")
    assert (clone.path / "runs/1/x").read_bytes() == b"a\r\n"
    assert clone.status() == b""


def test_what_is_no_pointer_is_read_as_it_is(target: LFS, bare: Repo) -> None:
    target.put([file("x")])
    clone = bare.clone("clone", "-b", "snapshots")
    attributes = clone.path / "runs/1/.gitattributes"
    attributes.write_text("* -filter\n")
    clone.write("runs/1/plain", b"plain")
    clone.add()
    clone.commit()
    clone.git("push", "-q", "origin", "snapshots")
    assert fetched(target, "plain", b"plain") == b"plain"
    assert target.has("plain", sha256(b"plain"))
    assert [stored.nbytes for stored in target.list()] == [5, len(TEXT)]


def test_an_object_that_is_lost(target: LFS, server: Server) -> None:
    target.put([file("x")])
    (path,) = (path for path in server.folder.rglob("*") if path.is_file())
    path.write_bytes(TEXT[:-1] + b"!")
    with pytest.raises(InputError, match="does not match"):
        target.get("x")
    path.unlink()
    assert not target.has("x", sha256(TEXT))
    with pytest.raises(InputError, match="the server has no"):
        target.get("x")


class TestPasswords:
    @pytest.fixture
    def helper(self, repo: Repo, home: Path) -> Path:
        """A credential helper that notes what it is asked to keep and to forget."""
        script = home / "helper"
        script.write_text(
            f'#!/bin/sh\necho "$1" >>{home}/verbs\n'
            f'[ "$1" = get ] && echo username=user && echo "password=$(cat {home}/password)"\n'
            "exit 0\n"
        )
        script.chmod(0o755)
        repo.git("config", "--global", "credential.helper", str(script))
        return home

    def test_of_a_helper(self, target: LFS, server: Server, helper: Path) -> None:
        server.gate.is_closed = True
        (helper / "password").write_text("wrong")
        with pytest.raises(RemoteRefused) as raised:
            target.put([file("x")])
        refused(raised.value)
        assert (helper / "verbs").read_text().split() == ["get", "erase"]
        (helper / "password").write_text(SECRET)
        assert list(target.put([file("x")])) == ["x"]
        assert (helper / "verbs").read_text().split()[2:] == ["get", "store"]
        assert fetched(target, "x") == TEXT

    def test_without_one(self, target: LFS, server: Server) -> None:
        server.gate.is_closed = True
        with pytest.raises(RemoteRefused) as raised:
            target.put([file("x")])
        refused(raised.value)
        assert names(target) == []

    def test_as_a_header(self, target: LFS, repo: Repo, server: Server) -> None:
        server.gate.is_closed = True
        token = base64.b64encode(f"user:{SECRET}".encode()).decode()
        root = server.url.partition("/o/")[0]
        repo.git("config", f"http.{root}/.extraheader", f"AUTHORIZATION: Basic {token}")
        assert list(target.put([file("x")])) == ["x"]
        assert fetched(target, "x") == TEXT

    def test_in_the_url(self, repo: Repo, bare: Repo, server: Server) -> None:
        server.gate.is_closed = True
        url = server.url.replace("//", f"//user:{SECRET}@")
        target = LFS("origin", "b", repository=repo.path, url=url)
        assert list(target.put([file("x")])) == ["x"]
        assert SECRET not in repr(target) + repr(vars(target))


@pytest.mark.parametrize(
    ("path", "status", "headers", "body", "kind"),
    [
        ("/batch", "503 X", [("Retry-After", "9")], b"", RemoteUnavailable),
        ("/batch", "404 X", [], b"", RemoteRefused),
        ("/batch", "200 OK", [], b"<html>", RemoteRefused),
        ("/batch", "200 OK", [], b'{"objects": []}', RemoteRefused),
        ("/batch", "200 OK", [], b'{"transfer": "tus", "objects": []}', RemoteRefused),
        ("/batch", "200 OK", [], b'{"objects": [{"oid": "00", "size": 1}]}', RemoteRefused),
        ("/verify", "422 X", [], b"", RemoteUnavailable),
        ("/storage/", "500 X", [], b"", RemoteUnavailable),
        ("/storage/", "403 X", [], b"", RemoteRefused),
        ("/storage/", "507 X", [], b"", RemoteUnavailable),
    ],
)
def test_answers(
    target: LFS,
    server: Server,
    bare: Repo,
    path: str,
    status: str,
    headers: list[tuple[str, str]],
    body: bytes,
    kind: type[EnvironmentFailure],
) -> None:
    server.gate.answers.append((path, status, headers, body))
    with pytest.raises(EnvironmentFailure) as raised:
        target.put([file("x")])
    assert type(raised.value) is kind
    refused(raised.value)
    if headers:
        assert getattr(raised.value, "retry_after", None) == float(headers[0][1])
    # No pointer without its content.
    assert bare.git("for-each-ref") == b""
    assert list(target.put([file("x")])) == ["x"]


@pytest.mark.parametrize(
    ("url", "server_url"),
    [
        (f"{HTTPS}example.com/o/r", f"{HTTPS}example.com/o/r.git/info/lfs"),
        (f"{HTTPS}example.com/o/r.git/", f"{HTTPS}example.com/o/r.git/info/lfs"),
        ("git@example.com:o/r.git", f"{HTTPS}example.com/o/r.git/info/lfs"),
        (
            HTTP.replace("http", "ssh") + "git@example.com:22/o/r",
            f"{HTTPS}example.com/o/r.git/info/lfs",
        ),
        ("/a/path", None),
        ("file:///a/path", None),
    ],
)
def test_the_server_of_a_remote(repo: Repo, url: str, server_url: str | None) -> None:
    repo.git("remote", "add", "other", url)
    repo.write(".lfsconfig", f"[lfs]\nurl = {HTTPS}example.com/elsewhere\n")
    if server_url is None:
        with pytest.raises(UsageError, match="git-lfs server is unknown"):
            LFS("other", "b", repository=repo.path)
    else:
        assert LFS("other", "b", repository=repo.path)._server._url == server_url


def test_another_process_may_have_it(target: LFS) -> None:
    again = pickle.loads(pickle.dumps(target))  # noqa: S301 - our own
    assert list(again.put([file("x")])) == ["x"]
    assert fetched(target, "x") == TEXT


def test_no_server_leads_away_from_tls(repo: Repo) -> None:
    import httpx

    def led(request: httpx.Request) -> httpx.Response:
        return httpx.Response(302, headers={"location": f"{HTTP}example.com/other"})

    url = f"{HTTPS}example.com/o/r"
    action = {"href": f"{url}/object"}
    with httpx.Client(transport=httpx.MockTransport(led)) as http:
        session = _BatchSession("label", http, url, Login(repo.repository, url))
        with pytest.raises(RemoteRefused, match="without TLS"), session.answered(action):
            pass
