"""Commands that write are interrupted twice at random moments, as impatient people do."""

from __future__ import annotations

import random
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.kit.fork_server import import_all
from tests.torture.cases import CASES
from tests.torture.cases.places import Place
from tests.torture.kills import reference_of, wrong, wrong_again
from tests.torture.processes import adopt_orphans, run_forked
from tests.torture.tables import Table

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run(folder: Path, tries: int, seed: int, only: Sequence[str] | None = None) -> Table:
    """Interrupt each command so often; gives a row a command."""
    adopt_orphans()
    # In the one process from which all are forked.
    import_all()

    rows: list[Sequence[str]] = []
    broken: list[str] = []
    for case in CASES:
        # Of a git command the terminal's signals go to git as well.
        if case.is_git or (only and case.name not in only):
            continue
        chosen = random.Random(f"{seed} {case.name}")  # noqa: S311 - the same each time
        reference = reference_of(case, folder / str(len(rows)), folder / "try")
        ended, found = 0, []
        for _ in range(tries):
            number, seconds = chosen.choice(_SIGNALS), chosen.uniform(0, reference.ended.seconds)
            place = Place(folder / "try")
            shutil.copytree(reference.start.top, place.top, symlinks=True)
            outcome = run_forked(
                case.command, place.repo, place.env, seconds=seconds, signals=(number, number)
            )
            ended += outcome.code == case.code
            what = f"{case.name}, {number.name} twice at {seconds:.4f} s: "
            if outcome.code not in (case.code, 128 + number, -number):
                found.append(f"{what}ended with {outcome.code}")
            # Unlike what is killed, it takes back what it was at.
            aside = place.repo / ".git/wtxtgit/tmp"
            left = [*aside.rglob("*"), *place.repo.rglob("*.lock")]
            found += [f"{what}{one.relative_to(place.repo)} is left" for one in left]
            each = list(wrong(reference, place)) or list(wrong_again(reference, place))
            found += [what + one for one in each]
            shutil.rmtree(place.top)
        broken += found
        rows.append((f"`{case.name}`", str(tries), f"{ended / tries:.0%}", str(len(found))))
        print(*rows[-1], *found, sep="\n  ", file=sys.stderr, flush=True)
        shutil.rmtree(reference.start.top.parent)
    return Table(("command", "tries", "run had ended", "violations"), rows, broken)
