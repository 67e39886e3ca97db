"""Bounds on repeated work that a few bytes of a hostile file can ask for.

The cache of parts that were decoded to read a tensor is bounded, too. Tensors are read one after
another and most files fit, so each part is decoded once. In a larger file parts are dropped and
decoded again, since its tensors may be listed in an order that needs another part each time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from wtxtgit.containers.cursor import fail
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView
from wtxtgit.model.tensor import ReadOptions

# How many times larger than the file its decoded content may be: weights compress a little, the
# state of an optimizer that has hardly run to a hundredth.
MOST_RATIO = 64
# A checkpoint of zeros is valid and compresses to next to nothing: so many times `max_chunk`, 4 GiB
# by default, may be decoded from a file of any size.
LEAST_CHUNKS = 4
# What a command may decode from all files, besides MOST_RATIO times their sizes, as a multiple of
# the limit for one file: two sides are compared, and read again if their values are counted.
LEAST_FILES = 4
LIMIT_KEY = "wtxtgit.decodeLimit"
"""The setting for how much a small file may decode to."""
# How often all of it may be decoded: a listing may alternate between tensors of large parts, but
# not for ever.
MAX_PASSES = 16


class Budget:
    """What may still be spent of some resource, on all parts of one file together.

    Any number of chunks may claim the same bytes, and compressed ones may claim to hold far more
    than they do: each costs little by itself. `message` and `field` are for the error about the
    part that exceeds the budget; later parts may still fit.
    """

    __slots__ = ("_field", "left", "message")

    def __init__(self, left: int, message: str, field: str) -> None:
        self.left = left
        self.message = message
        self._field = field

    def spend(self, amount: int) -> bool:
        """Spend `amount`; returns False, and spends nothing, if less is left."""
        # Nothing is spent: smaller parts after this one may still fit.
        if amount > self.left:
            return False
        self.left -= amount
        return True

    def take(self, amount: int, offset: int) -> None:
        """Spend `amount` on what stands at `offset`; raises FormatError (limit) if less is left."""
        if not self.spend(amount):
            fail(self.message, offset=offset, field=self._field, kind="limit")


def refuse_many(count: int, most: int, what: str, field: str) -> None:
    """Raise FormatError (limit) if a file would have more of something than readers accept."""
    if count > most:
        raise FormatError(f"{count} {what} are too many", kind="limit", field=field)


def refuse_long(nbytes: int, most: int, what: str, field: str) -> None:
    """Raise FormatError (limit) if a part of a file would be longer than readers accept."""
    if nbytes > most:
        raise FormatError(f"{what} of {nbytes} bytes is too long", kind="limit", field=field)


def _least_decoded(options: ReadOptions) -> int:
    configured = None if options.decoding is None else options.decoding.limit
    return LEAST_CHUNKS * options.max_chunk if configured is None else configured


def most_decoded(size: int, options: ReadOptions) -> int:
    """Return how many bytes all compressed parts of a file of `size` bytes may decode to."""
    return max(_least_decoded(options), MOST_RATIO * size)


class DecodingBudget(Budget):
    """What may still be decoded from a file of `size` bytes, and from all files of a command."""

    __slots__ = ("_options", "_size")

    def __init__(self, size: int, options: ReadOptions, field: str) -> None:
        # The setting is looked up only if something is decoded.
        super().__init__(-1, "", field)
        self._size = size
        self._options = options

    def spend(self, amount: int) -> bool:
        """Spend `amount`; returns False, and spends nothing, if less is left."""
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
    """Return a message that more would be decoded than allowed, and the setting to change."""
    return f"{what} decode to over {most} bytes; git config {LIMIT_KEY} SIZE allows more"


def grant(options: ReadOptions, size: int) -> None:
    """Raise what a command may decode by what a file of this size may decode to."""
    if options.decoding is not None:
        options.decoding.granted += MOST_RATIO * size


def spend(options: ReadOptions, amount: int) -> None:
    """Count what a command decodes; raises FormatError (limit) if it is too much."""
    decoding = options.decoding
    if decoding is None:
        return
    most = LEAST_FILES * _least_decoded(options) + decoding.granted
    if decoding.spent + amount > most:
        raise FormatError(over_limit("all files of the command", most), kind="limit")
    decoding.spent += amount


class DecodedParts:
    """A cache of recently decoded parts, of at most `options.max_chunk` bytes together.

    The total that is decoded is bounded for the file, and for the command.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._most = options.max_chunk
        self._left = MAX_PASSES * options.max_chunk
        self._size = 0
        self._distinct = 0
        self._counted: set[Hashable] = set()
        self._parts: dict[Hashable, ByteView] = {}

    def of_file(self, size: int) -> DecodedParts:
        """Extend the bounds for another file of `size` bytes, and return this cache."""
        self._left += MAX_PASSES * MOST_RATIO * size
        self._size += size
        grant(self._options, size)
        return self

    def _count(self, key: Hashable, nbytes: int) -> None:
        if key not in self._counted:
            most = most_decoded(self._size, self._options)
            if self._distinct + nbytes > most:
                raise FormatError(over_limit("compressed parts of the file", most), kind="limit")
            self._distinct += nbytes
            self._counted.add(key)
        spend(self._options, nbytes)

    def open(self, key: Hashable, nbytes: int, decode: Callable[[], ByteView]) -> ByteView:
        """Return the part with that key, of `nbytes`; it is decoded unless it is in the cache.

        Raises FormatError as `decode` does, which refuses parts over `max_chunk`.
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
            # Make room first, so that the bound holds at any time.
            left = self._most - nbytes - sum(map(len, self._parts.values()))
            while self._parts and left < 0:
                left += len(self._parts.pop(next(iter(self._parts))))
            part = decode()
        # The last entry of the dict is the one used most recently.
        self._parts[key] = part
        return part
