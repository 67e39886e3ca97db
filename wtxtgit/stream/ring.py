"""A ring: a folder that holds the last generations of a training, and what became of each.

Two logs say what happened: `requests`, which the training writes, and `wal`, which whoever works on
the ring writes. A line of `wal` is what makes a generation count: its files are written under other
names first, and get their own when the line is on the disk. One process works on a ring at a time:
the lock that it holds ends with it. `docs/stream.md` says what is promised, and of the files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Self

from wtxtgit.errors import EnvironmentFailure, InputError, UsageError
from wtxtgit.io.files import failures, shown, sync_folder
from wtxtgit.model.ledger import AGE_ENDING
from wtxtgit.model.plain import JsonObject
from wtxtgit.stream import log
from wtxtgit.stream.log import Log, LogLine, entry

REQUESTS, WAL, LOCK = "requests", "wal", "lock"
NEW = ".new"
"""Ends the names of files whose generation does not count yet."""
FIRST_PREV = bytes(32)
_OWN_FILE = re.compile(r"gen-[0-9]{6,}(?:\.from-[0-9]{6,})?\.wtxt[a-z.]*")
_SPARE_LINES = 1000
"""So many lines that no longer say anything are left in a log."""
_TOLD = 100
"""So many generations that came to nothing are remembered by their numbers, the last ones."""


class DeliveryState(StrEnum):
    """How far a generation is on its way to a target.

    A target that refuses does so until somebody sees to it; what has waited for too long, or was
    too much, expires. `ring retry` queues both again.
    """

    QUEUED = "queued"
    DELIVERED = "delivered"
    REFUSED = "refused"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Delivery(JsonObject):
    """A generation on its way to one target; `why` is what stood in the way the last time."""

    KEYS = "target state tries why?"

    target: str
    state: DeliveryState = DeliveryState.QUEUED
    tries: int = 0
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Generation(JsonObject):
    """A generation that the ring holds.

    `kind` is text or delta, which is to be put on generation `base`. `sha256` is of the file,
    `size` its bytes; root and chain are those of the text, delta or not. `after` is the
    generation that it follows.
    """

    KEYS = (
        "gen ts kind file size sha256:hex base? after? wsum? sha256_all:hex merkle_prev=prev:hex "
        "merkle_this=this:hex is_pinned deliveries"
    )

    gen: int
    ts: str
    kind: str
    file: str
    size: int
    sha256: bytes
    sha256_all: bytes
    prev: bytes
    this: bytes
    base: int | None = None
    after: int | None = None
    wsum: str | None = None
    is_pinned: bool = False
    deliveries: tuple[Delivery, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        return (self.file,) if self.wsum is None else (self.file, self.wsum)

    @property
    def is_encrypted(self) -> bool:
        return self.file.endswith(AGE_ENDING)

    @property
    def is_under_way(self) -> bool:
        """Whether a target is still to get it, or may once somebody has seen to it."""
        waiting = (DeliveryState.QUEUED, DeliveryState.REFUSED)
        return any(one.state in waiting for one in self.deliveries)

    def line(self) -> LogLine:
        return entry(
            "emitted",
            gen=self.gen,
            ts=self.ts,
            kind=self.kind,
            file=self.file,
            size=self.size,
            sha256=self.sha256.hex(),
            sha256_all=self.sha256_all.hex(),
            prev=self.prev.hex(),
            this=self.this.hex(),
            base=self.base,
            after=self.after,
            wsum=self.wsum,
            pin="1" if self.is_pinned else None,
        )


@dataclass(slots=True)
class Counts(JsonObject):
    """What came of all generations that were ever asked for."""

    emitted: int = 0
    dropped: int = 0
    lost: int = 0
    failed: int = 0
    delivered: int = 0
    refused: int = 0
    expired: int = 0


@dataclass(slots=True)
class RingState(JsonObject):
    """What a ring's log says.

    `last` is the newest generation that was emitted, or came to nothing; `head_gen` the newest that
    was emitted, and `head` its merkle_this. `lost` are the numbers of the last ones that died with
    the process that asked for them, `failed` of those that could not be written, with the reason.
    """

    KEYS = "last? head:hex counts lost failed generations"

    generations_by_number: dict[int, Generation] = field(default_factory=dict)
    last: int | None = None
    last_ts: str = ""
    head: bytes = FIRST_PREV
    head_gen: int | None = None
    counts: Counts = field(default_factory=Counts)
    lost: tuple[int, ...] = ()
    failed: dict[int, str] = field(default_factory=dict)

    @property
    def generations(self) -> tuple[Generation, ...]:
        """Those that the ring holds, in order."""
        return tuple(self.generations_by_number.values())

    def take(self, line: LogLine) -> None:
        """Take a line of `wal` for true; raises KeyError or ValueError for one that is not ours."""
        fields = line.fields
        match line.word:
            case "emitted":
                self._emitted(_generation(fields))
            case "counts":
                self.counts = Counts(**{key: int(value) for key, value in fields.items()})
            case "head":
                self.head_gen, self.head = int(fields["gen"]), bytes.fromhex(fields["this"])
                self.last_ts = fields["ts"]
                self._passed(self.head_gen)
            case "last":
                self._passed(int(fields["gen"]))
            case "queued" | "delivered" | "refused" | "expired":
                self._delivery(line.word, fields)
            case "pruned":
                self.generations_by_number.pop(int(fields["gen"]), None)
            case "dropped":
                self.counts.dropped += 1
                self._passed(int(fields["gen"]))
            case "lost":
                self.counts.lost += 1
                self.lost = (*self.lost, int(fields["gen"]))[-_TOLD:]
                self._passed(int(fields["gen"]))
            case "failed":
                self.counts.failed += 1
                self.failed[int(fields["gen"])] = fields["why"]
                while len(self.failed) > _TOLD:
                    del self.failed[next(iter(self.failed))]
                self._passed(int(fields["gen"]))

    def lines(self) -> Iterator[LogLine]:
        """Lines that say the same, without what is over."""
        for gen in self.lost:
            yield entry("lost", gen=gen)
        for gen, why in self.failed.items():
            yield entry("failed", gen=gen, why=why)
        for generation in self.generations:
            yield generation.line()
            for one in generation.deliveries:
                yield delivery_line(generation.gen, one)
        if self.head_gen is not None:
            yield entry("head", gen=self.head_gen, ts=self.last_ts, this=self.head.hex())
        if self.last is not None:
            yield entry("last", gen=self.last)
        # Last: it puts right what the lines above have counted again.
        yield entry("counts", **dict(self.counts.entries()))  # type: ignore[arg-type]

    def _emitted(self, generation: Generation) -> None:
        self.generations_by_number[generation.gen] = generation
        self.counts.emitted += 1
        self.head, self.last_ts, self.head_gen = generation.this, generation.ts, generation.gen
        self._passed(generation.gen)

    def _passed(self, gen: int) -> None:
        self.last = gen if self.last is None else max(self.last, gen)

    def _delivery(self, word: str, fields: dict[str, str]) -> None:
        state = DeliveryState(word)
        match state:
            case DeliveryState.DELIVERED:
                self.counts.delivered += 1
            case DeliveryState.REFUSED:
                self.counts.refused += 1
            case DeliveryState.EXPIRED:
                self.counts.expired += 1
        generation = self.generations_by_number.get(int(fields["gen"]))
        if generation is None:
            return
        now = Delivery(fields["target"], state, int(fields.get("tries", "0")), fields.get("why"))
        others = tuple(one for one in generation.deliveries if one.target != now.target)
        self.generations_by_number[generation.gen] = replace(generation, deliveries=(*others, now))


def _generation(fields: dict[str, str]) -> Generation:
    return Generation(
        int(fields["gen"]),
        fields["ts"],
        fields["kind"],
        _own_name(fields["file"]),
        int(fields["size"]),
        bytes.fromhex(fields["sha256"]),
        bytes.fromhex(fields["sha256_all"]),
        bytes.fromhex(fields["prev"]),
        bytes.fromhex(fields["this"]),
        int(fields["base"]) if "base" in fields else None,
        int(fields["after"]) if "after" in fields else None,
        _own_name(fields["wsum"]) if "wsum" in fields else None,
        fields.get("pin") == "1",
    )


def _own_name(name: str) -> str:
    # A log from elsewhere must not make us send, or remove, other files.
    if _OWN_FILE.fullmatch(name) is None:
        raise ValueError(name)
    return name


def delivery_line(gen: int, delivery: Delivery) -> LogLine:
    """The line that says how far a generation is on its way to a target."""
    return entry(
        delivery.state.value,
        gen=gen,
        target=delivery.target,
        tries=delivery.tries or None,
        why=delivery.why,
    )


def read_state(folder: Path) -> RingState:
    """What a ring's log says now; raises InputError for a folder that is no ring."""
    if not (folder / WAL).is_file():
        raise InputError(f"{shown(folder)}: no ring of snapshots is there")
    state = RingState()
    for line in log.read(folder / WAL):
        try:
            state.take(line)
        except (KeyError, ValueError, TypeError):
            continue  # of another version, or made up: it says nothing
    return state


def requested(folder: Path) -> dict[int, bool]:
    """The generations that were asked for, by what the training wrote: whether each still stands.

    Those that do not were dropped for newer ones.
    """
    wanted: dict[int, bool] = {}
    for line in log.read(folder / REQUESTS):
        with contextlib.suppress(KeyError, ValueError):
            if line.word in ("requested", "dropped"):
                wanted[int(line.fields["gen"])] = line.word == "requested"
    return wanted


class Ring:
    """A ring that this process works on, and no other one; any thread may call it."""

    def __init__(self, folder: Path, *, is_training: bool = False) -> None:
        """Take the ring at `folder`, which is made where there is none.

        What a process that was killed left half done is done, or undone. Requests are lost
        that nobody answered, unless the one `is_training` still that made them. Raises
        RingBusy where another process works on it.
        """
        self.folder = folder
        with failures(folder, missing=EnvironmentFailure):
            folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder)
        self._change = threading.RLock()
        try:
            self.state = read_state(folder) if (folder / WAL).is_file() else RingState()
            last = -1 if self.state.last is None else self.state.last
            requests = {} if is_training else requested(folder)
            unanswered = {gen: stands for gen, stands in requests.items() if gen > last}
            self.newly_lost = [gen for gen, stands in unanswered.items() if stands]
            for gen, stands in unanswered.items():
                self.state.take(entry("lost" if stands else "dropped", gen=gen))
            self._finish_files()
            self._wal = Log(folder / WAL, self.state.lines())
            sync_folder(folder)
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        with self._change:
            self._wal.close()
            # Nobody works on it any more.
            os.truncate(self._lock, 0)
            os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def path(self, file: str) -> Path:
        return self.folder / file

    def emitted(self, generation: Generation) -> None:
        """Have a generation count whose files stand there with NEW at the end of their names."""
        with self._change:
            # Their content is on the disk; so must be their names before a line tells of them.
            sync_folder(self.folder)
            self._tell(
                generation.line(),
                *(delivery_line(generation.gen, one) for one in generation.deliveries),
                is_durable=True,
            )
            self._put_in_place(generation)
            sync_folder(self.folder)

    def remove_unfinished(self) -> None:
        """Take away what was written of a generation that does not count."""
        with self._change:
            self._finish_files()

    def failed(self, gen: int, why: str) -> None:
        """Say that a generation came to nothing."""
        with self._change:
            self._tell(entry("failed", gen=gen, why=why))

    def passed_over(self, gens: Iterable[int]) -> None:
        """Say that generations were dropped, since newer ones were there; again is no matter."""
        with self._change:
            last = -1 if self.state.last is None else self.state.last
            self._tell(*(entry("dropped", gen=gen) for gen in gens if gen > last))

    def delivery(self, gen: int, delivery: Delivery) -> None:
        """Say how far a generation is on its way to a target."""
        with self._change:
            self._tell(delivery_line(gen, delivery), is_durable=True)

    def under_way(self, target: str) -> Iterator[tuple[Generation, Delivery]]:
        """What a target is still to get, oldest first."""
        with self._change:
            generations = self.state.generations
        for generation in generations:
            for one in generation.deliveries:
                if one.target == target and one.state is DeliveryState.QUEUED:
                    yield generation, one

    def prune(self, keep: int, *, named: Iterable[int] = ()) -> list[int]:
        """Remove all but the last `keep` generations, and those in `named`; gives their numbers.

        Those stay that are pinned, that a target is still to get, or whose delta one that
        stays is to be put on. Raises UsageError for a named one that can't go.
        """
        with self._change:
            generations = self.state.generations
            wanted = set(named)
            if unknown := wanted - {one.gen for one in generations}:
                raise UsageError(f"the ring holds no generation {min(unknown)}")
            newest = {one.gen for one in generations[max(0, len(generations) - keep) :]}
            staying = {
                one.gen
                for one in generations
                if one.gen not in wanted and (one.gen in newest or one.is_pinned)
            }
            staying |= {one.gen for one in generations if one.is_under_way}
            staying |= {
                one.base for one in generations if one.gen in staying and one.base is not None
            }
            if bound := wanted & staying:
                raise UsageError(
                    f"generation {min(bound)} can't go: a target is still to get it, or a delta "
                    "is to be put on it"
                )
            going = [one for one in generations if one.gen not in staying]
            if going:
                self._tell(*(entry("pruned", gen=one.gen) for one in going), is_durable=True)
            for one in going:
                self._remove(*one.files)
            return [one.gen for one in going]

    def _tell(self, *lines: LogLine, is_durable: bool = False) -> None:
        self._wal.append(*lines, is_durable=is_durable)
        for line in lines:
            self.state.take(line)
        if self._wal.lines > _SPARE_LINES:
            self._wal.compact(self.state.lines())

    def _put_in_place(self, generation: Generation) -> None:
        for file in generation.files:
            with failures(self.path(file), missing=EnvironmentFailure):
                self.path(file + NEW).replace(self.path(file))

    def _remove(self, *files: str) -> None:
        for file in files:
            with contextlib.suppress(FileNotFoundError), failures(self.path(file)):
                self.path(file).unlink(missing_ok=True)

    def _finish_files(self) -> None:
        """Give generations that count their names, and take away what belongs to none."""
        live = {file for one in self.state.generations for file in one.files}
        with failures(self.folder, missing=EnvironmentFailure):
            there = sorted(path.name for path in self.folder.iterdir())
        for file in there:
            own = file.removesuffix(NEW)
            if _OWN_FILE.fullmatch(own) is None:
                continue
            if own not in live:
                self._remove(file)
            elif file != own:
                with failures(self.path(own), missing=EnvironmentFailure):
                    self.path(file).replace(self.path(own))


def _locked(folder: Path) -> int:
    """Take the lock of a ring, which ends with this process; raises EnvironmentFailure."""
    path = folder / LOCK
    with failures(path, missing=EnvironmentFailure):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise RingBusy(
                f"{shown(folder)}: process {holder or '?'} works on this ring",
                hint="each training needs a ring of its own; it is free when that process ends",
            ) from None
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
    return descriptor


class RingBusy(EnvironmentFailure):
    """Another process works on the ring."""
