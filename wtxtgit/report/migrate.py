"""What a migration of a history would involve, and what it did: the contract of `migrate --json`.

Sizes are in bytes; commits and blobs are given by their object ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wtxtgit.model.plain import JsonObject


@dataclass(frozen=True, slots=True)
class PatternFiles(JsonObject):
    """The files of a history that match a pattern, in all their versions.

    `versions` counts different contents, `size` is the sum of their bytes, `formats` lists their
    formats, the most frequent first. `compressed` versions compress their tensors themselves, so
    that neither git nor a store finds what they share. `pointers` are those of git-lfs, counted
    with the sizes of their objects. `text` is the size that the texts of all would have,
    `over_limit` how many of these forges would refuse, `detached` the size that their detached
    texts would have, in addition to the data in the store.
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
    """What `migrate info` found; `limit` is the largest blob that forges accept."""

    commits: int
    limit: int
    patterns: tuple[PatternFiles, ...]


@dataclass(frozen=True, slots=True)
class VersionLeft(JsonObject):
    """A blob that stays as it is, with one of its paths."""

    path: bytes
    oid: str


@dataclass(frozen=True, slots=True)
class LackingVersion(JsonObject):
    """The object of a git-lfs pointer that can't be obtained."""

    path: bytes
    object: str
    size: int


@dataclass(frozen=True, slots=True)
class MigratedBlobs(JsonObject):
    """Blobs that were converted: how many, and the sum of their bytes before and after.

    `left` ones stay as they are: texts that stand for no file, or that were texts before.
    """

    made: int = 0
    before: int = 0
    after: int = 0
    left: tuple[VersionLeft, ...] = ()


@dataclass(frozen=True, slots=True)
class MovedRef(JsonObject):
    """A ref, and the object that it named before and names now."""

    ref: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Migrated(JsonObject):
    """What a migration did, or would do.

    `rewritten` of `commits` were rewritten; `signatures` of commits and tags were dropped. The
    `map` has a line for each new commit and tag: the id before, and the id now. `backup` is where
    the former refs are kept. Files that are `passed_over` match, but other lines of gitattributes
    exclude them. `sealed` files have a ledger, `unsealed` ones need one if there are signers.
    `others` are refs that still lead to old commits, `stashes` counts the stash entries that moved
    along. `trust_root` is the commit from which an audit can begin, None if nothing was sealed. If
    objects are `lacking`, `why_lacking` is why one of them could not be obtained.
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
