"""What a migration of a history would be about, and what it did: the contract of `migrate --json`.

Sizes are in bytes, commits and blobs by their object ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wtxtgit.model.plain import JsonObject


@dataclass(frozen=True, slots=True)
class PatternFiles(JsonObject):
    """The files of a history that match a pattern, all versions of them.

    `versions` are different contents, `size` all their bytes, `formats` what they are, most of
    them first. `compressed` versions pack their tensors themselves, so that neither git nor a
    store finds what they share. `pointers` are those of git-lfs, whose objects' sizes count.
    `text` is what the texts of all would have, `over_limit` how many of them forges would refuse,
    `detached` what their detached texts would have, besides which the data are in the store.
    """

    pattern: str
    files: int
    versions: int
    size: int
    formats: tuple[str, ...]
    gains: bool
    compressed: int
    pointers: int
    over_limit: int
    text: int
    detached: int


@dataclass(frozen=True, slots=True)
class HistoryFiles(JsonObject):
    """What `migrate info` found; `limit` is the most that forges take as one blob."""

    commits: int
    limit: int
    patterns: tuple[PatternFiles, ...]


@dataclass(frozen=True, slots=True)
class VersionLeft(JsonObject):
    """A blob that stays as it is, with a path that it has."""

    path: bytes
    oid: str


@dataclass(frozen=True, slots=True)
class LackingVersion(JsonObject):
    """An object that a pointer is to, and that can't be had."""

    path: bytes
    object: str
    size: int


@dataclass(frozen=True, slots=True)
class MigratedBlobs(JsonObject):
    """Blobs that were made of others: how many, and the bytes of all before and after.

    Those that are `left` are texts that stand for no file, or that were texts before.
    """

    made: int = 0
    before: int = 0
    after: int = 0
    left: tuple[VersionLeft, ...] = ()


@dataclass(frozen=True, slots=True)
class MovedRef(JsonObject):
    """A ref, and what it named before and names now."""

    ref: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Migrated(JsonObject):
    """What a migration did, or would do.

    Of `commits` so many were `rewritten`; `signatures` of commits and tags were dropped. The `map`
    has a line for each new commit and tag: the id before, and the one now. `backup` is where the
    refs of before are. Files that are `passed_over` match, and other lines of gitattributes take
    them out; `sealed` ones have a ledger, `unsealed` ones need one where there are signers.
    `others` are refs that still lead to old commits, `stashes` counts the entries of the stash that
    moved along. `trust_root` is the commit from which on an audit can begin, None where nothing was
    sealed. Where objects are `lacking` `why_lacking` is why one of them did not come.
    """

    commits: int
    rewritten: int
    files: tuple[bytes, ...]
    blobs: MigratedBlobs
    signatures: int = 0
    refs: tuple[MovedRef, ...] = ()
    backup: str | None = None
    map: Path | None = None
    passed_over: tuple[bytes, ...] = ()
    others: tuple[str, ...] = ()
    stashes: int = 0
    sealed: tuple[bytes, ...] = ()
    unsealed: tuple[bytes, ...] = ()
    trust_root: str | None = None
    unwritten: tuple[bytes, ...] = ()
    lacking: tuple[LackingVersion, ...] = ()
    why_lacking: str | None = None
    dry_run: bool = False
