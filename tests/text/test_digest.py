"""The hashes against the standard library and slow references.

Ed25519: every signature of the vectors, and the rule behind them.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import astuple
from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey
from xxhash import xxh64

from tests.data import SignatureCase, seeded, signature_cases
from tests.text import edwards
from wtxtgit.model.array import Meta, Signature
from wtxtgit.text import digest
from wtxtgit.text.digest import SignatureState, check_header, check_wsum, keyid, sign, signed_with


def slow_fastxor(raw: bytes) -> int:
    value = 0
    padded = raw + bytes(-len(raw) % 8)
    for (word,) in struct.iter_unpack("<Q", padded):
        value ^= word
    return value


def test_fastxor_of_every_small_size_is_that_of_the_padded_words() -> None:
    for size in range(136):
        raw = seeded(size).randbytes(size)
        assert digest.fastxor(raw) == slow_fastxor(raw), size


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


CASES = pytest.mark.parametrize("case", signature_cases(), ids=lambda c: c.name)


def test_the_vectors_are_what_the_rule_makes() -> None:
    assert [astuple(case) for case in signature_cases()] == [astuple(m) for m in edwards.made()]


def test_the_vectors_have_each_kind() -> None:
    names = [case.name for case in signature_cases()]
    assert sum(case.valid for case in signature_cases()) >= 2
    for kind in (
        "s_plus_l",
        "a_small_",
        "r_small_",
        "a_over_p_",
        "r_over_p_",
        "a_mixed",
        "r_mixed",
    ):
        assert any(name.startswith(kind) for name in names), kind
    small = {case.public_key for case in signature_cases() if case.name.startswith("a_small_")}
    assert small == {edwards.encode(point) for point in edwards.torsion()}
    assert len(small) == 8


@CASES
def test_a_signature_holds_or_not(case: SignatureCase) -> None:
    found = signed_with(case.signature, case.message, [case.public_key])
    assert found == (case.public_key if case.valid else None)
    state = SignatureState.VALID if case.valid else SignatureState.INVALID
    assert check_wsum(case.signature, case.message, [case.public_key]) is state
    named = Signature(case.signature, keyid(case.public_key))
    assert check_header(named, case.message, [case.public_key]) is state


@CASES
def test_the_rule_in_plain_arithmetic_says_the_same(case: SignatureCase) -> None:
    assert edwards.holds(case.public_key, case.message, case.signature) is case.valid


@CASES
def test_a_library_that_takes_more_changes_nothing(
    case: SignatureCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The equation times the cofactor, as other libraries and releases have it."""

    class Lenient:
        def __init__(self, key: bytes) -> None:
            self.key = key

        def verify(self, message: bytes, made: bytes) -> None:
            if not holds_times_8(self.key, message, made):
                from nacl.exceptions import BadSignatureError

                raise BadSignatureError

    monkeypatch.setattr("nacl.signing.VerifyKey", Lenient)
    found = signed_with(case.signature, case.message, [case.public_key])
    assert found == (case.public_key if case.valid else None)


def holds_times_8(public_key: bytes, message: bytes, made: bytes) -> bool:
    a, r = edwards.decode(public_key), edwards.decode(made[:32])
    s = int.from_bytes(made[32:], "little")
    if a is None or r is None or s >= edwards.L:
        return False
    k = edwards.challenge(made[:32], public_key, message)
    right = edwards.add(r, edwards.times(k, a))
    return edwards.times(8 * s, edwards.BASE) == edwards.times(8, right)


def test_the_lenient_library_takes_what_is_refused() -> None:
    """So the test above tries something."""
    taken = {
        case.name
        for case in signature_cases()
        if holds_times_8(case.public_key, case.message, case.signature) and not case.valid
    }
    assert {"a_mixed", "a_mixed_hidden", "r_mixed", "both_mixed", "a_small_0", "a_small_1"} <= taken


def test_what_is_signed_here_holds() -> None:
    rng = seeded("signatures")
    for size in (0, 1, 100, 5000):
        seed, message = rng.randbytes(32), rng.randbytes(size)
        made = sign(seed, message)
        key = next(k for k in [public(seed)] if keyid(k) == made.keyid)
        assert edwards.holds(key, message, made.signature)
        assert signed_with(made.signature, message, [key]) == key


def public(seed: bytes) -> bytes:
    from nacl.signing import SigningKey

    return bytes(SigningKey(seed).verify_key)


def test_a_key_that_does_not_hold_is_passed_over() -> None:
    """The next key is tried."""
    good = next(case for case in signature_cases() if case.name == "good")
    bad = [case.public_key for case in signature_cases() if case.name.startswith("a_")]
    found = signed_with(good.signature, good.message, [*bad, good.public_key])
    assert found == good.public_key


def test_a_key_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    ask = digest._has_order_l
    monkeypatch.setattr(digest, "_has_order_l", lambda point: asked.append(point) or ask(point))
    digest._is_key.cache_clear()
    good = next(case for case in signature_cases() if case.name == "good")
    for _ in range(3):
        signed_with(good.signature, good.message, [good.public_key])
    assert asked.count(good.public_key) == 1
    assert len(asked) == 4
