"""Writing a file with some bytes replaced, or with tensors one after another.

Tensors are written as they are, not compressed: either in the places that they have in a file whose
other bytes all stay, or in a file that is laid out anew. Spec: "Resealing" in
`docs/spec/safetensors.md`, `npy.md` and `gguf.md`.
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
"""First byte, end, and a function that returns the bytes for this range."""
# Tensors that share bytes are written, or compared, up to this many times the size of their file:
# one range can be listed as any number of tensors.
MAX_PASSES = 4
_Read = TypeVar("_Read")


def spliced(data: ByteView, edits: Iterable[Edit]) -> Iterator[Buffer]:
    """Yield the file with these edits, which are in file order and do not overlap."""
    reached = 0
    for start, end, blocks in edits:
        yield from pieces(data[reached:start])
        yield from blocks()
        reached = end
    yield from pieces(data[reached:])


@dataclass(frozen=True, slots=True, eq=False)
class WrittenTensor:
    """A tensor to be written: that of the file `data`, or with `content` in place of its bytes."""

    tensor: Stored
    data: ByteView
    content: NewContent | None = None

    @property
    def nbytes(self) -> int:
        return self.tensor.nbytes

    def blocks(self) -> Iterator[Buffer]:
        """Yield the bytes to be written."""
        if self.content is not None:
            return self.content.blocks()
        return pieces(self.data[self.tensor.start : self.tensor.end])


def behind(
    header: bytes, tensors: Sequence[TensorSource] | Sequence[WrittenTensor]
) -> Iterator[Buffer]:
    """Yield a header, followed by the bytes of tensors back to back."""
    yield header
    for tensor in tensors:
        yield from tensor.blocks()


def refuse_errors(findings: Findings) -> None:
    """Raise FormatError for the first error that a check found."""
    for problem in findings.errors:
        named = "" if problem.chunk is None else f"chunk {quoted(str(problem.chunk))}: "
        raise FormatError(
            named + problem.message, kind=problem.kind, offset=problem.offset, field=problem.field
        )


def refuse_damaged(
    sources: Iterable[_Read], check_into: Callable[[_Read, Findings], object]
) -> list[_Read]:
    """Return the containers from which a new file takes tensors; raises the first error of one."""
    distinct = list({id(source): source for source in sources}.values())
    for source in distinct:
        findings = Findings(is_rewritten=True)
        check_into(source, findings)
        refuse_errors(findings)
    return distinct


def check_lengths(parts: Iterable[WrittenTensor]) -> None:
    """Raise FormatError if a content has another length than what it replaces."""
    for part in parts:
        if part.content is not None and part.content.nbytes != part.nbytes:
            raise FormatError(
                f"tensor {quoted(part.tensor.name)} has {part.nbytes} bytes, "
                f"but {part.content.nbytes} were given",
                field="entries",
            )


def check_size(parts: Iterable[WrittenTensor], sources: Iterable[ByteView]) -> None:
    """Raise FormatError (limit) if tensors that share bytes make a file too large."""
    total = sum(part.nbytes for part in parts)
    # In a new layout, each tensor that shared bytes has its own copy.
    if total > MAX_PASSES * sum(map(len, sources)):
        raise FormatError(
            f"tensors that share bytes would take {total} bytes", kind="limit", field="entries"
        )


def replaced(
    data: ByteView, own: Sequence[Stored], parts: Sequence[WrittenTensor]
) -> Iterator[Buffer]:
    """Yield the file `data`, with each part in the place of its own tensor of the same number.

    Raises FormatError, before the first piece, for tensors that share bytes but are given different
    ones; (limit) if finding that out takes too long.
    """
    # A file can list one range as any number of tensors: comparing them all would take too long.
    left = MAX_PASSES * len(data)
    edits: list[Edit] = []
    # Tensors without bytes have no place and share nothing.
    pairs = [pair for pair in zip(own, parts, strict=True) if pair[0].end > pair[0].start]
    for group in groups(pairs, lambda pair: (pair[0].start, pair[0].end)):
        new_parts = [part for _, part in group if part.content is not None or part.data is not data]
        if not new_parts:
            continue
        places = {(stored.start, stored.end) for stored, _ in group}
        if len(group) > 1:
            left -= _compare(places, [part for _, part in group], left)
        ((start, end),) = places
        edits.append((start, end, new_parts[0].blocks))
    return spliced(data, edits)


def _compare(places: set[Span], parts: list[WrittenTensor], left: int) -> int:
    """Refuse parts that share bytes and differ; returns how many bytes were compared."""
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
            f"tensors {names} share their bytes, so they can't differ", field="entries"
        )
    return total
