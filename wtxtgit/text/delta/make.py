"""Making a delta of two sides.

`docs/spec/delta.md`, sections "The bound form" and "The plain form". Chunks are
told apart by their hashes: what did not change is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from wtxtgit.errors import TextError
from wtxtgit.io.view import Buffer
from wtxtgit.io.workers import Workers, worthwhile
from wtxtgit.model.array import LAYOUT_ARRAY
from wtxtgit.text import grammar
from wtxtgit.text.delta import index
from wtxtgit.text.delta.sides import DeltaSide, SideArray, Text


@dataclass(frozen=True, slots=True, eq=False)
class DeltaStep:
    """A block of the delta to be: `runs` are first and last (excluded) of chunks it carries."""

    name: str
    target: SideArray | None = None
    whole: bool = False
    runs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Making:
    """A delta that can be written; `steps` are its blocks in order."""

    base: DeltaSide
    target: DeltaSide
    steps: tuple[DeltaStep, ...]
    plain: bool = False

    @property
    def takes_nothing(self) -> bool:
        """Whether no array of the base stands in the target, not even in part."""
        steps = {step.name: step for step in self.steps}
        targets = [(array, steps.get(array.name)) for array in self.target.arrays]
        return bool(targets) and all(
            step is not None and _carried(step) == array.chunks for array, step in targets
        )

    def pieces(self, *, threads: int | None = None) -> Iterator[Buffer]:
        """The delta in order, in pieces."""
        yield index.format_first(self.base.root.sha256_all)
        if not self.plain:
            yield self.target.header
        carried = sum(_carried(step) * step.target.chunk_size for step in self.steps if step.target)
        with Workers(self._blocks(), worthwhile(threads, carried)) as texts:
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
    """Plan the delta that makes `target` of `base`.

    Raises TextError for what a delta can't say: `docs/spec/delta.md`, section "Limits".
    """
    steps = tuple(_steps(base, target))
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
    """Whether both have the same chunks, their content aside."""
    if (old.claim.dtype, old.claim.shape) != (new.claim.dtype, new.claim.shape):
        return False
    if new.rows is None and old.rows is not None:
        raise TextError(
            "structure",
            f'array "{new.name}" has no idx line any more, which a delta can\'t say',
            array=new.name,
        )
    return old.rows == new.rows


def _changed_runs(old: SideArray, new: SideArray) -> Iterator[tuple[int, int]]:
    pairs = zip(old.sha256, new.sha256, strict=True)
    changed = (ix for ix, (a, b) in enumerate(pairs) if a != b)
    for _, run in groupby(enumerate(changed), lambda pair: pair[1] - pair[0]):
        every = [ix for _, ix in run]
        yield every[0], every[-1] + 1


def _check_plain(base: DeltaSide, target: DeltaSide, steps: tuple[DeltaStep, ...]) -> None:
    if any(array.name == LAYOUT_ARRAY for side in (base, target) for array in side.arrays):
        raise TextError("layout", f"a text with {LAYOUT_ARRAY} has no plain delta")
    for step in steps:
        if step.target is None or step.whole:
            what = "is removed" if step.target is None else "is new, or cut or typed otherwise"
            message = f'array "{step.name}" {what}, which a plain delta can\'t say'
            raise TextError("structure", message, array=step.name)


def _carried(step: DeltaStep) -> int:
    return sum(last - first for first, last in step.runs)
