"""What a target of guided fuzzing is, and the bounds that each of its inputs has to keep."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import process_time

from tests.data import DATA
from tests.fuzz.container_oracle import BASE, HANGS, peak_of
from tests.fuzz.oracle import KINDS
from wtxtgit.errors import TextError, WtxtgitError

FOUND = DATA / "found"
"""Inputs that once broke something, a folder for each target."""
LONGEST = 8192
FACTOR = 100
"""Memory is bounded by BASE, and FACTOR times the input: a byte of MessagePack can be a map."""

Mutate = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Target:
    """A parser, its seeds, and what holds for all input.

    `hold` raises where something does not hold, and says whether the input was taken, not
    refused. `mutate` is a mutation that knows the format, beside those of the fuzzer. Where a
    number of inputs is asked for, it gets a `fewer`th of that: each takes so much longer.
    """

    seeds: Callable[[], Iterable[bytes]]
    hold: Callable[[bytes], bool]
    mutate: Mutate | None = None
    longest: int = LONGEST
    fewer: int = 1

    def inputs(self) -> list[bytes]:
        """The seeds that are short enough; never none."""
        found = list(dict.fromkeys(one for one in self.seeds() if len(one) <= self.longest))
        assert found
        return found

    def hold_in_time(self, data: bytes) -> bool:
        started = process_time()
        taken = self.hold(data)
        assert process_time() - started < HANGS
        return taken

    def hold_in_memory(self, data: bytes) -> bool:
        """The same, in memory that the input's size bounds; what is loaded first counts not."""
        taken = self.hold(data)
        assert peak_of(lambda: self.hold(data)) < BASE + FACTOR * len(data)
        return taken


def refused(refusal: WtxtgitError) -> bool:
    """That input was not taken, for a reason that is told and is one of the documented."""
    assert refusal.message
    assert not isinstance(refusal, TextError) or refusal.kind in KINDS
    return False


def found(name: str) -> list[bytes]:
    """The inputs that once broke something of a target."""
    return [path.read_bytes() for path in sorted((FOUND / name).glob("*"))]
