"""Bad inputs to each parser, as coverage finds them: how many were refused, and what broke."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from tests.fuzz.guided.__main__ import instrumented, is_there
from tests.fuzz.guided.running import Length, fuzz
from tests.torture.tables import Table

TRIES_A_SECOND = 10
"""Each target is fuzzed for a tenth of a second for each try."""


def run(folder: Path, tries: int, seed: int, only: Collection[str] | None) -> Table:
    """A row for each target."""
    if not is_there():
        raise SystemExit("atheris is not installed, or has no wheel here: make fuzz-deps")
    known = instrumented()
    chosen = {name: target for name, target in known.items() if not only or name in only}
    length = Length(max(1, tries // TRIES_A_SECOND), seed=seed)
    rows = []
    broken = []
    tried = taken = 0
    for outcome in fuzz(chosen, length, folder):
        tried += outcome.tried
        taken += outcome.taken
        failed = outcome.finding is not None
        rows.append(_row(f"`{outcome.name}`", outcome.tried, outcome.taken, int(failed)))
        if failed:
            broken.append(f"{outcome.name}: {outcome.kept}: {outcome.finding}")
    rows.sort()
    rows.append(_row("all", tried, taken, len(broken)))
    return Table(("reader", "inputs", "taken", "refused", "broken"), rows, broken)


def _row(name: str, tried: int, taken: int, broken: int) -> tuple[str, ...]:
    return name, f"{tried:,}", f"{taken:,}", f"{tried - taken - broken:,}", str(broken)
