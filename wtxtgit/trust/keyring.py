"""The user's keys: a folder with a secret file NAME and a public file NAME.pub for each key.

Errors of the system are raised as OSError, for which callers have messages. A secret file may be
protected by a passphrase: then it is encrypted by age (`trust/age/`), with a scrypt recipient only.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.errors import AgeError, EnvironmentFailure, UsageError
from wtxtgit.io.files import create_file
from wtxtgit.io.view import mapped
from wtxtgit.trust.age.armor import is_age
from wtxtgit.trust.openssh import (
    MAX_KEY_FILE,
    KeyFileError,
    PublicKey,
    format_public,
    parse_public_file,
)

PUBLIC_ENDING = ".pub"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FOLDER_MODE = 0o700
_SECRET_MODE = 0o600
_PUBLIC_MODE = 0o644
_ACCESSIBLE_TO_OTHERS = 0o077
_WRITABLE_BY_OTHERS = 0o022
MAX_PASSPHRASE = 1024
"""Most bytes of a passphrase."""


def is_name(name: str) -> bool:
    """Tell whether this can be the name of a key."""
    return _NAME.fullmatch(name) is not None and not name.endswith(PUBLIC_ENDING)


def check_name(name: str) -> None:
    """Raise UsageError for a name that no key can have."""
    if not is_name(name):
        raise UsageError(
            f'"{name}" is not a key name: 1 to 64 letters, digits and ._-, not ending in '
            f"{PUBLIC_ENDING}"
        )


@dataclass(frozen=True, slots=True)
class Keyring:
    """The keys in `folder`, which need not exist yet."""

    folder: Path

    def path(self, name: str) -> Path:
        """Return the path of a key's secret file."""
        check_name(name)
        return self.folder / name

    def names(self) -> tuple[str, ...]:
        """Return the names of all keys that have both files, sorted."""
        try:
            files = {entry.name for entry in self.folder.iterdir()}
        except FileNotFoundError:
            return ()
        return tuple(
            sorted(name for name in files if is_name(name) and name + PUBLIC_ENDING in files)
        )

    def public(self, name: str) -> PublicKey:
        """Return the public half of a key; raises UsageError if there is no such key."""
        path = self._public_path(name)
        self._check_folder()
        try:
            content = _read(path, secret=False)
        except FileNotFoundError:
            raise _unknown(name) from None
        return parse_public_file(content, str(path))

    def secret(self, name: str) -> bytes:
        """Return the content of a key's secret file; see `read_secret_file`."""
        path = self.path(name)
        self._check_folder()
        try:
            return read_secret_file(path)
        except FileNotFoundError:
            raise _unknown(name) from None

    def add(self, name: str, secret: bytes, public: PublicKey) -> None:
        """Write both files of a key; the folder is created if missing.

        Nothing is overwritten: raises UsageError if either file exists.
        """
        path = self.path(name)
        self.folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        self._check_folder()
        public_path = self._public_path(name)
        # Links count too: a dangling one would be followed.
        if os.path.lexists(path) or os.path.lexists(public_path):
            raise _taken(name)
        # The secret first: otherwise a public key could be trusted whose secret was never saved.
        _create(path, secret, _SECRET_MODE, name)
        try:
            self.finish(name, public)
        except BaseException as error:
            # If both files exist the key is complete, unless another process made the public file.
            if isinstance(error, UsageError) or not os.path.lexists(public_path):
                path.unlink()
            raise

    def unfinished(self, name: str) -> bytes | None:
        """Return the content of a secret file whose public file is missing, as a killed process
        leaves it.

        Returns None if there is no such file.
        """
        if os.path.lexists(self._public_path(name)):
            return None
        with suppress(UsageError):
            return self.secret(name)
        return None

    def finish(self, name: str, public: PublicKey) -> None:
        """Write the public file of a key that is `unfinished`."""
        content = format_public(public).encode() + b"\n"
        _create(self._public_path(name), content, _PUBLIC_MODE, name)

    def _public_path(self, name: str) -> Path:
        return self.path(name).with_name(name + PUBLIC_ENDING)

    def _check_folder(self) -> None:
        """Raise EnvironmentFailure if others can write to the folder, and so exchange public
        keys.
        """
        try:
            mode = self.folder.stat().st_mode
        except FileNotFoundError:
            return
        # Whoever may add files can add a public key beside a secret one; a sticky bit does not
        # prevent that.
        if mode & _WRITABLE_BY_OTHERS:
            raise EnvironmentFailure(
                f"{self.folder}: others can write to the folder of keys",
                hint=f"chmod 700 {shlex.quote(str(self.folder))}",
            )


def read_secret_file(path: Path) -> bytes:
    """Return the content of a secret file, of at most 64 KiB.

    Links are followed. Raises EnvironmentFailure if others than the owner can access the file or it
    belongs to somebody else (root may still use it), and KeyFileError if it is too large or no
    regular file.
    """
    return _read(path, secret=True)


def _read(path: Path, *, secret: bool) -> bytes:
    # Non-blocking: opening a pipe without a writer would wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise KeyFileError(f"{path}: a key must be a regular file")
        if secret:
            _check_private(path, status)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            # One byte more than the limit, to recognize files that are too large.
            content = file.read(MAX_KEY_FILE + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_KEY_FILE:
        raise KeyFileError(f"{path}: over {MAX_KEY_FILE} bytes, too large for a key")
    return content


def _check_private(path: Path, status: os.stat_result) -> None:
    user = os.geteuid()
    # Checked by the open descriptor, not the path: what is checked is what is read.
    if status.st_uid != user and user != 0:
        raise EnvironmentFailure(f"{path}: the secret key belongs to another user")
    if status.st_mode & _ACCESSIBLE_TO_OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        raise EnvironmentFailure(
            f"{path}: others can read the secret key (mode {mode:04o})",
            hint=f"chmod 600 {shlex.quote(str(path))}",
        )


def _create(path: Path, content: bytes, mode: int, name: str) -> None:
    """Create a key's file; raises UsageError if it exists."""
    try:
        create_file(path, content, mode)
    except FileExistsError:
        raise _taken(name) from None


def _taken(name: str) -> UsageError:
    return UsageError(f'a key "{name}" already exists', hint="--name gives the key another name")


def _unknown(name: str) -> UsageError:
    return UsageError(f'no key "{name}"', hint="wtxtgit key list lists them")


class PassphraseError(KeyFileError):
    """A passphrase is wrong or invalid."""


def is_protected(content: bytes) -> bool:
    """Tell whether the content of a secret file is encrypted by age."""
    return is_age(memoryview(content))


def protect(content: bytes, passphrase: str) -> bytes:
    """Encrypt the content of a secret file; takes about a second.

    Raises PassphraseError if the passphrase is empty, too long or not text.
    """
    # Imported here and below: few readers of keys need a passphrase.
    from wtxtgit.trust.age import scrypt

    return b"".join(scrypt.encrypted((content,), checked_passphrase(passphrase)))


def unprotect(content: bytes, passphrase: str, name: str) -> bytes:
    """Decrypt the content of a secret file; `name` begins error messages.

    Raises PassphraseError if the passphrase is wrong, and KeyFileError if the file is damaged or
    asks for too much work.
    """
    from wtxtgit.trust.age.identities import NoIdentityError, Passphrase, opened

    words = Passphrase(checked_passphrase(passphrase))
    try:
        return bytes(mapped(opened(memoryview(content), (words,), name)))
    except NoIdentityError as error:
        raise PassphraseError(error.message) from None
    except AgeError as error:
        raise KeyFileError(error.message) from None


def checked_passphrase(passphrase: str) -> str:
    """Return a passphrase unchanged; raises PassphraseError if it is invalid."""
    try:
        size = len(passphrase.encode("utf-8"))
    except UnicodeEncodeError:
        raise PassphraseError("the passphrase is not text") from None
    # Bytes, not characters: age gets UTF-8.
    if not 0 < size <= MAX_PASSPHRASE:
        raise PassphraseError(f"a passphrase has 1 to {MAX_PASSPHRASE} bytes")
    return passphrase
