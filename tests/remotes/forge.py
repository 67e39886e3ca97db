"""A server with the endpoints of GitHub's REST API for releases, which fails as it is told to."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.cluster.stores import HTTP
from tests.remotes.behaviour import SECRET

Answer = tuple[int, dict[str, str], object]
Fault = Callable[["Handler"], Answer | None]


@dataclass
class Forge:
    """What the server has, what it was asked, and what it is to do otherwise.

    A fault is asked before each request, and taken away once it gave an answer.
    """

    host: str = ""
    storage: str = ""
    tells_digests: bool = True
    releases: dict[str, int] = field(default_factory=dict)
    assets: dict[int, dict[str, Any]] = field(default_factory=dict)
    contents: dict[int, bytes] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    last: int = 0

    @property
    def api(self) -> str:
        return f"{HTTP}{self.host}"

    def number(self) -> int:
        self.last += 1
        return self.last

    def add(self, name: str, content: bytes, state: str = "uploaded") -> dict[str, Any]:
        number = self.number()
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}" if self.tells_digests else None
        asset = {"id": number, "name": name, "size": len(content), "state": state, "digest": digest}
        self.assets[number] = asset
        self.contents[number] = content
        return asset

    def named(self, name: str) -> dict[str, Any] | None:
        return next((a for a in self.assets.values() if a["name"] == name), None)

    def once(self, method: str, path: str, answer: Answer) -> None:
        """Give an answer to the next request for a path."""

        def fault(handler: Handler) -> Answer | None:
            is_meant = handler.command == method and re.search(path, handler.path)
            return answer if is_meant else None

        self.faults.append(fault)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer in two packets would wait for the first one to be confirmed.
    wbufsize = -1
    forge: Forge

    def handle_any(self) -> None:
        forge = self.forge
        size = int(self.headers.get("content-length") or 0)
        forge.asked.append(f"{self.command} {urlsplit(self.path).path}")
        assert "transfer-encoding" not in self.headers
        self.body = self.rfile.read(size)
        if len(self.body) < size:
            # Broken off: who asks next may be faster than this, so nothing may depend on it.
            self.close_connection = True
            return
        for fault in forge.faults:
            answer = fault(self)
            if answer is not None:
                forge.faults.remove(fault)
                break
        else:
            answer = self._answer()
        status, headers, content = answer
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = handle_any

    def _answer(self) -> Answer:
        path, forge = unquote(urlsplit(self.path).path), self.forge
        if path.startswith("/stored/"):
            # Another host: a token has no business there.
            assert "authorization" not in self.headers
            return 200, {}, forge.contents[int(path.rpartition("/")[2])]
        if self.headers.get("authorization") != f"Bearer {SECRET}":
            return 401, {}, {"message": f"bad {self.headers.get('authorization')}"}
        match self.command, path.split("/")[1:]:
            case "GET", ["repos", "o", "r", "releases", "tags", *tag]:
                number = forge.releases.get("/".join(tag))
                return (200, {}, self._release(number)) if number else (404, {}, {})
            case "POST", ["repos", "o", "r", "releases"]:
                tag_name = json.loads(self.body)["tag_name"]
                if tag_name in forge.releases:
                    return 422, {}, {}
                forge.releases[tag_name] = forge.number()
                return 201, {}, self._release(forge.releases[tag_name])
            case "GET", ["repos", "o", "r", "releases", _, "assets"]:
                page = int(parse_qs(urlsplit(self.path).query)["page"][0])
                listed = list(forge.assets.values())
                return 200, {}, listed[100 * page - 100 : 100 * page]
            case "POST", ["up", _]:
                return self._upload()
            case method, ["repos", "o", "r", "releases", "assets", number]:
                return self._asset(method, int(number))
        return 404, {}, {}

    def _asset(self, method: str, number: int) -> Answer:
        assets = self.forge.assets
        if number not in assets:
            return 404, {}, {}
        if method == "DELETE":
            del assets[number]
            return 204, {}, b""
        if method == "PATCH":
            name = json.loads(self.body)["name"]
            if self.forge.named(name):
                return 422, {}, {}
            assets[number]["name"] = name
        elif self.headers["accept"] == "application/octet-stream":
            return 302, {"location": f"{HTTP}{self.forge.storage}/stored/{number}"}, b""
        return 200, {}, assets[number]

    def _upload(self) -> Answer:
        name = parse_qs(urlsplit(self.path).query)["name"][0]
        if self.forge.named(name):
            return 422, {}, {"errors": [{"code": "already_exists"}]}
        return 201, {}, self.forge.add(name, self.body)

    def _release(self, number: int) -> dict[str, Any]:
        return {"id": number, "upload_url": f"{self.forge.api}/up/{number}{{?name,label}}"}

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def running_forge() -> Iterator[Forge]:
    forge = Forge()
    handler = type("Bound", (Handler,), {"forge": forge})
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        # Where contents are stored: another origin.
        ThreadingHTTPServer(("127.0.0.1", 0), handler) as storage,
    ):
        forge.host, forge.storage = (f"127.0.0.1:{s.server_address[1]}" for s in (server, storage))
        threads = [
            threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01})
            for one in (server, storage)
        ]
        for thread in threads:
            thread.start()
        try:
            yield forge
        finally:
            for one in (server, storage):
                one.shutdown()
            for thread in threads:
                thread.join()
