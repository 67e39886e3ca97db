"""Payloads of FOLD chunks: mended where damaged, decrypted, decompressed.

The order is that of the file's making reversed: parity, then AES-256-GCM,
then zstd. Hash first: parity is used only where the hash fails, and counts
only if the hash holds after it.
Spec: `docs/spec/fold.md`, "Payloads".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from wtxtgit.containers import json_limits
from wtxtgit.containers.cursor import fail, quoted
from wtxtgit.containers.fold import integrity
from wtxtgit.containers.fold.integrity import Digests, Verdict
from wtxtgit.containers.fold.parity import parity_bytes, parity_len
from wtxtgit.containers.fold.read import UNCOMPRESSED, ZSTD, Chunk, read
from wtxtgit.containers.zstd_limits import Frame
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView, mapped, pieces
from wtxtgit.model.reading import ReadOptions

MAX_PASSES = 4
"""Times that chunks which overlap may hold all bytes of the file."""
JSON_CTYPE = b"JSON"
MAX_JSON_CHUNKS = 16 * 1024 * 1024
"""Bytes of all JSON chunks whose values are told."""
MAX_MENDED_BLOCKS = 10_000
"""Damaged blocks of all chunks together that are tried; each takes milliseconds."""
TAG_BYTES = 16
"""AES-GCM's tag, at the end of an encrypted payload and counted in comp_len."""
KEY_BYTES = 32

_NONCE = re.compile(r"[0-9A-Fa-f]{24}")


@dataclass(frozen=True, slots=True, eq=False)
class Mending:
    """What became of a damaged payload: `payload` is whole if `verdict` is intact.

    `patches` are the mended blocks and where in the payload they stand;
    `damaged` counts its damaged blocks, `given_up` those that could not be mended.
    """

    payload: ByteView
    patches: tuple[tuple[int, bytes], ...]
    damaged: int
    given_up: int
    digests: Digests
    verdict: Verdict


class Passes:
    """Counts the bytes of payloads that are gone through.

    Any number of entries in an index may point at the same large chunk.
    """

    def __init__(self, data: ByteView) -> None:
        self._left = MAX_PASSES * len(data)

    def take(self, chunk: Chunk) -> bool:
        """Whether a chunk's payload may be gone through as well."""
        self._left -= chunk.comp_len
        return self._left >= 0


def payload(data: ByteView, chunk: Chunk, options: ReadOptions) -> ByteView:
    """The decoded payload of a chunk of the file `data`.

    A damaged one is mended if it has parity that does it, else decoded as it
    stands. Raises FormatError, with kind "limit" for what is over
    `options.max_chunk`.
    """
    check_limits(chunk, options)
    held = stored(data, chunk, options)
    if chunk.flags == UNCOMPRESSED and not chunk.encrypted:
        return _of_length(held, chunk)
    decoded = bytearray()
    for block in content(held, chunk, options):
        decoded += block
    return memoryview(decoded).toreadonly()


def check_limits(chunk: Chunk, options: ReadOptions) -> None:
    """Raise FormatError (limit) for lengths over `options.max_chunk`."""
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


def stored(data: ByteView, chunk: Chunk, options: ReadOptions) -> ByteView:
    """The payload as it is stored, mended if it is damaged and its parity mends it."""
    whole = mended(data, chunk, options)
    return data[chunk.payload_start : chunk.payload_end] if whole is None else whole


def mended(data: ByteView, chunk: Chunk, options: ReadOptions) -> ByteView | None:
    """The stored payload where it is damaged and its parity mends it, else None."""
    held = data[chunk.payload_start : chunk.payload_end]
    if not usable_parity(chunk) or verdict(held, chunk, options).intact:
        return None
    mending = mend(data, chunk, options)
    return mending.payload if mending.verdict.intact else None


def verdict(held: ByteView, chunk: Chunk, options: ReadOptions) -> Verdict:
    """What the hashes of a chunk say of its stored payload."""
    return judged(Digests(held).finish(), chunk, options)


def judged(digests: Digests, chunk: Chunk, options: ReadOptions) -> Verdict:
    """What the hashes of a chunk say of a stored payload that has these digests."""
    wanted = integrity.parse_hash(chunk.entry.get("sha256"))
    return integrity.judge(digests, chunk.crc32c, wanted, options.integrity_key)


def usable_parity(chunk: Chunk) -> int:
    """n where the chunk has `rs(n)` parity of the length that its payload needs, else 0."""
    n = parity_bytes(chunk.ecc_algo)
    return n if n and 0 < chunk.ecc_len == parity_len(chunk.comp_len, n) else 0


def mend(data: ByteView, chunk: Chunk, options: ReadOptions, most: int | None = None) -> Mending:
    """Mend a payload from its parity, which has to be usable, and check it again.

    At most `most` damaged blocks are tried, MAX_DAMAGED unless it says otherwise.
    """
    from wtxtgit.containers.fold import reed_solomon

    result = reed_solomon.mend(
        data[chunk.payload_start : chunk.payload_end],
        data[chunk.payload_end : chunk.end],
        usable_parity(chunk),
        reed_solomon.MAX_DAMAGED if most is None else most,
    )
    digests = Digests(result.payload).finish()
    return Mending(
        result.payload,
        result.patches,
        result.damaged,
        result.given_up,
        digests,
        judged(digests, chunk, options),
    )


def content(
    held: ByteView,
    chunk: Chunk,
    options: ReadOptions,
    seen: Callable[[int], None] | None = None,
) -> Iterator[Buffer]:
    """The content of a stored payload, decoded, in pieces; `check_limits` goes before.

    `seen` is called with the number of stored bytes that the pieces so far are
    made of. Raises FormatError.
    """
    if chunk.flags not in (UNCOMPRESSED, ZSTD):
        fail(
            f"flags of chunk {quoted(chunk.name)} are {chunk.flags}, which are unknown",
            offset=chunk.offset + 4,
            field="flags",
        )
    if chunk.encrypted:
        held = _decrypt(held, chunk, options.decryption_key)
        seen = None
    if chunk.flags == UNCOMPRESSED:
        yield from pieces(_of_length(held, chunk))
        return
    frame = Frame(held, "comp_payload", offset=chunk.payload_start)
    length = 0
    try:
        for block in frame.content(chunk.uncomp_len):
            length += len(block)
            yield block
            if seen is not None:
                seen(frame.end)
    except FormatError as error:
        if error.kind == "limit":
            _wrong_length(chunk, "more")
        raise
    if length != chunk.uncomp_len:
        _wrong_length(chunk, str(length))
    if frame.end != len(held):
        fail(
            f"comp_payload of {quoted(chunk.name)} has {len(held) - frame.end} bytes "
            "after its zstd frame",
            offset=chunk.payload_start + frame.end,
            field="comp_payload",
        )


def _of_length(held: ByteView, chunk: Chunk) -> ByteView:
    if len(held) != chunk.uncomp_len:
        _wrong_length(chunk, str(len(held)))
    return held


def _wrong_length(chunk: Chunk, length: str) -> NoReturn:
    fail(
        f"uncomp_len of chunk {quoted(chunk.name)} is {chunk.uncomp_len}, its content has {length}",
        offset=chunk.offset + 8,
        field="uncomp_len",
    )


def _decrypt(held: ByteView, chunk: Chunk, key: bytes | None) -> ByteView:
    """What an encrypted payload was before, its tag checked."""
    name = quoted(chunk.name)
    if key is None:
        fail(f"chunk {name} is encrypted", offset=chunk.payload_start, field="encrypted")
    if len(key) != KEY_BYTES:
        fail(
            f"chunk {name} needs a key of {KEY_BYTES} bytes, not {len(key)}",
            offset=chunk.payload_start,
            field="encrypted",
        )
    nonce = chunk.entry.get("nonce_hex")
    if not isinstance(nonce, str) or _NONCE.fullmatch(nonce) is None:
        fail(f"nonce of chunk {name} is not 12 bytes", offset=chunk.offset, field="nonce_hex")

    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        plain = AESGCM(key).decrypt(bytes.fromhex(nonce), mapped(held), chunk.name.encode())
    except (InvalidTag, OverflowError, ValueError):
        # Too short for a tag, or longer than the library takes, is as bad as a wrong tag.
        fail(
            f"chunk {name} can't be decrypted: it was changed, or has another key",
            offset=chunk.payload_start,
            field="comp_payload",
        )
    return memoryview(plain)


def chunk_values(data: ByteView, options: ReadOptions) -> Iterator[tuple[str, object]]:
    """Names of a file's JSON chunks and their values, those that can be read."""
    left = MAX_JSON_CHUNKS
    try:
        chunks = read(data).chunks
    except FormatError:
        return
    for chunk in chunks:
        if chunk.ctype != JSON_CTYPE or max(chunk.comp_len, chunk.uncomp_len) > left:
            continue
        left -= chunk.uncomp_len
        try:
            yield chunk.name, json_limits.parse(payload(data, chunk, options), "chunk")
        except FormatError:
            # `verify` tells what is wrong with it.
            continue
