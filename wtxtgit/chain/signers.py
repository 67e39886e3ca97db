"""`.wtxt/signers` in the work tree: who may sign, and how many have to agree."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from wtxtgit.errors import CheckError, EnvironmentFailure, UsageError, counted
from wtxtgit.git.repository import Repository
from wtxtgit.git.turn import turn
from wtxtgit.io.files import failures, read_small, replace_file, shown
from wtxtgit.io.view import write_all
from wtxtgit.model.plain import JsonObject
from wtxtgit.text.digest import keyid
from wtxtgit.trust.keyring import PUBLIC_ENDING, Keyring
from wtxtgit.trust.openssh import (
    HEADER,
    KEY_TYPES,
    MAX_KEY_FILE,
    MAX_SIGNERS_FILE,
    MAX_THRESHOLD,
    KeyFileError,
    PublicKey,
    Signer,
    SignersFile,
    checked_comment,
    fingerprint,
    parse,
    parse_public,
    parse_public_file,
    without_threshold,
)

FOLDER = ".wtxt"
PATH = f"{FOLDER}/signers"


@dataclass(frozen=True, slots=True)
class SignerFacts(JsonObject):
    """What is told of a signer."""

    principal: str
    fingerprint: str
    keyid: str
    comment: str


@dataclass(frozen=True, slots=True)
class Consequence(JsonObject):
    """What a change of the signers means elsewhere, and what to do there."""

    message: str
    hint: str


REVOCATION = Consequence(
    "what a removed key sealed stays good on branches that have it already; a branch that brings "
    "in records of it after the removal needs a countersignature",
    "wtxtgit seal --countersign on that branch, by a signer who is left",
)


@dataclass(frozen=True, slots=True)
class SignersReport(JsonObject):
    """Signers that were listed, added or removed, and the threshold of the file.

    `changed` tells whether the file was written, `consequence` what follows
    from a removal for other branches.
    """

    KEYS = "threshold changed signers consequence?"

    signers: tuple[SignerFacts, ...]
    threshold: int
    changed: bool = False
    consequence: Consequence | None = None


def list_signers(repo: Repository) -> SignersReport:
    """All signers of the work tree's file; none where there is no file."""
    signers = _read(repo).signers
    return _report(signers.signers, signers.threshold)


def add(repo: Repository, principal: str, key: str, ring: Keyring) -> SignersReport:
    """Add a signer; the file is made where there is none.

    `key` is an OpenSSH public line, a `.pub` file (with a slash, or ending
    so) or the name of a key of the ring. A signer who is there already
    changes nothing; raises CheckError where the key is there as somebody
    else's or the file would have fewer principals than its threshold, and
    KeyFileError for what can't stand in the file.
    """
    with turn(repo):
        public = _public_key(key, ring)
        file = _read(repo)
        for signer in file.signers.signers:
            if signer.public_key == public.key:
                if signer.principal == principal:
                    return _report((signer,), file.signers.threshold)
                raise CheckError(f'the key is in {PATH} already, as that of "{signer.principal}"')
        signer = Signer(principal, public.key, checked_comment(public.comment))
        changed = file.with_signer(signer, PATH)
        there, threshold = len(changed.signers.principals), changed.signers.threshold
        if there < threshold:
            raise CheckError(
                f"there would be {counted(there, 'principal')} for a threshold of {threshold}: "
                "no change of the file would ever count",
                hint=f"wtxtgit signers threshold {there}, and raise it when the others are there",
            )
        _write(repo, changed)
        return _report((signer,), changed.signers.threshold, changed=True)


def remove(repo: Repository, which: str) -> SignersReport:
    """Remove a principal with all its keys, or the key with a fingerprint or keyid.

    Raises UsageError where nothing or more than one is meant, and CheckError
    where fewer principals would be left than the file's threshold asks for.
    """
    with turn(repo):
        file = _read(repo)
        every = file.signers.signers
        keys = [signer for signer in every if keyid(signer.public_key) == which]
        meant = [
            {signer.public_key for signer in every if signer.principal == which},
            {signer.public_key for signer in every if fingerprint(signer.public_key) == which},
            # A keyid is a short hash without secrets: keys can be made that share one.
            *({signer.public_key} for signer in keys),
        ]
        meant = [found for found in meant if found]
        if not meant:
            raise UsageError(
                f'no signer "{which}" in {PATH}', hint="wtxtgit signers list shows all"
            )
        if any(found != meant[0] for found in meant):
            raise UsageError(
                f'"{which}" may mean several signers',
                hint="a fingerprint, SHA256:..., means one key",
            )
        changed = file.without(meant[0], PATH)
        left, threshold = len(changed.signers.principals), changed.signers.threshold
        if not left:
            raise CheckError("no signer would be left", hint="add another signer first")
        # Such a file could never be changed again: no change would get enough signatures.
        if left < threshold:
            raise CheckError(
                f"{counted(left, 'principal')} would be left for a threshold of {threshold}",
                hint=f"add another signer first, or lower it: wtxtgit signers threshold {left}",
            )
        _write(repo, changed)
        removed = tuple(signer for signer in every if signer.public_key in meant[0])
        return replace(_report(removed, threshold, changed=True), consequence=REVOCATION)


def set_threshold(repo: Repository, threshold: int) -> SignersReport:
    """Say how many principals have to seal a change of the file; tells all signers.

    Raises UsageError for a number that no file can have, and CheckError for
    one over the number of principals.
    """
    with turn(repo):
        if not 1 <= threshold <= MAX_THRESHOLD:
            raise UsageError(
                f"a threshold is from 1 to {MAX_THRESHOLD}, not {threshold}",
                hint=f"a record has room for {MAX_THRESHOLD} signatures"
                if threshold > MAX_THRESHOLD
                else "1 lets every signer change the file alone",
            )
        file, is_read = _read_but_threshold(repo)
        there = len(file.signers.principals)
        # The first signer comes into a file that asks for one: it may be lowered to that.
        is_first = threshold == 1 < file.signers.threshold
        if threshold > there and not is_first:
            raise CheckError(
                f"a threshold of {threshold} needs as many principals, {PATH} has {there}",
                hint="wtxtgit signers add PRINCIPAL KEY adds one; several keys of one count once",
            )
        every = file.signers.signers
        if is_read and threshold == file.signers.threshold:
            return _report(every, threshold)
        _write(repo, file.with_threshold(threshold, PATH))
        return _report(every, threshold, changed=True)


def _report(signers: tuple[Signer, ...], threshold: int, *, changed: bool = False) -> SignersReport:
    facts = (
        SignerFacts(s.principal, fingerprint(s.public_key), keyid(s.public_key), s.comment)
        for s in signers
    )
    return SignersReport(tuple(facts), threshold, changed)


def _public_key(key: str, ring: Keyring) -> PublicKey:
    if KEY_TYPES.fullmatch(key.partition(" ")[0]):
        return parse_public(key.rstrip("\r\n"), "the public key")
    if "/" in key or key.endswith(PUBLIC_ENDING):
        path = Path(key)
        return parse_public_file(read_small(path, MAX_KEY_FILE, "a public key"), shown(path))
    with failures(ring.folder):
        return ring.public(key)


def _read(repo: Repository) -> SignersFile:
    path = _path(repo)
    if not path.exists():
        return parse(HEADER.encode(), PATH)
    return parse(read_small(path, MAX_SIGNERS_FILE, "a signers file"), PATH)


def _read_but_threshold(repo: Repository) -> tuple[SignersFile, bool]:
    """The file, without its threshold where that is what can't be read; and whether it is whole."""
    try:
        return _read(repo), True
    except KeyFileError as error:
        content = read_small(_path(repo), MAX_SIGNERS_FILE, "a signers file")
        try:
            return parse(without_threshold(content), PATH), False
        except KeyFileError:
            raise error from None


def _write(repo: Repository, file: SignersFile) -> None:
    path = _path(repo)
    with failures(path.parent, missing=EnvironmentFailure):
        path.parent.mkdir(exist_ok=True)
    replace_file(path, lambda descriptor: write_all(descriptor, (file.content(),)))


def _path(repo: Repository) -> Path:
    """Where the file is; raises EnvironmentFailure for links, which lead elsewhere."""
    path = repo.worktree / PATH
    _check_kind(path.parent, stat.S_ISDIR, "folder")
    _check_kind(path, stat.S_ISREG, "regular file")
    return path


def _check_kind(path: Path, is_kind: Callable[[int], bool], kind: str) -> None:
    with failures(path), contextlib.suppress(FileNotFoundError):
        if not is_kind(path.lstat().st_mode):
            raise EnvironmentFailure(f"{shown(path)} is no {kind}")
