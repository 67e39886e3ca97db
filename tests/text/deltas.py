"""Deltas made and applied in one call, as several kinds of tests want them."""

from __future__ import annotations

from wtxtgit.errors import TextError
from wtxtgit.text.delta import sides
from wtxtgit.text.delta.index import check
from wtxtgit.text.delta.patch import Applied, Regeneration, apply, make
from wtxtgit.text.delta.sides import DeltaSide, side_of_text
from wtxtgit.text.index import index


def side(text: bytes) -> DeltaSide:
    view = memoryview(text)
    return side_of_text(view, index(view))


def made(base: bytes, target: bytes, *, plain: bool = False, threads: int | None = None) -> bytes:
    making = make(side(base), side(target), plain=plain)
    return b"".join(making.pieces(threads=threads))


def applied(
    base: bytes,
    delta: bytes,
    *,
    ts: str | None = None,
    build: str | None = None,
    hmac_key: bytes | None = None,
    threads: int | None = None,
) -> bytes:
    """The target; raises TextError where the delta by itself or on its base does not hold."""
    target = target_of(side(base), delta, Regeneration(ts, build, hmac_key), threads=threads)
    return b"".join(sides.text_pieces(target.side, threads=threads))


def target_of(
    base: DeltaSide, delta: bytes, given: Regeneration, *, threads: int | None = None
) -> Applied:
    """The same as what `apply` gives."""
    report = check(memoryview(delta))
    for p in report.problems:
        chunk = p.chunk if isinstance(p.chunk, int) else None
        raise TextError(p.kind, p.message, line=p.line, array=p.array, chunk=chunk)
    return apply(base, memoryview(delta), report.index, given, threads=threads)
