"""Histories: made of a seed, run in a copy of a template, and made shorter where they fail."""

from __future__ import annotations

import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.kit import LAUNCHER
from tests.torture.operations.contents import NAMES, TRACKED, changed
from tests.torture.operations.pair import CONFIG, Pair, Violation
from tests.torture.operations.steps import BRANCHES, Step

LENGTH = 25
"""Steps of a history."""
_REPLAYS = 40
"""How often one that fails is tried with fewer steps."""
_FSCK_EVERY = 10

Steps = Mapping[str, tuple[int, Step]]
Chosen = Sequence[tuple[str, int]]
"""Names of steps, and the seed of the random numbers of each."""


@dataclass
class Outcome:
    """How a history ended."""

    done: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    failed: str = ""
    at: str = ""
    log: Sequence[str] = ()


def choose(steps: Steps, seed: str, length: int = LENGTH) -> Chosen:
    rng = Random(seed)  # noqa: S311 - the same each time
    names = sorted(steps)
    weights = [steps[name][0] for name in names]
    return [(name, rng.randrange(2**32)) for name in rng.choices(names, weights, k=length)]


def play(
    template: Path,
    folder: Path,
    steps: Steps,
    then: Callable[[Pair], None] | None,
    chosen: Chosen,
) -> Outcome:
    """Run a history in a copy of the template; `then` is what holds after each step, too."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(template, folder, symlinks=True)
    pair = Pair.at(folder)
    outcome = Outcome(log=pair.log)
    try:
        pair.git("status", "--porcelain")
        for number, (name, seed) in enumerate(chosen):
            outcome.at = name
            pair.log.append(f"# {name}")
            if steps[name][1](pair, Random(seed)) is False:  # noqa: S311 - the same each time
                pair.log.pop()
                continue
            pair.check()
            if then:
                then(pair)
            outcome.done[name] += 1
            if number % _FSCK_EVERY == _FSCK_EVERY - 1:
                pair.check_objects()
        pair.check_objects()
    except Violation as error:
        outcome.failed = str(error)
    except AssertionError as error:
        outcome.failed = "".join(traceback.format_exception_only(error)).strip()
        outcome.failed += "\n" + "".join(traceback.format_tb(error.__traceback__)[-3:])
    outcome.counts = pair.counts + pair.merges.kinds
    return outcome


def shorter(run: Callable[[Chosen], Outcome], chosen: Chosen, failed: Outcome) -> Outcome:
    """Leave out steps as long as the same step fails; gives the outcome of the fewest."""
    count, size = 0, max(1, len(chosen) // 2)
    best = failed
    while size and count < _REPLAYS:
        start = 0
        while start < len(chosen) and count < _REPLAYS:
            fewer = [*chosen[:start], *chosen[start + size :]]
            outcome = run(fewer)
            count += 1
            if outcome.failed and outcome.at == failed.at:
                chosen, best = fewer, outcome
            else:
                start += size
        size //= 2
    return best


def make_template(folder: Path, prepare: Callable[[Pair], None] | None = None) -> Path:
    """Both repositories with some files, each with an empty one to push to."""
    for home in ("home", "home-plain"):
        (folder / home).mkdir(parents=True)
        (folder / home / ".gitconfig").write_text(CONFIG)
    pair = Pair.at(folder)
    for side in pair.sides:
        side.path.mkdir()
        side.git("init", "-q")
        for sample in (side.path / ".git/hooks").glob("*.sample"):
            sample.unlink()
        # Relative, for copies.
        side.git("init", "-q", "--bare", f"../{side.path.name}.git")
        side.git("remote", "add", "origin", f"../{side.path.name}.git")
    pair.filtered.run(*LAUNCHER.arguments, "install")
    pair.filtered.run(*LAUNCHER.arguments, "track", *TRACKED)
    pair.plain.write(".gitattributes", (pair.filtered.path / ".gitattributes").read_bytes())
    # A commit of their own, which nothing reverts.
    pair.git("add", "-A", ok=(0,))
    pair.git("commit", "-q", "-m", "attributes", ok=(0,))
    rng = Random(0)  # noqa: S311 - the same each time
    for name in NAMES[::2]:
        pair.write(name, changed(name, b"", rng))
    pair.git("add", "-A", ok=(0,))
    pair.git("commit", "-q", "-m", "first", ok=(0,))
    for branch in BRANCHES[1:]:
        pair.git("branch", branch, ok=(0,))
    if prepare:
        prepare(pair)
    pair.check()
    shutil.rmtree(folder / "merges")
    return folder
