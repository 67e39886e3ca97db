"""What is known of the contents of blobs and files, kept so that no byte is read twice.

Two things are kept, in the common folder of the repository's worktrees:

- by a blob's id, what `filter.content.examine` found of it;
- by a file's size and BLAKE3, the id of the blob that clean makes of it, and
  the other way round.

Both are functions of content and of the program's version alone, so they hold
in every commit, worktree and branch. Nothing is kept of who is trusted, and no
verdict. `io.cache_file` says whose rows are believed, and what becomes of
damaged files. `git fsck` checks that an object still has the content of its
id. Without a secret nothing is kept, and everything is found anew.

No list of a text's arrays is kept: comparing two texts reads their lines,
which git has to inflate to give any of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any, Self

from wtxtgit.filter.content import ArtifactFacts
from wtxtgit.git.repository import STATE_FOLDER, Repository
from wtxtgit.io.cache_file import KeptRows
from wtxtgit.io.view import ByteView, mapped
from wtxtgit.model.array import Meta, Signature
from wtxtgit.trust.local_secret import local_secret

FILE_NAME = "facts.sqlite"
DIGEST_SIZE = 32

_OID = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PENDING = 512
"""Rows that are written at a time."""
_STEP = 16 * 1024 * 1024
"""Bytes that are hashed at a time: enough for all threads to share."""
_LEAST_STEP = 64 * 1024


def content_digest(data: ByteView, *, threads: int | None = None) -> bytes:
    """The BLAKE3 of a file's bytes, 32 bytes, on so many threads or all."""
    from blake3 import blake3

    hasher = blake3(max_threads=blake3.AUTO if threads is None else threads)
    for start in range(0, len(data), _STEP):
        hasher.update(mapped(data[start : start + _STEP]))
    return bytes(hasher.digest())


def file_digest(descriptor: int) -> tuple[bytes, int]:
    """The same of a file that is open, and how many bytes it had; raises OSError.

    The file may be larger than memory, and change while it is read.
    """
    from blake3 import blake3

    hasher = blake3(max_threads=blake3.AUTO)
    size = 0
    # No larger than the file: of many small files clearing it would take longer than hashing.
    length = min(_STEP, max(os.fstat(descriptor).st_size, _LEAST_STEP))
    buffer = memoryview(bytearray(length))
    while count := os.preadv(descriptor, [buffer], size):
        hasher.update(buffer[:count])
        size += count
    return bytes(hasher.digest()), size


class Known:
    """What is known in a repository; a context manager that threads may share.

    What is put is there for others at its end at the latest. Where nothing can
    be read or kept, nothing is known: no method raises because of it.
    """

    @classmethod
    def open(cls, repo: Repository, key_file: Path | None) -> Self:
        """What is known under the secret in `key_file`; nothing without one.

        Nothing is read or made before it is needed.
        """
        return cls(repo.common_dir / STATE_FOLDER / FILE_NAME, key_file)

    def __init__(self, file: Path, key_file: Path | None) -> None:
        self._file = file
        self._key_file = key_file
        self._rows: KeptRows | None = None
        self._pending: dict[bytes, bytes] = {}
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._flush()
            if self._rows is not None:
                self._rows.close()
                self._rows = None

    def facts(self, oids: Iterable[str]) -> dict[str, ArtifactFacts]:
        """What is known of these blobs."""
        names = {_of_blob(oid): oid for oid in oids}
        parsed = {names[name]: _parse(value) for name, value in self._get(names).items()}
        return {oid: facts for oid, facts in parsed.items() if facts is not None}

    def put_facts(self, facts: Mapping[str, ArtifactFacts]) -> None:
        """Keep what was found of blobs, by their ids."""
        self._put({_of_blob(oid): _format(item) for oid, item in facts.items()})

    def blob_of(self, digest: bytes, size: int) -> str | None:
        """The id of the blob that clean makes of a file; the repository need not have it."""
        name = _of_file(digest, size)
        found = self._get([name]).get(name)
        return found.decode("ascii") if found is not None and _OID.fullmatch(found) else None

    def put_blob(self, digest: bytes, size: int, oid: str, *, is_binary: bool = False) -> None:
        """Keep which blob clean makes of a file with this content.

        `is_binary` says that the content is no text: then no other binary has
        that blob, and `file_of` gives this one.
        """
        rows = {_of_file(digest, size): oid.encode("ascii")}
        if is_binary:
            rows[_file_of(oid)] = digest + b"%d" % size
        self._put(rows)

    def file_of(self, oid: str) -> tuple[bytes, int] | None:
        """The digest and size of the one file, but for texts, that clean makes a blob of."""
        name = _file_of(oid)
        found = self._get([name]).get(name)
        return None if found is None else (found[:DIGEST_SIZE], int(found[DIGEST_SIZE:]))

    def _get(self, names: Iterable[bytes]) -> dict[bytes, bytes]:
        wanted = list(names)
        with self._lock:
            fresh = {name: self._pending[name] for name in wanted if name in self._pending}
            rows = self._opened(make=False)
        if rows is None:
            return fresh
        return rows.get(name for name in wanted if name not in fresh) | fresh

    def _put(self, rows: Mapping[bytes, bytes]) -> None:
        if self._key_file is None:
            return
        with self._lock:
            self._pending |= rows
            if len(self._pending) >= _PENDING:
                self._flush()

    def _flush(self) -> None:
        rows = self._opened(make=True) if self._pending else None
        if rows is not None:
            rows.put(self._pending)
        self._pending = {}

    def _opened(self, *, make: bool) -> KeptRows | None:
        if self._rows is None and self._key_file is not None:
            secret = local_secret(self._key_file, make=make)
            if secret is not None:
                self._rows = KeptRows(self._file, secret)
        return self._rows


def _of_blob(oid: str) -> bytes:
    return b"facts of blob " + oid.encode("ascii")


def _of_file(digest: bytes, size: int) -> bytes:
    return b"blob of %d " % size + digest


def _file_of(oid: str) -> bytes:
    return b"file of " + oid.encode("ascii")


def _format(facts: ArtifactFacts) -> bytes:
    import json

    record = asdict(facts)
    for name in ("sha256_all", "opaque"):
        if record[name] is not None:
            record[name] = record[name].hex()
    if facts.signed is not None:
        message, signature = facts.signed
        record["signed"] = [message.hex(), signature.signature.hex(), signature.keyid]
    return json.dumps(record).encode()


def _parse(value: bytes) -> ArtifactFacts | None:
    """Facts of a row, None where another state of the program wrote it."""
    import json

    try:
        record: dict[str, Any] = json.loads(value)
        for name in ("sha256_all", "opaque"):
            if record[name] is not None:
                record[name] = bytes.fromhex(record[name])
        if record["signed"] is not None:
            message, signature, keyid = record["signed"]
            signed = Signature(bytes.fromhex(signature), keyid)
            record["signed"] = bytes.fromhex(message), signed
        if record["meta"] is not None:
            record["meta"] = Meta(**record["meta"])
        return ArtifactFacts(**record)
    except (ValueError, TypeError, KeyError):
        return None
