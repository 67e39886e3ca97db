"""Indexing a delta: what it says and where its chunks stand, without decoding them.

`docs/spec/delta.md`, sections "Lines" to "The bound form". Grammar and
structure are checked as far as a delta alone shows them; whether it fits its
base is decided when it is applied. Nothing is allocated from a claim: a chunk
is indexed only when its lines are there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wtxtgit.errors import TextError
from wtxtgit.io.view import ByteView
from wtxtgit.model import ITEM_SIZE, Meta, Problem, Rows, Signature
from wtxtgit.model.rows import MAX_CHUNKS, chunk_count
from wtxtgit.text import armor, blocking, grammar
from wtxtgit.text.cursor import LineCursor, quote
from wtxtgit.text.delta import lines


@dataclass(frozen=True, slots=True)
class DeltaChunk:
    """A chunk that a delta carries: its lines start at byte `start`, at line `line`."""

    claim: grammar.ChunkLine
    start: int
    line: int


@dataclass(frozen=True, slots=True)
class Change:
    """A block of a delta: an array's chunks that are others, or all of them.

    `claim` is the target's `arr` line, None in the plain form. `rows` is there
    where the block says how the array is cut: then it is whole. `removed` is a
    `del` line, which has a name alone. `line` is the number of its first line.
    """

    name: str
    line: int
    claim: grammar.ArrayLine | None = None
    rows: Rows | None = None
    chunks: tuple[DeltaChunk, ...] = ()
    removed: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """What a bound delta says of its target; `covered` is what a signature covers."""

    meta: Meta
    cap: tuple[str, ...]
    root: grammar.Root
    signature: Signature | None
    covered: bytes


@dataclass(slots=True)
class DeltaIndex:
    """What a delta says; `stop` is the fault at which the reading ended, if any.

    `base` is the sha256_all of its base, None where the first line could not be
    read. A plain delta has no `head`.
    """

    base: bytes | None = None
    head: Head | None = None
    changes: list[Change] = field(default_factory=list)
    audit: str | None = None
    stop: Problem | None = None


def index(text: ByteView) -> DeltaIndex:
    """Index a delta of any content; never raises because of it."""
    reader = _Indexer(text)
    try:
        reader.read()
    except TextError as error:
        reader.result.stop = Problem(
            error.kind, error.message, line=error.line, array=error.array, chunk=error.chunk
        )
    return reader.result


class _Indexer(LineCursor):
    """Reads a delta's lines into an index, up to the first fault."""

    def __init__(self, text: ByteView) -> None:
        super().__init__(text)
        self.result = DeltaIndex()

    def read(self) -> None:
        result = self.result
        if not self._at(lines.VERSION):
            found = quote(bytes(self._text[:16]))
            self._fail("syntax", f"not a WTXT-DELTA 2, no other is supported: it starts {found}")
        result.base = self._take(lines.parse_first, "WTXT-DELTA")
        if self._at(b"meta "):
            result.head = self._read_head()
        while not self._at(lines.LAST_LINE):
            self._array = self._chunk = None
            if self._at(b"arr "):
                self._read_block()
            elif self._at(b"del ") and result.head is not None:
                line = self._line
                name = self._take(lines.parse_removed, "del")
                self._check_order(name, line)
                result.changes.append(Change(name, line, removed=True))
            elif self._at(b"audit ") and result.head is not None:
                result.audit = self._take(grammar.parse_audit, "audit")
                break
            else:
                wanted = "arr, del, audit" if result.head is not None else "arr"
                self._fail("syntax", f"neither {wanted} nor enddelta: {self._shown()}")
        self._array = self._chunk = None
        self._expect(lines.LAST_LINE)
        if self._pos != len(self._text):
            self._fail("syntax", f"text after enddelta: {self._shown()}")

    def _read_head(self) -> Head:
        start = self._pos
        meta = self._take(grammar.parse_meta, "meta")
        cap = self._take(grammar.parse_cap, "cap")
        root = self._take(grammar.parse_root, "root")
        covered = grammar.FIRST_LINE + bytes(self._text[start : self._pos])
        signature = self._take(grammar.parse_sign, "sign") if self._at(b"sign ") else None
        return Head(meta, cap, root, signature, covered)

    def _read_block(self) -> None:
        line = self._line
        claim, rows = None, None
        if self.result.head is None:
            name = self._take(lines.parse_plain_array, "arr")
        else:
            claim = self._take(grammar.parse_array, "arr")
            name = claim.name
        self._array = name
        self._check_order(name, line)
        if claim is not None:
            nbytes = blocking.bounded_product(claim.shape, ITEM_SIZE[claim.dtype])
            if nbytes != claim.nbytes:
                given = "over 20 digits of" if nbytes is None else str(nbytes)
                message = f"bytes={claim.nbytes}, but dtype and shape give {given} bytes"
                self._fail("structure", message, line=line)
            if self._at(b"idx "):
                rows_line = self._line
                rows = self._take(grammar.parse_rows, "idx")
                if (wrong := blocking.check_rows(rows, claim.dtype)) is not None:
                    self._fail("structure", wrong, line=rows_line)
        chunks: list[DeltaChunk] = []
        while self._at(b"ch "):
            self._read_chunk(chunks, claim)
        self._chunk = None
        self._expect(grammar.END_ARRAY)
        if claim is None and not chunks:
            self._fail("structure", "a block without chunks says nothing", line=line)
        change = Change(name, line, claim, rows, tuple(chunks))
        if claim is not None and rows is not None:
            check_whole(change, claim)
        self.result.changes.append(change)

    def _check_order(self, name: str, line: int) -> None:
        changes = self.result.changes
        if changes and name <= changes[-1].name:
            what = "is there twice" if name == changes[-1].name else "is out of order"
            self._fail("structure", f'array "{name}" {what}', line=line)

    def _read_chunk(self, chunks: list[DeltaChunk], claim: grammar.ArrayLine | None) -> None:
        line = self._line
        chunk = self._take(grammar.parse_chunk, "ch")
        self._chunk = chunk.ix
        if chunks and chunk.ix <= chunks[-1].claim.ix:
            what = f"ix={chunk.ix} does not follow {chunks[-1].claim.ix}"
            self._fail("structure", what, line=line)
        if claim is not None and chunk.off + chunk.size > claim.nbytes:
            what = f"off={chunk.off} len={chunk.size}, the array has {claim.nbytes} bytes"
            self._fail("structure", what, line=line)
        wanted = armor.line_count(chunk.size)
        if chunk.lines != wanted:
            self._fail("structure", f"lines={chunk.lines}, {wanted} is wanted", line=line)
        start, first = self._pos, self._line
        self._pos, self._line = start + chunk.lines * grammar.LINE_TEXT, first + chunk.lines
        if self._pos > len(self._text):
            self._find_bad_line(start, first, chunk.lines)
        chunks.append(DeltaChunk(chunk, start, first))
        if not self._at(grammar.END_CHUNK):
            self._find_bad_line(start, first, chunk.lines)
        self._expect(grammar.END_CHUNK)


def check_whole(change: Change, claim: grammar.ArrayLine) -> None:
    """Raise TextError "structure" unless a block has all chunks of the array that it tells."""
    count = chunk_count(claim.nbytes, blocking.chunk_size(change.rows))
    if count > MAX_CHUNKS:
        message = f"{count} chunks can't be numbered"
        raise TextError("structure", message, line=change.line, array=change.name)
    check_places(change, change.rows, claim.nbytes)
    if len(change.chunks) != count:
        message = f"{len(change.chunks)} of the array's {count} chunks, all are wanted"
        raise TextError("structure", message, line=change.line, array=change.name)


def check_places(change: Change, rows: Rows | None, nbytes: int) -> None:
    """Raise TextError "structure" for a chunk that an array of `nbytes`, so cut, does not have."""
    size = blocking.chunk_size(rows)
    for chunk in change.chunks:
        ix = chunk.claim.ix
        wanted = ix * size, max(0, min(size, nbytes - ix * size))
        if ix >= chunk_count(nbytes, size) or (chunk.claim.off, chunk.claim.size) != wanted:
            raise TextError(
                "structure",
                f"off={chunk.claim.off} len={chunk.claim.size} is no chunk of an array of "
                f"{nbytes} bytes in chunks of {size}",
                line=chunk.line - 1,
                array=change.name,
                chunk=ix,
            )
