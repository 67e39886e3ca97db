"""`wtxtgit key`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import environment
from wtxtgit.cli.boundary import note
from wtxtgit.cli.key_options import keyring, passphrase_for_a_copy, passphrase_option
from wtxtgit.cli.output import print_json, print_line, print_table

if TYPE_CHECKING:
    from wtxtgit.setup.keys import KeyFacts

_FALLBACK = "default"
_json = click.option("--json", "as_json", is_flag=True, help="Print what is public as JSON.")
_no_passphrase = click.option(
    "--no-passphrase", is_flag=True, help="Leave the secret file without a passphrase."
)


@click.group()
def key() -> None:
    """Make, import and list the ed25519 keys that you sign with.

    They are in wtxtgit/keys of your configuration folder.

    \b
    wtxtgit key new
    wtxtgit key list
    """


@key.command()
@click.option("--name", help="Name of the key; your login name if not given.")
@_no_passphrase
@passphrase_option
@_json
def new(name: str | None, no_passphrase: bool, passphrase_fd: int | None, as_json: bool) -> None:
    """Make a key, and ask for the passphrase that protects it.

    \b
    wtxtgit key new
    wtxtgit key new --name release
    """
    from wtxtgit.setup import keys
    from wtxtgit.trust.keyring import is_name

    if name is None:
        login = environment.login_name()
        name = login if login is not None and is_name(login) else _FALLBACK
    keys.check_free(keyring(), name)
    passphrase = passphrase_for_a_copy(name, no_passphrase, passphrase_fd)
    _print(keys.new(keyring(), name, passphrase), as_json)


@key.command("import")
@click.argument("file", type=click.Path(path_type=Path, readable=False))
@click.option("--name", help="Name of the key; the file's if not given.")
@_no_passphrase
@passphrase_option
@_json
def import_key(
    file: Path,
    name: str | None,
    no_passphrase: bool,
    passphrase_fd: int | None,
    as_json: bool,
) -> None:
    """Copy the key in FILE, an OpenSSH ed25519 key without a passphrase.

    The copy gets a passphrase, FILE stays as it is.

    \b
    wtxtgit key import ~/.ssh/id_ed25519 --name alice
    """
    from wtxtgit.setup import keys

    name = keys.name_for(file) if name is None else name
    keys.check_free(keyring(), name)
    keys.read_importable(file)
    passphrase = passphrase_for_a_copy(name, no_passphrase, passphrase_fd)
    _print(keys.import_key(keyring(), file, name, passphrase), as_json)


@key.command("list")
@_json
def list_keys(as_json: bool) -> None:
    """List your keys.

    \b
    wtxtgit key list
    """
    from wtxtgit.setup import keys

    found = keys.list_keys(keyring())
    if as_json:
        print_json({"keys": [one.as_dict() for one in found]})
    elif found:
        words = {True: "yes", False: "no", None: "?"}
        rows = [(one.name, one.fingerprint, one.keyid, words[one.protected]) for one in found]
        print_table(("key", "fingerprint", "keyid", "passphrase"), rows)
    else:
        print_line("there is no key; wtxtgit key new makes one")


@key.command()
@click.argument("name", required=False)
@_json
def show(name: str | None, as_json: bool) -> None:
    """Print the public key NAME as OpenSSH's line.

    NAME can be left out where there is one key. Its fingerprint and keyid go
    to standard error.

    \b
    wtxtgit key show alice
    """
    from wtxtgit.setup import keys

    found = keys.show(keyring(), name)
    if as_json:
        print_json(found.as_dict())
        return
    print_line(found.public)
    note(f"{found.name}: {found.fingerprint}, keyid {found.keyid}")


def _print(made: KeyFacts, as_json: bool) -> None:
    if as_json:
        print_json(made.as_dict())
        return
    print_line(f"key {made.name}: {made.fingerprint}, keyid {made.keyid}")
    note(
        "who is to trust the key needs its public line",
        f"wtxtgit key show {made.name} prints it; "
        f"wtxtgit signers add PRINCIPAL {made.name} adds it to a repository",
    )
