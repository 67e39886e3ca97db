"""A review as GitHub-flavoured Markdown, for a comment: the worst first, within a comment's limit.

Whatever comes out of a repository is spelled as `markdown_text` does.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence

from wtxtgit.errors import clipped, counted
from wtxtgit.report.diff import ByteChange, MetadataChange, Numbers, Status, TensorDiff
from wtxtgit.report.figures import NONE, count, digits, extents, percent, relative
from wtxtgit.report.markdown import code, table, text
from wtxtgit.report.review import Fate, Flag, LayerGroup, Review, Reviewed
from wtxtgit.report.review_figures import (
    layer_change,
    layer_tensors,
    parameters_changed,
    relative_change,
    sizes_told,
    tensors_changed,
)

MOST_CHARACTERS = 65_000
"""GitHub takes 65,536 of a comment: there is room for a line of whoever posts it."""
MOST_ROWS = 20
"""Rows of a table within a checkpoint's section."""
MOST_LISTED = 100
"""Checkpoints in the table of all of them."""
MOST_NAME = 120
MOST_MESSAGE = 300
MOST_VALUE = 60
"""Characters of a name, a message and a value of the metadata."""
_OVERVIEW_SHARE = 0.5
"""Of a comment, at most, for the table of all checkpoints."""
_SECTION_SHARE = 0.5
"""Of what is left, at most, for the section of one checkpoint where others follow."""
_RESERVE = 400
"""Characters for what says that something was left out."""
_OID_SHOWN = 12
_END = ["", "</details>"]


def comment(review: Review) -> str:
    """The review: totals, a table of all checkpoints, and a section that unfolds for each."""
    lines = [*_head(review)]
    room = MOST_CHARACTERS - _RESERVE - _length(lines)
    overview = _overview(review.artifacts, int(room * _OVERVIEW_SHARE))
    lines += overview
    room -= _length(overview)
    left = len(review.artifacts)
    for one in review.artifacts:
        section = _section(one, int(room * _SECTION_SHARE) if left > 1 else room)
        if not section:
            break
        lines += section
        room -= _length(section)
        left -= 1
    if left:
        lines += ["", f"{counted(left, 'checkpoint')} without a section: {_ELSEWHERE}"]
    return "\n".join(lines) + "\n"


_ELSEWHERE = "the HTML page and the JSON have all"


def _head(review: Review) -> Iterator[str]:
    flags = review.flags
    checkpoints = counted(len(review.artifacts), "checkpoint")
    yield f"### wtxtgit review: {checkpoints}, {counted(flags, 'risk flag')}"
    yield ""
    yield (
        f"{code(review.base, MOST_NAME)} to {code(review.head, MOST_NAME)}"
        f" ({code(review.base_commit[:_OID_SHOWN])} to {code(review.head_commit[:_OID_SHOWN])}),"
        f" {counted(review.commits, 'commit')}"
    )
    for note in review.notes[:MOST_ROWS]:
        yield ""
        yield f"note: {text(clipped(note, MOST_MESSAGE))}"
    yield from _more(len(review.notes), "note")


def _overview(artifacts: Sequence[Reviewed], room: int) -> list[str]:
    """The table of checkpoints, as many rows as there is room for."""
    if not artifacts:
        return ["", "No checkpoint changes."]
    columns = (
        "checkpoint", "change", "changed tensors", "changed parameters", "relative L2", "risks",
        "seal",
    )  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for one in artifacts[:MOST_LISTED]:
        row = _row(one)
        room -= sum(map(len, row)) + 3 * len(row) + 1
        if room < 0:
            break
        rows.append(row)
    lines = list(table(columns, rows))
    if len(rows) < len(artifacts):
        lines += ["", f"and {counted(len(artifacts) - len(rows), 'more checkpoint')}"]
    return lines


def _row(one: Reviewed) -> tuple[str, ...]:
    risks = Counter(str(flag.risk) for flag in one.flags)
    named = [risk if times == 1 else f"{risk} ({times})" for risk, times in risks.items()]
    changed = parameters = change = NONE
    if one.diff is not None:
        changed = tensors_changed(one.diff)
        parameters = parameters_changed(one.diff)
        change = relative_change(one.diff)
    return (
        code(os.fsdecode(one.path), MOST_NAME),
        str(one.fate),
        changed,
        parameters,
        change,
        ", ".join(named),
        str(one.seal.state),
    )


def _section(one: Reviewed, room: int) -> list[str]:
    """What there is to say of a checkpoint, the least first left out; nothing without room."""
    lines = [*_summary_of(one)]
    room -= _length([*lines, *_END])
    if room < 0:
        return []
    metadata = one.diff.metadata if one.diff is not None else ()
    for part in (
        _facts(one), _flags(one.flags), _tensors(one), _others(one.others), _metadata(metadata),
        _layers(one.layers), _history(one),
    ):  # fmt: skip
        said = list(part)
        if _length(said) <= room:
            lines += said
            room -= _length(said)
    return lines + _END


def _summary_of(one: Reviewed) -> Iterator[str]:
    yield ""
    words = [str(one.fate), str(one.seal.state), counted(len(one.flags), "risk flag")]
    yield f"<details><summary>{code(os.fsdecode(one.path))}: {', '.join(words)}</summary>"


def _facts(one: Reviewed) -> Iterator[str]:
    if one.fate is Fate.RENAMED:
        yield ""
        yield f"- was {code(os.fsdecode(one.base_path or b''))}"
    else:
        yield ""
    if one.reason is not None:
        yield f"- not compared: {text(clipped(one.reason, MOST_MESSAGE))}"
    if one.diff is not None:
        counts = one.diff.summary.counts
        told = [f"{count(n)} {status}" for status, n in counts.items() if n]
        yield f"- tensors: {', '.join(told) or 'none'}"
        for note in one.diff.notes[:MOST_ROWS]:
            yield f"- {text(clipped(note, MOST_MESSAGE))}"
        if one.diff.metadata:
            yield f"- {counted(len(one.diff.metadata), 'change')} of metadata"
    yield f"- {one.seal.state}: {text(clipped(one.seal.message, MOST_MESSAGE))}"
    yield f"- {sizes_told(one.sizes, 'to')}"


def _flags(flags: Sequence[Flag]) -> Iterator[str]:
    if not flags:
        return
    rows = [
        (
            str(flag.risk),
            code(flag.tensor or "", MOST_NAME),
            text(clipped(flag.message, MOST_MESSAGE)),
        )
        for flag in flags[:MOST_ROWS]
    ]
    yield from table(("risk", "tensor", "what"), rows)
    yield from _more(len(flags), "risk flag")


def _tensors(one: Reviewed) -> Iterator[str]:
    changed = one.changed
    if not changed:
        return
    columns = ("tensor", "relative", "elements", "L2", "max", "dtype", "shape")
    yield from table(columns, [_tensor(tensor) for tensor in changed[:MOST_ROWS]])
    yield from _more(len(changed), "changed tensor")


def _tensor(tensor: TensorDiff) -> tuple[str, ...]:
    told, share, l2, most = "not compared", NONE, NONE, NONE
    if tensor.change is not None:
        share = percent(tensor.change.changed_share)
    if isinstance(tensor.change, Numbers):
        told = relative(tensor.change.relative_l2)
        l2, most = digits(tensor.change.l2), digits(tensor.change.max_abs)
    elif isinstance(tensor.change, ByteChange):
        told = "bytes"
    dtype = text(clipped(tensor.dtype, MOST_NAME))
    if tensor.base_dtype is not None:
        dtype = f"{text(clipped(tensor.base_dtype, MOST_NAME))} to {dtype}"
    shape = _shape(tensor.shape)
    if tensor.base_shape is not None:
        shape = f"{_shape(tensor.base_shape)} to {shape}"
    return (code(tensor.name, MOST_NAME), told, share, l2, most, dtype, shape)


def _others(tensors: Sequence[TensorDiff]) -> Iterator[str]:
    """Tensors that were removed, added or renamed."""
    if not tensors:
        return
    yield from table(("change", "tensor", "dtype", "shape"), list(map(_other, tensors[:MOST_ROWS])))
    yield from _more(len(tensors), "such tensor")


def _other(tensor: TensorDiff) -> tuple[str, ...]:
    name = code(tensor.name, MOST_NAME)
    if tensor.base_name is not None:
        name = f"{code(tensor.base_name, MOST_NAME)} to {name}"
    dtype = text(clipped(tensor.dtype, MOST_NAME))
    return (str(tensor.status), name, dtype, _shape(tensor.shape))


def _metadata(changes: Sequence[MetadataChange]) -> Iterator[str]:
    if not changes:
        return
    yield from table(("metadata", "before", "after"), list(map(_value, changes[:MOST_ROWS])))
    yield from _more(len(changes), "change", " of metadata")


def _value(change: MetadataChange) -> tuple[str, ...]:
    before = NONE if change.kind is Status.ADDED else _json(change.before)
    after = NONE if change.kind is Status.REMOVED else _json(change.after)
    return (code(change.path, MOST_NAME), before, after)


def _json(value: object) -> str:
    return code(json.dumps(value, ensure_ascii=False, default=str), MOST_VALUE)


def _layers(layers: Sequence[LayerGroup]) -> Iterator[str]:
    if not layers:
        return
    columns = ("layer", "relative", "L2", "tensors", "elements")
    yield from table(columns, [_layer(group) for group in layers[:MOST_ROWS]])
    yield from _more(len(layers), "changed layer")


def _layer(group: LayerGroup) -> tuple[str, ...]:
    return (
        code(group.name, MOST_NAME),
        layer_change(group),
        digits(group.l2) if group.is_measured else NONE,
        layer_tensors(group),
        count(group.changed_elements) if group.is_measured else NONE,
    )


def _history(one: Reviewed) -> Iterator[str]:
    generations = one.seal.generations
    if generations:
        rows = [
            (
                str(g.gen),
                text(clipped(g.ts, MOST_NAME)),
                text(clipped(", ".join(g.signers) or "nobody", MOST_NAME)),
                code((g.commit or "")[:_OID_SHOWN]),
                text(clipped(g.verdict, MOST_NAME)),
            )
            for g in generations[:MOST_ROWS]
        ]
        yield from table(("generation", "time", "signed by", "commit", "verdict"), rows)
        yield from _more(len(generations), "generation")
    if one.commits:
        rows_of_commits = [
            (code(commit.oid[:_OID_SHOWN]), text(clipped(commit.subject, MOST_NAME)))
            for commit in one.commits[:MOST_ROWS]
        ]
        yield from table(("commit", "subject"), rows_of_commits)
        yield from _more(len(one.commits), "commit")


def _more(there: int, noun: str, what: str = "") -> Iterator[str]:
    if there > MOST_ROWS:
        yield ""
        yield f"and {counted(there - MOST_ROWS, f'more {noun}')}{what}"


def _shape(shape: tuple[int, ...]) -> str:
    return clipped(extents(shape), MOST_NAME)


def _length(lines: Sequence[str]) -> int:
    return sum(map(len, lines)) + len(lines)
