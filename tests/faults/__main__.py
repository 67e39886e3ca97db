"""Tries commands under faults of the system, and counts the outcomes: `python -m tests.faults`.

An argument is a number of trials, chosen by chance in the same way each time; without one each
command is tried under each fault. Exit code 1 where one of them did something else than it may.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.faults.trials import FAULTS, Trials, chosen
from tests.kit.starts import served


def main() -> int:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else None
    counts: Counter[tuple[str, str]] = Counter()
    with TemporaryDirectory(prefix="wtxtgit-faults-") as folder, served():
        trials = Trials(Path(folder))
        for name, fault in chosen(most):
            try:
                counts[fault, trials.run(name, fault)] += 1
            except AssertionError as error:
                counts[fault, "wrong"] += 1
                print(error, file=sys.stderr)
    outcomes = sorted({outcome for _, outcome in counts})
    print(f"{'fault':36}", *(f"{outcome:>14}" for outcome in outcomes))
    for fault in FAULTS:
        print(f"{fault:36}", *(f"{counts[fault, outcome]:14}" for outcome in outcomes))
    return 1 if "wrong" in outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
