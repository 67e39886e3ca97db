"""The lines of a ledger, its records, and who signed them.

`docs/spec/ledger.md`. Records are parsed with the grammar of texts, and format to the same bytes.
A record is judged only together with the record before it, so reading a ledger that has grown can
continue where it ended before. These functions take raw keys; which keys are trusted, and how
many signatures are required, is decided in `trust`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NoReturn, TypeVar

from wtxtgit.errors import TextError
from wtxtgit.model.array import Meta, Signature
from wtxtgit.model.findings import Problem
from wtxtgit.model.ledger import DELETED_BUILD, DELETED_CONTENT, Ledger, LedgerHead, Record
from wtxtgit.text import digest, grammar
from wtxtgit.text.digest import SignatureState, signed_with
from wtxtgit.text.index import quote

_T = TypeVar("_T")

MAGIC = grammar.LEDGER_MAGIC
"""What makes an input a ledger (of any version)."""
VERSIONED_MAGIC = MAGIC + b"1 "

MAX_SIZE = 64 * 1024 * 1024
"""The largest ledger, in bytes."""
MAX_LINE = 16 * 1024
"""The longest line in bytes, including its LF."""
MAX_PROBLEMS = 1000
"""After this many findings about order and chain the reading stops."""
MAX_SIGNATURES = 8
"""The most signatures of a record."""
FIRST_PREV = bytes(32)
"""merkle_prev of the first record."""

_AT_WORD = b"at "
_DETACHED_WORD = b"detached "
_SIGN_WORD = b"sign "
# A message quotes at most this many bytes of a wrong line or path.
_SHOWN = 40
_DIGEST_SIZE = 32
_NO_COMPONENTS = frozenset({b"", b".", b".."})

_PATH = rb"path=([A-Za-z0-9._/%-]+)\n"
_HEAD = re.compile(VERSIONED_MAGIC + rb"repo=([0-9a-f]{64}) " + _PATH)
_AT = re.compile(_AT_WORD + _PATH)
_DETACHED = re.compile(_DETACHED_WORD + rb"sha256=([0-9a-f]{64})\n")
_ESCAPE = re.compile(rb"%([0-9A-F]{2})")
_TO_ESCAPE = re.compile(rb"[^A-Za-z0-9._/-]")


@dataclass(frozen=True, slots=True)
class LedgerReport:
    """What a reading found; problems are of the kinds syntax, structure, merkle and limit.

    `ledger` is set if every line is well-formed, whatever else is wrong. `source` is the bytes that
    were read.
    """

    ledger: Ledger | None
    problems: tuple[Problem, ...]
    source: bytes = field(default=b"", repr=False)

    @property
    def ok(self) -> bool:
        return not self.problems


def read(data: bytes | memoryview, after: LedgerReport | None = None) -> LedgerReport:
    """Read a ledger of any content; never raises because of its content.

    `after` is the report on an earlier state of the ledger: if `data` starts with the bytes of that
    state, only the rest is read. The result is the same as without it.
    """
    # Checked before the data is copied or parsed.
    if len(data) > MAX_SIZE:
        problem = Problem("limit", f"{len(data)} bytes, but a ledger has at most {MAX_SIZE}")
        return LedgerReport(None, (problem,))
    reader = _LedgerReader(bytes(data))
    if after is not None:
        reader.skip(after)
    return reader.read()


def check_link(before: Record | None, record: Record, place: bytes) -> Iterator[Problem]:
    """Yield what is wrong with `record` as the successor of `before`, or as the first record.

    `place` is the path of the ledger before this record. Lines of problems count from the record's
    own first line, as 1.
    """
    if record.at == place:
        message = f"at says {_clipped(place)}, but the ledger is already there"
        yield Problem("structure", message, line=1)
    first = 1 if record.at is None else 2
    meta = record.meta
    if before is not None and meta.gen <= before.meta.gen:
        message = (
            f"gen is {meta.gen}, but must be greater than the previous record's {before.meta.gen}"
        )
        yield Problem("structure", message, line=first)
    if before is not None and meta.ts < before.meta.ts:
        message = f"ts is {meta.ts}, earlier than the previous record's {before.meta.ts}"
        yield Problem("structure", message, line=first)
    # A ledger whose first records were cut off starts with another link.
    prev = FIRST_PREV if before is None else before.merkle_this
    if record.merkle_prev != prev:
        expected = (
            f"but the previous record is {_short(prev)}"
            if before is not None
            else "but the first record must have zeros"
        )
        message = f"merkle_prev is {_short(record.merkle_prev)}, {expected}"
        yield Problem("merkle", message, line=first + 1)
    this = digest.merkle(record.merkle_prev, record.sha256_all, meta)
    if record.merkle_this != this:
        message = f"merkle_this is {_short(this)}, the line says {_short(record.merkle_this)}"
        yield Problem("merkle", message, line=first + 1)
    # Strictly ascending, so that a record has one spelling and no key signs twice.
    keyids = [signature.keyid for signature in record.signatures]
    signed = first + 2 + (record.detached is not None)
    for line, (one, two) in enumerate(pairwise(keyids), signed + 1):
        if two <= one:
            what = "appears more than once" if one == two else "is out of order"
            yield Problem("structure", f"the signature of keyid {two} {what}", line=line)
    if len(keyids) > MAX_SIGNATURES:
        message = f"{len(keyids)} signatures, but a record has at most {MAX_SIGNATURES}"
        yield Problem("structure", message, line=signed + MAX_SIGNATURES)


def record_lines(ledger: Ledger) -> Iterator[int]:
    """Yield the number of each record's first line, which is its `at` line if it has one."""
    line = 2
    for record in ledger.records:
        yield line
        line += 2 + len(record.signatures)
        line += (record.at is not None) + (record.detached is not None)


def parse_head(text: bytes, pos: int) -> tuple[LedgerHead, int] | None:
    if (m := _HEAD.match(text, pos)) is None:
        return None
    if (path := _unescaped(m[2])) is None:
        return None
    return LedgerHead(bytes.fromhex(m[1].decode("ascii")), path), m.end()


def format_head(head: LedgerHead) -> bytes:
    """Format the first line; raises TextError for a value that it can't hold."""
    if len(head.repo) != _DIGEST_SIZE:
        raise TextError("syntax", f"repo has {len(head.repo)} bytes, not {_DIGEST_SIZE}")
    repo = head.repo.hex().encode("ascii")
    return _bounded(VERSIONED_MAGIC + b"repo=%b path=%b\n" % (repo, _escaped(head.path)))


def parse_at(text: bytes, pos: int) -> tuple[bytes, int] | None:
    if (m := _AT.match(text, pos)) is None or (path := _unescaped(m[1])) is None:
        return None
    return path, m.end()


def format_at(path: bytes) -> bytes:
    """Format the line of a move; raises TextError for a path that it can't hold."""
    return _bounded(_AT_WORD + b"path=%b\n" % _escaped(path))


def parse_detached(text: bytes, pos: int) -> tuple[bytes, int] | None:
    if (m := _DETACHED.match(text, pos)) is None:
        return None
    return bytes.fromhex(m[1].decode("ascii")), m.end()


def format_detached(sha256: bytes) -> bytes:
    """Format the line of a detached text; raises TextError for what is no SHA-256."""
    if len(sha256) != _DIGEST_SIZE:
        raise TextError("syntax", f"a hash has {len(sha256)} bytes, not {_DIGEST_SIZE}")
    return _DETACHED_WORD + b"sha256=%b\n" % sha256.hex().encode("ascii")


def format_record(record: Record) -> bytes:
    """Format a record's lines; raises TextError for values that they can't hold."""
    return _generation(record) + b"".join(map(_format_sign, record.signatures))


def format_ledger(ledger: Ledger) -> bytes:
    """Format a whole ledger; raises TextError for what can't be read again."""
    text = format_head(ledger.head) + b"".join(map(format_record, ledger.records))
    if not ledger.records:
        raise TextError("syntax", "a ledger must have at least one record")
    if len(text) > MAX_SIZE:
        raise TextError("limit", f"{len(text)} bytes, but a ledger has at most {MAX_SIZE}")
    return text


def covered(head: LedgerHead, record: Record) -> bytes:
    """Return what a record's signatures cover: the first line, and its own lines before them."""
    return format_head(head) + _generation(record)


def is_path(path: bytes) -> bool:
    """Whether these are the bytes of a path below the top level, as git spells it."""
    return b"\0" not in path and _NO_COMPONENTS.isdisjoint(path.split(b"/"))


class _LedgerReader:
    """A cursor over the ledger's lines; `_line` is the number of the line at `_pos`."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._pos = 0
        self._line = 1
        self._head: LedgerHead | None = None
        self._place = b""
        self._records: list[Record] = []
        self._problems: list[Problem] = []

    def skip(self, after: LedgerReport) -> None:
        """Continue an earlier reading if the data start with the bytes that it read."""
        # If history was rewritten, everything is read again.
        if after.ledger is None or not self._text.startswith(after.source):
            return
        # The last record is read again: a signature may have been added to it.
        self._pos = len(after.source) - len(format_record(after.ledger.last))
        self._line = self._text.count(b"\n", 0, self._pos) + 1
        self._head = after.ledger.head
        records = after.ledger.records[:-1]
        self._place = Ledger(self._head, records).place
        self._records = list(records)
        self._problems = [p for p in after.problems if (p.line or 0) < self._line]

    def read(self) -> LedgerReport:
        try:
            if self._head is None:
                self._head = self._read_head()
                self._place = self._head.path
            # At least one record: an empty ledger says nothing.
            while not self._records or self._pos < len(self._text):
                self._read_record()
        except TextError as error:
            stop = Problem(error.kind, error.message, line=error.line)
            return LedgerReport(None, (*self._problems, stop), self._text)
        ledger = Ledger(self._head, tuple(self._records))
        return LedgerReport(ledger, tuple(self._problems), self._text)

    def _read_head(self) -> LedgerHead:
        if not self._text.startswith(VERSIONED_MAGIC):
            self._fail("syntax", f"expected a WLEDGER 1 line, found {self._shown()}")
        return self._take(parse_head, "WLEDGER")

    def _read_record(self) -> None:
        first = self._line
        at = None
        if self._text.startswith(_AT_WORD, self._pos):
            at = self._take(parse_at, "at")
        meta = self._take(grammar.parse_meta, "meta")
        wsum = self._take(grammar.parse_wsum, "WSUM")
        # A WSUM line has room for one signature, but a record may have several.
        if wsum.signature is not None:
            message = "in a ledger, a signature belongs on a sign line, not on the WSUM line"
            self._fail("syntax", message, line=self._line - 1)
        detached = None
        if self._text.startswith(_DETACHED_WORD, self._pos):
            detached = self._take(parse_detached, "detached")
        signatures: list[Signature] = []
        while self._text.startswith(_SIGN_WORD, self._pos):
            signatures.append(self._take(grammar.parse_sign, "sign"))
        hashes = (wsum.sha256_all, wsum.merkle_prev, wsum.merkle_this)
        record = Record(meta, *hashes, tuple(signatures), at, detached)
        before = self._records[-1] if self._records else None
        for problem in check_link(before, record, self._place):
            line = first - 1 + (problem.line or 1)
            self._problems.append(Problem(problem.kind, problem.message, line=line))
        # Each record can be wrong in several ways: the length of a report must be bounded.
        if len(self._problems) > MAX_PROBLEMS:
            self._fail("limit", f"more than {MAX_PROBLEMS} findings, so the rest was not read")
        self._records.append(record)
        if at is not None:
            self._place = at

    def _take(self, parse: Callable[[bytes, int], tuple[_T, int] | None], label: str) -> _T:
        # The line is bounded before it is parsed: its parsing time must not grow with the ledger.
        bound = self._pos + MAX_LINE
        if len(self._text) > bound and self._text.find(b"\n", self._pos, bound) < 0:
            self._fail("limit", f"a line of over {MAX_LINE} bytes")
        parsed = parse(self._text, self._pos)
        if parsed is None:
            self._fail("syntax", f"not a valid {label} line: {self._shown()}")
        self._pos, self._line = parsed[1], self._line + 1
        return parsed[0]

    def _shown(self) -> str:
        if self._pos >= len(self._text):
            return "the end of the ledger"
        return _clipped(self._text[self._pos : self._pos + _SHOWN + 1].split(b"\n", 1)[0])

    def _fail(self, kind: str, message: str, *, line: int | None = None) -> NoReturn:
        raise TextError(kind, message, line=line or self._line)


def _generation(record: Record) -> bytes:
    digests = (record.sha256_all, record.merkle_prev, record.merkle_this)
    if any(len(value) != _DIGEST_SIZE for value in digests):
        raise TextError("syntax", f"a hash does not have {_DIGEST_SIZE} bytes")
    wsum = grammar.Wsum(*digests, signature=None)
    at = b"" if record.at is None else format_at(record.at)
    generation = at + _bounded(grammar.format_meta(record.meta)) + grammar.format_wsum(wsum)
    return generation if record.detached is None else generation + format_detached(record.detached)


def _format_sign(signature: Signature) -> bytes:
    grammar.check_sign(signature)
    return grammar.format_sign(signature)


def _bounded(line: bytes) -> bytes:
    if len(line) > MAX_LINE:
        raise TextError(
            "limit", f"a line of {len(line)} bytes, but a ledger's lines have at most {MAX_LINE}"
        )
    return line


def _escaped(path: bytes) -> bytes:
    """Escape a path; raises TextError for bytes that are not a path."""
    if not is_path(path):
        raise TextError("syntax", f"the path {quote(path)} is not inside the repository")
    return _TO_ESCAPE.sub(lambda byte: b"%%%02X" % byte[0][0], path)


def _unescaped(spelled: bytes) -> bytes | None:
    """Return the path with this spelling, None unless it is the path's one valid spelling."""
    # Compare with the path escaped again: `%41` for A, or a lone %, would be a second spelling.
    path = _ESCAPE.sub(lambda escape: bytes.fromhex(escape[1].decode("ascii")), spelled)
    return path if is_path(path) and _escaped(path) == spelled else None


def _clipped(value: bytes) -> str:
    return quote(value[:_SHOWN]) + ("..." if len(value) > _SHOWN else "")


def _short(value: bytes) -> str:
    return f"{value.hex()[:16]}..."


_DELETED_SCHEMA = "opaque/v1"


@dataclass(frozen=True, slots=True)
class RecordSigners:
    """The result of checking a record's signatures with some public keys.

    `valid` are the keys (32 bytes) that made one. `signatures` counts the signatures that were made
    by given keys: as many as `valid` if their keyids are distinct, as they must be. `invalid` are
    the keyids for which none of the given keys with that keyid made the signature; `unknown` are
    those that no given key has.
    """

    valid: frozenset[bytes]
    signatures: int
    invalid: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def state(self) -> SignatureState:
        """The overall result: one invalid signature makes it invalid."""
        if self.invalid:
            return SignatureState.INVALID
        if self.valid:
            return SignatureState.VALID
        return SignatureState.UNKNOWN_KEY if self.unknown else SignatureState.ABSENT


def next_record(
    ledger: Ledger | None,
    *,
    sha256_all: bytes,
    ts: str,
    build: str,
    schema: str,
    gen: int | None = None,
    at: bytes | None = None,
    detached: bytes | None = None,
) -> Record:
    """Return the unsigned record that seals content after a ledger's last, or as the first one.

    If the clock went back, the record gets the `ts` of the last record instead. `gen` is the next
    number unless it is given. `at` is the path to which the ledger moves, `detached` the SHA-256 of
    a blob that is a detached text. Raises TextError for values that no record can hold, for a `gen`
    that does not grow, and for a move to the current path.
    """
    last = None if ledger is None else ledger.last
    if gen is None:
        gen = 1 if last is None else last.meta.gen + 1
    if not grammar.is_time(ts):
        raise TextError("syntax", f'ts "{ts}" is not a UTC time like 2025-10-09T03:12:45Z')
    meta = Meta(schema, gen, ts if last is None else max(ts, last.meta.ts), build)
    return native_record(ledger, sha256_all=sha256_all, meta=meta, at=at, detached=detached)


def native_record(
    ledger: Ledger | None,
    *,
    sha256_all: bytes,
    meta: Meta,
    at: bytes | None = None,
    detached: bytes | None = None,
) -> Record:
    """Return the record of a text that has its own generation: `meta` is used unchanged.

    Raises TextError for values that no record can hold, if gen does not grow or ts goes back, and
    for a move to the current path. A ledger that has not begun has no path: its first record needs
    no move.
    """
    before = None if ledger is None else ledger.last
    prev = FIRST_PREV if before is None else before.merkle_this
    grammar.format_meta(meta)
    this = digest.merkle(prev, sha256_all, meta)
    record = Record(meta, sha256_all, prev, this, at=at, detached=detached)
    # Formatted only for the checks: whatever is returned can be written.
    format_record(record)
    for problem in check_link(before, record, b"" if ledger is None else ledger.place):
        raise TextError(problem.kind, problem.message)
    return record


def deletion_record(ledger: Ledger, *, ts: str, gen: int | None = None) -> Record:
    """Return the unsigned record that seals, after a ledger's last, that its artifact is deleted.

    `ts` and `gen` are as in `next_record`. Raises TextError for an invalid time, and if no
    generation can follow.
    """
    return next_record(
        ledger,
        sha256_all=DELETED_CONTENT,
        ts=ts,
        build=DELETED_BUILD,
        schema=_DELETED_SCHEMA,
        gen=gen,
    )


def with_signature(record: Record, signature: Signature) -> Record:
    """Return `record` with one more signature, sorted in among the others.

    Raises TextError if it already has a signature of that keyid, or as many as a record may have.
    """
    grammar.check_sign(signature)
    if any(other.keyid == signature.keyid for other in record.signatures):
        raise TextError("structure", f"a signature of keyid {signature.keyid} already exists")
    if len(record.signatures) >= MAX_SIGNATURES:
        raise TextError("limit", f"a record has at most {MAX_SIGNATURES} signatures")
    signatures = sorted((*record.signatures, signature), key=lambda other: other.keyid)
    return replace(record, signatures=tuple(signatures))


def signed_by(head: LedgerHead, record: Record, public_keys: Collection[bytes]) -> RecordSigners:
    """Check each of a record's signatures with all keys (32 bytes each) that have its keyid."""
    message = covered(head, record)
    by_keyid: dict[str, list[bytes]] = {}
    for key in sorted(public_keys):
        by_keyid.setdefault(digest.keyid(key), []).append(key)
    valid: list[bytes] = []
    invalid: list[str] = []
    unknown: list[str] = []
    for signature in record.signatures:
        candidates = by_keyid.get(signature.keyid)
        if candidates is None:
            unknown.append(signature.keyid)
        # A keyid has 64 bits and is not collision-resistant: all keys that have it are tried.
        elif (made_by := signed_with(signature.signature, message, candidates)) is not None:
            valid.append(made_by)
        else:
            invalid.append(signature.keyid)
    return RecordSigners(frozenset(valid), len(valid), tuple(invalid), tuple(unknown))
