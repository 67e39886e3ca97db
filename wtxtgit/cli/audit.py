"""`wtxtgit audit` and `wtxtgit log`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import environment
from wtxtgit.cli.options import (
    FilePath,
    Revision,
    cluster,
    cluster_options,
    completed,
    discover,
    examiner,
    facts_key,
    findings_format,
    identity_option,
    is_strict,
    no_cache_option,
    opening_keys,
    passphrase_option,
    root_of_trust,
    strict_option,
    trust_root_option,
)
from wtxtgit.cli.output import (
    is_printed,
    print_json,
    print_line,
    print_table,
    progress,
)
from wtxtgit.errors import MAX_NAME, UsageError, clipped
from wtxtgit.io.progress import Progress
from wtxtgit.report.audit import AuditReport, Finding, hints, totals
from wtxtgit.report.figures import DATE_SHOWN, HASH_SHOWN, OID_SHOWN, size

if TYPE_CHECKING:
    from wtxtgit.chain.log import LogCommit, LogEntry

_MOST = 200
"""Findings that are printed; --json gives all."""
_LOG_OID_SHOWN = 10


@click.command()
@click.argument("range_", metavar="[RANGE]", required=False, type=Revision())
@click.option(
    "--trust-root",
    metavar="COMMIT|FILE",
    shell_complete=completed("targets"),
    help="Where trust starts: a commit, or a signers file. Default: config wtxtgit.trustRoot.",
)
@click.option("--require-signed", is_flag=True, help="Fail if the trust root has no signers.")
@strict_option
@click.option("--every", is_flag=True, help="Also judge the commits of merged branches.")
@click.option(
    "--all", "all_refs", is_flag=True, help="Judge all branches and tags, not only one tip."
)
@click.option(
    "--was", metavar="OLDTIP", help="The tip before a push; the new tip must descend from it."
)
@click.option(
    "--signers-of",
    type=Revision(),
    metavar="REV",
    help="A revision whose signers must also accept all records.",
)
@identity_option
@passphrase_option
@no_cache_option
@cluster_options
@findings_format
def audit(
    range_: str | None,
    trust_root: str | None,
    require_signed: bool,
    strict: bool,
    every: bool,
    all_refs: bool,
    was: str | None,
    signers_of: str | None,
    identities: tuple[Path, ...],
    passphrase_fd: int | None,
    no_cache: bool,
    scheduler: str | None,
    worker_clone: Path | None,
    form: str,
    as_json: bool,
) -> int:
    """Prove the signed chain of every checkpoint across commits.

    RANGE is a revision (default HEAD) or A..B. The audit judges the whole tree of the
    tip, and the changes of each commit after A on the line of first parents. Which keys
    are trusted, and what was sealed, follows from all commits since the trust root. The
    exit code is 0 only if everything holds, 1 if integrity fails, 4 if only trust fails.

    \b
    wtxtgit audit --trust-root v1.0
    wtxtgit audit --trust-root v1.0 origin/main..HEAD --format github
    wtxtgit audit --trust-root v1.0 --scheduler tcp://10.0.0.5:8786
    """
    from wtxtgit.chain import audit as chain_audit
    from wtxtgit.chain.reader import Facts

    repo = discover()
    base, tip = _range(range_)
    root = root_of_trust(repo, trust_root)
    request = chain_audit.AuditRequest(
        tip,
        base,
        root,
        was,
        every,
        require_signed,
        all_refs=all_refs,
        signers_of=signers_of,
        strict=is_strict(repo, given=strict),
        identities=opening_keys(identities, passphrase_fd),
    )
    with (
        cluster(scheduler, worker_clone) as workers,
        progress("auditing", None, waits=True) as advance,
    ):
        facts = Facts(
            repo,
            environment.processes(),
            key_file=facts_key(workers, no_cache),
            examiner=examiner(workers, repo, worker_clone),
        )
        report = chain_audit.audit(repo, request, facts, progress=advance)
    _print_as("json" if as_json else form, report)
    return report.exit_code


def _print_as(form: str, report: AuditReport) -> None:
    if form == "json":
        print_json(report)
    elif form == "text":
        print_report(report)
    else:
        from wtxtgit.cli.forge_step import print_findings
        from wtxtgit.report.forge_findings import of_audit
        from wtxtgit.report.markdown import summary

        summed = partial(summary, report)
        print_findings(form, of_audit(report), report, summed, partial(print_report, report))


def print_report(report: AuditReport) -> None:
    """Print an audit for people."""
    for finding in report.findings[:_MOST]:
        _print_finding(finding)
    if len(report.findings) > _MOST:
        print_line(f"and {len(report.findings) - _MOST} more; --json lists them")
    if report.findings:
        print_line()
        todo = list(hints(report.findings, report.settled).items())
        print_table(("kind", "what to do"), todo, whole=("what to do",))
        print_line()
    print_line(f"{report.word}: {totals(report)}")
    if report.signers:
        print_line(f"trusted: {', '.join(report.signers)}")
    for note in report.notes:
        print_line(f"note: {note}")


def _print_finding(finding: Finding) -> None:
    commit = f"{finding.commit[:OID_SHOWN]} " if finding.commit else ""
    path = f"{os.fsdecode(finding.path)}: " if finding.path else ""
    word = "" if finding.severity == "error" else f"{finding.severity}: "
    print_line(f"{commit}{path}{word}{finding.kind}: {finding.message}")


def _range(text: str | None) -> tuple[str | None, str]:
    """Base and tip of a range as git writes it."""
    if text is None:
        return None, "HEAD"
    if "..." in text:
        raise UsageError(f"{text!r}: not a range, which is spelled A..B")
    base, dots, tip = text.partition("..")
    if text.startswith("-"):
        raise UsageError(f"{text!r} is not a revision")
    return (base or "HEAD", tip or "HEAD") if dots else (None, text)


@click.command()
@click.argument("path", type=FilePath())
@click.argument("revision", default="HEAD", metavar="[REV]", type=Revision())
@trust_root_option
@click.option("--json", "as_json", is_flag=True, help="Print the generations as JSON.")
def log(path: str, revision: str, trust_root: str | None, as_json: bool) -> None:
    """List the sealed generations of the checkpoint at PATH, newest first.

    Each is shown with its commit, its size, its signers, and whether its place in the
    chain holds. Only audit checks whether the content is what was sealed. For a file
    that was never sealed, lists the commits that changed it.

    \b
    wtxtgit log model.fold
    wtxtgit log model.fold v1.0 --json
    """
    from wtxtgit.chain import log as chain_log

    repo = discover()
    root = root_of_trust(repo, trust_root)
    try:
        with _reading() as advance:
            generations = chain_log.log(
                repo, path, revision=revision, trust_root=root, progress=advance
            )
    except chain_log.NoLedger:
        with _reading() as advance:
            commits = chain_log.changes(repo, path, revision=revision, progress=advance)
        if not is_printed({"generations": [], "commits": commits}, as_json):
            _print_commits(commits)
        return
    if is_printed({"generations": generations}, as_json):
        return
    rows = [
        (
            str(generation.gen),
            generation.ts,
            generation.build,
            ", ".join(generation.signers) or "none",
            generation.sha256_all.hex()[:HASH_SHOWN],
            (generation.commit or "")[:_LOG_OID_SHOWN],
            _blob_size(generation),
            generation.verdict,
        )
        for generation in generations
    ]
    columns = ("gen", "time", "build", "signers", "hash", "commit", "blob size", "verdict")
    print_table(columns, rows, right=("gen", "blob size"), split=4)


def _reading() -> AbstractContextManager[Progress | None]:
    return progress("reading", None, noun="commit", waits=True)


def _print_commits(commits: Sequence[LogCommit]) -> None:
    print_line("never sealed; the commits that changed it:")
    rows = [
        (
            one.oid[:_LOG_OID_SHOWN],
            one.date[:DATE_SHOWN],
            clipped(one.author, MAX_NAME),
            "" if one.size is None else size(one.size),
            clipped(one.subject, MAX_NAME),
        )
        for one in commits
    ]
    columns = ("commit", "date", "author", "blob size", "subject")
    print_table(columns, rows, right=("blob size",))


def _blob_size(generation: LogEntry) -> str:
    if generation.size is None:
        return ""
    return size(generation.size) + (" detached" if generation.detached is not None else "")
