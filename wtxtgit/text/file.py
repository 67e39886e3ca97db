"""The file that a text stands for, and the arrays of a text.

`TextFile` decodes no more of a text than is asked for: a file with holes, or as
much memory where it is small. Arrays come into it when their bytes are needed,
each chunk checked against its parity, CRC-32C and SHA-256. What only verification
of the whole text proves (root, chain, signature) is not checked there.

The other functions read texts that `verify` accepted: they decode again without
hashing, which costs a fraction of the check and keeps unverified bytes from leaving.
"""

from __future__ import annotations

import shlex
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from hashlib import sha256
from typing import IO, TYPE_CHECKING

from wtxtgit.errors import CheckError, LacksPayload, TextError
from wtxtgit.io.view import Buffer, ByteView, Pages, same_bytes, view_of, write_at
from wtxtgit.io.workers import Workers, worthwhile
from wtxtgit.model.array import (
    LAYOUT_ARRAY,
    NATIVE_FORMAT,
    NO_PAYLOAD,
    PAYLOAD_MISSING,
    Extent,
    Layout,
    PayloadSource,
)
from wtxtgit.model.findings import Problem
from wtxtgit.text.grammar import LINE_TEXT, line_count
from wtxtgit.text.index import ArrayIndex, TextIndex, index, want_chunks
from wtxtgit.text.layout import Blocks, file_tasks, layout_of, literal, placed
from wtxtgit.text.verify import (
    Block,
    blocks_of,
    checked_bytes,
    decoded,
    jobs_at_least,
    jobs_of,
)

if TYPE_CHECKING:
    from wtxtgit.text.block_armor import U1

MOST_FILE = 2**62
"""No file system takes a file of so many bytes; a detached text may claim them."""
# Bytes of payload from which on a copy of this process is worth making.
_FOR_TWO = 32 * 1024 * 1024
# Bytes of a file up to which it stays in memory: making one takes longer than filling it.
_IN_MEMORY = 1024 * 1024


class TextFile:
    """A text, and the file of its arrays: those of a native text one after another.

    `view` is the whole file, zeros where nothing was asked for yet. Raises
    CheckError where the text's structure or what is decoded of it does not hold, or
    is not in the `payload` of a detached text. `indexed` is the text's index, where that is made
    already, with its payload. Nothing is to be asked for any more when `until` is closed. `name`
    is what messages call the text, None where the caller says that.
    """

    def __init__(
        self,
        name: str | None,
        text: ByteView,
        pages: Pages,
        threads: int | None,
        until: ExitStack,
        payload: PayloadSource = NO_PAYLOAD,
        indexed: TextIndex | None = None,
    ) -> None:
        self._name = name
        self.text = text
        self._pages = pages
        self._threads = threads
        pages.watch(text)
        self.index = index(text, pages.passed, payload) if indexed is None else indexed
        if self.index.stop is not None:
            raise self._damaged(self.index.stop)
        self.by_name = {a.name: a for a in self.index.arrays if a.name != LAYOUT_ARRAY}
        self.layout = self._layout()
        self.places: dict[str, int] = {}
        """Where each array's bytes stand in the file."""
        self.size, literals = self._lay_out()
        self._starts = sorted(
            (start, name) for name, start in self.places.items() if self.by_name[name].nbytes
        )
        # Of each array that was asked for, which chunks were.
        self._filled: dict[str, bytearray] = {}
        self._file: IO[bytes] | None = None
        self._memory = memoryview(bytearray(self.size if self.size <= _IN_MEMORY else 0))
        self.view: ByteView = self._memory.toreadonly()
        if self.size > _IN_MEMORY:
            # Where a text becomes a file in order there is none.
            import tempfile

            spool = tempfile.TemporaryFile(prefix="wtxtgit-")  # noqa: SIM115 - until closes it
            self._file = until.enter_context(spool)
            # A hole of zeros: arrays that nobody asks for take no room on disk.
            try:
                self._file.truncate(self.size)
            except (OSError, OverflowError):
                # A detached text claims bytes that are nowhere.
                message = f"no room for the {self.size} bytes that it represents"
                raise self._damaged(TextError("limit", message)) from None
            self.view = view_of(self._file.fileno())
        for start, content in literals:
            self._put(content, start)
        pages.watch(self.view)

    @property
    def is_container(self) -> bool:
        """Whether the text stands for a file of another format."""
        return self.layout is not None and self.layout.is_container

    def array_at(self, start: int, nbytes: int) -> tuple[str, int] | None:
        """The array that all bytes of a range are in, and where in it they start."""
        # The last array that starts here or before: no name comes after that character.
        at = bisect_right(self._starts, (start, "\U0010ffff")) - 1
        if at < 0 or nbytes == 0:
            return None
        place, name = self._starts[at]
        inside = start + nbytes <= place + self.by_name[name].nbytes
        return (name, start - place) if inside else None

    def fill(self, names: Iterable[str]) -> None:
        """Bring arrays into the file; raises CheckError."""
        arrays = [self.by_name[name] for name in names]
        self._fill((array, 0, array.chunks) for array in arrays)

    def fill_range(self, start: int, nbytes: int) -> None:
        """Bring in all chunks that have bytes of a range; raises CheckError."""
        at = max(bisect_right(self._starts, (start, "")) - 1, 0)
        end = start + nbytes
        parts = []
        while at < len(self._starts) and self._starts[at][0] < end:
            place, name = self._starts[at]
            array = self.by_name[name]
            if place + array.nbytes > start:
                first = max(start - place, 0) // array.chunk_size
                last = -(-min(end - place, array.nbytes) // array.chunk_size)
                parts.append((array, first, last))
            at += 1
        self._fill(parts)

    def _fill(self, parts: Iterable[tuple[ArrayIndex, int, int]]) -> None:
        """Bring in chunks, of each array those from a first up to, not including, a last."""
        wanted = [run for part in parts for run in self._runs(*part)]
        if not self.size or not wanted:
            return
        want_chunks(wanted)
        jobs = jobs_of(block for run in wanted for block in blocks_of(*run))
        sizes = ((last - first) * array.chunk_size for array, first, last in wanted)
        threads = worthwhile(self._threads, sum(sizes))
        with Workers((partial(self._write, job) for job in jobs), threads) as written:
            for nbytes in written:
                self._pages.advance(nbytes)

    def _runs(self, array: ArrayIndex, first: int, last: int) -> list[tuple[ArrayIndex, int, int]]:
        """The runs of chunks that were not asked for yet, and now are."""
        asked = self._filled.setdefault(array.name, bytearray(array.chunks))
        runs = []
        while (first := asked.find(0, first, last)) >= 0:
            end = asked.find(1, first, last)
            end = last if end < 0 else end
            # Before they are there: a failure ends the comparison that asks for them.
            asked[first:end] = b"\1" * (end - first)
            runs.append((array, first, end))
        return runs

    def fill_all(self) -> None:
        """Bring in everything; raises CheckError."""
        self.fill(self.by_name)

    def same_lines(self, array: ArrayIndex, other: TextFile, model: ArrayIndex) -> bool:
        """Whether an array's lines are those of another one, and so its bytes."""
        if array.payload is not None or model.payload is not None:
            # Of an array whose data stand in the text, hashes are claims.
            both = array.payload is not None and model.payload is not None
            return both and array.sha256 == model.sha256
        lines, theirs = self._lines(array), other._lines(model)
        return same_bytes(lines, theirs, self._pages.advance)

    def _lines(self, array: ArrayIndex) -> ByteView:
        last = array.chunks - 1
        end = array.starts[last] + line_count(array.size_of(last)) * LINE_TEXT
        return self.text[array.starts[0] : end]

    def _write(self, job: list[Block]) -> int:
        try:
            for block, raw in zip(job, checked_bytes(self.text, job), strict=True):
                self._put(raw, self.places[block.array.name] + block.offset)
        except TextError as error:
            raise self._damaged(error) from None
        return sum(block.nbytes for block in job)

    def _put(self, raw: Buffer, place: int) -> None:
        """Write flat bytes at a place of the file."""
        if self._file is None:
            self._memory[place : place + len(raw)] = raw
        else:
            write_at(self._file.fileno(), raw, place)

    def _layout(self) -> Layout | None:
        try:
            return checked_layout(self.text, self.index)
        except TextError as error:
            raise self._damaged(error) from None

    def _lay_out(self) -> tuple[int, list[tuple[int, bytes]]]:
        """The file's size, and what literals stand where; notes where arrays do."""
        layout = self.layout
        if layout is None or not layout.is_container:
            # The arrays of a native text stand one after another.
            layout = Layout(NATIVE_FORMAT, None, tuple(map(Extent, self.by_name)))
        sizes = {array.name: array.nbytes for array in self.by_name.values()}
        literals: list[tuple[int, bytes]] = []
        size = 0
        for start, extent in placed(layout, sizes):
            size = start + sizes.get(extent.array or "", 0) + (extent.zeros or 0)
            if extent.array is not None:
                self.places[extent.array] = start
            elif extent.hex is not None:
                literals.append((start, extent.hex))
                size += len(extent.hex)
        return size, literals

    def _damaged(self, problem: Problem | TextError) -> CheckError:
        name = self._name
        what = str(problem) if name is None else f"{name}: {problem}"
        if problem.kind == PAYLOAD_MISSING:
            return LacksPayload(what)
        if name is None:
            return CheckError(what)
        return CheckError(what, hint=f"wtxtgit verify -- {shlex.quote(name)} lists all problems")


def shared_arrays(a: TextFile, b: TextFile) -> tuple[dict[str, int], dict[str, int]]:
    """Number the contents that arrays of both texts have: of each text, array to number.

    A claim of equal hashes is believed only where the lines are equal, too:
    the same lines decode to the same bytes, whatever a text says of them.
    """
    kinds: dict[tuple[bytes, int, int], tuple[TextFile, ArrayIndex, int]] = {}
    numbered: tuple[dict[str, int], dict[str, int]] = {}, {}
    for text, numbers in zip((a, b), numbered, strict=True):
        for array in text.by_name.values():
            if not array.nbytes:
                continue
            key = (array.claim.sha256, array.nbytes, array.chunk_size)
            other, model, number = kinds.setdefault(key, (text, array, len(kinds)))
            # Hashes are claims so far, and nothing was decoded.
            if model is array or text.same_lines(array, other, model):
                numbers[array.name] = number
    # Numbers of contents that only one text has mean nothing to the other.
    both = set(numbered[0].values()) & set(numbered[1].values())
    of_a, of_b = ({name: n for name, n in numbers.items() if n in both} for numbers in numbered)
    return of_a, of_b


def checked_layout(text: ByteView, index: TextIndex) -> Layout | None:
    """The layout of a text, whose own hashes hold; raises TextError."""
    array = index.array(LAYOUT_ARRAY)
    raw = b"" if array is None else layout_bytes(text, array)
    claims = [array.claim for array in index.arrays]
    return layout_of(index.meta, index.cap, claims, raw, len(text))


def layout_bytes(text: ByteView, array: ArrayIndex) -> bytes:
    """The bytes of a text's array `_layout`, whose own hashes hold; raises TextError."""
    raw = b"".join(checked_bytes(text, blocks_of(array)))
    if sha256(raw).digest() != array.claim.sha256:
        message = f"{LAYOUT_ARRAY} does not match the sha256 of its line"
        raise TextError("array_sha256", message, array=LAYOUT_ARRAY)
    return raw


def assumed_layout(text: ByteView, index: TextIndex) -> Layout | None:
    """The layout that a container's text has if it is whole; no array is verified.

    It fits the claims of the text's arrays, which are all there. None for any other text.
    """
    if index.stop is not None or index.array(LAYOUT_ARRAY) is None:
        return None
    try:
        layout = checked_layout(text, index)
    except TextError:
        return None
    if layout is None or not layout.is_container or (layout.size or 0) > MOST_FILE:
        return None
    return layout


def file_pieces(
    text: ByteView,
    index: TextIndex,
    layout: Layout,
    *,
    threads: int | None = None,
    may_fork: bool = False,
) -> Iterator[memoryview]:
    """The bytes of the file in order; `index` and `layout` are of a verified text.

    With `may_fork` this process is one of ours, which may be copied to share the work; then each
    piece is good only until the next is asked for.
    """
    by_name = {array.name: array for array in index.arrays}

    def of_array(name: str) -> Iterator[Callable[[], Blocks]]:
        return (partial(_decoded, text, job) for job in jobs_of(blocks_of(by_name[name])))

    tasks = partial(file_tasks, layout, of_array)
    payload = sum(array.nbytes for array in index.detached_arrays)
    if may_fork and payload >= _FOR_TWO and worthwhile(threads, payload) > 1:
        from wtxtgit.io.two_processes import can_be_forked, results

        if can_be_forked():
            for blocks in results(tasks):
                yield from blocks
            return
    threads = worthwhile(threads, len(text), jobs_at_least(index.arrays))
    with Workers(tasks(), threads) as runs:
        for blocks in runs:
            yield from blocks


def array_bytes(text: ByteView, index: TextIndex, *, threads: int | None = None) -> dict[str, U1]:
    """The raw bytes of all arrays by name; `index` is of a verified text."""
    import numpy as np

    arrays = {array.name: np.empty(array.nbytes, dtype=np.uint8) for array in index.arrays}

    def fill(job: list[Block]) -> None:
        for block in job:
            place = arrays[block.array.name]
            place[block.offset : block.offset + block.nbytes] = decoded(text, block)

    jobs = jobs_of(block for array in index.arrays for block in blocks_of(array))
    threads = worthwhile(threads, len(text), jobs_at_least(index.arrays))
    with Workers((partial(fill, job) for job in jobs), threads) as filled:
        deque(filled, maxlen=0)
    return arrays


def first_bytes(text: ByteView, index: TextIndex, layout: Layout, count: int) -> bytes:
    """The first `count` bytes of the file, decoding no more than they need."""
    by_name = {array.name: array for array in index.arrays}
    head = b""
    for extent in layout.extents:
        if extent.array is None:
            head += literal(extent) or b""
        else:
            for block in blocks_of(by_name[extent.array], 0, 1):
                head += bytes(decoded(text, block)[:count])
        if len(head) >= count:
            break
    return head[:count]


def _decoded(text: ByteView, job: Sequence[Block]) -> Blocks:
    return [decoded(text, block) for block in job]
