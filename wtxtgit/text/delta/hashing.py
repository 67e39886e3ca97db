"""The hashes of a side, a block at a time: hash_all, fastxor, arrays' own, HMACs.

`docs/spec/wtxt.md`, section "Root, chain, signature".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256

from wtxtgit.model import LAYOUT_ARRAY
from wtxtgit.text import digest
from wtxtgit.text.delta.sides import SideArray
from wtxtgit.text.parallel import Lane, Pool


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


def hash_arrays(
    arrays: Iterable[SideArray],
    pool: Pool,
    *,
    own: Callable[[SideArray], bool] = lambda _: False,
    hmac_key: bytes | None = None,
    progress: Callable[[int], None] | None = None,
) -> Hashes:
    """Hash arrays; those that `own` picks by themselves too, and with a key each one's HMAC."""
    result = Hashes()
    whole = sha256()
    in_all, in_own, in_mac = Lane(pool), Lane(pool), Lane(pool)
    hashers, macs = {}, {}
    for array in arrays:
        name = array.name
        in_all.put(partial(whole.update, array.header))
        if own(array):
            hashers[name] = sha256()
        if hmac_key is not None:
            macs[name] = digest.array_hmac(hmac_key, array.claim.salt)
        offset = 0
        for raw in pool.ordered(array.raw(0, array.chunks)):
            result.fastxor ^= digest.fastxor(raw, offset)
            offset += raw.nbytes
            in_all.put(partial(whole.update, raw))
            if name in hashers:
                in_own.put(partial(hashers[name].update, raw))
            if name in macs:
                in_mac.put(partial(macs[name].update, raw))
            if name == LAYOUT_ARRAY:
                result.layout += raw
            if progress is not None:
                progress(raw.nbytes)
    for lane in (in_all, in_own, in_mac):
        lane.wait()
    result.sha256_all = whole.digest()
    result.own = {name: hasher.digest() for name, hasher in hashers.items()}
    result.hmac = {name: mac.digest() for name, mac in macs.items()}
    return result
