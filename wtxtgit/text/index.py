"""Indexing a WTXT text: finding where everything stands, without decoding anything.

Armored lines have a fixed length, so the `ch` line of one chunk tells where the next one stands.
`index` reads the lines between the armor, checks grammar and structure (`docs/spec/wtxt.md`,
sections "Lines" and "Arrays"), and stops at the first fault; everything before it remains usable.
Nothing is allocated because of a claim: a chunk is indexed only once its lines are there.

A detached text (`docs/spec/detached.md`) has the same lines except those that hold the data of
larger arrays. Such an array is indexed together with the payload that has its chunks.
"""

from __future__ import annotations

from array import array as packed_array
from binascii import a2b_hex
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain
from typing import NoReturn, TypeAlias, TypeVar

from wtxtgit.errors import TextError
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import ByteView, mapped, pieces
from wtxtgit.model.array import (
    DIMENSION_BYTES,
    ITEM_SIZE,
    LEAST_DIMENSIONS,
    MAX_CHUNKS,
    MOST_UNCOUNTED,
    NO_PAYLOAD,
    ChunkNames,
    Meta,
    PayloadSource,
    Rows,
    Signature,
    bounded_product,
    chunk_count,
)
from wtxtgit.model.findings import Problem
from wtxtgit.text import armor, grammar

_T = TypeVar("_T")

# A message quotes at most this many bytes of a wrong line.
_SHOWN = 40
NEAR = 1024 * 1024
"""Size in bytes of the window of a large text that is mapped at a time."""
LEAST = 4096
"""A new window is mapped when fewer bytes than this are left: most lines are shorter."""


class LineCursor:
    """A cursor over a text's lines; `line` is the number of the line at `pos`.

    Faults are raised as TextError with the line, and with the current array and chunk.
    """

    def __init__(self, text: ByteView) -> None:
        self._text = text
        self._near_text = text if isinstance(text, memoryview) else mapped(text[:NEAR])
        self._first = 0
        self._dimensions = 0
        self._pos = 0
        self._line = 1
        self._array: str | None = None
        self._chunk: int | None = None

    def _find_bad_line(self, start: int, first: int, lines: int) -> None:
        """Raise a fault for the first line of a chunk that does not end where it should."""
        faults, _ = armor.diagnose(self._text[start:], lines * grammar.LINE_RAW)
        # Only a fault of kind "syntax" is a wrong length: lines of the right length may have
        # faults of other kinds.
        bad = next((fault for fault in faults if fault.kind == "syntax"), None)
        at = lines if bad is None else bad.index
        self._pos = min(len(self._text), start + at * grammar.LINE_TEXT)
        self._line = first + at
        if bad is not None and self._pos < len(self._text):
            if len(self._text) - self._pos < grammar.LINE_TEXT and self._no_more_lines():
                self._fail("syntax", "the text ends inside a chunk")
            self._fail("syntax", bad.message)
        if self._pos == len(self._text):
            self._fail("syntax", "the text ends inside a chunk")

    def _check_order(self, before: str | None, name: str, line: int) -> None:
        """Check that array names ascend; `before` is the name of the previous array, if any."""
        if before is not None and name <= before:
            what = "appears more than once" if name == before else "is out of order"
            self._fail("structure", f'array "{name}" {what}', line=line)

    def _take_rows(self, dtype: str) -> Rows | None:
        """Take the `idx` line of an array of `dtype`, if there is one."""
        if not self._at(b"idx "):
            return None
        line = self._line
        rows = self._take(grammar.parse_rows, "idx")
        if (wrong := grammar.check_rows(rows, dtype)) is not None:
            self._fail("structure", wrong, line=line)
        return rows

    def _take_armor(self, lines: int) -> tuple[int, int]:
        """Skip a chunk's data lines; returns the byte and the line number at which they start."""
        start, first = self._pos, self._line
        self._pos, self._line = start + lines * grammar.LINE_TEXT, first + lines
        if self._pos > len(self._text):
            # The lines go beyond the end of the text, or `endch` does not follow them: one of them
            # is too short or too long.
            self._find_bad_line(start, first, lines)
        return start, first

    def _end_chunk(self, start: int, first: int, lines: int) -> None:
        """Take the `endch` line after lines that `_take_armor` skipped."""
        if not self._at(grammar.END_CHUNK):
            self._find_bad_line(start, first, lines)
        self._expect(grammar.END_CHUNK)

    def _no_more_lines(self) -> bool:
        return b"\n" not in bytes(self._text[self._pos :])

    def _at(self, start: bytes) -> bool:
        near, at = self._near()
        return near[at : at + len(start)] == start

    def _expect(self, line: bytes) -> None:
        if not self._at(line):
            self._fail("syntax", f"expected {line.decode().rstrip()}, found {self._shown()}")
        self._pos += len(line)
        self._line += 1

    def _take(self, parse: Callable[[memoryview, int], tuple[_T, int] | None], label: str) -> _T:
        near, at = self._near()
        parsed = parse(near, at)
        # The line may go on beyond the mapped window: an audit line has no maximum length.
        if parsed is None and not self._holds_line():
            parsed = parse(self._whole_line(), 0)
            at = 0
        if parsed is None:
            self._fail("syntax", f"not a valid {label} line: {self._shown()}")
        value, end = parsed
        self._pos += end - at
        self._line += 1
        return value

    def _near(self) -> tuple[memoryview, int]:
        """Return a window of the text that contains `pos`, and where in the window that is."""
        at = self._pos - self._first
        end = self._first + len(self._near_text)
        # A line's parser needs one buffer. For a large text a new window is mapped once less than a
        # usual line is left in the current one; `_whole_line` handles longer lines.
        if self._pos + LEAST > end and end < len(self._text):
            self._first, at = self._pos, 0
            self._near_text = mapped(self._text[self._pos : self._pos + NEAR])
        return self._near_text, at

    def _holds_line(self) -> bool:
        """Whether the current window contains the end of the line."""
        near, at = self._near()
        return self._first + len(near) == len(self._text) or b"\n" in bytes(near[at:])

    def _whole_line(self) -> memoryview:
        """Return the line at `pos`, however long it is."""
        end = self._pos
        for piece in pieces(self._text[self._pos :]):
            newline = bytes(piece).find(b"\n")
            end += len(piece) if newline < 0 else newline + 1
            if newline >= 0:
                break
        return mapped(self._text[self._pos : end])

    def _shown(self) -> str:
        if self._pos >= len(self._text):
            return "the end of the text"
        rest = bytes(self._text[self._pos : self._pos + _SHOWN + 1])
        line = rest.split(b"\n", 1)[0]
        return quote(line[:_SHOWN]) + ("..." if len(line) > _SHOWN else "")

    def _count_dimensions(self, claim: grammar.ArrayLine, line: int) -> None:
        """Count the dimensions of arrays that have many: they take more memory than text."""
        if len(claim.shape) > MOST_UNCOUNTED:
            self._dimensions += len(claim.shape)
        if self._dimensions > LEAST_DIMENSIONS + len(self._text) // DIMENSION_BYTES:
            self._fail(
                "limit", "arrays have too many dimensions for a text of this length", line=line
            )

    def _fail(self, kind: str, message: str, *, line: int | None = None) -> NoReturn:
        left = len(self._text) - self._pos
        # Cut within a line, or an editor or a transport removed the last line feed.
        if kind == "syntax" and 0 < left <= NEAR and self._no_more_lines():
            message += "; the text ends in this line, without its line feed"
        raise TextError(
            kind, message, line=line or self._line, array=self._array, chunk=self._chunk
        )


def fault_of(read: Callable[[], None]) -> Problem | None:
    """Run `read` and return the fault at which it stops, None if it reaches the end of the text."""
    try:
        read()
    except TextError as error:
        return problem_of(error)
    return None


def problem_of(error: TextError) -> Problem:
    """Convert the error that a reader raised to a problem of the text."""
    return Problem(error.kind, error.message, line=error.line, array=error.array, chunk=error.chunk)


def quote(raw: bytes) -> str:
    """Return bytes in double quotes, escaping everything but printable ASCII."""
    return '"' + ascii(raw.decode("latin-1"))[1:-1].replace('"', '\\"') + '"'


def start_of(data: ByteView) -> str:
    """Describe how content starts, for messages about content that is not the expected text."""
    start = bytes(data[:_QUOTED])
    return f"it starts with {quote(start)}" if start else "it is empty"


# How many bytes of it are quoted.
_QUOTED = 16

_ZERO_HMAC = bytes(32)
# `ch` lines that are read together.
_TOGETHER = 1024
# What stands in place of data lines if an array that must have them has none.
_BEHIND_DATA = (b"ch ", grammar.END_CHUNK, grammar.END_ARRAY)
_END_SHORT = grammar.END_CHUNK + grammar.END_ARRAY


Numbers: TypeAlias = "packed_array[int]"
packed: Callable[..., Numbers] = partial(packed_array, "q")
"""Numbers without an object for each: an array may have a million chunks."""
_packed_u4: Callable[..., Numbers] = partial(packed_array, "I")


class Steps:
    """Numbers that can be appended, kept as runs with equal steps.

    Lines of full chunks are equally long, so the positions of any number of chunks are mostly two
    runs. One thread may append while others read what is there.
    """

    __slots__ = ("_firsts", "_runs")

    def __init__(self) -> None:
        self._runs: list[range] = []
        self._firsts: list[int] = []
        """How many numbers come before each run."""

    def append(self, number: int) -> None:
        self.extend(range(number, number + 1))

    def extend(self, numbers: range) -> None:
        """Append ascending numbers."""
        while numbers:
            last = self._runs[-1] if self._runs else range(0)
            step = numbers[0] - last[-1] if last else 0
            if step > 0 and (len(last) == 1 or step == last.step):
                # As many as continue the run: all, or only the first.
                count = len(numbers) if step == numbers.step else 1
                self._runs[-1] = range(last[0], numbers[count - 1] + 1, step)
            else:
                count = len(numbers)
                self._firsts.append(len(self))
                self._runs.append(numbers)
            numbers = numbers[count:]

    def __len__(self) -> int:
        return self._firsts[-1] + len(self._runs[-1]) if self._runs else 0

    def __getitem__(self, at: int) -> int:
        at = range(len(self))[at]
        run = bisect_right(self._firsts, at) - 1
        return self._runs[run][at - self._firsts[run]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Steps | packed_array):
            return NotImplemented
        return len(self) == len(other) and all(self[at] == other[at] for at in range(len(self)))

    __hash__ = None  # type: ignore[assignment]


@dataclass(slots=True)
class ArrayIndex:
    """Where an array's chunks stand, and what its lines claim.

    `line` is the number of the `arr` line. The data lines of chunk i start at byte `starts[i]` and
    line number `lines[i]`; its `ch` line claims `sha256[i]` and `crc32c[i]`; it holds `size_of(i)`
    bytes. If the data are not in the text, `payload` has them, and the positions are where the
    lines would stand.
    """

    claim: grammar.ArrayLine
    line: int
    rows: Rows | None = None
    chunk_size: int = grammar.PLAIN_CHUNK
    starts: Steps | Numbers = field(default_factory=Steps)
    lines: Steps | Numbers = field(default_factory=Steps)
    sha256: ChunkNames = field(default_factory=ChunkNames)
    crc32c: Numbers = field(default_factory=_packed_u4)
    complete: bool = False
    payload: PayloadSource | None = None

    @property
    def name(self) -> str:
        return self.claim.name

    @property
    def header(self) -> bytes:
        """The `arr` line without its LF, as hash_all takes it: it has only one spelling.

        Formatted on each access, since a text may have a million arrays.
        """
        return grammar.format_array(self.claim)[:-1]

    @property
    def nbytes(self) -> int:
        return self.claim.nbytes

    @property
    def has_hmac(self) -> bool:
        return self.claim.hmac != _ZERO_HMAC

    def want_payload(self, first: int = 0, end: int | None = None) -> None:
        """Request chunks of the array that will be read: see `PayloadSource.want`."""
        if self.payload is not None:
            last = len(self.sha256) if end is None else end
            self.payload.want(self.sha256.between(first, last))

    @property
    def chunks(self) -> int:
        return chunk_count(self.nbytes, self.chunk_size)

    def size_of(self, ix: int) -> int:
        return max(0, min(self.chunk_size, self.nbytes - ix * self.chunk_size))


@dataclass(slots=True)
class TextIndex:
    """What a text says; `stop` is the fault at which the reading stopped, if any.

    `root` is None for a pending text and if the header could not be read. `covered` is the number
    of its bytes that a header signature covers. A detached text has the chunks of its larger arrays
    in `payload`.
    """

    meta: Meta = field(default_factory=Meta)
    cap: tuple[str, ...] = ()
    root: grammar.Root | None = None
    pending: bool = False
    signature: Signature | None = None
    covered: int = 0
    arrays: list[ArrayIndex] = field(default_factory=list)
    audit: str | None = None
    stop: Problem | None = None
    has_header: bool = False
    is_detached: bool = False
    payload: PayloadSource = NO_PAYLOAD

    def signed(self, text: ByteView) -> bytes:
        """Return what a header signature covers: in both forms the lines of the attached text."""
        covered = bytes(text[: self.covered])
        if not self.is_detached:
            return covered
        return grammar.FIRST_LINE + covered[len(grammar.DETACHED_FIRST_LINE) :]

    def array(self, name: str) -> ArrayIndex | None:
        return next((array for array in self.arrays if array.name == name), None)

    @property
    def detached_arrays(self) -> list[ArrayIndex]:
        """The arrays whose chunks are in the payload."""
        return [array for array in self.arrays if array.payload is not None]

    @property
    def payload_names(self) -> Iterator[bytes]:
        """The names of the payload's chunks, in order, as they are asked for."""
        return (name for array in self.detached_arrays for name in array.sha256)

    @property
    def payload_chunks(self) -> int:
        """The number of these names."""
        return sum(len(array.sha256) for array in self.detached_arrays)

    def want_payload(self) -> None:
        """Request all of the text's payload, unless the text breaks a rule."""
        if self.stop is None:
            self.payload.want(self.payload_names)


def want_payload(arrays: Iterable[ArrayIndex]) -> None:
    """Request all chunks of arrays that will be read: see `PayloadSource.want`."""
    want_chunks((array, 0, array.chunks) for array in arrays)


def want_chunks(parts: Iterable[tuple[ArrayIndex, int, int]]) -> None:
    """Request parts of arrays: the chunks from a first up to, but not including, a last."""
    sources: dict[int, tuple[PayloadSource, list[Iterator[bytes]]]] = {}
    for array, first, last in parts:
        if array.payload is not None:
            names = sources.setdefault(id(array.payload), (array.payload, []))[1]
            names.append(array.sha256.between(first, min(last, len(array.sha256))))
    for source, names in sources.values():
        source.want(chain.from_iterable(names))


def index(
    text: ByteView,
    progress: Progress | None = None,
    payload: PayloadSource = NO_PAYLOAD,
) -> TextIndex:
    """Index a text of any content; never raises because of its content.

    `progress` receives counts of the text's bytes; `payload` is for a detached text.
    """
    result, steps = indexing(text, progress, payload)
    deque(steps, maxlen=0)
    return result


def indexing(
    text: ByteView,
    progress: Progress | None = None,
    payload: PayloadSource = NO_PAYLOAD,
) -> tuple[TextIndex, Iterator[None]]:
    """Return an index that grows with each step; after the last step it is what `index` returns.

    Each step looks at about NEAR more bytes of the text. The text may still be arriving: nothing
    beyond these bytes is asked for.
    """
    indexer = _TextIndexer(text, progress, payload)
    return indexer.result, indexer.steps()


class _TextIndexer(LineCursor):
    """Reads a text's lines into an index, up to the first fault."""

    def __init__(self, text: ByteView, progress: Progress | None, payload: PayloadSource) -> None:
        super().__init__(text)
        self._progress = progress
        self.result = TextIndex(is_detached=grammar.is_detached(text), payload=payload)

    def steps(self) -> Iterator[None]:
        """Read the whole text, yielding each time the current window has been read."""
        try:
            yield from self._read()
        except TextError as error:
            self.result.stop = problem_of(error)

    def _read(self) -> Iterator[None]:
        self._read_header()
        self.result.has_header = True
        while True:
            self._read_short_arrays()
            yield
            self._array = self._chunk = None
            if self._at(grammar.LAST_LINE):
                break
            if self._at(b"arr "):
                self._read_array()
                yield from self._read_chunks(self.result.arrays[-1])
            elif self._at(b"audit "):
                self.result.audit = self._take(grammar.parse_audit, "audit")
                break
            else:
                self._fail("syntax", f"expected arr, audit or endwtxt, found {self._shown()}")
        self._array = self._chunk = None
        self._expect(grammar.LAST_LINE)
        # Nothing may stand outside of what the hashes cover.
        if self._pos != len(self._text):
            self._fail("syntax", f"text after endwtxt: {self._shown()}")

    def _read_header(self) -> None:
        result = self.result
        detached = result.is_detached
        first = grammar.DETACHED_FIRST_LINE if detached else grammar.FIRST_LINE
        if not self._at(first):
            start = bytes(self._text[:16])
            form = first.decode().rstrip()
            self._fail("syntax", f"not a {form} text: it starts with {quote(start)}")
        self._expect(first)
        result.meta = self._take(grammar.parse_meta, "meta")
        result.cap = self._take(grammar.parse_cap, "cap")
        if self._at(b"root_pending "):
            if result.is_detached:
                self._fail("structure", "a pending text can't be detached")
            self._expect(grammar.PENDING_LINE)
            result.pending = True
        else:
            result.root = self._take(grammar.parse_root, "root")
        result.covered = self._pos
        if self._at(b"sign "):
            # A pending text's root is not known when its header is written, so the header can't be
            # signed.
            if result.pending:
                self._fail("structure", "a pending text is signed in its WSUM, not in its header")
            result.signature = self._take(grammar.parse_sign, "sign")

    def _read_array(self) -> None:
        """Read the lines before an array's chunks."""
        line = self._line
        claim = self._take(grammar.parse_array, "arr")
        self._array = claim.name
        array = ArrayIndex(claim, line)
        arrays = self.result.arrays
        self._check_order(arrays[-1].name if arrays else None, claim.name, line)
        self._count_dimensions(claim, line)
        if (wrong := grammar.check_bytes(claim)) is not None:
            self._fail("structure", wrong, line=line)
        array.rows = self._take_rows(claim.dtype)
        array.chunk_size = grammar.chunk_size(array.rows)
        if self.result.is_detached and claim.nbytes > grammar.MAX_INLINE:
            array.payload = self.result.payload
        # Added before its chunks are read, so that everything before a fault is verified too.
        arrays.append(array)
        if array.chunks > MAX_CHUNKS:
            self._fail("structure", f"{array.chunks} chunks are too many to be numbered", line=line)

    def _read_chunks(self, array: ArrayIndex) -> Iterator[None]:
        """Read an array's chunks and its `endarr` line."""
        while True:
            if array.payload is None:
                self._read_whole_chunks(array)
            else:
                self._read_chunk_lines(array)
            yield
            ix = len(array.starts)
            if ix == array.chunks:
                break
            self._chunk = ix
            if self._at(grammar.END_ARRAY):
                have = ix * array.chunk_size
                self._fail("structure", f"the array ends after {have} of {array.nbytes} bytes")
            self._read_chunk(array, ix)
        self._chunk = None
        if self._at(b"ch "):
            self._fail("structure", f"more chunks than {array.nbytes} bytes need")
        self._expect(grammar.END_ARRAY)
        array.complete = True

    def _read_short_arrays(self) -> None:
        """Read arrays of one chunk for as long as nothing is wrong with them.

        There may be very many. An array that is wrong, unusual or not completely in the window is
        left to `_read_array`, from its `arr` line on.
        """
        near, at = self._near()
        arrays = self.result.arrays
        first = self._pos - at
        while (frame := grammar.ARRAY_FRAME.match(near, at)) is not None:
            spelled, kind, sha256, hmac, salt, rows, place, chunk_sha256, crc32c, count = (
                frame.groups()
            )
            form = _form_of(kind, rows, place, count)
            start = frame.end()
            name = spelled.decode("ascii")
            if form is None or (arrays and name <= arrays[-1].name):
                break
            if self.result.is_detached and form.nbytes > grammar.MAX_INLINE:
                break
            end = start + form.lines * grammar.LINE_TEXT
            if near[end : end + len(_END_SHORT)] != _END_SHORT:
                break
            claim = grammar.ArrayLine(
                name,
                form.dtype,
                form.shape,
                form.nbytes,
                a2b_hex(sha256),
                grammar.keyed_hash(hmac),
                grammar.keyed_hash(salt),
            )
            # The data start after the `arr` line, the `idx` line if there is one, and the `ch`
            # line.
            lines = self._line + (2 if rows is None else 3)
            arrays.append(
                ArrayIndex(
                    claim,
                    self._line,
                    form.rows,
                    form.chunk_size,
                    packed([first + start]),
                    packed([lines]),
                    ChunkNames([a2b_hex(chunk_sha256)]),
                    _packed_u4([int(crc32c, 16)]),
                    True,
                )
            )
            at = end + len(_END_SHORT)
            self._pos = first + at
            self._line = lines + form.lines + 2
            if self._progress is not None:
                self._progress(end - start)

    def _read_whole_chunks(self, array: ArrayIndex) -> None:
        """Read chunks of full size for as long as nothing is wrong with them."""
        near, at = self._near()
        first = self._pos - at
        size = array.chunk_size
        lines = grammar.line_count(size)
        count_field = b"lines=%d" % lines
        for ix in range(len(array.starts), array.nbytes // size):
            frame = grammar.CHUNK_FRAME.match(near, at)
            if frame is None:
                break
            place, sha256, crc32c, count = frame.groups()
            start = frame.end()
            end = start + lines * grammar.LINE_TEXT
            if (
                place != b"ix=%06d off=%012d len=%d" % (ix, ix * size, size)
                or count != count_field
                or near[end : end + len(grammar.END_CHUNK)] != grammar.END_CHUNK
            ):
                break
            array.starts.append(first + start)
            array.lines.append(self._line + 1)
            array.sha256.append(a2b_hex(sha256))
            array.crc32c.append(int(crc32c, 16))
            at = end + len(grammar.END_CHUNK)
            self._pos = first + at
            self._line += lines + 2
            if self._progress is not None:
                self._progress(end - start)

    def _read_chunk_lines(self, array: ArrayIndex) -> None:
        """Read `ch` lines of full-size chunks without data, for as long as nothing is wrong.

        At most `_TOGETHER` of them: their hashes are objects meanwhile.
        """
        near, at = self._near()
        start, before = self._pos, at
        size = array.chunk_size
        count_field = b"lines=%d" % grammar.line_count(size)
        match, first = grammar.CHUNK_FRAME.match, len(array.starts)
        names: list[bytes] = []
        # A text has one for each 64 KiB of its file: they are taken before anything else is done.
        for ix in range(first, min(array.nbytes // size, first + _TOGETHER)):
            frame = match(near, at)
            if frame is None:
                break
            place, sha256, crc32c, count = frame.groups()
            if place != b"ix=%06d off=%012d len=%d" % (ix, ix * size, size) or count != count_field:
                break
            at = frame.end()
            names.append(sha256)
            array.crc32c.append(int(crc32c, 16))
        if read := len(names):
            # All of these lines have the same length.
            step = (at - before) // read
            array.starts.extend(range(start + step, start + at - before + 1, step))
            array.lines.extend(range(self._line + 1, self._line + 1 + read))
            array.sha256.append(a2b_hex(b"".join(names)))
        self._pos, self._line = start + at - before, self._line + read
        if self._progress is not None:
            self._progress(self._pos - start)
        near, at = self._near()
        if array.starts and grammar.is_data(near, at):
            self._chunk = len(array.starts) - 1
            most = grammar.MAX_INLINE
            message = (
                f"data of an array of over {most} bytes, which a detached text must not contain"
            )
            self._fail("structure", message)

    def _add_chunk(
        self, array: ArrayIndex, start: int, line: int, sha256: bytes, crc32c: int
    ) -> None:
        array.starts.append(start)
        array.lines.append(line)
        array.sha256.append(sha256)
        array.crc32c.append(crc32c)

    def _read_chunk(self, array: ArrayIndex, ix: int) -> None:
        line = self._line
        chunk = self._take(grammar.parse_chunk, "ch")
        size = array.size_of(ix)
        for label, value, expected in (
            ("ix", chunk.ix, ix),
            ("off", chunk.off, ix * array.chunk_size),
            ("len", chunk.size, size),
            ("lines", chunk.lines, grammar.line_count(size)),
        ):
            if value != expected:
                self._fail("structure", f"{label}={value}, but {expected} is expected", line=line)
        if array.payload is not None:
            self._add_chunk(array, self._pos, self._line, chunk.sha256, chunk.crc32c)
            return
        if self.result.is_detached and any(map(self._at, _BEHIND_DATA)):
            most = grammar.MAX_INLINE
            self._fail(
                "structure", f"an array of at most {most} bytes must have its data in the text"
            )
        start, first = self._take_armor(chunk.lines)
        # Index the chunk before `endch` is checked: if that is missing, faults in its lines are
        # still reported.
        self._add_chunk(array, start, first, chunk.sha256, chunk.crc32c)
        self._end_chunk(start, first, chunk.lines)
        if self._progress is not None:
            self._progress(chunk.lines * grammar.LINE_TEXT)


@dataclass(frozen=True, slots=True)
class _ArrayForm:
    """What arrays of one chunk have in common: what their lines claim, except name and hashes."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    rows: Rows | None
    chunk_size: int
    lines: int


@lru_cache(maxsize=1024)
def _form_of(kind: bytes, idx: bytes | None, place: bytes, count: bytes) -> _ArrayForm | None:
    """Parse the parts of a short array's lines into their form; None if anything is wrong.

    The parts are those of grammar.ARRAY_FRAME.
    """
    # Cached by spelling: very many arrays share few forms.
    claim = grammar.parse_kind(kind)
    if claim is None:
        return None
    dtype, shape, nbytes = claim
    if bounded_product(ITEM_SIZE[dtype], shape, nbytes) != nbytes:
        return None
    rows = None
    if idx is not None:
        parsed = grammar.parse_rows(idx, 0)
        if parsed is None or grammar.check_rows(parsed[0], dtype) is not None:
            return None
        rows = parsed[0]
    size = grammar.chunk_size(rows)
    lines = grammar.line_count(nbytes)
    is_right = (
        place == b"ix=%06d off=%012d len=%d" % (0, 0, nbytes) and count == b"lines=%d" % lines
    )
    return (
        _ArrayForm(dtype, shape, nbytes, rows, size, lines) if is_right and nbytes <= size else None
    )
