"""One chunk is mended from its own lines, or is not given at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from random import Random

import numpy as np
import pytest

from tests.data import seeded
from wtxtgit.model.checksum import crc32c
from wtxtgit.text import block_armor, grammar
from wtxtgit.text.recovery import chunk as recovery
from wtxtgit.text.recovery import order, syndromes
from wtxtgit.text.recovery.chunk import ChunkClaim

LINE = 79
SIZES = (0, 1, 40, 57, 58, 1000, 5700)
Damage = Callable[[list[bytes], Random], list[bytes]]


def chunk(size: int, rng: Random) -> tuple[bytes, list[bytes], ChunkClaim]:
    """Raw bytes, their lines, and what a `ch` line says of them."""
    raw = rng.randbytes(size)
    text = np.zeros(grammar.line_count(size) * LINE, np.uint8)
    block_armor.encode(memoryview(raw), 1, size, text, 0, 0)
    body = text.tobytes()
    lines = [body[at : at + LINE] for at in range(0, len(body), LINE)]
    return raw, lines, ChunkClaim(size, sha256(raw).hexdigest(), f"{crc32c(raw):08x}")


def mend(body: bytes, claim: ChunkClaim, spare: Sequence[bytes] = ()) -> bytes | None:
    """By all ways that there are, in their order."""
    ways = (recovery.mend, partial(order.rearrange, spare=spare), recovery.mend_more)
    return next((raw for way in ways if (raw := way(body, claim)) is not None), None)


def with_another(line: bytes, rng: Random, at: int | None = None) -> bytes:
    at = rng.randrange(len(line)) if at is None else at
    other = rng.choice([c for c in range(32, 127) if c != line[at]])
    return line[:at] + bytes((other,)) + line[at + 1 :]


def with_one(line: bytes, at: int, character: int) -> bytes:
    return line[:at] + bytes((character,)) + line[at + 1 :]


def wrong(count: int) -> Damage:
    def damage(lines: list[bytes], rng: Random) -> list[bytes]:
        for number in rng.sample(range(len(lines)), min(count, len(lines))):
            lines[number] = with_another(lines[number], rng)
        return lines

    return damage


def two_in_one(lines: list[bytes], rng: Random) -> list[bytes]:
    number = rng.randrange(len(lines))
    for at in rng.sample(range(LINE), 2):
        lines[number] = with_another(lines[number], rng, at)
    return lines


def exchanged(lines: list[bytes], rng: Random) -> list[bytes]:
    # The last line has another length.
    if len(lines) > 2:
        one, two = rng.sample(range(len(lines) - 1), 2)
        lines[one], lines[two] = lines[two], lines[one]
    return lines


def moved(lines: list[bytes], rng: Random) -> list[bytes]:
    if len(lines) > 2:
        line = lines.pop(rng.randrange(len(lines) - 1))
        lines.insert(rng.randrange(len(lines)), line)
    return lines


def doubled(lines: list[bytes], rng: Random) -> list[bytes]:
    if len(lines) > 1:
        number = rng.randrange(len(lines) - 1)
        lines.insert(number, lines[number])
    return lines


def doubled_elsewhere(lines: list[bytes], rng: Random) -> list[bytes]:
    if len(lines) > 1:
        lines.insert(rng.randrange(len(lines) - 1), lines[rng.randrange(len(lines) - 1)])
    return lines


def run_doubled(lines: list[bytes], rng: Random) -> list[bytes]:
    if len(lines) > 8:
        at = rng.randrange(len(lines) - 6)
        lines[at:at] = lines[at : at + 4]
    return lines


def shortened(lines: list[bytes], rng: Random) -> list[bytes]:
    number = rng.randrange(len(lines))
    at = rng.randrange(LINE)
    lines[number] = lines[number][:at] + lines[number][at + 1 :]
    return lines


def lengthened(lines: list[bytes], rng: Random) -> list[bytes]:
    number = rng.randrange(len(lines))
    at = rng.randrange(LINE)
    lines[number] = lines[number][:at] + bytes((rng.choice(range(32, 127)),)) + lines[number][at:]
    return lines


def parted(lines: list[bytes], rng: Random) -> list[bytes]:
    number, at = rng.randrange(len(lines)), rng.randrange(1, LINE - 1)
    lines[number] = lines[number][:at] + b"\n" + lines[number][at:]
    return lines


def both(*damages: Damage) -> Damage:
    def damage(lines: list[bytes], rng: Random) -> list[bytes]:
        for one in damages:
            lines = one(lines, rng)
        return lines

    return damage


DAMAGES = (
    *(wrong(1), wrong(2), wrong(3), two_in_one, exchanged, moved, doubled, doubled_elsewhere),
    *(run_doubled, shortened, lengthened, parted),
)
SEVERAL = {
    "doubled twice": both(doubled, doubled),
    "doubled and wrong": both(doubled, wrong(2)),
    "wrong and doubled": both(wrong(2), doubled),
    "doubled four times and wrong": both(doubled, doubled, doubled, doubled, wrong(1)),
    "a run doubled and wrong": both(run_doubled, wrong(2)),
    "doubled and shortened": both(doubled, shortened),
    "four wrong": wrong(4),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__qualname__.split(".")[0])
def test_damage_is_mended(damage: Damage, size: int) -> None:
    rng = seeded(f"{damage} {size}".partition(" at ")[0])
    for _ in range(3):
        raw, lines, claim = chunk(size, rng)
        mended = mend(b"".join(damage(lines, rng)), claim)
        assert mended == raw


@pytest.mark.parametrize("size", [1000, 5700])
@pytest.mark.parametrize("name", SEVERAL)
def test_several_damages_of_one_chunk(name: str, size: int) -> None:
    rng = seeded(f"{name} {size}")
    for _ in range(3):
        raw, lines, claim = chunk(size, rng)
        assert mend(b"".join(SEVERAL[name](lines, rng)), claim) == raw


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 4, 5])
def test_wrong_characters_that_parity_shows(count: int) -> None:
    rng = seeded(f"shown {count}")
    for _ in range(2):
        raw, lines, claim = chunk(65_536, rng)
        for number in rng.sample(range(len(lines)), count):
            line = lines[number]
            at = rng.randrange(76)
            others = (c for c in b"ABCDEFGHIJ" if (c ^ line[at]) & 0xF)
            lines[number] = with_one(line, at, rng.choice(list(others)))
        assert recovery.mend(b"".join(lines), claim) == raw


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES[:2], ids=("one", "two"))
def test_of_a_full_chunk(damage: Damage) -> None:
    rng = seeded("full")
    for _ in range(10):
        raw, lines, claim = chunk(65_536, rng)
        assert mend(b"".join(damage(lines, rng)), claim) == raw


def test_lines_of_another_chunk() -> None:
    rng = seeded("spare")
    one, lines, claim = chunk(4000, rng)
    two, others, other_claim = chunk(4000, rng)
    lines[3], others[40] = others[40], lines[3]
    bodies = b"".join(lines), b"".join(others)
    assert mend(bodies[0], claim) is None
    assert mend(bodies[0], claim, [line[:-1] for line in others]) == one
    assert mend(bodies[1], other_claim, [line[:-1] for line in lines]) == two
    # Cut out of the one and put into the other.
    lines.insert(7, lines.pop(3)), others.insert(12, lines.pop(30))
    assert mend(b"".join(others), other_claim) is None
    spare = [line[:-1] for line in chunk(4000, seeded("spare"))[1]]
    missing = spare[:20] + spare[21:]
    assert mend(b"".join(line + b"\n" for line in missing), claim, spare) == one


@pytest.mark.parametrize("size", [114, 228, 5700])
def test_a_last_line_that_is_as_long_as_the_others(size: int) -> None:
    raw, lines, claim = chunk(size, seeded("last"))
    first, *between, last = lines
    for damaged in (
        [last, *between, first],
        [last, first, *between],
        [first, last, *between, last],
        [first, *between, last, last],
    ):
        assert mend(b"".join(damaged), claim) == raw
    assert mend(b"".join(lines[:-1]), claim, spare=[last[:-1]]) == raw


@pytest.mark.parametrize("field", ["sha256", "crc32c"])
def test_a_wrong_digit_in_a_hash(field: str) -> None:
    rng = seeded(field)
    for _ in range(20):
        raw, lines, claim = chunk(3000, rng)
        digits = with_another(getattr(claim, field).encode(), rng).decode()
        body = b"".join(wrong(1)(lines, rng))
        assert mend(body, replace(claim, **{field: digits})) == raw


def test_what_can_not_be_proved_is_not_given() -> None:
    rng = seeded("unproved")
    for _ in range(5):
        _, lines, claim = chunk(3000, rng)
        # Another content, whole as it is.
        _, others, _ = chunk(3000, rng)
        assert mend(b"".join(others), claim) is None
        assert mend(b"".join(wrong(40)(lines, rng)), claim) is None
    assert mend(b"", claim) is None
    assert mend(b"\n" * 5000, claim) is None


def test_a_syndrome_is_what_a_change_does_to_the_checksum() -> None:
    rng = seeded("syndrome")
    raw = bytearray(rng.randbytes(300))
    before = crc32c(raw)
    bits = syndromes.of_bits(len(raw))
    for bit in (0, 1, 7, 8, 300, 2399):
        raw[bit // 8] ^= 0x80 >> bit % 8
        assert crc32c(raw) ^ before == bits[bit]
        raw[bit // 8] ^= 0x80 >> bit % 8
    row = np.frombuffer(rng.randbytes(57), np.uint8)
    for at in (0, 100, 243):
        changed = raw.copy()
        for k, byte in enumerate(row):
            changed[at + k] ^= byte
        sums = syndromes.followed(syndromes.of_bytes(row[None]), 300 - at - 57)
        assert crc32c(changed) ^ before == sums[0]
