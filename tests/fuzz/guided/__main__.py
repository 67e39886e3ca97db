"""`python -m tests.fuzz.guided [TARGET...] [--seconds N | --runs N]`: inputs that coverage finds.

All targets without a name, one after the other on each core. A target ends at the first input that
breaks it, which is made small and kept in `build/fuzz/found`. Once mended it belongs into
`tests/data/found`, with which the tests begin.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import os
import pkgutil
import sys
from collections.abc import Mapping
from importlib import import_module

from tests.fuzz.guided.running import Length, Outcome, fuzz
from tests.fuzz.guided.target import Target
from tests.kit.temporary import use_memory


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--runs", type=int, help="inputs for each target, instead of a time")
    parser.add_argument("--seed", type=int, default=0, help="0 is another one each time")
    given = parser.parse_args(arguments)
    if not is_there():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        print(f"no guided fuzzing: atheris is not installed, or has no wheel for Python {version}")
        return 0
    # Some write files.
    use_memory()
    known = instrumented()
    if unknown := set(given.targets) - set(known):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    chosen = {name: known[name] for name in given.targets or known}
    length = Length(given.seconds, given.runs, given.seed)
    outcomes = [_shown(one) for one in fuzz(chosen, length)]
    tried = sum(outcome.tried for outcome in outcomes)
    broken = [outcome for outcome in outcomes if outcome.finding is not None]
    print(f"{tried:,} inputs to {len(outcomes)} targets, {len(broken)} broken")
    for outcome in broken:
        print(f"\n{outcome.name}: {outcome.kept}\n{outcome.finding}")
    return 1 if broken else 0


def is_there() -> bool:
    """Whether the fuzzer is installed."""
    return importlib.util.find_spec("atheris") is not None


def instrumented() -> Mapping[str, Target]:
    """All targets, and what they fuzz so that the fuzzer sees what an input reaches."""
    import atheris

    # Left open: modules that are loaded where they are first needed are to be seen, too.
    atheris.instrument_imports(include=["wtxtgit"]).__enter__()
    # It names each module.
    with contextlib.redirect_stderr(io.StringIO()):
        from tests.fuzz.guided.targets import TARGETS
        from wtxtgit import containers

        # Most targets load some of these when they first need them, each in its own process.
        for module in pkgutil.walk_packages(containers.__path__, f"{containers.__name__}."):
            import_module(module.name)

    return TARGETS


def _shown(outcome: Outcome) -> Outcome:
    share = outcome.taken / max(1, outcome.tried)
    state = "ok" if outcome.finding is None else "BROKEN"
    print(f"{outcome.name:20} {outcome.tried:>10,} inputs {share:>5.0%} taken  {state}", flush=True)
    return outcome


if __name__ == "__main__":
    # What leaks out of a run is not this user's.
    os.umask(0o022)
    sys.exit(main(sys.argv[1:]))
