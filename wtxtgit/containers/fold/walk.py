"""FOLD files that were never finalized: their chunks stand back to back.

A writer that dies before it writes the index leaves index_off and index_len
0. Names, hashes and encryption stood in the index alone; types, lengths and
crc32c are in the chunk headers.
Spec: `docs/spec/fold.md`, "Files that were not finalized".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from wtxtgit.containers.cursor import Cursor, unpack_at
from wtxtgit.containers.fold import payloads
from wtxtgit.containers.fold.description import FILE_CTYPES
from wtxtgit.containers.fold.read import CHUNK_HEADER, HEADER, UNCOMPRESSED, ZSTD, Chunk
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.io.view import ByteView, pieces
from wtxtgit.model.checksum import crc32c
from wtxtgit.model.reading import Description, Nested, ReadOptions

NAME = "chunk"
"""What nameless chunks are called, with their number after it."""
FIRST_PRINTED, LAST_PRINTED = 0x20, 0x7E


@dataclass(frozen=True, slots=True, eq=False)
class WalkedChunk:
    """A chunk that was found; `crc_holds` says whether its payload has its crc32c."""

    chunk: Chunk
    crc_holds: bool

    def as_dict(self) -> dict[str, object]:
        chunk = self.chunk
        return {
            "name": chunk.name,
            "ctype": chunk.ctype_text,
            "flags": chunk.flags,
            "offset": chunk.offset,
            "comp_len": chunk.comp_len,
            "uncomp_len": chunk.uncomp_len,
            "ecc_len": chunk.ecc_len,
            "crc32c": "holds" if self.crc_holds else "differs",
        }


def is_unfinalized(data: ByteView) -> bool:
    """Whether a file with the format's magic has no index yet."""
    if len(data) < HEADER.size:
        return False
    _magic, _header_len, index_off, index_len = unpack_at(HEADER, data, 0)
    return (index_off, index_len) == (0, 0)


def walk(data: ByteView) -> list[WalkedChunk]:
    """The whole chunks of a file from its header on, up to what is no chunk.

    Of a chunk whose writer died in it nothing is told. Raises FormatError
    where not even the file header is there.
    """
    pos = Cursor(data).skip(HEADER.size, "file header") + HEADER.size
    found: list[WalkedChunk] = []
    while pos + CHUNK_HEADER.size <= len(data) and len(found) < MAX_TENSORS:
        ctype, flags, uncomp_len, comp_len, crc, ecc_len = unpack_at(CHUNK_HEADER, data, pos)
        chunk = Chunk(
            f"{NAME}{len(found)}",
            ctype,
            flags,
            pos,
            comp_len,
            uncomp_len,
            crc,
            ecc_len,
            encrypted=False,
            entry={},
            nested=None,
        )
        if not _is_likely(chunk) or chunk.end > len(data):
            break
        counted = 0
        for piece in pieces(data[chunk.payload_start : chunk.payload_end]):
            counted = crc32c(piece, counted)
        found.append(WalkedChunk(chunk, counted == crc))
        pos = chunk.end
    return found


def describe_unfinalized(data: ByteView, options: ReadOptions) -> Description:
    """What is left of a file that was never finalized; raises FormatError as `walk` does.

    The metadata has the chunks, and where the bytes start that are none.
    Chunks that may hold a file with tensors, and whose crc32c holds, are nested.
    """
    chunks = walk(data)
    end = chunks[-1].chunk.end if chunks else HEADER.size
    nested = tuple(
        Nested(
            found.chunk.name,
            partial(payloads.payload, data, found.chunk, options),
            found.chunk.payload_start if found.chunk.flags == UNCOMPRESSED else None,
        )
        for found in chunks
        if found.crc_holds and found.chunk.ctype in FILE_CTYPES
    )
    metadata: dict[str, object] = {
        "finalized": False,
        "chunks": [found.as_dict() for found in chunks],
        "rest": {"offset": end, "size": len(data) - end},
    }
    return Description("fold", (), metadata, nested)


def _is_likely(chunk: Chunk) -> bool:
    """Whether a chunk header could be one: nothing marks where chunks start."""
    is_text = all(FIRST_PRINTED <= byte <= LAST_PRINTED for byte in chunk.ctype)
    return is_text and chunk.flags in (UNCOMPRESSED, ZSTD)
