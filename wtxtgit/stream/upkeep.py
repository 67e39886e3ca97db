"""Maintaining a ring while no training uses it: checking, sending, pruning."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import product
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure, InputError, TextError, UsageError, WtxtgitError
from wtxtgit.io.files import read_small, view_file
from wtxtgit.io.progress import Progress, expect, finish_file
from wtxtgit.io.view import ByteView, hashed, pieces
from wtxtgit.model.plain import JsonObject
from wtxtgit.remotes.target import Target
from wtxtgit.stream.delivery import attempt
from wtxtgit.stream.index import MAX_SIZE as MAX_INDEX
from wtxtgit.stream.index import GenerationIndex
from wtxtgit.stream.overview import RankedGeneration, combine_ranks
from wtxtgit.stream.ranks import ALONE, index_name
from wtxtgit.stream.ring import Ring
from wtxtgit.stream.state import (
    FIRST_PREV,
    Delivery,
    DeliveryState,
    Generation,
    RingState,
    index_part,
    ranks_of,
    read_state,
)
from wtxtgit.text.delta import patch
from wtxtgit.text.grammar import MAX_WSUM
from wtxtgit.text.verify import raise_first, verify
from wtxtgit.trust.age.identities import AgeIdentity, opened

OpenTarget = Callable[[str], Target]
"""Opens a target by its spelling; raises WtxtgitError."""
_Chain = tuple[int, bytes, bytes, bytes]
"""What a text states about itself: gen, sha256_all, merkle_prev, merkle_this."""


@dataclass(frozen=True, slots=True)
class GenerationVerdict(JsonObject):
    """Whether a generation matches the log; `why` is the first thing that is wrong.

    With several ranks there is one for each part, and one for the index; `missing` are the ranks
    without which a generation does not count.
    """

    KEYS = "gen file ok why? missing?"

    gen: int
    file: str
    why: str | None = None
    missing: tuple[int, ...] | None = None

    @property
    def ok(self) -> bool:
        return self.why is None


@dataclass(frozen=True, slots=True)
class RingVerdict(JsonObject):
    """Whether everything in a ring is intact, and each generation follows the one before."""

    KEYS = "ok generations"

    generations: tuple[GenerationVerdict, ...]

    @property
    def ok(self) -> bool:
        return all(one.ok for one in self.generations)


@dataclass(frozen=True, slots=True)
class Sent(JsonObject):
    """The outcome of sending a generation, or a rank's part of it, to a target."""

    KEYS = "gen rank? target state why?"

    gen: int
    target: str
    state: DeliveryState
    why: str | None = None
    rank: int | None = None


def check_ring(
    folder: Path,
    *,
    identities: Sequence[AgeIdentity] = (),
    threads: int | None = None,
    progress: Progress | None = None,
) -> RingVerdict:
    """Check every generation of a ring, and that each follows the one before.

    The texts in encrypted ones are only checked if `identities` are given. `progress` gets counts
    of the files' bytes.
    """
    verdicts = []
    states = {rank: read_state(folder, rank) for rank in ranks_of(folder)}
    everything = [generation for state in states.values() for generation in state.generations]
    expect(progress, sum(generation.size for generation in everything), len(everything))
    for state in states.values():
        checks = _Checks(folder, state, identities, threads)
        for generation in state.generations:
            why = checks.problem(generation) or _broken_link(state, generation)
            verdicts.append(GenerationVerdict(generation.gen, generation.file, why))
            if progress is not None:
                progress(generation.size)
            finish_file(progress)
    if ALONE not in states:
        overview = combine_ranks(folder, states)
        verdicts += [_index_verdict(folder, one) for one in overview.generations]
        verdicts.sort(key=lambda one: one.gen)
    return RingVerdict(tuple(verdicts))


def _index_verdict(folder: Path, generation: RankedGeneration) -> GenerationVerdict:
    """Return whether the index of a generation, if it has one, matches the logs of its ranks."""
    name = index_name(generation.gen)
    if not generation.is_whole:
        return GenerationVerdict(generation.gen, name, missing=generation.missing)
    try:
        content = read_small(folder / name, MAX_INDEX, "an index")
        index = GenerationIndex.parse(content, name)
    except EnvironmentFailure:
        raise
    except WtxtgitError as error:
        return GenerationVerdict(generation.gen, name, error.message)
    parts = tuple(index_part(part, rank) for rank, part in generation.parts.items())
    why = None if index.parts == parts else "it does not match the ranks' logs"
    return GenerationVerdict(generation.gen, name, why)


def _broken_link(state: RingState, generation: Generation) -> str | None:
    """Return why a generation does not follow the one before it; None if it does.

    If the one before no longer exists, nothing is wrong.
    """
    expected = FIRST_PREV
    if generation.after is not None:
        predecessor = state.generations_by_number.get(generation.after)
        if predecessor is None:
            return None
        expected = predecessor.this
    if generation.prev == expected:
        return None
    return f"its merkle_prev is not that of generation {generation.after}"


class _Checks:
    def __init__(
        self,
        folder: Path,
        state: RingState,
        identities: Sequence[AgeIdentity],
        threads: int | None,
    ) -> None:
        self._folder = folder
        self._state = state
        self._identities = identities
        self._threads = threads

    def problem(self, generation: Generation) -> str | None:
        """Return the first thing that is wrong with a generation; None if nothing is."""
        try:
            file = view_file(self._folder / generation.file)
            if hashed(sha256(), pieces(file)).digest() != generation.sha256:
                return "its SHA-256 is not the recorded one"
            if generation.is_encrypted:
                if not self._identities:
                    return None
                file = opened(file, self._identities, generation.file)
            if generation.base is None:
                stated = self._text(generation, file)
            else:
                stated = self._delta_target(generation.base, file)
        except TextError as error:
            return str(error)
        except EnvironmentFailure:
            # A failure of the system is no evidence about the file.
            raise
        except WtxtgitError as error:
            return error.message
        recorded = generation.gen, generation.sha256_all, generation.prev, generation.this
        return None if stated == recorded else "its root is not the recorded one"

    def _text(self, generation: Generation, text: ByteView) -> _Chain:
        wsum = None
        if generation.wsum is not None:
            wsum = read_small(self._folder / generation.wsum, MAX_WSUM, "a WSUM")
        report = verify(text, wsum=wsum, threads=self._threads)
        raise_first(report.problems)
        root = report.index.root
        if root is None:
            return generation.gen, generation.sha256_all, generation.prev, generation.this
        return report.index.meta.gen, root.sha256_all, root.merkle_prev, root.merkle_this

    def _delta_target(self, base: int, delta: ByteView) -> _Chain:
        if base not in self._state.generations_by_number:
            raise InputError(f"generation {base}, its base, is missing")
        file = self._state.generations_by_number[base].file
        text = view_file(self._folder / file)
        if self._state.generations_by_number[base].is_encrypted:
            text = opened(text, self._identities, file)
        report = verify(text, threads=self._threads)
        raise_first(report.problems)
        side = patch.side_of_delta(text, report.index, delta, threads=self._threads)
        return side.meta.gen, side.root.sha256_all, side.root.merkle_prev, side.root.merkle_this


def push(
    folder: Path,
    open_target: OpenTarget,
    also: Iterable[str] = (),
    progress: Progress | None = None,
) -> Iterator[Sent]:
    """Try once to send each generation to the targets that have yet to get it.

    The targets `also` get everything in the ring. `progress` gets counts of bytes of generations
    that were sent, or refused. Raises RingBusy if a training uses the ring: it sends by itself.
    """
    with _opened_ranks(folder) as rings:
        # Compared by label: unlike what a user writes, it never has credentials.
        targets = {target.label: target for target in map(open_target, also)}
        for ring, label in product(rings, targets):
            for generation in ring.state.generations:
                if label not in {one.target for one in generation.deliveries}:
                    ring.delivery(generation.gen, Delivery(label))
        yield from _push(rings, open_target, targets, progress)


def retry(
    folder: Path, open_target: OpenTarget, progress: Progress | None = None
) -> Iterator[Sent]:
    """Queue again what targets refused and what expired, and send what is queued.

    `progress` as for `push`.
    """
    with _opened_ranks(folder) as rings:
        for ring in rings:
            for generation in ring.state.generations:
                for one in generation.deliveries:
                    if one.state in (DeliveryState.REFUSED, DeliveryState.EXPIRED):
                        queued = replace(one, state=DeliveryState.QUEUED, why=None)
                        ring.delivery(generation.gen, queued)
        yield from _push(rings, open_target, {}, progress)


def _push(
    rings: Sequence[Ring],
    open_target: OpenTarget,
    targets: Mapping[str, Target],
    progress: Progress | None,
) -> Iterator[Sent]:
    labels = {
        one.target: None
        for ring in rings
        for generation in ring.state.generations
        for one in generation.deliveries
    }
    queued = {
        label: [(ring, *one) for ring in rings for one in ring.under_way(label)] for label in labels
    }
    everything = [generation for waiting in queued.values() for _, generation, _ in waiting]
    expect(progress, sum(generation.size for generation in everything), len(everything))
    for label, waiting in queued.items():
        if not waiting:
            continue
        target = targets.get(label) or open_target(label)
        # Generation by generation: the last part of each triggers sending the index.
        waiting.sort(key=lambda one: one[1].gen)
        sent_before: list[tuple[Ring, Generation, Delivery]] = []
        for ring, generation, delivery in waiting:
            attempt(ring, generation, delivery, target)
            if progress is not None:
                progress(generation.size)
            finish_file(progress)
            one = _current(ring, generation.gen, label)
            if one.state is DeliveryState.SENT and one.why is None:
                sent_before.append((ring, generation, one))
                continue
            yield _sent(ring, generation.gen, one)
            if one.state in (DeliveryState.QUEUED, DeliveryState.SENT):
                # The target would not accept the next one either.
                break
        for ring, generation, delivery in sent_before:
            attempt(ring, generation, delivery, target)
            yield _sent(ring, generation.gen, _current(ring, generation.gen, label))


def _current(ring: Ring, gen: int, label: str) -> Delivery:
    deliveries = ring.state.generations_by_number[gen].deliveries
    (one,) = [one for one in deliveries if one.target == label]
    return one


def _sent(ring: Ring, gen: int, delivery: Delivery) -> Sent:
    rank = None if ring.rank.is_alone else ring.rank.number
    return Sent(gen, delivery.target, delivery.state, delivery.why, rank)


def prune(folder: Path, keep: int | None, named: Iterable[int]) -> list[int]:
    """Remove all but the last `keep` generations, and those that are `named`; see `Ring.prune`.

    If `keep` is None all that are not named stay.
    """
    with _opened_ranks(folder) as rings:
        named_gens = set(named)
        present = [{one.gen for one in ring.state.generations} for ring in rings]
        if unknown := named_gens.difference(*present):
            raise UsageError(f"the ring holds no generation {min(unknown)}")
        plans = [
            (ring, len(gens) if keep is None else keep, named_gens & gens)
            for ring, gens in zip(rings, present, strict=True)
        ]
        # Checked for all ranks first: if one has to keep a generation, all keep it.
        for ring, count, own in plans:
            ring.removable(count, named=own)
        return sorted({gen for ring, count, own in plans for gen in ring.prune(count, named=own)})


@contextlib.contextmanager
def _opened_ranks(folder: Path) -> Iterator[list[Ring]]:
    """Open all ranks of an existing ring; never creates one."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Ring(folder, rank=rank)) for rank in ranks_of(folder)]
