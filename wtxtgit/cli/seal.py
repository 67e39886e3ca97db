"""`wtxtgit seal` and `check`: what is about to be committed."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import environment
from wtxtgit.cli.boundary import note, warn
from wtxtgit.cli.keys import key_options, signing_key
from wtxtgit.cli.options import (
    FilePath,
    Revision,
    completed,
    discover,
    findings_format,
    identity_option,
    is_strict,
    no_cache_option,
    opening_keys,
    passphrase_option,
    root_of_trust,
    strict_option,
)
from wtxtgit.cli.output import print_json, print_line, print_table, progress
from wtxtgit.errors import UsageError
from wtxtgit.io import clock
from wtxtgit.report.figures import HASH_SHOWN, size

if TYPE_CHECKING:
    from wtxtgit.chain.seal import SealReport
    from wtxtgit.report.check import CheckReport


class _SealCommand(click.Command):
    """A command whose --reseal takes a value behind `=` alone: a word that follows is a path."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        bare = ["--reseal=" if word == "--reseal" else word for word in args[:end]]
        return super().parse_args(ctx, bare + args[end:])


@click.command(cls=_SealCommand)
@click.argument("paths", nargs=-1, type=FilePath())
@click.option("--staged", is_flag=True, help="Seal the staged files, and stage the ledgers.")
@click.option(
    "--build",
    default="none",
    metavar="B",
    help="Where the content comes from, such as a commit; one word.",
)
@click.option(
    "--cosign", is_flag=True, help="Add a signature to the last records instead of appending any."
)
@click.option(
    "--reseal",
    type=Revision(),
    metavar="REV",
    help="After a merge, rebase or revert: keep the records of a commit, and append. Write "
    "--reseal or --reseal=REV.",
)
@click.option(
    "--countersign",
    is_flag=True,
    help="Sign records that do not count yet, such as those of a merged branch.",
)
@click.option(
    "--trust-root",
    metavar="REV|FILE",
    shell_complete=completed("targets"),
    help="Where trust starts, for --reseal and --countersign. Default: config wtxtgit.trustRoot.",
)
@key_options
@identity_option
@click.option("--json", "as_json", is_flag=True, help="Print what was sealed as JSON.")
def seal(
    paths: tuple[str, ...],
    staged: bool,
    build: str,
    cosign: bool,
    reseal: str | None,
    countersign: bool,
    trust_root: str | None,
    key: str | None,
    passphrase_fd: int | None,
    identities: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Append a signed record to the ledger of each changed checkpoint.

    PATHS are tracked files or folders; the default is all checkpoints and
    .wtxt/signers. The ledger of FILE is FILE.wsum, and moves with it. Sealing again
    changes nothing. To seal the deletion of a file, name it. --reseal keeps the records
    of REV and appends to them; the default is the parent on the upstream's default
    branch, or else HEAD.

    \b
    wtxtgit seal --staged
    wtxtgit seal --cosign .wtxt/signers --key bob
    wtxtgit seal --countersign --key alice
    """
    from wtxtgit.chain.seal import seal as run
    from wtxtgit.chain.seal_plan import SealOptions

    if cosign and reseal is not None:
        raise UsageError("--cosign and --reseal cannot be combined")
    if countersign and (cosign or reseal is not None):
        other = "--cosign" if cosign else "--reseal"
        raise UsageError(f"--countersign and {other} cannot be combined")
    if trust_root is not None and not countersign and reseal is None:
        raise UsageError("--trust-root needs --reseal or --countersign")
    # Only here is a clock read: all below takes the time as an argument.
    now = clock.utc_now()
    repo = discover()
    root = root_of_trust(repo, trust_root)
    keys = opening_keys(identities, passphrase_fd)
    with progress("sealing", None, waits=True) as advance:
        report = run(
            repo,
            paths,
            lambda: signing_key(key, passphrase_fd, repo.home),
            SealOptions(now, build, staged, cosign, reseal, countersign, root, keys),
            threads=environment.threads(),
            key_file=environment.facts_key(),
            progress=advance,
        )
    tell_doubts(report)
    if report.note is not None:
        note(report.note)
    if as_json:
        print_json(report)
    elif countersign:
        print_countersigned(report)
    else:
        print_sealed(report)


def tell_doubts(report: SealReport) -> None:
    """Warn of records that an audit may not count."""
    for doubt in report.doubts:
        warn(doubt.message, doubt.hint)


def print_sealed(report: SealReport) -> None:
    """Print what was sealed, for people."""
    if not report.sealed:
        print_line("nothing to seal: no checkpoint is in the index")
    changed = [sealed for sealed in report.sealed if sealed.action != "unchanged"]
    for sealed in changed:
        shown = sealed.sha256_all.hex()[:HASH_SHOWN]
        came = "" if sealed.moved_from is None else f", from {os.fsdecode(sealed.moved_from)}"
        print_line(
            f"{sealed.action:9} {os.fsdecode(sealed.path)}  generation {sealed.gen}, {shown}{came}"
        )
    if report.sealed and not changed:
        (first, *others) = report.sealed
        which = f"all {len(report.sealed)} are" if others else f"{os.fsdecode(first.path)} is"
        print_line(f"{which} already sealed")


def print_countersigned(report: SealReport) -> None:
    """Print which records got a signature, for people."""
    changed = [sealed for sealed in report.sealed if sealed.generations]
    for sealed in changed:
        word = "generation" if len(sealed.generations) == 1 else "generations"
        listed = ", ".join(map(str, sealed.generations))
        print_line(f"{sealed.action} {os.fsdecode(sealed.path)}  {word} {listed}")
    if not changed:
        print_line("nothing to countersign: all records count, or are signed already")


@click.command()
@click.option("--staged", is_flag=True, help="Check the staged files; required.")
@strict_option
@identity_option
@passphrase_option
@no_cache_option
@findings_format
def check(
    staged: bool,
    strict: bool,
    identities: tuple[Path, ...],
    passphrase_fd: int | None,
    no_cache: bool,
    form: str,
    as_json: bool,
) -> int:
    """Check the staged files as the commit that they will become.

    Reads only the index. Tracked files must be texts that verify and that the filter
    would make; none may be a raw binary or larger than wtxtgit.maxBlob. Ledgers must
    continue those of HEAD (of HEAD's parents for an amend), and their last records must
    match the content and be signed by signers in .wtxt/signers. The exit code is 0 only
    if everything holds, 1 if integrity fails, 4 if only trust fails.

    \b
    wtxtgit check --staged
    wtxtgit check --staged --format github
    """
    from wtxtgit.chain import check as chain_check
    from wtxtgit.git.history import Head

    if not staged:
        raise UsageError(
            "check needs --staged",
            hint="wtxtgit check --staged checks the next commit, wtxtgit verify PATH files, "
            "wtxtgit audit commits",
        )
    repo = discover()
    root = root_of_trust(repo)
    strict = is_strict(repo, given=strict)
    merged = environment.merged_commits()
    request = chain_check.CheckRequest(
        root, merged, every=True, strict=strict, identities=opening_keys(identities, passphrase_fd)
    )
    with progress("checking", None, waits=True) as advance:
        report = chain_check.check(
            Head(repo), request, environment.processes, environment.facts_key(no_cache), advance
        )
    _print_as("json" if as_json else form, report, os.fsdecode(repo.prefix))
    return report.exit_code


def _print_as(form: str, report: CheckReport, folder: str) -> None:
    if form == "json":
        print_json(report)
    elif form == "text":
        print_report(report, folder)
    else:
        from wtxtgit.cli.forge_step import print_findings
        from wtxtgit.report.forge_findings import of_check
        from wtxtgit.report.markdown import check_summary

        show = partial(print_report, report, folder)
        print_findings(form, of_check(report), report, partial(check_summary, report), show)


def print_report(report: CheckReport, folder: str) -> None:
    """Print a check for people: every file, and what to do about findings in `folder`."""
    from wtxtgit.report.check import hint, totals

    if report.files:
        rows = [
            (os.fsdecode(f.path), f.state, "" if f.size is None else size(f.size))
            for f in report.files
        ]
        print_table(("path", "state", "size"), rows, right=("size",))
        print_line()
    elsewhere = {file.path for file in report.files}
    for finding in report.findings:
        if finding.path not in elsewhere:
            where = f"{os.fsdecode(finding.path)}: " if finding.path else ""
            print_line(f"{where}{finding.kind}: {finding.message}")
    if report.findings:
        todo = dict.fromkeys(
            (finding.kind, hint(finding, report, folder)) for finding in report.findings
        )
        print_table(("kind", "what to do"), list(todo), whole=("what to do",))
        print_line()
    print_line(f"{report.word}: {totals(report)}")
    for line in report.notes:
        print_line(f"note: {line}")
