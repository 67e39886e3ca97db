"""Verification: text and keys in, a report out.

A block is the unit in which chunks are decoded and checked: a run of chunks of one array, all of
one size, whose lines stand at equal distances. Decoding a block returns its raw bytes only if
every line is exactly what the writer writes.

The chunks of a detached text are taken from its payload, by their SHA-256, and go through the
same checks. Missing chunks do not stop the verification: what can be proved without them is
proved, and that they are missing is a separate problem.

Everything that `docs/spec/wtxt.md` requires of a text is checked: grammar and structure by the
index, lines and chunks block by block, each array's SHA-256 (and HMAC, given the key), then root,
fastxor, merkle, signature and layout. Syntax and structure faults stop the reading; all other
findings are collected. No clock, file or environment is read.

SHA-256 runs over every byte three times: for its chunk, its array and hash_all. hash_all covers
each array's `arr` line as the text claims it, so it need not wait for the array's own hash: both
follow the decoded blocks, one of them in the caller's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256

from wtxtgit.errors import (
    FETCHES_PAYLOAD,
    MENDS_STORE,
    PayloadMissing,
    TextError,
    WtxtgitError,
    counted,
)
from wtxtgit.io.progress import Progress, expect
from wtxtgit.io.view import Buffer, ByteView, mapped
from wtxtgit.io.workers import Workers, worthwhile
from wtxtgit.model.array import (
    LAYOUT_ARRAY,
    NO_PAYLOAD,
    PAYLOAD_DAMAGED,
    PAYLOAD_MISSING,
    Layout,
    Meta,
    PayloadSource,
    PayloadState,
)
from wtxtgit.model.checksum import crc32c
from wtxtgit.model.findings import Problem, Problems, total
from wtxtgit.text import armor, digest, grammar
from wtxtgit.text.digest import SignatureState
from wtxtgit.text.grammar import BLOCK_BYTES, cut, grouped, whole_blocks
from wtxtgit.text.index import ArrayIndex, TextIndex, index
from wtxtgit.text.layout import layout_of

# The number of blocks of short arrays in one job.
_JOB_BLOCKS = 1024


@dataclass(frozen=True, slots=True)
class Block:
    """`count` chunks of `size` raw bytes from chunk `first` of `array`."""

    array: ArrayIndex
    first: int
    count: int
    size: int

    @property
    def start(self) -> int:
        return self.array.starts[self.first]

    @property
    def stride(self) -> int:
        starts = self.array.starts
        return starts[self.first + 1] - starts[self.first] if self.count > 1 else 0

    def lines(self, text: ByteView) -> memoryview:
        """The block's armored lines, and what stands between them."""
        return mapped(text[self.start : self.end])

    @property
    def end(self) -> int:
        """The position in the text where its last line ends."""
        last = self.array.starts[self.first + self.count - 1]
        if self.array.payload is not None:
            return last
        return last + grammar.line_count(self.size) * grammar.LINE_TEXT

    @property
    def offset(self) -> int:
        """The position of its bytes in the array."""
        return self.first * self.array.chunk_size

    @property
    def nbytes(self) -> int:
        return self.count * self.size


@dataclass(slots=True)
class CheckedBlock:
    """A block's bytes, and the results of checking them against the block's own checksums.

    `raw` is None if the lines could not be read to the end; the reading stops there. It is also
    None if `lacking` chunks of a detached text can't be read, `missing` of them because they are
    not available; then the reading goes on. `sha256` is the hash of the last chunk, which is the
    array's own if it has only one.
    """

    block: Block
    raw: memoryview | None
    fastxor: int = 0
    sha256: bytes = b""
    problems: list[Problem] = field(default_factory=list)
    lacking: int = 0
    missing: int = 0

    @property
    def stops(self) -> bool:
        """Whether the reading stops at this block."""
        return self.raw is None and not self.lacking

    @property
    def is_last(self) -> bool:
        """Whether this is the last block of its array."""
        return self.block.first + self.block.count == self.block.array.chunks


def blocks_of(array: ArrayIndex, first: int = 0, last: int | None = None) -> Iterator[Block]:
    """Yield the blocks of an array's indexed chunks from `first` to `last`, which is excluded."""
    end = len(array.starts) if last is None else min(last, len(array.starts))
    return (Block(array, *part) for part in cut(array.nbytes, array.chunk_size, first, end))


def _blocks_of_all(index: TextIndex, growing: Iterator[None]) -> Iterator[Block]:
    """Yield the blocks of all arrays of a growing index, as soon as they are complete."""
    number = first = 0
    is_grown = False
    while not is_grown:
        is_grown = next(growing, True) is True
        while number < len(index.arrays):
            array = index.arrays[number]
            last = len(array.starts)
            # Wait with the last chunk until it is known how the array ends.
            if not (array.complete or is_grown):
                last = whole_blocks(array.chunk_size, first, min(last, array.chunks - 1))
            yield from blocks_of(array, first, last)
            if not (array.complete or is_grown):
                first = last
                break
            number, first = number + 1, 0


def jobs_of(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Group blocks, in order, into jobs that are large enough for a thread."""
    job: list[Block] = []
    nbytes = 0
    for block in blocks:
        job.append(block)
        nbytes += block.nbytes
        # Bounded also by count: blocks of empty arrays have no bytes.
        if nbytes >= BLOCK_BYTES // 2 or len(job) >= _JOB_BLOCKS:
            yield job
            job, nbytes = [], 0
    if job:
        yield job


def jobs_at_least(arrays: Sequence[ArrayIndex]) -> int:
    """Return a lower bound for the number of jobs into which the arrays' blocks are grouped."""
    return len(arrays) // _JOB_BLOCKS + 1


def decode(text: ByteView, block: Block) -> memoryview | None:
    """Return the raw bytes of a block, None if a line is damaged."""
    if block.array.payload is not None:
        return _payload_bytes(block, block.array.payload)
    lines = block.lines(text)
    if block.count == 1 and grammar.line_count(block.size) <= armor.FEW_LINES:
        return armor.decode_few(lines, block.size)
    from wtxtgit.text import block_armor

    raw = block_armor.decode(lines, block.count, block.size, 0, block.stride)
    return None if raw is None else raw.reshape(-1).data


def decoded(text: ByteView, block: Block) -> memoryview:
    """Return the raw bytes of a block of a text that was verified.

    Raises TextError "structure", or "payload" for chunks that are not available any more.
    """
    if (raw := decode(text, block)) is None:
        if block.array.payload is not None:
            message = "the payload changed while it was read"
            raise TextError(PAYLOAD_DAMAGED, message, array=block.array.name)
        message = "the text changed while it was read"
        raise TextError("structure", message, array=block.array.name)
    return raw


def checked_bytes(text: ByteView, blocks: Iterable[Block]) -> Iterator[memoryview]:
    """Yield each block's raw bytes after checking them; raises TextError for the first problem."""
    for block in blocks:
        checked = check(text, block)
        for problem in checked.problems:
            raise refusal(problem)
        if checked.lacking:
            message, name = "a chunk's payload is not available here", block.array.name
            raise refusal(Problem(PAYLOAD_MISSING, message, array=name, chunk=block.first))
        if checked.raw is None:
            raise TextError("structure", "a chunk can't be read", array=block.array.name)
        yield checked.raw


def mends(kind: str) -> str | None:
    """Return the hint for a problem of a text's payload; None for others."""
    if kind == PAYLOAD_MISSING:
        return FETCHES_PAYLOAD
    return MENDS_STORE if kind == PAYLOAD_DAMAGED else None


def refusal(problem: Problem) -> TextError:
    """Convert a problem of a text to the error that a reader raises."""
    return TextError(
        problem.kind,
        problem.message,
        line=problem.line,
        array=problem.array,
        chunk=problem.chunk if isinstance(problem.chunk, int) else None,
        hint=mends(problem.kind),
    )


def raise_first(problems: Iterable[Problem]) -> None:
    """Raise TextError with the first problem, if there is any."""
    for problem in problems:
        raise refusal(problem)


def check(text: ByteView, block: Block) -> CheckedBlock:
    """Decode a block and compare the checksums of its lines and chunks."""
    if block.array.payload is not None:
        return _check_payload(block, block.array.payload)
    raw = decode(text, block)
    if raw is not None:
        return _compare(CheckedBlock(block, raw), raw)
    # Only checking its chunks one by one shows which is damaged, and whether the reading stops.
    if block.count > 1:
        return _check_singly(text, block)
    array, ix = block.array, block.first
    problems, raw = diagnose(block.lines(text), block.size, array.lines[ix], array.name, ix)
    result = CheckedBlock(block, raw, problems=problems)
    return result if raw is None else _compare(result, raw)


def check_job(text: ByteView, job: Sequence[Block]) -> list[CheckedBlock]:
    """Check blocks as `check` does, but those of short arrays together if nothing is wrong.

    A block that can't be read to the end is the last one returned.
    """
    checked: list[CheckedBlock] = []
    for blocks in grouped(job, _short):
        raws = None
        if len(blocks) > 1:
            from wtxtgit.text import block_armor

            raws = block_armor.decode_short([(block.lines(text), block.size) for block in blocks])
        # If any line is wrong, all are checked again one by one to find it.
        if raws is not None:
            for block, raw in zip(blocks, raws, strict=True):
                checked.append(_compare(CheckedBlock(block, raw), raw))
            continue
        for block in blocks:
            checked.append(check(text, block))
            # Blocks after it can't be read: their positions depend on the broken lines.
            if checked[-1].stops:
                return checked
    return checked


def _short(block: Block) -> int | None:
    return block.size if block.count == 1 and block.array.payload is None else None


def _payload_bytes(block: Block, payload: PayloadSource) -> memoryview | None:
    """Return the chunks of a block from the payload, None if one can't be read.

    The payload has checked each of them by its SHA-256.
    """
    names = block.array.sha256[block.first : block.first + block.count]
    together = payload.read_all(names, block.size) if block.count > 1 else None
    if together is not None:
        return together
    try:
        chunks = [mapped(payload.read(name)) for name in names]
    except WtxtgitError:
        return None
    if any(chunk.nbytes != block.size for chunk in chunks):
        return None
    return chunks[0] if len(chunks) == 1 else memoryview(b"".join(chunks))


def _check_payload(block: Block, payload: PayloadSource) -> CheckedBlock:
    """Take the chunks of a block from the payload, and compare their checksums."""
    array = block.array
    result = CheckedBlock(block, None)
    # The payload has checked each chunk against its SHA-256, but not against its CRC-32C.
    names = array.sha256[block.first : block.first + block.count]
    result.sha256 = names[-1]
    together = payload.read_all(names, block.size) if block.count > 1 else None
    if together is not None:
        result.raw = together
        for number, name in enumerate(names):
            chunk = together[number * block.size : (number + 1) * block.size]
            computed, claimed = (crc32c(chunk), name), (array.crc32c[block.first + number], name)
            if computed != claimed:
                ix = block.first + number
                line = array.lines[ix] - 1
                result.problems += chunk_problems(computed, claimed, line, array.name, ix)
        result.fastxor = digest.fastxor(together, block.offset)
        return result
    present = payload.has(names)
    chunks: list[memoryview] = []
    for ix, name in enumerate(names, block.first):
        if name not in present:
            result.missing += 1
            continue
        line = array.lines[ix] - 1
        try:
            chunk = mapped(payload.read(name))
        except PayloadMissing:
            # Another process may have removed it in the meantime.
            result.missing += 1
            continue
        except WtxtgitError as error:
            result.problems.append(Problem(PAYLOAD_DAMAGED, error.message, line, array.name, ix))
            continue
        if chunk.nbytes != block.size:
            message = f"the chunk of this sha256 has {chunk.nbytes} bytes, not {block.size}"
            result.problems.append(Problem("chunk_sha256", message, line, array.name, ix))
            continue
        chunks.append(chunk)
        computed, claimed = (crc32c(chunk), name), (array.crc32c[ix], name)
        if computed != claimed:
            result.problems += chunk_problems(computed, claimed, line, array.name, ix)
    result.lacking = block.count - len(chunks)
    if not result.lacking:
        result.raw = chunks[0] if len(chunks) == 1 else memoryview(b"".join(chunks))
        result.fastxor = digest.fastxor(result.raw, block.offset)
    return result


def _compare(result: CheckedBlock, raw: memoryview) -> CheckedBlock:
    """Compare the checksums of a block's chunks with those that the text claims."""
    block, array = result.block, result.block.array
    for k in range(block.count):
        ix = block.first + k
        chunk = raw[k * block.size : (k + 1) * block.size]
        result.sha256 = sha256(chunk).digest()
        computed, claimed = (crc32c(chunk), result.sha256), (array.crc32c[ix], array.sha256[ix])
        if computed != claimed:
            line = array.lines[ix] - 1
            result.problems += chunk_problems(computed, claimed, line, array.name, ix)
    result.fastxor = digest.fastxor(raw, block.offset)
    return result


def _check_singly(text: ByteView, block: Block) -> CheckedBlock:
    """Check a damaged block chunk by chunk: chunks before the one that stops it count in full."""
    result = CheckedBlock(block, None)
    whole = bytearray()
    for ix in range(block.first, block.first + block.count):
        checked = check(text, Block(block.array, ix, 1, block.size))
        result.problems += checked.problems
        if checked.raw is None:
            return result
        result.fastxor ^= checked.fastxor
        result.sha256 = checked.sha256
        whole += checked.raw
    result.raw = memoryview(whole)
    return result


def mismatch(what: str, computed: bytes, claimed: bytes, source: str = "the text") -> str:
    """Return a message about a hash that differs from the one that `source` claims."""
    return f"{what} is {computed.hex()[:16]}..., {source} says {claimed.hex()[:16]}..."


# CRC-32C and SHA-256.
_Checksums = tuple[int, bytes]


def chunk_problems(
    computed: _Checksums, claimed: _Checksums, line: int, array: str, ix: int
) -> Iterator[Problem]:
    """Yield what is wrong with a chunk, given the checksums that its `ch` line claims.

    `line` is the number of the `ch` line.
    """
    if computed[0] != claimed[0]:
        message = f"crc32c is {computed[0]:08x}, the line says {claimed[0]:08x}"
        yield Problem("crc32c", message, line=line, array=array, chunk=ix)
    if computed[1] != claimed[1]:
        message = mismatch("the chunk's sha256", computed[1], claimed[1])
        yield Problem("chunk_sha256", message, line=line, array=array, chunk=ix)


def diagnose(
    lines: ByteView, size: int, first: int, array: str, ix: int
) -> tuple[list[Problem], memoryview | None]:
    """Return the problems of a damaged chunk's lines, and its `size` bytes if they can be read.

    `lines` are its data lines, the first of which has the number `first`. The bytes are None if the
    reading stops in this chunk.
    """
    faults, raw = armor.diagnose(lines, size)
    problems = [
        Problem(fault.kind, fault.message, line=first + fault.index, array=array, chunk=ix)
        for fault in faults
    ]
    return problems, None if any(fault.stops for fault in faults) else memoryview(raw)


Deliver = Callable[[Block, memoryview], None]
"""Receives a block and its raw bytes; called from several threads, in any order."""

Passed = Callable[[list[CheckedBlock]], None]
"""Receives blocks up to whose end the text is not read again; called in order."""


@dataclass(slots=True)
class TextReport:
    """What a verification found.

    `sha256_all` is the computed hash_all, None if the reading stopped or if chunks of a detached
    text can't be read; the same holds for `fastxor`. `authenticated` says that every array has an
    HMAC that fits the key. `layout` is set for texts with a valid `_layout`. `payload` says how
    much of a detached text's payload is available, if the text was read to its end.
    """

    index: TextIndex
    problems: Problems = field(default_factory=Problems)
    sha256_all: bytes | None = None
    merkle_this: bytes | None = None
    fastxor: int = 0
    signature: SignatureState = SignatureState.ABSENT
    keyid: str | None = None
    authenticated: bool = False
    layout: Layout | None = None
    payload: PayloadState | None = None

    def __repr__(self) -> str:
        return f"<TextReport: {self._summary()}>"

    def _summary(self) -> str:
        verdict = "ok" if self.ok else f"not ok, {counted(total(self.problems), 'problem')}"
        meta = self.index.meta
        gen = "" if meta is None else f"generation {meta.gen}, "
        return f"{gen}{counted(len(self.index.arrays), 'array')}, {verdict}"

    def _repr_html_(self) -> str:
        """Return a table of the problems as HTML, for IPython."""
        from wtxtgit.model.notebook import table

        rows = ((problem.kind, problem) for problem in self.problems)
        return table(self._summary(), ("kind", "problem"), rows, len(self.problems))

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def is_pending(self) -> bool:
        """Whether the only thing wrong with the text is that its root is pending."""
        return bool(self.problems) and all(p.kind == "pending" for p in self.problems)

    @property
    def lacks_payload(self) -> bool:
        """Whether the only thing wrong is that some of the text's payload is not available."""
        return bool(self.problems) and all(p.kind == PAYLOAD_MISSING for p in self.problems)

    @property
    def is_container(self) -> bool:
        """Whether the text stands for a file, byte for byte."""
        return self.layout is not None and self.layout.is_container


def verify(
    text: ByteView,
    *,
    wsum: bytes | None = None,
    hmac_key: bytes | None = None,
    public_keys: Sequence[bytes] = (),
    allow_unauthenticated: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    deliver: Deliver | None = None,
    indexed: TextIndex | None = None,
    growing: Iterator[None] | None = None,
    passed: Passed | None = None,
    payload: PayloadSource = NO_PAYLOAD,
) -> TextReport:
    """Verify a text.

    `text` is a flat view of bytes, `wsum` the content of its WSUM file, `public_keys` are raw
    ed25519 keys of 32 bytes. `progress` receives counts of raw bytes. `deliver` receives the bytes
    of blocks whose own checksums are right. `indexed` is what `index` returned for the text, if
    that was called already; or an index that grows with the steps of `growing`: then blocks are
    checked as soon as they are indexed. `passed` is told which blocks no longer need the text.
    `payload` is that of a detached text, unless `indexed` has it; if any of it is missing, there is
    a problem of the kind "payload-missing".
    """
    report = TextReport(index(text, payload=payload) if indexed is None else indexed)
    growing = growing or iter(())
    expect(progress, sum(array.nbytes for array in report.index.arrays))
    body = _ArrayChecks(text, report, hmac_key, allow_unauthenticated, progress, deliver, passed)
    stopped = body.check(growing, threads)
    # After a stop the remaining lines are still indexed: they may show what else is wrong there.
    deque(growing, maxlen=0)
    # Findings nearest to the damage come first: lines and chunks, then arrays.
    report.problems.sort(key=lambda problem: (problem.chunk is None, problem.line or 0))
    stop = report.index.stop
    if stop is not None and (not stopped or _same_chunk(stop, report.problems)):
        report.problems.append(stop)
        stopped = True
    if not stopped:
        # No hash of an incomplete text is reported: it would look like that of another text.
        if not body.lacking:
            report.sha256_all, report.fastxor = body.hash_all.digest(), body.fastxor
        if report.index.is_detached:
            _tell_payload(report, body)
        _check_root(report, wsum)
    # Checked even after a stop: a signature covers only the header, which may be intact.
    _check_signatures(report, text, wsum, public_keys)
    if not stopped and body.layout_bytes is not None:
        _check_layout(report, body.layout_bytes, len(text))
    return report


def _tell_payload(report: TextReport, body: _ArrayChecks) -> None:
    """Report how much of a detached text's payload is available."""
    chunks = report.index.payload_chunks
    if not body.lacking:
        report.payload = PayloadState.COMPLETE
    else:
        is_any = body.lacking < chunks
        report.payload = PayloadState.PARTLY if is_any else PayloadState.ABSENT
    if body.missing:
        message = f"{body.missing} of {counted(chunks, 'chunk')} are not available here"
        report.problems.append(Problem(PAYLOAD_MISSING, message))


def _same_chunk(stop: Problem, problems: Iterable[Problem]) -> bool:
    """Whether the frame lines of the chunk in which the reading stopped are broken too.

    A missing line shows both as another line of the wrong length and as a missing `endch`: both are
    reported.
    """
    kinds = {p.kind for p in problems if (p.array, p.chunk) == (stop.array, stop.chunk)}
    return bool(kinds) and stop.kind not in kinds


class _ArrayChecks:
    """The checks of all arrays of a text, in order."""

    def __init__(
        self,
        text: ByteView,
        report: TextReport,
        hmac_key: bytes | None,
        allow_unauthenticated: bool,
        progress: Progress | None,
        deliver: Deliver | None,
        passed: Passed | None,
    ) -> None:
        self._text = text
        self._report = report
        self._hmac_key = hmac_key
        self._allow_unauthenticated = allow_unauthenticated
        self._progress = progress
        self._deliver = deliver
        self._passed = passed
        self.hash_all = sha256()
        self.fastxor = 0
        self.layout_bytes: bytearray | None = bytearray()
        self.lacking = self.missing = 0
        self._own = sha256()
        self._own_lacks = False
        self._own_problems = Problems()
        self._no_mac_problems = Problems()
        self._mac: digest.Mac | None = None
        self._mac_problems = Problems()
        self._stopped = False

    def check(self, growing: Iterator[None], threads: int | None) -> bool:
        """Check all chunks of a growing index; returns True if a fault stopped the reading."""
        blocks = _blocks_of_all(self._report.index, growing)
        tasks = (partial(self._check_job, job) for job in jobs_of(blocks))
        followers = [self._to_own]
        if self._hmac_key is not None:
            followers.append(self._to_mac)
        # Jobs of short arrays are large enough: each array takes hundreds of bytes of text.
        threads = worthwhile(threads, len(self._text))
        with Workers(tasks, threads, followers=followers, is_last=_stops) as jobs:
            for job in jobs:
                self._to_all(job)
                if self._passed is not None:
                    self._passed(job)
        arrays = self._report.index.arrays
        # Each follower collects its own problems, and they are joined in a fixed order: reports
        # must not depend on the timing of threads.
        mac_problems = [*self._no_mac_problems, *self._mac_problems]
        for problems in (self._no_mac_problems, self._own_problems, self._mac_problems):
            self._report.problems.extend(problems)
        if not self._stopped and not self.lacking and self._hmac_key is not None:
            # A text without arrays does not prove that its author had the key.
            every = bool(arrays) and all(array.has_hmac for array in arrays)
            self._report.authenticated = every and not mac_problems
        return self._stopped

    def _check_job(self, job: list[Block]) -> list[CheckedBlock]:
        checked = check_job(self._text, job)
        if self._deliver is not None:
            for result in checked:
                if result.raw is not None and not result.problems:
                    self._deliver(result.block, result.raw)
        return checked

    def _to_all(self, job: list[CheckedBlock]) -> None:
        """Feed a job's blocks to what covers all arrays: hash_all and fastxor."""
        parts: list[Buffer] = []
        done = 0
        for checked in job:
            self._report.problems.extend(checked.problems)
            block = checked.block
            if checked.raw is None:
                if checked.stops:
                    self._stopped = True
                    break
                self.lacking += checked.lacking
                self.missing += checked.missing
                if block.array.name == LAYOUT_ARRAY:
                    self.layout_bytes = None
                continue
            self.fastxor ^= checked.fastxor
            if block.first == 0:
                parts.append(block.array.header)
            parts.append(checked.raw)
            done += checked.raw.nbytes
            if block.array.name == LAYOUT_ARRAY and self.layout_bytes is not None:
                self.layout_bytes += checked.raw
        # Short arrays are joined: hashing each one separately would wait for the interpreter's
        # lock.
        # Without some of the arrays there is no hash_all.
        if not self.lacking:
            for part in parts if len(job) == 1 else (b"".join(parts),):
                self.hash_all.update(part)
        if done and self._progress is not None:
            self._progress(done)

    def _to_own(self, job: list[CheckedBlock]) -> None:
        """Feed a job's blocks to each array's own SHA-256."""
        for checked in job:
            if checked.stops:
                break
            array = checked.block.array
            own = checked.sha256
            # The hash of an only chunk is also the array's: it is not computed twice.
            if array.chunks > 1:
                if checked.block.first == 0:
                    self._own, self._own_lacks = sha256(), False
                self._own_lacks |= checked.raw is None
                if checked.raw is None or self._own_lacks:
                    continue
                self._own.update(checked.raw)
                if not checked.is_last:
                    continue
                if not array.complete:
                    continue
                own = self._own.digest()
            if own != array.claim.sha256:
                message = mismatch("the array's sha256", own, array.claim.sha256)
                self._own_problems.append(_of_array("array_sha256", message, array))

    def _to_mac(self, job: list[CheckedBlock]) -> None:
        """Feed a job's blocks to each array's HMAC."""
        for checked in job:
            if checked.stops:
                break
            array = checked.block.array
            if checked.block.first == 0:
                self._mac = self._start_mac(array)
            if checked.raw is None:
                self._mac = None
            if checked.raw is None or self._mac is None:
                continue
            self._mac.update(checked.raw)
            # If the array was not read to its end, the stop is reported instead.
            is_due = checked.is_last and array.complete
            if is_due and not digest.same_mac(self._mac.digest(), array.claim.hmac):
                message = "the hmac does not match the key"
                self._mac_problems.append(_of_array("hmac", message, array))

    def _start_mac(self, array: ArrayIndex) -> digest.Mac | None:
        if self._hmac_key is not None and array.has_hmac:
            return digest.array_hmac(self._hmac_key, array.claim.salt)
        if not self._allow_unauthenticated:
            message = "a key was given, but the array has no hmac"
            self._no_mac_problems.append(_of_array("hmac", message, array))
        return None


def _stops(job: list[CheckedBlock]) -> bool:
    return bool(job) and job[-1].stops


def _of_array(kind: str, message: str, array: ArrayIndex) -> Problem:
    return Problem(kind, message, line=array.line, array=array.name)


_ROOT_LINE = 4


def _check_root(report: TextReport, wsum_bytes: bytes | None) -> None:
    """Compare root, fastxor and merkle, also a WSUM's, so far as the arrays are available."""
    computed = report.sha256_all
    root, problems = report.index.root, report.problems
    if root is not None:
        if computed is not None and root.sha256_all != computed:
            message = mismatch("hash_all", computed, root.sha256_all)
            problems.append(Problem("root", message, line=_ROOT_LINE))
        if computed is not None and root.fastxor != report.fastxor:
            message = f"fastxor is {report.fastxor:016x}, the text says {root.fastxor:016x}"
            problems.append(Problem("fastxor", message, line=_ROOT_LINE))
        this = report.merkle_this = digest.merkle(
            root.merkle_prev, root.sha256_all, report.index.meta
        )
        if root.merkle_this != this:
            message = mismatch("merkle_this", this, root.merkle_this)
            problems.append(Problem("merkle", message, line=_ROOT_LINE))
    if wsum_bytes is None:
        if report.index.pending:
            message = "the root is pending, and no WSUM was given or found beside the text"
            problems.append(Problem("pending", message, line=_ROOT_LINE))
        return
    # A text's own root was compared above; its WSUM has to say the same.
    stated = computed if root is None else root.sha256_all
    if stated is None:
        return
    problems.extend(wsum_problems(wsum_bytes, stated, report.index.meta))
    if (wsum := read_wsum(wsum_bytes)) is not None:
        report.merkle_this = digest.merkle(wsum.merkle_prev, wsum.sha256_all, report.index.meta)


def wsum_problems(content: bytes, sha256_all: bytes, meta: Meta) -> Iterator[Problem]:
    """Yield what is wrong with the WSUM of a text with this hash_all and `meta` line."""
    wsum = read_wsum(content)
    if wsum is None:
        yield Problem("syntax", "the WSUM is not a single valid WSUM 1 line")
        return
    if wsum.sha256_all != sha256_all:
        yield Problem("root", mismatch("hash_all", sha256_all, wsum.sha256_all, "the WSUM"))
    this = digest.merkle(wsum.merkle_prev, wsum.sha256_all, meta)
    if wsum.merkle_this != this:
        message = mismatch("merkle_this", this, wsum.merkle_this, "the WSUM")
        yield Problem("merkle", message)


def read_wsum(content: bytes) -> grammar.Wsum | None:
    """Parse a WSUM file's content; returns None unless it is exactly one WSUM line."""
    parsed = grammar.parse_wsum(content, 0)
    return parsed[0] if parsed is not None and parsed[1] == len(content) else None


def _check_signatures(
    report: TextReport, text: ByteView, wsum_bytes: bytes | None, public_keys: Sequence[bytes]
) -> None:
    """Check the signatures of the header and of the WSUM; the worse result is reported."""
    states = []
    index = report.index
    if index.signature is not None:
        report.keyid = index.signature.keyid
        covered = index.signed(text)
        states.append(digest.check_header(index.signature, covered, public_keys))
    wsum = read_wsum(wsum_bytes) if wsum_bytes is not None else None
    if wsum is not None and wsum.signature is not None:
        covered = grammar.wsum_covered(wsum)
        states.append(digest.check_wsum(wsum.signature, covered, public_keys))
    # The worse one first: a good header must not hide a WSUM that does not hold.
    for state in (SignatureState.INVALID, SignatureState.UNKNOWN_KEY, SignatureState.VALID):
        if state in states:
            report.signature = state
            break
    if report.signature is SignatureState.INVALID:
        report.problems.append(
            Problem("signature", "the signature does not match the text and the given keys")
        )


def _check_layout(report: TextReport, raw: bytearray, size: int) -> None:
    index = report.index
    try:
        claims = [array.claim for array in index.arrays]
        report.layout = layout_of(index.meta, index.cap, claims, raw, size)
    except TextError as error:
        array = index.array(LAYOUT_ARRAY)
        line = array.line if array is not None else 3
        report.problems.append(Problem(error.kind, error.message, line=line, array=error.array))
