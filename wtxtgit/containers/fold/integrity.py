"""Hashes of FOLD files: of stored bytes, of the metadata, of the list of chunks.

A hash is written in one of three forms: `<hex>` and `sha256:<hex>` are the
SHA-256, `hmac-sha256:<hex>` is the HMAC-SHA256 of the SHA-256's hex digits.
Spec: `docs/spec/fold.md`, "Hashes".
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from wtxtgit.io.view import ByteView, pieces
from wtxtgit.model.checksum import crc32c

SHA256_PREFIX = "sha256:"
HMAC_PREFIX = "hmac-sha256:"
MANIFEST_HASH = "manifest_hash"
CHUNK_HASHES = "chunk_hashes"
LEAF = b"L"
NODE = b"N"
MERKLE_BYTES = 32
BLOCK = 2**20
"""Bytes that all hashes see before the next ones are touched."""

_HASH = re.compile(rf"({SHA256_PREFIX}|{HMAC_PREFIX}|)([0-9a-f]{{64}})")


@dataclass(frozen=True, slots=True)
class Hash:
    """A hash as it is written: the prefix that names its form, and 64 hex digits."""

    prefix: str
    hexdigest: str

    def __str__(self) -> str:
        return self.prefix + self.hexdigest

    @property
    def needs_key(self) -> bool:
        return self.prefix == HMAC_PREFIX

    @property
    def kind(self) -> str:
        """The kind of error where it does not hold."""
        return "hmac" if self.needs_key else "sha256"

    def holds(self, sha256: str, key: bytes | None) -> bool | None:
        """Whether it is the hash of what has that SHA-256 (hex), None without its key."""
        if self.needs_key and key is None:
            return None
        return hmac.compare_digest(str(self), str(make_hash(self.prefix, sha256, key)))


def parse_hash(value: object) -> Hash | None:
    """A hash in one of the three forms, None if it is none."""
    match = _HASH.fullmatch(value) if isinstance(value, str) else None
    return None if match is None else Hash(match[1], match[2])


def make_hash(prefix: str, sha256: str, key: bytes | None) -> Hash:
    """The hash of what has the SHA-256 `sha256` (hex); the HMAC's form needs a key."""
    if prefix != HMAC_PREFIX:
        return Hash(prefix, sha256)
    return Hash(prefix, hmac.new(key or b"", sha256.encode(), hashlib.sha256).hexdigest())


class Digests:
    """CRC-32C and SHA-256 of a payload as it is stored, and its zlib CRC-32 if asked for."""

    def __init__(self, payload: ByteView) -> None:
        self._payload = payload
        self._sha256 = hashlib.sha256()
        self._done = 0
        self.crc32c = 0

    def update(self, end: int) -> None:
        """Take in the payload's bytes up to `end`."""
        for block in pieces(self._payload[self._done : end], BLOCK):
            self.crc32c = crc32c(block, self.crc32c)
            self._sha256.update(block)
        self._done = max(self._done, min(end, len(self._payload)))

    def finish(self) -> Digests:
        """Take in all that is left."""
        self.update(len(self._payload))
        return self

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a payload's hashes say; `hash_holds` is None where it can't be checked."""

    crc_holds: bool
    hash_holds: bool | None

    @property
    def intact(self) -> bool:
        return self.crc_holds if self.hash_holds is None else self.hash_holds


def judge(digests: Digests, crc32c: int, stored: Hash | None, key: bytes | None) -> Verdict:
    """Compare a payload's digests with those in its header and in the index."""
    holds = None if stored is None else stored.holds(digests.sha256, key)
    return Verdict(digests.crc32c == crc32c, holds)


def manifest_sha256(metadata: dict[str, object]) -> str:
    """The SHA-256 (hex) of metadata without its `manifest_hash`."""
    hashed = {name: value for name, value in metadata.items() if name != MANIFEST_HASH}
    text = json.dumps(hashed, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def merkle_root(chunks: Iterable[tuple[object, object, object]]) -> str | None:
    """The root (hex) over the name, offset and sha256 of each chunk, None without chunks."""
    level = [
        _blake2b(
            LEAF,
            # A lone surrogate, which no UTF-8 has, is in no name that was read.
            json.dumps(
                {"name": name, "offset": offset, "sha256": sha256},
                ensure_ascii=False,
                separators=(",", ":"),
            ).encode(errors="surrogatepass"),
        )
        for name, offset, sha256 in chunks
    ]
    if not level:
        return None
    while len(level) > 1:
        if len(level) % 2:
            level.append(level[-1])
        level = [
            _blake2b(NODE, left + right)
            for left, right in zip(level[::2], level[1::2], strict=True)
        ]
    return level[0].hex()


def _blake2b(domain: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(domain + content, digest_size=MERKLE_BYTES).digest()
