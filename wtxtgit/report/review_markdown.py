"""A review as GitHub-flavoured Markdown, for a comment: the worst first, within a comment's limit.

Whatever comes out of a repository is spelled as `markdown_text` does.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence

from wtxtgit.errors import clipped, counted
from wtxtgit.report.diff import DiffReport, Numbers, Status, TensorDiff
from wtxtgit.report.figures import count, percent, size
from wtxtgit.report.markdown_text import code, table, text
from wtxtgit.report.review import Fate, Flag, LayerGroup, Review, Reviewed, Sizes

MOST_CHARACTERS = 65_000
"""GitHub takes 65,536 of a comment: there is room for a line of whoever posts it."""
MOST_ROWS = 20
"""Rows of a table within a checkpoint's section."""
MOST_LISTED = 100
"""Checkpoints in the table of all of them."""
MOST_NAME = 120
MOST_MESSAGE = 300
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
    columns = ("checkpoint", "change", "tensors", "parameters", "relative L2", "risks", "seal")
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
    changed, parameters, relative = "", "", ""
    if one.diff is not None:
        summary = one.diff.summary
        changed = f"{count(_touched(one.diff))} of {count(summary.tensors)}"
        parameters = count(summary.changed_elements)
        relative = _relative(summary.relative_l2)
    return (
        code(os.fsdecode(one.path), MOST_NAME),
        str(one.fate),
        changed,
        parameters,
        relative,
        ", ".join(named),
        str(one.seal.state),
    )


def _touched(diff: DiffReport) -> int:
    """Tensors that are not what they were."""
    return sum(n for status, n in diff.summary.counts.items() if status is not Status.SAME)


def _section(one: Reviewed, room: int) -> list[str]:
    """What there is to say of a checkpoint, the least first left out; nothing without room."""
    lines = [*_summary_of(one)]
    room -= _length([*lines, *_END])
    if room < 0:
        return []
    for part in (_facts(one), _flags(one.flags), _tensors(one), _layers(one), _history(one)):
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
    yield f"- {_sizes(one.sizes)}"


def _sizes(sizes: Sizes) -> str:
    told = []
    for what, before, after in (
        ("file", sizes.file_before, sizes.file_after),
        ("text", sizes.text_before, sizes.text_after),
    ):
        known = [size(value) for value in (before, after) if value is not None]
        if known:
            told.append(f"{what} {' to '.join(dict.fromkeys(known))}")
    limit = "" if sizes.limit is None else f", of {size(sizes.limit)} that a blob may have"
    return ", ".join(told) + limit


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
    relative = share = l2 = most = ""
    if tensor.change is not None:
        share = percent(tensor.change.changed_share)
    if isinstance(tensor.change, Numbers):
        relative = _relative(tensor.change.relative_l2)
        l2, most = f"{tensor.change.l2:.3g}", f"{tensor.change.max_abs:.3g}"
    dtype = text(clipped(tensor.dtype, MOST_NAME))
    if tensor.base_dtype is not None:
        dtype = f"{text(clipped(tensor.base_dtype, MOST_NAME))} to {dtype}"
    shape = _shape(tensor.shape)
    if tensor.base_shape is not None:
        shape = f"{_shape(tensor.base_shape)} to {shape}"
    return (code(tensor.name, MOST_NAME), relative, share, l2, most, dtype, shape)


def _layers(one: Reviewed) -> Iterator[str]:
    changed = [group for group in one.groups if group.changed]
    if not changed:
        return
    columns = ("layer", "relative", "L2", "tensors", "elements")
    yield from table(columns, [_layer(group) for group in changed[:MOST_ROWS]])
    yield from _more(len(changed), "changed layer")


def _layer(group: LayerGroup) -> tuple[str, ...]:
    return (
        code(group.name, MOST_NAME),
        _relative(group.relative_l2),
        f"{group.l2:.3g}",
        f"{count(group.changed)} of {count(group.tensors)}",
        count(group.changed_elements),
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


def _more(there: int, noun: str) -> Iterator[str]:
    if there > MOST_ROWS:
        yield ""
        yield f"and {counted(there - MOST_ROWS, f'more {noun}')}"


def _relative(value: float | None) -> str:
    return "from 0" if value is None else percent(value)


def _shape(shape: tuple[int, ...]) -> str:
    return clipped(" x ".join(map(str, shape)) if shape else "scalar", MOST_NAME)


def _length(lines: Sequence[str]) -> int:
    return sum(map(len, lines)) + len(lines)
