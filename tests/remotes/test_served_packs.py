"""A folder that a web server gives: where it leads, who is told who asks, and what it is not."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.stores import HTTP
from tests.kit import Repo
from tests.remotes import servers
from tests.remotes.behaviour import SECRET, refused
from tests.remotes.killed_transfers import KilledTests, Killing
from tests.remotes.places import NEW, OLD, fetched, holds, pushed, text
from tests.remotes.servers import USER, Fault, Front
from tests.remotes.transfers import Remote, TransferTests
from tests.store.chunks import added
from wtxtgit.errors import InputError, RemoteRefused, RemoteUnavailable
from wtxtgit.git.repository import Repository
from wtxtgit.io.view import mapped
from wtxtgit.remotes import http
from wtxtgit.remotes.folder import Folder
from wtxtgit.remotes.http import HttpAnswer
from wtxtgit.remotes.payload import served_packs
from wtxtgit.remotes.payload.place import LIST, TargetPacks
from wtxtgit.remotes.payload.served_packs import ServedPacks
from wtxtgit.store.store import Store

HTTPS = HTTP.replace("p:", "ps:")


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A folder of packs."""
    store = Store(tmp_path / "own")
    added(store, OLD)
    assert pushed(store.folder, TargetPacks(Folder(tmp_path / "there")), text(OLD)).packs
    return tmp_path / "there"


@pytest.fixture
def front(there: Path) -> Iterator[Front]:
    with servers.files(there, asks_who=True) as host, servers.before(host) as front:
        yield front


def place(repo: Repo, url: str) -> ServedPacks:
    return ServedPacks(Repository.discover(repo.path), url)


@pytest.fixture
def known(repo: Repo) -> Path:
    """Have git know the password; gives the file in which the helper says what it heard."""
    heard = repo.path.parent / "heard"
    helper = repo.path.parent / "helper"
    helper.write_text(
        f'#!/bin/sh\necho "$1" >>"{heard}"\n'
        f'[ "$1" = get ] && echo "username={USER}" && echo "password={SECRET}"\n'
    )
    helper.chmod(0o755)
    repo.git("config", "credential.helper", str(helper))
    return heard


def test_credentials_of_git_are_told_once_they_are_wanted(
    repo: Repo, known: Path, front: Front, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    assert not fetched(other, place(repo, f"{HTTP}{front.host}"), text(OLD)).lacking
    assert holds(other, OLD)
    assert front.told[0] is None
    assert None not in front.told[1:]
    assert known.read_text().split() == ["get", "store"]


def test_a_wrong_password(repo: Repo, known: Path, front: Front, there: Path) -> None:
    front.faults.append(Fault(LIST, status=401, stays=True))
    there_now = place(repo, f"{HTTP}{front.host}")
    with pytest.raises(RemoteRefused, match="401") as raised:
        there_now.packs()
    refused(raised.value)
    assert known.read_text().split() == ["get", "erase"]
    assert SECRET not in repr(there_now._login)


def test_nobody_knows_the_password(repo: Repo, front: Front) -> None:
    with pytest.raises(RemoteRefused, match="401") as raised:
        place(repo, f"{HTTP}{front.host}").packs()
    refused(raised.value)


def test_a_bucket_that_forbids_what_is_not_there(repo: Repo, there: Path, tmp_path: Path) -> None:
    (name,) = (path.stem for path in there.glob("*.pack"))
    with servers.files(there) as host, servers.before(host) as front:
        for file in ("index", "pack"):
            front.faults = [Fault(f"{name}.{file}", status=403)]
            done = fetched(tmp_path / "other", place(repo, f"{HTTP}{front.host}"), text(OLD))
            assert done.lacking
            assert [(pack.pack, pack.why) for pack in done.refused] == [
                (name, "could not be fetched")
            ]
        front.faults = [Fault(LIST, status=403)]
        with pytest.raises(RemoteRefused, match="403"):
            place(repo, f"{HTTP}{front.host}").packs()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<!doctype html>", "not a list of packs"),
        (f"{'a' * 64}\n{'a' * 64}\n".encode(), "not a list of packs"),
        (f"{'b' * 64}\n{'a' * 64}\n".encode(), "not a list of packs"),
        (f"../{'a' * 61}\n".encode(), "not a list of packs"),
        (b"\xff", "not a list of packs"),
        (b"a" * 1000, "too large"),
    ],
)
def test_what_is_no_list(
    repo: Repo, there: Path, content: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_packs, "_MOST_LIST", 999)
    (there / LIST).write_bytes(content)
    with servers.files(there) as host, pytest.raises(RemoteRefused, match=words):
        place(repo, f"{HTTP}{host}").packs()


def test_a_folder_without_a_list(repo: Repo, tmp_path: Path) -> None:
    with servers.files(tmp_path) as host, pytest.raises(RemoteRefused, match=LIST) as raised:
        place(repo, f"{HTTP}{host}/there").packs()
    assert "wtxtgit push" in str(raised.value.hint)


def test_it_can_only_be_read(repo: Repo, there: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "own")
    with servers.files(there) as host:
        url = f"{HTTP}{host}/"
        # Who has nothing to send is not in the way of a push.
        assert not pushed(store.folder, place(repo, url), text(OLD)).lacking
        added(store, NEW)
        with pytest.raises(RemoteRefused, match="is read-only") as raised:
            pushed(store.folder, place(repo, url), text(NEW))
        assert "store use" in str(raised.value.hint)
        with pytest.raises(RemoteRefused, match="is read-only"):
            place(repo, url).remove(["0" * 64])


def test_an_end_that_is_too_large(
    repo: Repo, there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_packs, "MAX_END", 10)
    with servers.files(there) as host:
        done = fetched(tmp_path / "other", place(repo, f"{HTTP}{host}"), text(OLD))
    assert done.lacking
    assert done.refused


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-days", "2", "-subj", "/CN=x", "-keyout", "key", "-out", "certificate",
            "-addext", "subjectAltName=DNS:store.example,DNS:elsewhere.example",
        ],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    both = folder / "both"
    both.write_bytes((folder / "key").read_bytes() + (folder / "certificate").read_bytes())
    return both


class TestWithTls:
    """Names of hosts that are not this machine's, which lead to it."""

    @pytest.fixture(autouse=True)
    def _names(self, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        asked = socket.getaddrinfo

        def found(host: Any, *rest: Any, **more: Any) -> Any:
            is_ours = str(host).endswith(".example")
            return asked("127.0.0.1" if is_ours else host, *rest, **more)

        monkeypatch.setattr(socket, "getaddrinfo", found)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        http._certificates.cache_clear()
        yield
        http._certificates.cache_clear()

    @pytest.fixture
    def fronts(self, there: Path, certificate: Path) -> Iterator[tuple[Front, Front, Front]]:
        """The folder for who says the password; the same to all, with TLS and without."""
        with ExitStack() as until:
            enter = until.enter_context
            guarded = enter(servers.files(there, asks_who=True))
            free = enter(servers.files(there))
            own = enter(servers.before(guarded, certificate))
            yield own, enter(servers.before(free, certificate)), enter(servers.before(free))

    def url(self, front: Front, host: str = "store.example") -> str:
        return f"{HTTPS}{host}:{front.host.partition(':')[2]}"

    def test_it_leads_to_another_host(
        self, repo: Repo, known: Path, fronts: tuple[Front, Front, Front], tmp_path: Path
    ) -> None:
        own, other, _ = fronts
        at = f"{self.url(other, 'elsewhere.example')}/"
        for file in (path.name for path in (tmp_path / "there").glob("*.*[kx]")):
            own.faults.append(Fault(file, status=302, headers={"Location": at + file}))
        done = fetched(tmp_path / "other", place(repo, self.url(own)), text(OLD))
        assert not done.lacking
        # Who asks is told to its own host alone.
        assert own.told[0] is None
        assert None not in own.told[1:]
        assert set(other.told) == {None}

    def test_its_own_host_is_told_who_asks_whatever_leads_there(
        self, repo: Repo, known: Path, fronts: tuple[Front, Front, Front]
    ) -> None:
        own, other, _ = fronts
        own.faults.append(Fault(LIST, status=307, headers={"Location": "/other/../" + LIST}))
        assert place(repo, self.url(own)).packs()
        assert not other.asked

    def test_it_leads_to_where_there_is_no_tls(
        self, repo: Repo, known: Path, fronts: tuple[Front, Front, Front]
    ) -> None:
        own, _, plain = fronts
        for location in (
            f"{HTTP}{plain.host}/{LIST}",
            f"{HTTP}elsewhere.example/",
            "ftp:/" + "/x/",
        ):
            own.faults.append(Fault(LIST, status=301, headers={"Location": location}))
            with pytest.raises(RemoteRefused, match="without TLS"):
                place(repo, self.url(own)).packs()
        assert not plain.asked

    def test_it_leads_on_and_on(self, repo: Repo, fronts: tuple[Front, Front, Front]) -> None:
        own, _, _ = fronts
        own.faults.append(Fault(LIST, status=302, headers={"Location": LIST}, stays=True))
        with pytest.raises(RemoteRefused, match="too many redirects"):
            place(repo, self.url(own)).packs()
        assert len(own.asked) < 10

    def test_a_certificate_that_is_not_trusted(
        self, repo: Repo, fronts: tuple[Front, Front, Front], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SSL_CERT_FILE")
        http._certificates.cache_clear()
        with pytest.raises(RemoteUnavailable, match="can't be reached"):
            place(repo, self.url(fronts[0])).packs()
        assert not fronts[0].asked


class TestParts:
    """Answers to who asks for parts of a file."""

    WHOLE = bytes(range(200))

    def parts(self, *answers: tuple[int, dict[str, str], bytes]) -> list[bytes]:
        left = list(answers)

        def ask(_: str) -> Any:
            status, headers, content = left.pop(0)
            return nullcontext(HttpAnswer(status, headers, [content]))

        spans = [(10, 20), (5, 15)]
        return [bytes(mapped(part)) for part in http.ranges("x", "f", 200, spans, ask)]

    def part(self, start: int, end: int) -> tuple[int, dict[str, str], bytes]:
        told = {"content-range": f"bytes {start}-{end - 1}/200"}
        return 206, told, self.WHOLE[start:end]

    def test_parts_and_the_whole(self) -> None:
        wanted = [self.WHOLE[10:20], self.WHOLE[5:15]]
        assert self.parts(self.part(10, 20), self.part(5, 15)) == wanted
        # A server that gives all of it is asked once.
        assert self.parts((200, {}, self.WHOLE)) == wanted
        assert self.parts(self.part(10, 20), (200, {}, self.WHOLE)) == wanted

    @pytest.mark.parametrize("status", [404, 410, 416])
    def test_what_is_gone_or_shorter(self, status: int) -> None:
        with pytest.raises(InputError, match="gone"):
            self.parts((status, {}, b""))

    def test_other_answers(self) -> None:
        with pytest.raises(InputError, match="a different part"):
            self.parts(self.part(11, 21))
        with pytest.raises(InputError, match="5 of its 10 bytes"):
            self.parts((206, self.part(10, 20)[1], b"short"))
        with pytest.raises(InputError, match="more than"):
            self.parts((206, self.part(10, 20)[1], b"much too long"))
        with pytest.raises(InputError, match="more than"):
            self.parts((200, {}, self.WHOLE + b"x"))
        with pytest.raises(RemoteUnavailable, match="503"):
            self.parts((503, {}, b""))


@pytest.mark.slow
class TestTransfers(TransferTests):
    """Of what is fetched: it is written to as a folder."""

    @pytest.fixture
    def remote(self, repo: Repo, tmp_path: Path) -> Iterator[Remote]:
        folder = tmp_path / "served"
        folder.mkdir()
        with servers.files(folder) as host, servers.counted(host) as wire:
            yield Remote(wire, place(repo, f"{HTTP}{wire.host}"), TargetPacks(Folder(folder)))


@pytest.mark.slow
class TestKilled(KilledTests):
    test_a_push = None  # type: ignore[assignment]

    @pytest.fixture
    def killing(self, tmp_path: Path) -> Iterator[Killing]:
        folder = tmp_path / "served"
        folder.mkdir()
        with servers.files(folder) as host, servers.counted(host) as wire:
            yield Killing(
                wire,
                lambda name: {"wtxtgit.store": f"{HTTP}{wire.host}/{name}"},
                lambda name: {"wtxtgit.store": (folder / name).as_uri()},
            )
