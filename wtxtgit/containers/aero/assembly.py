"""Putting an AERO file together from its chunks' contents.

Spec: `docs/spec/aero.md`, "What is written".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import msgpack

from wtxtgit.containers.aero import MAGIC, integrity
from wtxtgit.containers.aero.digests import digest
from wtxtgit.containers.aero.integrity import ALGORITHM, PAYLOAD_SIZE
from wtxtgit.containers.aero.records import (
    HASH_AT,
    HEADER,
    INTEGRITY,
    MAX_STRING_TABLE,
    NAMES_ALIGNMENT,
    NO_HASH,
    OPTIONAL,
    PAYLOAD_ALIGNMENT,
    TOC_ENTRY,
    TOC_HEADER,
    VERSION,
)
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer

UUID_SIZE = 16
INTEGRITY_NAME = b"control.integrity"


@dataclass(frozen=True, slots=True)
class Payload:
    """A chunk to be written: `length` bytes as stored, `ulen` and `digest` of its content.

    `blocks` gives the stored bytes.
    """

    fourcc: bytes
    name: bytes
    flags: int
    length: int
    ulen: int
    digest: bytes
    blocks: Callable[[], Iterator[Buffer]]

    @staticmethod
    def of(fourcc: bytes, name: bytes, flags: int, raw: bytes, *, stored: bytes) -> Payload:
        """A chunk whose content is at hand."""
        return Payload(
            fourcc, name, flags, len(stored), len(raw), digest(raw), lambda: iter((stored,))
        )


def integrity_payload(name: bytes = INTEGRITY_NAME, flags: int = OPTIONAL) -> Payload:
    """The place of the IHSH chunk, whose content `assemble` makes."""
    return Payload(INTEGRITY, name, flags, PAYLOAD_SIZE, PAYLOAD_SIZE, NO_HASH, lambda: iter(()))


def content_uuid(payloads: Sequence[Payload]) -> bytes:
    """A file identity that follows from what the chunks hold."""
    return digest(b"".join(payload.digest for payload in payloads))[:UUID_SIZE]


def check(payloads: Sequence[Payload]) -> None:
    """Refuse what `assemble` can't write; raises FormatError."""
    if len(payloads) > MAX_TENSORS:
        raise FormatError(f"{len(payloads)} chunks are too many", kind="limit", field="entry_count")
    if sum(len(payload.name) + 1 for payload in payloads) > MAX_STRING_TABLE:
        raise FormatError("chunk names are too long", kind="limit", field="string_table_length")


def assemble(payloads: Sequence[Payload], uuid: bytes) -> Iterator[Buffer]:
    """The bytes of a file of these chunks, in this order.

    The first payload of type IHSH is made here. `check` was called before.
    """
    names = b"".join(payload.name + b"\0" for payload in payloads)
    names += bytes(-len(names) % NAMES_ALIGNMENT)
    toc_length = TOC_HEADER.size + TOC_ENTRY.size * len(payloads)
    names_offset = HEADER.size + toc_length
    start = _aligned(names_offset + len(names))
    header = HEADER.pack(
        MAGIC,
        *VERSION,
        HEADER.size,
        HEADER.size,
        toc_length,
        names_offset,
        len(names),
        0,
        uuid,
        b"",
    )
    toc = _toc(payloads, start)
    control = bytearray(header + toc + names)
    control += bytes(start - len(control))
    sealed = next((n for n, payload in enumerate(payloads) if payload.fourcc == INTEGRITY), None)
    made = b""
    if sealed is not None:
        made = _sealed(control, len(payloads))
        place = HEADER.size + TOC_HEADER.size + sealed * TOC_ENTRY.size + HASH_AT
        control[place : place + len(NO_HASH)] = digest(made)
    yield bytes(control)
    pos = start
    for number, payload in enumerate(payloads):
        yield bytes(_aligned(pos) - pos)
        pos = _aligned(pos)
        length = 0
        for block in (made,) if number == sealed else payload.blocks():
            length += len(block)
            yield block
        if length != payload.length:
            raise FormatError(
                f"chunk {payload.name!r} has {length} bytes, not {payload.length} as before",
                field="chunk_length",
            )
        pos += length


def _toc(payloads: Sequence[Payload], start: int) -> bytes:
    name_offs = accumulate((len(payload.name) + 1 for payload in payloads), initial=0)
    entries = [TOC_HEADER.pack(len(payloads), 0, 0)]
    pos = start
    for payload, name_off in zip(payloads, name_offs, strict=False):
        pos = _aligned(pos)
        entries.append(
            TOC_ENTRY.pack(
                payload.fourcc,
                payload.flags,
                pos,
                payload.length,
                payload.ulen,
                name_off,
                len(payload.name),
                0,
                payload.digest,
            )
        )
        pos += payload.length
    return b"".join(entries)


def _sealed(control: bytearray, entries: int) -> bytes:
    """The content of the IHSH chunk for this control region."""
    span = (0, len(control))
    seal = integrity.digest(memoryview(control), HEADER.size, entries, [span])
    packed: bytes = msgpack.packb(
        {"algo": ALGORITHM, "covered_ranges": [list(span)], "digest": seal}
    )
    return packed.ljust(PAYLOAD_SIZE, b"\0")


def _aligned(offset: int) -> int:
    return offset + -offset % PAYLOAD_ALIGNMENT
