"""What damaged lines may have said: the `arr` line of an array, and a text's header.

Each function yields candidates, the likeliest first. None of them is trusted: the text's root has
to prove the one that is used (`rebuilding.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from math import isqrt

from wtxtgit.model.array import (
    EPOCH,
    ITEM_SIZE,
    Meta,
    Rows,
    bounded_product,
    default_rows,
)
from wtxtgit.text import digest, grammar
from wtxtgit.text.grammar import MAX_NUMBER
from wtxtgit.text.recovery.chunk import NEAR, is_near
from wtxtgit.text.recovery.reading import distance

_NAME = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
_TOKEN = _NAME + b"./+:@-"
_DIGITS = b"0123456789"
_USUAL = Meta()
_HEX = _DIGITS + b"abcdef"
KEYS = (b"arr name=", b" dtype=", b" shape=", b" order=C bytes=", b" sha256=", b" hmac=", b" salt=")
_META_KEYS = (b"meta schema=", b" gen=", b" ts=", b" build=", b" endian=LE host=", b" cuda=")
_MOST_SHAPE = 256
"""A wrong character is searched in shapes of up to this many characters: each gives candidates."""
_MOST_FACTOR = 1024
"""Dimensions that are tried: the smaller one of two factors is at most this."""
_MOST_LINE = 8192
"""Keys with wrong characters are searched in lines of up to this many bytes."""
_ROOT_KEYS = (b"root sha256_all=", b" merkle_prev=", b" merkle_this=", b" fastxor=")


def fields(line: bytes, keys: Sequence[bytes]) -> list[bytes] | None:
    """Return the value after each of `keys` on a line; None if one of the keys can't be found.

    Keys may have wrong characters: each is assumed to be where it fits best.
    """
    starts: list[tuple[int, int]] = []
    at = 0
    for number, key in enumerate(keys):
        exact = at if line.startswith(key, at) else line.find(key, at)
        if exact >= 0 and (number or exact == 0):
            starts.append((exact, exact + len(key)))
            at = exact + len(key)
            continue
        if len(line) > _MOST_LINE:
            return None
        places = [0] if number == 0 else range(at, len(line) - len(key) + 1)
        best = min(
            ((distance(line[place : place + len(key)], key), place) for place in places),
            default=None,
        )
        if best is None or best[0] > max(NEAR, len(key) // 3):
            return None
        starts.append((best[1], best[1] + len(key)))
        at = best[1] + len(key)
    ends = [start for start, _ in starts[1:]] + [len(line)]
    return [line[start:end] for (_, start), end in zip(starts, ends, strict=True)]


def array_lines(
    line: bytes, raw_sha256: bytes, nbytes: int, names: Sequence[str] | None = None
) -> Iterator[grammar.ArrayLine]:
    """Yield what an `arr` line may have said of an array whose bytes are known.

    `names` are its possible names, if the text's layout tells them.
    """
    values = fields(line, KEYS)
    if values is None:
        return
    name, dtype, shape, _, _, hmac, salt = values
    kinds = sorted(_kinds(dtype, shape, nbytes))
    for spelled in _names(name) if names is None else names:
        for _, one_dtype, one_shape in kinds:
            for one_hmac in hashes(hmac, 64):
                for one_salt in hashes(salt, 16):
                    yield grammar.ArrayLine(
                        spelled, one_dtype, one_shape, nbytes, raw_sha256, one_hmac, one_salt
                    )


def lost_lines(
    name: str, rows: Rows | None, raw_sha256: bytes, nbytes: int
) -> Iterator[grammar.ArrayLine]:
    """Yield what a missing `arr` line may have said, with one or two dimensions first.

    The length of a row follows from its `idx` line. More dimensions are tried if our writer would
    have made that line from them.
    """
    for dtype, item in ITEM_SIZE.items():
        shapes: list[tuple[int, ...]] = []
        if nbytes % item == 0:
            shapes.append((nbytes // item,))
        row = 0 if rows is None else rows.row_size
        if row > item and row % item == 0 and nbytes % row == 0:
            shapes.append((nbytes // row, row // item))
        for shape in shapes:
            yield grammar.ArrayLine(name, dtype, shape, nbytes, raw_sha256, bytes(32), bytes(8))
    for dtype, item in ITEM_SIZE.items():
        if rows is None or nbytes % rows.row_size or rows.row_size % item:
            continue
        for shape in _more_dimensions(nbytes // rows.row_size, rows.row_size // item):
            if default_rows(dtype, shape) == rows:
                yield grammar.ArrayLine(name, dtype, shape, nbytes, raw_sha256, bytes(32), bytes(8))


def _more_dimensions(count: int, row: int) -> Iterator[tuple[int, ...]]:
    """Yield shapes of three and four dimensions with so many rows, each of so many items."""
    heads, tails = _splits(count), _splits(row)
    if row == 1:
        # The last dimension alone exceeds a chunk: then a row is a single item.
        tails.append(())
    for dimensions in (3, 4):
        yield from (
            (*head, *tail)
            for head in heads
            for tail in tails
            if len(head) + len(tail) == dimensions
        )


def _splits(value: int) -> list[tuple[int, ...]]:
    """Return one to three dimensions whose product is `value`."""
    pairs = list(_factors(value))
    threes = [(first, *rest) for first, second in pairs for rest in _factors(second)]
    return [(value,), *pairs, *threes]


def _factors(value: int) -> Iterator[tuple[int, int]]:
    """Yield pairs of dimensions whose product is `value`, one of which is small."""
    for factor in range(1, min(isqrt(value), _MOST_FACTOR) + 1):
        if value % factor == 0:
            yield factor, value // factor
            if factor * factor != value:
                yield value // factor, factor


def _kinds(dtype: bytes, shape: bytes, nbytes: int) -> Iterator[tuple[int, str, tuple[int, ...]]]:
    """Yield dtypes and shapes of `nbytes` bytes, with the number of characters that differ."""
    for name, item in ITEM_SIZE.items():
        off = distance(dtype, name.encode()) + abs(len(dtype) - len(name))
        if off > NEAR:
            continue
        for more, dims in _shapes(shape):
            if bounded_product(item, dims, MAX_NUMBER) == nbytes:
                yield off + more, name, dims


def _shapes(shape: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    if distance(shape, b"scalar") <= NEAR and len(shape) == len(b"scalar"):
        yield distance(shape, b"scalar"), ()
    spelled = {shape: 0}
    for at in range(len(shape) if len(shape) <= _MOST_SHAPE else 0):
        for other in b"0123456789,":
            changed = shape[:at] + bytes((other,)) + shape[at + 1 :]
            spelled.setdefault(changed, 1)
    for text, off in spelled.items():
        dims = text.split(b",")
        if all(re.fullmatch(rb"0|[1-9][0-9]{0,19}", dim) for dim in dims):
            yield off, tuple(map(int, dims))


def _names(name: bytes) -> Iterator[str]:
    spelled = name.decode("latin-1")
    if grammar.is_array_name(spelled):
        yield spelled
    yield from (
        spelling.decode("ascii")
        for spelling in _spellings(name, _NAME)
        if grammar.is_array_name(spelling.decode("latin-1"))
    )


def hashes(digits: bytes, count: int) -> Iterator[bytes]:
    """Yield what a hash of `count` digits may have been.

    That is zeros if it nearly is, else the hash as it stands if it can be read, else each way to
    change one digit.
    """
    # No HMAC is nearly all zeros by chance.
    if len(digits) == count and distance(digits, b"0" * count) <= NEAR:
        yield bytes(count // 2)
        return
    if len(digits) == count and all(digit in _HEX for digit in digits):
        yield bytes.fromhex(digits.decode())
        return
    yield from (
        bytes.fromhex(spelling.decode())
        for spelling in _spellings(digits, _HEX)
        if len(spelling) == count
    )


def near_zeros(value: bytes) -> bytes:
    """Return an HMAC or salt as it stands, or zeros if it is nearly zeros."""
    digits = value.hex().encode()
    return bytes(len(value)) if distance(digits, b"0" * len(digits)) <= NEAR else value


def _spellings(value: bytes, alphabet: bytes) -> Iterator[bytes]:
    """Yield a value with one character changed: the one that can't be right, else any.

    Nothing if several can't be right.
    """
    off = [at for at, character in enumerate(value) if character not in alphabet]
    if len(off) > 1:
        return
    for at in off or range(len(value)):
        for other in alphabet:
            changed = value[:at] + bytes((other,)) + value[at + 1 :]
            if changed != value:
                yield changed


def root_fields(line: bytes | None) -> tuple[str, str, str] | None:
    """Return the hashes of a `root` line as they stand: sha256_all, merkle_prev, merkle_this."""
    values = None if line is None else fields(line, _ROOT_KEYS)
    if values is None:
        return None
    first, second, third, _ = (value.decode("latin-1") for value in values)
    return first, second, third


def headers(
    line: bytes | None, prev: str, this: str, sha256_all: bytes, schema: str | None
) -> Iterator[tuple[Meta, bytes]]:
    """Yield what `meta` and merkle_prev may have said, if merkle_this proves it.

    `schema` is the one that belongs to the layout's format, None for a text without a layout.
    """
    for meta, before in _pairs(line, prev, schema):
        if is_near(digest.merkle(before, sha256_all, meta).hex(), this):
            yield _plain(meta), before


@lru_cache(maxsize=1)
def _pairs(line: bytes | None, prev: str, schema: str | None) -> list[tuple[Meta, bytes]]:
    """Return what both may have said; cached, as it is needed for each hash_all that is tried."""
    metas, befores = list(_metas(line, schema)), list(previous(prev))
    # At least one of the two is assumed to be right.
    pairs = [(meta, before) for meta in metas for before in befores[:1]]
    return pairs + [(meta, before) for meta in metas[:2] for before in befores[1:]]


def _metas(line: bytes | None, schema: str | None) -> Iterator[Meta]:
    values = None if line is None else fields(line, _META_KEYS)
    if values is None:
        # The one that clean writes, which is always the same.
        yield Meta(schema=schema or _USUAL.schema)
        return
    named, gen, ts, build, host, cuda = values
    expected = (schema or _USUAL.schema).encode()
    if schema is not None or (len(named) == len(expected) and distance(named, expected) <= NEAR):
        named = expected
    # No hash covers these two: an invalid value is replaced by the usual one.
    host = host if _is_token(host) else _USUAL.host.encode()
    cuda = cuda if _is_token(cuda) else _USUAL.cuda.encode()

    def meta(gen: bytes, ts: bytes, build: bytes) -> Meta | None:
        spelled = b"meta schema=%b gen=%b ts=%b build=%b endian=LE host=%b cuda=%b\n" % (
            named, gen, ts, build, host, cuda,
        )  # fmt: skip
        parsed = grammar.parse_meta(spelled, 0)
        return None if parsed is None else parsed[0]

    usual_gen, usual_ts = grammar.format_gen(_USUAL.gen).encode(), EPOCH.encode()
    tries = [(gen, ts, build)]
    near = [
        usual_gen if distance(gen, usual_gen) <= NEAR and len(gen) == len(usual_gen) else gen,
        usual_ts if distance(ts, usual_ts) <= NEAR and len(ts) == len(usual_ts) else ts,
        b"none" if distance(build, b"none") <= NEAR and len(build) == 4 else build,
    ]
    tries.append((near[0], near[1], near[2]))
    tries += [(spelling, ts, build) for spelling in _spellings(gen, _DIGITS)]
    tries += [(gen, spelling, build) for spelling in _spellings(ts, _DIGITS + b"-:TZ")]
    tries += [(gen, ts, spelling) for spelling in _spellings(build, _TOKEN)]
    for spelled in dict.fromkeys(tries):
        if (parsed_meta := meta(*spelled)) is not None:
            yield parsed_meta


def previous(prev: str) -> Iterator[bytes]:
    """Yield what a merkle_prev may have been."""
    yield from hashes(prev.encode("latin-1"), 64)


def _plain(meta: Meta) -> Meta:
    """Replace host and cuda by clean's values if they are nearly those.

    Only if gen, ts and build are clean's, too: no hash covers host and cuda.
    """
    if (meta.gen, meta.ts, meta.build) != (_USUAL.gen, _USUAL.ts, _USUAL.build):
        return meta
    host = _USUAL.host if _is_like(meta.host, _USUAL.host) else meta.host
    cuda = _USUAL.cuda if _is_like(meta.cuda, _USUAL.cuda) else meta.cuda
    return replace(meta, host=host, cuda=cuda)


def _is_like(value: str, usual: str) -> bool:
    return len(value) == len(usual) and distance(value.encode(), usual.encode()) <= 1


def _is_token(value: bytes) -> bool:
    return grammar.is_token(value.decode("latin-1"))


def caps(line: bytes | None, has_layout: bool) -> tuple[str, ...]:
    """Return the items of the `cap` line: as they stand if they are valid, else the usual ones."""
    usual = (*grammar.CAP, grammar.CAP_LAYOUT) if has_layout else grammar.CAP
    spelled = grammar.format_cap(usual)
    if line is None or (len(line) + 1 == len(spelled) and distance(line, spelled[:-1]) <= NEAR):
        return usual
    parsed = grammar.parse_cap(line + b"\n", 0)
    if parsed is None or (grammar.CAP_LAYOUT in parsed[0]) != has_layout:
        return usual
    return parsed[0]


def rows_of(
    line: bytes | None,
    dtype: str,
    shape: tuple[int, ...],
    chunk_size: int,
    nbytes: int,
    *,
    is_due: bool,
) -> Rows | None:
    """Return the row blocking of an array with this chunk size: as it stands, or the usual one.

    Without a line there is none, unless one `is_due`.
    """
    usual = default_rows(dtype, shape)
    parsed = None if line is None else grammar.parse_rows(line + b"\n", 0)
    fits = chunk_size >= nbytes or grammar.chunk_size(usual) == chunk_size
    if line is not None and fits:
        spelled = grammar.format_rows(usual)[:-1]
        if len(line) == len(spelled) and distance(line, spelled) <= NEAR:
            return usual
    if parsed is not None and grammar.check_rows(parsed[0], dtype) is None:
        size = grammar.chunk_size(parsed[0])
        if size == chunk_size or (nbytes <= chunk_size and nbytes <= size):
            return parsed[0]
    if line is None and chunk_size == grammar.PLAIN_CHUNK and not is_due:
        return None
    if grammar.chunk_size(usual) == chunk_size or nbytes <= grammar.chunk_size(usual):
        return usual
    row = usual.row_size if chunk_size % usual.row_size == 0 else ITEM_SIZE[dtype]
    return Rows(chunk_size // row, row)
