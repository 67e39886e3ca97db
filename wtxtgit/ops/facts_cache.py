"""Facts about blobs, kept between runs in the repository's common folder.

They are what `artifact.examine` found of a blob, by the blob's id and the
version of wtxtgit: never whether anything is trusted. A cache that can't be
read or written is as none; whoever can write to the git folder can write
anything there, so what has to be certain is found without it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Self

from wtxtgit import __version__
from wtxtgit.git.repository import Repository
from wtxtgit.model import Meta
from wtxtgit.ops.artifact import ArtifactFacts
from wtxtgit.text.write import HASH_SIZE

FILE_NAME = "facts.sqlite"
_TABLE = (
    "CREATE TABLE IF NOT EXISTS facts "
    "(oid TEXT, version TEXT, facts TEXT, PRIMARY KEY (oid, version)) WITHOUT ROWID"
)
_SECONDS = 5.0
"""How long another process may hold the file."""


class FactsCache:
    """The cache of a repository; a context manager."""

    def __init__(self, repo: Repository) -> None:
        self._file = repo.state_dir() / FILE_NAME
        self._db: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        with suppress(sqlite3.Error, OSError):
            self._db = sqlite3.connect(self._file, timeout=_SECONDS)
            self._db.execute(_TABLE)
        return self

    def __exit__(self, *_: object) -> None:
        if self._db is not None:
            self._db.close()

    def get(self, oids: Iterable[str]) -> dict[str, ArtifactFacts]:
        """What is known of these blobs."""
        found: dict[str, ArtifactFacts] = {}
        if self._db is None:
            return found
        query = "SELECT facts FROM facts WHERE oid = ? AND version = ?"
        with suppress(sqlite3.Error):
            for oid in oids:
                row = self._db.execute(query, (oid, __version__)).fetchone()
                facts = None if row is None else _parse(row[0])
                if facts is not None:
                    found[oid] = facts
        return found

    def put(self, facts: Mapping[str, ArtifactFacts]) -> None:
        """Keep what was found; what was kept by other versions goes."""
        if self._db is None:
            return
        rows = [(oid, __version__, _format(item)) for oid, item in facts.items()]
        with suppress(sqlite3.Error), self._db:
            self._db.execute("DELETE FROM facts WHERE version != ?", (__version__,))
            self._db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", rows)


def _format(facts: ArtifactFacts) -> str:
    record = asdict(facts)
    if facts.sha256_all is not None:
        record["sha256_all"] = facts.sha256_all.hex()
    return json.dumps(record)


def _parse(text: object) -> ArtifactFacts | None:
    """Facts of a row, None where it is not as `_format` writes them."""
    try:
        record: dict[str, Any] = json.loads(text)  # type: ignore[arg-type]
        if record["sha256_all"] is not None:
            record["sha256_all"] = bytes.fromhex(record["sha256_all"])
        if record["meta"] is not None:
            record["meta"] = Meta(**record["meta"])
        facts = ArtifactFacts(**record)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return facts if _is_proper(facts) else None


def _is_proper(facts: ArtifactFacts) -> bool:
    meta = facts.meta
    words = [facts.schema, facts.fault or ""]
    if meta is not None:
        words += [meta.schema, meta.ts, meta.build, meta.host, meta.cuda]
    return (
        type(facts.size) is int
        and (meta is None or type(meta.gen) is int)
        and all(type(flag) is bool for flag in (facts.is_text, facts.is_canonical))
        and all(type(word) is str for word in words)
        and (facts.sha256_all is None) == (facts.fault is not None)
        and (facts.sha256_all is None or len(facts.sha256_all) == HASH_SIZE)
    )
