"""FOLD (.fold, .mind): chunks with an index at the end. Big-endian.

File header (28 bytes), then for each chunk a header (32 bytes), its payload and its parity, then a
JSON index. The index says where chunks are, a chunk's own header how long its parts are. Spec:
`docs/spec/fold.md`, "Layout" and "Parity"; `docs/spec/containers.md`, "FOLD", for how a file is
cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from struct import Struct
from typing import Any

from wtxtgit.containers import json_text, ranges, tensor_header
from wtxtgit.containers.cursor import Cursor, ListingBudget, check_inside, fail, quoted, unpack_at
from wtxtgit.containers.format import Container
from wtxtgit.containers.ranges import MAX_TENSORS, Range, Stored
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.containers.tensor_header import TensorHeader
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView
from wtxtgit.model.array import ArrayNames

HEADER = Struct(">8sIQQ")
"""magic header_len index_off index_len."""
CHUNK_HEADER = Struct(">4sIQQII")
"""ctype flags uncomp_len comp_len crc32c ecc_len."""
UNCOMPRESSED = 0
ZSTD = 1
TENSOR_CTYPE, JSON_CTYPE = b"STEN", b"JSON"
TAGS = "tags"
"""Metadata that is itself a table of tags."""
INDEX_ROLE = "_index"
MERKLE_ROOT = "merkle_root"
TRUST_BLOCK = "trust_block"
# Total length of a file's `chunk/tensor` names: if entries of an index refer to the same chunk, its
# tensors have a name for each of these entries.
MAX_NESTED_NAMES = MAX_JSON


@dataclass(frozen=True, slots=True, eq=False)
class FoldChunk:
    """A chunk: what the index and its own header say.

    `entry` is the index's object, of which only name, offset and encrypted are used here. `nested`
    is the header of the safetensors file in the payload, None if there is none or it is not
    readable as stored.
    """

    name: str
    ctype: bytes
    flags: int
    offset: int
    comp_len: int
    uncomp_len: int
    crc32c: int
    ecc_len: int
    encrypted: bool
    entry: dict[str, object]
    nested: TensorHeader | None

    @property
    def payload_start(self) -> int:
        return self.offset + CHUNK_HEADER.size

    @property
    def payload_end(self) -> int:
        return self.payload_start + self.comp_len

    @property
    def end(self) -> int:
        return self.payload_end + self.ecc_len

    def payload(self, data: ByteView) -> ByteView:
        """Return the payload as stored in the file `data`."""
        return data[self.payload_start : self.payload_end]

    @property
    def ctype_text(self) -> str:
        return self.ctype.decode("ascii", "backslashreplace")

    @property
    def ecc_algo(self) -> object:
        return self.entry.get("ecc_algo")

    def ranges(self) -> Iterator[Range]:
        base = ArrayNames.plain(self.name)
        yield ranges.literal(self.offset, self.payload_start)
        if self.nested is None:
            yield ranges.payload(self.payload_start, self.payload_end, self.name)
        else:
            yield ranges.part(self.payload_start, self.nested.end, f"{base}_header")
            for tensor in self.tensors():
                yield ranges.tensor(tensor)
        yield ranges.part(self.payload_end, self.end, f"{base}_ecc")

    def tensors(self) -> Iterator[Stored]:
        """Yield the nested tensors with their names in the whole file."""
        for tensor in self.nested.tensors if self.nested else ():
            yield replace(tensor, name=f"{self.name}/{tensor.name}")


@dataclass(frozen=True, slots=True, eq=False)
class Fold(Container):
    """A FOLD file that was read; `index` is the index's JSON object.

    `has_repeated_keys` if an object of the index has a key twice; `listing` is what its chunks may
    still list.
    """

    data: ByteView
    index_start: int
    index_end: int
    index: dict[str, object]
    chunks: tuple[FoldChunk, ...]
    has_repeated_keys: bool = False
    listing: ListingBudget = field(default_factory=partial(ListingBudget, 0))

    def ranges(self) -> Iterator[Range]:
        yield ranges.literal(0, HEADER.size)
        for chunk in self.chunks:
            yield from chunk.ranges()
        yield ranges.part(self.index_start, self.index_end, INDEX_ROLE)

    def is_padding(self, start: int, end: int) -> bool:
        return False


def read(data: ByteView, listing: ListingBudget | None = None) -> Fold:
    """Read a FOLD file; raises FormatError."""
    listing = listing or ListingBudget(len(data))
    repeated: list[str] = []
    index_off, index_end, index = read_index(data, listing, repeated)
    reader = ChunkReader(data, index_off, listing)
    chunks = tuple(reader.read(entry) for entry in index["chunks"])
    return Fold(data, index_off, index_end, index, chunks, bool(repeated), listing)


def read_index(
    data: ByteView, listing: ListingBudget | None = None, repeated: list[str] | None = None
) -> tuple[int, int, dict[str, Any]]:
    """Return first byte and end of the index, and its object, which has a list of chunks.

    Repeated keys are added to `repeated`. Raises FormatError.
    """
    listing = listing or ListingBudget(len(data))
    _magic, header_len, index_off, index_len = Cursor(data).record(HEADER, "file header")
    if header_len != HEADER.size:
        fail(f"header_len is {header_len}, not {HEADER.size}", offset=8, field="header_len")
    # The writer died: `salvage` finds the chunks ("Files that were not finalized").
    if index_off == 0 and index_len == 0:
        raise FormatError(
            "file is not finalized: index_off and index_len are 0", offset=12, field="index_off"
        )
    if index_off < HEADER.size:
        fail(f"index_off {index_off} is inside the file header", offset=12, field="index_off")
    check_inside(index_off, index_len, len(data), "index")
    index_end = index_off + index_len
    index = json_text.parse(
        data[index_off:index_end], "index", offset=index_off, listing=listing, repeated=repeated
    )
    if not isinstance(index, dict) or not isinstance(index.get("chunks"), list):
        fail("index is not an object that lists chunks", offset=index_off, field="chunks")
    if len(index["chunks"]) > MAX_TENSORS:
        fail("index lists too many chunks", offset=index_off, field="chunks", kind="limit")
    return index_off, index_end, index


class ChunkReader:
    """Reads chunks, and counts what they list in the whole file.

    Several entries of an index may refer to one chunk: its nested header is read once, and the
    limits apply to all entries together.
    """

    def __init__(
        self, data: ByteView, index_off: int, listing: ListingBudget | None = None
    ) -> None:
        self._data = data
        self._listing = listing or ListingBudget(len(data))
        self._index_off = index_off
        self._nested: dict[int, TensorHeader | None] = {}
        self._tensors = 0
        self._name_characters = 0

    def read(self, entry: object) -> FoldChunk:
        if not isinstance(entry, dict):
            raise FormatError(
                "index has a chunk that is not an object", offset=self._index_off, field="chunks"
            )
        name, offset = entry.get("name"), entry.get("offset")
        if not isinstance(name, str):
            raise FormatError(
                "index has a chunk with no name", offset=self._index_off, field="name"
            )
        if type(offset) is not int:
            raise FormatError(
                f"offset of chunk {quoted(name)} is not an integer",
                offset=self._index_off,
                field="offset",
            )
        # A name becomes part of the text, which can't hold a lone surrogate.
        json_text.check_name(name, "chunk name", offset=self._index_off)
        field = f"header of {quoted(name)}"
        check_inside(offset, CHUNK_HEADER.size, len(self._data), field, self._index_off)
        ctype, flags, uncomp_len, comp_len, crc32c, ecc_len = unpack_at(
            CHUNK_HEADER, self._data, offset
        )
        start = offset + CHUNK_HEADER.size
        check_inside(start, comp_len, len(self._data), f"payload of {quoted(name)}")
        check_inside(start + comp_len, ecc_len, len(self._data), f"parity of {quoted(name)}")
        times = 2 if ecc_len else 1
        self._listing.item((name,), self._index_off, "index", times=times)
        # A chunk's own header does not say that it is encrypted.
        encrypted = entry.get("encrypted") is True
        # Compressed or encrypted payloads become arrays as they are: clean decodes nothing.
        nested = None
        if ctype == TENSOR_CTYPE and flags == UNCOMPRESSED and not encrypted:
            nested = self._read_nested(name, start, start + comp_len)
        return FoldChunk(
            name,
            ctype,
            flags,
            offset,
            comp_len,
            uncomp_len,
            crc32c,
            ecc_len,
            encrypted,
            entry,
            nested,
        )

    def _read_nested(self, name: str, start: int, end: int) -> TensorHeader | None:
        """Return the payload's tensors; None if it can't be read and stays whole."""
        if start not in self._nested:
            try:
                self._nested[start] = tensor_header.read(
                    self._data, start, end, listing=self._listing
                )
            except FormatError:
                # Listing too much is an error of the whole file.
                if self._listing.left < 0:
                    raise
                self._nested[start] = None
        nested = self._nested[start]
        if nested is not None:
            self._tensors += len(nested.tensors)
            self._name_characters += sum(len(name) + len(t.name) + 1 for t in nested.tensors)
            for tensor in nested.tensors:
                words = (name, tensor.name, tensor.dtype)
                self._listing.item(words, start, "index", rank=len(tensor.shape))
        if self._tensors > MAX_TENSORS or self._name_characters > MAX_NESTED_NAMES:
            fail(
                "chunks list too many tensors in total", offset=start, field="tensors", kind="limit"
            )
        return nested


CODEWORD = 255
"""Size in bytes of a full block with its parity."""

_ALGORITHM = re.compile(r"rs\(([1-9][0-9]{0,2})\)")


def parity_bytes(algorithm: object) -> int | None:
    """Return n for `rs(n)`, 0 for `none`, None for anything else."""
    if algorithm == "none":
        return 0
    match = _ALGORITHM.fullmatch(algorithm) if isinstance(algorithm, str) else None
    n = int(match[1]) if match else CODEWORD
    return n if n < CODEWORD else None


def parity_len(payload_len: int, n: int) -> int:
    """Return the length of a payload's parity: n bytes for each block begun."""
    return n * -(-payload_len // (CODEWORD - n))
