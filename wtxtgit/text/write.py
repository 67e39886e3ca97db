"""Writing WTXT: a snapshot becomes text, a function of its input alone.

All sizes are known before a byte is hashed, because every line has a fixed
length. A text is a header, the arrays' blocks, and a footer; a block is a run
of up to 16 chunks of one array, or one short array. Three SHA-256 passes are
the cost: each array's own, each chunk's, and hash_all, which can only follow
the arrays' own. Blocks are hashed and armored on the pool's threads while the
caller's thread runs hash_all behind them.

To a file (`write_file`) blocks go to their places as they are made and the
lines that hold digests follow. To a pipe (`stream`) all is hashed first and
armored afterwards, block by block, with a bounded number of blocks in flight.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256

import numpy as np
from crc32c import crc32c

from wtxtgit.errors import TextError
from wtxtgit.model import ITEM_SIZE, LAYOUT_ARRAY, Array, Buffer, Signature, Snapshot
from wtxtgit.model.rows import chunk_count
from wtxtgit.text import armor, blocking, digest, grammar
from wtxtgit.text.blocking import BLOCK_BYTES, BLOCK_CHUNKS
from wtxtgit.text.parallel import Pool
from wtxtgit.text.render import chunk_text_size, render_chunks

_CHAIN_STEP = 16 * BLOCK_BYTES
"""hash_all is fed in steps of this size, so that progress can be told."""

HASH_SIZE = 32

Progress = Callable[[int], None]
"""Called with the number of raw bytes that were just finished."""
Signer = Callable[[bytes], Signature]
"""Signs the bytes that it is given."""


@dataclass(slots=True)
class _Block:
    """A run of `count` chunks of `size` bytes, from chunk `first` of an array."""

    array: _ArrayPlan
    first: int
    count: int
    size: int
    start: int
    """Where its text starts, the `arr` and `idx` lines included for a first block."""
    sha256: list[bytes] = field(default_factory=list)
    crc32c: list[int] = field(default_factory=list)
    fastxor: int = 0

    @property
    def lead(self) -> int:
        return self.array.lead if self.first == 0 else 0

    @property
    def is_last(self) -> bool:
        return self.first + self.count == self.array.chunks

    @property
    def text_size(self) -> int:
        tail = len(grammar.END_ARRAY) if self.is_last else 0
        return self.lead + self.count * chunk_text_size(self.size) + tail

    @property
    def raw(self) -> memoryview:
        start = self.first * self.array.chunk_size
        return self.array.source.data[start : start + self.count * self.size]


@dataclass(slots=True)
class _ArrayPlan:
    """An array's geometry, and its digests once they are known."""

    source: Array
    chunk_size: int
    chunks: int
    rows_line: bytes
    line_size: int
    sha256: bytes = b""
    hmac: bytes = bytes(32)
    salt: bytes = bytes(8)

    @property
    def lead(self) -> int:
        return self.line_size + len(self.rows_line)

    @property
    def claim(self) -> grammar.ArrayLine:
        source = self.source
        return grammar.ArrayLine(
            source.name,
            source.dtype,
            source.shape,
            source.data.nbytes,
            self.sha256 or bytes(32),
            self.hmac,
            self.salt,
        )

    def line(self) -> bytes:
        return grammar.format_array(self.claim)


@dataclass(frozen=True, slots=True, eq=False)
class HashedArray:
    """An array with what its `arr` line says, and the digests of its chunks in order."""

    source: Array
    line: grammar.ArrayLine
    sha256: list[bytes]
    crc32c: list[int]


class TextWriter:
    """One snapshot on its way to text.

    `hmac_key` authenticates every array with it (salts as given by the
    arrays, else derived); without it the arrays' own hmac and salt are
    written. `sign` signs the header, or the WSUM of a pending text; without
    it the snapshot's own signature is written. Raises TextError for what no
    text can hold.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        threads: int | None = None,
        hmac_key: bytes | None = None,
        sign: Signer | None = None,
        progress: Progress | None = None,
    ) -> None:
        _check(snapshot)
        self._snapshot = snapshot
        self._threads = threads
        self._hmac_key = hmac_key
        self._sign = sign
        self._progress = progress
        self._meta_line = grammar.format_meta(snapshot.meta)
        self._cap_line = grammar.format_cap(snapshot.cap)
        self._root: grammar.Root | None = None
        self._jobs: list[list[_Block]] = []
        self._arrays: list[_ArrayPlan] = []
        self.raw_size = sum(array.data.nbytes for array in snapshot.arrays)
        audit = b"" if snapshot.audit is None else grammar.format_audit(snapshot.audit)
        self._footer = audit + grammar.LAST_LINE
        self.size = self._plan() + len(self._footer)

    @property
    def root(self) -> grammar.Root:
        """The root line's fields; hashes everything if that was not done yet."""
        if self._root is None:
            with self._pool() as pool:
                self._root = self._digest(pool, lambda _block: None)
        return self._root

    def hashed(self) -> list[HashedArray]:
        """The arrays with their digests; hashes everything if that was not done yet."""
        _ = self.root
        found = {id(plan): HashedArray(plan.source, plan.claim, [], []) for plan in self._arrays}
        for job in self._jobs:
            for block in job:
                array = found[id(block.array)]
                array.sha256.extend(block.sha256)
                array.crc32c.extend(block.crc32c)
        return list(found.values())

    def wsum(self) -> bytes:
        """The WSUM line of this snapshot, signed where a signer was given."""
        root = self.root
        wsum = grammar.Wsum(root.sha256_all, root.merkle_prev, root.merkle_this, None)
        if self._sign is None:
            return grammar.format_wsum(wsum)
        signature = self._sign(grammar.wsum_covered(wsum)).signature
        return grammar.format_wsum(replace(wsum, signature=signature))

    def stream(self) -> Iterator[Buffer]:
        """Give the text in order, in pieces; each piece is used before the next."""
        _ = self.root
        yield self._header()
        with self._pool() as pool:
            for pieces in pool.ordered(partial(self._render_job, job) for job in self._jobs):
                yield from pieces
        yield self._footer

    def write_file(self, fd: int) -> None:
        """Write the text to an empty file that can be written at any place."""

        def write(block: _Block) -> None:
            # The first block's arr line may not be known yet; it is written again below.
            _pwrite(fd, self._render(block).data, block.start)

        with self._pool() as pool:
            self._root = self._digest(pool, write)
        for job in self._jobs:
            for block in job:
                if block.first == 0:
                    _pwrite(fd, memoryview(block.array.line()), block.start)
        _pwrite(fd, memoryview(self._header()), 0)
        _pwrite(fd, memoryview(self._footer), self.size - len(self._footer))

    def _pool(self) -> Pool:
        return Pool(self._threads, self.raw_size, len(self._jobs))

    def _plan(self) -> int:
        """Lay the text out; returns where the last array ends."""
        position = self._header_size()
        short: list[_Block] = []
        short_bytes = 0
        for array in self._snapshot.arrays:
            plan = self._plan_array(array)
            self._arrays.append(plan)
            blocks = list(_blocks(plan, position))
            position = blocks[-1].start + blocks[-1].text_size
            if plan.chunks > 1:
                if short:
                    self._jobs.append(short)
                    short, short_bytes = [], 0
                self._jobs.extend([block] for block in blocks)
                continue
            short += blocks
            short_bytes += array.data.nbytes
            if short_bytes >= BLOCK_BYTES or len(short) >= BLOCK_CHUNKS * 4:
                self._jobs.append(short)
                short, short_bytes = [], 0
        if short:
            self._jobs.append(short)
        return position

    def _plan_array(self, array: Array) -> _ArrayPlan:
        size = blocking.chunk_size(array.rows)
        blocking.check_fits(array.name, array.data.nbytes, size)
        plan = _ArrayPlan(
            array,
            size,
            chunk_count(array.data.nbytes, size),
            b"" if array.rows is None else grammar.format_rows(array.rows),
            0,
        )
        plan.line_size = len(plan.line())
        if self._hmac_key is not None:
            gen = self._snapshot.meta.gen
            plan.salt = array.salt or digest.salt_for(self._hmac_key, gen, array.name)
        else:
            plan.hmac = array.hmac or plan.hmac
            plan.salt = array.salt or plan.salt
        return plan

    def _digest(self, pool: Pool, finish: Callable[[_Block], None]) -> grammar.Root:
        """Hash everything; `finish` gets each block when its chunks are hashed."""
        ready: dict[int, Future[None]] = {}
        for job in self._jobs:
            first = job[0]
            if first.array.chunks > 1 and first.first == 0:
                ready[id(first.array)] = pool.submit(partial(self._hash_array, first.array))
            done = pool.submit(partial(self._hash_job, job, finish))
            for block in job:
                if block.array.chunks == 1:
                    ready[id(block.array)] = done
                else:
                    ready[id(block)] = done
        hash_all = sha256()
        for plan in self._arrays:
            ready.pop(id(plan)).result()
            hash_all.update(plan.line().removesuffix(b"\n"))
            data = plan.source.data
            for start in range(0, data.nbytes, _CHAIN_STEP):
                piece = data[start : start + _CHAIN_STEP]
                hash_all.update(piece)
                if self._progress is not None:
                    self._progress(piece.nbytes)
        for done in ready.values():
            done.result()
        fastxor = 0
        for job in self._jobs:
            for block in job:
                fastxor ^= block.fastxor
        snapshot = self._snapshot
        this = digest.merkle(snapshot.prev, hash_all.digest(), snapshot.meta)
        return grammar.Root(hash_all.digest(), snapshot.prev, this, fastxor)

    def _hash_array(self, plan: _ArrayPlan) -> None:
        plan.sha256 = sha256(plan.source.data).digest()
        self._authenticate(plan)

    def _authenticate(self, plan: _ArrayPlan) -> None:
        if self._hmac_key is not None:
            mac = digest.array_hmac(self._hmac_key, plan.salt)
            mac.update(plan.source.data)
            plan.hmac = mac.digest()

    def _hash_job(self, job: list[_Block], finish: Callable[[_Block], None]) -> None:
        for block in job:
            raw = block.raw
            for start in range(0, max(1, raw.nbytes), max(1, block.size)):
                chunk = raw[start : start + block.size]
                block.sha256.append(sha256(chunk).digest())
                block.crc32c.append(crc32c(chunk))
            block.fastxor = digest.fastxor(raw, block.first * block.array.chunk_size)
            if block.array.chunks == 1:
                block.array.sha256 = block.sha256[0]
                self._authenticate(block.array)
            finish(block)

    def _render_job(self, job: list[_Block]) -> list[memoryview]:
        return [self._render(block).data for block in job]

    def _render(self, block: _Block) -> armor.U1:
        """Armor a block whose chunks are hashed: its whole text, as uint8."""
        text = np.empty(block.text_size, dtype=np.uint8)
        view = text.data
        if block.lead:
            view[: block.lead] = block.array.line() + block.array.rows_line
        offset = block.first * block.array.chunk_size
        end = render_chunks(
            text, block.lead, block.raw, block.first, offset, block.sha256, block.crc32c
        )
        if block.is_last:
            view[end:] = grammar.END_ARRAY
        return text

    def _header(self) -> bytes:
        root = grammar.PENDING_LINE if self._snapshot.pending else grammar.format_root(self.root)
        covered = grammar.FIRST_LINE + self._meta_line + self._cap_line + root
        signature = self._snapshot.signature
        if self._sign is not None and not self._snapshot.pending:
            signature = self._sign(covered)
        return covered if signature is None else covered + grammar.format_sign(signature)

    def _header_size(self) -> int:
        blank = grammar.Root(bytes(32), bytes(32), bytes(32), 0)
        pending = self._snapshot.pending
        size = len(grammar.FIRST_LINE) + len(self._meta_line) + len(self._cap_line)
        size += len(grammar.PENDING_LINE if pending else grammar.format_root(blank))
        if self._snapshot.signature is not None or (self._sign is not None and not pending):
            size += len(grammar.format_sign(Signature(bytes(64), "0" * 16)))
        return size


def dumps(
    snapshot: Snapshot,
    *,
    threads: int | None = None,
    hmac_key: bytes | None = None,
    sign: Signer | None = None,
) -> bytes:
    """The text of a snapshot as bytes."""
    return b"".join(TextWriter(snapshot, threads=threads, hmac_key=hmac_key, sign=sign).stream())


def _blocks(plan: _ArrayPlan, position: int) -> Iterator[_Block]:
    """Cut an array into blocks whose chunks are all of one size."""
    size = plan.chunk_size
    nbytes = plan.source.data.nbytes
    whole = nbytes // size
    step = max(1, min(BLOCK_CHUNKS, BLOCK_BYTES // size))
    first = 0
    while first < plan.chunks:
        if first < whole:
            block = _Block(plan, first, min(step, whole - first), size, position)
        else:
            block = _Block(plan, first, 1, nbytes - whole * size, position)
        yield block
        position += block.text_size
        first += block.count


def _check(snapshot: Snapshot) -> None:
    previous = ""
    if snapshot.pending and snapshot.signature is not None:
        raise TextError("structure", "a pending text is not signed in its header but in its WSUM")
    if len(snapshot.prev) != HASH_SIZE:
        raise TextError("syntax", f"merkle_prev has {len(snapshot.prev)} bytes, not {HASH_SIZE}")
    if (signature := snapshot.signature) is not None:
        grammar.check_sign(signature)
    has_layout = any(array.name == LAYOUT_ARRAY for array in snapshot.arrays)
    if has_layout != (snapshot.layout is not None):
        raise TextError("layout", f"an array called {LAYOUT_ARRAY} is not the caller's to give")
    for array in snapshot.arrays:
        name = array.name
        if not grammar.is_array_name(name):
            raise TextError("syntax", f'array name "{name}" is not of A-Za-z0-9_', array=name)
        if name <= previous:
            raise TextError("structure", f'array "{name}" is not after "{previous}"', array=name)
        previous = name
        if array.dtype not in ITEM_SIZE:
            raise TextError("syntax", f'array "{name}" has dtype "{array.dtype}"', array=name)
        if not all(0 <= dim <= grammar.MAX_NUMBER for dim in array.shape):
            raise TextError("syntax", f'array "{name}" has the shape {array.shape}', array=name)
        claimed = blocking.bounded_product(array.shape, ITEM_SIZE[array.dtype])
        if claimed != array.data.nbytes:
            raise TextError(
                "structure",
                f'array "{name}" has {array.data.nbytes} bytes, dtype and shape give {claimed}',
                array=name,
            )
        if array.rows is not None and (wrong := blocking.check_rows(array.rows, array.dtype)):
            raise TextError("structure", f'array "{name}": {wrong}', array=name)


def _pwrite(fd: int, data: memoryview, offset: int) -> None:
    while data.nbytes:
        written = os.pwrite(fd, data, offset)
        data = data[written:]
        offset += written
