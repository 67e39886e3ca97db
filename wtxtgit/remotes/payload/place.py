"""Places of packs of payload elsewhere: a folder of any target, in which names are known.

Spec: `docs/spec/store.md`, "Remote". Beside each pack stands its end (index and trailer), so the
content of a place is known without reading packs. Whatever comes from there is checked by the
caller.
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
from wtxtgit.io.progress import Progress
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
"""The file in a folder that lists its packs."""
MAX_PACKS = 1 << 20
"""Most packs that are read from a list."""
FORGOTTEN = 14 * 24 * 60 * 60
"""Seconds after which what a killed transfer left, and nobody took up, is removed."""
_BOTH = {"pack", "index"}
_SPAN = 4 * 1024 * 1024
"""Most bytes that are requested at once of a pack, and held in memory."""
_GROUP = 32
_AT_ONCE = 8
"""Requests that run at once: they wait for the network, not for a core."""
UNNEEDED = "unneeded"
"""The ending of the mark of a pack that a prune found unneeded."""
_FILE = re.compile(rf"([0-9a-f]{{64}})\.(pack|index|{UNNEEDED})")


class OutgoingPack(NamedTuple):
    """A pack to send: name, file, size in bytes, and its end: index and trailer."""

    name: str
    path: Path
    size: int
    end: bytes

    @classmethod
    def of(cls, pack: ChunkPack) -> OutgoingPack:
        return cls(pack.path.stem, pack.path, pack.nbytes, pack.end)


class PackPlace(Protocol):
    """A place of packs, each named by its SHA-256.

    All methods raise RemoteUnavailable, RemoteRefused. `label` is its name in messages, without
    credentials. `contents` and `ranges` are called by several threads at once.
    """

    @property
    def label(self) -> str: ...

    def packs(self) -> Sequence[str]:
        """List the packs that are there with their ends."""

    def ends(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Yield index and trailer of packs, as far as the place has them."""

    def contents(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, Iterator[Buffer]]]:
        """Yield these packs in pieces, as far as the place has them; `sizes` are in bytes."""

    def divisible(self, sizes: Mapping[str, int]) -> Mapping[str, int]:
        """Return those packs of which parts can be had; `sizes` are in bytes.

        With each comes a number of bytes, usually 1: parts begin and end at its multiples, or where
        the pack ends.
        """

    def ranges(self, name: str, size: int, spans: Sequence[Span]) -> Iterator[Buffer] | None:
        """Return parts of a pack, each complete and in this order; None if only whole packs can be
        had.

        `size` is the pack's, in bytes. Raises InputError for a pack that is gone or shorter, before
        the first part or at any.
        """

    def gives_parts(self, pack: str | None = None, size: int = 0) -> bool | None:
        """Tell whether parts of packs can be had, for whoever writes them.

        Returns None if that has to be tested with a `pack` that is there, of `size` bytes. Returns
        True where a test would take longer than it is worth.
        """

    def put(self, packs: Sequence[OutgoingPack], progress: Progress | None = None) -> None:
        """Store packs, whose names have no mark; each becomes visible when it is complete.

        `progress` gets counts of bytes as they are sent, where the place can tell.
        """

    def lost(self, sizes: Mapping[str, int]) -> Collection[str]:
        """Return those packs that no longer exist there, or have another size."""

    def settle(self) -> None:
        """Make what is there visible to readers that can't list.

        Call it after the last `put` or `remove`.
        """

    def parts(self) -> Sequence[str]:
        """List packs of which only a part is there, of a sender that is at work or was killed."""

    def times(self, names: Sequence[str]) -> Mapping[str, float | None]:
        """Return when packs, or parts, were stored or marked, in seconds since 1970; None if
        unknown.

        Packs that are gone are left out.
        """

    def marked(self) -> Collection[str]:
        """List the names that `mark` has marked, as `packs` last saw them."""

    def mark(self, names: Sequence[str]) -> None:
        """Mark packs: nobody relies on them from now on."""

    def remove(self, names: Sequence[str]) -> str | None:
        """Remove packs, and parts, but not their marks; one that is half removed is no longer
        found.

        Returns a note about their space, if there is something to know. Raises RemoteRefused if
        nothing can be removed.
        """

    def forget(self, names: Sequence[str]) -> None:
        """Remove the marks of packs that are gone."""


def whole(files: Iterable[str]) -> Sequence[str]:
    """Return the packs of which both files are listed."""
    return sorted(name for name, kinds in _kinds(files).items() if len(kinds & _BOTH) == 2)


def in_part(files: Iterable[str]) -> Sequence[str]:
    """Return the packs of which only one of both files is listed."""
    return sorted(name for name, kinds in _kinds(files).items() if len(kinds & _BOTH) == 1)


def with_mark(files: Iterable[str]) -> Sequence[str]:
    """Return the packs whose marks are listed."""
    return sorted(name for name, kinds in _kinds(files).items() if UNNEEDED in kinds)


def _kinds(files: Iterable[str]) -> dict[str, set[str]]:
    kinds_of: dict[str, set[str]] = {}
    for file in files:
        if match := _FILE.fullmatch(file):
            kinds_of.setdefault(match[1], set()).add(match[2])
    return kinds_of


def spans_between(start: int, stop: int) -> Iterator[Span]:
    """Yield the spans in which all bytes between two positions are requested."""
    return ((at, min(at + _SPAN, stop)) for at in range(start, stop, _SPAN))


def divisible_anywhere(place: PackPlace, sizes: Mapping[str, int]) -> Mapping[str, int]:
    """Return what `divisible` of a place does that gives parts of all packs, or of none."""
    for name, size in sizes.items():
        return {} if place.ranges(name, size, ()) is None else dict.fromkeys(sizes, 1)
    return {}


def several_at_once(
    names: Sequence[str], ask: Callable[[Sequence[str]], Iterator[T]]
) -> Iterator[T]:
    """Ask a place about packs one by one, in groups of which some run at the same time."""
    groups = [names[at : at + _GROUP] for at in range(0, len(names), _GROUP)]
    tasks = [partial(lambda group: list(ask(group)), group) for group in groups]
    with Workers(tasks, max(1, min(_AT_ONCE, len(tasks)))) as answers:
        for answer in answers:
            yield from answer


class TargetPacks:
    """A folder kept by a target; see `PackPlace`."""

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
        files_of = ((name, (*_files(name), f"{name}.{UNNEEDED}")) for name in names)
        present = ((name, [f for f in files if f in self._sizes]) for name, files in files_of)
        return {name: self._time(files) for name, files in present if files}

    def _time(self, files: Sequence[str]) -> float | None:
        """Return when the last of some files was stored; None if that is unknown for any."""
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
            stored_size = self._sizes.get(f"{name}.pack")
            # Nothing is fetched of a pack that is larger than it should be.
            if stored_size is None or stored_size > size:
                continue
            # In parts where that is possible, so that all that arrived is here if it breaks off.
            parts = self._parts(name, [*spans_between(0, stored_size)])
            if parts is not None:
                yield name, _until_gone(parts)
            else:
                with contextlib.suppress(InputError):
                    yield name, iter(pieces(self._target.get(f"{name}.pack")))

    def divisible(self, sizes: Mapping[str, int]) -> Mapping[str, int]:
        return divisible_anywhere(self, sizes)

    def ranges(self, name: str, size: int, spans: Sequence[Span]) -> Iterator[Buffer] | None:
        return self._parts(name, spans)

    def _parts(self, name: str, spans: Sequence[Span]) -> Iterator[Buffer] | None:
        if not isinstance(self._target, RangedTarget):
            return None
        return map(mapped, self._target.ranges(f"{name}.pack", spans))

    def gives_parts(self, pack: str | None = None, size: int = 0) -> bool:
        return isinstance(self._target, RangedTarget)

    def put(self, packs: Sequence[OutgoingPack], progress: Progress | None = None) -> None:
        for name, path, _, end in packs:
            # In this order: if the end is there, the pack is. Any other content would be damage.
            pack = Outgoing(f"{name}.pack", view_file(path), name, progress)
            self._target.put([pack], replace=True)
            self._target.put([outgoing(f"{name}.index", memoryview(end))], replace=True)

    def lost(self, sizes: Mapping[str, int]) -> Collection[str]:
        return [name for name, size in sizes.items() if self._sizes.get(f"{name}.pack") != size]

    def settle(self) -> None:
        """See `PackPlace`. The last writer of the list has seen what all others stored before."""
        is_same = False
        while not is_same:
            names = "".join(f"{name}\n" for name in self.packs())
            listed = outgoing(LIST, memoryview(names.encode("ascii")))
            is_same = not self._target.put([listed], replace=True)

    def marked(self) -> Collection[str]:
        return with_mark(self._sizes)

    def mark(self, names: Sequence[str]) -> None:
        marks = [outgoing(f"{name}.{UNNEEDED}", memoryview(b"")) for name in names]
        self._target.put(marks, replace=True)

    def remove(self, names: Sequence[str]) -> None:
        self._remove(file for name in names for file in _files(name))

    def forget(self, names: Sequence[str]) -> None:
        self._remove(f"{name}.{UNNEEDED}" for name in names)

    def _remove(self, files: Iterable[str]) -> None:
        if not isinstance(self._target, PrunableTarget):
            raise RemoteRefused(f"{self.label}: files can't be deleted there")
        for file in files:
            self._target.remove(file)


def _until_gone(parts: Iterator[Buffer]) -> Iterator[Buffer]:
    with contextlib.suppress(InputError):
        yield from parts


def _files(name: str) -> tuple[str, str]:
    """Return the files of a pack in the order of removal: without its end it is not found."""
    return f"{name}.index", f"{name}.pack"
