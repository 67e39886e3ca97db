"""Bounded reads from a buffer: a failed read names the field and the position.

How much is read is bounded, too: each thing that a file lists becomes objects in memory, so the
file's size bounds them all. How much each thing counts is part of the format's rules: a file that
lists more is opaque, for every reader. Counts are upper bounds for the memory of CPython's objects,
and are compared with the size twice: for what is read from a file, and for what its text would be
made of. Spec: `docs/spec/containers.md`, "What a file lists"
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any, Literal, NoReturn

from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView, mapped

# Text is decoded in steps of this many bytes: a wrong length, read from a tensor's bytes, may be
# gigabytes.
TEXT_STEP = 1 << 16
LEAST = 32 * 2**20
"""The budget of a file of any size."""
BYTE = 2
"""What each byte of a file adds to the budget."""
ITEM = 700
"""Cost of a tensor, a chunk or a member: whatever may become a range of the file."""
LETTER = 4
"""Cost of a byte of an item's name and dtype in UTF-8."""
ARRAY = 1500
"""Cost of an array of the text, with its extent."""
EXTENT = 250
"""Cost of an extent without an array."""
SPELLED = 8
"""Cost of a byte of an array's name and dtype, which layout and text spell again."""
VALUE = 100
"""Cost of a value among others, and of a dimension."""
CONTAINER = 250
"""Cost of a list or an object; and of a key."""
TEXT = 2
"""Cost of a byte to be parsed: it is decoded, and becomes part of values."""
# An error quotes at most this many characters of a name: a name may be as long as the file.
MAX_QUOTED = 60


def quoted(name: str) -> str:
    """Return a name from the input as error messages show it."""
    return ascii(name if len(name) <= MAX_QUOTED else name[:MAX_QUOTED] + "...")


def fail(
    message: str, *, offset: int, field: str, kind: str = "structure", needs: int | None = None
) -> NoReturn:
    """Raise a FormatError whose message ends with the offset."""
    message = f"{message} at byte {offset}"
    raise FormatError(message, kind=kind, offset=offset, field=field, needs=needs)


def check_inside(start: int, length: int, size: int, field: str, at: int | None = None) -> None:
    """Raise FormatError unless [start, start + length) lies within `size` bytes.

    An empty range refers to nothing, so its start is not checked. `at` is the offset for the error
    if `start` is not an offset in the file.
    """
    if length < 0 or (length > 0 and (start < 0 or start + length > size)):
        raise FormatError(
            f"{field} of {length} bytes at byte {start} reaches outside of {size} bytes",
            offset=start if at is None else at,
            field=field,
            needs=start + max(length, 0),
        )


def unpack_at(layout: Struct, data: ByteView, offset: int) -> tuple[Any, ...]:
    """Return the fields of a record that is known to lie inside the data."""
    if isinstance(data, memoryview):
        return layout.unpack_from(data, offset)
    return layout.unpack(mapped(data[offset : offset + layout.size]))


def decoded(data: ByteView, start: int, end: int, field: str) -> Iterator[str]:
    """Yield the text data[start:end], TEXT_STEP bytes at a time; raises FormatError.

    A wrong length may be gigabytes, but bytes that are not text mostly show it at their beginning.
    """
    decoder = getincrementaldecoder("utf-8")()
    for pos in range(start, end, TEXT_STEP):
        stop = min(pos + TEXT_STEP, end)
        begun = len(decoder.getstate()[0])
        try:
            yield decoder.decode(mapped(data[pos:stop]), stop == end)
        except UnicodeDecodeError as error:
            fail(f"{field} is not UTF-8", offset=pos - begun + error.start, field=field)


class Cursor:
    """A position in a buffer that moves with each read.

    Before every read it is checked that there are enough bytes; if not, FormatError is raised with
    the position and the field's name.
    """

    __slots__ = ("data", "order", "pos", "size")

    def __init__(
        self, data: ByteView, pos: int = 0, *, order: Literal["little", "big"] = "little"
    ) -> None:
        self.data = data
        self.pos = pos
        self.size = len(data)
        self.order: Literal["little", "big"] = order

    @property
    def remaining(self) -> int:
        return max(self.size - self.pos, 0)

    def skip(self, count: int, field: str) -> int:
        """Move forward by `count` bytes; returns the position before."""
        start = self.pos
        if count < 0:
            fail(f"{field} has a negative length, {count}", offset=start, field=field)
        if count > self.size - start:
            fail(f"{field} is cut short", offset=start, field=field, needs=start + count)
        self.pos = start + count
        return start

    def take(self, count: int, field: str) -> ByteView:
        start = self.skip(count, field)
        return self.data[start : self.pos]

    def integer(self, width: int, field: str, *, signed: bool = False) -> int:
        return int.from_bytes(self.take(width, field), self.order, signed=signed)

    def text(self, count: int, field: str) -> str:
        """Read `count` bytes of strict UTF-8."""
        start = self.skip(count, field)
        steps = decoded(self.data, start, self.pos, field)
        try:
            # Not in steps: files have millions of names, and each would take five times as long.
            return (
                bytes(self.data[start : self.pos]).decode()
                if count <= TEXT_STEP
                else "".join(steps)
            )
        except UnicodeDecodeError:
            return "".join(steps)

    def record(self, layout: Struct, field: str) -> tuple[Any, ...]:
        """Read the fields of a fixed record; the layout states its own byte order."""
        return unpack_at(layout, self.data, self.skip(layout.size, field))


class ListingBudget:
    """What may still be listed from a file of `size` bytes, or from all files of a set together.

    If several `files` are open at a time, each gets a share of what one file may list.
    """

    __slots__ = ("_size", "_whose", "left")

    def __init__(self, size: int, *, files: int = 1) -> None:
        self._size = size
        self._whose = "a file"
        self.left = LEAST // files + BYTE * size

    def count(self, amount: int, offset: int, field: str) -> None:
        """Count what `field` lists at `offset`; raises FormatError (limit) if it is too much."""
        self.left -= amount
        if self.left < 0:
            fail(
                f"{field} lists more items than are allowed in {self._whose} of {self._size} bytes",
                offset=offset,
                field=field,
                kind="limit",
            )

    def apart(self) -> ListingBudget:
        """Return a copy of the budget, for temporary objects that count only while they exist."""
        listing = ListingBudget(self._size)
        listing.left = self.left
        return listing

    def of_file(self, size: int) -> ListingBudget:
        """Extend the budget for another file of a set, of `size` bytes, and return it."""
        self._size += size
        self._whose = "a set"
        self.left += BYTE * size
        return self

    def item(
        self, words: Iterable[str], offset: int, field: str, *, rank: int = 0, times: int = 1
    ) -> None:
        """Count `times` items that share one name and dtype (`words`), and a shape of `rank`.

        Words and shape count once.
        """
        self.count(ITEM * times + LETTER * letters(words) + VALUE * rank, offset, field)


def letters(words: Iterable[str]) -> int:
    """Return the size of words in UTF-8."""
    # ASCII, as most names are, need not be encoded.
    return sum(len(word) if word.isascii() else _nbytes(word) for word in words)


def _nbytes(word: str) -> int:
    return len(word.encode("utf-8", "surrogatepass"))
