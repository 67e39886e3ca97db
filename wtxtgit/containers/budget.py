"""Bounds on work that a few bytes of a hostile file can ask for many times."""

from __future__ import annotations

from wtxtgit.containers.cursor import fail


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

    def take(self, amount: int, offset: int) -> None:
        """Spend `amount` on what stands at `offset`; raises FormatError (limit) if it is not left.

        What is refused is not spent.
        """
        if amount > self.left:
            fail(self._message, offset=offset, field=self._field, kind="limit")
        self.left -= amount
