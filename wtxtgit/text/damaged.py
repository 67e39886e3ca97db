"""Reading the intact parts of a text whose lines are damaged.

`index.py` stops at the first wrong line, since lines alone do not tell what follows it. This
module uses `recovery/reading.py` to find all lines that can be recognised; it mends nothing.
What is decoded is checked as in an intact text: chunks against their SHA-256, and arrays that are
read as a whole against their own.
"""

from __future__ import annotations

from array import array as numbers
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256

from wtxtgit.errors import TextError
from wtxtgit.io.view import ByteView, hashed
from wtxtgit.model.array import LAYOUT_ARRAY, MAX_CHUNKS, NAME_SIZE, Layout, Meta
from wtxtgit.model.findings import Problem, Problems
from wtxtgit.text import grammar
from wtxtgit.text.grammar import LINE_TEXT
from wtxtgit.text.index import ArrayIndex, TextIndex, packed
from wtxtgit.text.layout import parse_layout
from wtxtgit.text.recovery.found import FoundArray, FoundChunk, FoundText
from wtxtgit.text.recovery.reading import read
from wtxtgit.text.verify import Block, checked_bytes

HINT = "wtxtgit recover shows what can be recovered"
MISSING = "its lines are missing, or not as many as there should be"
NOWHERE = -1
"""Stands in an index for the position of a chunk whose lines are missing, or too few or many."""
# Memory is bounded by what is there, not by what is claimed: an array may have as many missing
# chunks in the index as chunks that exist, and the whole text so many more.
_LEAST_MISSING, _MISSING_BYTES = 1024, 64


@dataclass(slots=True)
class IntactText:
    """What can be read of a damaged text.

    `problems` says what can't be read: first the fault at which reading line by line stops, then an
    entry for each array and chunk. `layout` is None if there is none or if it can't be read.
    """

    index: TextIndex
    layout: Layout | None = None
    problems: Problems = field(default_factory=Problems)


def intact(text: ByteView, index: TextIndex) -> IntactText:
    """Find what can be read of a text for which `index` stopped at a fault.

    Raises that fault as TextError if no array can be recognised.
    """
    found = read(text)
    done = IntactText(TextIndex(stop=index.stop, has_header=index.has_header))
    if index.stop is not None:
        done.problems.append(index.stop)
    done.index.meta = _meta(found)
    reader = _ArrayReader(text, done.problems)
    before = ""
    for found_array in found.arrays:
        array = reader.array(found_array)
        if array is None:
            continue
        if array.name <= before:
            done.problems.append(
                Problem("structure", "appears more than once or out of order", array=array.name)
            )
            continue
        before = array.name
        done.index.arrays.append(array)
    layout = done.index.array(LAYOUT_ARRAY)
    if layout is not None:
        try:
            raw = b"".join(chunks_of(text, layout, 0, layout.chunks))
            done.layout = parse_layout(raw, len(text))
        except TextError as error:
            # Without the layout, arrays have the names and dtypes of the text's own lines.
            done.problems.append(Problem(error.kind, error.message, array=LAYOUT_ARRAY))
    return done


def chunks_of(text: ByteView, array: ArrayIndex, first: int, end: int) -> Iterator[memoryview]:
    """Yield the bytes of chunks `first` up to, but not including, `end`.

    Raises TextError, with array, chunk and line, for a damaged chunk; and at the end of a whole
    array if it does not match its SHA-256.
    """
    whole = sha256()
    for ix in range(first, end):
        if array.starts[ix] == NOWHERE:
            raise TextError(
                "structure", MISSING, line=array.lines[ix], array=array.name, chunk=ix, hint=HINT
            )
        try:
            # One chunk at a time: anything may stand between two of them.
            (raw,) = checked_bytes(text, [Block(array, ix, 1, array.size_of(ix))])
        except TextError as error:
            if error.hint is None:
                error.hint = HINT
            raise
        hashed(whole, [raw])
        yield raw
    if first == 0 and end == array.chunks and whole.digest() != array.claim.sha256:
        message = "does not match the sha256 of its line"
        raise TextError("array_sha256", message, line=array.line, array=array.name, hint=HINT)


def _meta(found: FoundText) -> Meta:
    parsed = grammar.parse_meta(_line(found.meta), 0)
    return Meta() if parsed is None else parsed[0]


def _line(line: bytes | None) -> memoryview:
    return memoryview(b"" if line is None else line + b"\n")


class _ArrayReader:
    """Makes the index of arrays of which some lines exist."""

    def __init__(self, text: ByteView, problems: Problems) -> None:
        self._problems = problems
        self._lines = _LineNumbers(text)
        self._missing = _LEAST_MISSING + len(text) // _MISSING_BYTES
        """How many more missing chunks may be indexed, over all arrays."""

    def array(self, found: FoundArray) -> ArrayIndex | None:
        """Return the index of an array, None if its `arr` or `idx` line can't be read."""
        tell, lines = self._problems.append, self._lines
        at = found[0].body[0] if found else None
        number = None if at is None else max(1, lines.of(at) - 2)
        parsed = grammar.parse_array(_line(found.line), 0)
        if parsed is None or grammar.check_bytes(parsed[0]) is not None:
            tell(Problem("syntax", "an arr line can't be read", line=number))
            return None
        claim = parsed[0]
        parsed_rows = grammar.parse_rows(_line(found.rows_line), 0)
        rows = None if parsed_rows is None else parsed_rows[0]
        if found.rows_line is not None and (
            rows is None or grammar.check_rows(rows, claim.dtype) is not None
        ):
            tell(Problem("syntax", "an idx line can't be read", number, claim.name))
            return None
        # Its lines may stand anywhere.
        array = ArrayIndex(claim, number or 1, rows, starts=packed(), lines=packed())
        array.chunk_size = grammar.chunk_size(rows)
        places = found.by_ix()
        missing = max(0, array.chunks - 2 * places.count)
        if array.chunks > MAX_CHUNKS or missing > self._missing:
            tell(Problem("structure", "most of it is missing", number, claim.name))
            return None
        self._missing -= missing
        for ix in range(array.chunks):
            # If two chunks have the same number, the last one counts.
            chunk = next((found[n] for n in reversed(places.of(ix))), None)
            array.lines.append(array.line if chunk is None else lines.of(chunk.body[0]))
            if chunk is not None and _is_whole(array, chunk):
                array.starts.append(chunk.body[0])
                array.sha256.append(bytes.fromhex(chunk.sha256))
                array.crc32c.append(int(chunk.crc32c, 16))
                continue
            tell(Problem("structure", MISSING, array.lines[ix], claim.name, ix))
            array.starts.append(NOWHERE)
            array.sha256.append(bytes(NAME_SIZE))
            array.crc32c.append(0)
        array.complete = True
        return array


def _is_whole(array: ArrayIndex, chunk: FoundChunk) -> bool:
    """Whether a chunk is in the array, has as many lines as it needs, and readable hashes."""
    if chunk.ix >= array.chunks:
        return False
    start, end = chunk.body
    hashes = chunk.sha256 + chunk.crc32c
    return (
        end - start == grammar.line_count(array.size_of(chunk.ix)) * LINE_TEXT
        and len(chunk.sha256) == 64
        and len(chunk.crc32c) == 8
        and all(digit in "0123456789abcdef" for digit in hashes)
    )


class _LineNumbers:
    """Maps positions in the text to line numbers.

    Positions may be asked for in any order: line ends are counted once, piece by piece.
    """

    def __init__(self, text: ByteView) -> None:
        self._text = text
        self._before = numbers("q", [0])

    def of(self, place: int) -> int:
        piece, within = divmod(place, _COUNTED)
        for start in range((len(self._before) - 1) * _COUNTED, piece * _COUNTED, _COUNTED):
            ended = bytes(self._text[start : start + _COUNTED]).count(b"\n")
            self._before.append(self._before[-1] + ended)
        start = piece * _COUNTED
        ended = bytes(self._text[start : start + within]).count(b"\n")
        return self._before[piece] + ended + 1


_COUNTED = 4096
"""Line ends are counted in pieces of this many bytes."""
