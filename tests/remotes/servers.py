"""Servers on loopback: of files, of git, and one before any other that fails as it is told to."""

from __future__ import annotations

import base64
import http.client
import os
import re
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.remotes.behaviour import SECRET
from wtxtgit.git import run

USER = "user"
SOCKETS = Path("/proc/net/tcp")
_CONNECTED = "01"
"""A state of a socket there: proc(5)."""
_ENDS_HERE = frozenset(("connection", "transfer-encoding", "content-length", "keep-alive"))


@contextmanager
def served(handler: Any, tls: Path | None = None) -> Iterator[str]:
    """Run a server, with the certificate and key of a file or without TLS; gives `HOST:PORT`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    asks_who = False

    def may(self) -> bool:
        """Whether who asks has said the password, where one is wanted."""
        wanted = base64.b64encode(f"{USER}:{SECRET}".encode()).decode()
        return not self.asks_who or self.headers.get("Authorization") == f"Basic {wanted}"

    def refuse(self) -> None:
        self.answer(401, {"WWW-Authenticate": 'Basic realm="x"'}, SECRET.encode())

    def handle_expect_100(self) -> bool:
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Files(SimpleHTTPRequestHandler):
    """Files of a folder; parts of them as well, with `gives_parts`."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def __init__(self, *args: Any, gives_parts: bool, asks_who: bool, **options: Any) -> None:
        self._gives_parts, self._asks_who = gives_parts, asks_who
        super().__init__(*args, **options)

    def end_headers(self) -> None:
        if self._gives_parts:
            self.send_header("Accept-Ranges", "bytes")
        super().end_headers()

    def do_GET(self) -> None:
        wanted = base64.b64encode(f"{USER}:{SECRET}".encode()).decode()
        if self._asks_who and self.headers.get("Authorization") != f"Basic {wanted}":
            self.send_error(401)
            return
        asked = re.fullmatch("bytes=([0-9]+)-([0-9]+)", self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if asked is None or not self._gives_parts or not path.is_file():
            super().do_GET()
            return
        content = path.read_bytes()
        start, end = int(asked[1]), int(asked[2]) + 1
        if start >= len(content):
            self.send_error(416)
            return
        part = content[start:end]
        self.send_response_only(206)
        self.send_header("Content-Range", f"bytes {start}-{start + len(part) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def files(folder: Path, *, gives_parts: bool = True, asks_who: bool = False) -> Iterator[str]:
    """Serve the files of a folder; gives `HOST:PORT`."""
    told = {"directory": str(folder), "gives_parts": gives_parts, "asks_who": asks_who}
    with served(partial(_Files, **told)) as host:
        yield host


class _Backend(_Handler):
    """git-http-backend(1), as a web server runs it."""

    root = ""

    def do_GET(self) -> None:
        body = self.body()
        if not self.may():
            self.refuse()
            return
        url = urlsplit(self.path)
        told = {
            "GIT_PROJECT_ROOT": self.root, "GIT_HTTP_EXPORT_ALL": "1", "REMOTE_USER": "somebody",
            "PATH_INFO": url.path, "QUERY_STRING": url.query, "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "REMOTE_ADDR": "127.0.0.1",
        }  # fmt: skip
        done = subprocess.run(
            [run.executable(), "http-backend"],
            input=body, env={**os.environ, **told}, stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.decode().split(": ", 1) for line in head.split(b"\r\n"))
        self.answer(int(headers.pop("Status", "200")[:3]), headers, content)

    do_POST = do_GET


@contextmanager
def git_backend(folder: Path, *, asks_who: bool = False) -> Iterator[str]:
    """Serve the repositories of a folder, for pushing too; gives `HOST:PORT`."""
    with served(type("Bound", (_Backend,), {"root": str(folder), "asks_who": asks_who})) as host:
        yield host


@dataclass
class Fault:
    """What is to go wrong with answers to requests for a path, a regular expression.

    `status` is answered at once, with `headers`; `bytes_given` are all that come
    of what was promised; `content` comes instead; `hangs` says nothing until the server ends. Once,
    unless it `stays`.
    """

    path: str = ""
    status: int | None = None
    bytes_given: int | None = None
    content: bytes | None = None
    hangs: bool = False
    stays: bool = False
    command: str = "GET"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Front:
    """A server before another one: what it was asked, by whom, and what it is to do otherwise."""

    host: str = ""
    faults: list[Fault] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    told: list[str | None] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def fault(self, command: str, path: str) -> Fault | None:
        self.asked.append(f"{command} {path}")
        for fault in self.faults:
            if fault.command == command and re.search(fault.path, path):
                if not fault.stays:
                    self.faults.remove(fault)
                return fault
        return None


class _Front(_Handler):
    front: Front
    behind = ""

    def do_any(self) -> None:
        body = self.body()
        self.front.told.append(self.headers.get("Authorization"))
        fault = self.front.fault(self.command, urlsplit(self.path).path)
        if fault is not None and fault.hangs:
            self.front.ended.wait()
            self.close_connection = True
            return
        if fault is not None and fault.status is not None:
            self.answer(fault.status, fault.headers, fault.content or SECRET.encode())
            return
        connection = http.client.HTTPConnection(self.behind)
        headers = {name: v for name, v in self.headers.items() if name.lower() not in _ENDS_HERE}
        connection.request(self.command, self.path, body, {**headers, "Connection": "close"})
        with connection.getresponse() as answer:
            try:
                content = answer.read()
            except http.client.IncompleteRead as error:
                content = error.partial
            told = {k: v for k, v in answer.getheaders() if k.lower() not in _ENDS_HERE}
            if self.command == "HEAD":
                told["Content-Length"] = answer.headers.get("Content-Length", "0")
        connection.close()
        if fault is not None and fault.content is not None:
            content = fault.content
        if fault is not None and fault.bytes_given is not None:
            told["Content-Length"] = str(len(content))
            content = content[: fault.bytes_given]
            self.close_connection = True
        with suppress(ConnectionError):
            self.answer(answer.status, told, content)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_any


@contextmanager
def before(host: str, tls: Path | None = None, kind: type[Front] = Front) -> Iterator[Front]:
    """Have a server before that at `HOST:PORT`."""
    front = kind()
    handler = type("Bound", (_Front,), {"front": front, "behind": host})
    with served(handler, tls) as front.host:
        try:
            yield front
        finally:
            front.ended.set()


@dataclass
class Wire:
    """What passes between a server and those that ask it: bytes `sent` to it, and `given` by it."""

    host: str = ""
    sent: int = 0
    given: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    _most: int | None = None
    _is_over: threading.Event = field(default_factory=threading.Event)
    _goes_on: threading.Event = field(default_factory=threading.Event)

    def clear(self) -> None:
        self.sent = self.given = 0

    @contextmanager
    def held(self, most: int) -> Iterator[threading.Event]:
        """Let no more bytes pass than so many, both ways together; gives what is set then."""
        with self.lock:
            self._most, self._is_over = self.sent + self.given + most, threading.Event()
            self._goes_on = threading.Event()
        try:
            yield self._is_over
        finally:
            with self.lock:
                self._most = None
            self._goes_on.set()

    def wait_until_read(self) -> None:
        """Wait until nothing that passed is left unread, in the buffers of who asked for it."""
        ends = f":{int(self.host.rpartition(':')[2]):04X}"
        is_unread = True
        while is_unread:
            sockets = [row.split() for row in SOCKETS.read_text().splitlines()[1:]]
            is_unread = any(
                int(queues.partition(":")[2], 16)
                for _, _, other, state, queues, *_ in sockets
                if other.endswith(ends) and state == _CONNECTED
            )

    def _count(self, piece: bytes, *, is_answer: bool) -> bytes:
        """Count a piece, and give what of it may pass."""
        with self.lock:
            if self._most is not None:
                piece = piece[: self._most - self.sent - self.given]
            if is_answer:
                self.given += len(piece)
            else:
                self.sent += len(piece)
            if self.sent + self.given == self._most:
                self._is_over.set()
        return piece

    def carry(self, source: socket.socket, to: socket.socket, *, is_answer: bool) -> None:
        """Carry bytes until one of both ends."""
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                passed = self._count(piece, is_answer=is_answer)
                to.sendall(passed)
                if len(passed) < len(piece):
                    self._goes_on.wait()
                    break
        with suppress(OSError):
            to.shutdown(socket.SHUT_WR)


@contextmanager
def counted(host: str) -> Iterator[Wire]:
    """Count the bytes of all connections to a server at `HOST:PORT`, headers among them."""
    wire = Wire()
    name, _, port = host.rpartition(":")

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((name, int(port))) as behind:
                asking = threading.Thread(
                    target=wire.carry, args=(self.request, behind), kwargs={"is_answer": False}
                )
                asking.start()
                wire.carry(behind, self.request, is_answer=True)
                asking.join()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Relay) as relay:
        thread = threading.Thread(target=relay.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        wire.host = f"127.0.0.1:{relay.server_address[1]}"
        try:
            yield wire
        finally:
            relay.shutdown()
            thread.join()
