"""A repository of a container registry as a target: each file is an OCI artifact.

The artifact's tag is the file's name, its only layer the file. So writers need not agree on a list,
and any tool that knows OCI can fetch a file: `oras pull HOST/NAME:FILE`. The tag of the target
itself is an artifact with all files of the last delivery.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wtxtgit.errors import InputError, UsageError
from wtxtgit.io.view import ByteView
from wtxtgit.remotes.http import received
from wtxtgit.remotes.oci import OciRepository, artifact, layers_of, opened, parse_reference
from wtxtgit.remotes.one_by_one import OneByOne, Session
from wtxtgit.remotes.target import Outgoing, StoredFile, check_name

DELIVERY = "application/vnd.wtxtgit.delivery.v1+json"
"""The media type of an artifact's config, by which ours are recognized."""
FILE = "application/vnd.wtxtgit.file.v1"
"""The media type of a layer: a file."""
ANNOTATION = "vnd.wtxtgit."
"""The prefix of keys that describe a delivery: `vnd.wtxtgit.gen`, `vnd.wtxtgit.root`."""
_LATEST = "latest"


class Registry(OneByOne):
    """The repository `HOST/NAME`, or `HOST/NAME:TAG`. See `Target`; names have no folders.

    Credentials are those that `docker login` and `oras login` keep; for GitHub's registry also
    GITHUB_TOKEN. A registry on this machine is used without TLS, as in docker. A registry does not
    detect concurrent writers: if two put different contents under one name at the same time, the
    later one wins. Raises UsageError for an invalid reference.
    """

    def __init__(self, reference: str) -> None:
        self._where = parse_reference(reference)
        self._tag = self._where.tag or _LATEST
        self.label = f"oci:{self._where.host}/{self._where.name}:{self._tag}"

    def _check(self, name: str) -> None:
        if "/" in check_name(name) or name == self._tag:
            raise UsageError(f"{self.label}: {name} can't be a tag of a file")

    @contextlib.contextmanager
    def _session(self) -> Iterator[Session]:
        with opened(self.label, self._where) as repository:
            yield _RegistrySession(repository, self._tag)


class _RegistrySession(Session):
    def __init__(self, repository: OciRepository, tag: str) -> None:
        self.label, self._repository, self._tag = repository.label, repository, tag

    def prepare(self) -> None:
        self._repository.upload_config()

    def find(self, name: str) -> StoredFile | None:
        manifest = self._repository.manifest(name)
        return None if manifest is None else _stored(name, manifest)

    def read(self, stored: StoredFile) -> ByteView:
        blocks = self._repository.blob(stored.sha256 or "")
        return received(self.label, stored.name, blocks, stored.nbytes)

    def has(self, stored: StoredFile, sha256: str) -> bool:
        return stored.sha256 == sha256 and self._repository.blob_size(sha256) is not None

    def all(self, prefix: str) -> Iterator[StoredFile]:
        """Yield all files; each needs a request."""
        for name in self._repository.tags():
            if name.startswith(prefix) and name != self._tag:
                with contextlib.suppress(InputError):
                    stored = self.find(name)
                    if stored is not None:
                        yield stored

    def write(self, file: Outgoing, about: Mapping[str, str], *, replace: bool) -> bool:
        self._repository.upload(file)
        self._repository.tag(file.name, _delivery([file], about))
        return True

    def settle(self, files: Sequence[Outgoing], about: Mapping[str, str], *, is_new: bool) -> None:
        if is_new:
            self._repository.tag(self._tag, _delivery(files, about))


def _delivery(files: Sequence[Outgoing], about: Mapping[str, str]) -> dict[str, Any]:
    annotations = {f"{ANNOTATION}{key}": value for key, value in about.items()}
    return artifact(DELIVERY, [(FILE, file) for file in files], annotations)


def _stored(name: str, manifest: Mapping[str, Any]) -> StoredFile:
    """Return the file in an artifact of ours; raises InputError for other artifacts."""
    with contextlib.suppress(InputError, ValueError):
        (layer,) = layers_of(manifest, DELIVERY)
        return StoredFile(name, layer.nbytes, layer.sha256)
    raise InputError(f"{name}: the artifact was not made by wtxtgit")
