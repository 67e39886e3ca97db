"""`wtxtgit hook`: what git's hooks run."""

from __future__ import annotations

import os
import shlex
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import environment
from wtxtgit.cli.boundary import complain, note, warn
from wtxtgit.cli.early_hook import AUTO_SEAL
from wtxtgit.cli.options import root_of_trust
from wtxtgit.cli.output import print_json

if TYPE_CHECKING:
    from wtxtgit.git.repository import Repository
    from wtxtgit.report.audit import Finding
    from wtxtgit.report.check import CheckReport

_MOST = 50
"""Findings that are told of one ref."""


@click.command()
@click.argument(
    "name", type=click.Choice(["pre-commit", "pre-merge-commit", "pre-applypatch", "pre-push"])
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def hook(name: str, arguments: tuple[str, ...], as_json: bool) -> int:
    """Run what git's hook NAME is there for.

    pre-commit, pre-merge-commit and pre-applypatch check what is about to be
    committed, as `wtxtgit check --staged` does, but for files that are as in
    HEAD; pre-push audits what is pushed. Exit code 1 or 4 refuses it. With the
    config wtxtgit.autoSeal pre-commit seals what is staged first. `wtxtgit
    install --hooks` installs all of them, ARGUMENTS are git's.

    \b
    wtxtgit hook pre-commit
    """
    from wtxtgit.git.repository import Repository

    repo = Repository.discover()
    if name == "pre-push":
        return _push(repo, arguments[0] if arguments else None, as_json)
    return _check(repo, name, as_json)


def _check(repo: Repository, name: str, as_json: bool) -> int:
    """Seal where that is wanted, and check."""
    from wtxtgit.chain import check as chain_check
    from wtxtgit.chain import settled
    from wtxtgit.merge import conflicts

    merged = () if name == "pre-applypatch" else environment.merged_commits()
    seals = name != "pre-applypatch" and repo.config.is_true(AUTO_SEAL)
    if seals and name == "pre-commit":
        _seal(repo, merged)
    root = root_of_trust(repo)
    request = chain_check.CheckRequest(root, merged, require_sealed=seals)
    report = chain_check.check(repo, request, environment.processes, environment.facts_key())
    if name == "pre-commit" and not (merged or seals or report.findings or report.notes):
        settled.remember(repo, environment.facts_key())
    if as_json:
        print_json(report)
        return report.exit_code
    _tell(report)
    for path in conflicts.dropped(repo):
        shown = shlex.quote(os.fsdecode(path))
        warn(
            f"{os.fsdecode(path)}: of a conflict that nobody settled our side is committed, and "
            "nothing that the other one changed",
            f"git checkout -m -- {shown} brings the conflict back, wtxtgit resolve settles it",
        )
    return report.exit_code


def _seal(repo: Repository, merged: tuple[str, ...]) -> None:
    """Seal what is staged, unless somebody has to look: in a merge, or a commit of paths."""
    from wtxtgit.chain.check import parents_of_next
    from wtxtgit.git.staging import is_partial_commit

    if is_partial_commit(repo) or len(parents_of_next(repo, merged)) > 1:
        return
    from wtxtgit.chain.seal import seal
    from wtxtgit.chain.seal_plan import Action, SealOptions
    from wtxtgit.cli.keys import signing_key
    from wtxtgit.cli.seal import tell_doubts

    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    root = root_of_trust(repo)
    options = SealOptions(now, staged=True, trust_root=root)
    report = seal(
        repo,
        (),
        lambda: signing_key(None, None, repo.home),
        options,
        threads=environment.threads(),
        key_file=environment.facts_key(),
    )
    for sealed in report.sealed:
        if sealed.action is not Action.UNCHANGED:
            came = "" if sealed.moved_from is None else f" from {os.fsdecode(sealed.moved_from)}"
            note(f"{os.fsdecode(sealed.path)}: {sealed.action}{came}, generation {sealed.gen}")
    tell_doubts(report)


def _tell(report: CheckReport) -> None:
    """Say what was found, and nothing where all is well."""
    from wtxtgit.report.audit import Severity
    from wtxtgit.report.check import hint

    for finding in report.findings:
        if finding.severity is Severity.ERROR:
            complain(_line(finding), hint(finding, report.occasion))
        # Where nobody seals, that nothing is sealed is no news.
        elif finding.kind != "unsealed" or report.is_sealing:
            warn(_line(finding), hint(finding, report.occasion))
    for line in report.notes:
        note(line)


def _push(repo: Repository, remote: str | None, as_json: bool) -> int:
    """Audit what is pushed; the worst of the refs' exit codes."""
    from wtxtgit.chain import push
    from wtxtgit.report.audit import hint

    told = environment.pushed_by_framework()
    if told is None:
        refs = push.parse(sys.stdin.buffer.read(push.MAX_LINES + 1))
    else:
        refs = [push.Ref(*told)]
    root = root_of_trust(repo)
    key_file = environment.facts_key()
    pushed = list(push.audit_push(repo, refs, remote, root, environment.processes, key_file))
    codes = [one.report.exit_code for one in pushed]
    if as_json:
        print_json({"refs": pushed})
        return _worst(codes)
    for one in pushed:
        for finding in one.report.findings[:_MOST]:
            say = complain if finding in one.report.errors else warn
            say(f"{one.ref.local}: {_line(finding)}", hint(finding))
        if len(one.report.findings) > _MOST:
            more = len(one.report.findings) - _MOST
            complain(f"{one.ref.local}: and {more} more", "wtxtgit audit lists them")
        # Who installed the hooks, and seals, has to know what it rests on.
        for line in one.report.notes if one.report.findings else ():
            note(line)
    return _worst(codes)


def _worst(codes: list[int]) -> int:
    """One of integrity before one of trust alone."""
    return min((code for code in codes if code), default=0)


def _line(finding: Finding) -> str:
    commit = f"{finding.commit[:12]}: " if finding.commit else ""
    path = f"{os.fsdecode(finding.path)}: " if finding.path else ""
    return f"{commit}{path}{finding.kind}: {finding.message}"
