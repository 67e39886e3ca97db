"""Recipients, for whom files are encrypted, and files that list them.

A list has one recipient per line; empty lines and those that begin with # are ignored, as in age.
Nothing is looked up, and no plugin is started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, final

from wtxtgit.errors import EnvironmentFailure, UsageError
from wtxtgit.io.view import Buffer
from wtxtgit.trust.age.header import SSH_ED25519, X25519
from wtxtgit.trust.age.identities import ssh_tag
from wtxtgit.trust.openssh import KeyFileError, format_public, parse_public

MAX_FILE = 1024 * 1024
"""Most bytes of a file that lists recipients."""

_PREFIX = "age1"
_SHOWN = 24
"""Most characters of a recipient that a message quotes."""


@dataclass(frozen=True, slots=True)
class Recipient:
    """A recipient of encrypted files.

    `kind` is the type of its stanzas; `tag` is what stanzas for an SSH key show of the key.
    """

    kind: str
    spelled: str
    tag: str | None = None


def parse(spelled: str, where: str) -> Recipient:
    """Parse a recipient in age's notation; `where` begins error messages. Raises KeyFileError."""
    import pyrage

    word = spelled.strip(" \t")
    if word.startswith("ssh-"):
        key = parse_public(word, where)
        # Without the comment: two lines with the same key are the same recipient.
        line = " ".join(format_public(key).split(" ")[:2])
        return Recipient(SSH_ED25519, line, ssh_tag(key.key))
    if word.startswith("AGE-SECRET-KEY-"):
        raise KeyFileError(
            f"{where}: a secret key, not the recipient that belongs to it",
            hint="age-keygen -y shows it",
        )
    try:
        return Recipient(X25519, str(pyrage.x25519.Recipient.from_str(word)))
    except pyrage.RecipientError:
        pass
    shown = word if len(word) <= _SHOWN else word[:_SHOWN] + "..."
    if word.startswith(_PREFIX) and "1" in word[len(_PREFIX) :]:
        raise KeyFileError(f'{where}: "{shown}" is for an age plugin, which wtxtgit does not run')
    raise KeyFileError(f'{where}: "{shown}" is not a recipient: age1..., or ssh-ed25519 ...')


def parse_file(content: bytes, name: str) -> tuple[Recipient, ...]:
    """Parse a list of recipients; raises KeyFileError, also if it is empty."""
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise KeyFileError(f"{name}: not UTF-8 at byte {error.start}") from None
    recipients = [
        parse(line, f"{name}: line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.startswith("#")
    ]
    if not recipients:
        raise KeyFileError(f"{name}: lists no recipient")
    return tuple(recipients)


def encrypt(
    content: Iterable[Buffer], recipients: Iterable[Recipient], write: Callable[[bytes], object]
) -> None:
    """Encrypt a content given in pieces; `write` gets the armored file in pieces.

    Raises UsageError if there are no recipients, and whatever `content` and `write` raise.
    """
    import pyrage

    unique = dict.fromkeys(recipients)
    if not unique:
        raise UsageError("no recipients to encrypt for")
    keys = [
        (pyrage.x25519 if one.kind == X25519 else pyrage.ssh).Recipient.from_str(one.spelled)
        for one in unique
    ]
    source, sink = _ReadPieces(content), _WrittenPieces(write)
    refused: BaseException | None = None
    try:
        pyrage.encrypt_io(source, sink, keys, armored=True)
    except (pyrage.EncryptError, OSError) as error:
        refused = error
    # pyrage turns their exceptions into text, and does not report that its last writes failed.
    for failed in (source.failure, sink.failure):
        if failed is not None:
            raise failed
    if refused is not None:
        raise EnvironmentFailure(f"the file can't be encrypted: {refused}") from None


@final
class _ReadPieces:
    """A readable file over a content in pieces."""

    def __init__(self, content: Iterable[Buffer]) -> None:
        self._source = iter(content)
        self._piece: memoryview = memoryview(b"")
        self.failure: BaseException | None = None

    def read(self, size: int = -1) -> bytes:
        try:
            while not len(self._piece):
                piece = next(self._source, None)
                if piece is None:
                    return b""
                self._piece = memoryview(piece).cast("B")
        except BaseException as error:
            self.failure = error
            raise
        part, self._piece = self._piece[:size], self._piece[size:]
        return bytes(part)


@final
class _WrittenPieces:
    """A writable file that calls a function with each piece."""

    def __init__(self, write: Callable[[bytes], Any]) -> None:
        self._write = write
        self.failure: BaseException | None = None

    def write(self, piece: bytes) -> int:
        try:
            self._write(piece)
        except BaseException as error:
            self.failure = error
            raise
        return len(piece)

    def flush(self) -> None:
        """Do nothing: there is no buffer."""
