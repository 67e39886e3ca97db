"""FOLD: parity is that of reedsolo, mends what it can, and `repair` writes whole files."""

from __future__ import annotations

from typing import Any

import pytest
import reedsolo
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.containers.fold_files import NOISE, built, checked, edited, flipped, index_of, model_file
from tests.containers.samples import manifest_entries
from tests.data import fixture, seeded
from wtxtgit.containers.fold import payloads, read, reed_solomon, repack
from wtxtgit.containers.fold.read import parity_bytes, parity_len
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions

OPTIONS = ReadOptions()
FIRST, PAYLOAD = 28, 60


def reference(payload: bytes, n: int) -> bytes:
    """The parity that reedsolo makes, block after block."""
    codec, block = reedsolo.RSCodec(n), 255 - n
    starts = range(0, len(payload), block)
    return b"".join(bytes(codec.encode(payload[at : at + block])[-n:]) for at in starts)


def made(payload: bytes, n: int) -> bytes:
    return b"".join(reed_solomon.encode(memoryview(payload), n))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=700), st.sampled_from([1, 2, 3, 16, 32, 64, 127, 200, 254]))
def test_parity_is_that_of_reedsolo(payload: bytes, n: int) -> None:
    parity = made(payload, n)
    assert parity == reference(payload, n)
    assert len(parity) == parity_len(len(payload), n)


@pytest.mark.parametrize("n", [1, 16, 32, 64, 254])
def test_parity_of_slabs_is_that_of_their_blocks(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    payload = seeded(n).randbytes(9 * (255 - n) + 1)
    monkeypatch.setattr(reed_solomon, "SLAB", 4)
    assert made(payload, n) == reference(payload, n)
    encoder = reed_solomon.Encoder(n)
    for at in range(0, len(payload), 7):
        encoder.update(payload[at : at + 7])
    assert b"".join(encoder.finish()) == reference(payload, n)


PARITY_FIXTURES = [
    entry
    for entry in manifest_entries()
    if {"ecc_rs16", "ecc_rs32", "ecc_rs64"} & set(entry["quirks"])
]


@pytest.mark.parametrize("entry", PARITY_FIXTURES, ids=lambda e: e["file"])
def test_parity_is_that_of_the_original_writer(entry: dict[str, Any]) -> None:
    held = read.read(memoryview(fixture(entry["file"])))
    for chunk in held.chunks:
        stored = bytes(payloads.stored(held.data, chunk, OPTIONS))
        n = parity_bytes(chunk.ecc_algo)
        assert n
        assert made(stored, n) == held.data[chunk.payload_end : chunk.end]


@pytest.mark.parametrize(
    ("word", "n"),
    [
        ("none", 0),
        ("rs(1)", 1),
        ("rs(254)", 254),
        ("rs(255)", None),
        ("rs(0)", None),
        ("rs(01)", None),
        ("rs(٣)", None),
        ("rs(16)\n", None),
        ("RS(16)", None),
        (None, None),
        (16, None),
    ],
)
def test_words_for_parity(word: object, n: int | None) -> None:
    assert parity_bytes(word) == n


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([2, 16, 32]), st.integers(1, 600), st.randoms(use_true_random=False))
def test_damage_within_capacity_is_mended(n: int, size: int, random: Any) -> None:
    payload = random.randbytes(size)
    stored = bytearray(payload + made(payload, n))
    block, damaged = 255 - n, 0
    for number, at in enumerate(range(0, size, block)):
        places = list(range(at, min(at + block, size)))
        places += range(size + number * n, size + number * n + n)
        wrong = random.sample(places, min(random.randint(0, n // 2), len(places)))
        damaged += bool(wrong)
        for place in wrong:
            stored[place] ^= random.randint(1, 255)
    mended = reed_solomon.mend(memoryview(stored)[:size], memoryview(stored)[size:], n)
    assert mended.payload == payload
    assert (mended.damaged, mended.given_up) == (damaged, 0)
    patched = bytearray(stored[:size])
    for at, patch in mended.patches:
        patched[at : at + len(patch)] = patch
    assert patched == payload


def test_blocks_beyond_capacity_stay_and_others_are_mended() -> None:
    stored = bytearray(NOISE)
    stored[:9] = bytes(byte ^ 1 for byte in stored[:9])
    stored[300] ^= 1
    mended = reed_solomon.mend(memoryview(stored), memoryview(made(NOISE, 16)), 16)
    assert (mended.damaged, mended.given_up) == (2, 1)
    assert mended.payload[:239] == stored[:239]
    assert mended.payload[239:] == NOISE[239:]


def repaired(data: bytes, **options: Any) -> tuple[bytes, list[str], list[str]]:
    pieces, mended, lost = repack.repair(memoryview(data), ReadOptions(**options))
    return b"".join(pieces), mended, lost


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("ecc", [16, 32, 64])
def test_a_repaired_file_is_the_whole_one(compression: str, ecc: int) -> None:
    data = model_file(compression=compression, ecc=ecc)
    chunk = index_of(data)["chunks"][0]
    end = PAYLOAD + chunk["comp_len"] + chunk["ecc_len"]
    # Half of the parity's bytes, in the first block's payload and the last block's parity.
    damaged = flipped(data, *range(PAYLOAD, PAYLOAD + ecc // 2), *range(end - ecc // 2, end))
    assert repaired(damaged) == (data, ["torch_state"], [])
    assert repaired(data) == (data, [], [])


def test_the_damaged_fixture_is_mended_to_the_one_that_it_was_made_of() -> None:
    whole = fixture("fold/none_rs16_a.fold")
    assert repaired(fixture("fold/none_rs16_flipped_a.fold")) == (whole, ["torch_state"], [])


def test_wrong_parity_of_whole_payloads_is_made_again() -> None:
    data = model_file(ecc=16)
    parity = PAYLOAD + index_of(data)["chunks"][0]["comp_len"]
    assert repaired(flipped(data, *range(parity, parity + 80))) == (data, ["torch_state"], [])
    mended, names, lost = repaired(fixture("fold/old_d7ae5de_ecc_broken_a.fold"))
    assert names == ["torch_state", "llm_manifest", "metrics", "nuclear_arrays"]
    assert lost == []
    assert checked(mended) == Findings()


def test_what_can_not_be_mended_is_told_and_kept() -> None:
    data = model_file(ecc=16)
    second = index_of(data)["chunks"][1]["offset"] + 32
    damaged = flipped(data, *range(PAYLOAD, PAYLOAD + 9), second)
    mended, names, lost = repaired(damaged)
    assert (names, lost) == (["notes"], ["torch_state"])
    assert mended == flipped(damaged, second)
    bare = flipped(model_file(), PAYLOAD)
    assert repaired(bare) == (bare, [], ["torch_state"])


def test_chunks_over_the_limit_and_overlapping_ones_are_not_mended() -> None:
    data = flipped(model_file(ecc=16), PAYLOAD)
    assert repaired(data, max_chunk=100)[1:] == ([], ["torch_state"])
    twice = edited(data, lambda index: index["chunks"].append(index["chunks"][0]))
    assert repaired(twice)[1:] == (["torch_state"], ["torch_state"])


def test_chunks_that_overlap_too_much_are_not_all_read() -> None:
    data = built(("c", b"BLOB", bytes(100_000)))
    many = edited(data, lambda index: index["chunks"].extend(index["chunks"] * 20))
    assert repaired(many) == (many, [], ["c"] * 17)


def test_hmacs_without_their_key_leave_it_to_the_crc() -> None:
    data = model_file(ecc=16, integrity_key=b"k")
    assert repaired(flipped(data, PAYLOAD)) == (data, ["torch_state"], [])


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("byte", range(32))
def test_a_header_is_mended_from_the_index(compression: str, byte: int) -> None:
    data = HEADERS[compression]
    for bit in range(8):
        damaged = flipped(data, FIRST + byte, mask=1 << bit)
        assert checked(damaged).errors != [], bit
        assert repaired(damaged) == (data, ["torch_state"], []), bit


HEADERS = {word: model_file(compression=word, ecc=16) for word in ("none", "zstd")}


def test_a_header_that_is_all_wrong_and_a_payload_that_is_damaged() -> None:
    data = model_file(ecc=16)
    damaged = flipped(data, *range(FIRST, FIRST + 32), PAYLOAD + 3, PAYLOAD + 300)
    assert repaired(damaged) == (data, ["torch_state"], [])


@pytest.mark.parametrize(
    "change",
    [
        {"ctype": "STEM"},
        {"flags": 1},
        {"uncomp_len": 1072},
        {"comp_len": 1072},
        {"crc32c": 1},
        {"ecc_len": 0},
        {"ecc_len": "80"},
        {"crc32c": 2**32},
        {"ctype": None},
    ],
)
def test_an_index_that_is_wrong_itself_mends_nothing(change: dict[str, object]) -> None:
    data = edited(model_file(ecc=16), lambda index: index["chunks"][0].update(change))
    assert repaired(data) == (data, [], ["torch_state"])
