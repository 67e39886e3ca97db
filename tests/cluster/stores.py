"""Stores on loopback for URLs: an HTTP server that gives the files of a folder."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.remotes.servers import served

HTTP = "http" + "://"
"""Put before what is no host that a page could link to."""
USER = "user:pass-word"


class Gate:
    """Holds the first request for a file until it is let go."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._is_first = True
        self.reached = threading.Event()
        self.opened = threading.Event()

    def pass_through(self, path: str) -> None:
        if not path.endswith(self._name):
            return
        with self._lock:
            is_first, self._is_first = self._is_first, False
        if is_first:
            self.reached.set()
            self.opened.wait()


class _Handler(SimpleHTTPRequestHandler):
    """Files for who says the password; with `wrong` a length that is not theirs."""

    def __init__(self, *args: Any, wrong: int, gate: Gate | None, **options: Any) -> None:
        self._wrong = wrong
        self._gate = gate
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        if self._gate is not None:
            self._gate.pass_through(self.path)
        # Who asked may be gone by now.
        with suppress(ConnectionError):
            if self._may():
                super().do_GET()

    def do_HEAD(self) -> None:
        if self._may():
            super().do_HEAD()

    def _may(self) -> bool:
        wanted = "Basic " + base64.b64encode(USER.encode()).decode()
        if self.headers.get("Authorization") == wanted:
            return True
        self.send_error(401)
        return False

    def send_header(self, keyword: str, value: str) -> None:
        if keyword == "Content-Length" and self._wrong and self.command == "HEAD":
            value = str(int(value) + self._wrong)
        super().send_header(keyword, value)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def http_store(folder: Path, *, wrong: int = 0, gate: Gate | None = None) -> Iterator[str]:
    """Serve a folder; gives `HOST:PORT`."""
    handler = partial(_Handler, directory=str(folder), wrong=wrong, gate=gate)
    with served(handler) as host:
        yield host
