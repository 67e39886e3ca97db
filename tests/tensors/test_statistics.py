"""Statistics of values, against exact sums and the definitions of the dtypes."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtxtgit.model.tensor import ITEM_BYTES, Tensor
from wtxtgit.report.inspect import Statistics
from wtxtgit.tensors import statistics as module
from wtxtgit.tensors.statistics import statistics

WORDS = {"f64": "<f8", "f32": "<f4", "f16": "<f2", "i64": "<i8", "u64": "<u8", "i32": "<i4",
         "u32": "<u4", "i16": "<i2", "u16": "<u2", "i8": "i1", "u8": "u1"}  # fmt: skip


def tensor_of(raw: bytes, element: str | None, shape: tuple[int, ...] | None = None) -> Tensor:
    if shape is None:
        shape = (len(raw) // ITEM_BYTES[element or "u8"],)
    return Tensor("w", "?", shape, memoryview(raw), 0, element)


def stated(raw: bytes, element: str) -> Statistics:
    found = statistics(tensor_of(raw, element))
    assert found is not None
    return found


def exact(numbers: list[float] | list[int]) -> tuple[float, float]:
    """Mean and standard deviation of the population, rounded once."""
    held = [Fraction(number) for number in numbers]
    mean = sum(held, Fraction()) / len(held)
    variance = sum((number - mean) ** 2 for number in held) / len(held)
    # A square root of a fraction that no float may hold.
    scale = 2 ** (2 * max(0, 1100 - variance.numerator.bit_length()))
    root = Fraction(math.isqrt(int(variance * scale * 2**2200)), 2**1100)
    return float(mean), float(root / math.isqrt(scale)) if variance else 0.0


def check(found: Statistics, numbers: list[float] | list[int]) -> None:
    """Compare with what the definition gives, in a sum without rounding."""
    finite = [number for number in numbers if math.isfinite(number)]
    assert found.count == len(numbers)
    assert found.nan == sum(number != number for number in numbers)
    assert found.inf == sum(math.isinf(number) for number in numbers)
    assert found.zeros == sum(number == 0 for number in numbers)
    assert found.zeros_share == found.zeros / len(numbers)
    if not finite:
        assert (found.min, found.max, found.mean, found.std) == (None,) * 4
        return
    assert (found.min, found.max) == (min(finite), max(finite))
    mean, std = exact(finite)
    top = max(abs(float(number)) for number in finite)
    assert found.mean == pytest.approx(mean, rel=1e-12, abs=top * 1e-14)
    assert found.std == pytest.approx(std, rel=1e-10, abs=top * 1e-14)


@given(st.sampled_from(sorted(WORDS)), st.binary(min_size=1, max_size=200))
def test_any_bytes(element: str, raw: bytes) -> None:
    raw = raw.ljust(-(-len(raw) // 8) * 8, b"\0")
    check(stated(raw, element), np.frombuffer(raw, WORDS[element]).tolist())


@given(
    st.sampled_from(["f64", "f32", "f16"]),
    st.lists(st.floats(width=16), min_size=1, max_size=40),
    st.integers(1, 5),
)
def test_floats_in_blocks(element: str, numbers: list[float], items: int) -> None:
    raw = np.array(numbers, WORDS[element]).tobytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", items * 8)
        check(stated(raw, element), numbers)


@pytest.mark.parametrize("element", ["f64", "f32", "i64"])
def test_blocks_are_joined_without_loss(element: str) -> None:
    numbers = (np.arange(200_000) % 1000 + 10**6).astype(WORDS[element])
    numbers[100_000:] -= 17
    found = stated(numbers.tobytes(), element)
    assert found.mean == pytest.approx(float(numbers.astype("f8").mean()), rel=1e-14)
    assert found.std == pytest.approx(float(numbers.astype("f8").std()), rel=1e-11)
    assert (found.min, found.max) == (10**6 - 17, 10**6 + 999)


def test_a_small_spread_around_a_large_mean_is_kept() -> None:
    numbers = 1e9 + np.arange(100_000) % 2
    assert stated(numbers.astype("<f8").tobytes(), "f64").std == pytest.approx(0.5, rel=1e-9)


@pytest.mark.parametrize("top", [1.7e308, 5e-324, 1e-300, 1e200])
def test_numbers_whose_squares_are_none(top: float) -> None:
    numbers = [top, -top, top, 0.0]
    check(stated(np.array(numbers, "<f8").tobytes(), "f64"), numbers)
    assert stated(np.array([top] * 1000, "<f8").tobytes(), "f64").mean == top


def test_integers_are_exact() -> None:
    found = stated(np.array([2**64 - 1, 0, 2**64 - 1], "<u8").tobytes(), "u64")
    assert (found.min, found.max, found.zeros) == (0, 2**64 - 1, 1)
    found = stated(np.array([-(2**63), 2**63 - 1], "<i8").tobytes(), "i64")
    assert (found.min, found.max) == (-(2**63), 2**63 - 1)
    assert type(found.min) is type(stated(b"\1\2", "i8").max) is int


def bf16(numbers: list[float]) -> bytes:
    return (np.array(numbers, "<f4").view("<u4") >> 16).astype("<u2").tobytes()


@pytest.mark.slow
def test_bf16() -> None:
    numbers = [1.0, -2.5, 0.0, -0.0, math.inf, -math.inf, math.nan, 2.0**127, 2.0**-133]
    check(stated(bf16(numbers), "bf16"), numbers)
    many = [float(n % 50) for n in range(70_000)]
    check(stated(bf16(many), "bf16"), many)


def test_every_pattern_of_two_bytes() -> None:
    patterns = np.arange(65_536, dtype="<u2")
    twice = np.concatenate([patterns, patterns]).tobytes()
    wide = (patterns.astype("<u4") << 16).view("<f4")
    for element, values in (("bf16", wide), ("f16", patterns.view("<f2"))):
        few, many = stated(patterns.tobytes(), element), stated(twice, element)
        assert (few.nan, few.inf, few.zeros) == (
            2 * (2 ** (7 if element == "bf16" else 10) - 1),
            2,
            2,
        )
        finite = values[np.isfinite(values)]
        assert (few.min, few.max) == (float(finite.min()), float(finite.max()))
        assert (many.count, many.nan, many.zeros) == (2 * few.count, 2 * few.nan, 2 * few.zeros)
        assert (many.mean, many.std) == (few.mean, few.std)


EIGHT_BITS = {
    # smallest and largest positive number, infinities, NaN, zeros
    "f8_e4m3": (2.0**-9, 448.0, 0, 2, 2),
    "f8_e5m2": (2.0**-16, 57_344.0, 2, 6, 2),
    "f8_e4m3fnuz": (2.0**-10, 240.0, 0, 1, 1),
    "f8_e5m2fnuz": (2.0**-17, 57_344.0, 0, 1, 1),
    "f8_e8m0": (2.0**-127, 2.0**127, 0, 1, 0),
}


@pytest.mark.parametrize("element", EIGHT_BITS)
def test_every_pattern_of_eight_bits(element: str) -> None:
    least, most, infinities, nans, zeros = EIGHT_BITS[element]
    found = stated(bytes(range(256)), element)
    assert (found.inf, found.nan, found.zeros) == (infinities, nans, zeros)
    assert found.max == most
    assert found.min == (least if element == "f8_e8m0" else -most)
    if element != "f8_e8m0":
        assert found.mean == 0
        assert (stated(b"\1", element).min, stated(b"\x81", element).min) == (least, -least)


@pytest.mark.parametrize(
    ("element", "byte", "value"),
    [
        ("f8_e4m3", 0x38, 1.0),
        ("f8_e4m3", 0x7E, 448.0),
        ("f8_e4m3", 0xC1, -2.25),
        ("f8_e4m3", 0x07, 7 * 2.0**-9),
        ("f8_e5m2", 0x3C, 1.0),
        ("f8_e5m2", 0xC2, -3.0),
        ("f8_e5m2", 0x7B, 57_344.0),
        ("f8_e4m3fnuz", 0x40, 1.0),
        ("f8_e4m3fnuz", 0x7F, 240.0),
        ("f8_e5m2fnuz", 0x40, 1.0),
        ("f8_e5m2fnuz", 0xC2, -1.5),
        ("f8_e8m0", 0x7F, 1.0),
        ("f8_e8m0", 0x00, 2.0**-127),
    ],
)
def test_numbers_of_eight_bits(element: str, byte: int, value: float) -> None:
    found = stated(bytes([byte]), element)
    assert (found.min, found.max, found.mean, found.std) == (value, value, value, 0)


def test_e5m2_is_the_upper_half_of_f16() -> None:
    halves = (np.arange(256, dtype="<u2") << 8).view("<f2").tolist()
    check(stated(bytes(range(256)), "f8_e5m2"), halves)


def test_booleans_are_0_and_1() -> None:
    found = stated(b"\0\1\1\2", "bool")
    assert (found.min, found.max, found.mean, found.zeros) == (0, 1, 0.75, 1)


@pytest.mark.parametrize(("element", "word"), [("c64", "<c8"), ("c128", "<c16")])
def test_parts_of_complex_numbers_are_numbers(element: str, word: str) -> None:
    raw = np.array([1 + 2j, -3j, complex(math.nan, math.inf)], word).tobytes()
    check(stated(raw, element), [1.0, 2.0, 0.0, -3.0, math.nan, math.inf])


def test_signalling_nan_is_counted_in_silence() -> None:
    assert stated(b"\1\0\xa0\x7f" * 3, "f32").nan == 3
    assert stated(b"\1\x7d" * 3, "f16").nan == 3
    assert stated(b"\1\0\0\0\0\0\xf4\x7f" * 3, "f64").nan == 3


def test_strides_and_byte_order_are_followed() -> None:
    raw = np.array([[1, 2], [3, 4]], ">f4").tobytes()
    tensor = Tensor("w", "", (3, 2), memoryview(raw), 0, "f32", byteorder="big", strides=(0, 2))
    found = statistics(tensor)
    assert found is not None
    check(found, [1.0, 3.0] * 3)


@pytest.mark.parametrize(
    "tensor",
    [
        tensor_of(b"abcd", None),
        tensor_of(b"", "f32", (0, 4)),
        tensor_of(b"abcd", "f32", (2,)),
        tensor_of(b"", "u8", (4,)),
        Tensor("w", "", (4,), memoryview(b"abcd"), 0, "u8", absent="it is elsewhere"),
    ],
)
def test_nothing_is_told_where_there_are_no_numbers(tensor: Tensor) -> None:
    assert statistics(tensor) is None


def test_padding_is_not_counted() -> None:
    found = statistics(tensor_of(b"\1\2\3" + bytes(29), "u8", (3,)))
    assert found is not None
    check(found, [1, 2, 3])


def test_a_dictionary_has_it_all() -> None:
    assert stated(bytes([0, 0, 3, 3]), "u8").as_dict() == {
        "count": 4,
        "min": 0,
        "max": 3,
        "mean": 1.5,
        "std": 1.5,
        "zeros": 2,
        "zeros_share": 0.5,
        "nan": 0,
        "inf": 0,
    }


@pytest.mark.parametrize("element", ["f32", "bf16", "i8"])
def test_memory_is_bounded(element: str) -> None:
    raw = bytes(16 * 2**20)
    stated(raw[:1024], element)
    tracemalloc.start()
    stated(raw, element)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 2**20


@pytest.mark.parametrize("element", ["f64", "f32", "f16"])
def test_equal_numbers_have_no_spread(element: str) -> None:
    numbers = np.full(100_000, 0.1, WORDS[element])
    found = stated(numbers.tobytes(), element)
    assert found.min == found.max == found.mean == float(numbers[0])
    assert found.std == 0


def test_the_largest_numbers_do_not_overflow() -> None:
    most = np.finfo("f8").max
    values = np.array([most] * 25 + [np.nextafter(most, 0)] * 5 + [-most] * 30)
    found = statistics(Tensor("w", "<f8", (60,), memoryview(values.tobytes()), 0, "f64"))
    assert found is not None
    assert (found.min, found.max) == (-most, most)
    assert found.std is not None
    assert found.std <= most
