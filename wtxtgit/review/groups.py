"""Layers: tensors grouped by where their names have the first number."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from math import inf, prod

from wtxtgit.report.diff import DiffReport, Numbers, Status, TensorDiff
from wtxtgit.report.review import LayerGroup

_NUMBER = re.compile(r"(?:^|(?<=[./]))[0-9]+(?=[./]|$)")
_DIGITS = re.compile(r"[0-9]+")
_LAST = re.compile(r"[./][^./]*$")


def group_of(name: str) -> str:
    """The group of a tensor: `docs/review.md`, section "Layers"."""
    for pattern in (_NUMBER, _DIGITS):
        if found := pattern.search(name):
            return name[: found.end()]
    return _LAST.sub("", name, count=1) or name


def role_of(name: str) -> str:
    """What a tensor is in its layer: its name with `#` for each number."""
    return _DIGITS.sub("#", name)


def groups(report: DiffReport) -> list[LayerGroup]:
    """All groups of what was compared, the one that changed most first."""
    held: defaultdict[str, list[TensorDiff]] = defaultdict(list)
    for tensor in report.tensors:
        held[group_of(tensor.name)].append(tensor)
    found = [_group(name, tensors, report) for name, tensors in held.items()]
    return sorted(found, key=_weight, reverse=True)


def _group(name: str, tensors: list[TensorDiff], report: DiffReport) -> LayerGroup:
    summary = replace(report, tensors=tuple(tensors), metadata=(), notes=()).summary
    changed = summary.counts[Status.CHANGED]
    relative = summary.relative_l2
    if changed and not any(isinstance(tensor.change, Numbers) for tensor in tensors):
        relative = None
    return LayerGroup(
        name,
        len(tensors),
        changed,
        sum(prod(tensor.shape) for tensor in tensors),
        summary.changed_elements,
        summary.l2,
        relative,
        summary.counts[Status.ADDED],
        summary.counts[Status.REMOVED],
    )


def _weight(group: LayerGroup) -> tuple[bool, float, int, int]:
    # What can't be measured is looked at first, as in a diff.
    relative = inf if group.relative_l2 is None else group.relative_l2
    return bool(group.changed), relative, group.changed_elements, group.added + group.removed
