"""Texts in age files: what is known of one without a key, and its content with one.

The content is only accepted if it is a whole text that verifies: age proves that nobody without the
key changed it, not that its writer wrote a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.errors import AgeError, CheckError, InputError, counted
from wtxtgit.io.files import read_small, shown
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import ByteView
from wtxtgit.model.plain import JsonObject
from wtxtgit.text.grammar import MAGIC
from wtxtgit.text.verify import TextReport, verify
from wtxtgit.trust.age import armor, header, identities, payload
from wtxtgit.trust.age.header import Header
from wtxtgit.trust.age.identities import AgeIdentity, NoIdentityError
from wtxtgit.trust.keyring import is_protected, read_secret_file, unprotect
from wtxtgit.trust.openssh import MAX_KEY_FILE
from wtxtgit.trust.signing import AskPassphrase


@dataclass(frozen=True, slots=True)
class Envelope(JsonObject):
    """What an age file shows without a key: the number of recipients of each type, and its size.

    `content_size` is the size of the text in bytes.
    """

    recipients: dict[str, int]
    content_size: int
    is_armored: bool

    def __str__(self) -> str:
        if header.SCRYPT in self.recipients:
            return "encrypted with a passphrase"
        number = counted(sum(self.recipients.values()), "recipient")
        types = ", ".join(f"{count} {kind}" for kind, count in self.recipients.items())
        return f"encrypted for {number} ({types})" if types else "encrypted for no recipient"


def envelope(data: ByteView, name: str) -> Envelope:
    """Read what an age file shows without a key; raises AgeError if it is damaged.

    The whole armor is checked, so what is missing or changed there is detected. Changes of the
    ciphertext in an intact armor are only detected with a key.
    """
    binary = armor.dearmored(data, name)
    head = header.parse(binary, name)
    size = payload.plain_size(len(binary) - head.nbytes, name)
    armor.check_all(binary)
    return Envelope(dict(head.counts()), size, armor.is_armored(data))


def refuse_encrypted(before: ByteView | None, after: ByteView | None) -> None:
    """Raise NoCheckpoint if a side of a comparison is encrypted, saying what can be known.

    Raises AgeError if a side is damaged.
    """
    sides = [
        envelope(side, name) if side is not None and armor.is_age(side) else None
        for side, name in ((before, "before"), (after, "after"))
    ]
    if sides == [None, None]:
        return
    # Imported here: this needs numpy, which most comparisons have loaded by then.
    from wtxtgit.checkpoint.contents import NoCheckpoint

    was, now = sides
    told = f"{now or was}"
    if before is not None and after is not None:
        if now is None:
            told = f"not encrypted, was {was}"
        elif was is None:
            told = f"{now}, was not encrypted"
        else:
            told = f"{now}, {'as before' if now.recipients == was.recipients else f'was {was}'}"
            if now.content_size != was.content_size:
                sizes = f"{now.content_size} bytes, was {was.content_size}"
                raise NoCheckpoint(f"{told}; the text has changed, {sizes}: only a key shows more")
    raise NoCheckpoint(f"{told}: without a key, nothing is known about the content")


def head_of(data: ByteView, name: str) -> Header:
    """Return the header of an age file; raises AgeError."""
    return header.parse(armor.dearmored(data, name), name)


def opened_text(
    data: ByteView,
    keys: Collection[AgeIdentity],
    name: str,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[ByteView, TextReport]:
    """Return the verified text in an age file; it is decrypted again wherever it is read.

    Raises AgeError for a file that can't be decrypted, InputError if its content is no text, and
    CheckError for a text that does not verify.
    """
    text = identities.opened(data, keys, name)
    return text, checked_text(text, name, threads=threads, progress=progress)


def checked_text(
    text: ByteView, name: str, *, threads: int | None = None, progress: Progress | None = None
) -> TextReport:
    """Verify the text that is in an age file, or will be; raises InputError and CheckError."""
    if text[: len(MAGIC)] != MAGIC:
        raise InputError(f"{name}: the encrypted content is not a WTXT text")
    report = verify(text, threads=threads, progress=progress)
    if not report.ok:
        raise CheckError(f"{name}: the encrypted text: {report.problems[0]}")
    return report


def read_identities(
    path: Path, ask: AskPassphrase | None, piped: Callable[[], bytes] | None = None
) -> tuple[AgeIdentity, ...]:
    """Return the identities in a file; `-` is read by `piped`, `ask` returns a file's passphrase.

    Raises KeyFileError, and EnvironmentFailure for a file that others can read.
    """
    name = shown(path)
    if str(path) == "-" and piped is not None:
        name, content = "standard input", piped()
    elif path.is_file():
        content = read_secret_file(path)
    else:
        # A pipe of the shell, which belongs to the reader. A missing file gives an error here.
        content = read_small(path, MAX_KEY_FILE, "identities")
    if is_protected(content):
        if ask is None:
            raise AgeError(f"{name}: these identities are protected by a passphrase")
        content = unprotect(content, ask(name), name)
    return identities.parse_file(content, name)


class EncryptedTexts:
    """Decrypts encrypted texts with some identities, and counts which could be decrypted.

    `opened` are those that were whole texts, `closed` those for which there is no identity.
    """

    def __init__(self, keys: Collection[AgeIdentity] = ()) -> None:
        self._keys = keys
        self.opened: set[Hashable] = set()
        self.closed: set[Hashable] = set()

    def fault(self, data: ByteView, name: str, known_as: Hashable) -> str | None:
        """Return what is known to be wrong with an encrypted text; None if nothing is.

        `known_as` identifies the text in the counts.
        """
        try:
            if not armor.is_armored(data):
                return "not an armored age file: its content is not encrypted"
            envelope(data, name)
            if self._keys:
                opened_text(data, self._keys, name)
        except NoIdentityError:
            self.closed.add(known_as)
            return None
        except (InputError, CheckError) as error:
            return error.message.removeprefix(f"{name}: ")
        (self.opened if self._keys else self.closed).add(known_as)
        return None

    def note(self) -> str | None:
        """Return how far encrypted texts were checked, to be reported; None if there are none."""
        told = []
        if self.opened:
            told.append(f"the content of {len(self.opened)} was decrypted and verified")
        if self.closed:
            why = "no identity decrypts them" if self._keys else "no identity was given"
            told.append(f"only the ciphertext of {len(self.closed)} was checked, because {why}")
        if not told:
            return None
        return f"{counted(len(self.opened | self.closed), 'encrypted text')}: {'; '.join(told)}"
