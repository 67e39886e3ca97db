"""What a release signs: the contract of `release --json`."""

from __future__ import annotations

from dataclasses import dataclass

from wtxtgit.model.plain import JsonObject


@dataclass(frozen=True, slots=True)
class SignedFile(JsonObject):
    """A file of a release by its path; `gen` is its last sealed generation, if it has a ledger.

    `sha256` (hex) is the hash of the file that a checkout writes.
    """

    KEYS = "path sha256 gen?"

    path: str
    sha256: str
    gen: int | None


@dataclass(frozen=True, slots=True)
class ReleaseReport(JsonObject):
    """What was released: `commit` and `trust_root` are full ids, `digest` (hex) covers everything.

    `key` names the key that signed it, None in a dry run.
    """

    KEYS = "tag commit trust_root digest files key?"

    tag: str
    commit: str
    trust_root: str
    digest: str
    files: tuple[SignedFile, ...]
    key: str | None = None
