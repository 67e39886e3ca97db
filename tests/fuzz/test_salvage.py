"""What is given of a damaged file is what it held.

A tensor that is proved has the name, dtype, shape and bytes of one of the file as it was, whatever
happened to it; of a file that was cut off, so has every tensor that is given at all.
"""

from __future__ import annotations

import random
from functools import cache

import pytest

from tests.data import seeded
from tests.fuzz.container_oracle import OPTIONS
from tests.fuzz.damage import damaged
from tests.fuzz.mutations import bytes_mutant
from tests.fuzz.seeds import FORMATS, seeds
from tests.kit.changes import share
from wtxtgit.containers import any_format, registry
from wtxtgit.errors import FormatError
from wtxtgit.model.salvage import SalvagedTensor, TensorState
from wtxtgit.model.tensor import Tensor

Facts = tuple[object, ...]
WITH_HASHES = ("fold", "aero", "npz", "torch")
QUICK = 80
BATCHES = 3
BATCH = 500


@cache
def originals(group: str) -> tuple[tuple[bytes, dict[str, list[Facts]]], ...]:
    """Files that hold, with the tensors in them by name."""
    views = ((seed, memoryview(seed)) for seed in seeds(group))
    whole = [(seed, view) for seed, view in views if not any_format.check(view, OPTIONS).errors]
    assert whole
    return tuple((seed, by_name(any_format.describe(view, OPTIONS))) for seed, view in whole)


def by_name(description: any_format.Description) -> dict[str, list[Facts]]:
    found: dict[str, list[Facts]] = {}
    for tensor in any_format.tensors(description, OPTIONS):
        found.setdefault(tensor.name, []).append(facts(tensor))
    return found


def facts(tensor: Tensor) -> Facts:
    how = (tensor.order, tensor.byteorder, tensor.strides)
    return (tensor.dtype, tensor.shape, *how, bytes(tensor.data))


def salvaged(group: str, data: bytes) -> tuple[SalvagedTensor, ...]:
    """The tensors that are given of a damaged file; none where nothing can be told."""
    view = memoryview(data)
    if registry.detect(view) != group:
        return ()
    try:
        found = any_format.salvage(view, OPTIONS).tensors
    except FormatError:
        return ()
    return tuple(one for one in found if one.state.is_whole)


def bare(name: str) -> str:
    """A name without that of its chunk, which the index of a FOLD file has."""
    return name.partition("/")[2] or name


def hold(group: str, data: bytes, original: dict[str, list[Facts]], *, is_cut: bool) -> int:
    """Hold what is given against what there was; how many tensors were proved."""
    named = {bare(name): held for name, held in original.items()}
    proved = 0
    for one in salvaged(group, data):
        if one.state is TensorState.PROVED:
            assert facts(one.tensor) in original.get(one.tensor.name, [])
            proved += 1
        elif is_cut:
            assert facts(one.tensor) in (
                original.get(one.tensor.name) or named[bare(one.tensor.name)]
            )
    return proved


@pytest.mark.parametrize("group", FORMATS)
def test_all_of_a_file_that_holds_is_given(group: str) -> None:
    for seed, original in originals(group):
        left = any_format.salvage(memoryview(seed), OPTIONS)
        assert left.missing == ()
        states = {one.state for one in left.tensors}
        # An npy file of Python objects has nothing that could be looked into.
        if group == "npy" and TensorState.LOST in states:
            assert [one.tensor.dtype for one in left.tensors] == ["|O"]
            continue
        whole = TensorState.PROVED if group in WITH_HASHES else TensorState.UNPROVED
        assert states <= {whole, TensorState.ABSENT}
        given = {one.tensor.name for one in left.tensors}
        assert given == set(original)


@pytest.mark.parametrize("group", FORMATS)
def test_what_is_given_of_a_file_that_was_cut_off(group: str) -> None:
    rng = seeded(f"{group} cut off")
    for seed, original in rng.sample(originals(group), min(len(originals(group)), 12)):
        for _ in range(8):
            hold(group, seed[: rng.randrange(len(seed))], original, is_cut=True)


def mutants_hold(group: str, count: int, rng: random.Random) -> None:
    proved = 0
    for number in range(count):
        seed, original = rng.choice(originals(group))
        mutant = damaged([seed], rng) if number % 2 else bytes_mutant(seed, rng)
        try:
            proved += hold(group, mutant, original, is_cut=False)
        except BaseException as error:
            error.add_note(f"mutant {number} of {group}")
            raise
    assert bool(proved) is (group in WITH_HASHES)


@pytest.mark.parametrize("group", FORMATS)
def test_nothing_is_proved_that_was_not_there(group: str) -> None:
    mutants_hold(group, QUICK, seeded(f"{group} salvage"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "batch"), [(g, n) for g in WITH_HASHES for n in range(share(g, BATCHES))]
)
def test_of_many_files_nothing_is_proved_that_was_not_there(group: str, batch: int) -> None:
    mutants_hold(group, BATCH, seeded(f"{group} salvage {batch}"))
