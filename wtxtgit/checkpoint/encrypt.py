"""Encrypt: whole texts to age files, and back; changing recipients.

Plaintext is only written where the user asks for it: texts are encrypted and decrypted piece by
piece, never through a temporary file. An encrypted file that has the same text for the same
recipients is left alone, since another ciphertext would be a different blob without new
information.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from wtxtgit.checkpoint.encrypted import checked_text, head_of, opened_text
from wtxtgit.checkpoint.open import attached_text, blob, is_file, read_checkpoint, shown_name
from wtxtgit.checkpoint.restore import restore_verified
from wtxtgit.errors import AgeError, InputError, UsageError
from wtxtgit.filter.clean import Cleaned, text_of
from wtxtgit.git import history, index
from wtxtgit.git.blobs import blob_id
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import read_small, shown, view_file, write_output
from wtxtgit.io.progress import Progress, expect, finish_file
from wtxtgit.io.view import Buffer, ByteView, counted, mapped, pieces, write_all
from wtxtgit.model.ledger import ENCRYPTED_SUFFIX, RECIPIENTS_PATH
from wtxtgit.model.plain import JsonObject
from wtxtgit.remotes import urls
from wtxtgit.remotes.lfs_pointer import refuse_pointer
from wtxtgit.text.grammar import MAGIC, is_detached
from wtxtgit.trust.age import identities as age_identities
from wtxtgit.trust.age import recipients as age_recipients
from wtxtgit.trust.age import scrypt
from wtxtgit.trust.age.armor import is_age
from wtxtgit.trust.age.header import X25519
from wtxtgit.trust.age.identities import AgeIdentity, Passphrase
from wtxtgit.trust.age.recipients import Recipient

Write = Callable[[Iterable[Buffer]], None]
File = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Audience:
    """For whom a file is encrypted: recipients, or whoever knows a passphrase.

    `listed` is the repository if the recipients are those of its own list.
    """

    recipients: tuple[Recipient, ...] = ()
    passphrase: Passphrase | None = None
    listed: Repository | None = None


def audience(
    named: Sequence[str], files: Sequence[Path], piped: Callable[[], bytes] | None = None
) -> Audience:
    """Return the recipients given by name and in files, else those in `.wtxt/recipients`.

    Raises KeyFileError, and UsageError if nobody is named and there is no such file.
    """
    found = [age_recipients.parse(one, "--recipient") for one in named]
    for file in files:
        if str(file) == "-" and piped is not None:
            found += age_recipients.parse_file(piped(), "standard input")
        else:
            content = read_small(file, age_recipients.MAX_FILE, "recipients")
            found += age_recipients.parse_file(content, shown(file))
    if found:
        return Audience(tuple(dict.fromkeys(found)))
    repo = Repository.find()
    list_file = None if repo is None or repo.is_bare else repo.file(RECIPIENTS_PATH)
    if repo is None or list_file is None or not list_file.is_file():
        raise UsageError(
            "no recipients to encrypt for",
            hint="name them with -r RECIPIENT or -R FILE, or list them in .wtxt/recipients",
        )
    content = read_small(list_file, age_recipients.MAX_FILE, "recipients")
    listed = age_recipients.parse_file(content, RECIPIENTS_PATH.decode())
    return Audience(tuple(dict.fromkeys(listed)), listed=repo)


class Encryption(StrEnum):
    """What happened to an encrypted file."""

    ENCRYPTED = "encrypted"
    UNCHANGED = "unchanged"


def encrypt_file(
    source: Path | str,
    out: Path | str | None,
    whom: Audience,
    *,
    keys: Collection[AgeIdentity] = (),
    threads: int | None = None,
    progress: Progress | None = None,
    write: Write | None = None,
) -> tuple[Encryption, str | None]:
    """Encrypt the text of a file to `out`, or through `write` if it is None.

    Returns what was done, and the warning that `emit` gives about the file, if any. With `keys`, an
    `out` that has the same text for the same recipients is left alone. Raises AgeError if the file
    is already encrypted, CheckError for a text that does not verify, and as `emit` does.
    """
    name = shown_name(str(source))
    data = _read(source)
    refuse_pointer(name, data)
    if is_age(data):
        raise AgeError(f"{name}: already encrypted", hint="wtxtgit rekey changes its recipients")
    if is_detached(data):
        # Attached first: an age file is decrypted where there is no store, so it contains the whole
        # text.
        data = attached_text(str(source), data, threads=threads)
    if data[: len(MAGIC)] == MAGIC:
        # Decrypting a text that does not verify would be of no use.
        checked_text(data, name, threads=threads, progress=progress)
        text, warning, size = Cleaned(None, data).pieces, None, data.nbytes
    else:
        cleaned = text_of(data, threads=threads, progress=progress)
        text, warning = cleaned.pieces, cleaned.reason
        size = data.nbytes + (0 if cleaned.writer is None else cleaned.writer.size)
    expect(progress, size)
    opening = (*keys, *(() if whom.passphrase is None else (whom.passphrase,)))
    if out is not None and not urls.is_url(str(out)) and os.path.lexists(out) and opening:
        there = view_file(Path(out))
        if _holds(there, text(), opening, out) and is_for(there, Path(out), whom, opening):
            return Encryption.UNCHANGED, warning
    write_encrypted(counted(text(), progress), out, whom, write)
    return Encryption.ENCRYPTED, warning


def write_encrypted(
    text: Iterable[Buffer], out: Path | str | None, whom: Audience, write: Write | None = None
) -> None:
    """Encrypt a text given in pieces to a file or URL, or through `write`."""
    if out is None:
        if write is not None:
            _encrypt(text, whom, lambda piece: write((piece,)))
        return

    def fill(descriptor: int) -> None:
        _encrypt(text, whom, lambda piece: write_all(descriptor, (piece,)))

    if urls.is_url(str(out)):
        urls.write_url(str(out), fill)
    else:
        write_output(Path(out), fill)


def _encrypt(text: Iterable[Buffer], whom: Audience, write: Callable[[bytes], object]) -> None:
    if whom.passphrase is None:
        age_recipients.encrypt(text, whom.recipients, write)
        return
    for piece in scrypt.encrypted(text, whom.passphrase.words):
        write(piece)


def check_encrypted(source: Path | str) -> None:
    """Raise as `decrypt_file` does if a file is there that is no age file, or none."""
    # A pipe can be read only once.
    if is_file(str(source)) and (Path(source).is_file() or not Path(source).exists()):
        _read_age(source)


def _read_age(source: Path | str) -> ByteView:
    data = _read(source)
    if not is_age(data):
        raise AgeError(f"{shown_name(str(source))}: not an age file")
    return data


def decrypt_file(
    source: Path | str,
    out: Path | None,
    keys: Collection[AgeIdentity],
    *,
    restored: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    write: Write | None = None,
) -> None:
    """Write the text in an age file, or with `restored` its checkpoint, to `out` or through
    `write`.

    Nothing is written unless the text is complete and verifies. Raises as `opened_text` does.
    """
    name = shown_name(str(source))
    data = _read_age(source)
    text, report = opened_text(data, keys, name, threads=threads, progress=progress)
    if restored:
        restore_verified(text, report, name, out, write=write, threads=threads)
    elif out is not None:
        write_output(out, lambda descriptor: write_all(descriptor, pieces(text)))
    elif write is not None:
        write(pieces(text))


@dataclass(frozen=True, slots=True)
class RekeyedFile(JsonObject):
    """An encrypted file, and what happened to it."""

    path: str
    outcome: Encryption


@dataclass(frozen=True, slots=True)
class RekeyReport(JsonObject):
    """What happened to all files."""

    files: tuple[RekeyedFile, ...]

    @property
    def changed(self) -> int:
        """The number of files that were encrypted again."""
        return sum(file.outcome is Encryption.ENCRYPTED for file in self.files)


def rekey(
    paths: Sequence[Path],
    whom: Audience,
    keys: Collection[AgeIdentity],
    *,
    is_forced: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> RekeyReport:
    """Encrypt files again for other recipients; files that are for them already are left alone.

    `paths` default to the repository's encrypted texts. All are decrypted and verified before the
    first is written. With `is_forced` all are encrypted again. `progress` gets counts of bytes that
    were verified, and of texts that are encrypted. Raises as `opened_text` does.
    """
    chosen = list(paths) or _tracked()
    expect(progress, None, len(chosen))
    opened: list[tuple[Path, ByteView | None]] = []
    for path in chosen:
        data = view_file(path)
        if not is_age(data):
            raise AgeError(f"{shown(path)}: not an age file")
        text, _ = opened_text(data, keys, shown(path), threads=threads, progress=progress)
        stays = not is_forced and is_for(data, path, whom, keys)
        opened.append((path, None if stays else text))
    expect(progress, sum(again.nbytes for _, again in opened if again is not None))
    done = []
    for path, again in opened:
        if again is not None:
            write_encrypted(counted(pieces(again), progress), path, whom)
        finish_file(progress)
        outcome = Encryption.UNCHANGED if again is None else Encryption.ENCRYPTED
        done.append(RekeyedFile(shown(os.path.relpath(path)), outcome))
    return RekeyReport(tuple(done))


def _tracked() -> list[Path]:
    """Return the encrypted texts in the work tree that git tracks."""
    repo = Repository.discover()
    repo.check_worktree()
    found = [
        repo.file(entry.path)
        for entry in index.entries(repo)
        if entry.is_file and entry.path.endswith(ENCRYPTED_SUFFIX) and not entry.stage
    ]
    if not found:
        raise UsageError(
            f"no *{ENCRYPTED_SUFFIX.decode()} file is tracked",
            hint="name one: wtxtgit rekey FILE",
        )
    return [path for path in found if path.exists()]


def is_for(data: ByteView, path: Path, whom: Audience, keys: Collection[AgeIdentity]) -> bool:
    """Tell whether an age file is known to be for exactly these recipients.

    The header tells their number and types, and tags of SSH keys, but nothing about X25519 keys.
    Such a recipient is known by an identity that decrypts the file or, if the recipients are the
    repository's list, if the list was the same when this very file was committed. Anything unknown
    counts as different.
    """
    head = head_of(data, shown(path))
    if whom.passphrase is not None:
        return head.is_passphrase
    wanted = Counter(one.kind for one in whom.recipients)
    if dict(head.counts()) != wanted:
        return False
    tags = Counter(one.tag for one in whom.recipients if one.tag is not None)
    if Counter(s.arguments[0] for s in head.recipients if s.kind != X25519) != tags:
        return False
    proven = {
        one.recipient
        for one in keys
        if isinstance(one, age_identities.X25519Identity)
        and age_identities.file_key(head, [one], shown(path)) is not None
    }
    unproven = {one.spelled for one in whom.recipients if one.kind == X25519} - proven
    # A recipient of the file who is no longer wanted.
    if proven - {one.spelled for one in whom.recipients}:
        return False
    return not unproven or _was_listed(data, path, whom)


def _was_listed(data: ByteView, path: Path, whom: Audience) -> bool:
    """Tell whether the commit that introduced this very file had the same list of recipients."""
    repo = whom.listed
    head = None if repo is None else history.head(repo)
    if repo is None or head is None:
        return False
    with suppress(InputError, ValueError):
        name = os.fsencode(path.absolute().relative_to(repo.worktree))
        for commit in reversed(
            history.commits(repo, [head.oid], touching=[b":(top,literal)" + name])
        ):
            entries = history.listing(repo, commit.tree, name, RECIPIENTS_PATH)
            there = {one.path: one.oid for one in entries}
            oid, listed = there.get(name), there.get(RECIPIENTS_PATH)
            if oid is None or blob_id(pieces(data), len(data), like=oid) != oid:
                return False
            content = b"" if listed is None else bytes(mapped(blob(repo, listed)))
            return set(age_recipients.parse_file(content, "the list")) == set(whom.recipients)
    return False


def _holds(
    data: ByteView, content: Iterable[Buffer], keys: Collection[AgeIdentity], path: Path | str
) -> bool:
    """Tell whether an age file contains these bytes; False if it can't be decrypted."""
    at = 0
    with suppress(InputError):
        text = age_identities.opened(data, keys, shown(path)) if is_age(data) else data
        for piece in content:
            end = at + memoryview(piece).nbytes
            if end > len(text) or mapped(text[at:end]) != piece:
                return False
            at = end
        return at == len(text) and is_age(data)
    return False


def _read(source: Path | str) -> ByteView:
    return read_checkpoint(str(source))
