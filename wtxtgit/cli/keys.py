"""`wtxtgit key` and `signers`, and the options of commands that sign."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wtxtgit.cli import environment
from wtxtgit.cli.boundary import note
from wtxtgit.cli.options import FILE, completed, discover, passphrase_option
from wtxtgit.cli.output import is_printed, print_json, print_line, print_table
from wtxtgit.cli.passphrase import asker, new_passphrase
from wtxtgit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from wtxtgit.chain.signers import SignersReport
    from wtxtgit.setup.keys import KeyFacts
    from wtxtgit.trust.keyring import Keyring
    from wtxtgit.trust.signing import SigningKey


_FALLBACK = "default"
_json = click.option("--json", "as_json", is_flag=True, help="Print the public facts as JSON.")
_no_passphrase = click.option(
    "--no-passphrase", is_flag=True, help="Do not protect the secret file with a passphrase."
)
_Command = TypeVar("_Command", bound=Callable[..., Any])
_signers_json = click.option("--json", "as_json", is_flag=True, help="Print the signers as JSON.")


@click.group()
def key() -> None:
    """Make, import and list the ed25519 keys that you sign with.

    They are kept in wtxtgit/keys in your configuration folder.

    \b
    wtxtgit key new
    wtxtgit key list
    """


@key.command()
@click.option("--name", help="Name of the key. Default: your login name.")
@_no_passphrase
@passphrase_option
@_json
def new(name: str | None, no_passphrase: bool, passphrase_fd: int | None, as_json: bool) -> None:
    """Make a key, protected by a passphrase that you are asked for.

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
@click.argument("file", type=FILE)
@click.option("--name", help="Name of the key. Default: the file's name.")
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
    """Copy an OpenSSH ed25519 key without a passphrase from FILE.

    The copy gets a passphrase; FILE does not change.

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

    listed = keys.list_keys(keyring())
    if as_json:
        print_json({"keys": listed})
    elif listed:
        words = {True: "yes", False: "no", None: "?"}
        rows = [(one.name, one.fingerprint, one.keyid, words[one.protected]) for one in listed]
        print_table(("key", "fingerprint", "keyid", "passphrase"), rows, whole=("fingerprint",))
    else:
        print_line("no keys; wtxtgit key new makes one")


@key.command()
@click.argument("name", required=False, shell_complete=completed("keys"))
@_json
def show(name: str | None, as_json: bool) -> None:
    """Print the public key NAME as an OpenSSH public key line.

    NAME can be omitted if there is only one key. The fingerprint and keyid go to
    standard error.

    \b
    wtxtgit key show alice
    """
    from wtxtgit.setup import keys

    facts = keys.show(keyring(), name)
    if is_printed(facts, as_json):
        return
    print_line(facts.public)
    note(f"{facts.name}: {facts.fingerprint}, keyid {facts.keyid}")


def _print(facts: KeyFacts, as_json: bool) -> None:
    if is_printed(facts, as_json):
        return
    print_line(f"key {facts.name}: {facts.fingerprint}, keyid {facts.keyid}")
    note(
        "others need the public key line to trust this key",
        f"wtxtgit key show {facts.name} prints it; "
        f"wtxtgit signers add PRINCIPAL {facts.name} adds it to a repository",
    )


def key_options(command: _Command) -> _Command:
    """Add --key and --passphrase-fd to a command, as `key` and `passphrase_fd`."""
    key = click.option(
        "--key",
        metavar="KEY",
        shell_complete=completed("keys"),
        help="Sign with this key: a name, a file, agent:SHA256:..., or agent: for the agent's "
        "only key.",
    )
    return key(passphrase_option(command))


def signing_key(key: str | None, passphrase_fd: int | None, cwd: Path | None = None) -> SigningKey:
    """The key that signs, given what `key_options` got; errors as `choose_key`."""
    from wtxtgit.git.repository import Config
    from wtxtgit.setup.keys import AGENT_SOCKET, CONFIG_KEY, KeySources, choose_key

    return choose_key(
        KeySources(
            ring=keyring(),
            spec=key,
            content=environment.take_signing_key(),
            configured=Config(cwd).path(CONFIG_KEY) if key is None else None,
            agent_socket=environment.path(AGENT_SOCKET),
            ask=asker(passphrase_fd),
        )
    )


def keyring() -> Keyring:
    """The user's keys."""
    from wtxtgit.setup.keys import users_keyring

    return users_keyring(os.environ)


def passphrase_for_a_copy(name: str, no_passphrase: bool, passphrase_fd: int | None) -> str | None:
    """The passphrase that a key gets, from the terminal twice; None for none.

    Raises UsageError for contradicting options, an empty passphrase, two that
    differ, and where there is no terminal.
    """
    if no_passphrase:
        if passphrase_fd is not None:
            raise UsageError("--no-passphrase and --passphrase-fd cannot be combined")
        return None
    passphrase = new_passphrase(name, passphrase_fd)
    if not passphrase:
        raise UsageError("the passphrase is empty", hint="--no-passphrase makes a key without one")
    return passphrase


@click.group()
def signers() -> None:
    """Manage who may sign in this repository: .wtxt/signers.

    A change counts once it is sealed by enough of the previous signers.

    \b
    wtxtgit signers add alice@example.com alice
    wtxtgit signers list
    """


@signers.command()
@click.argument("principal")
@click.argument("key", shell_complete=completed("keys"))
@_signers_json
def add(principal: str, key: str, as_json: bool) -> None:
    """Add the signer PRINCIPAL, such as an email address, with KEY.

    KEY is the name of one of your keys, a quoted OpenSSH public key line, or a .pub
    file.

    \b
    wtxtgit signers add alice@example.com alice
    wtxtgit signers add bob@example.com keys/bob.pub
    """
    from wtxtgit.chain import signers as chain_signers

    done = chain_signers.add(discover(), principal, key, keyring())
    _print_signers(done, "added" if done.changed else "already there:", as_json)


@signers.command()
@click.argument(
    "signer", metavar="PRINCIPAL|FINGERPRINT|KEYID", shell_complete=completed("principals")
)
@_signers_json
def remove(signer: str, as_json: bool) -> None:
    """Remove a principal with all of its keys, or one key.

    Records that the key signed stay valid where they are now. If another branch brings
    in more of them later, one of the remaining signers has to countersign them.

    \b
    wtxtgit signers remove bob@example.com
    """
    from wtxtgit.chain import signers as chain_signers

    _print_signers(chain_signers.remove(discover(), signer), "removed", as_json)


@signers.command()
@click.argument("number", metavar="N", type=int)
@_signers_json
def threshold(number: int, as_json: bool) -> None:
    """Set how many principals have to seal a change of the signers.

    N is from 1 to 8, and at most the number of principals. Several keys of one
    principal count once. A checkpoint needs only one signature, whatever the threshold
    is.

    \b
    wtxtgit signers threshold 2
    """
    from wtxtgit.chain import signers as chain_signers

    done = chain_signers.set_threshold(discover(), number)
    if as_json:
        print_json(done)
    else:
        print_line(f"threshold: {done.threshold}")
    _tell_signers(done)


@signers.command("list")
@_signers_json
def list_signers(as_json: bool) -> None:
    """List the signers in the work tree's .wtxt/signers.

    \b
    wtxtgit signers list
    """
    from wtxtgit.chain import signers as chain_signers

    report = chain_signers.list_signers(discover())
    if as_json:
        print_json(report)
    elif report.signers:
        rows = [(s.principal, s.fingerprint, s.keyid, s.comment) for s in report.signers]
        print_table(("principal", "fingerprint", "keyid", "comment"), rows, whole=("fingerprint",))
        print_line()
        print_line(f"threshold: {report.threshold}")
    else:
        print_line("no signers; wtxtgit signers add PRINCIPAL KEY adds one")


def _print_signers(report: SignersReport, what: str, as_json: bool) -> None:
    if as_json:
        print_json(report)
    else:
        for signer in report.signers:
            print_line(f"{what} {signer.principal}: {signer.fingerprint}, keyid {signer.keyid}")
    _tell_signers(report)


def _tell_signers(report: SignersReport) -> None:
    """Say on standard error what a change asks for."""
    if report.consequence is not None:
        note(report.consequence.message, report.consequence.hint)
    if report.changed:
        note(
            "a change of the signers counts once it is sealed",
            "git add -- :/.wtxt, then wtxtgit seal --staged, then git commit",
        )
