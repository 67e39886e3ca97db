"""giftless, a server of git-lfs, and what may go wrong before it."""

from __future__ import annotations

import base64
import logging
import re
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.stores import HTTP
from tests.remotes.behaviour import SECRET

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Any]


class Gate:
    """Before the server: who says no password is sent away; answers can be chosen."""

    def __init__(self, app: Wsgi) -> None:
        self._app = app
        self.is_closed = False
        self.answers: list[tuple[str, str, list[tuple[str, str]], bytes]] = []
        self.asked: list[str] = []
        self.gives_parts = False
        self.sent = 0

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        self.asked.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        for answer in self.answers:
            path, status, headers, body = answer
            if path in environ["PATH_INFO"]:
                self.answers.remove(answer)
                environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
                start(status, headers)
                return [body]
        wanted = "Basic " + base64.b64encode(f"user:{SECRET}".encode()).decode()
        is_batch = environ["PATH_INFO"].endswith("/batch")
        if self.is_closed and is_batch and environ.get("HTTP_AUTHORIZATION") != wanted:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start("401 UNAUTHORIZED", [("LFS-Authenticate", 'Basic realm="x"')])
            return [SECRET.encode()]
        # giftless would take the password for one of its tokens.
        environ.pop("HTTP_AUTHORIZATION", None) if is_batch else None
        if environ["REQUEST_METHOD"] != "GET":
            return self._app(environ, start)
        return self._given(environ, start)

    def _given(self, environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        """An object, or the part that is asked for, as stores in the cloud give it."""
        told: list[Any] = []
        answer = self._app(environ, lambda *line: told.extend(line))
        body = b"".join(answer)
        answer.close()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", environ.get("HTTP_RANGE", ""))
        if wanted and self.gives_parts and told[0].startswith("200"):
            first, last = int(wanted[1]), int(wanted[2])
            part = body[first : last + 1]
            if not part:
                told[0], told[1] = "416 NO", []
            else:
                told[0] = "206 PART"
                told[1] = [("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(body)}")]
            body = part
        self.sent += len(body)
        start(*told[:2])
        return [body]


class Server:
    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            # Of the packages that it is made of.
            warnings.simplefilter("ignore")
            from flask import Flask
            from giftless.app import init_app
            from werkzeug.serving import make_server

            logging.getLogger("werkzeug").setLevel(logging.ERROR)
            config = {
                "LEGACY_ENDPOINTS": False,
                "AUTH_PROVIDERS": ["giftless.auth.allow_anon:read_write"],
                "PRE_AUTHORIZED_ACTION_PROVIDER": {
                    "factory": "giftless.auth.jwt:factory",
                    "options": {"algorithm": "HS256", "private_key": "k" * 64},
                },
                "TRANSFER_ADAPTERS": {
                    "basic": {"options": {"storage_options": {"path": str(folder)}}}
                },
            }
            app = init_app(Flask("lfs"), config)
        self.folder = folder
        self.gate = Gate(app.wsgi_app)
        self.running = make_server("127.0.0.1", 0, self.gate, threaded=True)
        self.url = f"{HTTP}127.0.0.1:{self.running.server_port}/o/r.git/info/lfs"

    def objects(self) -> list[str]:
        return sorted(path.name for path in self.paths())

    def paths(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]

    def count(self, verb: str) -> int:
        """How many requests there were that begin with this."""
        return sum(line.startswith(verb) for line in self.gate.asked)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("lfs"))
    thread = threading.Thread(target=server.running.serve_forever)
    thread.start()
    yield server
    server.running.shutdown()
    thread.join()
    server.running.server_close()


@pytest.fixture
def server(started: Server) -> Server:
    shutil.rmtree(started.folder)
    started.folder.mkdir()
    started.gate.is_closed = False
    started.gate.answers = []
    started.gate.asked = []
    started.gate.gives_parts = False
    started.gate.sent = 0
    return started
