"""`wtxtgit review`."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from wtxtgit.cli import environment
from wtxtgit.cli.boundary import note
from wtxtgit.cli.diff_table import print_cells, print_metadata, print_tensors, totals
from wtxtgit.cli.options import (
    FILE,
    Revision,
    cluster,
    cluster_options,
    comparer,
    discover,
    examiner,
    facts_key,
    no_cache_option,
    read_options,
    reading_options,
    root_of_trust,
    trust_root_option,
)
from wtxtgit.cli.output import print_json, print_line, progress
from wtxtgit.errors import UsageError, counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from wtxtgit.report.review import Review, Reviewed
    from wtxtgit.report.tables import Table

_MOST = 20
"""The most tensors, layers, generations and commits of a checkpoint that are printed."""
_FORMS = {".md": "md", ".html": "html", ".json": "json", ".sarif": "sarif"}
"""The output formats by the ending of the file."""
_TITLES = {"generation": "gen", "signed by": "signers"}
_T = TypeVar("_T")


@click.command()
@click.argument("range_", metavar="[RANGE]", required=False, type=Revision())
@trust_root_option
@reading_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "md", "json", "html", "sarif", "github"]),
    help="Output format: text, md for a comment, json, an html page, sarif for code scanning, or "
    "github for a step of a workflow. Default: that of OUT's ending, or text.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@no_cache_option
@cluster_options
@click.option("-o", "--output", type=FILE, metavar="OUT", help="Write to this file.")
def review(
    range_: str | None,
    trust_root: str | None,
    key: Path | None,
    max_chunk: int,
    form: str | None,
    as_json: bool,
    no_cache: bool,
    scheduler: str | None,
    worker_clone: Path | None,
    output: Path | None,
) -> int:
    """Show how a branch changes checkpoints, and which changes are risky.

    RANGE is BASE...HEAD for what HEAD changed since it branched off BASE, as forges
    show it, or BASE..HEAD to compare with BASE itself. BASE alone means BASE...HEAD.
    The default base is the upstream's default branch; before the first push, nothing.
    The exit code is 0 whatever is found.

    \b
    wtxtgit review origin/main...HEAD
    wtxtgit review main...topic -o review.html
    """
    from wtxtgit.chain.reader import Facts
    from wtxtgit.review import review as review_review

    named = None if output is None else _FORMS.get(output.suffix)
    form = "json" if as_json else form or named or "text"
    if form == "github" and output is not None:
        raise UsageError("--format github is for a runner, which reads what is printed: no -o")
    repo = discover()
    root = root_of_trust(repo, trust_root)
    has_pictures = form in ("json", "html")
    request = review_review.ReviewRequest(range_, root, read_options(key, max_chunk), has_pictures)
    with (
        cluster(scheduler, worker_clone) as workers,
        progress("reviewing", None, waits=True) as advance,
    ):
        facts = Facts(
            repo,
            environment.processes(),
            key_file=facts_key(workers, no_cache),
            examiner=examiner(workers, repo, worker_clone),
        )
        report = review_review.review(
            repo,
            request,
            facts,
            threads=environment.threads(),
            progress=advance,
            comparer=comparer(workers, worker_clone),
        )
    page = _page(report, form)
    if output is not None and str(output) != "-":
        _write(report, form, page, output)
    elif page is not None:
        # In UTF-8 whatever the terminal's encoding is: the page says so itself.
        sys.stdout.flush()
        sys.stdout.buffer.write(page)
    else:
        _print(report, form)
    if range_ is None and form == "text" and not report.commits:
        has_parent = not repo.call("rev-parse", "--verify", "-q", "HEAD~1", ok=(0, 1, 128)).code
        note(
            f"nothing since {report.base}",
            hint="wtxtgit review HEAD~1 shows the last commit"
            if has_parent
            else "wtxtgit inspect HEAD:PATH shows a checkpoint of the first commit",
        )
    return 0


def _page(report: Review, form: str) -> bytes | None:
    """Return a review as Markdown or HTML; None for other forms."""
    if form == "md":
        from wtxtgit.report.markdown import comment

        return comment(report).encode("utf-8", "backslashreplace")
    if form == "html":
        from wtxtgit.report.html.review import page

        return page(report).encode("utf-8", "backslashreplace")
    return None


def _print(report: Review, form: str) -> None:
    if form == "json":
        print_json(report)
    elif form == "text":
        _print_text(report)
    else:
        from wtxtgit.cli.forge_step import print_findings
        from wtxtgit.report.forge_findings import of_review
        from wtxtgit.report.markdown import comment

        summed = partial(comment, report)
        print_findings(form, of_review(report), report, summed, partial(_print_text, report))


def _write(report: Review, form: str, page: bytes | None, output: Path) -> None:
    """Write the review to a file, completely or not at all."""
    from wtxtgit.io.files import write_output
    from wtxtgit.io.view import write_all

    if page is None:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            _print(report, form)
        page = printed.getvalue().encode("utf-8", "backslashreplace")
    write_output(output, partial(write_all, content=[page]))


def _print_text(report: Review) -> None:
    risks = f"{counted(len(report.artifacts), 'checkpoint')}, {counted(report.flags, 'risk flag')}"
    print_line(f"{report.base} -> {report.head}: {counted(report.commits, 'commit')}, {risks}")
    for line in report.notes:
        print_line(f"note: {line}")
    for artifact in report.artifacts:
        print_line()
        _print_checkpoint(artifact)


def _print_checkpoint(reviewed: Reviewed) -> None:
    from wtxtgit.report.tables import (
        COMMITS,
        FLAGS,
        GENERATIONS,
        LAYERS,
        OTHERS,
        TENSORS,
        sizes_told,
    )

    path = os.fsdecode(reviewed.path)
    is_moved = reviewed.base_path is not None and reviewed.base_path != reviewed.path
    before = f" from {os.fsdecode(reviewed.base_path or b'')}" if is_moved else ""
    print_line(f"{path}: {reviewed.fate}{before}")
    if reviewed.delta is not None:
        print_line(f"delta: {reviewed.delta.message}")
    if reviewed.diff is not None:
        print_line(totals(reviewed.diff))
    elif reviewed.delta is None and reviewed.reason is not None:
        print_line(f"not compared: {reviewed.reason}")
    print_line(f"{reviewed.seal.state}: {reviewed.seal.message}")
    print_line(sizes_told(reviewed.sizes, "->"))
    for line in reviewed.diff.notes if reviewed.diff is not None else ():
        print_line(f"note: {line}")
    print_cells(FLAGS, reviewed.flags)
    changed = reviewed.changed
    print_tensors(changed[:_MOST])
    _print_more(len(changed), TENSORS.noun)
    _print_first(OTHERS, reviewed.others)
    print_metadata(reviewed.diff.metadata if reviewed.diff is not None else (), _MOST)
    _print_first(LAYERS, reviewed.layers)
    _print_first(GENERATIONS, reviewed.seal.generations, _TITLES)
    _print_first(COMMITS, reviewed.commits)


def _print_first(
    table: Table[_T], things: Sequence[_T], titles: Mapping[str, str] | None = None
) -> None:
    print_cells(table, things[:_MOST], titles)
    _print_more(len(things), table.noun)


def _print_more(count: int, noun: str) -> None:
    if count > _MOST:
        print_line(f"and {counted(count - _MOST, f'more {noun}')}; --json has them")
