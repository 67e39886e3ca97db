"""How long it takes until a command does its work, and what is imported until then."""

from __future__ import annotations

import subprocess
import time
from functools import partial
from pathlib import Path

from bench.measure import (
    PYTHON,
    WTXTGIT,
    Against,
    BenchError,
    Entrant,
    Place,
    Row,
    Sample,
    command,
    race,
)

GREETING = (
    b"0016git-filter-client\n000eversion=2\n00000015capability=clean\n0016capability=smudge\n0000"
)
NOTHING, NUMPY = "python -c pass", 'python -c "import numpy"'
SCRIPT = Path(PYTHON).with_name("wtxtgit")
_SHOWN = 12
"""Modules of a profile that are told."""

Imported = dict[str, list[tuple[str, float]]]


def starts(place: Place, runs: int) -> list[Row]:
    """A filter's first answer against `import numpy`; help against an empty program."""
    repo = place.folder("empty")
    command(place, "git", "init", "-q", repo)
    empty = Against(NOTHING, 4)
    ready = Against(NUMPY, 1.5)

    def run(name: str, argv: tuple[str | Path, ...], *against: Against) -> Entrant:
        return Entrant(name, None, against, action=partial(command, place, *argv, cwd=repo))

    def answers(name: str, argv: tuple[str | Path, ...]) -> Entrant:
        return Entrant(name, None, (ready,), action=partial(_answered, place, argv, repo))

    entrants = [
        run(NOTHING, (PYTHON, "-c", "pass")),
        run(NUMPY, (PYTHON, "-c", "import numpy"), Against(NOTHING)),
        answers("filter process ready", (*WTXTGIT, "filter-process")),
        run("wtxtgit --help", (*WTXTGIT, "--help"), empty),
        run("wtxtgit --version", (*WTXTGIT, "--version"), empty),
        run("wtxtgit status --help", (*WTXTGIT, "status", "--help"), Against(NOTHING)),
        run("wtxtgit status of no file", (*WTXTGIT, "status"), Against(NOTHING)),
        run(
            "wtxtgit hook pre-commit of no file", (*WTXTGIT, "hook", "pre-commit"), Against(NOTHING)
        ),
    ]
    if SCRIPT.exists():
        entrants += [
            answers("filter process ready, console script", (SCRIPT, "filter-process")),
            run("wtxtgit --help, console script", (SCRIPT, "--help"), empty),
            run("wtxtgit --version, console script", (SCRIPT, "--version"), empty),
        ]
    return race(entrants, runs)


def _answered(place: Place, argv: tuple[str | Path, ...], folder: Path) -> Sample:
    """The seconds until a filter's answer to git's greeting begins."""
    started = time.perf_counter()
    with subprocess.Popen(
        argv, cwd=folder, env=place.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: PT018, S101
        process.stdin.write(GREETING)
        process.stdin.flush()
        first = process.stdout.read(4)
        seconds = time.perf_counter() - started
        process.stdin.close()
        process.stdout.read()
    if first != b"0016":
        raise BenchError(f"the filter answers with {first!r}")
    return Sample(seconds)


def imports(place: Place) -> Imported:
    """The modules that take longest to import, in ms without what they import themselves."""
    repo = place.folder("empty")
    profiles = {}
    for words in (("--help",), ("status",), ("filter-process",)):
        argv = (PYTHON, "-X", "importtime", *WTXTGIT[1:], *words)
        done = subprocess.run(
            argv, cwd=repo, env=place.env, capture_output=True, check=True, input=GREETING
        )
        profiles[" ".join(("wtxtgit", *words))] = longest(done.stderr.decode())
    return profiles


def longest(profile: str) -> list[tuple[str, float]]:
    """The longest imports of what `-X importtime` printed."""
    found = []
    for line in profile.splitlines():
        own, _, rest = line.removeprefix("import time:").partition("|")
        if own.strip().isdigit():
            found.append((rest.rpartition("|")[2].strip(), int(own) / 1000))
    return sorted(found, key=lambda entry: -entry[1])[:_SHOWN]
