"""What a release signs: the contract of `release --json`."""

from __future__ import annotations

from dataclasses import dataclass

from wtxtgit.model.plain import JsonObject


@dataclass(frozen=True, slots=True)
class SignedFile(JsonObject):
    """A file of a release by its path; `gen` is its last sealed generation, where it has a ledger.

    `sha256` (hex) is that of what a checkout writes.
    """

    KEYS = "path sha256 gen?"

    path: str
    sha256: str
    gen: int | None


@dataclass(frozen=True, slots=True)
class ReleaseReport(JsonObject):
    """What was released: `commit` and `trust_root` are full ids, `digest` (hex) is that of all.

    `key` names what signed it, None in a dry run.
    """

    KEYS = "tag commit trust_root digest files key?"

    tag: str
    commit: str
    trust_root: str
    digest: str
    files: tuple[SignedFile, ...]
    key: str | None = None
