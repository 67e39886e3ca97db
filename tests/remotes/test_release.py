"""A GitHub release as a target, against a server that speaks its endpoints and fails."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.stores import HTTP
from tests.remotes.behaviour import SECRET, TEXT, TargetTests, fetched, file, names, refused, sha256
from tests.remotes.forge import Answer, Forge, Handler, running_forge
from wtxtgit.errors import EnvironmentFailure, RemoteRefused, RemoteUnavailable, UsageError
from wtxtgit.io.view import PIECE
from wtxtgit.remotes.release import Release

DATE = "Mon, 01 Jan 2024 00:00:00 GMT"
NOW = 1704067200


@pytest.fixture
def forge(monkeypatch: pytest.MonkeyPatch) -> Iterator[Forge]:
    monkeypatch.delenv("GH_TOKEN", raising=False)
    monkeypatch.setenv("GITHUB_TOKEN", SECRET)
    with running_forge() as forge:
        monkeypatch.setenv("GITHUB_API_URL", forge.api)
        yield forge


@pytest.fixture
def target(forge: Forge) -> Release:
    return Release("o/r", "runs/1")


class TestARelease(TargetTests):
    @pytest.fixture
    def target(self, forge: Forge) -> Release:
        return Release("o/r", "runs/1")


class TestWithoutDigests(TargetTests):
    @pytest.fixture
    def target(self, forge: Forge) -> Release:
        forge.tells_digests = False
        return Release("o/r", "runs/1")


def test_more_than_a_page(target: Release, forge: Forge) -> None:
    target.put([])
    for number in range(250):
        forge.add(f"x{number:03}", b"")
    assert len(names(target)) == 250
    assert list(target.put([file("x249", b""), file("y")])) == ["y"]


def test_no_token_is_logged(
    target: Release, forge: Forge, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    target.put([file("secret-name")])
    target.get("secret-name")
    assert SECRET not in caplog.text
    sent = [record for record in caplog.records if record.name == "httpx"]
    assert sent
    assert not any("?" in record.getMessage() for record in sent)


def test_an_upload_that_broke_off(target: Release, forge: Forge) -> None:
    target.put([])
    forge.add("x", b"ha", state="starter")
    assert names(target) == []
    assert not target.has("x", sha256(b"ha"))
    assert list(target.put([file("x")])) == ["x"]
    assert fetched(target, "x") == TEXT
    assert names(target) == ["x"]


def test_what_somebody_else_is_uploading(target: Release, forge: Forge) -> None:
    def meanwhile(handler: Handler) -> None:
        if "/up/" in handler.path:
            forge.add("x", b"ha", state="starter")

    forge.faults.append(meanwhile)
    with pytest.raises(RemoteUnavailable, match="x: somebody else is uploading it"):
        target.put([file("x")])


def test_what_arrives_damaged(target: Release, forge: Forge) -> None:
    def damage(handler: Handler) -> Answer | None:
        if handler.command == "POST" and "/up/" in handler.path:
            handler.body = handler.body[:-1] + b"!"
            return handler._answer()
        return None

    for tells in (True, False):
        forge.tells_digests = tells
        forge.faults.append(damage)
        with pytest.raises(RemoteUnavailable, match="arrived with different content"):
            target.put([file("x")])
        assert forge.assets == {}
    assert list(target.put([file("x")])) == ["x"]


@pytest.mark.parametrize(
    "request_line", ["POST /up/", "DELETE /repos/o/r/releases/assets/", "PATCH "]
)
@pytest.mark.parametrize("is_done", [False, True])
def test_a_replacement_that_stops_anywhere(
    target: Release, forge: Forge, request_line: str, is_done: bool
) -> None:
    """Each request of it lost, or its answer: the next attempt finishes it."""
    target.put([file("x", b"old")])

    def fault(handler: Handler) -> Answer | None:
        if not f"{handler.command} {handler.path}".startswith(request_line):
            return None
        if is_done:
            handler._answer()
        return 502, {}, b""

    forge.faults.append(fault)
    with pytest.raises(RemoteUnavailable):
        target.put([file("x", b"new")], replace=True)
    assert not forge.faults
    # Nobody sees a part of it.
    assert names(target) in ([], ["x"])
    for asset in forge.assets.values():
        assert asset["size"] == 3
    assert list(target.put([file("x", b"new")], replace=True)) in (["x"], [])
    assert fetched(target, "x", b"new") == b"new"
    assert names(target) == ["x"]
    assert len(forge.assets) == 1


def test_another_writer_is_faster(target: Release, forge: Forge) -> None:
    target.put([])
    for content, outcome in ((TEXT, None), (b"theirs", RemoteRefused)):
        name = f"x{len(content)}"

        def fault(handler: Handler, name: str = name, content: bytes = content) -> Answer | None:
            if "/up/" in handler.path:
                forge.add(name, content)
                return handler._answer()
            return None

        forge.faults.append(fault)
        if outcome is None:
            target.put([file(name)])
        else:
            with pytest.raises(outcome, match="with different content"):
                target.put([file(name)])
    forge.releases.clear()
    forge.once("GET", "tags/", (404, {}, {}))
    forge.releases["runs/1"] = 5
    assert list(target.put([file("y")])) == ["y"]


@pytest.mark.parametrize(
    ("status", "headers", "kind", "wait"),
    [
        (500, {}, RemoteUnavailable, None),
        (503, {"retry-after": "7"}, RemoteUnavailable, 7),
        (
            429,
            {"retry-after": "Mon, 01 Jan 2024 00:01:00 GMT", "date": DATE},
            RemoteUnavailable,
            60,
        ),
        (
            403,
            {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(NOW + 90), "date": DATE},
            RemoteUnavailable,
            90,
        ),
        (403, {"retry-after": "1"}, RemoteUnavailable, 1),
        (403, {"x-ratelimit-remaining": "5"}, RemoteRefused, None),
        (401, {}, RemoteRefused, None),
        (422, {}, RemoteRefused, None),
        (301, {"location": "/elsewhere"}, RemoteRefused, None),
        (200, {}, RemoteRefused, None),
    ],
)
def test_answers(
    target: Release,
    forge: Forge,
    status: int,
    headers: dict[str, str],
    kind: type[EnvironmentFailure],
    wait: float | None,
) -> None:
    forge.once("GET", "tags/", (status, headers, {"message": SECRET}))
    with pytest.raises(EnvironmentFailure) as raised:
        target.put([file("x")])
    assert type(raised.value) is kind
    assert getattr(raised.value, "retry_after", None) == wait
    refused(raised.value)
    assert list(target.put([file("x")])) == ["x"]


def test_an_upload_address_without_tls(target: Release, forge: Forge) -> None:
    answer = {"id": 1, "upload_url": f"{HTTP}example.com/up"}
    forge.once("GET", "tags/", (200, {}, answer))
    with pytest.raises(RemoteRefused, match="GitHub's REST API"):
        target.put([file("x")])


def test_a_listing_that_is_none(target: Release, forge: Forge) -> None:
    target.put([])
    for wrong in ({}, [1], [{"id": "x"}]):
        forge.once("GET", "/assets", (200, {}, wrong))
        with pytest.raises(RemoteRefused, match="GitHub's REST API"):
            target.list()


def test_a_download_that_is_too_long(target: Release, forge: Forge) -> None:
    target.put([file("x")])
    for content, words in ((TEXT + b"!", "more than"), (TEXT[:-1], f"{len(TEXT) - 1} of")):
        forge.once("GET", "/stored/", (200, {}, content))
        with pytest.raises(Exception, match=words):
            target.get("x")


class TestTokens:
    def test_from_a_file(
        self, forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GITHUB_TOKEN", "wrong")
        (tmp_path / "token").write_text(f"{SECRET}\n")
        target = Release("o/r", "t", token_file=tmp_path / "token")
        assert list(target.put([file("x")])) == ["x"]
        (tmp_path / "token").write_text(f"{SECRET}\nmore\n")
        with pytest.raises(EnvironmentFailure) as raised:
            target.put([file("x")])
        refused(raised.value)

    def test_from_gh(self, forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("GITHUB_TOKEN")
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(RemoteRefused) as raised:
            Release("o/r", "t").put([file("x")])
        refused(raised.value)
        program = tmp_path / "gh"
        words = "auth token --hostname 127.0.0.1"
        program.write_text(f'#!/bin/sh\n[ "$*" = "{words}" ] && echo {SECRET}\n')
        program.chmod(0o755)
        assert list(Release("o/r", "t").put([file("x")])) == ["x"]

    def test_not_from_a_folder_of_somebody_else(
        self, forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("GITHUB_TOKEN")
        program = tmp_path / "gh"
        program.write_text(f"#!/bin/sh\n>{tmp_path}/ran\n")
        program.chmod(0o755)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PATH", ".")
        with pytest.raises(RemoteRefused):
            Release("o/r", "t").put([file("x")])
        assert not (tmp_path / "ran").exists()


def test_a_broken_connection_during_the_upload(target: Release, forge: Forge) -> None:
    """A content that is not what it was leaves nothing but what the next attempt removes."""
    good = file("x", b"x" * (2 * PIECE))
    with pytest.raises(Exception, match="does not match"):
        target.put([good._replace(sha256=sha256(b"other"))])
    assert not forge.assets
    # A forge notices in its own time, and lists what came until then.
    forge.add("x", b"x", state="starter")
    assert names(target) == []
    assert list(target.put([good])) == ["x"]
    assert names(target) == ["x"]


@pytest.mark.parametrize(
    ("repo", "tag", "api"),
    [
        ("o", "t", None),
        ("o/r/x", "t", None),
        ("o/r", "", None),
        ("o/r", "t?x", None),
        ("o/r", "t", f"{HTTP}example.com"),
        ("o/r", "t", f"{HTTP}{SECRET}@127.0.0.1"),
        ("o/r", "t", "ftp:x"),
    ],
)
def test_what_can_not_be(repo: str, tag: str, api: str | None) -> None:
    with pytest.raises(UsageError) as raised:
        Release(repo, tag, api=api)
    assert SECRET not in str(raised.value)


def test_names_that_are_kept_for_parts(target: Release) -> None:
    with pytest.raises(UsageError):
        target.put([file("x.0123456789abcdef.part")])
    with pytest.raises(UsageError):
        target.put([file("a/b")])


def test_without_httpx(target: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(EnvironmentFailure, match="needs httpx") as raised:
        target.list()
    assert raised.value.hint == "pip install 'wtxtgit[stream]'"


def test_nobody_listens() -> None:
    target = Release("o/r", "t", api=f"{HTTP}127.0.0.1:1")
    with pytest.raises(RemoteUnavailable, match="can't be reached"):
        target.list()
