"""A checkpoint as a page shows it: its seal, commits and sizes, change by layer, and tensors."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor, inf, isfinite, log10

from markupsafe import Markup

from wtxtgit.errors import clipped, counted
from wtxtgit.report.diff import DiffReport, MetadataChange, Numbers, TensorDiff, TensorStatus
from wtxtgit.report.figures import NONE, OID_SHOWN, count, extents, number, percent, size
from wtxtgit.report.html import svg, tensors
from wtxtgit.report.html.bounds import (
    MOST_LISTED,
    MOST_NAME,
    MOST_SIGNERS,
    MOST_TEXT,
    Excerpt,
    Room,
    first,
)
from wtxtgit.report.html.tensors import Cell, Detail, Picture, TensorRow
from wtxtgit.report.review import (
    SEVERE,
    Chip,
    Fate,
    Flag,
    LayerGroup,
    Reviewed,
    ReviewedCommit,
    ReviewedGeneration,
    Sealing,
    SealVerdict,
    Sizes,
    chip,
    chips,
)
from wtxtgit.report.tables import (
    after_cell,
    before_cell,
    layer_change,
    layer_tensors,
    name_cell,
    parameters_changed,
    relative_change,
    tensors_changed,
)

_SEALINGS = {
    Sealing.SEALED: Chip("Sealed", "good"),
    Sealing.UNTRUSTED: Chip("Untrusted", "severe"),
    Sealing.STALE: Chip("Stale seal", "severe"),
    Sealing.UNSEALED: Chip("Unsealed", "look"),
}
_FATES = {
    Fate.CHANGED: Chip("Changed", "plain"),
    Fate.ADDED: Chip("Added", "plain"),
    Fate.REMOVED: Chip("Removed", "plain"),
    Fate.RENAMED: Chip("Renamed", "plain"),
}
_BINS = 4
"""For each power of ten."""
_MOST_DECADES = 12
"""What changed less is drawn in the lowest bin."""


@dataclass(frozen=True, slots=True)
class FlagLine:
    """A flag; `target` is the id of all about its tensor, None where the page lacks that."""

    chip: Chip
    message: str
    tensor: str
    target: str | None


@dataclass(frozen=True, slots=True)
class CheckpointSection:
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
    flags: Excerpt[FlagLine]
    history: History
    sizes: SizeChart
    groups: Excerpt[GroupLine]
    spread: Picture | None
    rows: Excerpt[TensorRow]
    details: tuple[Detail, ...]
    others: Excerpt[tuple[str, str, str]]
    metadata: Excerpt[tuple[str, str, str]]
    same: tuple[str, ...]
    notes: Excerpt[str]


def checkpoint(one: Reviewed, target: str, room: Room, *, unfolded: bool) -> CheckpointSection:
    """As much of a checkpoint as there is room for; `target` is its id in the page."""
    diff, changed = one.diff, one.changed
    targets = {tensor.name: f"{target}-t{n}" for n, tensor in enumerate(changed[: room.pictured])}
    flags: dict[str, list[Flag]] = defaultdict(list)
    for flag in one.flags:
        if flag.tensor is not None:
            flags[flag.tensor].append(flag)
    return CheckpointSection(
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
    changed = summary.counts[TensorStatus.CHANGED]
    yield "Tensors changed", f"{count(changed)} of {count(summary.tensors)}"
    yield "Parameters changed", parameters_changed(diff)
    if changed:
        told = relative_change(diff)
        yield "Relative L2", told
        yield "L2", NONE if told == NONE else number(summary.l2)
    for status in (TensorStatus.ADDED, TensorStatus.REMOVED, TensorStatus.RENAMED):
        if summary.counts[status]:
            yield f"Tensors {status}", count(summary.counts[status])
    if summary.metadata:
        yield "Metadata changes", count(summary.metadata)


def _flags(flags: Sequence[Flag], targets: Mapping[str, str], most: int) -> Excerpt[FlagLine]:
    ranked = sorted(flags, key=lambda flag: flag.risk not in SEVERE)
    return first(ranked, most).each(
        lambda flag: FlagLine(
            chip(flag.risk),
            _text(flag.message),
            clipped(flag.tensor or "", MOST_NAME),
            None if flag.tensor is None else targets.get(flag.tensor),
        )
    )


def _other(tensor: TensorDiff) -> tuple[str, str, str]:
    kind = f"{tensor.dtype}, {extents(tensor.shape)}"
    return (str(tensor.status), tensors.page_cell(name_cell(tensor)).text, clipped(kind, MOST_TEXT))


def _value(change: MetadataChange) -> tuple[str, str, str]:
    return (
        clipped(change.path, MOST_NAME),
        tensors.page_cell(before_cell(change)).text,
        tensors.page_cell(after_cell(change)).text,
    )


def _same(diff: DiffReport) -> Iterator[str]:
    same = diff.of(TensorStatus.SAME)
    if same:
        yield f"{counted(len(same), 'tensor')} the same"
    reasons = Counter(tensor.reason for tensor in same if tensor.reason)
    for reason, times in sorted(reasons.items()):
        yield f"{counted(times, 'tensor')} by dtype and shape alone: {clipped(reason, MOST_TEXT)}"


@dataclass(frozen=True, slots=True)
class History:
    """What the chain says, and the commits."""

    fate: Chip
    sealing: Chip
    message: str
    generations: Excerpt[tuple[int, str, str, str, str]]
    commits: Excerpt[tuple[str, str, tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class SizeLine:
    """A size, with a bar that is longer the nearer it is to the limit."""

    label: str
    text: str
    bar: Markup


@dataclass(frozen=True, slots=True)
class SizeChart:
    """Sizes before and after, and words on the limit."""

    lines: tuple[SizeLine, ...]
    limit: str


def history(one: Reviewed, most: int) -> History:
    """What the chain says of a checkpoint, and commits that changed it, at most so many."""
    seal = one.seal
    return History(
        _FATES[one.fate],
        _SEALINGS[seal.state],
        clipped(seal.message, MOST_TEXT),
        first(seal.generations, most).each(_generation),
        first(one.commits, most).each(lambda commit: _commit(commit, seal)),
    )


def size_chart(sizes: Sizes) -> SizeChart:
    """Bars over the limit, or over the largest where that is larger or no limit is known."""
    known = [value for _, value in _sizes(sizes) if value is not None]
    limit = sizes.limit
    most = max((*known, limit or 0, 1))
    mark = None if limit is None else limit / most
    lines = [
        SizeLine(label, size(value), _bar(value, most, limit, mark))
        for label, value in _sizes(sizes)
        if value is not None
    ]
    if limit is None:
        return SizeChart(tuple(lines), "")
    words = f"The forge takes {size(limit)} as one blob"
    if sizes.text_after is not None and limit:
        words += f"; the text takes {percent(sizes.text_after / limit)} of that"
    return SizeChart(tuple(lines), words)


def _generation(one: ReviewedGeneration) -> tuple[int, str, str, str, str]:
    listed = first(one.signers, MOST_SIGNERS).each(lambda signer: clipped(signer, MOST_NAME))
    signers = ", ".join(listed.lines) or "nobody"
    return (
        one.gen,
        clipped(one.ts, MOST_NAME),
        (one.commit or "")[:OID_SHOWN],
        f"{signers} and {count(listed.more)} more" if listed.more else signers,
        clipped(one.verdict, MOST_TEXT),
    )


def _commit(one: ReviewedCommit, seal: SealVerdict) -> tuple[str, str, tuple[int, ...]]:
    brought = first([g.gen for g in seal.generations if g.commit == one.oid], MOST_LISTED)
    return (one.oid[:OID_SHOWN], clipped(one.subject, MOST_NAME), brought.lines)


def _sizes(sizes: Sizes) -> Iterator[tuple[str, int | None]]:
    yield "File before", sizes.file_before
    yield "File after", sizes.file_after
    yield "Text before", sizes.text_before
    yield "Text after", sizes.text_after


def _bar(value: int, most: int, limit: int | None, mark: float | None) -> Markup:
    over = limit is not None and value > limit
    return svg.bar(value / most, "over" if over else "fill", mark)


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A layer group: a bar for its relative change, and cells: relative, elements, tensors."""

    name: str
    bar: Markup
    cells: tuple[Cell, Cell, Cell]


def group_chart(groups: Sequence[LayerGroup], shown: int) -> Excerpt[GroupLine]:
    """A bar for each of the first groups, as long as it changed by its own size."""
    known = [group.relative_l2 for group in groups if group.relative_l2 is not None]
    most = max((value for value in known if isfinite(value)), default=0.0)
    return first(groups, shown).each(lambda group: _line(group, most))


def spread(tensors: Sequence[TensorDiff]) -> Picture | None:
    """How many tensors changed by how much, on a logarithmic axis; None below two of them."""
    found = [
        log10(t.change.relative_l2)
        for t in tensors
        if isinstance(t.change, Numbers) and t.change.relative_l2
    ]
    found = [value for value in found if isfinite(value)]
    if len(found) < 2:
        return None
    # The end is open: what is on it belongs into the next bin.
    high = floor(max(found)) + 1
    low = max(floor(min(found)), high - _MOST_DECADES)
    counts = Counter(max(floor((value - low) * _BINS), 0) for value in found)
    bars = [(counts[n], _said(low + n / _BINS, counts[n])) for n in range((high - low) * _BINS)]
    step = -(-(high - low) // svg.MOST_TICKS)
    ticks = [
        svg.Tick((power - low) / (high - low), percent(10.0**power))
        for power in range(low, high + 1, step)
    ]
    title = "Relative change of the tensors"
    return Picture(title, svg.columns(title, bars, ticks))


def _line(group: LayerGroup, most: float) -> GroupLine:
    relative = group.relative_l2
    length, measured = 0.0, (Cell(NONE, None), Cell(NONE, None))
    if group.is_measured:
        length = 1.0 if relative is None else relative / most if most else 0.0
        share = group.changed_elements / group.elements if group.elements else 0.0
        key = inf if relative is None else relative
        measured = (Cell(layer_change(group), key), Cell(percent(share), share))
    touched = group.changed + group.added + group.removed
    tensors = Cell(layer_tensors(group), touched)
    return GroupLine(clipped(group.name, MOST_NAME), svg.bar(length), (*measured, tensors))


def _said(exponent: float, tensors: int) -> str:
    low, high = (percent(10.0**e) for e in (exponent, exponent + 1 / _BINS))
    return f"{low} to {high}: {counted(tensors, 'tensor')}"
