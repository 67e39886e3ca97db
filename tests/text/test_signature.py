"""Ed25519: every signature of the vectors, and the rule behind them."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from tests.data import SignatureCase, seeded, signature_cases
from tests.text import edwards
from wtxtgit.model.array import Signature
from wtxtgit.text import digest
from wtxtgit.text.digest import SignatureState, check_header, check_wsum, keyid, sign, signed_with

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
