"""The hashes of a side, a block at a time: hash_all, fastxor, arrays' own, HMACs.

`docs/spec/wtxt.md`, section "Root, chain, signature".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256

from wtxtgit.io.pipeline import Pipeline
from wtxtgit.io.workers import worthwhile
from wtxtgit.model import LAYOUT_ARRAY
from wtxtgit.text import digest
from wtxtgit.text.delta.sides import Raw, SideArray


@dataclass(slots=True)
class Hashes:
    """What the arrays of a side hash to; `own` and `hmac` by name, where they were asked for.

    `layout` are the bytes of `_layout`.
    """

    sha256_all: bytes = b""
    fastxor: int = 0
    own: dict[str, bytes] = field(default_factory=dict)
    hmac: dict[str, bytes] = field(default_factory=dict)
    layout: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Raw bytes of an array, its first ones or some that follow."""

    array: SideArray
    is_first: bool
    raw: memoryview


def hash_arrays(
    arrays: Sequence[SideArray],
    *,
    threads: int | None = None,
    own: Callable[[SideArray], bool] = lambda _: False,
    hmac_key: bytes | None = None,
    progress: Callable[[int], None] | None = None,
) -> Hashes:
    """Hash arrays; those that `own` picks by themselves too, and with a key each one's HMAC."""
    result = Hashes()
    whole = sha256()
    hashers = {array.name: sha256() for array in arrays if own(array)}
    macs = {}
    if hmac_key is not None:
        macs = {array.name: digest.array_hmac(hmac_key, array.claim.salt) for array in arrays}
    offset = 0

    def to_all(piece: _Piece) -> None:
        nonlocal offset
        if piece.is_first:
            whole.update(piece.array.header)
            offset = 0
        whole.update(piece.raw)
        result.fastxor ^= digest.fastxor(piece.raw, offset)
        offset += piece.raw.nbytes
        if piece.array.name == LAYOUT_ARRAY:
            result.layout += piece.raw
        if progress is not None:
            progress(piece.raw.nbytes)

    def to_own(piece: _Piece) -> None:
        for digests in (hashers, macs):
            if piece.array.name in digests:
                digests[piece.array.name].update(piece.raw)

    nbytes = sum(array.claim.nbytes for array in arrays)
    threads = worthwhile(threads, nbytes, len(arrays))
    Pipeline(_pieces(arrays), (to_all, to_own), threads).run()
    result.sha256_all = whole.digest()
    result.own = {name: hasher.digest() for name, hasher in hashers.items()}
    result.hmac = {name: mac.digest() for name, mac in macs.items()}
    return result


def _pieces(arrays: Sequence[SideArray]) -> Iterator[Callable[[], _Piece]]:
    for array in arrays:
        is_first = True
        for raw in array.raw(0, array.chunks):
            yield partial(_made, array, is_first, raw)
            is_first = False


def _made(array: SideArray, is_first: bool, raw: Raw) -> _Piece:
    return _Piece(array, is_first, raw())
