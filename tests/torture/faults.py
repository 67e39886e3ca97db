"""Each command is tried where the system lacks something: memory, threads, room, rights."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.faults.trials import FAULTS, Trials
from tests.faults.world import COMMANDS
from tests.kit.starts import served
from tests.torture.tables import Table

_OUTCOMES = ("as usual", "refused", "left as text", "found")


def run(folder: Path, tries: int, seed: int, only: Sequence[str] | None = None) -> Table:
    """Try so many commands, or all that there are, under each fault; gives a row a fault."""
    rows: list[Sequence[str]] = []
    broken: list[str] = []
    with served():
        trials = Trials(folder)
        for fault in FAULTS:
            if only and fault not in only:
                continue
            chosen = random.Random(f"{seed} {fault}")  # noqa: S311 - the same each time
            names = chosen.sample(sorted(COMMANDS), min(tries, len(COMMANDS)))
            counts: Counter[str] = Counter()
            for name in names:
                try:
                    counts[trials.run(name, fault)] += 1
                except AssertionError as error:
                    counts["wrong"] += 1
                    broken.append(f"{name}, {fault}: {error}")
            told = [counts[outcome] for outcome in (*_OUTCOMES, "wrong")]
            rows.append((fault, str(len(names)), *map(str, told)))
            # It takes long: who waits sees how far it is.
            print(*rows[-1], *broken[len(broken) - counts["wrong"] :], sep="\n  ", file=sys.stderr)
    return Table(("fault", "commands", *_OUTCOMES, "anything else"), rows, broken)
