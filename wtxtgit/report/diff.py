"""What differs between two checkpoints, as data: the contract of `diff --json`.

The formulas are in `docs/diff.md`, section "Numbers".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from math import hypot, inf
from sys import float_info

from wtxtgit.model.plain import JsonObject


class TensorStatus(StrEnum):
    """What became of a tensor."""

    CHANGED = "changed"
    ADDED = "added"
    REMOVED = "removed"
    RENAMED = "renamed"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class RowBlocks(JsonObject):
    """Blocks of `rows` rows each, the last one maybe fewer: changed rows, and norms of the change.

    `l2` is None for what is compared as bytes.
    """

    KEYS = "rows changed_rows l2?"

    rows: int
    changed_rows: tuple[int, ...]
    l2: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class RowFacts(JsonObject):
    """Which of `rows` rows (of the first dimension) changed.

    `ranges` are (first, last + 1) and hold all changed rows, and no other
    where they are `exact`.
    """

    KEYS = "rows changed_rows=changed row_ranges=ranges row_ranges_exact=exact row_blocks=blocks"

    rows: int
    changed: int
    ranges: tuple[tuple[int, int], ...]
    exact: bool
    blocks: RowBlocks


@dataclass(frozen=True, slots=True)
class SideFacts(JsonObject):
    """A tensor's own values: mean and std of the finite ones, None where there is none."""

    KEYS = "mean std zeros zeros_share nan inf"

    count: int
    mean: float | None
    std: float | None
    zeros: int
    nan: int
    inf: int

    @property
    def zeros_share(self) -> float:
        return self.zeros / self.count


@dataclass(frozen=True, slots=True)
class Numbers(JsonObject):
    """How a tensor's numbers changed.

    `base_norm` is that of the numbers before that are finite on both sides.
    `relative_l2` and `cosine` are None where they would be divided by 0.
    `max_abs` is exact, an integer of integers; `max_abs_at` its index, None
    where nothing changed by any amount. `ulp` counts changed floats by their
    distance: (least of a bucket, count), each bucket up to twice its least;
    None for what is no float, or of two dtypes.
    """

    KEYS = (
        "elements changed_elements=changed changed_share *rows l2 relative_l2 max_abs "
        "max_abs_at cosine before after sparsity_change new_nan new_inf sign_flips ulp?"
    )

    elements: int
    changed: int
    rows: RowFacts
    l2: float
    base_norm: float
    relative_l2: float | None
    max_abs: float
    max_abs_at: tuple[int, ...] | None
    cosine: float | None
    before: SideFacts
    after: SideFacts
    new_nan: int
    new_inf: int
    sign_flips: int
    ulp: tuple[tuple[int, int], ...] | None

    @property
    def changed_share(self) -> float:
        return self.changed / self.elements

    @property
    def sparsity_change(self) -> float:
        return self.after.zeros_share - self.before.zeros_share


@dataclass(frozen=True, slots=True)
class ByteChange(JsonObject):
    """How a tensor changed whose items are no numbers of whole bytes; `rows` if rows are bytes."""

    KEYS = "bytes=nbytes changed_bytes=changed changed_share *rows"

    nbytes: int
    changed: int
    rows: RowFacts | None

    @property
    def changed_share(self) -> float:
        return self.changed / self.nbytes


@dataclass(frozen=True, slots=True)
class TensorDiff(JsonObject):
    """A tensor and what became of it.

    `dtype` and `shape` (as numpy has it, whatever the order of storage) are
    those after, or before where it was removed. The `base_` fields are there
    where that differs. `reason` says why values are not compared.
    """

    KEYS = "name status dtype shape base_name? base_dtype? base_shape? reason? *change"

    name: str
    status: TensorStatus
    dtype: str
    shape: tuple[int, ...]
    base_name: str | None = None
    base_dtype: str | None = None
    base_shape: tuple[int, ...] | None = None
    change: Numbers | ByteChange | None = None
    reason: str | None = None

    @property
    def weight(self) -> tuple[float, float]:
        """What a table is sorted by: the relative change, then the share that changed."""
        if isinstance(self.change, Numbers):
            relative = self.change.relative_l2
            return inf if relative is None else relative, self.change.changed_share
        # What can't be measured is looked at first.
        return inf, 1.0 if self.change is None else self.change.changed_share


@dataclass(frozen=True, slots=True)
class MetadataChange(JsonObject):
    """A value of the metadata: `path` is a JSON pointer (RFC 6901), `kind` as of a tensor.

    `before` and `after` are plain values; strings among them are cut.
    """

    path: str
    kind: TensorStatus
    before: object = None
    after: object = None

    def entries(self) -> Iterator[tuple[str, object]]:
        yield "path", self.path
        yield "change", str(self.kind)
        # A value may be null itself, which is not the same as none.
        if self.kind is not TensorStatus.ADDED:
            yield "before", self.before
        if self.kind is not TensorStatus.REMOVED:
            yield "after", self.after


@dataclass(frozen=True, slots=True)
class Summary(JsonObject):
    """What a diff came to: counts of tensors by status, and totals over those that changed.

    `relative_l2` is of the changed tensors alone, None where that is nothing
    to divide by.
    """

    KEYS = "tensors *counts changed_elements l2 relative_l2 new_nan new_inf metadata"

    tensors: int
    counts: dict[TensorStatus, int]
    changed_elements: int
    l2: float
    relative_l2: float | None
    new_nan: int
    new_inf: int
    metadata: int


@dataclass(frozen=True)
class DiffReport(JsonObject):
    """Two checkpoints compared: `a` before, `b` after.

    Without slots, for what is summed up once.
    """

    KEYS = "a b format tensors metadata notes summary"

    a: str
    b: str
    a_format: str
    b_format: str
    tensors: tuple[TensorDiff, ...] = ()
    metadata: tuple[MetadataChange, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def format(self) -> dict[str, str]:
        return {"a": self.a_format, "b": self.b_format}

    def of(self, *statuses: TensorStatus) -> list[TensorDiff]:
        """The tensors of these statuses, in the order of the files."""
        return [tensor for tensor in self.tensors if tensor.status in statuses]

    def by_change(self) -> list[TensorDiff]:
        """The changed tensors, the one that changed most first."""
        return sorted(self.of(TensorStatus.CHANGED), key=lambda tensor: tensor.weight, reverse=True)

    @cached_property
    def summary(self) -> Summary:
        counts = Counter(tensor.status for tensor in self.tensors)
        changes = [t.change for t in self.tensors if isinstance(t.change, Numbers)]
        # The largest floats stand for what is beyond them: so does their sum.
        l2 = min(hypot(*(change.l2 for change in changes)), float_info.max)
        base = min(hypot(*(change.base_norm for change in changes)), float_info.max)
        relative = l2 / base if base else None
        return Summary(
            len(self.tensors),
            {status: counts[status] for status in TensorStatus},
            sum(change.changed for change in changes),
            l2,
            relative if l2 else 0.0,
            sum(change.new_nan for change in changes),
            sum(change.new_inf for change in changes),
            len(self.metadata),
        )
