"""`wtxtgit audit`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from wtxtgit.cli import environment, github_step
from wtxtgit.cli.check import no_cache_option
from wtxtgit.cli.cluster import cluster, cluster_options, examiner, facts_key
from wtxtgit.cli.output import print_json, print_line, print_table
from wtxtgit.cli.progress import progress
from wtxtgit.errors import UsageError
from wtxtgit.report.audit import AuditReport, Finding, hints
from wtxtgit.report.totals import totals
from wtxtgit.version import __version__

_MOST = 200
"""Findings that are printed; --json gives all."""
_OID_SHOWN = 12


@click.command()
@click.argument("range_", metavar="[RANGE]", required=False)
@click.option(
    "--trust-root",
    metavar="COMMIT|FILE",
    help="Where trust starts: a commit, or a signers file. Default: config wtxtgit.trustRoot.",
)
@click.option("--require-signed", is_flag=True, help="Fail where the trust root has no signers.")
@click.option("--every", is_flag=True, help="Judge the commits of merged branches, too.")
@click.option("--all", "all_refs", is_flag=True, help="All branches and tags are tips, too.")
@click.option("--was", metavar="OLDTIP", help="The tip before a push, which it has to go on from.")
@click.option(
    "--signers-of",
    metavar="REV",
    help="The signers known there have to accept all records, too: a branch may be older.",
)
@no_cache_option
@cluster_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif", "github"]),
    default="text",
    help="How findings are printed.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def audit(
    range_: str | None,
    trust_root: str | None,
    require_signed: bool,
    every: bool,
    all_refs: bool,
    was: str | None,
    signers_of: str | None,
    no_cache: bool,
    scheduler: str | None,
    worker_clone: Path | None,
    form: str,
    as_json: bool,
) -> int:
    """Prove the chain of all checkpoints across commits.

    RANGE is a revision (default HEAD) or A..B. Judged are the tip's whole tree,
    and what each commit after A changes on the line of first parents; who is
    trusted and what was sealed is found out over all commits from the trust
    root on. Exit code 0 only if everything holds; 1 integrity, 4 only trust.

    \b
    wtxtgit audit --trust-root v1.0
    wtxtgit audit --trust-root v1.0 origin/main..HEAD --format github
    wtxtgit audit --trust-root v1.0 --scheduler tcp://10.0.0.5:8786
    """
    from wtxtgit.chain import audit as ops
    from wtxtgit.chain.contents import Facts
    from wtxtgit.git.config import effective
    from wtxtgit.git.repository import Repository
    from wtxtgit.report.sarif import sarif

    repo = Repository.discover()
    base, tip = _range(range_)
    root = effective("wtxtgit.trustRoot", cwd=repo.home) if trust_root is None else trust_root
    request = ops.Request(
        tip, base, root, was, every, require_signed, all_refs=all_refs, signers_of=signers_of
    )
    with (
        cluster(scheduler, worker_clone) as workers,
        progress("auditing", None) as advance,
    ):
        facts = Facts(
            repo,
            environment.processes(),
            key_file=facts_key(workers, no_cache),
            examiner=examiner(workers, repo, worker_clone),
        )
        report = ops.audit(repo, request, facts, progress=advance)
    form = "json" if as_json else form
    if form == "json":
        print_json(report.as_dict())
    elif form == "sarif":
        print_json(sarif(report, __version__))
    elif form == "github":
        github_step.annotate(report)
        with github_step.plain_lines():
            print_report(report)
        github_step.hand_over(report)
    else:
        print_report(report)
    return report.exit_code


def print_report(report: AuditReport) -> None:
    """Print an audit for people."""
    for finding in report.findings[:_MOST]:
        _print_finding(finding)
    if len(report.findings) > _MOST:
        print_line(f"and {len(report.findings) - _MOST} more, --json lists them")
    if report.findings:
        print_line()
        print_table(("kind", "what to do"), list(hints(report.findings).items()))
    print_line(f"{'ok' if report.ok else 'FAILED'}: {totals(report)}")
    if report.signers:
        print_line(f"trusted: {', '.join(report.signers)}")
    for note in report.notes:
        print_line(f"note: {note}")


def _print_finding(finding: Finding) -> None:
    commit = f"{finding.commit[:_OID_SHOWN]} " if finding.commit else ""
    path = f"{os.fsdecode(finding.path)}: " if finding.path else ""
    word = "" if finding.severity == "error" else f"{finding.severity}: "
    print_line(f"{commit}{path}{word}{finding.kind}: {finding.message}")


def _range(text: str | None) -> tuple[str | None, str]:
    """Base and tip of a range as git writes it."""
    if text is None:
        return None, "HEAD"
    if "..." in text:
        raise UsageError(f"{text!r}: a range is A..B")
    base, dots, tip = text.partition("..")
    if text.startswith("-"):
        raise UsageError(f"{text!r} is no revision")
    return (base or "HEAD", tip or "HEAD") if dots else (None, text)
