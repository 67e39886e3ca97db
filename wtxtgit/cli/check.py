"""`wtxtgit check`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import environment
from wtxtgit.cli.output import print_json, print_line, print_table
from wtxtgit.errors import UsageError
from wtxtgit.report.figures import size

if TYPE_CHECKING:
    from wtxtgit.report.check import CheckReport

TRUST_ROOT = "wtxtgit.trustRoot"

no_cache_option = click.option(
    "--no-cache", is_flag=True, help="Find all out anew: use and keep nothing known of blobs."
)


@click.command()
@click.option("--staged", is_flag=True, help="Check what is staged; there is nothing else yet.")
@no_cache_option
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def check(staged: bool, no_cache: bool, as_json: bool) -> int:
    """Check what is staged, as the commit that it is about to become.

    From the index alone: tracked files are texts that verify and are what the
    filter makes, none is a raw binary or larger than wtxtgit.maxBlob; ledgers
    go on from those of HEAD, or of HEAD's parents for an amend, and their last
    records are of the content and signed by whom .wtxt/signers lists. Exit code
    0 only if everything holds; 1 integrity, 4 only trust.

    \b
    wtxtgit check --staged
    """
    from wtxtgit.chain import check as ops
    from wtxtgit.git.config import effective
    from wtxtgit.git.repository import Repository

    if not staged:
        raise UsageError(
            "check is for a commit about to be made: --staged is needed",
            hint="wtxtgit check --staged; wtxtgit verify PATH checks files, wtxtgit audit commits",
        )
    repo = Repository.discover()
    root = effective(TRUST_ROOT, cwd=repo.home)
    request = ops.Request(root, environment.merged_commits(), every=True)
    report = ops.check(repo, request, environment.processes, environment.facts_key(no_cache))
    if as_json:
        print_json(report.as_dict())
    else:
        print_report(report)
    return report.exit_code


def print_report(report: CheckReport) -> None:
    """Print a check for people: every file, and what to do about findings."""
    from wtxtgit.report.check import hint

    if report.files:
        rows = [
            (os.fsdecode(f.path), f.state, "" if f.size is None else size(f.size))
            for f in report.files
        ]
        print_table(("path", "state", "size"), rows, right=("size",))
    elsewhere = {file.path for file in report.files}
    for finding in report.findings:
        if finding.path not in elsewhere:
            where = f"{os.fsdecode(finding.path)}: " if finding.path else ""
            print_line(f"{where}{finding.kind}: {finding.message}")
    if report.findings:
        todo = dict.fromkeys((one.kind, hint(one, report.occasion)) for one in report.findings)
        print_line()
        print_table(("kind", "what to do"), list(todo))
    print_line(
        f"{'ok' if report.ok else 'FAILED'}: {len(report.files)} files checked, "
        f"{len(report.errors)} errors, {len(report.warnings)} warnings"
    )
    for note in report.notes:
        print_line(f"note: {note}")
