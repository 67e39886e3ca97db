"""The state of a ring, read from its logs: its generations, and the outcome of all requests.

`wal` has a line for each event; `RingState` applies one after the other. With several ranks each
has logs of its own. `docs/stream.md`, section "The ring's files".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from wtxtgit.checkpoint.wsum import ENDING as WSUM_ENDING
from wtxtgit.errors import InputError
from wtxtgit.io.files import shown
from wtxtgit.model.ledger import AGE_ENDING
from wtxtgit.model.plain import JsonObject
from wtxtgit.stream import log
from wtxtgit.stream.index import IndexPart
from wtxtgit.stream.log import LogLine, entry
from wtxtgit.stream.ranks import ALONE, REQUESTS, WAL, PartName, Rank, read_world

FIRST_PREV = bytes(32)
_MOST_LISTED = 100
"""The number of lost or failed generations that are remembered, the last ones."""


class DeliveryState(StrEnum):
    """The progress of a generation's delivery to a target.

    A rank's part is sent when the target has it, and delivered when the generation's index is
    there, too. It is refused if trying again would not help, and expires if it has waited too long
    or too much data is waiting. `ring retry` queues both again.
    """

    QUEUED = "queued"
    SENT = "sent"
    DELIVERED = "delivered"
    REFUSED = "refused"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Delivery(JsonObject):
    """A generation's delivery to one target; `why` is what prevented it the last time."""

    KEYS = "target state tries why?"

    target: str
    state: DeliveryState = DeliveryState.QUEUED
    tries: int = 0
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Generation(JsonObject):
    """A generation in the ring.

    `kind` is text or delta, which is based on generation `base`. `sha256` and `size` (in bytes) are
    those of the file; root and chain are those of the text, delta or not. `after` is the generation
    that it follows.
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
        """Whether a target has yet to get it, or refused it, which somebody may be able to mend."""
        waiting = (DeliveryState.QUEUED, DeliveryState.SENT, DeliveryState.REFUSED)
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
    """The outcomes of all generations that were ever requested, by number."""

    emitted: int = 0
    dropped: int = 0
    lost: int = 0
    failed: int = 0
    delivered: int = 0
    refused: int = 0
    expired: int = 0


@dataclass(slots=True)
class RingState(JsonObject):
    """The state in a ring's log.

    `last` is the newest generation that was emitted, dropped, lost or failed. `head_gen` is the
    newest that was emitted, `head` its merkle_this. `lost` are the last ones that were lost with
    the process that requested them, `failed` those that could not be written, with the reason.
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
        """The generations in the ring, in order."""
        return tuple(self.generations_by_number.values())

    def may_have(self, gen: int) -> bool:
        """Tell whether a generation exists, or may still come, since emitted ones increase."""
        return gen in self.generations_by_number or self.last is None or gen > self.last

    def take(self, line: LogLine) -> None:
        """Apply a line of `wal`; raises KeyError or ValueError for a line that is not ours."""
        fields = line.fields
        match line.word:
            case "emitted":
                self._emitted(_generation(fields))
            case "counts":
                self.counts = Counts(**{key: int(value) for key, value in fields.items()})
            case "head":
                self.head_gen, self.head = int(fields["gen"]), bytes.fromhex(fields["this"])
                self.last_ts = fields["ts"]
                self._advance(self.head_gen)
            case "last":
                self._advance(int(fields["gen"]))
            case "queued" | "sent" | "delivered" | "refused" | "expired":
                self._delivery(line.word, fields)
            case "pruned":
                self.generations_by_number.pop(int(fields["gen"]), None)
            case "dropped":
                self.counts.dropped += 1
                self._advance(int(fields["gen"]))
            case "lost":
                self.counts.lost += 1
                self.lost = (*self.lost, int(fields["gen"]))[-_MOST_LISTED:]
                self._advance(int(fields["gen"]))
            case "failed":
                self.counts.failed += 1
                self.failed[int(fields["gen"])] = fields["why"]
                while len(self.failed) > _MOST_LISTED:
                    del self.failed[next(iter(self.failed))]
                self._advance(int(fields["gen"]))

    def lines(self) -> Iterator[LogLine]:
        """Yield lines that give the same state, without obsolete ones."""
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
        # Last, because it corrects what the lines above have counted again.
        yield entry("counts", **dict(self.counts.entries()))  # type: ignore[arg-type]

    def _emitted(self, generation: Generation) -> None:
        self.generations_by_number[generation.gen] = generation
        self.counts.emitted += 1
        self.head, self.last_ts, self.head_gen = generation.this, generation.ts, generation.gen
        self._advance(generation.gen)

    def _advance(self, gen: int) -> None:
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
        new = Delivery(fields["target"], state, int(fields.get("tries", "0")), fields.get("why"))
        others = tuple(one for one in generation.deliveries if one.target != new.target)
        self.generations_by_number[generation.gen] = replace(generation, deliveries=(*others, new))


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
    if part_name(name) is None:
        raise ValueError(name)
    return name


def part_name(file: str) -> PartName | None:
    """Parse the name of a text, a delta or a WSUM; None for other names."""
    return PartName.parse(file.removesuffix(WSUM_ENDING))


def delivery_line(gen: int, delivery: Delivery) -> LogLine:
    """Return the log line for the progress of a delivery."""
    return entry(
        delivery.state.value,
        gen=gen,
        target=delivery.target,
        tries=delivery.tries or None,
        why=delivery.why,
    )


def _no_ring(folder: Path) -> InputError:
    why = "not a ring of snapshots" if folder.exists() else "no such folder"
    return InputError(f"{shown(folder)}: {why}")


def ranks_of(folder: Path) -> list[Rank]:
    """Return all ranks of a ring, in order; raises InputError if the folder is no ring."""
    world = read_world(folder)
    if world.size == 1 and not (folder / WAL).is_file():
        raise _no_ring(folder)
    return Rank(0, world.size).all()


def read_state(folder: Path, rank: Rank = ALONE) -> RingState:
    """Read the state in the log of a rank; raises InputError if the folder is no ring."""
    path = folder / rank.own(WAL)
    if rank.is_alone and not path.is_file():
        raise _no_ring(folder)
    state = RingState()
    for line in log.read(path):
        try:
            state.take(line)
        except (KeyError, ValueError, TypeError):
            continue  # written by another version, or forged: ignored
    return state


def requested(folder: Path, rank: Rank = ALONE) -> dict[int, bool]:
    """Return the generations that the training requested, and whether it still wants each.

    It dropped the others for newer ones.
    """
    requests: dict[int, bool] = {}
    for line in log.read(folder / rank.own(REQUESTS)):
        with contextlib.suppress(KeyError, ValueError):
            if line.word in ("requested", "dropped"):
                requests[int(line.fields["gen"])] = line.word == "requested"
    return requests


def index_part(generation: Generation, rank: Rank) -> IndexPart:
    """Return what an index states about the part of a rank."""
    return IndexPart(
        rank.number,
        generation.file,
        generation.size,
        generation.sha256,
        generation.sha256_all,
        generation.this,
        generation.wsum,
    )


def awaited(folder: Path, rank: Rank) -> set[int]:
    """Return the generations that were requested of a rank, and that it has or may still have."""
    state = read_state(folder, rank)
    requests = requested(folder, rank).items()
    return {gen for gen, is_wanted in requests if is_wanted and state.may_have(gen)}
