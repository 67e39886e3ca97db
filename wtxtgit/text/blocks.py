"""Blocks of an indexed text: the unit in which chunks are decoded and checked.

A block is a run of chunks of one array, all of one size, whose lines stand at
equal distances. Decoding a block gives its raw bytes if every line is what the
writer would have written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np

from wtxtgit.errors import TextError
from wtxtgit.io.view import ByteView, mapped
from wtxtgit.model.checksum import crc32c
from wtxtgit.model.findings import Problem
from wtxtgit.text import armor, digest, grammar
from wtxtgit.text.index import ArrayIndex
from wtxtgit.text.plan import BLOCK_BYTES, cut, gathered

_JOB_BLOCKS = 1024
"""How many blocks of short arrays make one job."""


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
        """Its armored lines, and what stands between them."""
        last = self.array.starts[self.first + self.count - 1]
        return mapped(text[self.start : last + armor.line_count(self.size) * grammar.LINE_TEXT])

    @property
    def offset(self) -> int:
        """Where its bytes stand in the array."""
        return self.first * self.array.chunk_size

    @property
    def nbytes(self) -> int:
        return self.count * self.size


@dataclass(slots=True)
class CheckedBlock:
    """A block's bytes and what its own checksums say of them.

    `raw` is None where the lines could not be read to the end: what follows
    is not read. `sha256` is that of the last chunk, an array's own where it has just one.
    """

    block: Block
    raw: memoryview | None
    fastxor: int = 0
    sha256: bytes = b""
    problems: list[Problem] = field(default_factory=list)

    @property
    def is_last(self) -> bool:
        """Whether its array ends with it."""
        return self.block.first + self.block.count == self.block.array.chunks


def blocks_of(array: ArrayIndex, first: int = 0, last: int | None = None) -> Iterator[Block]:
    """The blocks of an array's indexed chunks from `first` up to, not including, `last`."""
    end = len(array.starts) if last is None else min(last, len(array.starts))
    return (Block(array, *found) for found in cut(array.nbytes, array.chunk_size, first, end))


def jobs_of(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Gather blocks in order into jobs that are worth a thread's attention."""
    job: list[Block] = []
    nbytes = 0
    for block in blocks:
        job.append(block)
        nbytes += block.nbytes
        if nbytes >= BLOCK_BYTES // 2 or len(job) >= _JOB_BLOCKS:
            yield job
            job, nbytes = [], 0
    if job:
        yield job


def jobs_at_least(arrays: Sequence[ArrayIndex]) -> int:
    """How many jobs the blocks of arrays make, at the very least."""
    return len(arrays) // _JOB_BLOCKS + 1


def decode(text: ByteView, block: Block) -> memoryview | None:
    """The raw bytes of a block, None where a line is not as it should be."""
    lines = np.frombuffer(block.lines(text), dtype=np.uint8)
    raw = armor.decode(lines, block.count, block.size, 0, block.stride)
    return None if raw is None else raw.reshape(-1).data


def decoded(text: ByteView, block: Block) -> memoryview:
    """The raw bytes of a block of a text that was verified; raises TextError "structure"."""
    if (raw := decode(text, block)) is None:
        message = "the text changed while it was read"
        raise TextError("structure", message, array=block.array.name)
    return raw


def checked_bytes(text: ByteView, blocks: Iterable[Block]) -> Iterator[memoryview]:
    """The raw bytes of each block, whose checksums hold; raises TextError for the first problem."""
    for block in blocks:
        checked = check(text, block)
        for problem in checked.problems:
            raise refusal(problem)
        if checked.raw is None:
            raise TextError("structure", "a chunk can't be read", array=block.array.name)
        yield checked.raw


def refusal(problem: Problem) -> TextError:
    """A problem of a text as the error that a reader raises."""
    return TextError(
        problem.kind,
        problem.message,
        line=problem.line,
        array=problem.array,
        chunk=problem.chunk if isinstance(problem.chunk, int) else None,
    )


def check(text: ByteView, block: Block) -> CheckedBlock:
    """Decode a block and compare the checksums of its lines and chunks."""
    raw = decode(text, block)
    if raw is not None:
        return _compare(CheckedBlock(block, raw), raw)
    if block.count > 1:
        return _check_singly(text, block)
    result, raw = _diagnose(text, block)
    return result if raw is None else _compare(result, raw)


def check_job(text: ByteView, job: Sequence[Block]) -> list[CheckedBlock]:
    """Check blocks as `check` does, those of short arrays together where nothing is wrong.

    A block that can't be read to the end is the last.
    """
    checked: list[CheckedBlock] = []
    for blocks in gathered(job, _short):
        raws = None
        if len(blocks) > 1:
            raws = armor.decode_short([(block.lines(text), block.size) for block in blocks])
        if raws is not None:
            for block, raw in zip(blocks, raws, strict=True):
                checked.append(_compare(CheckedBlock(block, raw), raw))
            continue
        for block in blocks:
            checked.append(check(text, block))
            if checked[-1].raw is None:
                return checked
    return checked


def _short(block: Block) -> int | None:
    return block.size if block.count == 1 else None


def _compare(result: CheckedBlock, raw: memoryview) -> CheckedBlock:
    """Compare the checksums of a block's chunks with those that the text says."""
    block, array = result.block, result.block.array
    for k in range(block.count):
        ix = block.first + k
        chunk = raw[k * block.size : (k + 1) * block.size]
        crc = crc32c(chunk)
        if crc != array.crc32c[ix]:
            message = f"crc32c is {crc:08x}, the line says {array.crc32c[ix]:08x}"
            result.problems.append(_at_chunk("crc32c", message, array, ix))
        result.sha256 = sha256(chunk).digest()
        if result.sha256 != array.sha256[ix]:
            message = mismatch("the chunk's sha256", result.sha256, array.sha256[ix])
            result.problems.append(_at_chunk("chunk_sha256", message, array, ix))
    result.fastxor = digest.fastxor(raw, block.offset)
    return result


def _check_singly(text: ByteView, block: Block) -> CheckedBlock:
    """Check a damaged block chunk by chunk: what stands before a stop counts in full."""
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


def mismatch(what: str, found: bytes, claimed: bytes) -> str:
    return f"{what} is {found.hex()[:16]}..., the text says {claimed.hex()[:16]}..."


def _at_chunk(kind: str, message: str, array: ArrayIndex, ix: int) -> Problem:
    return Problem(kind, message, line=array.lines[ix] - 1, array=array.name, chunk=ix)


def _diagnose(text: ByteView, block: Block) -> tuple[CheckedBlock, memoryview | None]:
    """Find the bad lines of a block of one chunk; its bytes too, where nothing stops."""
    array, ix = block.array, block.first
    start = array.starts[ix]
    lines = text[start : start + armor.line_count(block.size) * grammar.LINE_TEXT]
    faults, raw = armor.diagnose(lines, block.size)
    problems = [
        Problem(
            fault.kind,
            fault.message,
            line=array.lines[ix] + fault.index,
            array=array.name,
            chunk=ix,
        )
        for fault in faults
    ]
    if any(fault.stops for fault in faults):
        return CheckedBlock(block, None, problems=problems), None
    held = memoryview(raw)
    return CheckedBlock(block, held, problems=problems), held
