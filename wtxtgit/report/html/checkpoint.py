"""A checkpoint as a page shows it: its seal, commits and sizes, change by layer, and tensors."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, floor, inf, isfinite, log10

from markupsafe import Markup

from wtxtgit.errors import clipped, counted
from wtxtgit.report.diff import DiffReport, MetadataChange, Numbers, TensorDiff, TensorStatus
from wtxtgit.report.figures import (
    DATE_SHOWN,
    NONE,
    OID_SHOWN,
    count,
    extents,
    number,
    percent,
    size,
)
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
from wtxtgit.report.html.tensors import Cell, Picture, Shown
from wtxtgit.report.review import (
    Chip,
    Distributions,
    Flag,
    LayerGroup,
    Reviewed,
    ReviewedCommit,
    ReviewedGeneration,
    Sealing,
    SealVerdict,
    Sizes,
    by_severity,
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
FlagLine = tuple[Chip, str, str, str | None]
"""A risk, its message, the tensor concerned, and the id of that tensor's details."""
GroupLine = tuple[str, Markup, tuple[Cell, ...]]
"""A layer, a bar for its relative change, and cells: relative, elements, tensors."""
_MANY = 40
"""With more tensors with pictures than this, each picture has less detail."""
_BINS = 4
"""Bins for each power of ten."""
_MOST_DECADES = 12
"""The most powers of ten: smaller changes are drawn in the lowest bin."""


def checkpoint(reviewed: Reviewed, target: str, room: Room, *, unfolded: bool) -> Shown:
    """Return what a page shows of a reviewed checkpoint; `target` is its id in the page.

    `changed` and `relative` are for the list of checkpoints.
    """
    diff = reviewed.diff
    compared = comparison(
        diff or DiffReport("", "", "", ""),
        reviewed.flags,
        reviewed.groups,
        reviewed.distributions,
        target,
        room,
    )
    return {
        **compared,
        "target": target,
        "path": _path(reviewed.path),
        "base_path": ""
        if reviewed.base_path in (None, reviewed.path)
        else _path(reviewed.base_path or b""),
        "formats": "" if diff is None else formats(diff),
        "unfolded": unfolded,
        "fate": Chip(str(reviewed.fate).capitalize(), "plain"),
        "sealing": _SEALINGS[reviewed.seal.state],
        "seal": _text(reviewed.seal.message),
        "delta": "" if reviewed.delta is None else _text(reviewed.delta.message),
        "chips": chips(reviewed.flags),
        # For a delta this has its own line.
        "reason": "" if reviewed.delta is not None else _text(reviewed.reason or ""),
        "totals": [] if diff is None else list(totals(diff)),
        "changed": NONE if diff is None else tensors_changed(diff),
        "relative": NONE if diff is None else relative_change(diff),
        "generations": first(reviewed.seal.generations, room.listed).each(_generation),
        "commits": first(reviewed.commits, room.listed).each(
            lambda commit: _commit(commit, reviewed.seal)
        ),
        "sizes": list(_size_bars(reviewed.sizes)),
        "limit": _limit(reviewed.sizes),
    }


def comparison(
    diff: DiffReport,
    flags: Sequence[Flag],
    groups: Sequence[LayerGroup],
    distributions: Mapping[str, Distributions],
    target: str,
    room: Room,
) -> Shown:
    """Return what a page shows of two compared checkpoints, as much as there is room for.

    `same` counts the unchanged tensors, which are not listed.
    """
    changed = diff.by_change()
    statuses = (TensorStatus.REMOVED, TensorStatus.ADDED, TensorStatus.RENAMED)
    others = [tensor for status in statuses for tensor in diff.of(status)]
    targets = {tensor.name: f"{target}-t{n}" for n, tensor in enumerate(changed[: room.pictured])}
    cells = tensors.MOST_CELLS if len(targets) <= _MANY else tensors.FEW_CELLS
    of_tensor: dict[str, list[Flag]] = defaultdict(list)
    for flag in flags:
        if flag.tensor is not None:
            of_tensor[flag.tensor].append(flag)
    details = [
        tensors.detail(t, of_tensor[t.name], distributions.get(t.name), targets[t.name], cells)
        for t in changed[: room.pictured]
    ]
    risks_first = any(tensor.concerns for tensor in changed)
    return {
        "reason": "",
        "totals": list(totals(diff)),
        "flags": _flags(flags, targets, room.flags),
        "groups": group_chart(groups, room.groups),
        "spread": spread(changed),
        "sizes": [],
        "limit": "",
        "table": {
            "title": "Changed tensors",
            "noun": "changed tensors",
            "columns": tensors.COLUMNS,
            "sorted_by": None if risks_first else 1,
            "rows": first(changed, room.rows).each(
                lambda t: tensors.row(t, of_tensor[t.name], targets.get(t.name))
            ),
            "details": details,
            "pictured": f"The {len(details)} that changed most have pictures.",
        },
        "others": first(others, room.listed).each(_other),
        "metadata": first(diff.metadata, room.listed).each(_value),
        "same": list(_same(diff)),
        "notes": first((*diff.unread, *diff.notes), room.listed).each(_text),
    }


def _path(path: bytes) -> str:
    return clipped(os.fsdecode(path), MOST_NAME)


def _text(message: str) -> str:
    return clipped(message, MOST_TEXT)


def formats(diff: DiffReport) -> str:
    if diff.a_format == diff.b_format:
        return diff.b_format
    return f"{diff.a_format or NONE} \u2192 {diff.b_format or NONE}"


def totals(diff: DiffReport) -> Iterator[tuple[str, str]]:
    summary = diff.summary
    changed = summary.counts[TensorStatus.CHANGED]
    yield "Tensors changed", f"{count(changed)} of {count(summary.tensors)}"
    yield "Parameters changed", parameters_changed(diff)
    if changed:
        relative = relative_change(diff)
        yield "Relative L2", relative
        yield "L2", NONE if relative == NONE else number(summary.l2)
    for status in (
        TensorStatus.ADDED,
        TensorStatus.REMOVED,
        TensorStatus.RENAMED,
        TensorStatus.UNREAD,
    ):
        if summary.counts[status]:
            yield f"Tensors {status}", count(summary.counts[status])
    if summary.metadata:
        yield "Metadata changes", count(summary.metadata)


def _flags(flags: Sequence[Flag], targets: Mapping[str, str], most: int) -> Excerpt[FlagLine]:
    """Return flags, severe ones first, with the id of the tensor's details if there are any."""
    return first(by_severity(flags), most).each(
        lambda flag: (
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


def _size_bars(sizes: Sizes) -> Iterator[tuple[str, str, Markup]]:
    """Yield sizes with bars scaled to the limit, or to the largest size if that is more."""
    named = {
        "File before": sizes.file_before,
        "File after": sizes.file_after,
        "Text before": sizes.text_before,
        "Text after": sizes.text_after,
    }
    known = {label: value for label, value in named.items() if value is not None}
    limit = sizes.limit
    # Never divide by 0: an empty file has a bar, too.
    most = max((*known.values(), limit or 0, 1))
    mark = None if limit is None else limit / most
    for label, value in known.items():
        over = limit is not None and value > limit
        yield label, size(value), svg.bar(value / most, "over" if over else "fill", mark)


def _limit(sizes: Sizes) -> str:
    """Return words on the forge's size limit, nothing if it is not known."""
    limit = sizes.limit
    if limit is None:
        return ""
    words = f"The forge's limit for one blob is {size(limit)}"
    if sizes.text_after is not None and limit:
        words += f"; the text uses {percent(sizes.text_after / limit)} of it"
    return words


def _generation(generation: ReviewedGeneration) -> tuple[int, str, str, str, str]:
    listed = first(generation.signers, MOST_SIGNERS).each(lambda signer: clipped(signer, MOST_NAME))
    signers = ", ".join(listed.lines) or "nobody"
    return (
        generation.gen,
        clipped(generation.ts, MOST_NAME),
        (generation.commit or "")[:OID_SHOWN],
        f"{signers} and {count(listed.more)} more" if listed.more else signers,
        clipped(generation.verdict, MOST_TEXT),
    )


def _commit(commit: ReviewedCommit, seal: SealVerdict) -> tuple[str, str, str, tuple[int, ...]]:
    generations = first([g.gen for g in seal.generations if g.commit == commit.oid], MOST_LISTED)
    who = " ".join(
        word for word in (commit.date[:DATE_SHOWN], clipped(commit.author, MOST_NAME)) if word
    )
    return (commit.oid[:OID_SHOWN], clipped(commit.subject, MOST_NAME), who, generations.lines)


def group_chart(groups: Sequence[LayerGroup], shown: int) -> Excerpt[GroupLine]:
    """Return a bar for each of the first groups, on a logarithmic scale of how much it changed."""
    known = [group.relative_l2 for group in groups if group.relative_l2]
    logs = [log10(value) for value in known if isfinite(value)]
    high = max(logs, default=0.0)
    # The scale begins at a power of ten below the least value, so that this has a bar, too.
    low = max(ceil(min(logs, default=0.0)) - 1, high - _MOST_DECADES)
    return first(groups, shown).each(lambda group: _line(group, low, high))


def spread(tensors: Sequence[TensorDiff]) -> Picture | None:
    """Draw how many tensors changed by how much, on a logarithmic axis; None for fewer than two."""
    logs = [
        log10(t.change.relative_l2)
        for t in tensors
        if isinstance(t.change, Numbers) and t.change.relative_l2
    ]
    logs = [value for value in logs if isfinite(value)]
    if len(logs) < 2:
        return None
    # A bin excludes its end: a value on it belongs to the next bin.
    high = floor(max(logs)) + 1
    low = max(floor(min(logs)), high - _MOST_DECADES)
    counts = Counter(max(floor((value - low) * _BINS), 0) for value in logs)
    bars = [
        (counts[n], _bar_title(low + n / _BINS, counts[n])) for n in range((high - low) * _BINS)
    ]
    step = -(-(high - low) // svg.MOST_TICKS)
    ticks = [
        svg.Tick((power - low) / (high - low), percent(10.0**power))
        for power in range(low, high + 1, step)
    ]
    title = "Relative change by tensor"
    return Picture(title, svg.columns(title, bars, ticks))


def _line(group: LayerGroup, low: float, high: float) -> GroupLine:
    relative = group.relative_l2
    length, measured = 0.0, (Cell(NONE, None), Cell(NONE, None))
    if group.is_measured:
        length = 1.0 if relative is None else 0.0
        if relative:
            length = (log10(relative) - low) / (high - low) if isfinite(relative) else 1.0
        share = group.changed_elements / group.elements if group.elements else 0.0
        key = inf if relative is None else relative
        measured = (Cell(layer_change(group), key), Cell(percent(share), share))
    touched = group.changed + group.added + group.removed
    tensors = Cell(layer_tensors(group), touched)
    return clipped(group.name, MOST_NAME), svg.bar(length), (*measured, tensors)


def _bar_title(exponent: float, tensors: int) -> str:
    low, high = (percent(10.0**e) for e in (exponent, exponent + 1 / _BINS))
    return f"{low} to {high}: {counted(tensors, 'tensor')}"
