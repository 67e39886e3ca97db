"""Armor against a slow encoder that follows the spec line by line."""

from __future__ import annotations

import base64
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import seeded
from wtxtgit.text import armor, block_armor, grammar

AROUND_LINES = sorted(
    {57 * lines + extra for lines in (2, 3, 10, 575, 1149) for extra in (-2, -1, 0, 1, 2)}
)
SIZES = [*range(201), *AROUND_LINES]


def slow_encode(raw: bytes) -> bytes:
    """The armor of one chunk, as the spec's section words it."""
    pieces = [raw[i : i + 57] for i in range(0, len(raw), 57)] or [b""]
    text = b""
    for piece in pieces:
        body = base64.b64encode(piece).rstrip(b"=").ljust(76, b"=")
        parity = 0
        for byte in body:
            parity ^= byte
        text += body + b" %x\n" % (parity & 0xF)
    return text


def encode(raw: bytes, count: int = 1, gap: int = 0) -> bytes:
    """The armor of `count` chunks of equal size, `gap` bytes apart."""
    size = len(raw) // count
    stride = grammar.line_count(size) * grammar.LINE_TEXT + gap
    text = np.full(count * stride, ord("#"), dtype=np.uint8)
    block_armor.encode(memoryview(raw), count, size, text, 0, stride)
    return text.tobytes()


def decode(text: bytes, size: int, count: int = 1, gap: int = 0) -> bytes | None:
    stride = grammar.line_count(size) * grammar.LINE_TEXT + gap
    found = block_armor.decode(np.frombuffer(text, dtype=np.uint8), count, size, 0, stride)
    decoded = None if found is None else found.tobytes()
    if count == 1 and grammar.line_count(size) <= armor.FEW_LINES:
        # Without numpy it is the same.
        few = armor.decode_few(memoryview(text)[: stride - gap], size)
        assert (None if few is None else bytes(few)) == decoded
    return decoded


def test_a_chunk_is_armored_as_the_slow_encoder_does_and_read_back() -> None:
    for size in SIZES:
        raw = seeded(size).randbytes(size)
        text = slow_encode(raw)
        assert encode(raw) == text, size
        assert decode(text, size) == raw, size
        assert len(text) == grammar.line_count(size) * 79, size
        faults, read = armor.diagnose(memoryview(text), size)
        assert faults == [], size
        assert read == raw, size


@pytest.mark.parametrize("filler", [b"\x00", b"\xff", b"\xfb\xef\xbe"])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 55, 56, 57, 58, 113, 114, 115])
def test_extreme_bytes_are_armored_as_the_slow_encoder_does(size: int, filler: bytes) -> None:
    raw = (filler * size)[:size]
    assert encode(raw) == slow_encode(raw)
    assert decode(slow_encode(raw), size) == raw


@given(
    size=st.integers(0, 240),
    count=st.integers(1, 5),
    gap=st.integers(0, 200),
    seed=st.integers(0, 2**32),
)
def test_several_chunks_stand_a_stride_apart(size: int, count: int, gap: int, seed: int) -> None:
    raw = seeded(seed).randbytes(size * count)
    text = encode(raw, count, gap)
    wanted = b"".join(
        slow_encode(raw[k * size : (k + 1) * size]) + b"#" * gap for k in range(count)
    )
    assert text == wanted
    assert decode(text, size, count, gap) == raw


ALPHABET = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


@pytest.mark.parametrize("size", [0, 1, 2, 3, 56, 57, 58, 114, 130])
def test_a_changed_character_is_refused_or_spells_other_bytes(size: int) -> None:
    """The parity nibble sees a change of the low four bits, the alphabet all else but letters."""
    text = slow_encode(seeded(size).randbytes(size))
    tried = b"\x00\t\n\r =-_AZaz+/09fg\x7f\x80\xff"
    for position in range(len(text)):
        for character in {*tried, text[position] ^ 1, text[position] ^ 0x20}:
            if character == text[position]:
                continue
            changed = bytearray(text)
            changed[position] = character
            found = decode(bytes(changed), size)
            faults, _ = armor.diagnose(memoryview(bytes(changed)), size)
            assert (found is None) == bool(faults)
            if (
                position % 79 >= 76
                or character not in ALPHABET
                or (character ^ text[position]) & 0xF
            ):
                assert found is None
            if found is not None:
                assert slow_encode(found) == changed


@given(size=st.integers(0, 170), seed=st.integers(0, 2**32), data=st.data())
def test_what_is_read_is_what_would_be_written(size: int, seed: int, data: st.DataObject) -> None:
    text = bytearray(slow_encode(seeded(seed).randbytes(size)))
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.sampled_from(b"A=/+ 0f\nz"))
    found = decode(bytes(text), size)
    assert found is None or slow_encode(found) == text


def mended_parity(line: bytes) -> bytes:
    parity = 0
    for byte in line[:76]:
        parity ^= byte
    return line[:76] + b" %x\n" % (parity & 0xF)


@pytest.mark.parametrize(
    ("change", "size", "kind", "stops"),
    [
        (lambda line: line[:77] + (b"0" if line[77:78] != b"0" else b"1") + b"\n", 57, "parity", 0),
        (lambda line: mended_parity(b"!" + line[1:]), 57, "syntax", 1),
        (lambda line: mended_parity(b"=" + line[1:]), 57, "syntax", 1),
        (lambda line: mended_parity(line[:75] + b"="), 57, "base64", 1),
        (lambda line: mended_parity(line[:2] + b"A" + line[3:]), 1, "base64", 1),
        (lambda line: mended_parity(line[:1] + b"/" + line[2:]), 1, "base64", 0),
        (lambda line: line[:77] + b"A\n", 57, "syntax", 1),
        (lambda line: line[:76] + b"  \n", 57, "syntax", 1),
        (lambda line: line[:78] + b"\r", 57, "syntax", 1),
        (lambda line: line[:40], 57, "syntax", 1),
        (lambda _: b"", 57, "syntax", 1),
    ],
)
def test_a_bad_line_is_named_by_its_kind(change: object, size: int, kind: str, stops: int) -> None:
    assert callable(change)
    line = change(slow_encode(b"\x00" * size))
    faults, _ = armor.diagnose(memoryview(line), size)
    assert [(fault.kind, fault.index, fault.stops) for fault in faults] == [(kind, 0, bool(stops))]


def test_the_first_bad_line_of_each_kind_is_told() -> None:
    lines = [slow_encode(bytes([k]) * 57) for k in range(6)]
    for k in (2, 4):
        lines[k] = lines[k][:77] + (b"e" if lines[k][77:78] != b"e" else b"f") + b"\n"
    lines[5] = b"*" + lines[5][1:]
    faults, raw = armor.diagnose(memoryview(b"".join(lines)), 57 * 6)
    assert [(fault.kind, fault.index) for fault in faults] == [("parity", 2), ("syntax", 5)]
    assert raw == b"".join(bytes([k]) * 57 for k in range(5))


def test_a_concatenation_of_padded_lines_is_not_read_as_one() -> None:
    text = slow_encode(b"x" * 56) + slow_encode(b"y")
    assert decode(text, 58) is None


@given(st.integers(0, 10**9))
def test_lines_hold_the_chunk_and_no_more(size: int) -> None:
    lines = grammar.line_count(size)
    assert max(0, lines - 1) * 57 < size <= lines * 57 or (size == 0 and lines == 1)
    assert 0 <= grammar.fill_count(size) <= 76


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20))
def test_short_chunks_are_armored_together_as_alone(raws: list[bytes]) -> None:
    alone = []
    for raw in raws:
        text = np.zeros(grammar.line_count(len(raw)) * grammar.LINE_TEXT, dtype=np.uint8)
        block_armor.encode(memoryview(raw), 1, len(raw), text, 0, 0)
        alone.append(text.tobytes())
    together = block_armor.encode_short([memoryview(raw) for raw in raws])
    assert bytes(together) == b"".join(alone)
    armored = [(memoryview(text), len(raw)) for text, raw in zip(alone, raws, strict=True)]
    found = block_armor.decode_short(armored)
    assert found is not None
    assert list(map(bytes, found)) == raws


@pytest.mark.parametrize("sizes", [[0, 1, 57], [56, 3, 120], [55, 58]])
def test_short_chunks_are_read_only_as_they_are_written(sizes: list[int]) -> None:
    raws = [seeded(f"{size}").randbytes(size) for size in sizes]
    text = block_armor.encode_short([memoryview(raw) for raw in raws])
    ends = [0, *accumulate(grammar.line_count(size) * grammar.LINE_TEXT for size in sizes)]
    refused = 0
    for at in range(len(text)):
        for value in {*b"\0=A\n ", text[at] ^ 1, text[at] ^ 16} - {text[at]}:
            changed = bytearray(text)
            changed[at] = value
            chunks = [memoryview(changed)[start:end] for start, end in pairwise(ends)]
            found = block_armor.decode_short(list(zip(chunks, sizes, strict=True)))
            # The parity does not tell characters with the same low bits; hashes do.
            if found is None:
                refused += 1
            else:
                assert block_armor.encode_short(found) == changed
                assert list(map(bytes, found)) != raws
    assert refused > len(text) * 5
