"""The tables of reports, each defined once: its columns and their contents, as data.

The terminal (`cli.output`), Markdown (`report.markdown`) and HTML (`report.html`) render cells by
their type: so no renderer forgets to escape a name, and all show the same figures.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from wtxtgit.report.diff import (
    Concern,
    DiffReport,
    MetadataChange,
    Numbers,
    TensorDiff,
    TensorStatus,
)
from wtxtgit.report.figures import (
    DATE_SHOWN,
    NONE,
    OID_SHOWN,
    apart,
    count,
    digits,
    extents,
    relative,
    size,
)

if TYPE_CHECKING:  # a diff starts for every file, and must not load the reports of a review
    from wtxtgit.report.review import (
        Flag,
        LayerGroup,
        ReviewedCommit,
        ReviewedGeneration,
        Sizes,
    )

_T = TypeVar("_T")
MOST_VALUE = 60
"""The most characters of a value of the metadata, where there is little room."""


class Name(str):
    """A name from a repository or a file, which may be hostile and of any length."""

    __slots__ = ()


class Words(str):
    """A few words from an untrusted source, such as a dtype or a subject."""

    __slots__ = ()


class Message(str):
    """A sentence of ours, which may quote untrusted names."""

    __slots__ = ()


class Json(str):
    """A value of the metadata, as JSON."""

    __slots__ = ()


class SignersCell(tuple[str, ...]):
    """Who signed; empty for nobody."""

    __slots__ = ()


class Share(NamedTuple):
    """A part of a whole, or a relative change: shown as a percentage."""

    value: float


class Measure(NamedTuple):
    """A number that is shown with a few digits."""

    value: float


class ChangeCell(NamedTuple):
    """A value before, and the value after."""

    before: str
    after: str


Cell = str | int | SignersCell | Share | Measure | ChangeCell | None
"""The content of a cell. A plain string is ours; None says that there is no figure."""


@dataclass(frozen=True, slots=True)
class Table(Generic[_T]):
    """Columns by their titles, each with a function for its cells; those in `right` are numbers.

    `noun` says what a row stands for, for the note on rows that are left out.
    """

    noun: str
    columns: Mapping[str, Callable[[_T], Cell]]
    right: tuple[str, ...] = ()

    def rows(self, things: Iterable[_T]) -> list[list[Cell]]:
        return [[cell(thing) for cell in self.columns.values()] for thing in things]


def relative_cell(tensor: TensorDiff) -> Cell:
    """Return how much a tensor changed relative to its size, or why there is no such number."""
    if not isinstance(tensor.change, Numbers):
        return "not compared" if tensor.change is None else tensor.change.compared_by
    change = tensor.change.relative_l2
    return relative(None) if change is None else Share(change)


def share_cell(tensor: TensorDiff) -> Cell:
    """Return which share of a tensor changed."""
    return None if tensor.change is None else Share(tensor.change.changed_share)


def l2_cell(tensor: TensorDiff) -> Cell:
    return Measure(tensor.change.l2) if isinstance(tensor.change, Numbers) else None


def max_cell(tensor: TensorDiff) -> Cell:
    return Measure(tensor.change.max_abs) if isinstance(tensor.change, Numbers) else None


def _dtype(tensor: TensorDiff) -> Cell:
    dtype = Words(tensor.dtype)
    return dtype if tensor.base_dtype is None else ChangeCell(Words(tensor.base_dtype), dtype)


def _shape(tensor: TensorDiff) -> Cell:
    shape = extents(tensor.shape)
    return shape if tensor.base_shape is None else ChangeCell(extents(tensor.base_shape), shape)


def name_cell(tensor: TensorDiff) -> Name | ChangeCell:
    """Return a tensor's name, and its former name if it was renamed."""
    name = Name(tensor.name)
    return name if tensor.base_name is None else ChangeCell(Name(tensor.base_name), name)


def before_cell(change: MetadataChange) -> Cell:
    """Return the former value of the metadata, as JSON."""
    return _values(change)[0]


def after_cell(change: MetadataChange) -> Cell:
    """Return the new value of the metadata, as JSON."""
    return _values(change)[1]


def _values(change: MetadataChange) -> tuple[Json | None, Json | None]:
    if change.kind is TensorStatus.ADDED:
        return None, Json(_json(change.after))
    if change.kind is TensorStatus.REMOVED:
        return Json(_json(change.before)), None
    before, after = apart(_json(change.before), _json(change.after), MOST_VALUE)
    return Json(before), Json(after)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def tensors_changed(diff: DiffReport) -> str:
    """Return `2 of 44, +1/-3`: changed tensors of all, and how many were added and removed."""
    counts = diff.summary.counts
    return _of(
        counts[TensorStatus.CHANGED],
        len(diff.tensors),
        counts[TensorStatus.ADDED],
        counts[TensorStatus.REMOVED],
    )


def layer_tensors(group: LayerGroup) -> str:
    """Return the same for a layer."""
    return _of(group.changed, group.tensors, group.added, group.removed)


def parameters_changed(*diffs: DiffReport, spell: Callable[[int], str] = count) -> str:
    """Return `1,024, +64/-0`: changed elements, and those of added and removed tensors.

    A tensor whose shape changed counts as both added and removed. Tensors compared as bytes are not
    counted; a dash if there are no others.
    """
    added, removed = _turnover(tensor for diff in diffs for tensor in diff.tensors)
    words = []
    if not diffs or any(map(_is_measured, diffs)):
        words.append(spell(sum(diff.summary.changed_elements for diff in diffs)))
    if added or removed:
        words.append(f"+{spell(added)}/-{spell(removed)}")
    return ", ".join(words) or NONE


def relative_change(diff: DiffReport) -> str:
    """Return the change of everything that changed, relative to what it was before."""
    return relative(diff.summary.relative_l2, measured=_is_measured(diff))


def layer_change(group: LayerGroup) -> str:
    """Return the same for a layer."""
    return relative(group.relative_l2, measured=group.is_measured)


def sizes_told(sizes: Sizes, to: str) -> str:
    """Return the sizes of the file and of its text before and after, with `to` between the two."""
    pairs = (
        ("file", sizes.file_before, sizes.file_after),
        ("text", sizes.text_before, sizes.text_after),
    )
    words = []
    for what, before, after in pairs:
        known = [size(value) for value in (before, after) if value is not None]
        if known:
            words.append(f"{what} {f' {to} '.join(dict.fromkeys(known))}")
    limit = "" if sizes.limit is None else f", limit {size(sizes.limit)} per blob"
    return ", ".join(words) + limit


def _of(changed: int, tensors: int, added: int, removed: int) -> str:
    turnover = f", +{count(added)}/-{count(removed)}" if added or removed else ""
    return f"{count(changed)} of {count(tensors)}{turnover}"


def _is_measured(diff: DiffReport) -> bool:
    """Whether the totals cover something, or nothing changed."""
    if any(isinstance(tensor.change, Numbers) for tensor in diff.tensors):
        return True
    return not (
        diff.unread
        or diff.of(
            TensorStatus.CHANGED, TensorStatus.ADDED, TensorStatus.REMOVED, TensorStatus.UNREAD
        )
    )


def _turnover(tensors: Iterable[TensorDiff]) -> tuple[int, int]:
    """Return how many elements were added, and how many removed."""
    added = removed = 0
    for tensor in tensors:
        if tensor.status is TensorStatus.ADDED:
            added += prod(tensor.shape)
        elif tensor.status is TensorStatus.REMOVED:
            removed += prod(tensor.shape)
        elif tensor.base_shape is not None and tensor.status is TensorStatus.CHANGED:
            added += prod(tensor.shape)
            removed += prod(tensor.base_shape)
    return added, removed


FLAGS: Table[Flag] = Table(
    "risk flag",
    {
        "risk": lambda flag: str(flag.risk),
        "tensor": lambda flag: Name(flag.tensor or ""),
        "what": lambda flag: Message(flag.message),
    },
)
CONCERNS: Table[tuple[TensorDiff, Concern]] = Table(
    "risk",
    {
        "risk": lambda pair: str(pair[1].risk),
        "tensor": lambda pair: Name(pair[0].name),
        "what": lambda pair: Message(pair[1].message),
    },
)
"""What a reviewer must not miss in a diff."""
TENSORS: Table[TensorDiff] = Table(
    "changed tensor",
    {
        "tensor": lambda tensor: Name(tensor.name),
        "relative": relative_cell,
        "elements": share_cell,
        "L2": l2_cell,
        "max": max_cell,
        "dtype": _dtype,
        "shape": _shape,
    },
)
OTHERS: Table[TensorDiff] = Table(
    "such tensor",
    {
        "change": lambda tensor: str(tensor.status),
        "tensor": name_cell,
        "dtype": lambda tensor: Words(tensor.dtype),
        "shape": lambda tensor: extents(tensor.shape),
    },
)
"""Tensors that were removed, added or renamed."""
METADATA: Table[MetadataChange] = Table(
    "metadata change",
    {"metadata": lambda change: Name(change.path), "before": before_cell, "after": after_cell},
)
LAYERS: Table[LayerGroup] = Table(
    "changed layer",
    {
        "layer": lambda group: Name(group.name),
        "relative": layer_change,
        "L2": lambda group: digits(group.l2) if group.is_measured else NONE,
        "tensors": layer_tensors,
        "elements": lambda group: group.changed_elements if group.is_measured else NONE,
    },
    right=("relative", "L2", "tensors", "elements"),
)
GENERATIONS: Table[ReviewedGeneration] = Table(
    "generation",
    {
        "generation": lambda generation: str(generation.gen),
        "time": lambda generation: Words(generation.ts),
        "signed by": lambda generation: SignersCell(generation.signers),
        "commit": lambda generation: Name((generation.commit or "")[:OID_SHOWN]),
        "verdict": lambda generation: Words(generation.verdict),
    },
    right=("generation",),
)
COMMITS: Table[ReviewedCommit] = Table(
    "commit",
    {
        "commit": lambda commit: Name(commit.oid[:OID_SHOWN]),
        "date": lambda commit: Words(commit.date[:DATE_SHOWN]),
        "author": lambda commit: Words(commit.author),
        "subject": lambda commit: Words(commit.subject),
    },
)
