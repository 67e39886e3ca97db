"""Where packs of payload lie elsewhere: a folder of any target, found by names alone.

Spec: `docs/spec/store.md`, "Remote". Beside each pack lies its end, so what a place has is known
without its packs. Whatever comes from there is checked by the caller.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from wtxtgit.errors import InputError, RemoteRefused
from wtxtgit.io.files import view_file
from wtxtgit.io.view import Buffer, mapped, pieces
from wtxtgit.io.workers import Workers
from wtxtgit.remotes.target import (
    Outgoing,
    PrunableTarget,
    RangedTarget,
    Span,
    Target,
    outgoing,
)
from wtxtgit.store.pack import MAX_END, ChunkPack

T = TypeVar("T")

LIST = "packs.txt"
"""The file of a folder that names its packs."""
MAX_PACKS = 1 << 20
"""Packs that are read of a list."""
_GROUP = 32
_AT_ONCE = 8
"""Requests that are under way together: they wait for the network, not for a core."""
_FILE = re.compile(r"([0-9a-f]{64})\.(pack|index)")


class OutgoingPack(NamedTuple):
    """A pack to send: its name, its file and how many bytes it has, its index and trailer."""

    name: str
    path: Path
    size: int
    end: bytes

    @classmethod
    def of(cls, pack: ChunkPack) -> OutgoingPack:
        return cls(pack.path.stem, pack.path, pack.nbytes, pack.end)


class PackPlace(Protocol):
    """A place of packs, by the SHA-256 that names each. All raise RemoteUnavailable, RemoteRefused.

    `label` is what it is called in messages, without credentials. `contents` and `ranges` are
    called from several threads at once.
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

    def ranges(self, name: str, size: int, spans: Sequence[Span]) -> Iterator[Buffer] | None:
        """Parts of a pack, each whole, in this order; None where packs come whole alone.

        `size` is the pack's, in bytes. Raises InputError for a pack that is gone or shorter, before
        the first part or at any.
        """

    def put(self, packs: Sequence[OutgoingPack]) -> None:
        """Have packs there; each is found once all of it is."""

    def lost(self, sizes: Mapping[str, int]) -> Collection[str]:
        """Those of these packs that are not there any more, or not as long as that."""

    def settle(self) -> None:
        """Have all that are there be found by those that can't list; after the last `put`, or
        `remove`."""

    def parts(self) -> Sequence[str]:
        """Packs of which a part is there: of a sender that is at work, or was killed."""

    def times(self, names: Sequence[str]) -> Mapping[str, float | None]:
        """When packs, and parts, came there, in seconds since 1970; None where nobody knows.

        What is gone is left out.
        """

    def remove(self, names: Sequence[str]) -> str | None:
        """Take packs away, and parts, as far as they are there; one that is half gone is no longer
        found. Gives what else there is to know of their room.

        Raises RemoteRefused where nothing can be taken away.
        """


def whole(files: Iterable[str]) -> Sequence[str]:
    """The packs of which both files are among these."""
    return sorted(name for name, kinds in _kinds(files).items() if len(kinds) == 2)


def in_part(files: Iterable[str]) -> Sequence[str]:
    """The packs of which one of both files is among these."""
    return sorted(name for name, kinds in _kinds(files).items() if len(kinds) == 1)


def _kinds(files: Iterable[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for file in files:
        if match := _FILE.fullmatch(file):
            found.setdefault(match[1], set()).add(match[2])
    return found


def several_at_once(
    names: Sequence[str], ask: Callable[[Sequence[str]], Iterator[T]]
) -> Iterator[T]:
    """What a place says of packs that it is asked for one by one: groups, some at the same time."""
    groups = [names[at : at + _GROUP] for at in range(0, len(names), _GROUP)]
    tasks = [partial(lambda group: list(ask(group)), group) for group in groups]
    with Workers(tasks, max(1, min(_AT_ONCE, len(tasks)))) as answers:
        for answer in answers:
            yield from answer


class TargetPacks:
    """A folder that a target keeps; see `PackPlace`."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.label = target.label
        self._sizes: dict[str, int] = {}

    def packs(self) -> Sequence[str]:
        self._sizes = {file.name: file.nbytes for file in self._target.list()}
        return whole(self._sizes)

    def parts(self) -> Sequence[str]:
        return in_part(self._sizes)

    def times(self, names: Sequence[str]) -> Mapping[str, float | None]:
        there = ((name, [file for file in _files(name) if file in self._sizes]) for name in names)
        return {name: self._time(files) for name, files in there if files}

    def _time(self, files: Sequence[str]) -> float | None:
        """When the last of some files came; None where that of any is not known."""
        if not isinstance(self._target, PrunableTarget):
            return None
        times = [time for file in files if (time := self._target.time(file)) is not None]
        return max(times) if len(times) == len(files) else None

    def ends(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        return several_at_once(names, self._ends)

    def _ends(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        for name in names:
            if self._sizes.get(f"{name}.index", 0) <= MAX_END:
                with contextlib.suppress(InputError):
                    yield name, bytes(self._target.get(f"{name}.index")[:])

    def contents(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, Iterator[Buffer]]]:
        for name, size in sizes.items():
            # Of what is larger than it should be nothing comes at all.
            if self._sizes.get(f"{name}.pack", 0) <= size:
                with contextlib.suppress(InputError):
                    yield name, iter(pieces(self._target.get(f"{name}.pack")))

    def ranges(self, name: str, size: int, spans: Sequence[Span]) -> Iterator[Buffer] | None:
        if not isinstance(self._target, RangedTarget):
            return None
        return map(mapped, self._target.ranges(f"{name}.pack", spans))

    def put(self, packs: Sequence[OutgoingPack]) -> None:
        for name, path, _, end in packs:
            # In this order: of whose end is there, all is. Another content would be damage.
            self._target.put([Outgoing(f"{name}.pack", view_file(path), name)], replace=True)
            self._target.put([outgoing(f"{name}.index", memoryview(end))], replace=True)

    def lost(self, sizes: Mapping[str, int]) -> Collection[str]:
        return [name for name, size in sizes.items() if self._sizes.get(f"{name}.pack") != size]

    def settle(self) -> None:
        """See `PackPlace`. Whoever wrote the list last has seen what all others put before."""
        is_same = False
        while not is_same:
            names = "".join(f"{name}\n" for name in self.packs())
            listed = outgoing(LIST, memoryview(names.encode("ascii")))
            is_same = not self._target.put([listed], replace=True)

    def remove(self, names: Sequence[str]) -> None:
        if not isinstance(self._target, PrunableTarget):
            raise RemoteRefused(f"{self.label}: files can't be deleted there")
        for name in names:
            for file in _files(name):
                self._target.remove(file)


def _files(name: str) -> tuple[str, str]:
    """The files of a pack, in the order in which they go: without its end it is not found."""
    return f"{name}.index", f"{name}.pack"
