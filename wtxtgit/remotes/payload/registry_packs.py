"""Packs of payload in a repository of a container registry: each pack an OCI artifact.

Spec: `docs/spec/store.md`, "Remote". The artifact's tag is the pack's SHA-256, its layers are the
pack and its end: the content of a pack is known without reading it, and writers need not
coordinate.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from wtxtgit.errors import InputError, RemoteRefused, UsageError
from wtxtgit.io.files import shown, view_file
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import Buffer, mapped
from wtxtgit.remotes.http import ranges, received
from wtxtgit.remotes.oci import (
    CONFIG,
    Layer,
    OciRepository,
    artifact,
    layers_of,
    opened,
    parse_reference,
)
from wtxtgit.remotes.payload.place import (
    UNNEEDED,
    OutgoingPack,
    divisible_anywhere,
    several_at_once,
    with_mark,
)
from wtxtgit.remotes.target import Outgoing, Span, outgoing
from wtxtgit.store.pack import MAX_END

PAYLOAD = "application/vnd.wtxtgit.payload.v1+json"
"""The media type of an artifact's config, by which ours are recognized."""
PACK = "application/vnd.wtxtgit.pack.v1"
INDEX = "application/vnd.wtxtgit.pack-index.v1"
MARK = "application/vnd.wtxtgit.unneeded.v1+json"
"""The media type of a mark's config, and of its only layer."""
_TAG = re.compile("[0-9a-f]{64}")


class RegistryPacks:
    """The packs of the repository `HOST/NAME`; see `PackPlace`.

    Raises UsageError for an invalid reference.
    """

    def __init__(self, reference: str) -> None:
        self._where = parse_reference(reference)
        if self._where.tag is not None:
            raise UsageError(f'"{shown(reference)}" has a tag, but each pack gets its own tag')
        self.label = f"oci://{reference}"
        self._marked: Sequence[str] = ()

    def packs(self) -> Sequence[str]:
        with opened(self.label, self._where) as repository:
            tags = repository.tags()
        self._marked = with_mark(tags)
        return sorted(tag for tag in tags if _TAG.fullmatch(tag))

    def ends(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        return several_at_once(names, self._ends)

    def _ends(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        with opened(self.label, self._where) as repository:
            for name in names:
                with contextlib.suppress(InputError):
                    _, end = _layers(repository, name)
                    if end.nbytes <= MAX_END:
                        blocks = repository.blob(end.sha256)
                        came = received(self.label, f"{name}.index", blocks, end.nbytes)
                        yield name, bytes(mapped(came))

    def contents(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, Iterator[Buffer]]]:
        with opened(self.label, self._where) as repository:
            for name in sizes:
                with contextlib.suppress(InputError):
                    # A pack's name is its digest.
                    yield name, repository.blob(name)

    def divisible(self, sizes: Mapping[str, int]) -> Mapping[str, int]:
        return divisible_anywhere(self, sizes)

    def ranges(self, name: str, size: int, spans: Sequence[Span]) -> Iterator[Buffer] | None:
        return self._ranges(name, size, spans)

    def _ranges(self, name: str, size: int, spans: Sequence[Span]) -> Iterator[Buffer]:
        with opened(self.label, self._where) as repository:
            parts = ranges(
                self.label,
                f"{name}.pack",
                size,
                spans,
                lambda byte_range: repository.part(name, byte_range),
            )
            yield from map(mapped, parts)

    def gives_parts(self, pack: str | None = None, size: int = 0) -> bool:
        """See `PackPlace`: any registry that keeps its blobs in a store in the cloud does."""
        return True

    def put(self, packs: Sequence[OutgoingPack], progress: Progress | None = None) -> None:
        with opened(self.label, self._where) as repository:
            repository.upload_config()
            for pack in packs:
                content = Outgoing(f"{pack.name}.pack", view_file(pack.path), pack.name, progress)
                end = outgoing(f"{pack.name}.index", memoryview(pack.end))
                repository.upload(content)
                repository.upload(end)
                try:
                    repository.tag(
                        pack.name, artifact(PAYLOAD, [(PACK, content), (INDEX, end)], {})
                    )
                except RemoteRefused:
                    # If tags are immutable, another sender of the same pack was faster.
                    if not _is_there(repository, pack.name, end.sha256):
                        raise

    def lost(self, sizes: Mapping[str, int]) -> Collection[str]:
        """See `PackPlace`: artifacts whose pack no longer exists."""
        lengths = dict(several_at_once(list(sizes), self._lengths))
        return [name for name, size in sizes.items() if lengths[name] not in (size, -1)]

    def _lengths(self, names: Sequence[str]) -> Iterator[tuple[str, int | None]]:
        with opened(self.label, self._where) as repository:
            for name in names:
                yield name, repository.blob_size(name)

    def settle(self) -> None:
        """See `PackPlace`: tags can always be listed."""

    def parts(self) -> Sequence[str]:
        """See `PackPlace`: the registry itself removes blobs without an artifact."""
        return ()

    def times(self, names: Sequence[str]) -> Mapping[str, float | None]:
        return dict(several_at_once(names, self._times))

    def _times(self, names: Sequence[str]) -> Iterator[tuple[str, None]]:
        """Yield existing packs without a time: times in a registry are only what senders claim."""
        with opened(self.label, self._where) as repository:
            for name in names:
                with contextlib.suppress(InputError):
                    _layers(repository, name)
                    yield name, None

    def marked(self) -> Collection[str]:
        return self._marked

    def mark(self, names: Sequence[str]) -> None:
        with opened(self.label, self._where) as repository:
            repository.upload_config()
            for name in names:
                # What every registry takes has a layer: the config again. Its title gives each
                # mark a digest of its own, by which it is removed.
                title = f"{name}.{UNNEEDED}"
                layers = [(MARK, outgoing(title, memoryview(CONFIG)))]
                repository.tag(title, artifact(MARK, layers, {}))

    def forget(self, names: Sequence[str]) -> None:
        with opened(self.label, self._where) as repository:
            for name in names:
                tag = f"{name}.{UNNEEDED}"
                with contextlib.suppress(InputError):
                    layers_of(repository.manifest(tag) or {}, MARK)
                    repository.remove(tag)

    def remove(self, names: Sequence[str]) -> None:
        """See `PackPlace`. The space is free after the registry's garbage collection."""
        with opened(self.label, self._where) as repository:
            for name in names:
                with contextlib.suppress(InputError):
                    _layers(repository, name)
                    repository.remove(name)


def _layers(repository: OciRepository, name: str) -> tuple[Layer, Layer]:
    """Return the pack and the end of an artifact; raises InputError if it is not one of ours."""
    manifest = repository.manifest(name)
    layers = layers_of(manifest, PAYLOAD) if manifest is not None else []
    match layers:
        case [Layer(media=media, sha256=digest) as pack, Layer(media=other) as end] if (
            media,
            digest,
            other,
        ) == (PACK, name, INDEX):
            return pack, end
    raise InputError(f"{repository.label}: no pack {name}")


def _is_there(repository: OciRepository, name: str, end: str) -> bool:
    try:
        return _layers(repository, name)[1].sha256 == end
    except InputError:
        return False
