"""Names of arrays: any string made a name that a text can hold."""

from __future__ import annotations

import re

_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_]")


class ArrayNames:
    """One namespace of array names, handed out in order.

    `docs/spec/wtxt.md`, section "Array names": characters outside
    `A-Za-z0-9_` become `_`, `t` goes before a name that is empty or starts
    with `_`, and `__n` after one that is taken.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    @staticmethod
    def plain(name: str) -> str:
        """`name` made an array name, not yet numbered."""
        made = _NOT_A_NAME.sub("_", name)
        return f"t{made}" if not made or made.startswith("_") else made

    def for_name(self, name: str) -> str:
        """The array name of a tensor or part called `name`."""
        return self.for_role(self.plain(name))

    def for_role(self, role: str) -> str:
        """`role`, numbered where it is taken."""
        made, n = role, self._next.get(role, 2)
        while made in self._taken:
            made, n = f"{role}__{n}", n + 1
        # Names are only ever added, so the smallest free number never falls.
        self._next[role] = n
        self._taken.add(made)
        return made
