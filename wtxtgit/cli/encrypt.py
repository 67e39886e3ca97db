"""`wtxtgit encrypt`, `decrypt` and `rekey`: whole texts in age files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wtxtgit.cli import boundary, environment
from wtxtgit.cli.options import (
    FILE,
    PathOrUrl,
    identity_option,
    opening_keys,
    passphrase_option,
    piped,
)
from wtxtgit.cli.output import are_here, is_printed, print_line, progress
from wtxtgit.cli.passphrase import asker, new_passphrase
from wtxtgit.errors import UsageError
from wtxtgit.io.view import Buffer, write_all

if TYPE_CHECKING:
    from wtxtgit.checkpoint.encrypt import Audience
    from wtxtgit.trust.age.identities import AgeIdentity


_Command = TypeVar("_Command", bound=Callable[..., Any])
_OLD_STAY = "the old keys can still decrypt earlier generations, in this history and all its clones"
_passphrase = click.option(
    "-p", "--passphrase", is_flag=True, help="Use a passphrase instead of keys."
)
_output = click.option(
    "-o",
    "--output",
    metavar="OUT",
    type=PathOrUrl(),
    help="Write to this file; - is standard output.",
)


def recipient_options(command: _Command) -> _Command:
    """Add -r and -R to a command, as `named` and `lists`."""
    named = click.option(
        "-r",
        "--recipient",
        "named",
        multiple=True,
        metavar="RECIPIENT",
        help="Encrypt for this key, age1... or ssh-ed25519 ...; repeatable.",
    )
    lists = click.option(
        "-R",
        "--recipients-file",
        "lists",
        multiple=True,
        type=FILE,
        metavar="FILE",
        help="Encrypt for the keys in this file, one per line; repeatable.",
    )
    return named(lists(command))


@click.command()
@click.argument("file", type=PathOrUrl())
@recipient_options
@_passphrase
@passphrase_option
@identity_option
@_output
def encrypt(
    file: str,
    named: tuple[str, ...],
    lists: tuple[Path, ...],
    passphrase: bool,
    passphrase_fd: int | None,
    identities: tuple[Path, ...],
    output: str | None,
) -> int:
    """Encrypt the text of FILE, as an armored file that age opens.

    FILE is a checkpoint or its text; a checkpoint is first converted to text as git
    would store it. Recipients come from -r and -R, or else from .wtxt/recipients. With
    -i or -p, OUT is left alone if it already holds the same text for the same
    recipients.

    \b
    wtxtgit encrypt model.safetensors -r age1... -o model.safetensors.wtxt.age
    wtxtgit encrypt model.fold -R team.txt -i key.txt -o model.fold.wtxt.age
    """
    from wtxtgit.checkpoint import encrypt as checkpoint_encrypt
    from wtxtgit.checkpoint.open import shown_name

    whom = _audience(named, lists, passphrase, passphrase_fd)
    keys = opening_keys(identities, None if passphrase else passphrase_fd)
    out = None if output in (None, "-") else output
    with progress("encrypting", None, waits=are_here(file)) as advance:
        outcome, warning = checkpoint_encrypt.encrypt_file(
            file,
            out,
            whom,
            keys=keys,
            threads=environment.threads(),
            progress=advance,
            write=_pipe,
        )
    if warning is not None:
        boundary.warn(f"{shown_name(file)}: {warning}; encrypted unchanged")
    if outcome is checkpoint_encrypt.Encryption.UNCHANGED:
        boundary.note(
            f"{shown_name(output or '-')}: already holds the same text for the same keys, left "
            f"alone"
        )
    return 0


@click.command()
@click.argument("file", type=PathOrUrl())
@identity_option
@_passphrase
@passphrase_option
@click.option("--restore", is_flag=True, help="Write the checkpoint that the text stands for.")
@_output
def decrypt(
    file: str,
    identities: tuple[Path, ...],
    passphrase: bool,
    passphrase_fd: int | None,
    restore: bool,
    output: str | None,
) -> int:
    """Decrypt FILE, and write the text that is in it.

    An identity file comes from age-keygen, or is an OpenSSH ed25519 key; either may be
    encrypted by age with a passphrase. Nothing is written unless all of FILE decrypts
    and the text in it verifies.

    \b
    wtxtgit decrypt model.fold.wtxt.age -i key.txt -o model.fold.wtxt
    wtxtgit decrypt model.fold.wtxt.age -i ~/.ssh/id_ed25519 --restore -o model.fold
    """
    from wtxtgit.checkpoint import encrypt as checkpoint_encrypt
    from wtxtgit.checkpoint.open import shown_name
    from wtxtgit.trust.age.identities import Passphrase
    from wtxtgit.trust.keyring import checked_passphrase

    # A passphrase for what it can't open is asked for in vain.
    checkpoint_encrypt.check_encrypted(file)
    if passphrase == bool(identities):
        raise UsageError("a key is needed to decrypt the file: -i FILE, or -p for a passphrase")
    if output is not None and "://" in output:
        raise UsageError("-o takes a path: decrypted data is not sent to a URL")
    keys: tuple[AgeIdentity, ...]
    if passphrase:
        keys = (Passphrase(checked_passphrase(asker(passphrase_fd)(shown_name(file)))),)
    else:
        keys = opening_keys(identities, passphrase_fd)
    with progress("decrypting", None, waits=are_here(file)) as advance:
        checkpoint_encrypt.decrypt_file(
            file,
            None if output in (None, "-") else Path(str(output)),
            keys,
            restored=restore,
            threads=environment.threads(),
            progress=advance,
            write=_pipe,
        )
    return 0


@click.command()
@click.argument("files", nargs=-1, type=FILE)
@identity_option
@passphrase_option
@recipient_options
@click.option(
    "--force", is_flag=True, help="Encrypt files again even if they are already for these keys."
)
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def rekey(
    files: tuple[Path, ...],
    identities: tuple[Path, ...],
    passphrase_fd: int | None,
    named: tuple[str, ...],
    lists: tuple[Path, ...],
    force: bool,
    as_json: bool,
) -> int:
    """Encrypt FILES again for the recipients now in .wtxt/recipients.

    Without FILES, all tracked *.wtxt.age. Each file is decrypted with an identity and
    must hold a text that verifies. A file that is already for these recipients is left
    alone. Earlier commits do not change: the old keys can decrypt them forever.

    \b
    wtxtgit rekey -i key.txt
    wtxtgit rekey model.fold.wtxt.age -i key.txt -R team.txt
    """
    from wtxtgit.checkpoint import encrypt as checkpoint_encrypt

    if not identities:
        raise UsageError("a key is needed to decrypt the files: -i FILE")
    whom = checkpoint_encrypt.audience(named, lists, piped)
    keys = opening_keys(identities, passphrase_fd)
    with progress("encrypting", None) as advance:
        report = checkpoint_encrypt.rekey(
            files, whom, keys, is_forced=force, threads=environment.threads(), progress=advance
        )
    if not is_printed(report, as_json):
        for file in report.files:
            print_line(f"{file.outcome:9} {file.path}")
    if report.changed:
        boundary.note(_OLD_STAY)
    return 0


def _audience(
    named: Sequence[str], lists: Sequence[Path], passphrase: bool, passphrase_fd: int | None
) -> Audience:
    from wtxtgit.checkpoint.encrypt import Audience, audience
    from wtxtgit.trust.age.identities import Passphrase
    from wtxtgit.trust.keyring import checked_passphrase

    if not passphrase:
        return audience(named, lists, piped)
    if named or lists:
        raise UsageError("-p cannot be combined with recipients")
    words = checked_passphrase(new_passphrase("the encrypted file", passphrase_fd))
    return Audience(passphrase=Passphrase(words))


def _pipe(pieces: Iterable[Buffer]) -> None:
    write_all(sys.stdout.fileno(), pieces)
