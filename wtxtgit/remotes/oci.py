"""A repository of a container registry, for one operation: its tags, manifests and blobs.

oras implements the registry's protocol, with the credentials that docker and oras keep. What it
would read without a limit, or wait for without a timeout, is bounded here, and a registry that uses
TLS can't redirect to anything without it. https://github.com/opencontainers/distribution-spec
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from wtxtgit.errors import (
    FormatError,
    InputError,
    RemoteRefused,
    RemoteUnavailable,
    UsageError,
    WtxtgitError,
)
from wtxtgit.io.files import shown
from wtxtgit.io.view import PIECE
from wtxtgit.remotes import pace
from wtxtgit.remotes.http import GONE, HttpAnswer, at_most, failure, needed, parsed
from wtxtgit.remotes.target import Outgoing, check_content, checked_pieces
from wtxtgit.remotes.urls import is_loopback

MAX_TAGS = 1 << 20
_TITLE = "org.opencontainers.image.title"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_AT_ONCE = 1000
"""Tags in one request."""
CONFIG = b"{}"
"""The config that all artifacts share."""
_REFERENCE = re.compile(
    r"(?P<host>[a-z0-9.-]+(?::[0-9]{1,5})?)/(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?",
)
_DIGEST = re.compile("sha256:([0-9a-f]{64})")
_GITHUB = "ghcr.io"


class Reference(NamedTuple):
    """`HOST/NAME` or `HOST/NAME:TAG`."""

    host: str
    name: str
    tag: str | None


class Layer(NamedTuple):
    """A blob of an artifact: its media type, SHA-256 in lower-case hex, and size in bytes."""

    media: str
    sha256: str
    nbytes: int


def parse_reference(reference: str) -> Reference:
    """Parse `HOST/NAME[:TAG]`; raises UsageError."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise UsageError(f'"{shown(reference)}" is not a HOST/NAME or HOST/NAME:TAG')
    return Reference(match["host"], match["name"], match["tag"])


@contextlib.contextmanager
def opened(label: str, where: Reference) -> Iterator[OciRepository]:
    """Open the repository for one operation; errors of oras and requests become errors of ours."""
    repository = None
    try:
        with _failures(label):
            repository = OciRepository(label, where)
            repository.enter()
            yield repository
    finally:
        if repository is not None:
            repository.close()


@contextlib.contextmanager
def _failures(label: str, what: str = "can't be reached") -> Iterator[None]:
    try:
        import requests
        import urllib3
    except ImportError:
        raise needed(label, "oras") from None
    try:
        yield
    except WtxtgitError:
        raise
    except ImportError:
        raise needed(label, "oras") from None
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise RemoteUnavailable(f"{label}: {what}: {type(error).__name__}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        # oras raises these for malformed answers.
        raise RemoteRefused(f"{label}: {type(error).__name__} in oras") from None


class OciRepository:
    """A repository opened by `opened`. Every method raises RemoteUnavailable and RemoteRefused."""

    def __init__(self, label: str, where: Reference) -> None:
        from oras.container import Container

        self.label, self._host = label, where.host
        self._prefix = "http" if is_loopback(where.host.partition(":")[0]) else "https"
        self._base = f"{self._prefix}://{where.host}/v2/"
        self._at = f"{self._base}{where.name}/"
        self._container = Container(f"{where.host}/{where.name}")
        self._client = self._opened("token")

    def enter(self) -> None:
        """Find out how the registry authenticates its users."""
        answer = self._client.session.get(self._base)
        if answer.headers.get("www-authenticate", "").lower().startswith("basic"):
            self.close()
            self._client = self._opened("basic")
        auth = self._client.auth
        auth.load_configs(self._container)
        token = os.environ.get("GITHUB_TOKEN")
        if self._host == _GITHUB and token and not hasattr(auth, "_basic_auth"):
            auth.set_basic_auth("token", token)

    def close(self) -> None:
        self._client.session.close()

    def manifest(self, tag: str) -> dict[str, Any] | None:
        """Return the manifest of a tag; None if there is none.

        Raises InputError if it is malformed.
        """
        answer = self._ask("GET", f"manifests/{tag}", headers={"Accept": _MANIFEST}, ok=(200, 404))
        if answer.status_code == 404:
            return None
        with contextlib.suppress(FormatError):
            manifest = parsed(answer.content)
            if isinstance(manifest, dict):
                return manifest
        raise InputError(f"{self.label}: {tag}: the registry's answer is not a manifest")

    def tag(self, tag: str, manifest: Mapping[str, Any]) -> None:
        """Store an artifact under a tag; its blobs have to exist."""
        content = json.dumps(manifest, sort_keys=True).encode()
        headers = {"Content-Type": _MANIFEST}
        self._ask("PUT", f"manifests/{tag}", data=content, headers=headers, ok=(201,))

    def remove(self, tag: str) -> None:
        """Remove an artifact, if it exists; its blobs go with the registry's garbage collection.

        It is removed by its digest, because few registries can remove only a tag.
        """
        answer = self._ask("HEAD", f"manifests/{tag}", headers={"Accept": _MANIFEST}, ok=(200, 404))
        digest = answer.headers.get("docker-content-digest", "")
        if answer.status_code == 200 and _DIGEST.fullmatch(digest):
            self._ask("DELETE", f"manifests/{digest}", ok=(200, 202, 404))
        elif answer.status_code == 200:
            raise RemoteRefused(f"{self.label}: {tag}: the registry does not state its digest")

    def tags(self) -> list[str]:
        """List all tags, page by page; raises RemoteRefused for more than `MAX_TAGS`."""
        tags: dict[str, None] = {}
        query = f"n={_AT_ONCE}"
        while query:
            answer = self._ask("GET", f"tags/list?{query}", ok=(200, 404))
            # A repository is only created with its first artifact.
            page = self._tags_of(answer.content) if answer.status_code == 200 else []
            known = len(tags)
            tags.update((tag, None) for tag in page if isinstance(tag, str))
            if len(tags) > MAX_TAGS:
                raise RemoteRefused(f"{self.label}: has more than {MAX_TAGS} tags")
            # Of the link only the query is used, not the host. An empty page ends the list: it
            # might never end.
            link = answer.links.get("next", {}).get("url", "") if len(tags) > known else ""
            query = urlsplit(link).query
        return list(tags)

    def _tags_of(self, content: bytes) -> list[object]:
        with contextlib.suppress(FormatError):
            match parsed(content):
                case {"tags": list() as tags}:
                    return tags
                # Of a repository without tags.
                case {"tags": None}:
                    return []
        raise RemoteRefused(f"{self.label}: the registry's answer is not a list of tags")

    def blob_size(self, sha256: str) -> int | None:
        """Return the size of a blob in bytes, -1 if it is not stated; None if there is no such
        blob.
        """
        answer = self._ask("HEAD", f"blobs/sha256:{sha256}", ok=(200, 404))
        length = answer.headers.get("content-length", "")
        size = int(length) if re.fullmatch("[0-9]{1,18}", length) else -1
        return size if answer.status_code == 200 else None

    def blob(self, sha256: str) -> Iterator[bytes]:
        """Return a blob's bytes as they arrive.

        Raises InputError at once if there is no such blob.
        """
        answer = self._request_blob(sha256, {})
        if answer.status_code in GONE:
            raise InputError(f"{self.label}: no blob {sha256}")
        self._checked(answer, f"blobs/sha256:{sha256}", (200,))
        return self._blocks(answer, sha256)

    @contextlib.contextmanager
    def part(self, sha256: str, byte_range: str) -> Iterator[HttpAnswer]:
        """Request a part of a blob: see `http.ranges`."""
        answer = self._request_blob(sha256, {"Range": byte_range})
        with contextlib.closing(answer):
            yield HttpAnswer(answer.status_code, answer.headers, self._blocks(answer, sha256))

    def _request_blob(self, sha256: str, headers: dict[str, str]) -> Any:
        url = f"{self._at}blobs/sha256:{sha256}"
        headers["Accept-Encoding"] = "identity"
        return self._client.do_request(url, "GET", headers=headers, stream=True)

    def _blocks(self, answer: Any, sha256: str) -> Iterator[bytes]:
        with (
            contextlib.closing(answer),
            _failures(f"{self.label}: {sha256}", "the answer ends early"),
        ):
            yield from answer.iter_content(PIECE)

    def upload(self, file: Outgoing) -> None:
        """Upload a file as a blob, unless it exists, in one request.

        The registry checks its digest. oras itself would hold the whole file in memory.
        """
        if self.blob_size(file.sha256) in (len(file.content), -1):
            check_content(file)
            return
        begun = self._ask("POST", "blobs/uploads/", ok=(202,))
        place = urljoin(self._at, begun.headers.get("location", ""))
        parts = urlsplit(place)
        if parts.scheme != self._prefix or "location" not in begun.headers:
            raise RemoteRefused(
                f"{self.label}: {file.name}: the registry does not say where to upload it"
            )
        url = f"{place}{'&' if parts.query else '?'}digest=sha256:{file.sha256}"
        headers = {"Content-Type": "application/octet-stream"}
        body = _Body(file) if len(file.content) else b"".join(checked_pieces(file))
        # Credentials are only sent to the registry itself.
        is_same = _authority(parts) == _authority(urlsplit(self._at))
        send = self._client.do_request if is_same else self._client.ask
        self._checked(send(url, "PUT", data=body, headers=headers), file.name, (201,))

    def upload_config(self) -> None:
        """Upload the config that all artifacts share."""
        self.upload(_of(CONFIG))

    def _ask(self, method: str, path: str, *, ok: tuple[int, ...], **options: Any) -> Any:
        answer = self._client.do_request(self._at + path, method, **options)
        return self._checked(answer, path.partition("?")[0], ok)

    def _checked(self, answer: Any, what: str, ok: tuple[int, ...]) -> Any:
        if answer.status_code not in ok:
            raise failure(self.label, shown(what), answer.status_code, answer.headers)
        return answer

    def _opened(self, how: str) -> Any:
        client = _client_class()(
            hostname=self._host, insecure=self._prefix == "http", auth_backend=how
        )
        client.label = self.label
        for prefix in ("https://", "http://"):
            is_allowed = prefix.startswith(f"{self._prefix}:") or self._prefix == "http"
            client.session.mount(prefix, _adapter_class()(self.label, is_allowed=is_allowed))
        return client


@cache
def _client_class() -> Any:
    """Return oras's client, which asks once, and again only if its token does not fit the
    request.
    """
    from oras.logger import logger
    from oras.provider import Registry as Client

    # Errors are reported by exceptions.
    logger.set_level(logging.CRITICAL)
    # Without the decorator, which waits between five attempts: up to two minutes, whatever went
    # wrong.
    once = Client.do_request.__wrapped__

    class Once(Client):  # type: ignore[misc]
        label = ""

        def do_request(self, *args: Any, **options: Any) -> Any:
            try:
                answer = once(self, *args, **options)
                if answer.status_code == 401 and getattr(self.auth, "token", None):
                    # A token for reading does not allow writing.
                    self.auth.token = None
                    answer = once(self, *args, **options)
            except (ValueError, AttributeError) as error:
                # This is how oras reports missing credentials.
                if isinstance(error, OSError):
                    raise
                raise RemoteRefused(
                    f"{self.label}: authentication is required",
                    hint=f"docker login {self.hostname}, or oras login {self.hostname}",
                ) from None
            return answer

        def ask(self, url: str, method: str, **options: Any) -> Any:
            """Send a request without credentials."""
            return self.session.request(method, url, **options)

    return Once


@cache
def _adapter_class() -> Any:
    import urllib3
    from requests.adapters import HTTPAdapter
    from urllib3 import connection, connectionpool

    class Plain(connection.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            self.sock = pace.PacedSocket(self.sock)

    class Encrypted(connection.HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            self.sock = pace.PacedSocket(self.sock)

    class PlainPool(connectionpool.HTTPConnectionPool):
        ConnectionCls = Plain

    class EncryptedPool(connectionpool.HTTPSConnectionPool):
        ConnectionCls = Encrypted

    pools = {"http": PlainPool, "https": EncryptedPool}

    class Bounded(HTTPAdapter):
        """An adapter with timeouts that limits answers held in memory, except for streamed
        blobs.
        """

        def __init__(self, label: str, *, is_allowed: bool) -> None:
            super().__init__()
            self._label, self._is_allowed = label, is_allowed
            self.poolmanager.pool_classes_by_scheme = pools

        def proxy_manager_for(self, *arguments: Any, **options: Any) -> Any:
            manager = super().proxy_manager_for(*arguments, **options)
            manager.pool_classes_by_scheme = pools
            return manager

        def send(self, request: Any, stream: bool = False, *_: Any, **options: Any) -> Any:
            if not self._is_allowed:
                raise RemoteRefused(f"{self._label}: redirects to an address without TLS")
            options["timeout"] = (pace.CONNECT, pace.SILENCE)
            answer = super().send(request, stream=True, **options)
            if not stream or answer.status_code not in (200, 206):
                content = io.BytesIO()
                # Some registries truncate the body of an error.
                broken = (urllib3.exceptions.HTTPError,) if answer.status_code >= 400 else ()
                with contextlib.suppress(*broken):
                    blocks = answer.raw.stream(PIECE, decode_content=True)
                    content.writelines(at_most(self._label, blocks, pace.MOST))
                content.seek(0)
                answer.raw = content
            return answer

    return Bounded


class _Body:
    """A file's content as a request body, which may be sent twice."""

    def __init__(self, file: Outgoing) -> None:
        self._file = file

    def __len__(self) -> int:
        return len(self._file.content)

    def __iter__(self) -> Iterator[bytes]:
        return map(bytes, checked_pieces(self._file))


def artifact(
    kind: str, layers: Sequence[tuple[str, Outgoing]], annotations: Mapping[str, str]
) -> dict[str, Any]:
    """Return the manifest for files, each with its media type; `kind` is that of the config."""
    return {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _descriptor(kind, _of(CONFIG)),
        "layers": [
            {**_descriptor(media, file), "annotations": {_TITLE: file.name}}
            for media, file in layers
        ],
        "annotations": dict(annotations),
    }


def layers_of(manifest: Mapping[str, Any], kind: str) -> list[Layer]:
    """Return the layers of an artifact of this kind; raises InputError for other artifacts."""
    match manifest:
        case {"config": {"mediaType": media}, "layers": list() as layers} if media == kind:
            parsed = [_layer(layer) for layer in layers]
            if all(parsed):
                return [layer for layer in parsed if layer is not None]
    raise InputError("the artifact was not made by wtxtgit")


def _layer(value: object) -> Layer | None:
    match value:
        case {"mediaType": str() as media, "digest": str() as digest, "size": int() as size}:
            match = _DIGEST.fullmatch(digest)
            if match and size >= 0:
                return Layer(media, match[1], size)
    return None


def _authority(parts: SplitResult) -> tuple[str | None, int]:
    return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def _of(content: bytes) -> Outgoing:
    return Outgoing("config", memoryview(content), hashlib.sha256(content).hexdigest())


def _descriptor(media: str, file: Outgoing) -> dict[str, Any]:
    return {"mediaType": media, "digest": f"sha256:{file.sha256}", "size": len(file.content)}
