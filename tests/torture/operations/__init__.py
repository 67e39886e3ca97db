"""Random histories of git operations, with plain git on the raw bytes beside it.

After each operation work trees, status, index and HEAD are held against each other. What fails is
tried again with fewer steps, and told as the commands that are needed for it.

Steps are dropped here, not by Hypothesis: to try a step costs a tenth of a second of git, a
history is longer than what its state machines are made for, and how many steps ran is a figure of
its own.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.kit.starts import served
from tests.torture.operations import bypasses, sealed, steps_elsewhere
from tests.torture.operations.histories import Outcome, choose, make_template, play, shorter
from tests.torture.tables import Table

KINDS = {
    "plain": (steps_elsewhere.STEPS, None, None),
    "sealed": (bypasses.SEALED, sealed.prepare, sealed.audit),
}
"""Kinds of histories: their steps, what is prepared, and what has to hold after each step."""


def run(folder: Path, tries: int, seed: int, only: Sequence[str] | None = None) -> Table:
    """Run so many histories; gives a row for each kind of operation.

    `only` are names of operations, or `history=N`: that one alone.
    """
    for name in [name for name in os.environ if name.startswith(("GIT_", "WTXTGIT_"))]:
        del os.environ[name]
    os.environ |= {
        "GIT_CONFIG_NOSYSTEM": "1", "GIT_ATTR_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0",
        "GIT_EDITOR": "true", "OPENBLAS_NUM_THREADS": "1", "WTXTGIT_THREADS": "1",
    }  # fmt: skip
    chosen_names = [name for name in only or () if "=" not in name]
    numbers = [int(name.partition("=")[2]) for name in only or () if "=" in name] or range(tries)
    total = Outcome()
    wrong: Counter[str] = Counter()
    broken: list[str] = []
    with served():
        for kind, (steps, prepare, then) in KINDS.items():
            taken = {name: steps[name] for name in steps if name in (chosen_names or steps)}
            if not taken:
                continue
            template = make_template(folder / kind, prepare)
            attempt = partial(play, template, folder / "try", taken, then)
            for number in numbers:
                chosen = choose(taken, f"{kind} {seed} {number}")
                outcome = attempt(chosen)
                total.done += outcome.done
                total.counts += outcome.counts
                if outcome.failed:
                    least = shorter(attempt, chosen, outcome)
                    wrong[outcome.at] += 1
                    script = "\n    ".join(least.log)
                    told = f"{kind} history {number} of seed {seed}: {least.failed}\n    {script}"
                    broken.append(told)
                    print(told, file=sys.stderr, flush=True)
    done = total.done
    rows = [(name, str(done[name]), str(wrong[name])) for name in sorted({*done, *wrong})]
    rows.append(("all", str(done.total()), str(wrong.total())))
    rows += [(name, str(count), "") for name, count in sorted(total.counts.items())]
    return Table(("operation", "run", "violations"), rows, broken)
