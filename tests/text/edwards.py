"""The signatures of `tests/data/ed25519.json`, made by the arithmetic of RFC 8032 alone.

Points of edwards25519 as affine pairs, slow and plain; what a library would
never make is made here: points of small order, of mixed order, in encodings
that are not theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256, sha512

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)
SIGN = 1 << 255

Point = tuple[int, int]
NEUTRAL: Point = (0, 1)


@dataclass(frozen=True)
class Made:
    """A signature and whether it holds, in the words of the spec."""

    name: str
    valid: bool
    public_key: bytes
    message: bytes
    signature: bytes
    note: str


def add(one: Point, two: Point) -> Point:
    (x1, y1), (x2, y2) = one, two
    product = D * x1 * x2 * y1 * y2 % P
    x = (x1 * y2 + x2 * y1) * pow(1 + product, -1, P)
    y = (y1 * y2 + x1 * x2) * pow(1 - product, -1, P)
    return x % P, y % P


def times(scalar: int, point: Point) -> Point:
    found = NEUTRAL
    while scalar:
        if scalar & 1:
            found = add(found, point)
        point, scalar = add(point, point), scalar >> 1
    return found


def recover_x(y: int, sign: int) -> int | None:
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT_OF_MINUS_ONE % P
    if (x * x - square) % P:
        return None
    return x if x & 1 == sign else -x % P


def encode(point: Point) -> bytes:
    x, y = point
    return (y | (x & 1) << 255).to_bytes(32, "little")


def decode(raw: bytes) -> Point | None:
    """The point of an encoding as RFC 8032 (5.1.3) has it: one spelling of each."""
    value = int.from_bytes(raw, "little")
    y = value & (SIGN - 1)
    x = recover_x(y, value >> 255) if y < P else None
    return None if x is None or encode((x, y)) != raw else (x, y)


_BASE_X = recover_x(4 * pow(5, -1, P) % P, 0)
assert _BASE_X is not None
BASE: Point = (_BASE_X, 4 * pow(5, -1, P) % P)


def torsion() -> list[Point]:
    """The 8 points of an order that divides 8, by multiples of one of order 8."""
    for y in range(2, 100):
        x = recover_x(y, 0)
        if x is not None:
            generator = times(L, (x, y))
            if times(4, generator) != NEUTRAL:
                return [times(n, generator) for n in range(8)]
    raise AssertionError("no point of order 8")


def challenge(r: bytes, a: bytes, message: bytes) -> int:
    return int.from_bytes(sha512(r + a + message).digest(), "little") % L


def holds(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """The rule of the spec, word by word."""
    a, r = decode(public_key), decode(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= L:
        return False
    if any(point == NEUTRAL or times(L, point) != NEUTRAL for point in (a, r)):
        return False
    k = challenge(signature[:32], public_key, message)
    return times(s, BASE) == add(r, times(k, a))


def made() -> list[Made]:
    return list(_made())


SECRET = int.from_bytes(sha256(b"secret").digest(), "little") % L
NONCE = int.from_bytes(sha256(b"nonce").digest(), "little") % L
PUBLIC = times(SECRET, BASE)
COMMITTED = times(NONCE, BASE)
MESSAGE = b"WLEDGER 1 and more\n"


def _signed(r: bytes, a: bytes, message: bytes, *, nonce: int = NONCE, key: int = SECRET) -> bytes:
    """R and the S that fits it, whatever R and A spell."""
    s = (nonce + challenge(r, a, message) * key) % L
    return r + s.to_bytes(32, "little")


def _message(wanted: bool, r: bytes, a: bytes, order: int = 8) -> bytes:
    """A message whose challenge is, or is not, a multiple of the order."""
    messages = (b"message %d\n" % number for number in range(1000))
    return next(m for m in messages if (challenge(r, a, m) % order == 0) is wanted)


def _made() -> Iterator[Made]:
    a, r = encode(PUBLIC), encode(COMMITTED)
    good = _signed(r, a, MESSAGE)
    s = int.from_bytes(good[32:], "little")
    yield Made("good", True, a, MESSAGE, good, "")
    yield Made("good_empty", True, a, b"", _signed(r, a, b""), "of no bytes")
    for name, value in (("s_plus_l", s + L), ("s_plus_2l", s + 2 * L), ("s_plus_7l", s + 7 * L)):
        note = "S is congruent and not below L"
        yield Made(name, False, a, MESSAGE, r + value.to_bytes(32, "little"), note)
    yield Made("s_is_l", False, a, MESSAGE, r + L.to_bytes(32, "little"), "S is L")
    yield Made("s_high_bit", False, a, MESSAGE, good[:63] + bytes([good[63] | 128]), "S over 2^255")
    yield Made("wrong_message", False, a, MESSAGE + b" ", good, "one byte more")
    other = encode(times(SECRET + 1, BASE))
    yield Made("wrong_key", False, other, MESSAGE, good, "the key of somebody else")
    for name, at in (("flipped_r", 0), ("flipped_s", 32)):
        flipped = bytearray(good)
        flipped[at] ^= 1
        yield Made(name, False, a, MESSAGE, bytes(flipped), "one bit of it")
    yield Made("zeros", False, a, MESSAGE, bytes(64), "64 zero bytes")
    yield from _small(a, r)
    yield from _mixed(a, r)
    yield from _not_canonical(a, r)
    nowhere = next(y for y in range(2, 100) if recover_x(y, 0) is None).to_bytes(32, "little")
    yield Made("a_no_point", False, nowhere, MESSAGE, good, "A is no point of the curve")
    yield Made("r_no_point", False, a, MESSAGE, _signed(nowhere, a, MESSAGE), "R is no point")


def _small(a: bytes, r: bytes) -> Iterator[Made]:
    """Where A is of small order anybody can sign some messages, where R is the equation lies."""
    for number, point in enumerate(torsion()):
        small = encode(point)
        message = _message(True, r, small)
        signature = _signed(r, small, message, key=0)
        yield Made(f"a_small_{number}", False, small, message, signature, "A of small order")
        signature = _signed(small, small, _message(True, small, small), nonce=0, key=0)
        message = _message(True, small, small)
        yield Made(f"both_small_{number}", False, small, message, signature, "S is 0")
        signature = _signed(small, a, MESSAGE, nonce=0)
        yield Made(f"r_small_{number}", False, a, MESSAGE, signature, "R of small order")


def _mixed(a: bytes, r: bytes) -> Iterator[Made]:
    """Points with a part of small order: with the cofactor another equation is asked."""
    part = torsion()[1]
    key, committed = encode(add(PUBLIC, part)), encode(add(COMMITTED, part))
    message = _message(False, r, key)
    note = "A has a part of order 8; the equation holds times 8 only"
    yield Made("a_mixed", False, key, message, _signed(r, key, message), note)
    message = _message(True, r, key)
    note = "A has a part of order 8, which the challenge takes away"
    yield Made("a_mixed_hidden", False, key, message, _signed(r, key, message), note)
    note = "R has a part of order 8; the equation holds times 8 only"
    yield Made("r_mixed", False, a, MESSAGE, _signed(committed, a, MESSAGE), note)
    # R takes the part that A brings: the equation without the cofactor holds as well.
    for number in range(1000):
        message = b"message %d\n" % number
        for times_part in range(8):
            spelled = encode(add(COMMITTED, times(times_part, part)))
            if times_part and (challenge(spelled, key, message) + times_part) % 8 == 0:
                note = "A and R have parts of order 8 that cancel out"
                yield Made("both_mixed", False, key, message, _signed(spelled, key, message), note)
                return


def _not_canonical(a: bytes, r: bytes) -> Iterator[Made]:
    """Encodings with y not below p, or with the sign of an x that is 0."""
    x_is_zero = [point for point in torsion() if point[0] == 0]
    for number, (_, y) in enumerate(x_is_zero):
        spelled = (y | SIGN).to_bytes(32, "little")
        note = "a sign for an x of 0"
        message = _message(True, r, spelled)
        signature = _signed(r, spelled, message, key=0)
        yield Made(f"a_sign_of_zero_{number}", False, spelled, message, signature, note)
        signature = _signed(spelled, a, MESSAGE, nonce=0)
        yield Made(f"r_sign_of_zero_{number}", False, a, MESSAGE, signature, note)
    for y in range(19):
        for sign in (0, SIGN):
            x = recover_x(y, sign >> 255)
            if x is None:
                continue
            spelled = (y + P | sign).to_bytes(32, "little")
            name = f"{y}_{'odd' if sign else 'even'}"
            message = _message(True, r, spelled)
            signature = _signed(r, spelled, message, key=0)
            yield Made(f"a_over_p_{name}", False, spelled, message, signature, "y of A over p")
            signature = _signed(spelled, a, MESSAGE, nonce=0)
            yield Made(f"r_over_p_{name}", False, a, MESSAGE, signature, "y of R over p")
