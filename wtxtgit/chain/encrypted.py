"""Encrypted texts among artifacts: what ledgers don't prove (`docs/spec/trust.md`, "Artifacts").

A seal covers the ciphertext, as it covers the bytes of any file. In addition it is checked that the
ciphertext is an age file and, with identities, that its content is a whole text. No rule of trust
depends on an identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from wtxtgit.checkpoint.open import blob
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import shown_path
from wtxtgit.model.ledger import ENCRYPTED_SUFFIX
from wtxtgit.report.audit import Finding

if TYPE_CHECKING:  # what opens age files takes long to load
    from wtxtgit.checkpoint.encrypted import EncryptedTexts


def is_encrypted(path: bytes) -> bool:
    """Tell whether a path has the name of an encrypted text."""
    return path.endswith(ENCRYPTED_SUFFIX)


def judge_encrypted(
    repo: Repository, commit: str, blobs: Mapping[bytes, str], opener: EncryptedTexts
) -> Iterator[Finding]:
    """Yield what is wrong with encrypted texts, given by path; each blob is opened once.

    Raises EnvironmentFailure if git can't return a blob.
    """
    faults: dict[str, str | None] = {}
    for path, oid in blobs.items():
        if oid not in faults:
            faults[oid] = opener.fault(blob(repo, oid), shown_path(path), oid)
        fault = faults[oid]
        if fault is not None:
            yield Finding(commit, path, "corrupt-text", fault)
