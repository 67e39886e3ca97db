"""What is wrong in a container, such as a stored hash that does not fit, and was not before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wtxtgit.checkpoint.contents import Side
from wtxtgit.containers import any_format, registry
from wtxtgit.errors import counted
from wtxtgit.model.findings import Findings, Problem, total
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.text.grammar import is_detached

if TYPE_CHECKING:  # a diff of two files starts without the reader of texts
    from wtxtgit.text.file import TextFile

NOT_CHECKED = (
    "hashes in the file were not compared, for which all of its payload is needed: wtxtgit verify "
    "compares them"
)
_MOST = 20
_FIGURES = re.compile("[0-9a-f]{16}|[0-9]+")
"""Hashes and numbers in the message of a problem."""


@dataclass(frozen=True, slots=True)
class NewProblems:
    """Problems that `wtxtgit verify` would find in a file, and not in the one before it."""

    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def new_problems(before: Side | None, after: Side, options: ReadOptions) -> NewProblems:
    """Compare what the check of a container finds on both sides; `before` is None for no file.

    Raises CheckError and LacksPayload.
    """
    found = _checked(after, options)
    if found is None or not (found.errors or found.warnings):
        return NewProblems()
    had = None if before is None else _checked(before, options)
    known = set() if had is None else set(map(_known_by, (*had.errors, *had.warnings)))
    errors, warnings = (
        tuple(one for one in problems if _known_by(one) not in known)
        for problems in (found.errors, found.warnings)
    )
    return NewProblems(errors, warnings)


def problem_notes(name: str, before: Side, after: Side, options: ReadOptions) -> Iterator[str]:
    """Yield notes on the new problems of a file, which has this `name`; raises CheckError."""
    if not can_check(after):
        yield NOT_CHECKED
        return
    found = new_problems(before, after, options)
    told = (
        *(("error", one) for one in found.errors),
        *(("warning", one) for one in found.warnings),
    )
    for kind, problem in told[:_MOST]:
        yield f"new {kind} in {name}: {problem}"
    more = total(problem for _, problem in told[_MOST:])
    if more:
        yield f"{counted(more, 'more new problem')} in {name}: wtxtgit verify lists them"


def can_check(side: Side) -> bool:
    """Whether checking a side needs no payload of a detached text that comparing it did not."""
    text = side.text
    return text is None or not (is_detached(text.text) and _has_hashes(text)) or text.is_full


def _checked(side: Side, options: ReadOptions) -> Findings | None:
    """Check what a container says of its own bytes; None for a text that is no container."""
    text = side.text
    if text is None:
        return any_format.check(side.data, options, side.open_member)
    if not text.is_container:
        return None
    if _has_hashes(text):
        text.fill_all()
    return any_format.check(text.view, options, side.open_member)


def _has_hashes(text: TextFile) -> bool:
    known = None if text.layout is None else registry.by_name(text.layout.format)
    return known is not None and known.has_hashes


def _known_by(problem: Problem) -> tuple[str, str | None, int | str | None, str]:
    """Return what is the same for one problem in two versions of a file, wherever it is there."""
    return problem.kind, problem.field, problem.chunk, _FIGURES.sub("", problem.message)
