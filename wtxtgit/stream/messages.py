"""What a training and its worker tell one another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wtxtgit.remotes.target import Target
from wtxtgit.stream.delivery import DeliveryLimits
from wtxtgit.stream.emission import EmissionOptions, SnapshotRequest
from wtxtgit.stream.ranks import ALONE, Rank
from wtxtgit.stream.state import Generation


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What a worker is told at its start.

    `is_training` says that the training lives on, whose former worker died.
    """

    folder: Path
    keep: int
    emission: EmissionOptions
    targets: tuple[Target, ...]
    limits: DeliveryLimits
    rank: Rank = ALONE
    is_training: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """The worker's first answer: the ring's last generation, and those that were lost before."""

    last: int | None
    lost: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BufferNotice:
    """A buffer's memory comes as the next thing: its number, and its size in bytes.

    Those that are not of `numbers` are gone.
    """

    number: int
    size: int
    numbers: frozenset[int]


@dataclass(frozen=True, slots=True)
class EmitRequest:
    """Emit what stands in a buffer: bytes of arrays, then of the table of arrays.

    `dropped` are generations that were passed over since the last request.
    """

    request: SnapshotRequest
    buffer: int
    size: int
    table: int
    dropped: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EndRequest:
    """Deliver for at most so many seconds, and end."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Emitted:
    """A generation is in the ring."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class NotEmitted:
    """A generation can't be emitted, or the worker can't begin."""

    message: str
    is_busy: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """How many generations targets are still to get."""

    waiting: int
