"""The deltas of `tests/data/deltas.json`, made from the words of `docs/spec/delta.md` alone.

They are places at which two readers could differ; the texts around them are
spelled by `tests.text.edge_texts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.text.edge_texts import KEY, Arr, Text, chunk, file_text

FIVE = Arr("a", bytes([1, 2, 3, 4, 5]))
OTHER = replace(FIVE, raw=bytes([1, 2, 3, 4, 9]))
SECOND = Arr("b", b"bb")
LAST = "9" * 20


@dataclass(frozen=True)
class Made:
    """A delta on a base: the target, or the kind of the error that refuses it."""

    name: str
    note: str
    base: bytes
    delta: bytes
    target: bytes | None = None
    kind: str | None = None
    hmac_key: bytes | None = None

    @property
    def record(self) -> dict[str, Any]:
        texts = {"base": self.base, "delta": self.delta, "target": self.target}
        held = {key: None if raw is None else raw.decode("ascii") for key, raw in texts.items()}
        key = None if self.hmac_key is None else self.hmac_key.hex()
        return {"name": self.name, "note": self.note, **held, "kind": self.kind, "hmac_key": key}


def head(base: Text) -> bytes:
    return b"WTXT-DELTA 2 base_sha256_all=%b\n" % base.hash_all.hex().encode()


def bound(base: Text, target: Text, *blocks: bytes) -> bytes:
    lines = target.covered.removeprefix(b"WTXT 1\n")
    return head(base) + lines + b"".join(blocks) + b"enddelta\n"


def plain(base: Text, *blocks: bytes) -> bytes:
    return head(base) + b"".join(blocks) + b"enddelta\n"


def patch(arr: Arr, *chunks: bytes) -> bytes:
    """A block of a bound delta that has no idx line."""
    return arr.line + b"\n" + b"".join(chunks) + b"endarr\n"


def patch_plain(name: str, *chunks: bytes) -> bytes:
    return b"arr name=%b\n" % name.encode() + b"".join(chunks) + b"endarr\n"


def made() -> list[Made]:
    found = [*_bound(), *_plain()]
    assert len({one.name for one in found}) == len(found)
    return found


def _bound() -> Iterator[Made]:
    base = Text((FIVE, SECOND))

    def good(name: str, base: Text, target: Text, *blocks: bytes, note: str) -> Made:
        return Made(name, note, base.bytes, bound(base, target, *blocks), target.bytes)

    def bad(name: str, kind: str, target: Text, *blocks: bytes, note: str) -> Made:
        return Made(name, note, base.bytes, bound(base, target, *blocks), kind=kind)

    tall = replace(FIVE, shape=(5, 1))
    yield good(
        "whole_of_the_bases_chunks",
        base,
        Text((tall, SECOND)),
        tall.block,
        note="another shape: a whole block, whose idx line and chunk are the base's",
    )
    uncut = replace(FIVE, idx=False)
    signed = replace(uncut, dtype="i8")
    yield good(
        "whole_without_idx",
        Text((uncut,)),
        Text((signed,)),
        patch(signed, chunk(0, 0, signed.raw)),
        note="another dtype: a whole block without an idx line",
    )
    target = Text((OTHER, SECOND))
    whole = chunk(0, 0, OTHER.raw)
    yield good("patched", base, target, patch(OTHER, whole), note="the chunk that changed")
    yield bad(
        "idx_of_the_base",
        "structure",
        target,
        OTHER.block,
        note="a patched block with the base's idx line",
    )
    yield bad(
        "arr_of_the_base",
        "structure",
        target,
        patch(OTHER, whole),
        patch(SECOND),
        note="an arr line that is the base's",
    )
    salted = replace(FIVE, salt=b"saltsalt")
    yield bad(
        "chunk_of_the_base",
        "structure",
        Text((salted, SECOND)),
        patch(salted, chunk(0, 0, FIVE.raw)),
        note="another salt, and a chunk that is the base's",
    )
    yield bad(
        "out_of_order",
        "structure",
        Text((OTHER,)),
        b"del name=b\n",
        patch(OTHER, whole),
        note="names do not ascend",
    )
    yield bad("del_of_nothing", "structure", base, b"del name=c\n", note="the base has no c")
    yield bad(
        "patch_of_nothing",
        "structure",
        Text((FIVE, SECOND, replace(FIVE, name="c"))),
        patch(replace(FIVE, name="c")),
        note="the base has no c, and a new array has all its chunks",
    )
    yield bad(
        "shape_does_not_fit",
        "structure",
        target,
        patch(OTHER, whole).replace(b"shape=5", b"shape=6"),
        note="bytes is not item size x shape: seen without the base",
    )
    yield bad(
        "whole_lacks_a_chunk",
        "structure",
        Text((replace(FIVE, dtype="i8"), SECOND)),
        patch(replace(FIVE, dtype="i8")),
        note="another dtype, and no chunks",
    )
    built = bound(base, replace(target, build="b1"), patch(OTHER, whole))
    yield Made(
        "merkle_wrong",
        "another build than the root line has",
        base.bytes,
        built.replace(b"build=b1", b"build=b2"),
        kind="merkle",
    )
    yield bad(
        "hash_of_the_array",
        "array_sha256",
        target,
        patch(OTHER, whole).replace(OTHER.line, FIVE.line.replace(b"salt=0", b"salt=1")),
        note="the arr line has the hash of other bytes",
    )
    yield bad("not_all_said", "root", target, note="the target's root is not that of the base")
    yield Made("other_base", "not its base", Text((FIVE,)).bytes, bound(base, target), kind="root")


def _plain() -> Iterator[Made]:
    base = Text((FIVE, SECOND))
    a = patch_plain("a", chunk(0, 0, OTHER.raw))
    b = patch_plain("b", chunk(0, 0, b"BB"))

    def after(base: Text, *arrays: Arr, gen: str = "000001") -> bytes:
        return replace(base, arrays=arrays, gen=gen, prev=base.this).bytes

    def bad(name: str, kind: str, *blocks: bytes, note: str) -> Made:
        return Made(name, note, base.bytes, plain(base, *blocks), kind=kind)

    changed = replace(SECOND, raw=b"BB")
    yield Made("plain", "", base.bytes, plain(base, a, b), after(base, OTHER, changed))
    yield Made(
        "plain_of_nothing",
        "the next generation alone",
        base.bytes,
        plain(base),
        after(base, FIVE, SECOND),
    )
    yield Made(
        "plain_with_key",
        "hmacs of all arrays, with the base's salts, be they zeros",
        base.bytes,
        plain(base, b),
        after(base, replace(FIVE, mac=True), replace(changed, mac=True)),
        hmac_key=KEY,
    )
    macs = Text((replace(FIVE, mac=True, salt=b"saltsalt"), replace(SECOND, mac=True)))
    yield Made(
        "plain_without_key",
        "without the key zeros in arrays that changed, the salt stays",
        macs.bytes,
        plain(macs, a),
        after(macs, replace(OTHER, salt=b"saltsalt"), macs.arrays[1]),
    )
    yield bad("plain_out_of_order", "structure", b, a, note="names ascend in the plain form, too")
    yield bad("plain_twice", "structure", a, a, note="a name twice")
    yield bad("plain_without_chunks", "structure", patch_plain("a"), note="a block says something")
    yield bad(
        "plain_chunk_of_the_base",
        "structure",
        patch_plain("a", chunk(0, 0, FIVE.raw)),
        note="a chunk that is the base's",
    )
    yield bad(
        "plain_new_array",
        "structure",
        patch_plain("c", chunk(0, 0, b"c")),
        note="none is added",
    )
    yield bad(
        "plain_longer_chunk",
        "structure",
        patch_plain("b", chunk(0, 0, b"BBB")),
        note="an array keeps its length",
    )
    last = replace(base, gen=LAST)
    yield Made(
        "plain_of_the_last_generation",
        "no generation follows: a number has at most 20 digits",
        last.bytes,
        plain(last, a),
        kind="limit",
    )
    layout = '{"extents":[],"format":"opaque","size":0,"v":1}'
    container = file_text(layout)
    yield Made(
        "plain_of_a_container",
        "the plain form is not for texts with a _layout",
        container.bytes,
        plain(container),
        kind="layout",
    )
