"""Which parts of a pack are fetched for some of its chunks, and making a pack of them.

A small gap between two chunks is fetched with them, because another request takes longer. Only the
wanted chunks of a part are stored, as they are encoded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from wtxtgit.errors import InputError
from wtxtgit.io.view import Buffer
from wtxtgit.remotes.target import Span
from wtxtgit.store.folder import PackFolder
from wtxtgit.store.pack import ChunkEntry
from wtxtgit.store.writer import NewPack

MOST_PART = 8 * 1024 * 1024
"""Most bytes of a part with several chunks; after a kill as much is fetched again."""
_MOST_SPAN = 4 * 1024 * 1024
"""Most bytes that are requested at once, and held in memory."""
_MOST_GAP = 256 * 1024
# At most one unwanted byte for so many wanted ones.
_WASTE = 20


@dataclass(frozen=True, slots=True)
class PackPart:
    """Chunks of a pack, ordered by position, and the spans that contain them."""

    pack: str
    entries: tuple[ChunkEntry, ...]
    spans: tuple[Span, ...]

    @property
    def nbytes(self) -> int:
        return sum(stop - start for start, stop in self.spans)


def parts_of(
    pack: str, size: int, entries: Collection[ChunkEntry], most: int, grain: int = 1
) -> Iterator[PackPart]:
    """Yield the parts in which chunks of a pack of `size` bytes are fetched.

    Each has about `most` bytes. Spans begin and end at multiples of `grain`, or where the pack
    ends, and no two parts have a byte in common.
    """
    ordered = sorted(entries, key=lambda entry: entry.place)
    # With a grain a gap saves no request.
    joined = _joined_gaps(ordered) if grain == 1 else frozenset()
    batch: list[ChunkEntry] = []
    nbytes = end = 0
    for entry in ordered:
        is_apart = entry.place // grain * grain >= end
        if batch and nbytes + entry.length > most and is_apart:
            yield PackPart(pack, tuple(batch), tuple(_spans(batch, joined, grain, size)))
            batch, nbytes = [], 0
        batch.append(entry)
        nbytes += entry.length
        end = entry.place + entry.length
    if batch:
        yield PackPart(pack, tuple(batch), tuple(_spans(batch, joined, grain, size)))


def store_part(folder: PackFolder, part: PackPart, contents: Iterable[Buffer]) -> str:
    """Make a pack of a part, of whose spans `contents` yields the bytes; returns its name.

    Raises InputError if they end early, and EnvironmentFailure if it can't be written.
    """
    pieces = _InSpans(part.spans, contents)
    new = NewPack(folder)
    try:
        for entry in part.entries:
            new.add_as_it_is(entry, pieces.between(entry.place, entry.place + entry.length))
        return new.finish()
    finally:
        new.close()


def _joined_gaps(ordered: Sequence[ChunkEntry]) -> frozenset[int]:
    """Return where those gaps begin that are fetched along with their neighbours.

    These are the smallest ones, as many as `_WASTE` allows.
    """
    gaps = sorted(
        (after.place - (before.place + before.length), before.place + before.length)
        for before, after in pairwise(ordered)
    )
    left = sum(entry.length for entry in ordered) // _WASTE
    joined = set()
    for gap, place in gaps:
        left -= gap
        if left < 0 or gap > _MOST_GAP:
            break
        joined.add(place)
    return frozenset(joined)


def _spans(
    entries: Sequence[ChunkEntry], joined: Collection[int], grain: int, size: int
) -> Iterator[Span]:
    runs: list[list[int]] = []
    for entry in entries:
        start = entry.place // grain * grain
        stop = min(-(-(entry.place + entry.length) // grain) * grain, size)
        if runs and (runs[-1][1] >= start or runs[-1][1] in joined):
            runs[-1][1] = stop
        else:
            runs.append([start, stop])
    step = max(grain, _MOST_SPAN // grain * grain)
    for start, stop in runs:
        for at in range(start, stop, step):
            yield at, min(at + step, stop)


class _InSpans:
    """The bytes of spans, read in order of position."""

    def __init__(self, spans: Iterable[Span], contents: Iterable[Buffer]) -> None:
        self._contents = zip(spans, contents, strict=False)
        self._at = 0
        self._piece = memoryview(b"")

    def between(self, start: int, stop: int) -> Iterator[memoryview]:
        """Yield the bytes between two positions; earlier ones can't be read any more."""
        while start < stop:
            skipped = start - self._at
            if skipped >= self._piece.nbytes:
                self._next()
                continue
            piece = self._piece[skipped : skipped + stop - start]
            yield piece
            start += piece.nbytes

    def _next(self) -> None:
        try:
            (self._at, stop), content = next(self._contents)
        except StopIteration:
            raise InputError("ends early") from None
        self._piece = memoryview(content).cast("B")
        if self._piece.nbytes != stop - self._at:
            raise InputError("ends early")
