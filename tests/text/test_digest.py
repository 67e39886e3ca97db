"""The hashes against the standard library and slow references."""

from __future__ import annotations

import hmac
import struct
from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey
from xxhash import xxh64

from tests.data import seeded
from wtxtgit.model.array import Meta
from wtxtgit.text import digest


def slow_fastxor(raw: bytes) -> int:
    value = 0
    padded = raw + bytes(-len(raw) % 8)
    for (word,) in struct.iter_unpack("<Q", padded):
        value ^= word
    return value


@pytest.mark.parametrize("size", range(136))
def test_fastxor_of_every_small_size_is_that_of_the_padded_words(size: int) -> None:
    raw = seeded(size).randbytes(size)
    assert digest.fastxor(raw) == slow_fastxor(raw)


@given(st.binary(max_size=100))
def test_fastxor_is_that_of_the_padded_words(raw: bytes) -> None:
    assert digest.fastxor(raw) == slow_fastxor(raw)


@given(st.binary(max_size=120), st.lists(st.integers(0, 120), max_size=5))
def test_fastxor_of_the_pieces_is_that_of_the_whole(raw: bytes, cuts: list[int]) -> None:
    bounds = sorted({0, len(raw), *(min(cut, len(raw)) for cut in cuts)})
    value = 0
    for start, end in pairwise(bounds):
        value ^= digest.fastxor(memoryview(raw)[start:end], start)
    assert value == slow_fastxor(raw)


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32), st.integers(0))
def test_merkle_is_the_sha256_of_prev_root_time_generation_and_build(
    prev: bytes, root: bytes, gen: int
) -> None:
    meta = Meta(gen=gen, ts="2025-10-09T03:12:45Z", build="abc123", host="x", schema="y/v1")
    tail = b"2025-10-09T03:12:45Z" + str(gen).rjust(6, "0").encode() + b"abc123"
    assert digest.merkle(prev, root, meta) == sha256(prev + root + tail).digest()


@given(st.binary(max_size=80), st.binary(min_size=8, max_size=8), st.binary(max_size=80))
def test_hmac_is_over_salt_and_bytes(key: bytes, salt: bytes, raw: bytes) -> None:
    mac = digest.array_hmac(key, salt)
    mac.update(raw)
    assert mac.digest() == hmac.digest(key, salt + raw, "sha256")
    assert digest.same_mac(mac.digest(), hmac.digest(key, salt + raw, "sha256"))
    assert not digest.same_mac(mac.digest(), bytes(32))


def test_salts_differ_by_key_generation_and_array() -> None:
    salts = {
        digest.salt_for(key, gen, name)
        for key in (b"k1", b"k2")
        for gen in (0, 1)
        for name in ("W", "V")
    }
    assert len(salts) == 8
    assert {len(salt) for salt in salts} == {8}
    assert digest.salt_for(b"k1", 1, "W") == digest.salt_for(b"k1", 1, "W")


def test_keyid_is_the_xxh64_of_the_public_key() -> None:
    public = bytes(SigningKey(bytes(32)).verify_key)
    assert digest.keyid(public) == f"{xxh64(public, seed=0).intdigest():016x}"
    assert len(digest.keyid(public)) == 16
