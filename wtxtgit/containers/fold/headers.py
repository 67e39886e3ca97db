"""Repairing chunk headers of a FOLD file from its index.

The index says everything that a chunk's own header says. If they differ, the payload shows which
one is right: it has to be intact, or mended by its parity, and decode as the index says. Spec:
`docs/spec/fold.md`, "Repair".
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import error as StructError

from wtxtgit.containers.budget import Budget, DecodingBudget
from wtxtgit.containers.fold import payloads
from wtxtgit.containers.fold.describe import FILE_CTYPES
from wtxtgit.containers.fold.payloads import Payloads
from wtxtgit.containers.fold.read import (
    CHUNK_HEADER,
    JSON_CTYPE,
    UNCOMPRESSED,
    ZSTD,
    ChunkReader,
    FoldChunk,
    parity_bytes,
    parity_len,
    read_index,
)
from wtxtgit.containers.zip_write import crc32_of
from wtxtgit.errors import FormatError
from wtxtgit.io.view import pieces

_KNOWN = FILE_CTYPES | {JSON_CTYPE}
CTYPE_LEN = 4
_LENGTHS = ("uncomp_len", "comp_len", "crc32c", "ecc_len")


def read_chunks(inside: Payloads) -> tuple[list[tuple[FoldChunk, bytes | None]], list[str]]:
    """Return the chunks of a file, each with its corrected header if the header is wrong.

    Also returns the names of chunks whose header is wrong and can't be corrected from the index.
    Raises FormatError if the index can't be read.
    """
    index_off, _, index = read_index(inside.data)
    chunks: list[tuple[FoldChunk, bytes | None]] = []
    lost: list[str] = []
    reader = ChunkReader(inside.data, index_off)
    decoding = DecodingBudget(len(inside.data), inside.options, "uncomp_len")
    entries: Sequence[object] = index["chunks"]
    for entry in entries:
        of_index = _of_index(entry, len(inside.data))
        try:
            own = reader.read(entry)
        except FormatError:
            own = None
        if own is not None and of_index is not None and _packed(own) == _packed(of_index):
            chunks.append((own, None))
        elif of_index is not None and _is_proved(inside, of_index, own, decoding):
            chunks.append((of_index, _packed(of_index)))
        else:
            lost.append(_name(entry))
    return chunks, lost


def _name(entry: object) -> str:
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else ""


def _of_index(entry: object, size: int) -> FoldChunk | None:
    """Return the chunk as the index describes it, None if the entry is invalid."""
    if not isinstance(entry, dict):
        return None
    ctype = entry.get("ctype")
    offset, flags, *lengths = (_integer(entry, key) for key in ("offset", "flags", *_LENGTHS))
    if not isinstance(ctype, str) or not ctype.isascii() or len(ctype) != CTYPE_LEN:
        return None
    uncomp_len, comp_len, crc32c, ecc_len = lengths
    is_encrypted = entry.get("encrypted") is True
    chunk = FoldChunk(
        _name(entry),
        ctype.encode(),
        flags,
        offset,
        comp_len,
        uncomp_len,
        crc32c,
        ecc_len,
        is_encrypted,
        entry,
        None,
    )
    try:
        _packed(chunk)
    except StructError:
        return None
    is_inside = 0 <= offset <= chunk.end <= size
    return chunk if is_inside and flags in (UNCOMPRESSED, ZSTD) else None


def _integer(entry: dict[str, object], key: str) -> int:
    """Return an integer of the index; if there is none, one that no header can hold."""
    value = entry.get(key)
    return value if type(value) is int else -1


def _packed(chunk: FoldChunk) -> bytes:
    lengths = (chunk.uncomp_len, chunk.comp_len, chunk.crc32c, chunk.ecc_len)
    return CHUNK_HEADER.pack(chunk.ctype, chunk.flags, *lengths)


def _is_proved(
    inside: Payloads, of_index: FoldChunk, own: FoldChunk | None, decoding: Budget
) -> bool:
    """Whether the payload is what the index says, so that the header must be damaged."""
    # Only the header and the index have the type.
    if own is not None and own.ctype in _KNOWN and of_index.ctype not in _KNOWN:
        return False
    n = parity_bytes(of_index.ecc_algo)
    if n is None or parity_len(of_index.comp_len, n) != of_index.ecc_len:
        return False
    try:
        payloads.check_limits(of_index, inside.options)
        if inside.condition(of_index) == "damaged":
            return False
        stored = payloads.stored(inside.data, of_index, inside.options)
        if of_index.crc32c not in (
            payloads.Digests(stored).finish().crc32c,
            crc32_of(pieces(stored)),
        ):
            return False
        if of_index.encrypted and inside.options.decryption_key is None:
            return True
        if of_index.flags == ZSTD:
            decoding.take(of_index.uncomp_len, of_index.offset)
        # This raises for content of another length.
        for _ in payloads.content(stored, of_index, inside.options):
            pass
    except FormatError:
        return False
    return True
