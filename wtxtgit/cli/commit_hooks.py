"""What git's hooks run before a commit.

Git waits for it before each commit, so this imports little, and `main` does without click.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from wtxtgit.chain import already_checked
from wtxtgit.cli import boundary, environment
from wtxtgit.cli.boundary import complain, note, warn
from wtxtgit.git.history import Head
from wtxtgit.git.repository import STRICT, TRUST_ROOT, Repository
from wtxtgit.io import clock
from wtxtgit.io.progress import shown

if TYPE_CHECKING:
    from wtxtgit.report.audit import Finding
    from wtxtgit.report.check import CheckReport

_PRE_COMMIT = "pre-commit"
_AUTO_SEAL = "wtxtgit.autoSeal"


def main(_arguments: list[str]) -> int:
    """Run the pre-commit hook; returns the exit code."""
    return boundary.run(lambda: run(_PRE_COMMIT))


def run(name: str, *, as_json: bool = False) -> int:
    """Seal if configured, and check what is about to be committed; returns the exit code."""
    repo = Repository.discover()
    head = Head(repo)
    key_file = environment.facts_key()
    merged = () if name == "pre-applypatch" else environment.merged_commits()
    is_plain = name == _PRE_COMMIT and not merged and repo.config.get(_AUTO_SEAL) is None
    if is_plain and not as_json and already_checked.is_settled(head, key_file):
        return 0
    # Only here: it takes as long to load as git to answer.
    from wtxtgit.chain import check

    seals = name != "pre-applypatch" and repo.config.is_true(_AUTO_SEAL)
    if seals and name == _PRE_COMMIT:
        _seal(head, merged)
    root, strict = repo.config.get(TRUST_ROOT), repo.config.is_true(STRICT)
    request = check.CheckRequest(root, merged, require_sealed=seals, strict=strict)
    with shown("checking") as advance:
        report = check.check(head, request, environment.processes, key_file, advance)
    if name == _PRE_COMMIT and not (merged or seals or report.findings or report.notes):
        already_checked.remember(head, key_file)
    if as_json:
        from wtxtgit.cli.output import print_json

        print_json(report)
        return report.exit_code
    _tell(report)
    if already_checked.is_under_way(repo):
        _warn_of_dropped(repo)
    return report.exit_code


def _warn_of_dropped(repo: Repository) -> None:
    """Warn of conflicts that are about to be committed as our own file."""
    from wtxtgit.merge import conflicts

    for path in conflicts.dropped(repo):
        # Git starts hooks at the top level.
        folder = environment.git_prefix()
        shown = shlex.quote(os.path.relpath(os.fsdecode(path), folder or "."))
        warn(
            f"{os.fsdecode(path)}: its conflict is not settled: our side is committed, without "
            f"the changes of the other side",
            f"git stash push --keep-index -- {shown} && git checkout -m -- {shown} restores the "
            "conflict, wtxtgit resolve settles it",
        )


def _seal(head: Head, merged: tuple[str, ...]) -> None:
    """Seal what is staged, unless somebody has to look: in a merge, or a commit of paths."""
    from wtxtgit.chain.check import parents_of_next
    from wtxtgit.git.staging import is_partial_commit

    repo = head.repo
    if is_partial_commit(repo) or len(parents_of_next(head, merged)) > 1:
        return
    from wtxtgit.chain.seal import seal
    from wtxtgit.chain.seal_plan import Action, SealOptions
    from wtxtgit.cli.keys import signing_key
    from wtxtgit.cli.seal import tell_doubts

    options = SealOptions(clock.utc_now(), staged=True, trust_root=repo.config.get(TRUST_ROOT))
    with shown("sealing") as advance:
        report = seal(
            repo,
            (),
            lambda: signing_key(None, None, repo.home),
            options,
            threads=environment.threads(),
            key_file=environment.facts_key(),
            progress=advance,
        )
    for sealed in report.sealed:
        if sealed.action is not Action.UNCHANGED:
            came = "" if sealed.moved_from is None else f" from {os.fsdecode(sealed.moved_from)}"
            note(f"{os.fsdecode(sealed.path)}: {sealed.action}{came}, generation {sealed.gen}")
    tell_doubts(report)


def _tell(report: CheckReport) -> None:
    """Print the findings; nothing if there are none."""
    from wtxtgit.report.audit import Severity
    from wtxtgit.report.check import hint

    folder = environment.git_prefix()
    for finding in report.findings:
        if finding.severity is Severity.ERROR:
            complain(finding_line(finding), hint(finding, report, folder))
        # Where nobody seals, that nothing is sealed is no news.
        elif finding.kind != "unsealed" or report.is_sealing:
            warn(finding_line(finding), hint(finding, report, folder))
    for line in report.notes:
        note(line)


def finding_line(finding: Finding) -> str:
    """Format a finding as a line of a message."""
    commit = f"{finding.commit[:12]}: " if finding.commit else ""
    path = f"{os.fsdecode(finding.path)}: " if finding.path else ""
    return f"{commit}{path}{finding.kind}: {finding.message}"
