"""Servers that never end, or whose answers are hostile: each client ends, with an error of ours."""

from __future__ import annotations

import gzip
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.kit import Repo
from wtxtgit.errors import RemoteRefused, RemoteUnavailable, WtxtgitError
from wtxtgit.remotes import http, pace
from wtxtgit.remotes.lfs_batch import LfsServer
from wtxtgit.remotes.lfs_pointer import LfsObject
from wtxtgit.remotes.registry import Registry
from wtxtgit.remotes.release import Release
from wtxtgit.remotes.urls import ranges_at, read_url

pytestmark = pytest.mark.slow

OBJECT = LfsObject("0" * 64, 5000)
DEEP = b"[" * 100_000
START = b"HTTP/1.1 200 OK\r\n"
DRIP = 0.005
"""Seconds between two bytes."""
Answer = Callable[["Connection"], None]


class Connection(socketserver.StreamRequestHandler):
    """Answers all requests of a connection in one way."""

    answer: Answer

    def handle(self) -> None:
        # Who asks may hang up at any moment: that is what is tested.
        try:
            while self.rfile.readline().strip():
                size = 0
                while line := self.rfile.readline().strip():
                    name, _, value = line.partition(b":")
                    size = int(value) if name.lower() == b"content-length" else size
                self.rfile.read(size)
                type(self).answer(self)
        except OSError:
            pass

    def send(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()

    def drip(self, data: bytes) -> None:
        """Send byte by byte, for ever."""
        ended = self.server.ended  # type: ignore[attr-defined]
        while True:
            for at in range(len(data)):
                if ended.wait(DRIP):
                    return
                self.send(data[at : at + 1])


def drips_its_body(of: Connection) -> None:
    of.send(START + b"Content-Length: 5000\r\n\r\n")
    of.drip(b" ")


def drips_chunks(of: Connection) -> None:
    of.send(START + b"Transfer-Encoding: chunked\r\n\r\n")
    of.drip(b"1\r\n \r\n")


def drips_its_headers(of: Connection) -> None:
    of.send(START)
    of.drip(b"X: y\r\n")


def drips_its_status(of: Connection) -> None:
    of.drip(b"H")


def has_a_huge_header(of: Connection) -> None:
    of.send(START + b"X: " + b"y" * (1 << 20) + b"\r\n\r\n")


def redirects_for_ever(of: Connection) -> None:
    of.send(b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n")


def never_ends(of: Connection) -> None:
    of.send(START + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        of.send(b"10000\r\n" + b" " * 0x10000 + b"\r\n")


def is_a_gzip_bomb(of: Connection) -> None:
    body = gzip.compress(bytes(64 << 20))
    of.send(START + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def is_nested_deep(of: Connection) -> None:
    of.send(START + b"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n" + DEEP)


ANSWERS = (
    drips_its_body,
    drips_chunks,
    drips_its_headers,
    drips_its_status,
    has_a_huge_header,
    redirects_for_ever,
    never_ends,
    is_a_gzip_bomb,
    is_nested_deep,
)


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    kind = type("Answering", (Connection,), {"answer": staticmethod(answer)})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), kind) as server:
        server.daemon_threads = True
        server.ended = threading.Event()  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.ended.set()  # type: ignore[attr-defined]
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "SILENCE", 0.2)


def asks_a_batch(host: str, repo: Repo) -> None:
    LfsServer(repo.repository, "origin", "lfs", f"http://{host}/l").held([OBJECT])


def fetches_an_object(host: str, repo: Repo) -> None:
    with http.client("lfs") as client, client.stream("GET", f"http://{host}/o") as answer:
        http.received("lfs", "object", answer.iter_bytes(), OBJECT.nbytes)
    raise RemoteRefused("it is not what was asked for")


def asks_a_registry(host: str, repo: Repo) -> None:
    Registry(f"{host}/name").list()


def fetches_from_a_registry(host: str, repo: Repo) -> None:
    Registry(f"{host}/name").get("file")


def asks_a_forge(host: str, repo: Repo) -> None:
    Release("owner/name", "v1", api=f"http://{host}").list()


def reads_a_url(host: str, repo: Repo) -> None:
    read_url(f"http://{host}/file")
    raise RemoteRefused("it is not what was asked for")


def reads_a_part(host: str, repo: Repo) -> None:
    list(ranges_at(f"http://{host}/file", [(0, 100)]))


CLIENTS = (
    asks_a_batch,
    fetches_an_object,
    asks_a_registry,
    fetches_from_a_registry,
    asks_a_forge,
    reads_a_url,
    reads_a_part,
)


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_ends(repo: Repo, client: Callable[[str, Repo], None], answer: Answer) -> None:
    with answering(answer) as host, pytest.raises(WtxtgitError):
        client(host, repo)


def test_what_is_too_slow_can_be_tried_again(repo: Repo) -> None:
    with answering(drips_its_body) as host, pytest.raises(RemoteUnavailable, match="ReadTimeout"):
        asks_a_batch(host, repo)


@pytest.mark.parametrize("spelled", ["oci://{}/n/a", "lfs+http://{}/l"])
def test_json_that_is_nested_deep_is_refused(tracked: Repo, spelled: str) -> None:
    tracked.wtxtgit("track", "--detached", "*.npz")
    tracked.write("a.npz", bytes(range(256)) * 1024)
    tracked.git("remote", "add", "origin", str(tracked.path))
    tracked.add()
    tracked.commit()
    with answering(is_nested_deep) as host:
        tracked.git("config", "wtxtgit.store", spelled.format(host))
        done = tracked.wtxtgit("push", ok=(5,))
    assert b"this is a bug" not in done.stderr


def test_a_server_that_takes_too_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    def takes_little(of: Connection) -> None:
        ended = of.server.ended  # type: ignore[attr-defined]
        while not ended.wait(DRIP) and of.rfile.read(1 << 16):
            pass

    monkeypatch.setattr(pace, "SILENCE", 1)
    monkeypatch.setattr(pace, "LEAST", 1 << 40)
    with (
        answering(takes_little) as host,
        pytest.raises(RemoteUnavailable, match="WriteTimeout"),
        http.client("lfs") as client,
    ):
        client.put(f"http://{host}/o", content=(bytes(1 << 16) for _ in range(1 << 12)))


def test_a_pace_counts_only_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "SILENCE", 60)
    one = pace.Pace()
    for _ in range(100):
        one.counted(60 * pace.LEAST, 59.0)
    one.restart()
    one.counted(0, 59.0)
    one.restart()
    one.counted(0, 59.0)
    with pytest.raises(TimeoutError):
        one.counted(1, 1.0)
