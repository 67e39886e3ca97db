"""The file that a text stands for, of which no more is decoded than is asked for.

It is a file with holes, or as much memory where it is small: arrays come into
it when their bytes are needed, each chunk checked against its parity, CRC-32C
and SHA-256. What only verification of the whole text proves (root, chain,
signature) is not checked here.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from hashlib import sha256
from typing import IO

from wtxtgit.errors import CheckError, TextError
from wtxtgit.io.mapping import view_of
from wtxtgit.io.read_once import Pages
from wtxtgit.io.view import Buffer, ByteView
from wtxtgit.io.workers import Pool
from wtxtgit.io.writing import write_at
from wtxtgit.model import LAYOUT_ARRAY, Layout, Problem
from wtxtgit.text.armor import line_count
from wtxtgit.text.blocks import Block, blocks_of, check, jobs_of
from wtxtgit.text.grammar import LINE_TEXT
from wtxtgit.text.index import ArrayIndex, index
from wtxtgit.text.layout import check_layout, parse_layout

_IN_MEMORY = 1024 * 1024
"""Bytes of a file up to which it stays in memory: making one takes longer than filling it."""


class TextFile:
    """A text, and the file of its arrays: those of a native text one after another.

    `view` is the whole file, zeros where nothing was asked for yet. Raises
    CheckError where the text's structure or what is decoded of it does not hold.
    Nothing is to be asked for any more when `until` is closed.
    """

    def __init__(
        self,
        name: str,
        text: ByteView,
        pages: Pages,
        threads: int | None,
        until: ExitStack,
    ) -> None:
        self.name = name
        self.text = text
        self._pages = pages
        self._threads = threads
        pages.watch(text)
        self.index = index(text, pages.passed)
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
        self._filled: set[str] = set()
        self._file: IO[bytes] | None = None
        self._memory = memoryview(bytearray(self.size if self.size <= _IN_MEMORY else 0))
        self.view: ByteView = self._memory.toreadonly()
        if self.size > _IN_MEMORY:
            spool = tempfile.TemporaryFile(prefix="wtxtgit-")  # noqa: SIM115 - until closes it
            self._file = until.enter_context(spool)
            self._file.truncate(self.size)
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
        at = bisect_right(self._starts, (start, "\U0010ffff")) - 1
        if at < 0 or nbytes == 0:
            return None
        place, name = self._starts[at]
        inside = start + nbytes <= place + self.by_name[name].nbytes
        return (name, start - place) if inside else None

    def fill(self, names: Iterable[str]) -> None:
        """Bring arrays into the file; raises CheckError."""
        wanted = [self.by_name[n] for n in names if n not in self._filled]
        self._filled.update(array.name for array in wanted)
        if not self.size or not wanted:
            return
        jobs = jobs_of(block for array in wanted for block in blocks_of(array))
        with Pool(self._threads, sum(array.nbytes for array in wanted), 1) as pool:
            for done in pool.ordered(partial(self._write, job) for job in jobs):
                self._pages.advance(done)

    def fill_range(self, start: int, nbytes: int) -> None:
        """Bring in all arrays that have bytes of a range; raises CheckError."""
        at = max(bisect_right(self._starts, (start, "")) - 1, 0)
        names = []
        while at < len(self._starts) and self._starts[at][0] < start + nbytes:
            place, name = self._starts[at]
            if place + self.by_name[name].nbytes > start:
                names.append(name)
            at += 1
        self.fill(names)

    def fill_all(self) -> None:
        """Bring in everything; raises CheckError."""
        self.fill(self.by_name)

    def same_lines(self, array: ArrayIndex, other: TextFile, model: ArrayIndex) -> bool:
        """Whether an array's lines are those of another one, and so its bytes."""
        lines, theirs = self._lines(array), other._lines(model)
        return len(lines) == len(theirs) and self._pages.equal(lines, theirs)

    def _lines(self, array: ArrayIndex) -> ByteView:
        last = array.chunks - 1
        end = array.starts[last] + line_count(array.size_of(last)) * LINE_TEXT
        return self.text[array.starts[0] : end]

    def _write(self, job: list[Block]) -> int:
        done = 0
        for block in job:
            raw = self._checked(block)
            self._put(raw, self.places[block.array.name] + block.offset)
            done += raw.nbytes
        return done

    def _put(self, raw: Buffer, place: int) -> None:
        """Write flat bytes at a place of the file."""
        if self._file is None:
            self._memory[place : place + len(raw)] = raw
        else:
            write_at(self._file.fileno(), raw, place)

    def _checked(self, block: Block) -> memoryview:
        checked = check(self.text, block)
        for problem in checked.problems:
            raise self._damaged(problem)
        if checked.raw is None:
            raise self._damaged(Problem("structure", "a chunk can't be read"))
        return checked.raw

    def _layout(self) -> Layout | None:
        array = self.index.array(LAYOUT_ARRAY)
        if array is None:
            return None
        raw = b"".join(bytes(self._checked(block)) for block in blocks_of(array))
        try:
            if sha256(raw).digest() != array.claim.sha256:
                raise TextError("array_sha256", "_layout does not have the sha256 of its line")
            layout = parse_layout(raw)
            claims = [a.claim for a in self.index.arrays]
            check_layout(layout, self.index.meta, self.index.cap, claims)
        except TextError as error:
            raise self._damaged(Problem(error.kind, error.message, array=error.array)) from None
        return layout

    def _lay_out(self) -> tuple[int, list[tuple[int, bytes]]]:
        """The file's size, and what literals stand where; notes where arrays do."""
        place = 0
        literals: list[tuple[int, bytes]] = []
        if not self.is_container or self.layout is None:
            for array in self.by_name.values():
                self.places[array.name] = place
                place += array.nbytes
            return place, literals
        for extent in self.layout.extents:
            if extent.array is not None:
                self.places[extent.array] = place
                place += self.by_name[extent.array].nbytes
            elif extent.hex is not None:
                literals.append((place, extent.hex))
                place += len(extent.hex)
            else:
                place += extent.zeros or 0
        return place, literals

    def _damaged(self, problem: Problem) -> CheckError:
        return CheckError(
            f"{self.name}: {problem}",
            hint=f"wtxtgit verify lists all that is wrong with {self.name}",
        )


def shared_arrays(a: TextFile, b: TextFile) -> dict[tuple[str, str], int]:
    """Number the contents that arrays of both texts have: ("a" or "b", array) to number.

    A claim of equal hashes is believed only where the lines are equal, too:
    the same lines decode to the same bytes, whatever a text says of them.
    """
    kinds: dict[tuple[bytes, int, int], tuple[TextFile, ArrayIndex, int]] = {}
    sides: dict[int, set[str]] = {}
    numbered: dict[tuple[str, str], int] = {}
    for side, text in (("a", a), ("b", b)):
        for array in text.by_name.values():
            if not array.nbytes:
                continue
            key = (array.claim.sha256, array.nbytes, array.chunk_size)
            other, model, number = kinds.setdefault(key, (text, array, len(kinds)))
            if model is array or text.same_lines(array, other, model):
                numbered[side, array.name] = number
                sides.setdefault(number, set()).add(side)
    return {key: number for key, number in numbered.items() if len(sides[number]) == 2}
