"""Bounds on work that a few bytes of a hostile file can ask for many times.

Parts of a file that are decoded when a tensor in them is asked for are held
within one, too: tensors are read one after another and most files fit, so each
part is decoded once. Of a larger file parts are given up and decoded again:
tensors may be listed in an order that takes another part each time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from wtxtgit.containers.cursor import fail
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView
from wtxtgit.model.tensor import ReadOptions

# What is compressed in a file may be so many times larger than the file, or `max_chunk` bytes:
# weights shrink by a part, a bomb to next to nothing.
MOST_RATIO = 256
# Times that all of it may be decoded: a listing may take tensors of large parts in turns, but not
# for ever.
MAX_PASSES = 16


class Budget:
    """What may still be spent of something, for all parts of one file together.

    Any number of chunks may claim the same bytes, and compressed ones may claim
    to hold far more than they have: each costs little alone. `message` and
    `field` are for the error of the part that is too much; parts after it may
    still fit.
    """

    __slots__ = ("_field", "_message", "left")

    def __init__(self, left: int, message: str, field: str) -> None:
        self.left = left
        self._message = message
        self._field = field

    def spend(self, amount: int) -> bool:
        """Spend `amount`; False, and nothing is spent, where less is left."""
        # Refused without being spent: smaller parts after it may still fit.
        if amount > self.left:
            return False
        self.left -= amount
        return True

    def take(self, amount: int, offset: int) -> None:
        """Spend `amount` on what stands at `offset`; raises FormatError (limit) if less is left."""
        if not self.spend(amount):
            fail(self._message, offset=offset, field=self._field, kind="limit")


def refuse_many(count: int, most: int, what: str, field: str) -> None:
    """Raise FormatError (limit) where a file would have more of something than readers take."""
    if count > most:
        raise FormatError(f"{count} {what} are too many", kind="limit", field=field)


def refuse_long(nbytes: int, most: int, what: str, field: str) -> None:
    """Raise FormatError (limit) where a part of a file would be longer than readers take."""
    if nbytes > most:
        raise FormatError(f"{what} of {nbytes} bytes is too long", kind="limit", field=field)


def most_decoded(size: int, options: ReadOptions) -> int:
    """Bytes that all compressed parts of a file of `size` bytes may have once decoded."""
    return max(options.max_chunk, MOST_RATIO * size)


class DecodedParts:
    """The parts that were decoded last, of `options.max_chunk` bytes together, one at least."""

    def __init__(self, options: ReadOptions) -> None:
        self._most = options.max_chunk
        self._left = MAX_PASSES * options.max_chunk
        self._parts: dict[Hashable, ByteView] = {}

    def of_file(self, size: int) -> DecodedParts:
        """The same, now with the parts of another file of `size` bytes among them."""
        self._left += MAX_PASSES * MOST_RATIO * size
        return self

    def open(self, key: Hashable, nbytes: int, decode: Callable[[], ByteView]) -> ByteView:
        """The part of that key, of `nbytes`, decoded if it is not held.

        Raises FormatError as `decode` does, which refuses what is over `max_chunk`.
        """
        part = self._parts.pop(key, None)
        if part is None:
            if nbytes > self._most:
                return decode()
            self._left -= nbytes
            if self._left < 0:
                raise FormatError(
                    f"compressed parts are over {self._most} bytes together, and would be "
                    "decoded over and over",
                    kind="limit",
                )
            # Room is made first, so that no more is held at any time.
            left = self._most - nbytes - sum(map(len, self._parts.values()))
            while self._parts and left < 0:
                left += len(self._parts.pop(next(iter(self._parts))))
            part = decode()
        # The last one of a dict is the one used last.
        self._parts[key] = part
        return part
