"""Making a delta from two sides (`make`), and applying one to its base (`apply`).

`docs/spec/delta.md`, sections "The bound form", "The plain form" and "Applying".

`make` compares chunks by their hashes: chunks that did not change are not read. `apply` is given
a base that was verified and a delta that was checked by itself. It checks that they fit together,
and that the target is what the delta says, before any of the target is handed out. Numbers in
comments are those of the section "Applying".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from wtxtgit.errors import TextError
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import Buffer, ByteView, mapped
from wtxtgit.io.workers import Workers, worthwhile
from wtxtgit.model.array import LAYOUT_ARRAY, Layout, Meta, default_rows
from wtxtgit.text import digest, grammar
from wtxtgit.text.delta import index
from wtxtgit.text.delta.index import (
    DeltaBlock,
    DeltaChunk,
    DeltaIndex,
    check_places,
    check_whole,
    decode,
)
from wtxtgit.text.delta.sides import (
    DeltaSide,
    Hashes,
    Raw,
    SideArray,
    Text,
    hash_arrays,
    side_of_text,
)
from wtxtgit.text.grammar import chunk_line_size, chunk_text_size
from wtxtgit.text.index import TextIndex
from wtxtgit.text.layout import layout_of
from wtxtgit.text.verify import mismatch, raise_first


@dataclass(frozen=True, slots=True, eq=False)
class DeltaStep:
    """A block of the planned delta; `runs` are (first, end) of the chunks that it carries."""

    name: str
    target: SideArray | None = None
    whole: bool = False
    runs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Making:
    """A delta that is ready to be written; `steps` are its blocks in order."""

    base: DeltaSide
    target: DeltaSide
    steps: tuple[DeltaStep, ...]
    plain: bool = False

    @property
    def takes_nothing(self) -> bool:
        """Whether the target reuses nothing of the base, not even a part of an array."""
        steps = {step.name: step for step in self.steps}
        targets = [(array, steps.get(array.name)) for array in self.target.arrays]
        return bool(targets) and all(
            step is not None and _carried(step) == array.chunks for array, step in targets
        )

    @property
    def carried(self) -> int:
        """How many bytes of arrays the delta carries, counting an array's last chunk as full."""
        return sum(_carried(step) * step.target.chunk_size for step in self.steps if step.target)

    def pieces(self, *, threads: int | None = None) -> Iterator[Buffer]:
        """Yield the delta in order, in pieces."""
        yield index.format_first(self.base.root.sha256_all)
        if not self.plain:
            yield self.target.header
        with Workers(self._blocks(), worthwhile(threads, self.carried)) as texts:
            yield from texts
        yield (b"" if self.plain else self.target.footer) + index.LAST_LINE

    def _blocks(self) -> Iterator[Text]:
        for step in self.steps:
            yield partial(bytes, self._opening(step))
            if step.target is not None:
                for first, last in step.runs:
                    yield from step.target.text(first, last)
                yield partial(bytes, grammar.END_ARRAY)

    def _opening(self, step: DeltaStep) -> bytes:
        if step.target is None:
            return index.format_removed(step.name)
        if self.plain:
            return index.format_plain_array(step.name)
        return step.target.lead if step.whole else grammar.format_array(step.target.claim)


def make(base: DeltaSide, target: DeltaSide, *, plain: bool = False) -> Making:
    """Plan the delta from `base` to `target`.

    Raises TextError for changes that a delta can't express: `docs/spec/delta.md`, section "Limits".
    """
    steps = tuple(_steps(base, target))
    if sum(step.target is None for step in steps) > index.MAX_REMOVED:
        raise TextError("limit", f"a delta removes at most {index.MAX_REMOVED} arrays")
    if plain:
        _check_plain(base, target, steps)
        steps = tuple(step for step in steps if step.runs)
    return Making(base, target, steps, plain)


def _steps(base: DeltaSide, target: DeltaSide) -> Iterator[DeltaStep]:
    before = {array.name: array for array in base.arrays}
    after = {array.name: array for array in target.arrays}
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if new is None:
            yield DeltaStep(name)
        elif old is None or not _same_cut(old, new):
            yield DeltaStep(name, new, True, ((0, new.chunks),))
        elif old.claim != new.claim:
            yield DeltaStep(name, new, False, tuple(_changed_runs(old, new)))


def _same_cut(old: SideArray, new: SideArray) -> bool:
    """Whether both arrays have the same dtype and shape and are cut into the same chunks.

    Raises TextError "structure" if only the old one has an `idx` line.
    """
    if (old.claim.dtype, old.claim.shape) != (new.claim.dtype, new.claim.shape):
        return False
    if new.rows is None and old.rows is not None:
        raise TextError(
            "structure",
            f'array "{new.name}" lost its idx line, which a delta can\'t express',
            array=new.name,
        )
    return old.rows == new.rows


def _changed_runs(old: SideArray, new: SideArray) -> Iterator[tuple[int, int]]:
    pairs = zip(old.sha256, new.sha256, strict=True)
    changed = (ix for ix, (a, b) in enumerate(pairs) if a != b)
    # In a run of consecutive numbers, number minus index is constant: each run is one group.
    for _, run in groupby(enumerate(changed), lambda pair: pair[1] - pair[0]):
        every = [ix for _, ix in run]
        yield every[0], every[-1] + 1


def _check_plain(base: DeltaSide, target: DeltaSide, steps: tuple[DeltaStep, ...]) -> None:
    if any(array.name == LAYOUT_ARRAY for side in (base, target) for array in side.arrays):
        raise TextError("layout", f"a text with {LAYOUT_ARRAY} has no plain delta")
    for step in steps:
        if step.target is None or step.whole:
            what = (
                "is removed"
                if step.target is None
                else "is new, or changed its dtype, shape or chunk size"
            )
            message = f'array "{step.name}" {what}, which a plain delta can\'t express'
            raise TextError("structure", message, array=step.name)


def _carried(step: DeltaStep) -> int:
    return sum(last - first for first, last in step.runs)


_ZERO_HMAC = bytes(32)
_FREE = ("schema", "host", "cuda")
"""Fields of `meta` that merkle_this does not cover."""


@dataclass(frozen=True, slots=True)
class Regeneration:
    """What a plain delta does not say of its target; None takes the base's value."""

    ts: str | None = None
    build: str | None = None
    hmac_key: bytes | None = None

    def meta_after(self, base: Meta) -> Meta:
        """Return the `meta` of the generation after `base`.

        Raises TextError "limit" if a number would need one digit more than a `meta` line may have.
        """
        # A `meta` line has no room for one more digit.
        if base.gen >= grammar.MAX_GEN:
            raise TextError("limit", f"no generation follows {base.gen}")
        return replace(
            base, gen=base.gen + 1, ts=self.ts or base.ts, build=self.build or base.build
        )


@dataclass(frozen=True, slots=True, eq=False)
class Applied:
    """The proved target; `layout` is set if it has one.

    `uncovered` lists what in the target rests on the delta's word alone.
    """

    side: DeltaSide
    layout: Layout | None
    uncovered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class PatchedArray(SideArray):
    """An array of the target: chunks from `delta`, a delta's text, the others from `base`."""

    base: SideArray | None
    carried: dict[int, DeltaChunk]
    delta: ByteView

    def raw(self, first: int, last: int) -> Iterator[Raw]:
        for chunk, start, end in self._runs(first, last):
            if chunk is not None:
                yield partial(self._decode, chunk)
            elif self.base is not None:
                yield from self.base.raw(start, end)

    def text(self, first: int, last: int) -> Iterator[Text]:
        for chunk, start, end in self._runs(first, last):
            if chunk is not None:
                yield partial(self._slice, chunk)
            elif self.base is not None:
                yield from self.base.text(start, end)

    def _runs(self, first: int, last: int) -> Iterator[tuple[DeltaChunk | None, int, int]]:
        """Yield the delta's chunks one by one and the base's in runs, each with first and end."""
        for is_carried, run in groupby(range(first, last), self.carried.__contains__):
            if is_carried:
                yield from ((self.carried[ix], ix, ix + 1) for ix in run)
            else:
                every = list(run)
                yield None, every[0], every[-1] + 1

    def _decode(self, chunk: DeltaChunk) -> memoryview:
        raw = decode(self.delta, chunk)
        if raw is None:
            raise TextError("structure", "the delta changed while it was read", array=self.name)
        return raw

    def _slice(self, chunk: DeltaChunk) -> memoryview:
        size = chunk.claim.size
        start = chunk.start - chunk_line_size(size)
        return mapped(self.delta[start : start + chunk_text_size(size)])


def apply(
    base: DeltaSide,
    text: ByteView,
    delta: DeltaIndex,
    regeneration: Regeneration,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Applied:
    """Apply `delta`, whose bytes are `text`, to `base`.

    Raises TextError if `base` is not its base, if they do not fit together, or if the target is not
    what the delta says. `regeneration` is for plain deltas, and must make a valid `meta` line; if
    it has a key, every HMAC of a bound target is checked.
    """
    # (2) The base is the one that the delta names. The caller has verified it, and checked (1).
    if delta.base != base.root.sha256_all:
        named = "nothing" if delta.base is None else delta.base.hex()[:16]
        own = base.root.sha256_all.hex()[:16]
        message = f"the delta is for a base with sha256_all {named}..., but this one has {own}..."
        raise TextError("root", message)
    # (3) Delta and base fit together, and (4) the delta says nothing redundant.
    arrays = tuple(_patched(base, text, delta))
    if delta.head is None:
        regenerated = _regenerated(base, arrays, regeneration, threads, progress)
        return Applied(regenerated, None, ("which arrays the chunks of a plain delta belong to",))
    head = delta.head
    target = DeltaSide(head.meta, head.cap, head.root, head.signature, arrays, delta.audit)
    hashes = hash_arrays(
        arrays, threads=threads, own=_is_patched, hmac_key=regeneration.hmac_key, progress=progress
    )
    # (5) The target is what the delta says.
    _prove(target, hashes)
    claims = [array.claim for array in arrays]
    layout = layout_of(head.meta, head.cap, claims, bytes(hashes.layout))
    return Applied(target, layout, tuple(_uncovered(base, target)))


def side_of_delta(
    text: ByteView, base: TextIndex, delta: ByteView, *, threads: int | None = None
) -> DeltaSide:
    """Return the target of a bound delta on a verified text; raises TextError as `apply` does."""
    checked = index.check(delta)
    raise_first(checked.problems)
    on = side_of_text(text, base)
    return apply(on, delta, checked.index, Regeneration(), threads=threads).side


def _uncovered(base: DeltaSide, target: DeltaSide) -> Iterator[str]:
    """Yield descriptions of what no hash covers and neither the base nor clean would say."""
    values = [("audit", target.audit, base.audit)]
    values += [(name, getattr(target.meta, name), getattr(base.meta, name)) for name in _FREE]
    values.append(("cap ext", ",".join(target.cap), ",".join(base.cap)))
    if target.signature is not None:
        # The signature covers these lines, but only verify, which is given keys, knows who signed.
        yield "the signature"
    for name, value, before in values:
        if value != before:
            yield f"{name}={value}" if value is not None else f"{name}, which does not exist"
    for array in target.arrays:
        usual = default_rows(array.claim.dtype, array.claim.shape)
        # An array that the base cuts in the same way is patched chunk by chunk.
        is_new = isinstance(array, PatchedArray) and array.base is None
        if is_new and array.rows is not None and array.rows != usual:
            yield f'idx of the array "{array.name}"'


def _patched(base: DeltaSide, text: ByteView, delta: DeltaIndex) -> Iterator[SideArray]:
    """Yield the target's arrays in order; raises TextError for what does not fit the base."""
    before = {array.name: array for array in base.arrays}
    changes = {change.name: change for change in delta.changes}
    if delta.head is None and LAYOUT_ARRAY in before:
        raise TextError("layout", f"a plain delta can't be applied to texts with {LAYOUT_ARRAY}")
    for name in sorted(before.keys() | changes.keys()):
        old, change = before.get(name), changes.get(name)
        if change is None:
            if old is not None:
                yield old
        elif old is None and (change.removed or change.claim is None):
            what = f'the base has no array "{name}"'
            raise TextError("structure", what, line=change.line, array=name)
        elif not change.removed:
            yield _array(old, text, change)


def _array(old: SideArray | None, text: ByteView, change: DeltaBlock) -> SideArray:
    claim = change.claim
    if claim is None and old is not None:
        claim = replace(old.claim, hmac=_ZERO_HMAC)
    if claim is None:
        raise TextError("structure", "an array without its arr line", array=change.name)
    carried = {chunk.claim.ix: chunk for chunk in change.chunks}
    if old is None or _is_whole(old, change):
        # (3) A whole block has all chunks into which its own `idx` line cuts the array.
        check_whole(change, claim)
        digests = [chunk.claim.sha256 for chunk in change.chunks]
        return PatchedArray(claim, change.rows, digests, None, carried, text)
    # (4) There must be only one bound delta for a given base and target.
    if change.rows is not None or change.claim == old.claim:
        what = "the idx line is" if change.rows is not None else "the arr line is"
        line = change.line + (change.rows is not None)
        raise TextError("structure", f"{what} the base's", line=line, array=change.name)
    # (3) The base has chunks of the same sizes at these places.
    check_places(change, old.rows, claim.nbytes)
    for chunk in change.chunks:
        if chunk.claim.sha256 == old.sha256[chunk.claim.ix]:
            raise TextError(
                "structure",
                "the chunk is the base's",
                line=chunk.line - 1,
                array=change.name,
                chunk=chunk.claim.ix,
            )
    digests = [
        carried[ix].claim.sha256 if ix in carried else own for ix, own in enumerate(old.sha256)
    ]
    return PatchedArray(claim, old.rows, digests, old, carried, text)


def _is_whole(old: SideArray, change: DeltaBlock) -> bool:
    """Whether a block must have the whole array although the base has it: dtype or cut differ."""
    claim = change.claim
    if claim is not None and (old.claim.dtype, old.claim.shape) != (claim.dtype, claim.shape):
        return True
    return change.rows is not None and change.rows != old.rows


def _is_patched(array: SideArray) -> bool:
    return isinstance(array, PatchedArray)


def _regenerated(
    base: DeltaSide,
    arrays: tuple[SideArray, ...],
    regeneration: Regeneration,
    threads: int | None,
    progress: Progress | None,
) -> DeltaSide:
    """Return the target of a plain delta: the generation after the base, with its own hashes."""
    meta = regeneration.meta_after(base.meta)
    key = regeneration.hmac_key
    touched = [array for array in arrays if key is not None or _is_patched(array)]
    new = hash_arrays(touched, threads=threads, own=_is_patched, hmac_key=key)

    def sealed(array: SideArray) -> SideArray:
        claim = array.claim
        own, mac = new.own.get(array.name), new.hmac.get(array.name)
        claim = replace(claim, sha256=own or claim.sha256, hmac=mac or claim.hmac)
        return replace(array, claim=claim)

    # hash_all covers the `arr` lines, which contain the arrays' own hashes: those come first.
    arrays = tuple(map(sealed, arrays))
    # A second pass: hash_all needs the lines that the first one made.
    hashes = hash_arrays(arrays, threads=threads, progress=progress)
    prev = base.root.merkle_this
    this = digest.merkle(prev, hashes.sha256_all, meta)
    root = grammar.Root(hashes.sha256_all, prev, this, hashes.fastxor)
    return DeltaSide(meta, base.cap, root, None, arrays)


def _prove(target: DeltaSide, hashes: Hashes) -> None:
    """Raise TextError unless a bound delta's target is what its lines say."""
    claims = {array.name: array.claim for array in target.arrays}
    for name, own in hashes.own.items():
        if own != claims[name].sha256:
            message = mismatch("the array's sha256", own, claims[name].sha256)
            raise TextError("array_sha256", message, array=name)
    for name, mac in hashes.hmac.items():
        if claims[name].hmac == _ZERO_HMAC:
            what = "a key was given, but the array has no hmac"
            raise TextError("hmac", what, array=name)
        if not digest.same_mac(mac, claims[name].hmac):
            raise TextError("hmac", "the hmac does not match the key", array=name)
    root = target.root
    if hashes.sha256_all != root.sha256_all:
        raise TextError("root", mismatch("hash_all", hashes.sha256_all, root.sha256_all))
    if hashes.fastxor != root.fastxor:
        message = f"fastxor is {hashes.fastxor:016x}, the delta says {root.fastxor:016x}"
        raise TextError("fastxor", message)
    this = digest.merkle(root.merkle_prev, root.sha256_all, target.meta)
    if this != root.merkle_this:
        raise TextError("merkle", mismatch("merkle_this", this, root.merkle_this))
