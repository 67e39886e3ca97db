"""Where packs of payload lie elsewhere: a folder of any target, found by names alone.

Spec: `docs/spec/store.md`, "Remote". Beside each pack lies its end, so what a place has is known
without its packs. Whatever comes from there is checked by the caller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from wtxtgit.errors import InputError
from wtxtgit.io.files import view_file
from wtxtgit.io.view import Buffer, hashed, pieces
from wtxtgit.remotes.target import Outgoing, Target, outgoing

_FILE = re.compile(r"([0-9a-f]{64})\.(pack|index)")


class PackPlace(Protocol):
    """A place of packs, by the SHA-256 that names each. All raise RemoteUnavailable, RemoteRefused.

    `label` is what it is called in messages, without credentials.
    """

    @property
    def label(self) -> str: ...

    def packs(self) -> Sequence[str]:
        """The packs that are there, with their ends."""

    def ends(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Index and trailer of packs, as far as the place gives them."""

    def contents(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, Iterator[Buffer]]]:
        """The packs of these names, in pieces; their bytes are told before. A pack that the place
        does not give is left out."""

    def put(self, name: str, pack: Path, end: bytes) -> None:
        """Have a pack there; it is found once all of it is."""


def whole(files: Sequence[str]) -> Sequence[str]:
    """The packs of which both files are among these."""
    found: dict[str, set[str]] = {}
    for file in files:
        if match := _FILE.fullmatch(file):
            found.setdefault(match[1], set()).add(match[2])
    return sorted(name for name, kinds in found.items() if len(kinds) == 2)


class TargetPacks:
    """A folder that a target keeps; see `PackPlace`."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.label = target.label

    def packs(self) -> Sequence[str]:
        return whole([file.name for file in self._target.list()])

    def ends(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        for name in names:
            try:
                yield name, bytes(self._target.get(f"{name}.index")[:])
            except InputError:
                continue

    def contents(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, Iterator[Buffer]]]:
        for name in sizes:
            try:
                content = self._target.get(f"{name}.pack")
            except InputError:
                continue
            yield name, iter(pieces(content))

    def put(self, name: str, pack: Path, end: bytes) -> None:
        content = view_file(pack)
        digest = hashed(sha256(), pieces(content)).hexdigest()
        # In this order: of whose end is there, all is.
        self._target.put([Outgoing(f"{name}.pack", content, digest)])
        self._target.put([outgoing(f"{name}.index", memoryview(end))])
