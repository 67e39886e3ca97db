"""`wtxtgit seal`."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import environment
from wtxtgit.cli.boundary import warn
from wtxtgit.cli.key_options import key_options, signing_key
from wtxtgit.cli.output import print_json, print_line
from wtxtgit.errors import UsageError

if TYPE_CHECKING:
    from wtxtgit.ops.seal import SealReport

_HASH_SHOWN = 12


class _Seal(click.Command):
    """A command whose --reseal takes a value behind `=` alone: a word that follows is a path."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        bare = ["--reseal=" if word == "--reseal" else word for word in args[:end]]
        return super().parse_args(ctx, bare + args[end:])


@click.command(cls=_Seal)
@click.argument("paths", nargs=-1, type=click.Path())
@click.option("--staged", is_flag=True, help="Seal what the index holds, in index and work tree.")
@click.option("--build", default="none", metavar="B", help="What made the content, as one word.")
@click.option("--cosign", is_flag=True, help="Sign the last records as well; append none.")
@click.option(
    "--reseal",
    metavar="REV",
    help="After a merge, rebase or revert: keep the records of a commit, and append. As "
    "--reseal, or --reseal=REV.",
)
@key_options
@click.option("--json", "as_json", is_flag=True, help="Print what was sealed as JSON.")
def seal(
    paths: tuple[str, ...],
    staged: bool,
    build: str,
    cosign: bool,
    reseal: str | None,
    key: str | None,
    passphrase_fd: int | None,
    as_json: bool,
) -> None:
    """Append a signed record to the ledger of each checkpoint that changed.

    PATHS are tracked files or folders; without them all checkpoints and
    .wtxt/signers. A ledger stands beside its file, as FILE.wsum. Sealing what
    is sealed already changes nothing. --reseal takes REV's ledgers, by default
    those of the parent that the upstream's default branch has, else HEAD's.

    \b
    wtxtgit seal --staged
    wtxtgit seal --cosign .wtxt/signers --key bob
    """
    from wtxtgit.git.repository import Repository
    from wtxtgit.ops.seal import SealOptions
    from wtxtgit.ops.seal import seal as run

    if cosign and reseal is not None:
        raise UsageError("--cosign appends no record, and --reseal does: take one of them")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    repo = Repository.discover()
    report = run(
        repo,
        paths,
        lambda: signing_key(key, passphrase_fd, repo.home),
        SealOptions(now, build, staged, cosign, reseal),
        threads=environment.threads(),
    )
    if not report.is_listed:
        warn(f"key {report.keyid} is none of the signers in .wtxt/signers")
    if as_json:
        print_json(report.as_dict())
    else:
        print_sealed(report)


def print_sealed(report: SealReport) -> None:
    """Print what was sealed, for people."""
    if not report.sealed:
        print_line("there is nothing to seal: no checkpoint is tracked")
    changed = [sealed for sealed in report.sealed if sealed.action != "unchanged"]
    for sealed in changed:
        shown = sealed.sha256_all.hex()[:_HASH_SHOWN]
        print_line(
            f"{sealed.action:9} {os.fsdecode(sealed.path)}  generation {sealed.gen}, {shown}"
        )
    if report.sealed and not changed:
        print_line(f"all {len(report.sealed)} are sealed already")
