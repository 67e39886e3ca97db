"""Encrypted texts among artifacts: what ledgers don't say (`docs/spec/trust.md`, "Artifacts").

A seal is of the ciphertext, as of any file's bytes. That it is an age file is judged besides,
and with identities that its content is a whole text. No rule of trust depends on a key.
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
    """Whether a path is that of an encrypted text."""
    return path.endswith(ENCRYPTED_SUFFIX)


def judge_encrypted(
    repo: Repository, commit: str, blobs: Mapping[bytes, str], opener: EncryptedTexts
) -> Iterator[Finding]:
    """What is wrong with encrypted texts, by path; each blob is opened once.

    Raises EnvironmentFailure where git can't give a blob.
    """
    faults: dict[str, str | None] = {}
    for path, oid in blobs.items():
        if oid not in faults:
            faults[oid] = opener.fault(blob(repo, oid), shown_path(path), oid)
        fault = faults[oid]
        if fault is not None:
            yield Finding(commit, path, "corrupt-text", fault)
