"""Commands and hooks that write are killed (SIGKILL), and started again.

Each is killed before each call that changes the file system, and at random moments of its run.
Afterwards `git fsck` passes, every file is an old or a new one, ledgers are whole, and what git
would add is nothing else. Then the same command is run again, and ends as if it had not been
killed; nothing of the killed one is left.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.kit.fork_server import import_all
from tests.torture.cases import CASES
from tests.torture.cases.places import IDENTITY, PROGRAM, REMOTE, Killed, Place, new_place
from tests.torture.processes import (
    WHEN,
    Ended,
    adopt_orphans,
    run_forked,
    wait_for_orphans,
)
from tests.torture.tables import Table
from wtxtgit.checkpoint.encrypted import head_of, read_identities
from wtxtgit.errors import InputError
from wtxtgit.git.driver import Launcher
from wtxtgit.io.temporary import NAME
from wtxtgit.io.view import mapped
from wtxtgit.stream.upkeep import check_ring
from wtxtgit.text import ledger as text_ledger
from wtxtgit.trust.age.identities import opened

_LEDGER = ".wsum"
_WSUM = ".root.wsum"
_ENCRYPTED = ".age"


@dataclass(frozen=True)
class Reference:
    """A case's start, and its end where nothing is killed."""

    case: Killed
    start: Place
    end: Place
    ended: Ended
    before: Mapping[str, bytes]
    after: Mapping[str, bytes]

    @cached_property
    def hooks(self) -> Mapping[str, bytes]:
        """The hooks that the start has."""
        return self.start.hooks()

    @cached_property
    def settings(self) -> tuple[list[bytes], dict[str, bytes]]:
        return self.end.settings()

    @cached_property
    def state(self) -> tuple[object, ...]:
        return self.end.state()

    @cached_property
    def payload(self) -> tuple[Set[str], Set[str]]:
        """The chunks at the start, here and at remotes."""
        return self.start.payload().keys(), self.start.payload_there().keys()

    @cached_property
    def unpaid(self) -> Set[str]:
        """The chunks that staged texts lack at the start."""
        return self.start.unpaid()

    @cached_property
    def end_payload(self) -> tuple[Set[str], Set[str]]:
        return self.end.payload().keys(), self.end.payload_there().keys()

    @cached_property
    def ledgers(self) -> bytes:
        return self.end.ledgers()


def run(folder: Path, tries: int, seed: int, only: Sequence[str] | None = None) -> Table:
    """Kill each command so often; gives a row a command."""
    adopt_orphans()
    # In the one process from which all are forked.
    import_all()

    rows: list[tuple[str, ...]] = []
    broken: list[str] = []
    for case in CASES:
        if only and case.name not in only:
            continue
        reference = reference_of(case, folder / str(len(rows)), folder / "try")
        count, calls, ended = 0, 0, 0
        for at, call, seconds in _moments(reference, tries, _chance(seed, case)):
            place = Place(folder / "try")
            shutil.copytree(reference.start.top, place.top, symlinks=True)
            outcome = _run(case, place, call, seconds)
            count += 1
            calls += bool(call)
            ended += not outcome.is_killed
            found = list(wrong(reference, place)) or list(wrong_again(reference, place))
            broken += [f"{case.name}, killed at {at}: {one}" for one in found]
            shutil.rmtree(place.top)
        rows.append((
            f"`{case.name}`", str(count), str(calls), f"{ended / count:.0%}",
            str(sum(one.startswith(f"{case.name}, ") for one in broken)),
        ))  # fmt: skip
        # It takes long: who waits sees how far it is.
        told = [one for one in broken if one.startswith(f"{case.name}, ")]
        print(*rows[-1], *told, sep="\n  ", file=sys.stderr, flush=True)
        shutil.rmtree(reference.start.top.parent)
    head = ("command", "tries", "of them at a call", "run had ended", "violations")
    return Table(head, rows, broken)


def reference_of(case: Killed, folder: Path, tried: Path) -> Reference:
    """What a case starts from in a folder, and how it ends where nothing is killed.

    It is made and run where it is `tried`, since some of its files hold that path.
    """
    start, end, place = Place(folder / "start"), Place(folder / "end"), new_place(tried)
    case.prepare(place)
    if case.is_git:
        for key, value in Launcher(PROGRAM).values().items():
            place.git("config", key, value)
    folder.mkdir()
    place.top.rename(start.top)
    shutil.copytree(start.top, place.top, symlinks=True)
    ended = _run(case, place, 0, None)
    assert ended.code == case.code, (case.name, ended.code)
    place.top.rename(end.top)
    return Reference(case, start, end, ended, start.files(), end.files())


def _moments(
    reference: Reference, tries: int, chosen: random.Random
) -> Iterator[tuple[str, int, float | None]]:
    """When to kill: at each call, as far as half of the tries reach, and at random times."""
    calls = range(1, reference.ended.calls + 1)
    if len(calls) > tries // 2:
        calls = sorted(chosen.sample(calls, tries // 2))  # type: ignore[assignment]
    for call in calls:
        yield f"call {call} of {reference.ended.calls}", call, None
    for _ in range(tries - len(calls)):
        seconds = chosen.uniform(0, reference.ended.seconds)
        yield f"{seconds:.4f} s of {reference.ended.seconds:.4f}", 0, seconds


def _chance(seed: int, case: Killed) -> random.Random:
    return random.Random(f"{seed} {case.name}")  # noqa: S311 - the same each time


def _run(case: Killed, place: Place, call: int, seconds: float | None) -> Ended:
    if not case.is_git:
        return run_forked(case.command, place.repo, place.env, call=call, seconds=seconds)
    log = place.top / "log"
    when = f"call {call} {log}" if seconds is None else f"time {seconds} {log}"
    env = {**os.environ, **place.env, WHEN: when}
    begin = os.times().elapsed
    done = subprocess.run(
        ["git", *case.command], cwd=place.repo, env=env, capture_output=True, check=False
    )
    took = os.times().elapsed - begin
    wait_for_orphans()
    told = log.read_text() if log.exists() else ""
    log.unlink(missing_ok=True)
    if "killed" in told:
        return Ended(-9, 0, took)
    return Ended(done.returncode, max(map(int, told.split()), default=0), took)


def wrong(reference: Reference, place: Place) -> Iterator[str]:
    """What is not as it may be after a kill."""
    case, before, after = reference.case, reference.before, reference.after
    for repository in (".git", f"../{REMOTE}"):
        try:
            if (place.repo / repository).is_dir():
                place.git("--git-dir", repository, "fsck", "--strict", "--no-dangling")
        except AssertionError as error:
            yield f"git fsck: {error}"
    for ring in place.rings:
        yield from (f"{one.file}: {one.why}" for one in check_ring(ring).generations if one.why)
    # What goes in the end may have gone.
    for had, payload, stays in zip(
        reference.payload,
        (place.payload(), place.payload_there()),
        reference.end_payload,
        strict=True,
    ):
        yield from (f"chunk {name} is gone" for name in had & stays if name not in payload)
        yield from (f"chunk {name} {why}" for name, why in payload.items() if why is not None)
    yield from (f"a staged text lacks {name}" for name in place.unpaid() - reference.unpaid)
    files = place.files()
    for name, content in files.items():
        if NAME.search(os.fsencode(name)):
            # Outside of repositories it stays until the next writer comes.
            if name.startswith("repo/"):
                yield f"{name} stays"
        elif name not in before and name not in after:
            yield f"{name} is neither old nor new"
        elif name.endswith(_LEDGER) and not name.endswith(_WSUM):
            if not text_ledger.read(content).ok:
                yield f"{name} is no whole ledger"
        elif name.endswith(_ENCRYPTED) and case.is_random:
            held = _held(place, content)
            if held is None or held not in [_held(place, one.get(name)) for one in (before, after)]:
                yield f"{name} holds neither its old nor its new content"
        elif content not in (before.get(name), after.get(name)) and not _is_free(reference, name):
            yield f"{name} has neither its old nor its new content"
    had, hooks = reference.hooks, place.hooks()
    yield from (f"the hook {name} is gone" for name in had if _is_lost(had[name], hooks))
    if not case.may_miss:
        for name in before:
            if name in after and name not in files:
                yield f"{name} is gone"


def _is_lost(hook: bytes, hooks: Mapping[str, bytes]) -> bool:
    """Whether a hook that is somebody else's stands there no more under any name."""
    return b"wtxtgit" not in hook and hook not in hooks.values()


def _is_free(reference: Reference, name: str) -> bool:
    """Whether a file may have other bytes: new ones each time, or git's own of a merge."""
    is_changed = reference.before.get(name) != reference.after.get(name)
    return (reference.case.is_random or reference.case.may_miss) and is_changed


def wrong_again(reference: Reference, place: Place) -> Iterator[str]:
    """What is not as it should be once the command was run again."""
    case = reference.case
    for command in case.healed:
        place.git(*command, ok=None)
    undo = place.spoil_what_came() if case.fetches else None
    ended = _run(case, place, 0, None)
    if undo is not None:
        undo()
    if ended.code not in (case.code, case.over):
        yield f"run again it ends with {ended.code}"
        return
    files, after = place.files(), reference.after
    if files.keys() != after.keys():
        yield f"run again there are {sorted(files.keys() ^ after.keys())}"
    if place.settings() != reference.settings:
        yield f"run again {place.settings()} are set, not {reference.settings}"
    if not case.is_random:
        different = [name for name in files if files[name] != after.get(name)]
        if different:
            yield f"run again {different} differ"
        if place.state() != reference.state:
            yield "run again the index differs"
    else:
        for name, content in files.items():
            if name.endswith(_LEDGER) and _sealed(content) != _sealed(after.get(name)):
                yield f"run again {name} seals other content"
            if name.endswith(_ENCRYPTED) and _held(place, content) != _held(place, after[name]):
                yield f"run again {name} holds other content, or is for others"
        if place.ledgers() != reference.ledgers:
            yield f"run again {place.ledgers()!r} differ from the index, not {reference.ledgers!r}"
    if case.same_packs and place.packs() != reference.end.packs():
        yield f"run again there are {place.packs()} packs"
    lock, aside = place.repo / ".git/index.lock", place.repo / ".git/wtxtgit/tmp"
    if lock.exists():
        yield "run again the index is locked"
    if aside.exists() and any(aside.iterdir()) and case.name in _SWEEPING:
        yield f"run again {[path.name for path in aside.iterdir()]} stay"


_SWEEPING = frozenset({"add", "checkout"})
"""Commands that always need a name in git's folder, and so remove what is left there."""


def _sealed(content: bytes | None) -> list[tuple[bytes, list[bytes]]] | None:
    """The content that each record of a ledger seals, and by whom."""
    ledger = text_ledger.read(content).ledger if content is not None else None
    if ledger is None:
        return None
    return [(one.sha256_all, [by.keyid for by in one.signatures]) for one in ledger.records]


def _held(place: Place, content: bytes | None) -> tuple[bytes, dict[str, int]] | None:
    """What is in an encrypted text, and for how many; None for what does not open."""
    if content is None:
        return None
    data, keys = memoryview(content), read_identities(place.top / IDENTITY, None)
    try:
        return bytes(mapped(opened(data, keys, "it"))), dict(head_of(data, "it").counts())
    except InputError:
        return None
