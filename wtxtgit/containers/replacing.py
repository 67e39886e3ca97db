"""A file with other bytes in some places, or with tensors one after another.

What is written holds tensors as they are, not compressed: either in the places
that they have in a file, whose other bytes all stay, or in a file that is laid
out anew.
Spec: "Resealing" in `docs/spec/safetensors.md`, `npy.md` and `gguf.md`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.ranges import Stored
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import Content

Edit = tuple[int, int, Callable[[], Iterable[Buffer]]]
"""First byte, end, and what gives the bytes that come there instead."""


def spliced(data: ByteView, edits: Iterable[Edit]) -> Iterator[Buffer]:
    """The file with these edits, which come in its order and lie apart."""
    reached = 0
    for start, end, blocks in edits:
        yield from pieces(data[reached:start])
        yield from blocks()
        reached = end
    yield from pieces(data[reached:])


MAX_PASSES = 4
"""Tensors that share bytes are written, or compared, so many times the size of their file."""


@dataclass(frozen=True, slots=True, eq=False)
class WrittenTensor:
    """A tensor that is written: that of the file `data`, or `content` instead of its bytes."""

    tensor: Stored
    data: ByteView
    content: Content | None = None

    @property
    def nbytes(self) -> int:
        return self.tensor.end - self.tensor.start

    def blocks(self) -> Iterator[Buffer]:
        """The bytes that are written."""
        if self.content is not None:
            return self.content.blocks()
        return pieces(self.data[self.tensor.start : self.tensor.end])


def refuse_errors(findings: Findings) -> None:
    """Raise the first error that a check found as FormatError."""
    for problem in findings.errors:
        named = "" if problem.chunk is None else f"chunk {quoted(str(problem.chunk))}: "
        raise FormatError(
            named + problem.message, kind=problem.kind, offset=problem.offset, field=problem.field
        )


def check_lengths(parts: Iterable[WrittenTensor]) -> None:
    """Raise FormatError where a content has another length than what it replaces."""
    for part in parts:
        if part.content is not None and part.content.nbytes != part.nbytes:
            raise FormatError(
                f"tensor {quoted(part.tensor.name)} has {part.nbytes} bytes, "
                f"{part.content.nbytes} are given",
                field="entries",
            )


def check_size(parts: Iterable[WrittenTensor], sources: Iterable[ByteView]) -> None:
    """Raise FormatError (limit) where tensors that share bytes make a file too large."""
    total = sum(part.nbytes for part in parts)
    if total > MAX_PASSES * sum(map(len, sources)):
        raise FormatError(
            f"tensors that share bytes would be {total} bytes", kind="limit", field="entries"
        )


def replaced(
    data: ByteView, own: Sequence[Stored], parts: Sequence[WrittenTensor]
) -> Iterator[Buffer]:
    """The file `data`, with each part in the place of its own tensor of that number.

    Raises FormatError, before the first piece: for tensors that share bytes
    and are given different ones; (limit) where to find that out takes too long.
    """
    places = sorted(
        ((stored.start, stored.end, n) for n, stored in enumerate(own) if stored.end > stored.start)
    )
    left = MAX_PASSES * len(data)
    edits: list[Edit] = []
    for group in _sharing(places):
        given = [
            parts[n]
            for _, _, n in group
            if parts[n].content is not None or parts[n].data is not data
        ]
        if not given:
            continue
        if len(group) > 1:
            left -= _compare(group, [parts[n] for _, _, n in group], left)
        start, end, _ = group[0]
        edits.append((start, end, given[0].blocks))
    return spliced(data, edits)


def _sharing(places: Iterable[tuple[int, int, int]]) -> Iterator[list[tuple[int, int, int]]]:
    """Places in order of the file, those that overlap together."""
    group: list[tuple[int, int, int]] = []
    reached = 0
    for place in places:
        if group and place[0] >= reached:
            yield group
            group = []
        group.append(place)
        reached = max(reached, place[1])
    if group:
        yield group


def _compare(group: list[tuple[int, int, int]], parts: list[WrittenTensor], left: int) -> int:
    """Refuse parts that share bytes and are not the same; how many were compared."""
    names = f"{quoted(parts[0].tensor.name)} and {quoted(parts[1].tensor.name)}"
    if any(before[:2] != after[:2] for before, after in pairwise(group)):
        raise FormatError(
            f"tensors {names} share some of their bytes, which can't be changed", field="entries"
        )
    total = sum(part.nbytes for part in parts)
    if total > left:
        raise FormatError(
            f"tensors {names} share bytes with too many others", kind="limit", field="entries"
        )
    if len({_digest(part) for part in parts}) > 1:
        raise FormatError(
            f"tensors {names} share their bytes, and are to have different ones", field="entries"
        )
    return total


def _digest(part: WrittenTensor) -> bytes:
    hashed = hashlib.sha256()
    for block in part.blocks():
        hashed.update(block)
    return hashed.digest()
