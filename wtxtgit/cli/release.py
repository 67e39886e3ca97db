"""`wtxtgit release`: what a tag's checkpoints are, signed for others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import environment
from wtxtgit.cli.audit import print_report
from wtxtgit.cli.keys import key_options, signing_key
from wtxtgit.cli.options import (
    FILE,
    completed,
    discover,
    facts_key,
    needed_root,
    no_cache_option,
    trust_root_option,
)
from wtxtgit.cli.output import is_printed, print_line, print_table, progress
from wtxtgit.cli.passphrase import asker
from wtxtgit.errors import counted
from wtxtgit.io.files import write_output
from wtxtgit.io.view import write_all
from wtxtgit.report.figures import HASH_SHOWN, OID_SHOWN

if TYPE_CHECKING:
    from wtxtgit.report.release import ReleaseReport
    from wtxtgit.trust.pem_keys import EcSecretKey
    from wtxtgit.trust.signing import SigningKey

_DEFAULT_OUT = Path("model.sig")
_PEM_ENDING = ".pem"


@click.command()
@click.argument("tag", shell_complete=completed("revisions"))
@click.option(
    "-o",
    "--output",
    type=FILE,
    default=_DEFAULT_OUT,
    help="Write the bundle to this file. Default: model.sig.",
)
@click.option(
    "--all-files", is_flag=True, help="List all files of the commit, not only checkpoints."
)
@trust_root_option
@key_options
@click.option("-n", "--dry-run", is_flag=True, help="Write nothing; show what would be signed.")
@no_cache_option
@click.option("--json", "as_json", is_flag=True, help="Print what was signed as JSON.")
def release(
    tag: str,
    output: Path,
    all_files: bool,
    trust_root: str | None,
    key: str | None,
    passphrase_fd: int | None,
    dry_run: bool,
    no_cache: bool,
    as_json: bool,
) -> int:
    """Sign a list of the checkpoints at TAG, for those who download them.

    The list has the SHA-256 of each file as a checkout writes it. The tag's commit is
    audited first; if the audit fails, nothing is signed. The result is an OpenSSF Model
    Signing bundle. `wtxtgit verify` checks it with any key, model-signing from PyPI only
    with an EC key (--key FILE, in PEM). An OpenSSH key must be trusted at TAG.

    \b
    wtxtgit release v1.0 --key alice
    wtxtgit release v1.0 --all-files --key ./release.pem -o v1.0.sig
    wtxtgit verify v1.0.sig --public-key release.pub --against v1.0
    """
    from wtxtgit.chain.reader import Facts
    from wtxtgit.chain.release import ReleaseOptions
    from wtxtgit.chain.release import release as run

    repo = discover()
    root = needed_root(repo, trust_root, "a release is audited")

    def signer() -> SigningKey | EcSecretKey:
        return _pem_key(key, passphrase_fd) or signing_key(key, passphrase_fd, repo.home)

    with progress("auditing", None, waits=True) as advance:
        facts = Facts(repo, environment.processes(), key_file=facts_key(None, no_cache))
        options = ReleaseOptions(tag, root, all_files)
        audited, report, bundle = run(
            repo, options, facts, None if dry_run else signer, progress=advance
        )
    if report is None:
        if not is_printed(audited, as_json):
            print_report(audited)
        return audited.exit_code
    if not dry_run:
        write_output(output, lambda descriptor: write_all(descriptor, (bundle,)))
    if not is_printed(report, as_json):
        _print(report, None if dry_run else output)
    return 0


def _pem_key(key: str | None, passphrase_fd: int | None) -> EcSecretKey | None:
    """Return the key of --key if that is a file in PEM."""
    # No name of a key has a slash, or this ending.
    if key is None or not ("/" in key or key.endswith(_PEM_ENDING)):
        return None
    from wtxtgit.io.files import failures, shown
    from wtxtgit.trust.keyring import read_secret_file
    from wtxtgit.trust.pem_keys import is_pem, parse_pem_secret

    path = Path(key)
    with failures(path):
        content = read_secret_file(path)
    return parse_pem_secret(content, shown(path), asker(passphrase_fd)) if is_pem(content) else None


def _print(report: ReleaseReport, out: Path | None) -> None:
    rows = [
        (file.path, "" if file.gen is None else str(file.gen), file.sha256[:HASH_SHOWN])
        for file in report.files
    ]
    print_table(("path", "gen", "sha256"), rows, right=("gen",))
    print_line()
    what = f"{report.tag}: commit {report.commit[:OID_SHOWN]}, {counted(len(rows), 'file')}"
    if out is None:
        print_line(f"{what}, audited; not signed, as this is a dry run")
    else:
        print_line(f"{what}, audited, signed by {report.key}: {out}")
