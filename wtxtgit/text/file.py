"""The file that a text stands for, and the arrays of a text.

`TextFile` decodes no more of a text than is asked for, into a sparse file, or into memory if it
is small. Arrays are filled in when their bytes are needed, each chunk checked against its parity,
CRC-32C and SHA-256. What only verifying the whole text proves (root, chain, signature) is not
checked here.

The other functions read texts that `verify` accepted. They decode the text again without hashing
it, which costs a fraction of the check and keeps unverified bytes from getting out.
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

from wtxtgit.errors import MENDS_STORE, CheckError, LacksPayload, TextError
from wtxtgit.io.view import Buffer, ByteView, Pages, same_bytes, view_of, write_at
from wtxtgit.io.workers import Workers, worthwhile
from wtxtgit.model.array import (
    LAYOUT_ARRAY,
    NATIVE_FORMAT,
    NO_PAYLOAD,
    PAYLOAD_DAMAGED,
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
"""No file system has files of this many bytes, but a detached text may claim them."""
# From this many bytes of payload on, forking this process is worthwhile.
_FOR_TWO = 32 * 1024 * 1024
# A file of up to this many bytes is kept in memory: creating one would take longer than filling it.
_IN_MEMORY = 1024 * 1024


class TextFile:
    """A text, and the file of its arrays; the arrays of a native text stand one after another.

    `view` is the whole file, with zeros where nothing has been asked for yet. Raises CheckError if
    the text's structure or a decoded part does not hold, or if the `payload` of a detached text
    lacks a chunk. `indexed` is the text's index, with its payload, if it is already made. Nothing
    may be asked for once `until` is closed. `name` is what messages call the text; None if the
    caller adds that.
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
        """The position of each array's bytes in the file."""
        self.size, literals = self._lay_out()
        self._starts = sorted(
            (start, name) for name, start in self.places.items() if self.by_name[name].nbytes
        )
        # For each array that was asked for, a flag for each chunk that was.
        self._filled: dict[str, bytearray] = {}
        self._file: IO[bytes] | None = None
        self._memory = memoryview(bytearray(self.size if self.size <= _IN_MEMORY else 0))
        self.view: ByteView = self._memory.toreadonly()
        if self.size > _IN_MEMORY:
            # Imported here: writing a file out in order needs no temporary file.
            import tempfile

            spool = tempfile.TemporaryFile(prefix="wtxtgit-")  # noqa: SIM115 - until closes it
            self._file = until.enter_context(spool)
            # Sparse: arrays that nobody asks for take no space on disk.
            try:
                self._file.truncate(self.size)
            except (OSError, OverflowError):
                # The size is only a claim: a detached text does not contain these bytes.
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
        """Return the array that contains a range of the file, and where in it the range starts.

        Returns None if the range is empty or lies in no single array.
        """
        # Find the last array that starts at or before `start`: no name sorts after that character.
        at = bisect_right(self._starts, (start, "\U0010ffff")) - 1
        if at < 0 or nbytes == 0:
            return None
        place, name = self._starts[at]
        inside = start + nbytes <= place + self.by_name[name].nbytes
        return (name, start - place) if inside else None

    @property
    def is_full(self) -> bool:
        """Whether everything was decoded that has bytes."""
        return all(
            all(self._filled.get(array.name, b"\0"))
            for array in self.by_name.values()
            if array.nbytes
        )

    def fill(self, names: Iterable[str]) -> None:
        """Decode arrays into the file; raises CheckError."""
        arrays = [self.by_name[name] for name in names]
        self._fill((array, 0, array.chunks) for array in arrays)

    def fill_range(self, start: int, nbytes: int) -> None:
        """Decode all chunks that have bytes in a range; raises CheckError."""
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
        """Decode chunks: of each array those from a first up to, but not including, a last."""
        runs = [run for part in parts for run in self._runs(*part)]
        if not self.size or not runs:
            return
        try:
            want_chunks(runs)
            jobs = jobs_of(block for run in runs for block in blocks_of(*run))
            sizes = ((last - first) * array.chunk_size for array, first, last in runs)
            threads = worthwhile(self._threads, sum(sizes))
            with Workers((partial(self._write, job) for job in jobs), threads) as written:
                for nbytes in written:
                    self._pages.advance(nbytes)
        except BaseException:
            # A later call must decode these chunks again, instead of returning zeros.
            for array, first, last in runs:
                self._filled[array.name][first:last] = bytes(last - first)
            raise

    def _runs(self, array: ArrayIndex, first: int, last: int) -> list[tuple[ArrayIndex, int, int]]:
        """Return the runs of chunks that were not asked for before, and mark them as asked for."""
        requested = self._filled.setdefault(array.name, bytearray(array.chunks))
        runs = []
        while (first := requested.find(0, first, last)) >= 0:
            end = requested.find(1, first, last)
            end = last if end < 0 else end
            requested[first:end] = b"\1" * (end - first)
            runs.append((array, first, end))
        return runs

    def fill_all(self) -> None:
        """Decode everything; raises CheckError."""
        self.fill(self.by_name)

    def same_lines(self, array: ArrayIndex, other: TextFile, model: ArrayIndex) -> bool:
        """Whether an array and one of another text have the same lines, and so the same bytes."""
        if array.payload is not None or model.payload is not None:
            # Chunks of a payload are found by their hashes; where the data stand in the text,
            # hashes are only claims.
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
        """Write flat bytes at position `place` of the file."""
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
        """Return the file's size and its literals with their positions; note where arrays stand."""
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
        if problem.kind == PAYLOAD_DAMAGED:
            return CheckError(what, hint=MENDS_STORE)
        if name is None:
            return CheckError(what)
        return CheckError(what, hint=f"wtxtgit verify -- {shlex.quote(name)} lists all problems")


def shared_arrays(a: TextFile, b: TextFile) -> tuple[dict[str, int], dict[str, int]]:
    """Number the contents that arrays of both texts share: for each text, array name to number.

    A claim of equal hashes is believed only if the lines are equal too: equal lines decode to equal
    bytes, whatever a text claims about them.
    """
    kinds: dict[tuple[bytes, int, int], tuple[TextFile, ArrayIndex, int]] = {}
    numbered: tuple[dict[str, int], dict[str, int]] = {}, {}
    for text, numbers in zip((a, b), numbered, strict=True):
        for array in text.by_name.values():
            if not array.nbytes:
                continue
            key = (array.claim.sha256, array.nbytes, array.chunk_size)
            other, model, number = kinds.setdefault(key, (text, array, len(kinds)))
            # So far hashes are only claims: nothing has been decoded.
            if model is array or text.same_lines(array, other, model):
                numbers[array.name] = number
    # Drop the numbers of contents that only one text has.
    both = set(numbered[0].values()) & set(numbered[1].values())
    of_a, of_b = ({name: n for name, n in numbers.items() if n in both} for numbers in numbered)
    return of_a, of_b


def checked_layout(text: ByteView, index: TextIndex) -> Layout | None:
    """Return the layout of a text after checking the hashes of `_layout`; raises TextError."""
    array = index.array(LAYOUT_ARRAY)
    raw = b"" if array is None else layout_bytes(text, array)
    claims = [array.claim for array in index.arrays]
    return layout_of(index.meta, index.cap, claims, raw, len(text))


def layout_bytes(text: ByteView, array: ArrayIndex) -> bytes:
    """Return the bytes of a text's array `_layout` after checking its hashes; raises TextError."""
    raw = b"".join(checked_bytes(text, blocks_of(array)))
    if sha256(raw).digest() != array.claim.sha256:
        message = f"{LAYOUT_ARRAY} does not match the sha256 of its line"
        raise TextError("array_sha256", message, array=LAYOUT_ARRAY)
    return raw


def assumed_layout(text: ByteView, index: TextIndex) -> Layout | None:
    """Return the layout of a container's text if the text is whole; nothing is verified.

    The layout fits the claims of the text's arrays, which all exist. Returns None for other texts.
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
    """Yield the bytes of the file in order; `index` and `layout` are those of a verified text.

    With `may_fork`, for processes of our own, this process may be forked to share the work; then
    each piece is valid only until the next one is asked for.
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
    """Return the raw bytes of all arrays by name; `index` is that of a verified text."""
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
    """Return the first `count` bytes of the file, decoding no more than they need."""
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
