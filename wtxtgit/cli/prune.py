"""`wtxtgit prune`: a shorter history, from a new trust root."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from wtxtgit.cli import boundary, environment
from wtxtgit.cli.audit import print_report
from wtxtgit.cli.keys import signing_key
from wtxtgit.cli.options import (
    completed,
    discover,
    facts_key,
    needed_root,
    no_cache_option,
    passphrase_option,
)
from wtxtgit.cli.output import is_printed, print_line, print_table, progress
from wtxtgit.errors import MAX_NAME, UsageError, clipped, counted
from wtxtgit.io import clock
from wtxtgit.io.files import shown_path
from wtxtgit.model.ledger import LEDGER_SUFFIX
from wtxtgit.report.audit import AuditReport
from wtxtgit.report.figures import DATE_SHOWN, OID_SHOWN

if TYPE_CHECKING:
    from wtxtgit.chain.reader import Facts
    from wtxtgit.git.repository import Repository
    from wtxtgit.report.prune import ForgottenDeletion, PruneReport
    from wtxtgit.trust.signing import SigningKey

_SPAN = re.compile(r"([0-9]{1,6})([hdw])")
_SECONDS = {"h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
_MOST = 30
"""Commits that are listed; --json gives all."""


class TimeSpan(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A length of time: 12h, 7d, 4w."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _SPAN.fullmatch(value.strip())
        seconds = 0 if match is None else int(match[1]) * _SECONDS[match[2]]
        if not seconds:
            self.fail(f"'{value}' is not a length of time, such as 12h, 7d or 4w", param, ctx)
        return seconds


@click.command()
@click.argument("branch", required=False, shell_complete=completed("revisions"))
@click.option(
    "--keep-last", type=click.IntRange(min=1), metavar="N", help="Keep the last N commits."
)
@click.option("--keep-tagged", is_flag=True, help="Keep commits with a tag.")
@click.option(
    "--keep-every",
    type=TimeSpan(),
    metavar="D",
    help="Keep one commit for every 12h, 7d or 4w, counted from the tip.",
)
@click.option(
    "--apply", "applies", is_flag=True, help="Prune; without this option nothing is changed."
)
@click.option(
    "--confirm",
    "confirmed",
    multiple=True,
    metavar="REMOTE",
    help="With --apply: confirm that this remote may lose the dropped commits; repeatable.",
)
@click.option(
    "--prove",
    "old",
    metavar="OLDTIP",
    help="Prove that BRANCH is the pruned history of OLDTIP; change nothing.",
)
@click.option(
    "--trust-root",
    metavar="COMMIT",
    shell_complete=completed("revisions"),
    help="Where trust starts in the old history. Default: config wtxtgit.trustRoot.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="KEY",
    shell_complete=completed("keys"),
    help="Seal the new trust root with this key, as for seal; repeatable.",
)
@passphrase_option
@no_cache_option
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def prune(
    branch: str | None,
    keep_last: int | None,
    keep_tagged: bool,
    keep_every: int | None,
    applies: bool,
    confirmed: tuple[str, ...],
    old: str | None,
    trust_root: str | None,
    keys: tuple[str, ...],
    passphrase_fd: int | None,
    no_cache: bool,
    as_json: bool,
) -> int:
    """Shorten the history of BRANCH, starting it at a new trust root that its signers seal.

    On the line of first parents, the commits selected by options are kept, and also the
    tip and later changes of the signers. They keep their files, authors, dates and
    messages, but get new ids. The old history is audited first, and the new one is
    proved against it. Then the branch and the tags of kept commits move; their old
    values stay under refs/wtxt/before. Without --apply, nothing is changed, and the
    commits to be dropped are shown.

    \b
    wtxtgit prune --keep-last 10 --keep-tagged --keep-every 7d
    wtxtgit prune --keep-last 10 --key alice --apply --confirm origin
    wtxtgit prune --prove OLDTIP main --trust-root v1.0
    """
    from wtxtgit.chain.reader import Facts

    rules = keep_last is not None or keep_tagged or keep_every is not None
    if old is not None and (rules or applies or keys or confirmed):
        raise UsageError("--prove can only be combined with BRANCH and --trust-root")
    if old is None and not rules:
        raise UsageError(
            "no commits selected to keep", hint="--keep-last N, --keep-tagged, --keep-every D"
        )
    repo = discover()
    root = needed_root(repo, trust_root, "pruning audits the history")
    facts = Facts(repo, environment.processes(), key_file=facts_key(None, no_cache))
    if old is not None:
        return _prove(repo, old, branch or "HEAD", root, facts, as_json=as_json)
    from wtxtgit.chain.prune import PruneOptions
    from wtxtgit.chain.prune import prune as run

    options = PruneOptions(
        root, clock.utc_now(), branch, keep_last or 0, keep_tagged, keep_every, confirmed
    )
    specs = keys or (None,)

    def signers() -> list[SigningKey]:
        return [signing_key(spec, passphrase_fd, repo.home) for spec in specs]

    with progress("auditing", None, waits=True) as advance:
        report = run(repo, options, facts, signers if applies else None, advance)
    if isinstance(report, AuditReport):
        return _failed(report, as_json=as_json)
    if not is_printed(report, as_json):
        _print(report)
    _tell(report, root, applies=applies)
    return 0


def _prove(repo: Repository, old: str, new: str, root: str, facts: Facts, *, as_json: bool) -> int:
    from wtxtgit.chain.pruned import prove

    with progress("proving", None, waits=True) as advance:
        proof = prove(repo, old, new, root, facts, advance)
    if isinstance(proof, AuditReport):
        return _failed(proof, as_json=as_json)
    if not is_printed(proof, as_json):
        print_line(
            f"ok: {counted(proof.kept, 'commit')} kept of {proof.old[:OID_SHOWN]}, "
            f"sealed by {', '.join(proof.signers)}"
        )
        print_line(f"new trust root: {proof.root}")
    _tell_forgotten(proof.forgotten)
    return 0


def _failed(report: AuditReport, *, as_json: bool) -> int:
    if not is_printed(report, as_json):
        print_report(report)
    return report.exit_code


def _print(report: PruneReport) -> None:
    rows = [
        (
            "keep" if commit.why else "drop",
            commit.oid[:OID_SHOWN],
            commit.date[:DATE_SHOWN],
            ", ".join(commit.why),
            clipped(commit.subject, MAX_NAME),
        )
        for commit in reversed(report.commits[-_MOST:])
    ]
    print_table(("", "commit", "date", "why", "subject"), rows)
    if len(report.commits) > _MOST:
        print_line(f"and {len(report.commits) - _MOST} older ones; --json lists them")
    print_line()
    kept = len(report.kept)
    gone = len(report.commits) - kept + report.before
    if report.root is None:
        print_line(f"{kept} of {counted(kept + gone, 'commit')} would be kept")
        return
    print_line(f"{kept} of {counted(kept + gone, 'commit')} kept, all proved equal")
    print_line(f"new trust root: {report.root}")
    print_line(f"old history: kept under {report.backup}/ until you delete that")


def _tell(report: PruneReport, root: str, *, applies: bool) -> None:
    if report.others:
        names = ", ".join(report.others[:_MOST])
        boundary.warn(f"{counted(len(report.others), 'ref')} still at the old history: {names}")
    if report.signed_tags:
        names = ", ".join(report.signed_tags[:_MOST])
        when = "would lose" if report.root is None else "lost"
        whose = "its signature" if len(report.signed_tags) == 1 else "their signatures"
        boundary.warn(f"{counted(len(report.signed_tags), 'tag')} {when} {whose}: {names}")
    _tell_forgotten(report.forgotten, is_plan=report.root is None)
    if not applies:
        for remote in report.remotes:
            boundary.warn(
                f"{remote} has commits that would be dropped",
                f"--confirm {remote} allows the remote to lose them",
            )
    elif report.root is not None:
        boundary.warn(
            f"the trust root {root} belongs to the old history",
            f"git config wtxtgit.trustRoot {report.root}",
        )


def _tell_forgotten(deletions: Sequence[ForgottenDeletion], *, is_plan: bool = False) -> None:
    for deletion in deletions[:_MOST]:
        hint = None
        if is_plan and deletion.commit is not None:
            ledger = shlex.quote(":(top,literal)" + shown_path(deletion.path + LEDGER_SUFFIX))
            hint = f"git checkout {deletion.commit} -- {ledger}, then git commit keeps the deletion"
        when = "would forget" if is_plan else "forgets"
        boundary.warn(
            f"{shown_path(deletion.path)}: the new history {when} its sealed deletion, so an audit "
            "would accept the deleted file again",
            hint,
        )
    if len(deletions) > _MOST:
        boundary.warn(f"and {len(deletions) - _MOST} more deletions; --json lists them")
