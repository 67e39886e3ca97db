"""Messages between a training and its worker."""

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
    """What a worker gets at its start.

    `is_training` means that the training goes on after an earlier worker died.
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
    """The worker's first answer: the ring's last generation, and those that were just lost."""

    last: int | None
    lost: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BufferNotice:
    """Announces the descriptor of a buffer, which follows: its number, and its size in bytes.

    Buffers whose numbers are not in `numbers` no longer exist.
    """

    number: int
    size: int
    numbers: frozenset[int]


@dataclass(frozen=True, slots=True)
class EmitRequest:
    """A request to emit what is in a buffer: `size` bytes of arrays, then `table` bytes of their
    table.

    `dropped` are generations that were skipped since the last request.
    """

    request: SnapshotRequest
    buffer: int
    size: int
    table: int
    dropped: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EndRequest:
    """A request to deliver for at most `seconds`, and end."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Emitted:
    """The answer that a generation is in the ring."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class NotEmitted:
    """The answer that a generation can't be emitted, or that the worker can't start."""

    message: str
    is_busy: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The last answer: the number of generations that targets have yet to get."""

    waiting: int
