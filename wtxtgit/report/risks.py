"""The risks of a review as a page labels them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from wtxtgit.report.review import Flag, Risk

LABELS = {
    Risk.NEW_NAN: "New NaN",
    Risk.NEW_INF: "New Inf",
    Risk.DTYPE: "Dtype changed",
    Risk.SHAPE: "Shape changed",
    Risk.REMOVED: "Tensor removed",
    Risk.SINGLE: "Single layer",
    Risk.UNUSUAL: "Unusual change",
    Risk.UNREAD: "Not compared",
    Risk.UNSEALED: "Unsealed",
    Risk.SIGNER: "Unknown signer",
    Risk.CHAIN: "Broken chain",
    Risk.OPAQUE: "Opaque",
    Risk.DAMAGED: "Damaged",
    Risk.RAW: "Raw binary",
    Risk.LARGE: "Large blob",
}
SEVERE = frozenset(
    {Risk.NEW_NAN, Risk.NEW_INF, Risk.SIGNER, Risk.CHAIN, Risk.DAMAGED, Risk.RAW, Risk.LARGE}
)
"""Risks that a merge should wait for; the others want a look."""


@dataclass(frozen=True, slots=True)
class Chip:
    """A label; `tone` is a class of the style sheet, `times` counts what it stands for."""

    label: str
    tone: str
    times: int = 1


def chip(risk: Risk, times: int = 1) -> Chip:
    """The label of a risk."""
    return Chip(LABELS[risk], "severe" if risk in SEVERE else "look", times)


def chips(flags: Iterable[Flag]) -> tuple[Chip, ...]:
    """One label for each risk among the flags, severe ones first."""
    found = Counter(flag.risk for flag in flags)
    ranked = sorted(found, key=lambda risk: (risk not in SEVERE, list(Risk).index(risk)))
    return tuple(chip(risk, found[risk]) for risk in ranked)
