"""Sealing: a generation delivered to a branch gets a ledger record, signed if there is a key.

`docs/stream.md`, section "A branch that can be audited". A record's signature covers the path on
the branch and the record before it, so it is made when the generation is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from wtxtgit.checkpoint.wsum import ENDING
from wtxtgit.filter.content import opaque_hash, sealed_together
from wtxtgit.io.view import ByteView
from wtxtgit.model.array import Meta
from wtxtgit.remotes.target import (
    FileSeal,
    FileSeals,
    LedgerTarget,
    Outgoing,
    StoredFile,
    Target,
)
from wtxtgit.text.grammar import MAGIC, parse_meta
from wtxtgit.trust.signing import SigningKey

PLACE = "snapshot"
"""The start of the paths at which one generation follows the other."""
_GENERATION = re.compile(r"gen-([0-9]{6,})(.*)")
_DELTA = ".from-"
_SCHEMA = "opaque/v1"
_HEAD = 4096
"""The `meta` line of a text of ours ends within this many bytes."""


def sealing(target: Target, key: SigningKey | None, threads: int | None = None) -> Target:
    """Return a target that seals what it gets, if it is one that keeps ledgers.

    Else the target itself.
    """
    return SealingTarget(target, key, threads) if isinstance(target, LedgerTarget) else target


@dataclass(frozen=True)
class SealingTarget:
    """A target that keeps ledgers, with the key that signs its records."""

    target: LedgerTarget
    key: SigningKey | None
    threads: int | None = None

    @property
    def label(self) -> str:
        return self.target.label

    def put(
        self,
        files: Sequence[Outgoing],
        *,
        about: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> Sequence[str]:
        """Deliver a generation's files sealed; others, and replacements, as they are."""
        seals = {} if replace else self._seals(files, (about or {}).get("ts"))
        if not seals:
            return self.target.put(files, about=about, replace=replace)
        file_seals = FileSeals(seals, self.key, partial(opaque_hash, threads=self.threads))
        return self.target.put_sealed(files, file_seals, about=about or {})

    def get(self, name: str, sha256: str | None = None) -> ByteView:
        return self.target.get(name, sha256)

    def list(self, prefix: str = "") -> Sequence[StoredFile]:
        return self.target.list(prefix)

    def has(self, name: str, sha256: str) -> bool:
        return self.target.has(name, sha256)

    def _seals(self, files: Sequence[Outgoing], ts: str | None) -> dict[str, FileSeal]:
        contents = {file.name: file.content for file in files}
        seals = {}
        for name, content in contents.items():
            match = _GENERATION.fullmatch(name)
            if match is None or ts is None:
                return {}
            if name.removesuffix(ENDING) in contents and name.endswith(ENDING):
                continue  # its text is sealed with it
            sha256_all = opaque_hash(content, threads=self.threads)
            if (wsum := contents.get(name + ENDING)) is not None:
                sha256_all = sealed_together(sha256_all, bytes(wsum))
            # A delta is not the next content of a path.
            place = name if _DELTA in match[2] else PLACE + match[2]
            seals[name] = FileSeal(place, sha256_all, _meta(content, int(match[1]), ts))
        return seals


def _meta(content: ByteView, gen: int, ts: str) -> Meta:
    """Return what a record states about a file: for a text its own meta, as in `wtxtgit seal`."""
    head = bytes(content[:_HEAD])
    parsed = parse_meta(head, head.find(b"\n") + 1) if head.startswith(MAGIC) else None
    return Meta(_SCHEMA, gen, ts) if parsed is None else parsed[0]
