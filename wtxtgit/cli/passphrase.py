"""A passphrase: from the terminal, never from standard input or argv, or from a file descriptor
whose number is given.
"""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING

from wtxtgit.cli.output import no_progress
from wtxtgit.errors import UsageError

if TYPE_CHECKING:
    from wtxtgit.trust.signing import AskPassphrase

_TERMINAL = "/dev/tty"
_NO_TERMINAL_HINT = "--passphrase-fd N reads it from a file descriptor"


def asker(passphrase_fd: int | None) -> AskPassphrase:
    """Return what asks for a key's passphrase: the descriptor, else the terminal."""

    def ask(name: str) -> str:
        if passphrase_fd is not None:
            return _from_descriptor(passphrase_fd)
        return _from_terminal(f"passphrase for {name}: ")

    return ask


def new_passphrase(name: str, passphrase_fd: int | None) -> str:
    """Read a new passphrase from a descriptor, or twice from the terminal; raises UsageError."""
    if passphrase_fd is not None:
        passphrase = _from_descriptor(passphrase_fd)
    else:
        passphrase = _from_terminal(f"new passphrase for {name}: ")
        if passphrase and _from_terminal("again: ") != passphrase:
            raise UsageError("the passphrases do not match")
    return passphrase


def _from_terminal(prompt: str) -> str:
    # getpass would turn to standard input, with the passphrase to be seen.
    try:
        os.close(os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        raise UsageError("no terminal to ask for the passphrase", hint=_NO_TERMINAL_HINT) from None
    try:
        with no_progress():
            return getpass.getpass(prompt)
    except EOFError:
        raise UsageError("no passphrase was given") from None
    except UnicodeDecodeError:
        raise UsageError("the passphrase is not valid in the terminal's encoding") from None


def _from_descriptor(descriptor: int) -> str:
    """Read the first line, without its end, and nothing after it."""
    from wtxtgit.trust.keyring import MAX_PASSPHRASE

    line = bytearray()
    try:
        # Byte by byte: what follows the line may be for another program.
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
