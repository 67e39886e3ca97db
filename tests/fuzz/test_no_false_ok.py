"""What is ok is what the format's own reader takes, with the same tensors.

Mutants of every format that has such a reader here, those of torch with the tests against torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pytest

from tests.containers.torch_files import items_of
from tests.data import seeded
from tests.fuzz.container_oracle import OPTIONS
from tests.fuzz.damage import damaged
from tests.fuzz.peers import PEERS, Read, Refused, Unread
from tests.fuzz.seeds import legacy, seeds
from tests.fuzz.structure import container_mutant
from tests.kit.changes import share
from wtxtgit.containers import any_format
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import Tensor
from wtxtgit.tensors import tensor_bytes

WITH_TORCH = ("torch", "legacy")
HERE = tuple(sorted(PEERS.keys() - set(WITH_TORCH)))
QUICK = 60
BATCHES = 5
BATCH = 1000
UNTYPED = ("uint16", "uint32", "uint64")
"""What torch does not swap in files of the other byte order."""
ODD = ("StorageType(", "<function")
"""In names of keys that are no plain values, which are told in another way."""
RUNS = frozenset({"global", "data.pkl", "pickle", "descr"})
"""Fields of notes on what a reader takes only if it may run what is in the file."""


@pytest.mark.parametrize("group", HERE)
def test_what_is_ok_is_read_by_the_formats_own_reader(group: str) -> None:
    assert check_ok(group, "quick", QUICK) >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "batch"), [(g, n) for g in HERE for n in range(share(g, BATCHES))]
)
def test_much_that_is_ok_is_read_by_the_formats_own_reader(group: str, batch: int) -> None:
    assert check_ok(group, str(batch), BATCH) >= 50


@pytest.mark.torch
@pytest.mark.parametrize("group", WITH_TORCH)
@pytest.mark.parametrize("batch", range(share("torch", BATCHES)))
def test_what_is_ok_is_loaded_by_torch(group: str, batch: int) -> None:
    assert check_ok(group, str(batch), BATCH) >= 50


def check_ok(group: str, batch: str, count: int) -> int:
    """Hold mutants that are ok against the format's reader; how many there were."""
    tried = 0
    for number, data in enumerate(mutants(group, f"{group} ok {batch}", count)):
        view = memoryview(data)
        if any_format.identify(view) != ("torch" if group == "legacy" else group):
            continue
        findings = any_format.check(view, OPTIONS)
        if findings.errors:
            continue
        tried += 1
        try:
            hold(group, data, findings)
        except BaseException as error:
            error.add_note(f"mutant {number} of {group}, batch {batch}")
            raise
    return tried


def mutants(group: str, name: str, count: int) -> Iterator[bytes]:
    """Files that were damaged, and files whose structure was changed so that it holds."""
    rng = seeded(name)
    originals = legacy() if group == "legacy" else seeds(group)
    for number in range(count):
        if number % 2:
            yield damaged(originals, rng)
        else:
            yield container_mutant(group, originals, rng)


_OLD_STRING = re.compile(r"valid dtype descriptor: .*[<>|=]a\d")
"""What numpy says since 2.5 of "a", an old name of "S"."""


def hold(group: str, data: bytes, findings: Findings) -> None:
    noted = {problem.field for problem in findings.warnings}
    try:
        theirs = PEERS[group](data)
    except Unread:
        assert noted & RUNS
        return
    except Refused as refusal:
        if group in ("npy", "npz") and _OLD_STRING.search(str(refusal)):
            return
        # Its reader in C++ takes a bf16 without dimensions; see `docs/spec/gguf.md`.
        assert group == "gguf"
        assert "n_dimensions" in noted
        return
    listed = any_format.describe(memoryview(data), OPTIONS).tensors
    assert all(tensor.absent is None for tensor in listed)
    if any(odd in name for name in theirs for odd in ODD):
        return
    assert {tensor.name for tensor in listed} == set(theirs)
    assert list(differing(group, listed, theirs)) == []


def differing(group: str, listed: Iterable[Tensor], theirs: Read) -> Iterator[str]:
    for tensor in listed:
        shape, raw = theirs[tensor.name]
        if tensor.shape != shape or (is_comparable(tensor) and content(tensor) != raw):
            yield tensor.name


def is_comparable(tensor: Tensor) -> bool:
    """Whether reader and format agree on the order of a tensor's bytes."""
    if tensor.element is None:
        return tensor.order != "F" and tensor.byteorder == "little"
    is_swapped = tensor.byteorder == "big" and tensor.dtype in (*UNTYPED, "BF16")
    return not (is_swapped or (tensor.element == "bool" and tensor.strides is not None))


def content(tensor: Tensor) -> bytes:
    if tensor.element is None:
        return bytes(tensor.data) if tensor.strides is None else items_of(tensor)
    return b"".join(bytes(block) for block in tensor_bytes.blocks(tensor, 1 << 16))
