"""Figures of a review that are the same in all its forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

from wtxtgit.report.diff import DiffReport, Numbers, Status, TensorDiff
from wtxtgit.report.figures import NONE, count, relative, size
from wtxtgit.report.review import LayerGroup, Sizes


def tensors_changed(diff: DiffReport) -> str:
    """`2 of 44, +1/-3`: changed tensors of all, and how many came and went."""
    counts = diff.summary.counts
    return _of(
        counts[Status.CHANGED], len(diff.tensors), counts[Status.ADDED], counts[Status.REMOVED]
    )


def layer_tensors(group: LayerGroup) -> str:
    """The same of a layer."""
    return _of(group.changed, group.tensors, group.added, group.removed)


def parameters_changed(*diffs: DiffReport, spell: Callable[[int], str] = count) -> str:
    """`1,024, +64/-0`: changed elements, and those of tensors that came and went.

    A tensor of another shape came with that and went with the one before. What
    is compared as bytes is not counted; a dash where that is all.
    """
    came, went = _turnover(tensor for diff in diffs for tensor in diff.tensors)
    told = []
    if not diffs or any(map(_is_measured, diffs)):
        told.append(spell(sum(diff.summary.changed_elements for diff in diffs)))
    if came or went:
        told.append(f"+{spell(came)}/-{spell(went)}")
    return ", ".join(told) or NONE


def relative_change(diff: DiffReport) -> str:
    """The change of all that changed over what was there."""
    return relative(diff.summary.relative_l2, measured=_is_measured(diff))


def layer_change(group: LayerGroup) -> str:
    """The same of a layer."""
    return relative(group.relative_l2, measured=group.is_measured)


def sizes_told(sizes: Sizes, to: str) -> str:
    """Sizes of the file and of its text before and after, `to` between the two."""
    pairs = (
        ("file", sizes.file_before, sizes.file_after),
        ("text", sizes.text_before, sizes.text_after),
    )
    told = []
    for what, before, after in pairs:
        known = [size(value) for value in (before, after) if value is not None]
        if known:
            told.append(f"{what} {f' {to} '.join(dict.fromkeys(known))}")
    limit = "" if sizes.limit is None else f", of {size(sizes.limit)} that a blob may have"
    return ", ".join(told) + limit


def _of(changed: int, tensors: int, added: int, removed: int) -> str:
    came = f", +{count(added)}/-{count(removed)}" if added or removed else ""
    return f"{count(changed)} of {count(tensors)}{came}"


def _is_measured(diff: DiffReport) -> bool:
    """Whether the totals are of something, or nothing changed."""
    if any(isinstance(tensor.change, Numbers) for tensor in diff.tensors):
        return True
    return not diff.of(Status.CHANGED, Status.ADDED, Status.REMOVED)


def _turnover(tensors: Iterable[TensorDiff]) -> tuple[int, int]:
    """Elements that came, and that went."""
    came = went = 0
    for tensor in tensors:
        if tensor.status is Status.ADDED:
            came += prod(tensor.shape)
        elif tensor.status is Status.REMOVED:
            went += prod(tensor.shape)
        elif tensor.base_shape is not None and tensor.status is Status.CHANGED:
            came += prod(tensor.shape)
            went += prod(tensor.base_shape)
    return came, went
