"""A repository of a container registry as a target: each file is an OCI artifact.

The artifact's tag is the file's name, its one layer the file. So no two writers have to agree on a
list, and any tool that knows OCI fetches a file: `oras pull HOST/NAME:FILE`. The tag of the target
itself is an artifact of all files of the last delivery. oras has the registry's protocol, and the
credentials that docker and oras keep. https://github.com/opencontainers/distribution-spec
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from wtxtgit.errors import InputError, RemoteRefused, RemoteUnavailable, UsageError, WtxtgitError
from wtxtgit.io.files import shown
from wtxtgit.io.view import PIECE, ByteView
from wtxtgit.remotes.http import SILENCE, failure, needed, received
from wtxtgit.remotes.one_by_one import OneByOne, Session
from wtxtgit.remotes.target import (
    Outgoing,
    StoredFile,
    check_content,
    check_name,
    checked_pieces,
)

DELIVERY = "application/vnd.wtxtgit.delivery.v1+json"
"""The media type of an artifact's config, by which ours are known."""
FILE = "application/vnd.wtxtgit.file.v1"
"""The media type of a layer: a file."""
ANNOTATION = "vnd.wtxtgit."
"""Before the keys of what a delivery is said to be: `vnd.wtxtgit.gen`, `vnd.wtxtgit.root`."""
_TITLE = "org.opencontainers.image.title"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_MAX_MANIFEST = 4 * 1024 * 1024
"""Bytes that a registry has to take; none of ours has so many. distribution-spec, "Push"."""
_CONFIG = b"{}"
_REFERENCE = re.compile(
    r"(?P<host>[a-z0-9.-]+(?::[0-9]{1,5})?)/(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?",
)
_LOOPBACK = re.compile(r"(?:localhost|127\.[0-9.]+)(?::[0-9]+)?")
_GITHUB = "ghcr.io"
_LATEST = "latest"


class Registry(OneByOne):
    """The repository `HOST/NAME`, or `HOST/NAME:TAG`. See `Target`; names have no folders.

    Credentials are those that `docker login` and `oras login` keep; for GitHub's registry also
    GITHUB_TOKEN. A registry of this machine is spoken to without TLS, as docker does.

    A registry tells nobody that another writer was faster: of two that put different contents under
    one name at the same time, the later one wins. Raises UsageError for what is no reference.
    """

    def __init__(self, reference: str) -> None:
        found = _REFERENCE.fullmatch(reference)
        if found is None:
            raise UsageError(f'"{shown(reference)}" is no HOST/NAME or HOST/NAME:TAG')
        self._host, self._name = found["host"], found["name"]
        self._tag = found["tag"] or _LATEST
        self.label = f"oci:{self._host}/{self._name}:{self._tag}"

    def _check(self, name: str) -> None:
        if "/" in check_name(name) or name == self._tag:
            raise UsageError(f"{self.label}: {name} can't be a tag of a file")

    @contextlib.contextmanager
    def _session(self) -> Iterator[_RegistrySession]:
        """The registry, for one operation; what oras and requests raise becomes ours."""
        try:
            import requests

            made = _RegistrySession(self.label, self._host, self._name, self._tag)
        except ImportError:
            raise needed(self.label, "oras") from None
        try:
            made.enter()
            yield made
        except WtxtgitError:
            raise
        except requests.RequestException as error:
            raise RemoteUnavailable(
                f"{self.label}: can't be reached: {type(error).__name__}"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # oras says so where it has no credentials, and where an answer is none.
            raise RemoteRefused(f"{self.label}: {type(error).__name__} in oras") from None
        finally:
            made.close()


class _RegistrySession(Session):
    def __init__(self, label: str, host: str, name: str, tag: str) -> None:
        from oras.container import Container

        self.label, self._tag = label, tag
        self._host, self._at = host, f"{host}/v2/{name}"
        self._container = Container(f"{host}/{name}")
        self._registry = self._opened("token")

    def enter(self) -> None:
        """Find out how the registry wants to be told who is asking."""
        answer = self._registry.session.get(
            f"{self._registry.prefix}://{self._host}/v2/", timeout=SILENCE
        )
        if answer.headers.get("www-authenticate", "").lower().startswith("basic"):
            self.close()
            self._registry = self._opened("basic")
        auth = self._registry.auth
        auth.load_configs(self._container)
        token = os.environ.get("GITHUB_TOKEN")
        if self._host == _GITHUB and token and not hasattr(auth, "_basic_auth"):
            auth.set_basic_auth("token", token)

    def close(self) -> None:
        self._registry.session.close()

    def prepare(self) -> None:
        self.upload(_of(_CONFIG))

    def find(self, name: str) -> StoredFile | None:
        there = self.manifest(name)
        return None if there is None else _stored(name, there)

    def read(self, stored: StoredFile) -> ByteView:
        return self.blob(stored)

    def has(self, stored: StoredFile, sha256: str) -> bool:
        return stored.sha256 == sha256 and self.has_blob(sha256)

    def all(self, prefix: str) -> Iterator[StoredFile]:
        """All files; each one is asked for by itself."""
        for name in self.tags():
            if name.startswith(prefix) and name != self._tag:
                with contextlib.suppress(InputError):
                    stored = self.find(name)
                    if stored is not None:
                        yield stored

    def write(self, file: Outgoing, about: Mapping[str, str], *, replace: bool) -> bool:
        self.upload(file)
        self.tag(file.name, _manifest([file], about))
        return True

    def settle(self, files: Sequence[Outgoing], about: Mapping[str, str], *, is_new: bool) -> None:
        if is_new:
            self.tag(self._tag, _manifest(files, about))

    def manifest(self, tag: str) -> dict[str, Any] | None:
        """The artifact of a tag; None where there is none."""
        headers = {"Accept": _MANIFEST}
        answer = self._ask("GET", f"manifests/{tag}", headers=headers, ok=(200, 404), stream=True)
        if answer.status_code == 404:
            return None
        content = b"".join(_at_most(answer.iter_content(PIECE), _MAX_MANIFEST, self.label))
        try:
            found = json.loads(content)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise InputError(f"{self.label}: {tag}: what the registry gives is no manifest")
        return found

    def tag(self, tag: str, manifest: Mapping[str, Any]) -> None:
        content = json.dumps(manifest, sort_keys=True).encode()
        headers = {"Content-Type": _MANIFEST}
        self._ask("PUT", f"manifests/{tag}", data=content, headers=headers, ok=(201,))

    def tags(self) -> list[str]:
        return list(self._registry.get_tags(self._container)) if self._has_tags() else []

    def _has_tags(self) -> bool:
        # A repository comes to be with its first artifact.
        answer = self._ask("GET", "tags/list?n=1", ok=(200, 404))
        return bool(answer.status_code != 404)

    def has_blob(self, sha256: str) -> bool:
        answer = self._ask("HEAD", f"blobs/sha256:{sha256}", ok=(200, 404))
        return bool(answer.status_code == 200)

    def blob(self, stored: StoredFile) -> ByteView:
        answer = self._ask("GET", f"blobs/sha256:{stored.sha256}", ok=(200,), stream=True)
        return received(self.label, stored.name, answer.iter_content(PIECE), stored.nbytes)

    def upload(self, file: Outgoing) -> None:
        """Upload a file as a blob, unless it is there: in one request, which the registry checks.

        oras itself would hold the whole file in memory.
        """
        if self.has_blob(file.sha256):
            check_content(file)
            return
        begun = self._ask("POST", "blobs/uploads/", ok=(202,))
        place = self._registry._get_location(begun, self._container)
        if not place.startswith(f"{self._registry.prefix}://"):
            raise RemoteRefused(f"{self.label}: {file.name}: the registry names no place for it")
        url = f"{place}{'&' if '?' in place else '?'}digest=sha256:{file.sha256}"
        headers = {"Content-Type": "application/octet-stream"}
        body = _Body(file) if len(file.content) else b"".join(checked_pieces(file))
        self._checked(
            self._registry.do_request(url, "PUT", data=body, headers=headers), url, (201,)
        )

    def _ask(self, method: str, path: str, *, ok: tuple[int, ...], **options: Any) -> Any:
        url = f"{self._registry.prefix}://{self._at}/{path}"
        return self._checked(self._registry.do_request(url, method, **options), path, ok)

    def _checked(self, answer: Any, path: str, ok: tuple[int, ...]) -> Any:
        if answer.status_code not in ok:
            what = path.rpartition("/v2/")[2].partition("?")[0]
            raise failure(self.label, shown(what), answer.status_code, answer.headers)
        return answer

    def _opened(self, how: str) -> Any:
        is_plain = _LOOPBACK.fullmatch(self._host) is not None
        return _client_class()(hostname=self._host, insecure=is_plain, auth_backend=how)


@cache
def _client_class() -> Any:
    """oras's client, which asks once, and again only where its token is not good for a request."""
    from oras.provider import Registry as Client

    # Its own waits between five attempts: up to two minutes, whatever went wrong.
    once = Client.do_request.__wrapped__

    class Once(Client):  # type: ignore[misc]
        def do_request(self, *args: Any, **options: Any) -> Any:
            answer = once(self, *args, **options)
            if answer.status_code == 401 and getattr(self.auth, "token", None):
                # A token for reading is none for writing.
                self.auth.token = None
                answer = once(self, *args, **options)
            return answer

    return Once


class _Body:
    """A file's content for requests, which may send it twice."""

    def __init__(self, file: Outgoing) -> None:
        self._file = file

    def __len__(self) -> int:
        return len(self._file.content)

    def __iter__(self) -> Iterator[bytes]:
        return map(bytes, checked_pieces(self._file))


def _of(content: bytes) -> Outgoing:
    return Outgoing("config", memoryview(content), hashlib.sha256(content).hexdigest())


def _manifest(files: Sequence[Outgoing], about: Mapping[str, str]) -> dict[str, Any]:
    config = {**_descriptor(_of(_CONFIG)), "mediaType": DELIVERY}
    layers = [{**_descriptor(f), "annotations": {_TITLE: f.name}} for f in files]
    return {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": config,
        "layers": layers,
        "annotations": {f"{ANNOTATION}{key}": value for key, value in about.items()},
    }


def _descriptor(file: Outgoing) -> dict[str, Any]:
    return {"mediaType": FILE, "digest": f"sha256:{file.sha256}", "size": len(file.content)}


def _stored(name: str, manifest: dict[str, Any] | None) -> StoredFile:
    """The file that an artifact of ours has; raises InputError for another one."""
    match manifest:
        case {
            "config": {"mediaType": media},
            "layers": [{"digest": str() as digest, "size": int() as size}],
        } if media == DELIVERY and re.fullmatch("sha256:[0-9a-f]{64}", digest) and size >= 0:
            return StoredFile(name, size, digest.removeprefix("sha256:"))
    raise InputError(f"{name}: the artifact is none of wtxtgit's")


def _at_most(blocks: Iterator[bytes], most: int, label: str) -> Iterator[bytes]:
    for block in blocks:
        most -= len(block)
        if most < 0:
            raise InputError(f"{label}: a manifest of that size is none of ours")
        yield block
