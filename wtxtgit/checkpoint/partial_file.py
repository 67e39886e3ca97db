"""The file of a text that has lost parts, with zeros in their place.

Only the text states how long the lost parts were, and anybody may have written it. So the number of
zeros has the same limit as the decoded size of such a file (`containers/budget.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from wtxtgit.checkpoint import open as opener
from wtxtgit.checkpoint.open import refuse_itself
from wtxtgit.checkpoint.recover import RecoveredText, TextRecovery
from wtxtgit.checkpoint.restore import TEXT_ENDING
from wtxtgit.containers.budget import LIMIT_KEY, most_decoded
from wtxtgit.errors import CheckError, UsageError
from wtxtgit.io.files import write_output
from wtxtgit.io.progress import Progress, expect
from wtxtgit.io.view import PIECE, Buffer, ByteView, counted, pieces, write_all
from wtxtgit.model.tensor import Decoding, ReadOptions
from wtxtgit.text.recovery.pieces import ArrayPieces
from wtxtgit.text.recovery.rebuilding import PartialText


def write_partial(
    done: RecoveredText,
    out: Path,
    source: str,
    limit: Decoding | None = None,
    progress: Progress | None = None,
) -> TextRecovery:
    """Write the file of a text with zeros for what is lost; returns the report with their ranges.

    `progress` gets counts of bytes that were written. Raises CheckError if the text's layout is
    unknown, or if there would be more zeros than a file of its size may decode to
    (`containers/budget.py`), and UsageError if the output is a text.
    """
    refuse_itself(out, source)
    if out.suffix == TEXT_ENDING:
        raise UsageError(
            "a text with lost parts would prove nothing: choose a file in another format"
        )
    whole = _file_parts(done.recovery)
    if whole is None:
        raise CheckError(
            f"{opener.shown_name(source)}: no file can be made of it, because its layout or the "
            "sizes of arrays are lost"
        )
    most = most_decoded(done.nbytes, ReadOptions(decoding=limit))
    if (zeros := sum(part.zeros for part in _each(whole))) > most:
        raise CheckError(
            f"{opener.shown_name(source)}: {zeros} bytes of its file would be zeros, over the "
            f"limit of {most}",
            hint=f"git config {LIMIT_KEY} SIZE allows more",
        )
    expect(progress, sum(part.nbytes for part in _each(whole)))
    content = counted(_written(_each(whole)), progress)
    write_output(out, lambda descriptor: write_all(descriptor, content))
    return replace(done.report, lost=_lost_ranges(_each(whole)))


_NOTHING = memoryview(b"")


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a file: bytes, or a number of zeros, which with `is_lost` replace lost bytes."""

    raw: ByteView = _NOTHING
    zeros: int = 0
    is_lost: bool = False

    @property
    def nbytes(self) -> int:
        return len(self.raw) + self.zeros


def _each(whole: Iterable[_Part | ArrayPieces]) -> Iterator[_Part]:
    """Yield the parts of a file, those of an array chunk by chunk, since there may be very many."""
    for one in whole:
        if isinstance(one, _Part):
            yield one
            continue
        for slot in one.slots:
            raw = slot.raw
            yield _Part(zeros=slot.size, is_lost=True) if raw is None else _Part(raw)


def _lost_ranges(parts: Iterable[_Part]) -> tuple[tuple[int, int], ...]:
    lost: list[tuple[int, int]] = []
    at = 0
    for part in parts:
        end = at + part.nbytes
        if part.is_lost and part.nbytes:
            start = lost.pop()[0] if lost and lost[-1][1] == at else at
            lost.append((start, end))
        at = end
    return tuple(lost)


def _written(parts: Iterable[_Part]) -> Iterator[Buffer]:
    """Yield the bytes of the parts in order, in pieces of bounded size."""
    for part in parts:
        yield from pieces(part.raw)
        for start in range(0, part.zeros, PIECE):
            yield _ZEROS[: part.zeros - start]


_ZEROS = memoryview(bytes(PIECE))


def _file_parts(recovery: PartialText) -> list[_Part | ArrayPieces] | None:
    """Return the file's parts and arrays in order; None if they are not known."""
    layout = recovery.layout
    if layout is None or layout.size is None:
        return None
    by_name = dict(zip(recovery.names, recovery.arrays, strict=True))
    parts: list[_Part | ArrayPieces] = []
    given = 0
    unknown: int | None = None
    for extent in layout.extents:
        array = None if extent.array is None else by_name.get(extent.array)
        if array is not None and array.nbytes is not None:
            parts.append(array)
            given += array.nbytes
        elif extent.array is None:
            part = _Part(memoryview(extent.hex or b""), extent.zeros or 0)
            parts.append(part)
            given += part.nbytes
        elif unknown is None:
            unknown = len(parts)
        else:
            return None
    # If one array's size is unknown it follows from the size of the file.
    rest = layout.size - given
    if rest < 0 or (rest and unknown is None):
        return None
    if unknown is not None:
        parts.insert(unknown, _Part(zeros=rest, is_lost=True))
    return parts
