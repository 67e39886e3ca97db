"""Commands that send, fetch and drop payload, on a disk that is full or has a bad sector.

One of the calls that change files fails, in wtxtgit, in git or in git at the remote: with EIO that
one, with ENOSPC all after it that need space. A command that ends well has done all. Else, as after
a kill, nothing is lost, and the same command run again ends as if nothing had failed.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.kit.starts import compiled
from tests.torture.cases.payload import PAYLOAD
from tests.torture.cases.places import REMOTE, Killed, Place
from tests.torture.kills import Reference, reference_of, wrong, wrong_again
from tests.torture.processes import adopt_orphans, wait_for_orphans
from tests.torture.tables import Table

FAILING = "WTXTGIT_TEST_FAILING"
CASES = [case for case in PAYLOAD if case.name.split(":")[0] in ("push", "fetch", "git push")]
CASES += [case for case in PAYLOAD if case.name.startswith("store prune")]
_PROGRAM = (sys.executable, "-E", "-s", "-P", "-B", "-m", "wtxtgit")
_KINDS = ("ENOSPC", "EIO")


def library() -> Path | None:
    """What makes calls fail; None where there is no C compiler."""
    source = Path(__file__).parents[1] / "kit/failing.c"
    return compiled(source, ("-shared", "-fPIC"), ("-shared", "-fPIC", "-ldl"))


def run(folder: Path, tries: int, seed: int, only: Sequence[str] | None = None) -> Table:
    """Have each command fail so often; gives a row a command."""
    preloaded = library()
    assert preloaded is not None, "there is no C compiler"
    adopt_orphans()
    rows: list[tuple[str, ...]] = []
    broken: list[str] = []
    for case in CASES:
        if only and case.name not in only:
            continue
        reference = reference_of(case, folder / str(len(rows)), folder / "try")
        chosen = random.Random(f"{seed} {case.name}")  # noqa: S311 - the same each time
        place = _copied(reference, folder / "try")
        calls, code, _ = _run(case, place, preloaded, 0, 0)
        assert code == case.code, (case.name, code)
        shutil.rmtree(place.top)
        ended = 0
        found: list[str] = []
        for number in range(tries):
            kind, at = _KINDS[number % 2], chosen.randint(1, calls)
            place = _copied(reference, folder / "try")
            _, code, said = _run(case, place, preloaded, at, getattr(errno, kind))
            ended += code == case.code
            what = f"{case.name}, {kind} at {at} of {calls}"
            found += [f"{what}: {one}" for one in _wrong(reference, place, code, said)]
            shutil.rmtree(place.top)
        broken += found
        count = str(len(found))
        rows.append((f"`{case.name}`", str(tries), str(calls), f"{ended / tries:.0%}", count))
        # It takes long: who waits sees how far it is.
        print(*rows[-1], *found, sep="\n  ", file=sys.stderr, flush=True)
        shutil.rmtree(reference.start.top.parent)
    head = ("command", "tries", "calls", "ended well all the same", "violations")
    return Table(head, rows, broken)


def _copied(reference: Reference, folder: Path) -> Place:
    place = Place(folder)
    shutil.copytree(reference.start.top, place.top, symlinks=True)
    return place


def _run(case: Killed, place: Place, preloaded: Path, at: int, kind: int) -> tuple[int, int, str]:
    """Run a command; gives how many calls were made, its exit code and what it said."""
    counted = place.top / "count"
    counted.write_bytes(bytes(8))
    program = ("git",) if case.is_git else _PROGRAM
    more = {"LD_PRELOAD": str(preloaded), FAILING: f"{counted} {at} {kind}"}
    env = {**os.environ, **place.env, **more}
    command = [*program, *case.command]
    done = subprocess.run(command, cwd=place.repo, env=env, capture_output=True, check=False)
    wait_for_orphans()
    calls = int.from_bytes(counted.read_bytes(), sys.byteorder)
    counted.unlink()
    return calls, done.returncode, done.stderr.decode("utf-8", "replace")


def _wrong(reference: Reference, place: Place, code: int, said: str) -> Iterator[str]:
    for word in ("Traceback", "this is a bug"):
        if word in said:
            yield f"it says {said!r}"
    found = list(wrong(reference, place))
    if (place.top / REMOTE).is_dir():
        # Of what it could not move out of its quarantine git leaves a part that no ref leads to.
        found = [one for one in found if REMOTE not in one]
        listed = ("rev-list", "--objects", "--quiet", "--glob=refs/heads", "--glob=refs/tags")
        try:
            place.git("--git-dir", f"../{REMOTE}", *listed)
        except AssertionError as error:
            found.append(f"what refs lead to: {error}")
    if code == reference.case.code and not reference.case.is_random:
        found += ["ends well, and has not done all"] * (place.state() != reference.state)
    # Locks that git could not remove there are named, with the advice to remove them.
    for lock in (place.top / REMOTE).rglob("*.lock"):
        lock.unlink()
    yield from found or wrong_again(reference, place)
