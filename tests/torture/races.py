"""Two or more processes at once: each does its work, or says in a line why it can't now.

Of each pair the second one, and any others, start at random moments of the first one's run.
Afterwards what was refused is run again, and then all is as it is where one was run after the
other.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kit.fork_server import import_all
from tests.torture.cases import payload, setup, starts, trust
from tests.torture.cases.places import Place, new_place
from tests.torture.cases.starts import KEY, MODEL, OTHER
from tests.torture.tables import Table
from wtxtgit.io.temporary import NAME
from wtxtgit.text import ledger as text_ledger

_LINE = re.compile(r"wtxtgit: (error|hint|warning|note): .")


@dataclass(frozen=True)
class Pair:
    """Two commands or more, and the codes that one may end with which finds all done by others."""

    name: str
    prepare: Callable[[Place], None]
    first: Sequence[str]
    second: Sequence[str]
    over: Sequence[int] = ()
    more: Sequence[Sequence[str]] = ()
    over_again: bool = False
    """Whether the first one leaves what it finds in use, and has more to do afterwards."""

    @property
    def later(self) -> Sequence[Sequence[str]]:
        """All but the first one."""
        return (self.second, *self.more)


_PRUNE = ("store", "prune", "--recent", "0")
PAIRS = (
    Pair("seal", starts.unsealed, ("seal", *KEY), ("seal", *KEY)),
    Pair("seal --staged", starts.sealed, ("seal", "--staged", *KEY), ("seal", "--staged", *KEY)),
    Pair("seal, add", trust.both_changed, ("seal", *KEY, MODEL), ("add", OTHER)),
    Pair("seal, git add", trust.both_changed, ("seal", *KEY, MODEL), ("git", "add", OTHER)),
    Pair("seal of two files", trust.both_staged, ("seal", *KEY, MODEL), ("seal", *KEY, OTHER)),
    Pair("add", starts.changed, ("add", "."), ("add", ".")),
    Pair("add of two files", trust.both_changed, ("add", MODEL), ("add", OTHER)),
    Pair("add, git add", starts.changed, ("add", "."), ("git", "add", ".")),
    Pair("checkout", starts.missing, ("checkout",), ("checkout",)),
    Pair("checkout, add", starts.missing_and_new, ("checkout",), ("add", "new.safetensors")),
    Pair("key new", starts.plain, ("key", "new", "--name", "a", "--no-passphrase"),
         ("key", "new", "--name", "a", "--no-passphrase"), over=(2,)),
    Pair("signers add", starts.keys, ("signers", "add", "alice@example.com", "alice"),
         ("signers", "add", "bob@example.com", "bob")),
    Pair("track", starts.changed, ("track", "*.npz"), ("track", "*.pt")),
    Pair("track, untrack", starts.changed, ("track", "*.npz"), ("untrack", "*.safetensors")),
    Pair("install --hooks", setup.bare_home, ("install", "--hooks"), ("install", "--hooks")),
    Pair("install --local, uninstall", setup.installed, ("install", "--local"),
         ("uninstall",)),
    Pair("emit -o", starts.texts, ("emit", MODEL, "-o", "other.wtxt"),
         ("emit", MODEL, "-o", "other.wtxt")),
    Pair("resolve", starts.conflict, ("resolve", MODEL, "--strategy", "theirs"),
         ("resolve", MODEL, "--strategy", "theirs"), over=(3,)),
    Pair("git add in four work trees", payload.four_work_trees, ("git", "-C", "../wt0", "add", "."),
         ("git", "-C", "../wt1", "add", "."),
         more=(("git", "-C", "../wt2", "add", "."), ("git", "-C", "../wt3", "add", "."))),
    Pair("push: detached", payload.with_folder, ("push",), ("push",)),
    Pair("fetch: detached", payload.lacking, ("fetch", "HEAD~1", "HEAD"), ("fetch", "HEAD")),
    Pair("store repack, add", payload.changed, ("store", "repack"), ("add", ".")),
    Pair("store prune, add", payload.old_and_changed, _PRUNE, ("add", "."), over_again=True),
    Pair("store prune, git add", payload.old_and_changed, _PRUNE, ("git", "add", "."),
         over_again=True),
    Pair("store prune, git add of many", payload.old_and_many_new, (*_PRUNE, "--expire", "0"),
         ("git", "add", "."), over_again=True),
    Pair("store prune", payload.old, _PRUNE, _PRUNE),
    Pair("recover --as-commit", starts.damaged, ("recover", MODEL, "--as-commit"),
         ("recover", MODEL, "--as-commit")),
)  # fmt: skip


@dataclass
class Running:
    """A command that runs, and where its words go."""

    command: Sequence[str]
    process: int
    words: Path
    code: int = -1

    def end(self) -> None:
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])

    @property
    def fault(self) -> str | None:
        """What is wrong with how it ended."""
        told = self.words.read_text(errors="replace")
        if self.command[0] == "git":
            return None if self.code in (0, 1, 128) else f"ended with {self.code}: {told}"
        lines = told.splitlines()
        if self.code not in range(6) or not all(map(_LINE.match, lines)):
            return f"ended with {self.code}: {told}"
        # Of several files it says of each that was not written why, in a warning.
        if self.code and not lines:
            return f"ended with {self.code} and said: {told}"
        return None


def run(folder: Path, tries: int, seed: int, only: Sequence[str] | None = None) -> Table:
    """Run each pair so often; gives a row a pair."""
    # In the one process from which all are forked.
    import_all()

    rows: list[Sequence[str]] = []
    broken: list[str] = []
    for pair in PAIRS:
        if only and pair.name not in only:
            continue
        chosen = random.Random(f"{seed} {pair.name}")  # noqa: S311 - the same each time
        start = new_place(folder / "start")
        pair.prepare(start)
        wanted, seconds = _one_after_the_other(pair, start, folder)
        refused = 0
        found = []
        for _ in range(tries):
            place = _copy(start, folder / "try")
            running = [_started(pair.first, place, "first")]
            begin = time.monotonic()
            moments = sorted(chosen.uniform(0, seconds) for _ in pair.later)
            for number, (moment, command) in enumerate(zip(moments, pair.later, strict=True)):
                time.sleep(max(0, begin + moment - time.monotonic()))
                running.append(_started(command, place, f"later {number}"))
            for one in running:
                one.end()
            refused += any(one.code for one in running)
            wrong = list(_wrong(pair, place, running, wanted))
            found += [f"{pair.name}: {one}" for one in wrong]
            shutil.rmtree(place.top)
        shutil.rmtree(start.top)
        rows.append((pair.name, str(tries), str(refused), str(len(found))))
        broken += found
        print(*rows[-1], *found, sep="\n  ", file=sys.stderr, flush=True)
    return Table(("at once", "tries", "one was refused", "violations"), rows, broken)


def _one_after_the_other(
    pair: Pair, start: Place, folder: Path
) -> tuple[list[tuple[object, ...]], float]:
    """What there may be in the end, and the seconds that the first command takes."""
    ends = []
    every = (pair.first, *pair.later)
    for commands in (every, every[::-1]):
        place = _copy(start, folder / "try")
        begin = time.monotonic()
        for number, command in enumerate(commands):
            one = _started(command, place, "usual")
            one.end()
            assert one.code in (0, *pair.over * min(number, 1)), (
                command,
                one.code,
                one.words.read_text(),
            )
            if command is pair.first and not number:
                seconds = time.monotonic() - begin
        if pair.over_again:
            _started(pair.first, place, "over again").end()
        ends.append(_state(place))
        shutil.rmtree(place.top)
    return ends, seconds


def _wrong(
    pair: Pair, place: Place, running: Sequence[Running], wanted: Sequence[tuple[object, ...]]
) -> Iterator[str]:
    for one in running:
        if one.fault:
            yield f"{' '.join(one.command)} {one.fault}"
        if not one.code or one.code in pair.over:
            continue
        again = _started(one.command, place, "again")
        again.end()
        if again.code not in (0, *pair.over):
            told = one.words.read_text(), again.words.read_text()
            yield f"{' '.join(one.command)} ended with {one.code}, then {again.code}: {told}"
    if pair.over_again:
        _started(pair.first, place, "over again").end()
    if lacking := place.unpaid():
        yield f"staged texts lack {sorted(lacking)}"
    state = _state(place)
    if state not in wanted:
        other = [part for part, *usual in zip(state, *wanted, strict=True) if part not in usual]
        yield f"in the end there is {other}"
    place.git("fsck", "--strict", "--no-dangling")
    left = [name for name in place.files() if NAME.search(os.fsencode(name))]
    left += [lock.name for lock in (place.repo / ".git").glob("*.lock")]
    if left:
        yield f"{left} stay"


def _state(place: Place) -> tuple[object, ...]:
    """What is there; of what is random or of its time no more than what it says."""
    files = {}
    for name, content in place.files().items():
        if name.endswith(".wsum"):
            ledger = text_ledger.read(content).ledger
            sealed = (
                None if ledger is None else [record.sha256_all.hex() for record in ledger.records]
            )
            files[name] = str(sealed)
        else:
            files[name] = "" if "/keys/" in name else str(hash(content))
    listed, *_ = place.state()
    index = [line for line in listed.split(b"\0") if not line.endswith(b".wsum")]
    payload = place.payload(), place.payload_there()
    return sorted(files.items()), index, place.settings(), place.git("ls-files", "-z"), payload


def _copy(start: Place, to: Path) -> Place:
    shutil.copytree(start.top, to, symlinks=True)
    return Place(to)


def _started(command: Sequence[str], place: Place, name: str) -> Running:
    words = place.top / f"{name}.words"
    env = {**os.environ, **place.env}
    if command[0] == "git":
        with words.open("wb") as file:
            git = subprocess.Popen(command, cwd=place.repo, env=env, stdout=file, stderr=file)
        # It is waited for as the forked ones are.
        git.returncode = 0
        return Running(command, git.pid, words)
    child = os.fork()
    if child:
        return Running(command, child, words)
    code = 70
    try:
        os.environ.update(place.env)
        os.chdir(place.repo)
        null = os.open(os.devnull, os.O_RDWR)
        told = os.open(words, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for standard, descriptor in enumerate((null, null, told)):
            os.dup2(descriptor, standard)
        from wtxtgit.cli.main import main

        code = main(list(command))
        sys.stderr.flush()
    finally:
        os._exit(code)
