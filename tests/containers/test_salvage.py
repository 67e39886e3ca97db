"""Damaged files, format by format: what is still told of them, and within which bounds."""

from __future__ import annotations

import contextlib
import io
import struct
import time

import numpy as np
import pytest

from tests.containers.aero_files import digest, entry, file, shard, tidx
from tests.containers.samples import safetensors, tensor_item
from tests.data import GOLDEN, fixture
from wtxtgit.containers import any_format
from wtxtgit.containers.aero.read import TOC_ENTRY
from wtxtgit.errors import FormatError
from wtxtgit.model.salvage import Salvage
from wtxtgit.model.tensor import ReadOptions

OPTIONS = ReadOptions(max_chunk=1 << 20)
AERO = fixture("aero/multishard_a.aero")


def salvage(data: bytes) -> Salvage:
    return any_format.salvage(memoryview(data), OPTIONS)


def states(data: bytes) -> dict[str, str]:
    return {one.tensor.name: str(one.state) for one in salvage(data).tensors}


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.arange(10), b=np.arange(20))
    return file.getvalue()


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_a_directory_leads_to_a_member_whose_local_header_is_gone() -> None:
    data = npz()
    at = data.rindex(b"PK\x03\x04")
    assert states(data[:at] + bytes(4) + data[at + 4 :]) == {"a": "proved", "b": "proved"}
    assert states(data[:at] + bytes(30) + data[at + 30 :]) == {"a": "proved", "b": "proved"}


def test_a_name_that_stands_in_two_forms_is_not_proved() -> None:
    data = npz()
    entry = data.rindex(b"b.npy")
    assert states(flipped(data, entry)) == {"a": "proved", "c": "unproved"}


def test_a_member_that_does_not_hold_is_lost_alone() -> None:
    data = npz()
    assert states(flipped(data, data.index(b"PK\x03\x04", 4) - 1)) == {"a": "lost", "b": "proved"}


def test_a_torch_file_without_its_pickle_tells_nothing() -> None:
    data = (GOLDEN / "torch/state_dict.pt").read_bytes()
    assert set(states(data).values()) == {"proved"}
    with pytest.raises(FormatError, match=r"data\.pkl"):
        salvage(flipped(data, data.index(b"\x80\x02}") + 20 if b"\x80\x02}" in data else 100))


def test_an_aero_whose_toc_is_gone() -> None:
    content = bytes(range(64))
    hashed = entry("w", [16], 0, 64, hash_b3=digest(content).hex())
    data = file([tidx(hashed), shard(content)])
    assert states(data) == {"w": "proved"}
    end = 112 + 2 * TOC_ENTRY.size
    assert states(data[:112] + bytes(end - 112) + data[end:]) == {"w": "unproved"}
    assert states(flipped(data, len(data) - 1)) == {"w": "lost"}


def test_shards_are_whole_or_not_apart_from_each_other() -> None:
    found = list(states(flipped(AERO, len(AERO) - 1)).values())
    assert {"proved", "lost"} == set(found)


def test_tensors_that_share_bytes_are_no_ones() -> None:
    items = {"a": tensor_item("U8", [8], 0, 8), "b": tensor_item("U8", [8], 4, 12)}
    data = safetensors({**items, "c": tensor_item("U8", [2], 12, 14)}, bytes(range(14)))
    assert states(data) == {"a": "lost", "b": "lost", "c": "unproved"}


def test_zeros_at_the_end_are_told() -> None:
    items = {"a": tensor_item("U8", [8], 0, 8), "b": tensor_item("U8", [8192], 8, 8200)}
    left = salvage(safetensors(items, bytes(range(1, 9)) + b"x" * 100 + bytes(8092)))
    assert [one.why is not None for one in left.tensors] == [False, True]


def test_sizes_that_no_file_has() -> None:
    items = {"a": tensor_item("U8", [2**62], 1, 2**62 + 1), "b": tensor_item("U8", [1], 0, 1)}
    assert states(safetensors(items, b"x")) == {"a": "lost", "b": "unproved"}


def test_an_mlcp_that_was_cut_off_within_its_records() -> None:
    data = fixture("mlcp/many_tensors_a.checkpoint")
    assert set(states(data).values()) == {"absent"}
    assert set(states(data[:-10]).values()) == {"lost"}


_LOCAL = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 20, 8, 0, 0, 0, 0, 0, 0, 5, 0) + b"a.npy"


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        _LOCAL * 30_000,
        _LOCAL + b"PK\3\4" * 200_000,
        _LOCAL + b"PK\1\2" * 200_000,
        AERO[:96] + struct.pack("<IIQ", 10_000, 0, 0) + (b"WTSH" + bytes(76)) * 10_000,
    ],
    ids=["headers", "magics", "entries", "chunks"],
)
def test_what_claims_much_takes_no_longer(data: bytes) -> None:
    started = time.process_time()
    with contextlib.suppress(FormatError):
        salvage(data)
    assert time.process_time() - started < 10
