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

# What is compressed in a file may be so many times larger than the file: weights shrink by a part,
# optimizers that have hardly run to a hundredth.
MOST_RATIO = 64
# A checkpoint of zeros is legal and shrinks to next to nothing: so many times `max_chunk`, 4 GiB
# unless that is told otherwise, may be decoded of a file of any size.
LEAST_CHUNKS = 4
# What a command may decode of all its files, beside MOST_RATIO of their sizes, in times of what one
# may: two sides are compared, and read a second time where their values are counted.
LEAST_FILES = 4
LIMIT_KEY = "wtxtgit.decodeLimit"
"""The setting for what a small file may decode to."""
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

    __slots__ = ("_field", "left", "message")

    def __init__(self, left: int, message: str, field: str) -> None:
        self.left = left
        self.message = message
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
            fail(self.message, offset=offset, field=self._field, kind="limit")


def refuse_many(count: int, most: int, what: str, field: str) -> None:
    """Raise FormatError (limit) where a file would have more of something than readers take."""
    if count > most:
        raise FormatError(f"{count} {what} are too many", kind="limit", field=field)


def refuse_long(nbytes: int, most: int, what: str, field: str) -> None:
    """Raise FormatError (limit) where a part of a file would be longer than readers take."""
    if nbytes > most:
        raise FormatError(f"{what} of {nbytes} bytes is too long", kind="limit", field=field)


def _least_decoded(options: ReadOptions) -> int:
    configured = None if options.decoding is None else options.decoding.limit
    return LEAST_CHUNKS * options.max_chunk if configured is None else configured


def most_decoded(size: int, options: ReadOptions) -> int:
    """Bytes that all compressed parts of a file of `size` bytes may have once decoded."""
    return max(_least_decoded(options), MOST_RATIO * size)


class DecodingBudget(Budget):
    """What may still be decoded of a file of `size` bytes, and of all files of a command."""

    __slots__ = ("_options", "_size")

    def __init__(self, size: int, options: ReadOptions, field: str) -> None:
        # Only where something is decoded does a setting have to be looked up.
        super().__init__(-1, "", field)
        self._size = size
        self._options = options

    def spend(self, amount: int) -> bool:
        """Spend `amount`; False, and nothing is spent, where less is left."""
        if self.left < 0:
            self.left = most_decoded(self._size, self._options)
            self.message = over_limit("compressed parts of the file", self.left)
            grant(self._options, self._size)
        if amount > self.left:
            return False
        try:
            spend(self._options, amount)
        except FormatError as error:
            self.message = error.message
            return False
        return super().spend(amount)


def over_limit(what: str, most: int) -> str:
    """Words on more than may be decoded, with the setting that allows more."""
    return f"{what} decode to over {most} bytes; git config {LIMIT_KEY} SIZE allows more"


def grant(options: ReadOptions, size: int) -> None:
    """Let a command decode what a file of this size may be expected to hold."""
    if options.decoding is not None:
        options.decoding.granted += MOST_RATIO * size


def spend(options: ReadOptions, amount: int) -> None:
    """Count what a command decodes; raises FormatError (limit) where that is too much."""
    decoding = options.decoding
    if decoding is None:
        return
    most = LEAST_FILES * _least_decoded(options) + decoding.granted
    if decoding.spent + amount > most:
        raise FormatError(over_limit("all files of the command", most), kind="limit")
    decoding.spent += amount


class DecodedParts:
    """The parts that were decoded last, of `options.max_chunk` bytes together, one at least.

    Those that are decoded have a bound together, too, and so has a command.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._most = options.max_chunk
        self._left = MAX_PASSES * options.max_chunk
        self._size = 0
        self._distinct = 0
        self._seen: set[Hashable] = set()
        self._parts: dict[Hashable, ByteView] = {}

    def of_file(self, size: int) -> DecodedParts:
        """The same, now with the parts of another file of `size` bytes among them."""
        self._left += MAX_PASSES * MOST_RATIO * size
        self._size += size
        grant(self._options, size)
        return self

    def _count(self, key: Hashable, nbytes: int) -> None:
        if key not in self._seen:
            most = most_decoded(self._size, self._options)
            if self._distinct + nbytes > most:
                raise FormatError(over_limit("compressed parts of the file", most), kind="limit")
            self._distinct += nbytes
            self._seen.add(key)
        spend(self._options, nbytes)

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
                    f"compressed parts take over {self._most} bytes in total, so they would have "
                    "to be decoded again and again",
                    kind="limit",
                )
            self._count(key, nbytes)
            # Room is made first, so that no more is held at any time.
            left = self._most - nbytes - sum(map(len, self._parts.values()))
            while self._parts and left < 0:
                left += len(self._parts.pop(next(iter(self._parts))))
            part = decode()
        # The last one of a dict is the one used last.
        self._parts[key] = part
        return part
