"""Payloads of FOLD chunks: hashed, mended if damaged, decrypted, decompressed.

The order is the reverse of that in which the file was made: parity, then AES-256-GCM, then zstd.
Hash first: parity is used only if the hash fails, and the result counts only if the hash then
holds. A hash is written in one of three forms: `<hex>` and `sha256:<hex>` are the SHA-256,
`hmac-sha256:<hex>` is the HMAC-SHA256 of the SHA-256's hex digits. Spec: `docs/spec/fold.md`,
"Payloads" and "Hashes".
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, NoReturn

from wtxtgit.containers.budget import Budget
from wtxtgit.containers.cursor import fail, quoted
from wtxtgit.containers.fold.read import UNCOMPRESSED, ZSTD, FoldChunk, parity_bytes, parity_len
from wtxtgit.containers.zstd_limits import Frame
from wtxtgit.errors import FormatError
from wtxtgit.io.progress import Progress
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import Buffer, ByteView, counted, mapped, pieces
from wtxtgit.model.checksum import crc32c
from wtxtgit.model.tensor import ReadOptions

if TYPE_CHECKING:
    from wtxtgit.containers.fold.reed_solomon import Mended

# Chunks may hold this many times the bytes of the file: any number of entries may refer to one
# large chunk, each at the cost of a line in the index.
MAX_PASSES = 4
# How many damaged blocks of all chunks are tried: each takes milliseconds, and a file can be
# damaged throughout.
MAX_MENDED_BLOCKS = 10_000
# Size of AES-GCM's tag, which ends an encrypted payload and is included in comp_len.
TAG_BYTES = 16
KEY_BYTES = 32
NONCE_BYTES = 12
NONCE_KEY = "nonce_hex"
_NONCE_DOMAIN = b"FOLD chunk nonce\0"

_NONCE = re.compile(r"[0-9A-Fa-f]{24}")


def payload(data: ByteView, chunk: FoldChunk, options: ReadOptions) -> ByteView:
    """Return the decoded payload of a chunk of the file `data`.

    A damaged one is mended if its parity can do it, else decoded as it is. Raises FormatError,
    with kind "limit" for content over `options.max_chunk`.
    """
    check_limits(chunk, options)
    whole = stored(data, chunk, options)
    if chunk.flags == UNCOMPRESSED and not chunk.encrypted:
        return _of_length(whole, chunk)
    return spooled(content(whole, chunk, options))


def check_limits(chunk: FoldChunk, options: ReadOptions) -> None:
    """Raise FormatError (limit) for lengths over `options.max_chunk`."""
    # Checked before a byte is allocated: a header can claim any length ("Limits").
    for field, length, at in (
        ("comp_len", chunk.comp_len, 16),
        ("uncomp_len", chunk.uncomp_len, 8),
    ):
        if length > options.max_chunk:
            raise FormatError(
                f"{field} {length} of chunk {quoted(chunk.name)} is over {options.max_chunk}",
                kind="limit",
                offset=chunk.offset + at,
                field=field,
            )


def stored(data: ByteView, chunk: FoldChunk, options: ReadOptions) -> ByteView:
    """Return the stored payload; for a damaged one what its parity makes of it, if that holds."""
    whole = mended(data, chunk, options)
    return chunk.payload(data) if whole is None else whole


def mended(data: ByteView, chunk: FoldChunk, options: ReadOptions) -> ByteView | None:
    """Return a damaged payload as its parity mends it; None if it is intact, or can't be mended."""
    # Hash first: the parity of an intact payload is never decoded.
    if not usable_parity(chunk) or is_whole(chunk.payload(data), chunk, options):
        return None
    whole, _, verdict_after = mend(data, chunk, options)
    return whole.payload if verdict_after.intact else None


def is_whole(stored: ByteView, chunk: FoldChunk, options: ReadOptions) -> bool:
    """Whether a stored payload matches the hashes of its chunk."""
    return judged(Digests(stored, options.progress).finish(), chunk, options).intact


def judged(digests: Digests, chunk: FoldChunk, options: ReadOptions) -> HashVerdict:
    """Compare the digests of a stored payload with the hashes of its chunk."""
    stated = parse_hash(chunk.entry.get("sha256"))
    holds = None if stated is None else stated.holds(digests.sha256, options.integrity_key)
    return HashVerdict(digests.crc32c == chunk.crc32c, holds)


def usable_parity(chunk: FoldChunk) -> int:
    """Return n if the chunk has `rs(n)` parity of the length that its payload needs, else 0."""
    n = parity_bytes(chunk.ecc_algo)
    return n if n and 0 < chunk.ecc_len == parity_len(chunk.comp_len, n) else 0


def mend(
    data: ByteView, chunk: FoldChunk, options: ReadOptions, most: int | None = None
) -> tuple[Mended, Digests, HashVerdict]:
    """Mend a payload from its parity, which has to be usable, and check it again.

    At most `most` damaged blocks are tried, MAX_DAMAGED by default. The payload is whole if the
    verdict is intact.
    """
    from wtxtgit.containers.fold import reed_solomon  # it needs numpy

    most = reed_solomon.MAX_DAMAGED if most is None else most
    parity = data[chunk.payload_end : chunk.end]
    mended = reed_solomon.mend(chunk.payload(data), parity, usable_parity(chunk), most)
    digests = Digests(mended.payload).finish()
    return mended, digests, judged(digests, chunk, options)


def content(
    payload: ByteView,
    chunk: FoldChunk,
    options: ReadOptions,
    decoded_up_to: Progress | None = None,
) -> Iterator[Buffer]:
    """Yield the decoded content of a stored payload in pieces; call `check_limits` before.

    `decoded_up_to` is called with the number of stored bytes from which the pieces so far were
    made. Raises FormatError.
    """
    if chunk.flags not in (UNCOMPRESSED, ZSTD):
        fail(
            f"flags of chunk {quoted(chunk.name)} are {chunk.flags}, of which some are unknown",
            offset=chunk.offset + 4,
            field="flags",
        )
    if chunk.encrypted:
        payload = _decrypt(payload, chunk, options.decryption_key)
        # Decrypted bytes differ from the stored ones, which are the ones that are hashed.
        decoded_up_to = None
    if chunk.flags == UNCOMPRESSED:
        yield from pieces(_of_length(payload, chunk))
        return
    frame = Frame(payload, "comp_payload", offset=chunk.payload_start)
    for block in frame.exactly(chunk.uncomp_len, partial(_wrong_length, chunk)):
        yield block
        if decoded_up_to is not None:
            decoded_up_to(frame.end)
    # A frame must be the whole payload ("Payloads").
    if frame.end != len(payload):
        fail(
            f"comp_payload of {quoted(chunk.name)} has {len(payload) - frame.end} bytes "
            "after its zstd frame",
            offset=chunk.payload_start + frame.end,
            field="comp_payload",
        )


def _of_length(payload: ByteView, chunk: FoldChunk) -> ByteView:
    if len(payload) != chunk.uncomp_len:
        _wrong_length(chunk, str(len(payload)))
    return payload


def _wrong_length(chunk: FoldChunk, length: str) -> NoReturn:
    fail(
        f"uncomp_len of chunk {quoted(chunk.name)} is {chunk.uncomp_len}, but its content has "
        f"{length} bytes",
        offset=chunk.offset + 8,
        field="uncomp_len",
    )


def _decrypt(payload: ByteView, chunk: FoldChunk, key: bytes | None) -> ByteView:
    """Decrypt an encrypted payload after checking its tag."""
    name = quoted(chunk.name)
    if key is None:
        fail(f"chunk {name} is encrypted", offset=chunk.payload_start, field="encrypted")
    if len(key) != KEY_BYTES:
        fail(
            f"the key for chunk {name} has {len(key)} bytes, not {KEY_BYTES}",
            offset=chunk.payload_start,
            field="encrypted",
        )
    nonce = chunk.entry.get(NONCE_KEY)
    if not isinstance(nonce, str) or _NONCE.fullmatch(nonce) is None:
        fail(f"nonce of chunk {name} is not 12 bytes", offset=chunk.offset, field="nonce_hex")

    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        plain = AESGCM(key).decrypt(bytes.fromhex(nonce), mapped(payload), chunk.name.encode())
    except (InvalidTag, OverflowError, ValueError):
        # Too short for a tag, or too long for the library: treated like a wrong tag.
        fail(
            f"chunk {name} can't be decrypted: the key is wrong or the chunk was changed",
            offset=chunk.payload_start,
            field="comp_payload",
        )
    return memoryview(plain)


def encrypted(content: bytes, name: str, key: bytes) -> tuple[bytes, bytes]:
    """Return nonce and stored payload of a chunk with this name and content, compressed or not.

    The nonce is derived from key, name and content: the same file gives the same bytes, and no
    other content has the same nonce.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    aad = name.encode()
    what = _NONCE_DOMAIN + hashlib.sha256(aad).digest() + hashlib.sha256(content).digest()
    nonce = hmac.digest(key, what, "sha256")[:NONCE_BYTES]
    return nonce, AESGCM(key).encrypt(nonce, content, aad)


SHA256_PREFIX = "sha256:"
HMAC_PREFIX = "hmac-sha256:"
MANIFEST_HASH = "manifest_hash"
CHUNK_HASHES = "chunk_hashes"
HEX_DIGITS = 64
LEAF = b"L"
NODE = b"N"
MERKLE_BYTES = 32
# All hashes process this many bytes before the next ones: so many stay in the processor's cache.
BLOCK = 2**20

_HASH = re.compile(rf"({SHA256_PREFIX}|{HMAC_PREFIX}|)([0-9a-f]{{{HEX_DIGITS}}})")


@dataclass(frozen=True, slots=True)
class Hash:
    """A hash as written: the prefix that names its form, and 64 hex digits."""

    prefix: str
    hexdigest: str

    def __str__(self) -> str:
        return self.prefix + self.hexdigest

    @property
    def needs_key(self) -> bool:
        return self.prefix == HMAC_PREFIX

    @property
    def kind(self) -> str:
        """The kind of error if it does not hold."""
        return "hmac" if self.needs_key else "sha256"

    def holds(self, sha256: str, key: bytes | None) -> bool | None:
        """Whether it is the hash of data with this SHA-256 (hex); None without its key."""
        if self.needs_key and key is None:
            return None
        # Compared in constant time: the key is secret.
        return hmac.compare_digest(str(self), str(make_hash(self.prefix, sha256, key)))


def parse_hash(value: object) -> Hash | None:
    """Parse a hash in one of the three forms, None if it is not one."""
    match = _HASH.fullmatch(value) if isinstance(value, str) else None
    return None if match is None else Hash(match[1], match[2])


def make_hash(prefix: str, sha256: str, key: bytes | None) -> Hash:
    """Return the hash of data with SHA-256 `sha256` (hex); the HMAC form needs a key."""
    if prefix != HMAC_PREFIX:
        return Hash(prefix, sha256)
    return Hash(prefix, hmac.new(key or b"", sha256.encode(), hashlib.sha256).hexdigest())


class Digests:
    """CRC-32C and SHA-256 of a payload as stored; `progress` gets counts of its bytes."""

    def __init__(self, payload: ByteView, progress: Progress | None = None) -> None:
        self._payload = payload
        self._progress = progress
        self._sha256 = hashlib.sha256()
        self._done = 0
        self.crc32c = 0

    def update(self, end: int) -> None:
        """Process the payload's bytes up to `end`."""
        for block in counted(pieces(self._payload[self._done : end], BLOCK), self._progress):
            self.crc32c = crc32c(block, self.crc32c)
            self._sha256.update(block)
        self._done = max(self._done, min(end, len(self._payload)))

    def finish(self) -> Digests:
        """Process the remaining bytes."""
        self.update(len(self._payload))
        return self

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()


@dataclass(frozen=True, slots=True)
class HashVerdict:
    """The result of comparing a payload's hashes; `hash_holds` is None if it can't be checked."""

    crc_holds: bool
    hash_holds: bool | None

    @property
    def intact(self) -> bool:
        # The hash decides if it can be checked: old writers stored another CRC ("Checks").
        return self.crc_holds if self.hash_holds is None else self.hash_holds


def manifest_sha256(metadata: dict[str, object]) -> str:
    """Return the SHA-256 (hex) of metadata without its `manifest_hash`."""
    hashed = {name: value for name, value in metadata.items() if name != MANIFEST_HASH}
    # Escaped and sorted as by the original writer ("Hashes").
    text = json.dumps(hashed, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def merkle_root(chunks: Iterable[tuple[object, object, object]]) -> str | None:
    """Return the root (hex) over the name, offset and sha256 of each chunk, None without chunks."""
    level = [
        _blake2b(
            LEAF,
            # No name that was read has a lone surrogate, which UTF-8 can't encode.
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
    # The last node of an odd row is its own sibling ("Hashes").
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


Condition = Literal["whole", "mended", "damaged"]
"""Whether a payload matches its hash, matches it once its parity has mended it, or does not."""


class Payloads:
    """The payloads of one file, hashed and mended within bounds on their total.

    Any number of entries in an index may refer to the same large chunk.
    """

    def __init__(self, data: ByteView, options: ReadOptions) -> None:
        self.data = data
        self.options = options
        message = "chunks overlap too much to be read"
        self.passes = Budget(MAX_PASSES * len(data), message, "offset")
        self._mending_left = MAX_MENDED_BLOCKS

    def mend(self, chunk: FoldChunk) -> tuple[Mended, Digests, HashVerdict]:
        """Mend a chunk as `mend` does, counting the blocks that are tried."""
        mending = mend(self.data, chunk, self.options, self._mending_left)
        self._mending_left = max(self._mending_left - mending[0].damaged, 0)
        return mending

    def condition(self, chunk: FoldChunk) -> Condition:
        """Return the condition of a chunk; raises FormatError (limit) for too much overlap."""
        # Parity counts too: it can be many times as long as its payload, and overlap.
        self.passes.take(chunk.end - chunk.offset, chunk.offset)
        if is_whole(chunk.payload(self.data), chunk, self.options):
            return "whole"
        if not usable_parity(chunk):
            return "damaged"
        return "mended" if self.mend(chunk)[2].intact else "damaged"
