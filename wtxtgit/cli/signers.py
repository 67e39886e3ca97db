"""`wtxtgit signers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from wtxtgit.cli.boundary import note
from wtxtgit.cli.key_options import keyring
from wtxtgit.cli.output import print_json, print_line, print_table

if TYPE_CHECKING:
    from wtxtgit.chain.signers import SignersReport

_json = click.option("--json", "as_json", is_flag=True, help="Print the signers as JSON.")


@click.group()
def signers() -> None:
    """Say who may sign in this repository: .wtxt/signers.

    A change counts once it is sealed by signers from before it.

    \b
    wtxtgit signers add alice@example.com alice
    wtxtgit signers list
    """


@signers.command()
@click.argument("principal")
@click.argument("key")
@_json
def add(principal: str, key: str, as_json: bool) -> None:
    """Add the signer PRINCIPAL, such as a mail address, with KEY.

    KEY is the name of a key of yours, an OpenSSH public line in quotes, or a
    .pub file.

    \b
    wtxtgit signers add alice@example.com alice
    wtxtgit signers add bob@example.com keys/bob.pub
    """
    from wtxtgit.chain import signers as ops
    from wtxtgit.git.repository import Repository

    done = ops.add(Repository.discover(), principal, key, keyring())
    _print(done, "added" if done.changed else "already there:", as_json)


@signers.command()
@click.argument("signer", metavar="PRINCIPAL|FINGERPRINT|KEYID")
@_json
def remove(signer: str, as_json: bool) -> None:
    """Remove a principal with all keys, or the key with a fingerprint or keyid.

    What the key has sealed stays good where it is. What another branch brings
    in of it later has to be countersigned by a signer who is left.

    \b
    wtxtgit signers remove bob@example.com
    """
    from wtxtgit.chain import signers as ops
    from wtxtgit.git.repository import Repository

    _print(ops.remove(Repository.discover(), signer), "removed", as_json)


@signers.command()
@click.argument("number", metavar="N", type=int)
@_json
def threshold(number: int, as_json: bool) -> None:
    """Say how many principals have to seal a change of the signers.

    From 1 to 8, and at most as many as there are. Several keys of a principal
    count once. A checkpoint needs one signature, whatever the threshold is.

    \b
    wtxtgit signers threshold 2
    """
    from wtxtgit.chain import signers as ops
    from wtxtgit.git.repository import Repository

    done = ops.set_threshold(Repository.discover(), number)
    if as_json:
        print_json(done.as_dict())
    else:
        print_line(f"threshold: {done.threshold}")
    _tell(done)


@signers.command("list")
@_json
def list_signers(as_json: bool) -> None:
    """List the signers of the work tree's file.

    \b
    wtxtgit signers list
    """
    from wtxtgit.chain import signers as ops
    from wtxtgit.git.repository import Repository

    found = ops.list_signers(Repository.discover())
    if as_json:
        print_json(found.as_dict())
    elif found.signers:
        rows = [(s.principal, s.fingerprint, s.keyid, s.comment) for s in found.signers]
        print_table(("principal", "fingerprint", "keyid", "comment"), rows)
        print_line(f"threshold: {found.threshold}")
    else:
        print_line("there is no signer; wtxtgit signers add PRINCIPAL KEY adds one")


def _print(done: SignersReport, what: str, as_json: bool) -> None:
    if as_json:
        print_json(done.as_dict())
    else:
        for signer in done.signers:
            print_line(f"{what} {signer.principal}: {signer.fingerprint}, keyid {signer.keyid}")
    _tell(done)


def _tell(done: SignersReport) -> None:
    """Say on standard error what a change asks for."""
    if done.consequence is not None:
        note(done.consequence.message, done.consequence.hint)
    if done.changed:
        note(
            "a change of the signers counts once it is sealed",
            "git add .wtxt, then wtxtgit seal --staged, then git commit",
        )
