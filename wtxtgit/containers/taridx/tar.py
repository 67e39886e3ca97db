"""The headers of a tar as an index sees them: every header block is a row.

An index ignores type flags: directories, links, PAX headers and GNU long names are rows of their
own, with the name in the first 100 bytes of their block. Types do decide how many bytes follow a
header, as in Python's `tarfile`. An index does not name its shards: a fid is a position in the
sorted list of the tars `{fold}_{x}.tar` beside the index, whose name is `{fold}.taridx`. Spec:
`docs/spec/taridx.md`, "Tar headers" and "Names".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import xxhash

from wtxtgit.containers.cursor import fail, quoted
from wtxtgit.containers.tar_index import SHARD_ENDING
from wtxtgit.errors import FormatError
from wtxtgit.io.compressed import compression
from wtxtgit.io.view import ByteView

BLOCK = 512
NAME = slice(0, 100)
SIZE = slice(124, 136)
CHECKSUM = slice(148, 156)
TYPE = 156
SPARSE_EXTENDED, SPARSE_MORE = 482, 504
"""Offsets of the flags that say that a further block of a GNU sparse map follows.

The first is in the header, the second in each block of the map.
"""
WITHOUT_DATA = b"123456"
"""Links, devices, directories and pipes: no data follow, whatever size is stated."""
OLD_FILE = 0
FILES = "07S"
"""Types of files, including sparse ones; old tars also use another one."""
OTHERS = {
    "1": "a hard link",
    "2": "a symbolic link",
    "3": "a device",
    "4": "a device",
    "5": "a folder",
    "6": "a pipe",
    "x": "a PAX header",
    "X": "a PAX header",
    "g": "a PAX header",
    "L": "a GNU long name",
    "K": "a GNU long name",
}
GNU_SPARSE = ord("S")
PAX = b"xX"
OVERLAYS = b"xXgLK"
"""Headers that describe a later one."""
# Largest PAX header in bytes: it is read as a whole.
MAX_PAX = 16 * 1024 * 1024
# A PAX header is searched in this many blocks before its header: its records mostly take one.
MAX_BACK = 64
_ZEROS = bytes(BLOCK)
_BLANK = b" " * (CHECKSUM.stop - CHECKSUM.start)
_BASE_256, _NEGATIVE = 0x80, 0xFF
DELIMITER = "_"


@dataclass(frozen=True, slots=True)
class TarMember:
    """A header at byte `offset`, and the `size` bytes after it.

    `end` is where the next header is. The bytes of a `sparse` file are a map, and its data without
    holes.
    """

    offset: int
    size: int
    name: str
    type: int
    end: int
    sparse: bool = False


def members(data: ByteView) -> Iterator[TarMember]:
    """Yield all headers of a tar, up to a block of zeros or the end.

    Raises FormatError if a header is damaged or its bytes reach beyond the tar, and for a
    compressed tar.
    """
    offset = 0
    size: int | None = None
    sparse = False
    while (member := header(data, offset)) is not None:
        if member.type in PAX:
            size, sparse = _pax_facts(data[offset + BLOCK :], member)
        elif member.type not in OVERLAYS:
            if size is not None and not _is_bare(member.type, member.name):
                end = _end(data, offset, size, member.name)
                member = replace(member, size=size, end=end)
            if sparse:
                member = replace(member, sparse=True)
            size, sparse = None, False
        yield member
        offset = member.end


def header(data: ByteView, offset: int) -> TarMember | None:
    """Return the header at a byte of the tar; None at the tar's end."""
    block = bytes(data[offset : offset + BLOCK])
    if len(block) < BLOCK or block == _ZEROS:
        if not offset:
            # A compressed tar is reported as such, not as a damaged header.
            _refuse_compressed(block)
        return None
    if not _checksum_holds(block):
        if not offset:
            _refuse_compressed(block)
        fail("a damaged tar header", offset=offset, field="checksum")
    name = decoded(block[NAME].partition(b"\0")[0])
    kind = block[TYPE]
    size = 0 if _is_bare(kind, name) else _number(block[SIZE], offset)
    if kind != GNU_SPARSE:
        return TarMember(offset, size, name, kind, _end(data, offset, size, name))
    maps = _sparse_maps(data, offset, block)
    return TarMember(offset, size, name, kind, _end(data, offset, maps + size, name), sparse=True)


def member_at(data: ByteView, offset: int, size: int) -> TarMember | None:
    """Return the member at a byte of the tar, if it has this size.

    The size of a large member is in the PAX header before it. Raises FormatError as `header` does.
    """
    member = header(data, offset)
    if member is None or member.size == size:
        return member
    if member.type in OVERLAYS or _is_bare(member.type, member.name):
        return None
    for start in range(offset - 2 * BLOCK, offset - MAX_BACK * BLOCK, -BLOCK):
        if start < 0 or data[start + TYPE] not in PAX:
            continue
        try:
            before = header(data, start)
        except FormatError:
            continue
        if before is None or before.end != offset:
            continue
        if _pax_facts(data[start + BLOCK :], before)[0] == size:
            return replace(member, size=size, end=_end(data, offset, size, member.name))
    return None


def is_empty(data: ByteView) -> bool:
    """Whether a tar has no header at all."""
    return bytes(data[:BLOCK]) == _ZEROS or len(data) < BLOCK


def other_than_file(member: TarMember) -> str | None:
    """Return in words what a member is if it is not a file; None for a file."""
    if member.type == OLD_FILE:
        return OTHERS["5"] if member.name.endswith("/") else None
    kind = chr(member.type)
    return None if kind in FILES else OTHERS.get(kind, "of an unknown type")


def _end(data: ByteView, offset: int, size: int, name: str) -> int:
    """Return where the next header is; the last bytes may lack their padding."""
    start = offset + BLOCK
    if size > len(data) - start:
        fail(
            f"member {quoted(name)} of {size} bytes is cut short",
            offset=offset,
            field="size",
        )
    return start + -(-size // BLOCK) * BLOCK


def _is_bare(kind: int, name: str) -> bool:
    """Whether a header is followed by no content."""
    # V7 tars store directories as files whose names end in a slash.
    return kind in WITHOUT_DATA or (kind == OLD_FILE and name.endswith("/"))


def _refuse_compressed(block: bytes) -> None:
    if (name := compression(block)) is not None:
        raise FormatError(
            f"compressed with {name}: members have no offsets in it", offset=0, field="magic"
        )
    if block and block.count(0) < len(block):
        raise FormatError("not a tar: it does not start with a header", offset=0, field="checksum")


def _checksum_holds(block: bytes) -> bool:
    try:
        stored = _number(block[CHECKSUM], 0)
    except FormatError:
        return False
    rest = block[: CHECKSUM.start] + _BLANK + block[CHECKSUM.stop :]
    total = sum(rest)
    # Some old tars added up signed bytes.
    return stored == total or stored == total - 256 * sum(byte >= 128 for byte in rest)


def _number(raw: bytes, offset: int) -> int:
    """Parse a number of a header: octal digits, or base 256 if the first bit is set."""
    if raw[0] == _BASE_256:
        return int.from_bytes(raw[1:], "big")
    digits = raw.partition(b"\0")[0].strip()
    if digits.strip(b"01234567"):
        what = "is negative" if raw[0] == _NEGATIVE else "is not an octal number"
        fail(f"size {raw!r} {what}", offset=offset, field="size")
    return int(digits or b"0", 8)


def _sparse_maps(data: ByteView, offset: int, block: bytes) -> int:
    """Return how many bytes of map are between a GNU sparse header and its data."""
    maps = 0
    more = block[SPARSE_EXTENDED]
    while more:
        maps += BLOCK
        last = offset + maps + SPARSE_MORE
        if last >= len(data):
            fail("sparse map is cut short", offset=offset, field="size")
        more = data[last]
    return maps


def _pax_facts(data: ByteView, member: TarMember) -> tuple[int | None, bool]:
    """Return what a PAX header says of the next member: its size, and whether it is sparse.

    `data` starts with its records, each `LENGTH KEY=VALUE\\n`.
    """
    if member.size > MAX_PAX:
        fail(
            f"a PAX header of {member.size} bytes, over the limit of {MAX_PAX}",
            offset=member.offset,
            field="size",
            kind="limit",
        )
    records = bytes(data[: member.size])
    size, sparse = None, False
    start = 0
    while start < len(records):
        space = records.find(b" ", start, start + 20)
        length = records[start:space] if space >= 0 else b""
        if not length.isdigit() or not space < start + int(length) <= len(records):
            break
        key, _, value = records[space + 1 : start + int(length) - 1].partition(b"=")
        if key == b"size" and value.isdigit() and len(value) < 20:
            size = int(value)
        sparse = sparse or key.startswith(b"GNU.sparse.")
        start += int(length)
    return size, sparse


def decoded(raw: bytes) -> str:
    """Decode a member's name as the index's writer does."""
    return raw.decode("utf-8", "replace")


def split_name(name: str) -> tuple[str, str]:
    """Return a member's stem and extension: what is before and after the first dot.

    The folder is dropped, the extension is in lower case and without its dot.
    """
    stem, _, extension = name.rpartition("/")[2].partition(".")
    return stem, extension.lower()


def keyhash(stem: str) -> int:
    """Return the xxh64 of a stem, seed 0."""
    return int(xxhash.xxh64_intdigest(stem.encode()))


def shard_order(name: str) -> tuple[str, str]:
    """Return the key by which shards are sorted: fold, then the rest without the ending.

    Without the ending, since `a_1` comes before `a_1-x`, but `a_1.tar` after `a_1-x.tar`.
    """
    fold, _, rest = name.removesuffix(SHARD_ENDING).rpartition(DELIMITER)
    return fold, rest


def is_shard_of(name: str, fold: str) -> bool:
    """Whether a file has the name of a shard of the fold."""
    return name.endswith(SHARD_ENDING) and DELIMITER in name and shard_order(name)[0] == fold


def shards_of(names: Iterable[str], fold: str) -> list[str]:
    """Return the fold's shards among the names in a folder; the position of each is its fid."""
    return sorted((name for name in names if is_shard_of(name, fold)), key=shard_order)


def fids_of_old_writer(empty: Sequence[bool], first: int = 1) -> list[int]:
    """Return the fid of each shard from a writer that continued from the last row before.

    An empty shard has no row, so later fids are too small. Before the first row that writer read
    uninitialised memory, mostly zeros: `first` is the resulting fid.
    """
    fids: list[int] = []
    last: int | None = None
    for place, without_rows in enumerate(empty):
        following = first if last is None else last + 1
        fid = 0 if place == 0 else following
        fids.append(fid)
        if not without_rows:
            last = fid
    return fids
