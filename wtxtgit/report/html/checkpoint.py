"""A checkpoint as a page shows it."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wtxtgit.errors import clipped, counted
from wtxtgit.report.diff import DiffReport, MetadataChange, Status, TensorDiff
from wtxtgit.report.figures import NONE, count, extents, number
from wtxtgit.report.html import tensors
from wtxtgit.report.html.bounds import MOST_NAME, MOST_TEXT, Listed, Room, first
from wtxtgit.report.html.history import History, SizeChart, history, size_chart
from wtxtgit.report.html.layers import GroupLine, group_chart, spread
from wtxtgit.report.html.tensors import Detail, Picture, Row
from wtxtgit.report.review import Flag, Reviewed
from wtxtgit.report.review_figures import parameters_changed, relative_change, tensors_changed
from wtxtgit.report.risks import SEVERE, Chip, chip, chips

_MOST_VALUE = 200


@dataclass(frozen=True, slots=True)
class FlagLine:
    """A flag; `target` is the id of all about its tensor, None where the page lacks that."""

    chip: Chip
    message: str
    tensor: str
    target: str | None


@dataclass(frozen=True, slots=True)
class Other:
    """A tensor that was added, removed or renamed."""

    status: str
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the metadata before and after, as JSON."""

    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All that a page shows of a checkpoint; `target` is its id.

    `changed` and `relative` are for the list of checkpoints, `same` is of the
    tensors that are not listed.
    """

    target: str
    path: str
    base_path: str
    formats: str
    unfolded: bool
    chips: tuple[Chip, ...]
    reason: str
    totals: tuple[tuple[str, str], ...]
    changed: str
    relative: str
    flags: Listed[FlagLine]
    history: History
    sizes: SizeChart
    groups: Listed[GroupLine]
    spread: Picture | None
    rows: Listed[Row]
    details: tuple[Detail, ...]
    others: Listed[Other]
    metadata: Listed[Value]
    same: tuple[str, ...]
    notes: Listed[str]


def checkpoint(one: Reviewed, target: str, room: Room, *, unfolded: bool) -> Checkpoint:
    """As much of a checkpoint as there is room for; `target` is its id in the page."""
    diff, changed = one.diff, one.changed
    targets = {tensor.name: f"{target}-t{n}" for n, tensor in enumerate(changed[: room.pictured])}
    flags: dict[str, list[Flag]] = defaultdict(list)
    for flag in one.flags:
        if flag.tensor is not None:
            flags[flag.tensor].append(flag)
    return Checkpoint(
        target,
        _path(one.path),
        "" if one.base_path in (None, one.path) else _path(one.base_path or b""),
        "" if diff is None else _formats(diff),
        unfolded,
        chips(one.flags),
        clipped(one.reason or "", MOST_TEXT),
        () if diff is None else tuple(_totals(diff)),
        NONE if diff is None else tensors_changed(diff),
        NONE if diff is None else relative_change(diff),
        _flags(one.flags, targets, room.flags),
        history(one, room.listed),
        size_chart(one.sizes),
        group_chart(one.groups, room.groups),
        spread(changed),
        first(changed, room.rows).each(
            lambda t: tensors.row(t, flags[t.name], targets.get(t.name))
        ),
        tuple(
            tensors.detail(t, flags[t.name], one.distributions.get(t.name), targets[t.name])
            for t in changed[: room.pictured]
        ),
        first(one.others, room.listed).each(_other),
        first(() if diff is None else diff.metadata, room.listed).each(_value),
        () if diff is None else tuple(_same(diff)),
        first(() if diff is None else diff.notes, room.listed).each(_text),
    )


def _path(path: bytes) -> str:
    return clipped(os.fsdecode(path), MOST_NAME)


def _text(message: str) -> str:
    return clipped(message, MOST_TEXT)


def _formats(diff: DiffReport) -> str:
    if diff.a_format == diff.b_format:
        return diff.b_format
    return f"{diff.a_format or NONE} \u2192 {diff.b_format or NONE}"


def _totals(diff: DiffReport) -> Iterator[tuple[str, str]]:
    summary = diff.summary
    changed = summary.counts[Status.CHANGED]
    yield "Tensors changed", f"{count(changed)} of {count(summary.tensors)}"
    yield "Parameters changed", parameters_changed(diff)
    if changed:
        told = relative_change(diff)
        yield "Relative L2", told
        yield "L2", NONE if told == NONE else number(summary.l2)
    for status in (Status.ADDED, Status.REMOVED, Status.RENAMED):
        if summary.counts[status]:
            yield f"Tensors {status}", count(summary.counts[status])
    if summary.metadata:
        yield "Metadata changes", count(summary.metadata)


def _flags(flags: Sequence[Flag], targets: Mapping[str, str], most: int) -> Listed[FlagLine]:
    ranked = sorted(flags, key=lambda flag: flag.risk not in SEVERE)
    return first(ranked, most).each(
        lambda flag: FlagLine(
            chip(flag.risk),
            _text(flag.message),
            clipped(flag.tensor or "", MOST_NAME),
            None if flag.tensor is None else targets.get(flag.tensor),
        )
    )


def _other(tensor: TensorDiff) -> Other:
    name = clipped(tensor.name, MOST_NAME)
    if tensor.base_name is not None:
        name = f"{clipped(tensor.base_name, MOST_NAME)} \u2192 {name}"
    kind = f"{tensor.dtype}, {extents(tensor.shape)}"
    return Other(str(tensor.status), name, clipped(kind, MOST_TEXT))


def _value(change: MetadataChange) -> Value:
    before = NONE if change.kind is Status.ADDED else _json(change.before)
    after = NONE if change.kind is Status.REMOVED else _json(change.after)
    return Value(clipped(change.path, MOST_NAME), before, after)


def _json(value: object) -> str:
    return clipped(json.dumps(value, ensure_ascii=False, default=str), _MOST_VALUE)


def _same(diff: DiffReport) -> Iterator[str]:
    same = diff.of(Status.SAME)
    if same:
        yield f"{counted(len(same), 'tensor')} the same"
    reasons = Counter(tensor.reason for tensor in same if tensor.reason)
    for reason, times in sorted(reasons.items()):
        yield f"{counted(times, 'tensor')} by dtype and shape alone: {clipped(reason, MOST_TEXT)}"
