"""`python -m tests.torture [PART...] [--tries N] [--seed S] [--only NAME...] [--keep]`."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.kit.temporary import use_memory
from tests.torture.tables import keep

PARTS = {
    "kills": 300, "signals": 60, "races": 50, "faults": 300, "errors": 34, "recovery": 300,
    "inputs": 300, "snapshots": 300, "ranks": 300, "operations": 300,
}  # fmt: skip
"""Parts, and how often each of its things is tried where nothing else is asked for."""

BY_ROW = {"kills", "signals", "races", "faults", "errors", "recovery"}
"""Parts of which a row is the same whatever else runs."""


def _command(part: str, tries: int, given: argparse.Namespace) -> str:
    """What prints the table again; of most parts each row by itself."""
    options = f"{part} --tries {tries} --seed {given.seed}"
    only = given.only
    if part in BY_ROW - {"recovery"}:
        only = ["ROW"]
    if only:
        options += f" --only {' '.join(only)}"
    return f"make torture TORTURE={shlex.quote(options)}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; else all")
    parser.add_argument("--tries", type=int, help="how often; each part has its own")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", metavar="NAME", help="these things of a part alone")
    parser.add_argument("--keep", action="store_true", help="put the tables into the page")
    given = parser.parse_args(arguments)
    if given.keep and given.only and not BY_ROW.issuperset(given.parts or PARTS):
        parser.error("of these parts the page has whole tables: leave out --only or --keep")
    use_memory()
    broken = 0
    for part in given.parts or PARTS:
        run = import_module(f"tests.torture.{part}").run
        tries = given.tries or PARTS[part]
        with TemporaryDirectory(prefix="wtxtgit-torture-") as folder:
            table = run(Path(folder), tries, given.seed, given.only)
        print(f"{part}:\n\n{table.markdown()}", flush=True)
        for line in table.broken:
            print(f"broken: {line}", flush=True)
        broken += len(table.broken)
        if given.keep:
            keep(part, table, _command(part, tries, given), is_by_row=part in BY_ROW)
    return 1 if broken else 0


if __name__ == "__main__":
    # Files and settings are as everywhere, whoever runs it.
    os.umask(0o022)
    for name in [name for name in os.environ if name.startswith(("GIT_", "WTXTGIT_"))]:
        del os.environ[name]
    sys.exit(main(sys.argv[1:]))
