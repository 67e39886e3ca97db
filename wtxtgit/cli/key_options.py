"""Options that commands share which sign, and passphrases.

A passphrase comes from the terminal, never from standard input or argv, or
from a file descriptor whose number is given.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wtxtgit.cli import environment
from wtxtgit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from wtxtgit.trust.keyring import Keyring
    from wtxtgit.trust.signing import AskPassphrase, SigningKey

_TERMINAL = "/dev/tty"
_NO_TERMINAL_HINT = "--passphrase-fd N reads it from a file descriptor"

_Command = TypeVar("_Command", bound=Callable[..., Any])

passphrase_option = click.option(
    "--passphrase-fd",
    type=click.IntRange(min=0),
    metavar="N",
    help="Read the passphrase from this file descriptor, up to its end or the first line's.",
)


def key_options(command: _Command) -> _Command:
    """Add --key and --passphrase-fd to a command, as `key` and `passphrase_fd`."""
    key = click.option(
        "--key",
        metavar="KEY",
        help="Sign with this key: a name, a file, agent:SHA256:..., or agent: for its only one.",
    )
    return key(passphrase_option(command))


def signing_key(key: str | None, passphrase_fd: int | None, cwd: Path | None = None) -> SigningKey:
    """The key that signs, given what `key_options` got; errors as `choose_key`."""
    from wtxtgit.git import config
    from wtxtgit.setup.keys import CONFIG_KEY, KeySources, choose_key

    return choose_key(
        KeySources(
            ring=keyring(),
            spec=key,
            content=environment.take_signing_key(),
            configured=config.path(CONFIG_KEY, cwd=cwd) if key is None else None,
            agent_socket=environment.agent_socket(),
            ask=asker(passphrase_fd),
        )
    )


def keyring() -> Keyring:
    """The user's keys."""
    from wtxtgit.trust.keyring import Keyring

    return Keyring(environment.keys_folder())


def asker(passphrase_fd: int | None) -> AskPassphrase:
    """What asks for a key's passphrase: the descriptor, else the terminal."""

    def ask(name: str) -> str:
        if passphrase_fd is not None:
            return _from_descriptor(passphrase_fd)
        return _from_terminal(f"passphrase of {name}: ")

    return ask


def passphrase_for_a_copy(name: str, no_passphrase: bool, passphrase_fd: int | None) -> str | None:
    """The passphrase that a key gets, from the terminal twice; None for none.

    Raises UsageError for contradicting options, an empty passphrase, two that
    differ, and where there is no terminal.
    """
    if no_passphrase:
        if passphrase_fd is not None:
            raise UsageError("--no-passphrase and --passphrase-fd exclude each other")
        return None
    if passphrase_fd is not None:
        passphrase = _from_descriptor(passphrase_fd)
    else:
        passphrase = _from_terminal(f"new passphrase of {name}: ")
        if passphrase and _from_terminal("once more: ") != passphrase:
            raise UsageError("the passphrases differ")
    if not passphrase:
        raise UsageError("the passphrase is empty", hint="--no-passphrase leaves it out")
    return passphrase


def _from_terminal(prompt: str) -> str:
    # getpass would turn to standard input, with the passphrase to be seen.
    try:
        os.close(os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        raise UsageError(
            "there is no terminal to ask for the passphrase", hint=_NO_TERMINAL_HINT
        ) from None
    try:
        return getpass.getpass(prompt)
    except EOFError:
        raise UsageError("no passphrase was given") from None
    except UnicodeDecodeError:
        raise UsageError("the passphrase is no text in the terminal's encoding") from None


def _from_descriptor(descriptor: int) -> str:
    """The first line, without its end; nothing that follows is taken."""
    from wtxtgit.trust.passphrase import MAX_PASSPHRASE

    line = bytearray()
    try:
        while len(line) <= MAX_PASSPHRASE:
            byte = os.read(descriptor, 1)
            if byte in (b"", b"\n"):
                break
            line += byte
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"--passphrase-fd {descriptor}: {reason}") from error
    try:
        return line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"--passphrase-fd {descriptor}: the passphrase is not UTF-8") from None
