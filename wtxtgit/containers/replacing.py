"""A file with other bytes in some places, or with tensors one after another.

What is written holds tensors as they are, not compressed: either in the places
that they have in a file, whose other bytes all stay, or in a file that is laid
out anew.
Spec: "Resealing" in `docs/spec/safetensors.md`, `npy.md` and `gguf.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.intervals import Span, groups
from wtxtgit.containers.ranges import Stored
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, hashed, pieces
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import NewContent, TensorSource

Edit = tuple[int, int, Callable[[], Iterable[Buffer]]]
"""First byte, end, and what gives the bytes that come there instead."""
# Tensors that share bytes are written, or compared, so many times the size of their file: one range
# can be listed as any number of tensors.
MAX_PASSES = 4
_Read = TypeVar("_Read")


def spliced(data: ByteView, edits: Iterable[Edit]) -> Iterator[Buffer]:
    """The file with these edits, which come in its order and lie apart."""
    reached = 0
    for start, end, blocks in edits:
        yield from pieces(data[reached:start])
        yield from blocks()
        reached = end
    yield from pieces(data[reached:])


@dataclass(frozen=True, slots=True, eq=False)
class WrittenTensor:
    """A tensor that is written: that of the file `data`, or `content` instead of its bytes."""

    tensor: Stored
    data: ByteView
    content: NewContent | None = None

    @property
    def nbytes(self) -> int:
        return self.tensor.nbytes

    def blocks(self) -> Iterator[Buffer]:
        """The bytes that are written."""
        if self.content is not None:
            return self.content.blocks()
        return pieces(self.data[self.tensor.start : self.tensor.end])


def behind(
    header: bytes, tensors: Sequence[TensorSource] | Sequence[WrittenTensor]
) -> Iterator[Buffer]:
    """A header, and the bytes of tensors back to back behind it."""
    yield header
    for tensor in tensors:
        yield from tensor.blocks()


def refuse_errors(findings: Findings) -> None:
    """Raise the first error that a check found as FormatError."""
    for problem in findings.errors:
        named = "" if problem.chunk is None else f"chunk {quoted(str(problem.chunk))}: "
        raise FormatError(
            named + problem.message, kind=problem.kind, offset=problem.offset, field=problem.field
        )


def refuse_damaged(
    sources: Iterable[_Read], check_into: Callable[[_Read, Findings], object]
) -> list[_Read]:
    """The containers whose tensors a new file takes, each once; raises the first error of one."""
    distinct = list({id(source): source for source in sources}.values())
    for source in distinct:
        findings = Findings(is_rewritten=True)
        check_into(source, findings)
        refuse_errors(findings)
    return distinct


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
    # Laid out anew, tensors that shared bytes have each their own.
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
    # A file can list one range as any number of tensors: to compare them all takes too long.
    left = MAX_PASSES * len(data)
    edits: list[Edit] = []
    # Tensors without bytes have no place, and share none.
    pairs = [pair for pair in zip(own, parts, strict=True) if pair[0].end > pair[0].start]
    for group in groups(pairs, lambda pair: (pair[0].start, pair[0].end)):
        given = [part for _, part in group if part.content is not None or part.data is not data]
        if not given:
            continue
        places = {(stored.start, stored.end) for stored, _ in group}
        if len(group) > 1:
            left -= _compare(places, [part for _, part in group], left)
        ((start, end),) = places
        edits.append((start, end, given[0].blocks))
    return spliced(data, edits)


def _compare(places: set[Span], parts: list[WrittenTensor], left: int) -> int:
    """Refuse parts that share bytes and are not the same; how many were compared."""
    names = f"{quoted(parts[0].tensor.name)} and {quoted(parts[1].tensor.name)}"
    if len(places) > 1:
        raise FormatError(
            f"tensors {names} share some of their bytes, which can't be changed", field="entries"
        )
    total = sum(part.nbytes for part in parts)
    if total > left:
        raise FormatError(
            f"tensors {names} share bytes with too many others", kind="limit", field="entries"
        )
    if len({hashed(sha256(), part.blocks()).digest() for part in parts}) > 1:
        raise FormatError(
            f"tensors {names} share their bytes, and are to have different ones", field="entries"
        )
    return total
