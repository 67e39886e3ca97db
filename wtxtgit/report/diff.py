"""What differs between two checkpoints, as data: the contract of `diff --json`.

The formulas are in `docs/diff.md`, section "Numbers".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from math import hypot, inf
from sys import float_info

from wtxtgit.errors import NotRead, counted
from wtxtgit.model.plain import JsonObject


class TensorStatus(StrEnum):
    """What became of a tensor; of one that is `unread` it is not known, since it can't be read."""

    CHANGED = "changed"
    ADDED = "added"
    REMOVED = "removed"
    RENAMED = "renamed"
    UNREAD = "unread"
    SAME = "same"


class ValueRisk(StrEnum):
    """What a reviewer must not miss in tensor values, worst first: `docs/diff.md`, "Risks"."""

    NAN = "new-nan"
    INF = "new-inf"
    ZERO = "all-zero"
    CONSTANT = "constant"
    NEGATED = "negated"
    MOVED = "other-tensor"
    REORDERED = "reordered"
    COLLAPSED = "collapsed-rows"
    SATURATED = "saturated"
    NORM = "outlier-norm"


@dataclass(frozen=True, slots=True)
class Concern(JsonObject):
    """A risk of a tensor's values, and why."""

    risk: ValueRisk
    message: str


OUTLIER = 10.0
"""A norm is an outlier if it is this many times another one."""
LEAST_ITEMS = 16
"""A tensor of fewer items has no significant norm: counters and rates may change by any factor."""
OPPOSITE = -0.9
"""With this cosine or a smaller one, a tensor's values point the other way."""
_NEARLY = 1e-9
"""How far a cosine and a relative change may be from those of a negation, by rounding."""
_ROUNDED = 2**-9
"""How much quotients of two f16 may differ, relatively, by rounding."""
_OF_OPTIMIZER = re.compile(
    r"(^|[./])state[./](.+[./])?"
    r"(acc_delta|ax|eta|exp_avg|exp_avg_sq|exp_inf|grad_avg|max_exp_avg_sq|momentum_buffer|mu"
    r"|mu_product|prev|square_avg|step|step_size|sum)$"
)
"""Names of what torch's optimizers keep for each parameter."""
_OF_STEP = 0.1
"""Within this distance from 1 are the factors of scales after a step of training too small to
change the numbers of a block."""
_EQUAL = 1e-14
"""A standard deviation up to this share of the mean may be nothing but rounding."""


@dataclass(frozen=True, slots=True)
class RowIndices:
    """How many rows there are, and the indices of the first ones."""

    count: int
    first: tuple[tuple[int, ...], ...] = ()

    def of(self, rows: int) -> str:
        """Return `3 of 64 rows`, with their indices if they are few."""
        named = [
            str(row_index[0]) if len(row_index) == 1 else str(list(row_index))
            for row_index in self.first
        ]
        more = ", ..." if self.count > len(named) else ""
        listed = "" if self.count == rows else f" ({', '.join(named)}{more})"
        return f"{self.count:,} of {counted(rows, 'row')}{listed}"


@dataclass(frozen=True, slots=True)
class RowStates:
    """How many of `rows` rows collapsed, were saturated or outgrew others: see `tensors.row_risks`.

    `at_limit` is how many more items than before have the largest number of their dtype.
    """

    rows: int
    collapsed: RowIndices
    saturated: RowIndices
    outgrown: RowIndices
    at_limit: int = 0

    def concerns(self) -> Iterator[Concern]:
        if self.collapsed.count:
            message = f"{self.collapsed.of(self.rows)} became constant"
            yield Concern(ValueRisk.COLLAPSED, message)
        if self.saturated.count:
            message = f"in {self.saturated.of(self.rows)}, half the items reached the row's limit"
            yield Concern(ValueRisk.SATURATED, message)
        if self.at_limit:
            message = f"{counted(self.at_limit, 'item')} reached the dtype's largest number"
            yield Concern(ValueRisk.SATURATED, message)
        if self.outgrown.count:
            which = self.outgrown.of(self.rows)
            message = f"the norm of {which} grew more than {OUTLIER:.0f} times"
            yield Concern(ValueRisk.NORM, message)


def _became(new_nan: int, new_inf: int, total: int, what: str) -> Iterator[Concern]:
    for risk, word, count in ((ValueRisk.NAN, "NaN", new_nan), (ValueRisk.INF, "Inf", new_inf)):
        if count:
            yield Concern(risk, f"{counted(count, what)} of {total:,} became {word}")


@dataclass(frozen=True, slots=True)
class ScaleStates:
    """Blocks of packed numbers whose scales became NaN or infinite, and blocks that are 0.

    For types whose scales are not known (without `has_scales`) a block is one byte. In `scaled` of
    the `changed` blocks only scales changed, by `factors` from the least to the largest, if these
    can be told. `cosine` and `times` (the norm after divided by that before) are those of the
    scales; both None if they are not known.
    """

    nbytes: int
    changed_bytes: int
    blocks: int
    new_nan: int
    new_inf: int
    zero_before: int
    zero_after: int
    changed: int = 0
    scaled: int = 0
    factors: tuple[float, float] | None = None
    cosine: float | None = None
    times: float | None = None
    has_scales: bool = False

    def concerns(self) -> Iterator[Concern]:
        """Yield risks that follow from the scales alone; the numbers are not known."""
        yield from _became(self.new_nan, self.new_inf, self.blocks, "block")
        if self.zero_after == self.blocks:
            if self.zero_before < self.blocks:
                yield Concern(ValueRisk.ZERO, "all items became 0")
            return
        by_factor = self.by_factor()
        if by_factor is not None:
            yield by_factor
            return
        if self.cosine is None or self.times is None:
            return
        if self.cosine <= OPPOSITE:
            message = f"the scales point the other way: cosine {self.cosine:.6f}"
            yield Concern(ValueRisk.NEGATED, message)
        if not 1 / OUTLIER < self.times < OUTLIER:
            message = f"the norm of the scales became {self.times:.3g} times its old value"
            yield Concern(ValueRisk.NORM, message)

    def by_factor(self) -> Concern | None:
        """Return by which factors blocks were multiplied, if that is most of what changed, and more
        than small steps of training do.
        """
        if self.factors is None or 2 * self.scaled < self.changed:
            return None
        return self._scaled(*self.factors)

    def _scaled(self, least: float, most: float) -> Concern | None:
        risk = ValueRisk.NEGATED if least < 0 else ValueRisk.NORM
        by = (least + most) / 2
        is_one = self.scaled == self.blocks
        if is_one and most - least <= _ROUNDED * abs(by) and abs(by - 1) > _ROUNDED:
            if abs(by + 1) <= _ROUNDED:
                return Concern(risk, "all items were negated")
            return Concern(risk, f"all items were multiplied by {by:.3g}")
        if least >= 1 - _OF_STEP and most <= 1 + _OF_STEP:
            return None
        which = f"{self.scaled:,} of {counted(self.blocks, 'block')}"
        factors = f"{least:.3g} to {most:.3g}"
        return Concern(risk, f"in {which} only the scales changed, by factors from {factors}")


@dataclass(frozen=True, slots=True)
class RowBlocks(JsonObject):
    """Changed rows, in blocks of `rows` rows (the last may have fewer), and norms of the change.

    `l2` is None if the tensor is compared as bytes.
    """

    KEYS = "rows changed_rows l2?"

    rows: int
    changed_rows: tuple[int, ...]
    l2: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class RowFacts(JsonObject):
    """Which of `rows` rows (of the first dimension) changed.

    `ranges` are (first, last + 1). They contain all changed rows, and if `exact` no others.
    """

    KEYS = "rows changed_rows=changed row_ranges=ranges row_ranges_exact=exact row_blocks=blocks"

    rows: int
    changed: int
    ranges: tuple[tuple[int, int], ...]
    exact: bool
    blocks: RowBlocks


@dataclass(frozen=True, slots=True)
class SideFacts(JsonObject):
    """A tensor's own values; mean and std are of the finite ones, None if there are none."""

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

    @property
    def is_zero(self) -> bool:
        """Whether all items are 0."""
        return self.zeros == self.count

    @property
    def is_constant(self) -> bool:
        """Whether all items are one finite number; there must be at least two items."""
        if self.mean is None or self.std is None or self.nan or self.inf or self.count < 2:
            return False
        return self.std <= _EQUAL * abs(self.mean)

    @property
    def root_mean_square(self) -> float:
        """The root mean square of the finite items; 0 if there are none."""
        return hypot(self.mean or 0.0, self.std or 0.0)


@dataclass(frozen=True, slots=True)
class Numbers(JsonObject):
    """How a tensor's numbers changed.

    `base_norm` is the norm of the numbers before, of those that are finite on both sides.
    `relative_l2` and `cosine` are None if they would divide by 0. `max_abs` is exact, and an
    integer for integers; `max_abs_at` is its index, None if nothing changed by a finite amount.
    `ulp` counts changed floats by their distance, as (least of a bucket, count), where each bucket
    reaches up to twice its least; None for items that are not floats, or if the dtypes differ.
    `is_reordered` says that both sides have the same items. `is_quantised` if a side was decoded
    from blocks of a quantised type; `scales` are set if both are of one type.
    """

    KEYS = (
        "elements changed_elements=changed changed_share *rows l2 relative_l2 max_abs "
        "max_abs_at cosine before after sparsity_change new_nan new_inf sign_flips ulp? "
        "bytes=nbytes? changed_bytes?"
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
    states: RowStates | None = None
    is_reordered: bool = False
    is_quantised: bool = False
    scales: ScaleStates | None = None

    @property
    def nbytes(self) -> int | None:
        """The bytes of quantised numbers as they are stored; None for other numbers."""
        return None if self.scales is None else self.scales.nbytes

    @property
    def changed_bytes(self) -> int | None:
        """How many of `nbytes` differ."""
        return None if self.scales is None else self.scales.changed_bytes

    @property
    def changed_share(self) -> float:
        return self.changed / self.elements

    @property
    def is_alike(self) -> bool:
        """Whether both sides could have the same items in another order."""
        a, b = self.before, self.after
        if (a.zeros, a.nan, a.inf) != (b.zeros, b.nan, b.inf):
            return False
        norm = max(a.root_mean_square, b.root_mean_square)
        means, spreads = ((statistics.mean or 0.0, statistics.std or 0.0) for statistics in (a, b))
        return all(abs(x - y) <= _NEARLY * norm for x, y in zip(means, spreads, strict=True))

    @property
    def sparsity_change(self) -> float:
        return self.after.zeros_share - self.before.zeros_share

    @property
    def is_flat(self) -> bool:
        """Whether all items became one number; then nothing more is said about rows."""
        return self.after.is_constant and not self.before.is_constant

    def concerns(self) -> Iterator[Concern]:
        """Yield what a reviewer must not miss, in the order of `ValueRisk`."""
        yield from _became(self.new_nan, self.new_inf, self.elements, "item")
        if self.after.is_zero:
            if not self.before.is_zero:
                yield Concern(ValueRisk.ZERO, "all items became 0")
            return
        if self.is_flat:
            yield Concern(ValueRisk.CONSTANT, f"all items became {self.after.mean:.6g}")
        by_factor = None if self.scales is None else self.scales.by_factor()
        if by_factor is None:
            yield from self._negated()
        elif by_factor.risk is ValueRisk.NEGATED:
            yield by_factor
        if self.is_reordered:
            message = "it has the same items in another order"
            yield Concern(ValueRisk.REORDERED, message)
        yield from () if self.states is None else self.states.concerns()
        if by_factor is None:
            yield from self._outlier()
        elif by_factor.risk is ValueRisk.NORM:
            yield by_factor

    def _outlier(self) -> Iterator[Concern]:
        before, after = self.before.root_mean_square, self.after.root_mean_square
        if self.elements >= LEAST_ITEMS and before:
            times = after / before
            if not 1 / OUTLIER < times < OUTLIER:
                yield Concern(ValueRisk.NORM, f"the norm became {times:.3g} times its old value")

    @property
    def is_negation(self) -> bool:
        """Whether all items were multiplied by -1."""
        is_opposite = self.cosine is not None and self.cosine <= _NEARLY - 1
        return is_opposite and abs((self.relative_l2 or 0.0) - 2) <= _NEARLY

    def _negated(self) -> Iterator[Concern]:
        if self.cosine is None or self.relative_l2 is None:
            return
        if self.is_negation:
            yield Concern(ValueRisk.NEGATED, "all items were negated")
        elif self.cosine <= OPPOSITE and self.elements >= LEAST_ITEMS:
            message = f"the items point the other way: cosine {self.cosine:.6f}"
            yield Concern(ValueRisk.NEGATED, message)


@dataclass(frozen=True, slots=True)
class ByteChange(JsonObject):
    """How a tensor changed whose items are no numbers that are known.

    `rows` is set if its rows are whole bytes.
    """

    KEYS = "bytes=nbytes changed_bytes=changed changed_share *rows compared_by"

    nbytes: int
    changed: int
    rows: RowFacts | None
    states: ScaleStates | None = None

    @property
    def changed_share(self) -> float:
        return self.changed / self.nbytes

    @property
    def compared_by(self) -> str:
        """What is known of the change besides its bytes: `scales`, or nothing but `bytes`."""
        return "scales" if self.states is not None and self.states.has_scales else "bytes"

    def concerns(self) -> Iterator[Concern]:
        """Yield what a reviewer must not miss."""
        yield from () if self.states is None else self.states.concerns()


@dataclass(frozen=True, slots=True)
class TensorDiff(JsonObject):
    """A tensor and how it changed.

    `dtype` and `shape` (as numpy has it, whatever the order of storage) are those after the change,
    or before it for a removed tensor. A `base_` field is set if its value was different before.
    `reason` says why values are not compared. `values_of` is the name of another tensor that had
    the values before that this one has now.
    """

    KEYS = (
        "name status dtype shape base_name? base_dtype? base_shape? reason? values_of? "
        "risks=told_concerns? *change"
    )

    name: str
    status: TensorStatus
    dtype: str
    shape: tuple[int, ...]
    base_name: str | None = None
    base_dtype: str | None = None
    base_shape: tuple[int, ...] | None = None
    change: Numbers | ByteChange | None = None
    reason: str | None = None
    values_of: str | None = None

    @property
    def concerns(self) -> tuple[Concern, ...]:
        """What a reviewer must not miss in its values."""
        concerns = [] if self.change is None else list(self.change.concerns())
        if self.is_of_optimizer:
            concerns = [concern for concern in concerns if not self._is_usual(concern)]
        if self.values_of is not None:
            message = f"it has the values that {self.values_of} had before"
            concerns.append(Concern(ValueRisk.MOVED, message))
        return tuple(concerns)

    @property
    def is_of_optimizer(self) -> bool:
        """Whether the name is that of something which an optimizer keeps for a parameter."""
        return _OF_OPTIMIZER.search(self.name) is not None

    def _is_usual(self, concern: Concern) -> bool:
        """Whether averages of gradients do this in every training: they grow from 0 and turn."""
        if concern.risk is ValueRisk.NEGATED and isinstance(self.change, Numbers):
            return not self.change.is_negation
        return concern.risk is ValueRisk.NORM

    @property
    def told_concerns(self) -> tuple[Concern, ...] | None:
        """The concerns, None if there are none."""
        return self.concerns or None

    @property
    def weight(self) -> tuple[int, float, float]:
        """The key by which a table is sorted: worst risk, relative change, changed share."""
        order = list(ValueRisk)
        worst = max(
            (len(order) - order.index(concern.risk) for concern in self.concerns), default=0
        )
        if isinstance(self.change, Numbers):
            relative = self.change.relative_l2
            return worst, inf if relative is None else relative, self.change.changed_share
        # A change that can't be measured sorts first.
        return worst, inf, 1.0 if self.change is None else self.change.changed_share


@dataclass(frozen=True, slots=True)
class MetadataChange(JsonObject):
    """A value of the metadata: `path` is a JSON pointer (RFC 6901), `change` is as for a tensor.

    `before` and `after` are plain values; strings in them are truncated. It `matters` if it is more
    than a number, time or hash that every save writes anew: `docs/review.md`, "Metadata".
    """

    KEYS = "path change=kind before? after?"

    path: str
    kind: TensorStatus
    before: object = None
    after: object = None
    matters: bool = False

    def entries(self) -> Iterator[tuple[str, object]]:
        yield "path", self.path
        yield "change", str(self.kind)
        # None stays in the JSON: a value may itself be null, which differs from no value.
        if self.kind is not TensorStatus.ADDED:
            yield "before", self.before
        if self.kind is not TensorStatus.REMOVED:
            yield "after", self.after


OTHER_BYTES = "tensors and metadata are the same, but other bytes of the files differ"


@dataclass(frozen=True, slots=True)
class PartChange(JsonObject):
    """A part of a file that is not a tensor; or, if `name` is None, bytes that belong to no part.

    `offset` is its position after the change, or before it if it is gone; `before` and `after` are
    sizes in bytes, None for none. `form` says in words how a part whose values are compared as
    metadata is written differently. Of bytes that belong to no part `looks_like` is the format with
    whose magic they start, `zeros` says that all of them are 0, and `within` is the chunk with the
    file that they are in, if that is not the whole file. In a set, `file` is the one that all of
    this is in.

    Without name and offset it is about many parts at once, with a count: of members of a zip that
    are `recompressed`; of tensors or parts that are `reordered` but otherwise unchanged; of tensors
    that `moved` to another shard of their file; of tensors that are `oversized`: they have another
    number of bytes beyond their items than before. Without a count, nothing else differs, and yet
    the files do.
    """

    KEYS = (
        "name change=status offset within? before after looks_like? zeros=are_zeros? "
        "recompressed? reordered? moved? oversized? form? file?"
    )

    name: str | None
    status: TensorStatus
    offset: int | None
    before: int | None
    after: int | None
    looks_like: str | None = None
    are_zeros: bool | None = None
    recompressed: int | None = None
    reordered: int | None = None
    moved: int | None = None
    oversized: int | None = None
    form: str | None = None
    within: str | None = None
    file: str | None = None

    @property
    def message(self) -> str:
        """What became of the part, in words."""
        return self._message if self.file is None else f"{self.file}: {self._message}"

    @property
    def _message(self) -> str:
        if self.form is not None:
            return f"part {self.name}: {self.form}"
        if self.name is not None:
            words = {
                TensorStatus.ADDED: f"new, {counted(self.after or 0, 'byte')}",
                TensorStatus.REMOVED: f"removed, was {counted(self.before or 0, 'byte')}",
            }
            changed = f"changed bytes, {self.before} before, {self.after} after"
            return f"part {self.name}: {words.get(self.status, changed)}"
        if self.recompressed is not None:
            verb = "is" if self.recompressed == 1 else "are"
            members = counted(self.recompressed, "member")
            return f"{members} of the zip {verb} compressed in another way"
        if self.reordered is not None:
            return f"{self.reordered:,} tensors or parts stand in another order"
        if self.moved is not None:
            verb = "is" if self.moved == 1 else "are"
            return f"{counted(self.moved, 'tensor')} {verb} in another shard of the file"
        if self.oversized is not None:
            verb = "has" if self.oversized == 1 else "have"
            tensors = counted(self.oversized, "tensor")
            return f"{tensors} {verb} another number of bytes beyond the items than before"
        if self.status is TensorStatus.CHANGED:
            return OTHER_BYTES
        size = counted(
            self.before or 0 if self.after is None else self.after,
            "zero byte" if self.are_zeros else "byte",
        )
        alike = "" if self.looks_like is None else f", which begin like {self.looks_like},"
        fate = "were removed" if self.after is None else "were added"
        place = f"offset {self.offset}"
        place += "" if self.within is None else f" of chunk {self.within}"
        return f"{size} at {place}{alike} that belong to no tensor or part {fate}"


@dataclass(frozen=True, slots=True)
class RepeatedName(JsonObject):
    """A name that several tensors of a file have, or several members of a zip."""

    name: str
    count: int

    @property
    def message(self) -> str:
        return (
            f"{self.count} tensors or members are named {self.name}: "
            "which one is loaded depends on the reader"
        )


@dataclass(frozen=True, slots=True)
class Summary(JsonObject):
    """The totals of a diff: counts of tensors by status, and sums over those that changed.

    `relative_l2` covers only the changed tensors; it is None if it would divide by 0, or if nothing
    is known to have changed and something could not be read.
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


@dataclass(frozen=True, repr=False)
class DiffReport(JsonObject):
    """Two checkpoints compared: `a` before, `b` after.

    `imports` are the names that unpickling `b` would import, and may call, which torch does not
    allow by itself and which `a` does not have. `repeated` are names that occur more than once in
    `b`, and more often than in `a`. `unread` says what, besides tensors, could not be read, and so
    was not compared.
    """

    # Not slotted, for its cached properties.

    KEYS = (
        "a b format tensors metadata parts imports=told_imports? repeated=told_repeated? "
        "unread=told_unread? notes summary"
    )

    a: str
    b: str
    a_format: str
    b_format: str
    tensors: tuple[TensorDiff, ...] = ()
    metadata: tuple[MetadataChange, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)
    parts: tuple[PartChange, ...] = ()
    imports: tuple[str, ...] = ()
    repeated: tuple[RepeatedName, ...] = ()
    unread: tuple[NotRead, ...] = ()

    @property
    def told_unread(self) -> tuple[str, ...] | None:
        """What could not be read, None if that is nothing."""
        return self.unread or None

    @property
    def told_repeated(self) -> tuple[RepeatedName, ...] | None:
        """The repeated names, None if there are none."""
        return self.repeated or None

    @property
    def told_imports(self) -> tuple[str, ...] | None:
        """The imports, None if there are none."""
        return self.imports or None

    def import_messages(self) -> Iterator[str]:
        """Yield the imports in words."""
        for name in self.imports:
            yield f"unpickling it would import, and may call, {name}"

    def __repr__(self) -> str:
        return f"<DiffReport: {self._totals()}>"

    def _totals(self) -> str:
        counts = ", ".join(f"{n} {status}" for status, n in self.summary.counts.items() if n)
        return f"{counts or 'no tensors'}, {len(self.metadata)} in metadata"

    def _repr_html_(self) -> str:
        """Return a table of the tensors that differ as HTML, for IPython."""
        from wtxtgit.model.notebook import shape_of, table

        others = (TensorStatus.REMOVED, TensorStatus.ADDED, TensorStatus.RENAMED)
        differing = [*self.by_change(), *self.of(*others)]
        rows = (
            (
                tensor.name,
                tensor.status,
                tensor.dtype,
                shape_of(tensor.shape),
                f"{tensor.change.relative_l2:.3g}"
                if isinstance(tensor.change, Numbers) and tensor.change.relative_l2 is not None
                else "",
                "; ".join(concern.message for concern in tensor.concerns),
            )
            for tensor in differing
        )
        columns = ("tensor", "status", "dtype", "shape", "relative change", "risks")
        title = f"{self.a} -> {self.b}: {self._totals()}"
        return table(title, columns, rows, len(differing))

    @property
    def format(self) -> dict[str, str]:
        return {"a": self.a_format, "b": self.b_format}

    def of(self, *statuses: TensorStatus) -> list[TensorDiff]:
        """Return the tensors that have one of these statuses, in the order of the files."""
        return [tensor for tensor in self.tensors if tensor.status in statuses]

    def by_change(self) -> list[TensorDiff]:
        """Return the tensors that changed, or may have: worst risks first, then largest change."""
        uncertain = self.of(TensorStatus.CHANGED, TensorStatus.UNREAD)
        return sorted(uncertain, key=lambda tensor: tensor.weight, reverse=True)

    @property
    def exit_code(self) -> int:
        """0, or what a command ends with whose comparison has to leave something out."""
        reasons = (*(tensor.reason for tensor in self.tensors), *self.unread)
        return max((one.exit_code for one in reasons if isinstance(one, NotRead)), default=0)

    @cached_property
    def concerns(self) -> list[tuple[TensorDiff, Concern]]:
        """What a reviewer must not miss in the values, by risk; tensors as in `by_change`."""
        concerns = [(tensor, concern) for tensor in self.by_change() for concern in tensor.concerns]
        order = list(ValueRisk)
        return sorted(concerns, key=lambda pair: order.index(pair[1].risk))

    @cached_property
    def summary(self) -> Summary:
        counts = Counter(tensor.status for tensor in self.tensors)
        changes = [t.change for t in self.tensors if isinstance(t.change, Numbers)]
        # The largest float stands for anything beyond it, also for a sum.
        l2 = min(hypot(*(change.l2 for change in changes)), float_info.max)
        base = min(hypot(*(change.base_norm for change in changes)), float_info.max)
        relative = l2 / base if base else None
        return Summary(
            len(self.tensors),
            {status: counts[status] for status in TensorStatus},
            sum(change.changed for change in changes),
            l2,
            relative if l2 else None if counts[TensorStatus.UNREAD] else 0.0,
            sum(change.new_nan for change in changes),
            sum(change.new_inf for change in changes),
            len(self.metadata),
        )
