"""The Python interface: age files, in which texts are encrypted."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from wtxtgit.api.functions import File, resolved_path
from wtxtgit.checkpoint.encrypt import (
    Audience,
    audience,
    decrypt_file,
    encrypt_file,
)
from wtxtgit.checkpoint.encrypted import read_identities
from wtxtgit.errors import UsageError
from wtxtgit.io.workers import check_threads
from wtxtgit.model.named_arrays import with_hints
from wtxtgit.trust.age import identities as age_identities
from wtxtgit.trust.age.identities import AgeIdentity, Passphrase
from wtxtgit.trust.keyring import checked_passphrase


@with_hints
def encrypt(
    source: File,
    out: File | None = None,
    *,
    recipients: Iterable[str] = (),
    passphrase: str | None = None,
    identities: Iterable[File | bytes] = (),
    threads: int | None = None,
) -> bytes | None:
    """Encrypt a text, or the text of a checkpoint, as an age file.

    `source` is like `path` in `load`. The age file is written to `out`; without `out`, its bytes
    are returned. `recipients` are written as age
    writes them (`age1...`, `ssh-ed25519 ...`). Without recipients and `passphrase`, those in the
    repository's `.wtxt/recipients` are used. If `identities` (as in `decrypt`) or `passphrase` can
    open an existing `out`, and it holds the same text for the same recipients, it is left alone.

    Raises UsageError if there is no recipient, KeyFileError for an invalid recipient, AgeError for
    a file that is already encrypted, and CheckError for a text that does not verify.
    """
    check_threads(threads)
    if passphrase is None:
        whom = audience(tuple(recipients), ())
    elif tuple(recipients):
        raise UsageError("a passphrase can't be combined with recipients")
    else:
        whom = Audience(passphrase=Passphrase(checked_passphrase(passphrase)))
    written: list[bytes] = []
    encrypt_file(
        resolved_path(source),
        None if out is None else os.fspath(out),
        whom,
        keys=_keys(identities),
        threads=threads,
        write=lambda some: written.extend(bytes(piece) for piece in some),
    )
    return b"".join(written) if out is None else None


@with_hints
def decrypt(
    source: File,
    out: File | None = None,
    *,
    identities: Iterable[File | bytes] = (),
    passphrase: str | None = None,
    threads: int | None = None,
) -> bytes | None:
    """Decrypt the text in an age file.

    `source` is like `path` in `load`. The text is written to `out`; without `out`, its bytes are
    returned. `identities` are paths of
    identity files, or the contents of such files as bytes. Nothing is written unless the text is
    complete and verifies. Raises AgeError for a file that can't be decrypted, CheckError for a
    text that does not verify, and KeyFileError for an invalid identity.
    """
    check_threads(threads)
    words = () if passphrase is None else (Passphrase(checked_passphrase(passphrase)),)
    written: list[bytes] = []
    decrypt_file(
        resolved_path(source),
        None if out is None else Path(out),
        (*_keys(identities), *words),
        threads=threads,
        write=lambda some: written.extend(bytes(piece) for piece in some),
    )
    return b"".join(written) if out is None else None


def _keys(given: Iterable[File | bytes]) -> tuple[AgeIdentity, ...]:
    return tuple(
        key
        for one in given
        for key in (
            age_identities.parse_file(one, "an identity")
            if isinstance(one, bytes)
            else read_identities(Path(one), None)
        )
    )
