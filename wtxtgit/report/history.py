"""The versions of a checkpoint over time, as data: the contract of `history --json`.

`docs/history.md` says what each number is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import hypot
from sys import float_info

from wtxtgit.model.plain import JsonObject
from wtxtgit.report.figures import in_natural_order


@dataclass(frozen=True, slots=True)
class Point(JsonObject):
    """The values of a tensor, or of a layer, in one version.

    `norm` is the L2 norm of the finite numbers, `l2` that of the change since the version before.
    `base_norm` is the norm, in the version before, of what changed. `l2` is None if there was
    nothing to compare with.
    """

    KEYS = "norm relative_change=relative zeros_share nan inf"

    elements: int
    norm: float
    zeros: int
    nan: int
    inf: int
    l2: float | None = None
    base_norm: float = 0.0

    @property
    def zeros_share(self) -> float:
        return self.zeros / self.elements if self.elements else 0.0

    @property
    def relative(self) -> float | None:
        """The relative change; None if there is none, or if everything was 0 before."""
        if not self.l2:
            return self.l2
        return self.l2 / self.base_norm if self.base_norm else None


Points = tuple[Point | None, ...]
"""One point for each version, None for a version without such numbers."""


def joined(points: Sequence[Point]) -> Point | None:
    """Combine the points of several tensors, None if there are none."""
    if not points:
        return None
    measured = [point for point in points if point.l2 is not None]
    return Point(
        sum(point.elements for point in points),
        _norm(point.norm for point in points),
        sum(point.zeros for point in points),
        sum(point.nan for point in points),
        sum(point.inf for point in points),
        _norm(point.l2 or 0.0 for point in measured) if measured else None,
        _norm(point.base_norm for point in measured),
    )


def _norm(norms: Iterable[float]) -> float:
    # The largest float stands for anything beyond it.
    return min(hypot(*norms), float_info.max)


@dataclass(frozen=True, slots=True)
class Series(JsonObject):
    """A tensor or a layer through all versions; dtype and shape are those of its last version."""

    KEYS = "name dtype? shape? points"

    name: str
    points: Points
    dtype: str | None = None
    shape: tuple[int, ...] | None = None

    @property
    def largest_change(self) -> float:
        """The largest of all relative changes."""
        return max(
            (point.relative or 0.0 for point in self.points if point is not None), default=0.0
        )

    @property
    def broken(self) -> int:
        """The number of NaN and Inf in the last version that has the tensor."""
        last = next((point for point in reversed(self.points) if point is not None), None)
        return 0 if last is None else last.nan + last.inf


def in_order(series: Iterable[Series]) -> list[Series]:
    """Sort series: first those that have NaN or Inf now, then by the largest change."""
    return sorted(
        series, key=lambda one: (not one.broken, -one.largest_change, in_natural_order(one.name))
    )


@dataclass(frozen=True, slots=True)
class PastVersion(JsonObject):
    """A commit that changed the checkpoint's content.

    `size` is the size of the blob, `file_size` that of the file. `gen`, `signers` and `verdict` are
    those of the generation that seals it, None if none does. The counts, and the relative change of
    everything that changed, are relative to the version before; None if there is none. `reason`
    says why nothing is known of its tensors, or not of all.
    """

    KEYS = (
        "commit=oid date author subject path gen? ts? signers? verdict? size file_size format "
        "tensors changed added removed renamed relative_change reason?"
    )

    oid: str
    date: str
    author: str
    subject: str
    path: bytes
    size: int
    gen: int | None = None
    ts: str | None = None
    signers: tuple[str, ...] | None = None
    verdict: str | None = None
    file_size: int | None = None
    format: str | None = None
    tensors: int | None = None
    changed: int | None = None
    added: int | None = None
    removed: int | None = None
    renamed: int | None = None
    relative_change: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class History(JsonObject):
    """The versions of a checkpoint, oldest first, and its values in each of them.

    `layers` and `tensors` have one point for each version. Those that have NaN or Inf now come
    first, then those with the largest change in one step. `is_sealed` says whether there is a
    ledger.
    """

    KEYS = "path revision versions layers tensors"

    path: bytes
    revision: str
    versions: tuple[PastVersion, ...]
    layers: tuple[Series, ...]
    tensors: tuple[Series, ...]
    is_sealed: bool = False
