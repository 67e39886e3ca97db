"""What is done about a ring while no training has it: it is checked, sent, pruned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from wtxtgit.errors import InputError, TextError, WtxtgitError
from wtxtgit.io.files import read_small, view_file
from wtxtgit.io.view import ByteView, hashed, pieces
from wtxtgit.model.plain import JsonObject
from wtxtgit.remotes.target import Target
from wtxtgit.stream.delivery import attempt
from wtxtgit.stream.ring import (
    FIRST_PREV,
    Delivery,
    DeliveryState,
    Generation,
    Ring,
    RingState,
    read_state,
)
from wtxtgit.text.delta import patch
from wtxtgit.text.grammar import MAX_WSUM
from wtxtgit.text.verify import raise_first, verify
from wtxtgit.trust.age.identities import AgeIdentity, opened

OpenTarget = Callable[[str], Target]
"""Opens the target that goes by this spelling; raises WtxtgitError."""
_Chain = tuple[int, bytes, bytes, bytes]
"""What a text says of itself: gen, sha256_all, merkle_prev, merkle_this."""


@dataclass(frozen=True, slots=True)
class GenerationVerdict(JsonObject):
    """Whether a generation is what the log says; `why` is the first thing that does not hold."""

    KEYS = "gen file ok why?"

    gen: int
    file: str
    why: str | None = None

    @property
    def ok(self) -> bool:
        return self.why is None


@dataclass(frozen=True, slots=True)
class RingVerdict(JsonObject):
    """Whether all that a ring holds is whole, and follows one another."""

    KEYS = "ok generations"

    generations: tuple[GenerationVerdict, ...]

    @property
    def ok(self) -> bool:
        return all(one.ok for one in self.generations)


@dataclass(frozen=True, slots=True)
class Sent(JsonObject):
    """What came of sending a generation to a target."""

    KEYS = "gen target state why?"

    gen: int
    target: str
    state: DeliveryState
    why: str | None = None


def check_ring(
    folder: Path, *, identities: Sequence[AgeIdentity] = (), threads: int | None = None
) -> RingVerdict:
    """Check every generation of a ring, and that each follows the one before.

    Of those that are encrypted the texts are checked only where `identities` are given.
    """
    state = read_state(folder)
    checks = _Checks(folder, state, identities, threads)
    verdicts = []
    for generation in state.generations:
        why = checks.problem(generation) or _broken_link(state, generation)
        verdicts.append(GenerationVerdict(generation.gen, generation.file, why))
    return RingVerdict(tuple(verdicts))


def _broken_link(state: RingState, generation: Generation) -> str | None:
    """What keeps a generation from following the one before it, where that is still there."""
    before = FIRST_PREV
    if generation.after is not None:
        follows = state.generations_by_number.get(generation.after)
        if follows is None:
            return None
        before = follows.this
    if generation.prev == before:
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
        """The first thing that does not hold of a generation."""
        try:
            file = view_file(self._folder / generation.file)
            if hashed(sha256(), pieces(file)).digest() != generation.sha256:
                return "its SHA-256 is not the one that was noted"
            if generation.is_encrypted:
                if not self._identities:
                    return None
                file = opened(file, self._identities, generation.file)
            if generation.base is None:
                said = self._text(generation, file)
            else:
                said = self._target(generation.base, file)
        except TextError as error:
            return str(error)
        except WtxtgitError as error:
            return error.message
        noted = generation.gen, generation.sha256_all, generation.prev, generation.this
        return None if said == noted else "its root is not the one that was noted"

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

    def _target(self, base: int, delta: ByteView) -> _Chain:
        if base not in self._state.generations_by_number:
            raise InputError(f"generation {base}, which it is to be put on, is not there")
        file = self._state.generations_by_number[base].file
        text = view_file(self._folder / file)
        if self._state.generations_by_number[base].is_encrypted:
            text = opened(text, self._identities, file)
        report = verify(text, threads=self._threads)
        raise_first(report.problems)
        side = patch.side_of_delta(text, report.index, delta, threads=self._threads)
        return side.meta.gen, side.root.sha256_all, side.root.merkle_prev, side.root.merkle_this


def push(folder: Path, open_target: OpenTarget, also: Iterable[str] = ()) -> Iterator[Sent]:
    """Send what targets are still to get, once each; the targets `also` get all that is there.

    Raises RingBusy where a training has the ring: it sends by itself.
    """
    with _taken(folder) as ring:
        # A label has no credentials, what a user writes may.
        targets = {target.label: target for target in map(open_target, also)}
        for label in targets:
            for generation in ring.state.generations:
                if label not in {one.target for one in generation.deliveries}:
                    ring.delivery(generation.gen, Delivery(label))
        yield from _push(ring, open_target, targets)


def retry(folder: Path, open_target: OpenTarget) -> Iterator[Sent]:
    """Queue again what targets refused and what was given up, and send what is queued."""
    with _taken(folder) as ring:
        for generation in ring.state.generations:
            for one in generation.deliveries:
                if one.state in (DeliveryState.REFUSED, DeliveryState.EXPIRED):
                    now = replace(one, state=DeliveryState.QUEUED, why=None)
                    ring.delivery(generation.gen, now)
        yield from _push(ring, open_target, {})


def _push(ring: Ring, open_target: OpenTarget, targets: Mapping[str, Target]) -> Iterator[Sent]:
    labels = {one.target: None for each in ring.state.generations for one in each.deliveries}
    for label in labels:
        waiting = list(ring.under_way(label))
        if not waiting:
            continue
        target = targets.get(label) or open_target(label)
        for generation, delivery in waiting:
            attempt(ring, generation, delivery, target)
            now = ring.state.generations_by_number[generation.gen]
            (one,) = [one for one in now.deliveries if one.target == label]
            yield Sent(generation.gen, label, one.state, one.why)
            if one.state is DeliveryState.QUEUED:
                # Nor would it take the next one.
                break


def prune(folder: Path, keep: int | None, named: Iterable[int]) -> list[int]:
    """Remove all but the last `keep` generations, and those that are `named`; see `Ring.prune`.

    None keeps all that are not named.
    """
    with _taken(folder) as ring:
        return ring.prune(len(ring.state.generations) if keep is None else keep, named=named)


def _taken(folder: Path) -> Ring:
    """Take a ring that is there; a folder that is none is not made one."""
    read_state(folder)
    return Ring(folder)
