"""Texts in age files: what can be said of one without a key, and its content with one.

What is in an age file counts once it is a whole text that verifies: age proves that nobody
without its key changed it, not that who wrote it wrote a checkpoint.
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
    """What an age file shows of itself: for how many keys of each type, and how much is in it.

    `content_size` is that of the text, in bytes.
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
    """Read what an age file shows without a key; raises AgeError where it is damaged.

    All of an armor is looked at: what is missing or changed in it is found. Changes of the
    content that leave the armor whole are found with a key alone.
    """
    binary = armor.dearmored(data, name)
    head = header.parse(binary, name)
    size = payload.plain_size(len(binary) - head.nbytes, name)
    armor.check_all(binary)
    return Envelope(dict(head.counts()), size, armor.is_armored(data))


def refuse_encrypted(before: ByteView | None, after: ByteView | None) -> None:
    """Raise NoCheckpoint where a side of a comparison is encrypted, with what can be said of it.

    Raises AgeError for a side that is damaged.
    """
    sides = [
        envelope(side, name) if side is not None and armor.is_age(side) else None
        for side, name in ((before, "before"), (after, "after"))
    ]
    if sides == [None, None]:
        return
    # What takes numbers to load, and most comparisons have by then.
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
    """The header of an age file; raises AgeError."""
    return header.parse(armor.dearmored(data, name), name)


def opened_text(
    data: ByteView,
    keys: Collection[AgeIdentity],
    name: str,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[ByteView, TextReport]:
    """The text in an age file, verified; it is decrypted again wherever it is looked at.

    Raises AgeError for a file that does not open, InputError for another content than a text,
    and CheckError for a text that does not verify.
    """
    text = identities.opened(data, keys, name)
    return text, checked_text(text, name, threads=threads, progress=progress)


def checked_text(
    text: ByteView, name: str, *, threads: int | None = None, progress: Progress | None = None
) -> TextReport:
    """Verify the text that is in an age file, or is to be; raises InputError and CheckError."""
    if text[: len(MAGIC)] != MAGIC:
        raise InputError(f"{name}: the encrypted content is not a WTXT text")
    report = verify(text, threads=threads, progress=progress)
    if not report.ok:
        raise CheckError(f"{name}: the encrypted text: {report.problems[0]}")
    return report


def read_identities(
    path: Path, ask: AskPassphrase | None, piped: Callable[[], bytes] | None = None
) -> tuple[AgeIdentity, ...]:
    """The identities in a file; `-` is what `piped` gives, `ask` gives a file's passphrase.

    Raises KeyFileError, and EnvironmentFailure for a file that others may read.
    """
    name = shown(path)
    if str(path) == "-" and piped is not None:
        name, content = "standard input", piped()
    elif path.is_file():
        content = read_secret_file(path)
    else:
        # A pipe of the shell's, which belongs to who reads it; what is not there is told so.
        content = read_small(path, MAX_KEY_FILE, "identities")
    if is_protected(content):
        if ask is None:
            raise AgeError(f"{name}: these identities are protected by a passphrase")
        content = unprotect(content, ask(name), name)
    return identities.parse_file(content, name)


class EncryptedTexts:
    """Opens encrypted texts with some identities, and remembers of which that went.

    `opened` are those that were whole texts, `closed` those for which no identity is.
    """

    def __init__(self, keys: Collection[AgeIdentity] = ()) -> None:
        self._keys = keys
        self.opened: set[Hashable] = set()
        self.closed: set[Hashable] = set()

    def fault(self, data: ByteView, name: str, known_as: Hashable) -> str | None:
        """What is wrong with an encrypted text, as far as that can be seen; None for nothing.

        `known_as` is what it is counted by, once.
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
        """What was looked at, for a reader who has to know; None where nothing is encrypted."""
        told = []
        if self.opened:
            told.append(f"the content of {len(self.opened)} was decrypted and verified")
        if self.closed:
            why = "no identity decrypts them" if self._keys else "no identity was given"
            told.append(f"only the ciphertext of {len(self.closed)} was checked, because {why}")
        if not told:
            return None
        return f"{counted(len(self.opened | self.closed), 'encrypted text')}: {'; '.join(told)}"
