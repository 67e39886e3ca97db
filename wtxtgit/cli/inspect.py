"""`wtxtgit inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import environment
from wtxtgit.cli.output import print_json, print_line, print_table
from wtxtgit.cli.progress import file_size, progress
from wtxtgit.cli.reading import read_options, reading_options
from wtxtgit.errors import counted
from wtxtgit.report.figures import size

if TYPE_CHECKING:
    from wtxtgit.checkpoint.inspect import Inspection, Part, TensorFacts
    from wtxtgit.tensors.statistics import Statistics

_MOST_CHILDREN = 8
"""Tensors of a chunk that the tree names; the table has them all."""
_LISTED = ("tensor", "dtype", "shape", "size", "sha256")
_VALUES = ("min", "max", "mean", "std", "zeros", "NaN/Inf")
_LEAST_SHARE = 0.0005
_HASH = 12
"""Digits of a hash that a table shows."""


@click.command()
@click.argument("target", metavar="FILE|REV:PATH")
@reading_options
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def inspect(target: str, key: Path | None, max_chunk: int, as_json: bool) -> int:
    """Show the parts, tensors and values of a checkpoint, a set, or a text.

    REV:PATH takes the file as it was in a commit.

    \b
    wtxtgit inspect model.safetensors
    wtxtgit inspect HEAD~3:model.fold --json
    """
    from wtxtgit.checkpoint.inspect import inspect as op

    with progress("inspecting", file_size(Path(target))) as advance:
        found = op(
            target,
            read_options(key, max_chunk),
            threads=environment.threads(),
            progress=advance,
        )
    if as_json:
        print_json(found.as_dict())
        return 0
    print_line(f"{found.path}: {found.format}, {size(found.size)}")
    if found.reason is not None:
        whole = found.stored_as == "opaque" and "stored whole" not in found.reason
        print_line(f"stored whole: {found.reason}" if whole else f"note: {found.reason}")
    for note in found.notes:
        print_line(f"note: {note}")
    _print_parts(found)
    _print_tensors(found.tensors)
    return 0


def _print_parts(found: Inspection) -> None:
    if not found.parts:
        return
    print_line()
    rows = []
    gaps = [part for part in found.parts if part.is_gap]
    for part in found.parts:
        if part.is_gap:
            continue
        rows.append((str(part.offset), size(part.size), part.array or part.kind, _about(part)))
        shown = part.children[:_MOST_CHILDREN]
        rows += [("", "", f"  {child}", "") for child in shown]
        if len(part.children) > len(shown):
            rows.append(("", "", f"  and {len(part.children) - len(shown)} more", ""))
    print_table(("offset", "size", "part", "what"), rows, right=("offset", "size"))
    if gaps:
        total = size(sum(part.size for part in gaps))
        print_line(
            f"and {total} of fixed headers, padding and gaps in {counted(len(gaps), 'place')}"
        )


def _about(part: Part) -> str:
    if part.kind == "tensor":
        return "tensor"
    return part.detail or (part.name if part.name not in (None, part.array) else "") or ""


def _print_tensors(tensors: tuple[TensorFacts, ...]) -> None:
    if not tensors:
        return
    print_line()
    rows = [
        (
            t.name,
            t.dtype,
            _shape(t.shape),
            "absent" if t.absent else size(t.size),
            t.sha256[:_HASH] if t.size and t.sha256 else "",
            *_values(t.statistics),
        )
        for t in tensors
    ]
    if any(t.statistics for t in tensors):
        print_table((*_LISTED, *_VALUES), rows, right=("size", *_VALUES), split=len(_LISTED))
    else:
        print_table(_LISTED, [row[: len(_LISTED)] for row in rows], right=("size",))
    for reason in sorted({t.absent for t in tensors if t.absent}):
        count = sum(t.absent == reason for t in tensors)
        print_line(f"absent: {counted(count, 'tensor')}: {reason}")


def _values(found: Statistics | None) -> tuple[str, ...]:
    if found is None:
        return ("",) * len(_VALUES)
    return (
        *(_number(value) for value in (found.min, found.max, found.mean, found.std)),
        _share(found),
        f"{found.nan}/{found.inf}" if found.nan or found.inf else "0",
    )


def _share(found: Statistics) -> str:
    if not found.zeros:
        return "0"
    return "<0.1%" if found.zeros_share < _LEAST_SHARE else f"{found.zeros_share:.1%}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) if shape else "scalar"
