"""Reading a delta: parsing its lines, and all checks that do not need its base.

`docs/spec/delta.md`, sections "Lines" to "The bound form" and "What a delta alone shows".
Indexing decodes nothing: it checks grammar and structure so far as a delta alone shows them;
whether the delta fits its base is decided when it is applied. Nothing is allocated because of a
claim: a chunk is indexed only once its lines are there. `check` also decodes the chunks, and
compares the hashes of chunks and whole arrays, merkle and signature. Lines that a text has too
are parsed by `text.grammar`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np

from wtxtgit.errors import TextError
from wtxtgit.io.view import Buffer, ByteView, mapped
from wtxtgit.model.array import MAX_CHUNKS, Meta, Rows, Signature, chunk_count
from wtxtgit.model.checksum import crc32c
from wtxtgit.model.findings import Problem, Problems
from wtxtgit.text import block_armor, digest, grammar
from wtxtgit.text.digest import SignatureState
from wtxtgit.text.index import LineCursor, fault_of, quote
from wtxtgit.text.verify import chunk_problems, diagnose, mismatch

VERSION = b"WTXT-DELTA 2 "
LAST_LINE = b"enddelta\n"
MAX_REMOVED = 250_000
"""The most arrays that one delta may remove."""

_FIRST = re.compile(re.escape(VERSION) + rb"base_sha256_all=([0-9a-f]{64})\n")
_NAME = rb"([A-Za-z0-9_]+)\n"
_PLAIN_ARRAY = re.compile(rb"arr name=" + _NAME)
_REMOVED = re.compile(rb"del name=" + _NAME)


def parse_first(text: Buffer, pos: int) -> tuple[bytes, int] | None:
    """Parse the first line: the sha256_all of the base, and the position after the line."""
    if (m := _FIRST.match(text, pos)) is None:
        return None
    return bytes.fromhex(m[1].decode("ascii")), m.end()


def format_first(base: bytes) -> bytes:
    return VERSION + b"base_sha256_all=%b\n" % base.hex().encode("ascii")


def parse_plain_array(text: Buffer, pos: int) -> tuple[str, int] | None:
    """Parse the `arr` line of a plain delta: its only field, the name, and where it ends."""
    if (m := _PLAIN_ARRAY.match(text, pos)) is None:
        return None
    return m[1].decode("ascii"), m.end()


def format_plain_array(name: str) -> bytes:
    return b"arr name=%b\n" % name.encode("ascii")


def parse_removed(text: Buffer, pos: int) -> tuple[str, int] | None:
    if (m := _REMOVED.match(text, pos)) is None:
        return None
    return m[1].decode("ascii"), m.end()


def format_removed(name: str) -> bytes:
    return b"del name=%b\n" % name.encode("ascii")


@dataclass(frozen=True, slots=True)
class DeltaChunk:
    """A chunk that a delta carries: its data lines start at byte `start`, on line number `line`."""

    claim: grammar.ChunkLine
    start: int
    line: int


@dataclass(frozen=True, slots=True)
class DeltaBlock:
    """A block of a delta: the chunks of one array that changed, or all of its chunks.

    `claim` is the target's `arr` line, None in the plain form. `rows` is set if the block says how
    the array is cut; then it carries the whole array. `removed` marks a `del` line, which only has
    a name. `line` is the number of the block's first line.
    """

    name: str
    line: int
    claim: grammar.ArrayLine | None = None
    rows: Rows | None = None
    chunks: tuple[DeltaChunk, ...] = ()
    removed: bool = False


@dataclass(frozen=True, slots=True)
class DeltaHead:
    """What a bound delta says of its target; `covered` is the bytes that its signature covers."""

    meta: Meta
    cap: tuple[str, ...]
    root: grammar.Root
    signature: Signature | None
    covered: bytes


@dataclass(slots=True)
class DeltaIndex:
    """What a delta says; `stop` is the fault at which the reading stopped, if any.

    `base` is the sha256_all of its base, None if the first line could not be read. A plain delta
    has no `head`.
    """

    base: bytes | None = None
    head: DeltaHead | None = None
    changes: list[DeltaBlock] = field(default_factory=list)
    audit: str | None = None
    stop: Problem | None = None


def index(text: ByteView) -> DeltaIndex:
    """Index a delta of any content; never raises because of its content."""
    indexer = _DeltaIndexer(text)
    indexer.result.stop = fault_of(indexer.read)
    return indexer.result


class _DeltaIndexer(LineCursor):
    """Reads a delta's lines into an index, up to the first fault."""

    def __init__(self, text: ByteView) -> None:
        super().__init__(text)
        self.result = DeltaIndex()
        self._removed = 0

    def read(self) -> None:
        result = self.result
        if not self._at(VERSION):
            start = quote(bytes(self._text[:16]))
            self._fail(
                "syntax",
                f"not a WTXT-DELTA 2, the only version that is supported: it starts with {start}",
            )
        result.base = self._take(parse_first, "WTXT-DELTA")
        if self._at(b"meta "):
            result.head = self._read_head()
        while not self._at(LAST_LINE):
            self._array = self._chunk = None
            if self._at(b"arr "):
                self._read_block()
            # A plain delta has nothing but chunks.
            elif self._at(b"del ") and result.head is not None:
                line = self._line
                name = self._take(parse_removed, "del")
                self._check_order(self._before, name, line)
                self._removed += 1
                if self._removed > MAX_REMOVED:
                    self._fail("limit", f"removes more than {MAX_REMOVED} arrays", line=line)
                result.changes.append(DeltaBlock(name, line, removed=True))
            elif self._at(b"audit ") and result.head is not None:
                result.audit = self._take(grammar.parse_audit, "audit")
                break
            else:
                expected = "arr, del, audit" if result.head is not None else "arr"
                self._fail("syntax", f"expected {expected} or enddelta, found {self._shown()}")
        self._array = self._chunk = None
        self._expect(LAST_LINE)
        if self._pos != len(self._text):
            self._fail("syntax", f"text after enddelta: {self._shown()}")

    @property
    def _before(self) -> str | None:
        """The name of the previous block's array."""
        return self.result.changes[-1].name if self.result.changes else None

    def _read_head(self) -> DeltaHead:
        start = self._pos
        meta = self._take(grammar.parse_meta, "meta")
        cap = self._take(grammar.parse_cap, "cap")
        root = self._take(grammar.parse_root, "root")
        # The target's signature covers the first line of a text, which differs from a delta's own.
        covered = grammar.FIRST_LINE + bytes(self._text[start : self._pos])
        signature = self._take(grammar.parse_sign, "sign") if self._at(b"sign ") else None
        return DeltaHead(meta, cap, root, signature, covered)

    def _read_block(self) -> None:
        line = self._line
        claim, rows = None, None
        if self.result.head is None:
            name = self._take(parse_plain_array, "arr")
        else:
            claim = self._take(grammar.parse_array, "arr")
            self._count_dimensions(claim, line)
            name = claim.name
        self._array = name
        self._check_order(self._before, name, line)
        if claim is not None:
            if (wrong := grammar.check_bytes(claim)) is not None:
                self._fail("structure", wrong, line=line)
            rows = self._take_rows(claim.dtype)
        chunks: list[DeltaChunk] = []
        while self._at(b"ch "):
            self._read_chunk(chunks, claim)
        self._chunk = None
        self._expect(grammar.END_ARRAY)
        # In the bound form a block without chunks changes the HMAC or the salt.
        if claim is None and not chunks:
            self._fail("structure", "a block without chunks has no effect", line=line)
        change = DeltaBlock(name, line, claim, rows, tuple(chunks))
        # With an `idx` line the block says how the array is cut, so this can be checked without the
        # base.
        if claim is not None and rows is not None:
            check_whole(change, claim)
        self.result.changes.append(change)

    def _read_chunk(self, chunks: list[DeltaChunk], claim: grammar.ArrayLine | None) -> None:
        line = self._line
        chunk = self._take(grammar.parse_chunk, "ch")
        self._chunk = chunk.ix
        # Strictly ascending: a delta has one spelling, and no chunk occurs twice.
        if chunks and chunk.ix <= chunks[-1].claim.ix:
            what = f"ix={chunk.ix} does not follow {chunks[-1].claim.ix}"
            self._fail("structure", what, line=line)
        # For a plain block only the base tells the size of the array.
        if claim is not None and chunk.off + chunk.size > claim.nbytes:
            what = f"off={chunk.off} len={chunk.size}, but the array has {claim.nbytes} bytes"
            self._fail("structure", what, line=line)
        expected = grammar.line_count(chunk.size)
        if chunk.lines != expected:
            self._fail("structure", f"lines={chunk.lines}, but {expected} is expected", line=line)
        start, first = self._take_armor(chunk.lines)
        chunks.append(DeltaChunk(chunk, start, first))
        self._end_chunk(start, first, chunk.lines)


def check_whole(change: DeltaBlock, claim: grammar.ArrayLine) -> None:
    """Raise TextError "structure" unless a whole block has all chunks of its array."""
    count = chunk_count(claim.nbytes, grammar.chunk_size(change.rows))
    if count > MAX_CHUNKS:
        message = f"{count} chunks are too many to be numbered"
        raise TextError("structure", message, line=change.line, array=change.name)
    check_places(change, change.rows, claim.nbytes)
    if len(change.chunks) != count:
        message = f"has {len(change.chunks)} of the array's {count} chunks, but all are required"
        raise TextError("structure", message, line=change.line, array=change.name)


def check_places(change: DeltaBlock, rows: Rows | None, nbytes: int) -> None:
    """Raise TextError "structure" for chunks that an array of `nbytes`, so cut, does not have."""
    size = grammar.chunk_size(rows)
    for chunk in change.chunks:
        ix = chunk.claim.ix
        expected = ix * size, max(0, min(size, nbytes - ix * size))
        if ix >= chunk_count(nbytes, size) or (chunk.claim.off, chunk.claim.size) != expected:
            raise TextError(
                "structure",
                f"off={chunk.claim.off} len={chunk.claim.size} is not a chunk of an array of "
                f"{nbytes} bytes in chunks of {size}",
                line=chunk.line - 1,
                array=change.name,
                chunk=ix,
            )


# The line number of a bound delta's root line.
_ROOT_LINE = 4


@dataclass(slots=True)
class DeltaReport:
    """What a check of a delta found; `signature` is the state of the target's signature."""

    index: DeltaIndex
    problems: Problems = field(default_factory=Problems)
    signature: SignatureState = SignatureState.ABSENT

    @property
    def ok(self) -> bool:
        return not self.problems


def check(text: ByteView, *, public_keys: Sequence[bytes] = ()) -> DeltaReport:
    """Check a delta without its base; never raises because of its content."""
    delta = index(text)
    report = DeltaReport(delta)
    for change in delta.changes:
        report.problems.extend(_check_change(text, change))
    if delta.stop is not None:
        report.problems.append(delta.stop)
    if delta.head is not None:
        head = delta.head
        this = digest.merkle(head.root.merkle_prev, head.root.sha256_all, head.meta)
        if this != head.root.merkle_this:
            message = mismatch("merkle_this", this, head.root.merkle_this)
            report.problems.append(Problem("merkle", message, line=_ROOT_LINE))
        if head.signature is not None:
            report.signature = digest.check_header(head.signature, head.covered, public_keys)
        if report.signature is SignatureState.INVALID:
            message = "the target's signature does not match the delta and the given keys"
            report.problems.append(Problem("signature", message))
    return report


def decode(text: ByteView, chunk: DeltaChunk) -> memoryview | None:
    """Decode a chunk's bytes; returns None if a line is damaged."""
    lines = np.frombuffer(_lines(text, chunk), dtype=np.uint8)
    raw = block_armor.decode(lines, 1, chunk.claim.size, 0, 0)
    return None if raw is None else raw.reshape(-1).data


def _check_change(text: ByteView, change: DeltaBlock) -> Problems:
    problems = Problems()
    # A block with an `idx` line has the whole array, so the array's own hash can be compared.
    own = sha256()
    for chunk in change.chunks:
        raw = decode(text, chunk)
        claim = chunk.claim
        if raw is None:
            lines = _lines(text, chunk)
            faults, raw = diagnose(lines, claim.size, chunk.line, change.name, claim.ix)
            problems.extend(faults)
        if raw is not None:
            computed = crc32c(raw), sha256(raw).digest()
            claimed = claim.crc32c, claim.sha256
            line = chunk.line - 1
            problems.extend(chunk_problems(computed, claimed, line, change.name, claim.ix))
            own.update(raw)
    whole = change.claim is not None and change.rows is not None and not problems
    if whole and change.claim is not None and own.digest() != change.claim.sha256:
        message = mismatch("the array's sha256", own.digest(), change.claim.sha256)
        problems.append(Problem("array_sha256", message, line=change.line, array=change.name))
    return problems


def _lines(text: ByteView, chunk: DeltaChunk) -> memoryview:
    return mapped(text[chunk.start : chunk.start + chunk.claim.lines * grammar.LINE_TEXT])
