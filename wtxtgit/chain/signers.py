"""`.wtxt/signers` in the work tree: who may sign, and how many of them have to agree."""

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
    """The facts about a signer that are reported."""

    principal: str
    fingerprint: str
    keyid: str
    comment: str


@dataclass(frozen=True, slots=True)
class Consequence(JsonObject):
    """What a change of the signers means elsewhere, and what to do about it."""

    message: str
    hint: str


REVOCATION = Consequence(
    "records by a removed key stay valid on branches that already have them; a branch that adds "
    "more of them needs a countersignature",
    "one of the remaining signers runs wtxtgit seal --countersign on that branch",
)


@dataclass(frozen=True, slots=True)
class SignersReport(JsonObject):
    """Signers that were listed, added or removed, and the threshold of the file.

    `changed` tells whether the file was written, `consequence` what a removal means for other
    branches.
    """

    KEYS = "threshold changed signers consequence?"

    signers: tuple[SignerFacts, ...]
    threshold: int
    changed: bool = False
    consequence: Consequence | None = None


def list_signers(repo: Repository) -> SignersReport:
    """Return all signers in the work tree's file; none if there is no file."""
    signers = _read(repo).signers
    return _report(signers.signers, signers.threshold)


def add(repo: Repository, principal: str, key: str, ring: Keyring) -> SignersReport:
    """Add a signer; the file is created if it does not exist.

    `key` is an OpenSSH public line, a `.pub` file (with a slash, or with that ending) or the name
    of a key of the ring. A signer who is listed already changes nothing. Raises CheckError if the
    key is listed for somebody else, or if the file would have fewer principals than its threshold,
    and KeyFileError for what can't be written to the file.
    """
    with turn(repo):
        public = _public_key(key, ring)
        file = _read(repo)
        for signer in file.signers.signers:
            if signer.public_key == public.key:
                if signer.principal == principal:
                    return _report((signer,), file.signers.threshold)
                raise CheckError(f'the key is already in {PATH}, for "{signer.principal}"')
        signer = Signer(principal, public.key, checked_comment(public.comment))
        changed = file.with_signer(signer, PATH)
        count, threshold = len(changed.signers.principals), changed.signers.threshold
        if count < threshold:
            raise CheckError(
                f"with {counted(count, 'principal')} and a threshold of {threshold}, no change "
                f"of the file would ever count",
                hint=f"wtxtgit signers threshold {count}; raise it when the others are added",
            )
        _write(repo, changed)
        return _report((signer,), changed.signers.threshold, changed=True)


def remove(repo: Repository, which: str) -> SignersReport:
    """Remove a principal with all its keys, or the key with a fingerprint or keyid.

    Raises UsageError if `which` matches nothing or several signers, and CheckError if fewer
    principals would remain than the threshold requires.
    """
    with turn(repo):
        file = _read(repo)
        signers = file.signers.signers
        keys = [signer for signer in signers if keyid(signer.public_key) == which]
        candidates = [
            {signer.public_key for signer in signers if signer.principal == which},
            {signer.public_key for signer in signers if fingerprint(signer.public_key) == which},
            # A keyid is a short hash: keys can be crafted that share one.
            *({signer.public_key} for signer in keys),
        ]
        candidates = [keys_meant for keys_meant in candidates if keys_meant]
        if not candidates:
            raise UsageError(
                f'no signer "{which}" in {PATH}', hint="wtxtgit signers list lists them"
            )
        if any(keys_meant != candidates[0] for keys_meant in candidates):
            raise UsageError(
                f'"{which}" may mean several signers',
                hint="a fingerprint, SHA256:..., names one key",
            )
        changed = file.without(candidates[0], PATH)
        left, threshold = len(changed.signers.principals), changed.signers.threshold
        if not left:
            raise CheckError("no signer would remain", hint="add another signer first")
        # With fewer principals no change of the file could ever get enough signatures.
        if left < threshold:
            raise CheckError(
                f"{counted(left, 'principal')} would remain for a threshold of {threshold}",
                hint=f"add another signer first, or lower it: wtxtgit signers threshold {left}",
            )
        _write(repo, changed)
        removed = tuple(signer for signer in signers if signer.public_key in candidates[0])
        return replace(_report(removed, threshold, changed=True), consequence=REVOCATION)


def set_threshold(repo: Repository, threshold: int) -> SignersReport:
    """Set how many principals have to seal a change of the file; returns all signers.

    Raises UsageError for a number that no file can have, and CheckError if it exceeds the number of
    principals.
    """
    with turn(repo):
        if not 1 <= threshold <= MAX_THRESHOLD:
            raise UsageError(
                f"a threshold must be from 1 to {MAX_THRESHOLD}, not {threshold}",
                hint=f"a record has room for {MAX_THRESHOLD} signatures"
                if threshold > MAX_THRESHOLD
                else "with 1, every signer can change the file alone",
            )
        file, is_read = _read_but_threshold(repo)
        count = len(file.signers.principals)
        # Before the first signer is added the threshold has to be one, so it may be lowered to
        # that.
        is_first = threshold == 1 < file.signers.threshold
        if threshold > count and not is_first:
            raise CheckError(
                f"a threshold of {threshold} needs as many principals, but {PATH} has {count}",
                hint="wtxtgit signers add PRINCIPAL KEY adds one; several keys of one principal "
                "count once",
            )
        signers = file.signers.signers
        if is_read and threshold == file.signers.threshold:
            return _report(signers, threshold)
        _write(repo, file.with_threshold(threshold, PATH))
        return _report(signers, threshold, changed=True)


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
    """Read the file, without its threshold if only that is invalid.

    Also returns whether it is whole.
    """
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
    """Return the file's path; raises EnvironmentFailure for links, which lead elsewhere."""
    path = repo.worktree / PATH
    _check_kind(path.parent, stat.S_ISDIR, "folder")
    _check_kind(path, stat.S_ISREG, "regular file")
    return path


def _check_kind(path: Path, is_kind: Callable[[int], bool], kind: str) -> None:
    with failures(path), contextlib.suppress(FileNotFoundError):
        if not is_kind(path.lstat().st_mode):
            raise EnvironmentFailure(f"{shown(path)} is not a {kind}")
