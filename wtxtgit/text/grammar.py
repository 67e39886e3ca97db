"""The grammar of WTXT: every line's spelling, parsed and formatted.

`docs/spec/wtxt.md`, sections "Lines" to "Root, chain, signature". Lines are bytes, including
their LF. A parser takes a buffer and a position and returns what the line says and where the next
line starts, or None if the bytes there are not that line; it never looks past the line. Values
have one spelling, so each formatter is the inverse of its parser.
"""

from __future__ import annotations

import re
import sys
from binascii import Error as Base64Error
from binascii import a2b_base64, a2b_hex, b2a_base64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TypeVar

from wtxtgit.errors import TextError
from wtxtgit.io.view import Buffer, ByteView
from wtxtgit.model.array import (
    ITEM_SIZE,
    MAX_RANK,
    TARGET_CHUNK,
    Meta,
    Rows,
    Signature,
    bounded_product,
)

MAGIC = b"WTXT "
"""What makes an input a WTXT text (of any version) for clean and smudge."""
DELTA_MAGIC = b"WTXT-DELTA "
"""What makes an input a delta, of any version."""
FIRST_LINE = b"WTXT 1\n"
DETACHED_MAGIC = b"WTXT-DETACHED "
"""What makes an input a detached text: `docs/spec/detached.md`."""
DETACHED_FIRST_LINE = b"WTXT-DETACHED 1\n"
LFS_MAGIC = b"version "
"""How a pointer of git-lfs begins. It is never made a text; few other files begin so."""
MAX_INLINE = 4096
"""Largest array in bytes whose data lines stay in a detached text."""
MOST_ATTACHED = 131_072
"""The driver `wtxt-detached` leaves the data in texts of up to this many bytes."""
LAST_LINE = b"endwtxt\n"
END_ARRAY = b"endarr\n"
END_CHUNK = b"endch\n"
WSUM_MAGIC = b"WSUM "
LEDGER_MAGIC = b"WLEDGER "
COMPANION_MAGICS = (LEDGER_MAGIC, WSUM_MAGIC, DELTA_MAGIC)
"""How files of ours that stand beside checkpoints begin. They are never made texts."""
WSUM_SUFFIX = b".root.wsum"
"""The end of the path of a text's WSUM, which is not a ledger; the text's path precedes it."""
MAX_WSUM = 64 * 1024
PENDING_LINE = b"root_pending sha256_all=" + b"0" * 64 + b' note="finalize with WSUM"\n'

CAP = ("crc32c", "line_parity", "arr_hmac", "delta_v2", "row_blocking")
CAP_LAYOUT = "layout"

MAX_NUMBER = 10**20 - 1
"""Numbers have at most 20 digits."""
MAX_GEN = MAX_NUMBER
MAX_OFFSET = 10**12 - 1
"""`off` has exactly 12 digits."""
SIGNATURE_SIZE = 64

LINE_RAW = 57
"""Raw bytes that an armored line holds."""
LINE_BASE64 = 76
LINE_TEXT = 79
"""An armored line: base64, a space, the parity nibble, LF."""

# Repeated groups are possessive (`*+`): they keep no stack for backtracking.
_TOKEN = rb"[A-Za-z0-9._/+:@-]+"
_NUMBER = rb"(?:0|[1-9][0-9]{0,19})"
_GEN = rb"(?:[0-9]{6}|[1-9][0-9]{6,19})"
_TIME = rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"
_HASH = rb"[0-9a-f]{64}"
_HEX16 = rb"[0-9a-f]{16}"
_BASE64_64 = rb"[A-Za-z0-9+/]{86}=="
# Lists are matched as one run of characters: a repeated group takes memory for each
# repetition, and possessive groups match too much before Python 3.11.5.
_CAP_ITEMS = rb"(?!,)(?![^\n]*,[,\n])[A-Za-z0-9._/+:@,-]+"
_DIMS = rb"(?!,)(?![^ \n]*,[, ])[0-9,]+"
_NAME = rb"[A-Za-z0-9_]+"
_DTYPE = b"|".join(name.encode() for name in ITEM_SIZE)
_AUDIT_FIELD = re.compile(_TOKEN + rb'=(?:"[ !#-~]*"|[!#-~]+)([ \n])')
_AUDIT_WORD = b"audit "
_DIM = re.compile(_NUMBER)
_DIGITS = re.compile(rb"[0-9]+")

_META = re.compile(
    rb"meta schema=(" + _TOKEN + rb") gen=(" + _GEN + rb") ts=(" + _TIME + rb") build=(" + _TOKEN
    + rb") endian=LE host=(" + _TOKEN + rb") cuda=(" + _TOKEN + rb")\n"
)  # fmt: skip
_CAP = re.compile(rb"cap ext=(" + _CAP_ITEMS + rb")\n")
_ROOT = re.compile(
    rb"root sha256_all=(" + _HASH + rb") merkle_prev=(" + _HASH + rb") merkle_this=(" + _HASH
    + rb") fastxor=(" + _HEX16 + rb")\n"
)  # fmt: skip
_SIGN = re.compile(rb"sign ed25519=(" + _BASE64_64 + rb") keyid=(" + _HEX16 + rb")\n")
_KIND = (
    rb"dtype=(" + _DTYPE + rb") shape=(scalar|" + _DIMS + rb") order=C bytes=(" + _NUMBER + rb")"
)
_ARRAY_HASHES = rb" sha256=(" + _HASH + rb") hmac=(" + _HASH + rb") salt=(" + _HEX16 + rb")\n"
_NONE = {b"0" * 2 * size: bytes(size) for size in (32, 8)}
_ARRAY = re.compile(rb"arr name=(" + _NAME + rb") " + _KIND + _ARRAY_HASHES)
_ARRAY_KIND = re.compile(_KIND)
_ROWS = re.compile(
    rb"idx rows_per_chunk=(" + _NUMBER + rb") row_size=(" + _NUMBER + rb") row_blocking=(on|off)\n"
)
_CHUNK = re.compile(
    rb"ch ix=([0-9]{6}) off=([0-9]{12}) len=(" + _NUMBER + rb") sha256=(" + _HASH
    + rb") crc32c=([0-9a-f]{8}) b64=on width=76 lines=(" + _NUMBER + rb")\n"
)  # fmt: skip
CHUNK_FRAME = re.compile(
    rb"ch (ix=[0-9]{6} off=[0-9]{12} len=[0-9]{1,20}) sha256=(" + _HASH
    + rb") crc32c=([0-9a-f]{8}) b64=on width=76 (lines=[0-9]{1,20})\n"
)  # fmt: skip
"""A `ch` line in parts: place and size, SHA-256, CRC-32C, number of lines.

For readers that know how place, size and number must be spelled, and only compare them.
"""
ARRAY_FRAME = re.compile(
    rb"arr name=(" + _NAME
    + rb") (dtype=[a-z0-9]{1,9} shape=[a-z0-9,]{1,200} order=C bytes=[0-9]{1,20})"
    + _ARRAY_HASHES + rb"(idx [a-z0-9_= ]{1,99}\n)?" + CHUNK_FRAME.pattern
)  # fmt: skip
"""What precedes the armored lines of an array's first chunk, in parts.

Name; kind, for `parse_kind`; SHA-256, HMAC, salt; the `idx` line, for `parse_rows`, or None; the
parts of CHUNK_FRAME. Kinds and `idx` lines of unusual length do not match.
"""
_WSUM = re.compile(
    rb"WSUM 1 sha256_all=(" + _HASH + rb") merkle_prev=(" + _HASH + rb") merkle_this=(" + _HASH
    + rb")(?: sign=(" + _BASE64_64 + rb"))?\n"
)  # fmt: skip

_ARMORED = re.compile(rb"(?=[^\n]{78}\n)[A-Za-z0-9+/]*+=*+ [0-9a-f]\n")

_ARRAY_NAME = re.compile(r"[A-Za-z0-9_]+")
_FULL_TOKEN = re.compile(r"[A-Za-z0-9._/+:@-]+")


@dataclass(frozen=True, slots=True)
class Root:
    """The `root` line: SHA-256 digests of 32 bytes, fastxor as a number."""

    sha256_all: bytes
    merkle_prev: bytes
    merkle_this: bytes
    fastxor: int


@dataclass(frozen=True, slots=True)
class ArrayLine:
    """The `arr` line; `nbytes` is the size that it claims, not the one computed from the shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    sha256: bytes
    hmac: bytes
    salt: bytes


@dataclass(frozen=True, slots=True)
class ChunkLine:
    """The `ch` line; sizes in bytes, `crc32c` as a number."""

    ix: int
    off: int
    size: int
    sha256: bytes
    crc32c: int
    lines: int


@dataclass(frozen=True, slots=True)
class Wsum:
    """A WSUM file: the root of a text that was streamed, or of a generation in a chain."""

    sha256_all: bytes
    merkle_prev: bytes
    merkle_this: bytes
    signature: bytes | None


def is_text(data: ByteView | bytes) -> bool:
    """Whether an input is to be read as a text, attached or detached."""
    return data[: len(MAGIC)] == MAGIC or is_detached(data)


def is_detached(data: ByteView | bytes) -> bool:
    """Whether an input is to be read as a detached text."""
    return data[: len(DETACHED_MAGIC)] == DETACHED_MAGIC


def is_delta(data: ByteView | bytes) -> bool:
    """Whether content begins like a delta, of any version."""
    return data[: len(DELTA_MAGIC)] == DELTA_MAGIC


def is_data(text: Buffer, pos: int) -> bool:
    """Whether the line at `pos` is one that holds a chunk's data, or ends it."""
    end = pos + len(END_CHUNK)
    return text[pos:end] == END_CHUNK or _ARMORED.match(text, pos) is not None


def is_token(value: str) -> bool:
    return _FULL_TOKEN.fullmatch(value) is not None


def is_array_name(value: str) -> bool:
    return _ARRAY_NAME.fullmatch(value) is not None


def is_time(value: str) -> bool:
    """Whether `value` is a valid UTC time, spelled like `2025-10-09T03:12:45Z`."""
    if re.fullmatch(_TIME, value.encode("ascii", "replace")) is None:
        return False
    try:
        # Not strptime: loading it takes longer than reading the rest of a text's header.
        year, month, day, hour, minute, second = map(int, _DIGITS.findall(value.encode()))
        datetime(year, month, day, hour, minute, second)
    except ValueError:
        return False
    return True


def parse_meta(text: Buffer, pos: int) -> tuple[Meta, int] | None:
    if (m := _META.match(text, pos)) is None:
        return None
    schema, gen, ts, build, host, cuda = (group.decode("ascii") for group in m.groups())
    if not is_time(ts):
        return None
    return Meta(schema, int(gen), ts, build, host, cuda), m.end()


def format_meta(meta: Meta) -> bytes:
    """Format the `meta` line; raises TextError for a value that no text can hold."""
    for label, value in (
        ("schema", meta.schema),
        ("build", meta.build),
        ("host", meta.host),
        ("cuda", meta.cuda),
    ):
        if not is_token(value):
            raise TextError("syntax", f'{label} "{value}" is not one or more of A-Za-z0-9._/+:@-')
    if not 0 <= meta.gen <= MAX_GEN:
        raise TextError("syntax", f"gen {meta.gen} is not between 0 and {MAX_GEN}")
    if not is_time(meta.ts):
        raise TextError("syntax", f'ts "{meta.ts}" is not a UTC time like 2025-10-09T03:12:45Z')
    return (
        f"meta schema={meta.schema} gen={format_gen(meta.gen)} ts={meta.ts} build={meta.build} "
        f"endian=LE host={meta.host} cuda={meta.cuda}\n"
    ).encode("ascii")


def format_gen(gen: int) -> str:
    return f"{gen:06d}"


def parse_cap(text: Buffer, pos: int) -> tuple[tuple[str, ...], int] | None:
    if (m := _CAP.match(text, pos)) is None:
        return None
    return tuple(m[1].decode("ascii").split(",")), m.end()


def format_cap(items: tuple[str, ...]) -> bytes:
    if not items or not all(is_token(item) for item in items):
        raise TextError("syntax", "cap items must be one or more of A-Za-z0-9._/+:@-")
    return b"cap ext=" + ",".join(items).encode("ascii") + b"\n"


def parse_root(text: Buffer, pos: int) -> tuple[Root, int] | None:
    if (m := _ROOT.match(text, pos)) is None:
        return None
    return Root(a2b_hex(m[1]), a2b_hex(m[2]), a2b_hex(m[3]), int(m[4], 16)), m.end()


def format_root(root: Root) -> bytes:
    return (
        f"root sha256_all={root.sha256_all.hex()} merkle_prev={root.merkle_prev.hex()} "
        f"merkle_this={root.merkle_this.hex()} fastxor={root.fastxor:016x}\n"
    ).encode("ascii")


def parse_sign(text: Buffer, pos: int) -> tuple[Signature, int] | None:
    if (m := _SIGN.match(text, pos)) is None or (raw := _canonical_base64(m[1])) is None:
        return None
    return Signature(raw, m[2].decode("ascii")), m.end()


def format_sign(sign: Signature) -> bytes:
    return b"sign ed25519=%b keyid=%b\n" % (_base64(sign.signature), sign.keyid.encode("ascii"))


def check_sign(sign: Signature) -> None:
    """Raise TextError for a signature that no `sign` line can hold."""
    if parse_sign(format_sign(sign), 0) is None:
        raise TextError("syntax", f'not a 64-byte signature with a valid keyid: "{sign.keyid}"')


def parse_array(text: Buffer, pos: int) -> tuple[ArrayLine, int] | None:
    if (m := _ARRAY.match(text, pos)) is None or (shape := _parse_shape(m[3])) is None:
        return None
    return ArrayLine(
        m[1].decode("ascii"),
        # There may be very many arrays: values that most of them share are one object.
        sys.intern(m[2].decode("ascii")),
        shape,
        int(m[4]),
        a2b_hex(m[5]),
        keyed_hash(m[6]),
        keyed_hash(m[7]),
    ), m.end()


def keyed_hash(digits: bytes) -> bytes:
    """Return the bytes of an hmac or salt; zeros, which mean that there is none, are one object."""
    return _NONE.get(digits) or a2b_hex(digits)


def parse_kind(kind: bytes) -> tuple[str, tuple[int, ...], int] | None:
    """Parse only the part of an `arr` line that claims dtype, shape and bytes."""
    if (m := _ARRAY_KIND.fullmatch(kind)) is None or (shape := _parse_shape(m[2])) is None:
        return None
    return m[1].decode("ascii"), shape, int(m[3])


def _parse_shape(spelled: bytes) -> tuple[int, ...] | None:
    """Parse the dimensions; raises TextError "limit" if there are more than any array may have."""
    if spelled == b"scalar":
        return ()
    if spelled.count(b",") >= MAX_RANK:
        raise TextError("limit", f"a shape has more than {MAX_RANK} dimensions")
    # One by one: a list of the parts would take many times the memory of the text.
    shape = tuple(_dimension(digits[0]) for digits in _DIGITS.finditer(spelled))
    return None if -1 in shape else shape


def _dimension(digits: bytes) -> int:
    return int(digits) if _DIM.fullmatch(digits) else -1


def check_bytes(line: ArrayLine) -> str | None:
    """Return what is wrong with the size that an `arr` line claims, or None."""
    nbytes = bounded_product(ITEM_SIZE[line.dtype], line.shape, MAX_NUMBER)
    if nbytes == line.nbytes:
        return None
    needed = "over 20 digits of" if nbytes > MAX_NUMBER else nbytes
    return f"bytes={line.nbytes}, but dtype and shape need {needed} bytes"


def format_array(line: ArrayLine) -> bytes:
    start = format_array_start(line.name, line.dtype, line.shape, line.nbytes)
    return start + format_array_hashes(line.sha256, line.hmac, line.salt)


def format_array_start(name: str, dtype: str, shape: tuple[int, ...], nbytes: int) -> bytes:
    """Format the `arr` line up to its hashes: all that is known before the bytes are hashed."""
    dims = ",".join(map(str, shape)) if shape else "scalar"
    return f"arr name={name} dtype={dtype} shape={dims} order=C bytes={nbytes} ".encode("ascii")


def format_array_hashes(sha256: bytes, hmac: bytes, salt: bytes) -> bytes:
    """Format the rest of the `arr` line, which always has the same length."""
    return f"sha256={sha256.hex()} hmac={hmac.hex()} salt={salt.hex()}\n".encode("ascii")


def parse_rows(text: Buffer, pos: int) -> tuple[Rows, int] | None:
    if (m := _ROWS.match(text, pos)) is None:
        return None
    return _rows(*m.groups()), m.end()


@lru_cache(maxsize=64)
def _rows(per_chunk: bytes, size: bytes, blocking: bytes) -> Rows:
    """Return one object for all arrays that are cut alike, of which there may be very many."""
    return Rows(int(per_chunk), int(size), blocking == b"on")


def check_rows(rows: Rows, dtype: str) -> str | None:
    """Return what is wrong with an `idx` line for an array of `dtype`, or None."""
    if not (1 <= rows.rows_per_chunk <= MAX_NUMBER and 1 <= rows.row_size <= MAX_NUMBER):
        return "rows_per_chunk and row_size must be at least 1 and have at most 20 digits"
    if rows.row_size % ITEM_SIZE[dtype]:
        return f"row_size {rows.row_size} is not a multiple of {dtype}'s {ITEM_SIZE[dtype]} bytes"
    return None


def format_rows(rows: Rows) -> bytes:
    return (
        f"idx rows_per_chunk={rows.rows_per_chunk} row_size={rows.row_size} "
        f"row_blocking={'on' if rows.blocking else 'off'}\n"
    ).encode("ascii")


def parse_chunk(text: Buffer, pos: int) -> tuple[ChunkLine, int] | None:
    if (m := _CHUNK.match(text, pos)) is None:
        return None
    ix, off, size, sha256, crc32c, lines = m.groups()
    return ChunkLine(
        int(ix), int(off), int(size), a2b_hex(sha256), int(crc32c, 16), int(lines)
    ), m.end()


def format_chunk(line: ChunkLine) -> bytes:
    return (
        f"ch ix={line.ix:06d} off={line.off:012d} len={line.size} sha256={line.sha256.hex()} "
        f"crc32c={line.crc32c:08x} b64=on width=76 lines={line.lines}\n"
    ).encode("ascii")


def parse_audit(text: Buffer, pos: int) -> tuple[str, int] | None:
    start = pos + len(_AUDIT_WORD)
    if text[pos:start] != _AUDIT_WORD:
        return None
    # Field by field: one regex for any number of fields would keep a stack.
    m = _AUDIT_FIELD.match(text, start)
    while m is not None and m[1] == b" ":
        m = _AUDIT_FIELD.match(text, m.end())
    if m is None:
        return None
    return bytes(text[start : m.end() - 1]).decode("ascii"), m.end()


def format_audit(audit: str) -> bytes:
    line = _AUDIT_WORD + audit.encode("utf-8", "backslashreplace") + b"\n"
    if not audit.isascii() or parse_audit(line, 0) != (audit, len(line)):
        raise TextError("syntax", f'audit "{audit}" is not of key=value or key="value"')
    return line


def parse_wsum(text: Buffer, pos: int) -> tuple[Wsum, int] | None:
    if (m := _WSUM.match(text, pos)) is None:
        return None
    signature = None
    if m[4] is not None and (signature := _canonical_base64(m[4])) is None:
        return None
    return Wsum(a2b_hex(m[1]), a2b_hex(m[2]), a2b_hex(m[3]), signature), m.end()


def wsum_covered(wsum: Wsum) -> bytes:
    """Return the bytes that a WSUM's signature covers: its line without ` sign=` and LF."""
    return (
        f"WSUM 1 sha256_all={wsum.sha256_all.hex()} merkle_prev={wsum.merkle_prev.hex()} "
        f"merkle_this={wsum.merkle_this.hex()}"
    ).encode("ascii")


def format_wsum(wsum: Wsum) -> bytes:
    sign = b"" if wsum.signature is None else b" sign=" + _base64(wsum.signature)
    return wsum_covered(wsum) + sign + b"\n"


def _base64(raw: bytes) -> bytes:
    return b2a_base64(raw, newline=False)


def _canonical_base64(text: bytes) -> bytes | None:
    try:
        raw = a2b_base64(text)
    except Base64Error:
        return None
    # a2b_base64 ignores unused bits: encoding the result again must give the same characters.
    return raw if len(raw) == SIGNATURE_SIZE and _base64(raw) == text else None


# Sizes of lines and of chunks. All lines have a fixed length, including those that frame a chunk,
# so the size of a chunk's text depends only on the size of the chunk.

FILLS = b"=" * LINE_BASE64
ZEROS = b"A" * LINE_BASE64
"""The base64 character of six zero bits, which replaces the fill during encoding and decoding."""
HEX_DIGITS = b"0123456789abcdef"

PLAIN_CHUNK = 32_768
"""Chunk size without row blocking."""
BLOCK_CHUNKS = 16
BLOCK_BYTES = 1024 * 1024
"""Chunks are armored and read in blocks of at most this many chunks, and raw bytes."""
# Chunks of at most this many bytes are armored and read in groups: one by one would cost more.
_SHORT = 64 * 1024
PASS_LINES = 18_400
"""Lines per pass: 1 MiB. With fewer, threads would contend for the lock more often."""

T = TypeVar("T")


def line_count(size: int) -> int:
    """Return the number of lines of a chunk of `size` raw bytes; an empty chunk has one."""
    return max(1, -(-size // LINE_RAW))


def fill_count(size: int) -> int:
    """Return how many `=` end the last line of a chunk of `size` raw bytes."""
    tail = size - (line_count(size) - 1) * LINE_RAW
    return LINE_BASE64 - characters(tail)


def characters(raw: int) -> int:
    """Return how many base64 characters, without padding, hold `raw` bytes."""
    return (raw * 4 + 2) // 3


# Bytes of a `ch` line without the digits of `len` and `lines`.
_CHUNK_LINE = len(format_chunk(ChunkLine(0, 0, 0, bytes(32), 0, 0))) - 2


def chunk_line_size(size: int) -> int:
    """Return the length of the `ch` line of a chunk of `size` bytes; its other fields are fixed."""
    return _CHUNK_LINE + len(str(size)) + len(str(line_count(size)))


@lru_cache(maxsize=1024)
def chunk_text_size(size: int) -> int:
    """Return the length of a chunk's text, from its `ch` line to its `endch`, for `size` bytes."""
    armored = line_count(size) * LINE_TEXT
    return chunk_line_size(size) + armored + len(END_CHUNK)


def text_size(nbytes: int) -> int:
    """Estimate how many bytes of text are needed for `nbytes` of one large array."""
    return nbytes * chunk_text_size(TARGET_CHUNK) // TARGET_CHUNK


def binary_size(text: int) -> int:
    """Estimate how many bytes of one large array are in `text` bytes of text."""
    return text * TARGET_CHUNK // chunk_text_size(TARGET_CHUNK)


def chunk_size(rows: Rows | None) -> int:
    if rows is None or not rows.blocking:
        return PLAIN_CHUNK
    return rows.rows_per_chunk * rows.row_size


def whole_blocks(size: int, first: int, end: int) -> int:
    """Return where the last full block ends when chunks `first` to `end` are cut into blocks."""
    return end - max(0, end - first) % _block_chunks(size)


def _block_chunks(size: int) -> int:
    return max(1, min(BLOCK_CHUNKS, BLOCK_BYTES // size))


def cut(nbytes: int, size: int, first: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Cut chunks `first` up to, but not including, `end` of an array into blocks.

    `nbytes` is the array's size, `size` that of its chunks. Yields each block's first chunk, its
    number of chunks, and the bytes in each of them.
    """
    whole = min(end, nbytes // size)
    step = _block_chunks(size)
    while first < whole:
        count = min(step, whole - first)
        yield first, count, size
        first += count
    if first < end:
        yield first, 1, max(0, min(size, nbytes - first * size))


def grouped(blocks: Iterable[T], chunk: Callable[[T], int | None]) -> Iterator[list[T]]:
    """Yield blocks in order, short chunks grouped as `block_armor.encode_short` takes them.

    `chunk` returns the number of bytes of a block that is a single short chunk, None for others.
    """
    group: list[T] = []
    lines = 0
    for block in blocks:
        size = chunk(block)
        is_short = size is not None and size <= _SHORT
        more = line_count(size or 0)
        if group and (not is_short or lines + more > PASS_LINES):
            yield group
            group, lines = [], 0
        if is_short:
            group.append(block)
            lines += more
        else:
            yield [block]
    if group:
        yield group
