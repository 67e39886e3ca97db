"""Numbers of a change: against exact sums, and numpy's float64 on whole arrays."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction
from sys import float_info
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from wtxtgit.errors import FormatError
from wtxtgit.model.tensor import ITEM_BYTES, Tensor
from wtxtgit.report.diff import ByteChange, Numbers
from wtxtgit.tensors import compare, numbers, tensor_bytes
from wtxtgit.tensors.compare import compare_bytes, compare_numbers
from wtxtgit.tensors.numbers import value_table
from wtxtgit.tensors.tensor_bytes import as_numbers, is_same

WORDS = {"f64": "f8", "f32": "f4", "f16": "f2", "i64": "i8", "u64": "u8", "i32": "i4", "u32": "u4",
         "i16": "i2", "u16": "u2", "i8": "i1", "u8": "u1", "c64": "c8", "c128": "c16"}  # fmt: skip
INTEGERS = {"i64", "u64", "i32", "u32", "i16", "u16", "i8", "u8", "bool"}
PARTS = {"c64": ("f32", 2), "c128": ("f64", 2)}
SEED = 20250101

Bits = NDArray[Any]


def stored(
    bits: Bits, element: str, order: str = "C", byteorder: str = "little", gap: int = 1
) -> Tensor:
    """A tensor whose items (rows of bytes, little-endian, in the last dimension) lie so."""
    shape = bits.shape[:-1]
    width = bits.shape[-1] // PARTS.get(element, ("", 1))[1]
    if byteorder == "big":
        bits = bits.reshape(*shape, -1, width)[..., ::-1].reshape(bits.shape)
    strides = None
    if order == "F":
        raw = b"".join(bits[index[::-1]].tobytes() for index in np.ndindex(*shape[::-1]))
    elif order == "strided":
        spread = np.zeros((math.prod(shape), gap, bits.shape[-1]), np.uint8)
        spread[:, 0] = bits.reshape(-1, bits.shape[-1])
        raw = spread.tobytes()
        strides = tuple(gap * math.prod(shape[n + 1 :]) for n in range(len(shape)))
    else:
        raw = bits.tobytes()
    listed = shape[::-1] if order == "reversed" else shape
    kept = order if order in {"F", "reversed"} else "C"
    return Tensor("w", "?", listed, memoryview(raw), 0, element, kept, byteorder, strides)


def bits_of(raw: bytes, element: str, shape: tuple[int, ...]) -> Bits:
    return np.frombuffer(raw, np.uint8).reshape(*shape, ITEM_BYTES[element])


def numbers_of(bits: Bits, element: str) -> list[Any]:
    """The numbers, each as Python has it; parts of complex ones apart."""
    element = PARTS.get(element, (element, 1))[0]
    raw = np.ascontiguousarray(bits).tobytes()
    if element in WORDS:
        return np.frombuffer(raw, "<" + WORDS[element]).tolist()
    width = ITEM_BYTES[element]
    with np.errstate(invalid="ignore"):
        table = value_table(element)
    return [float(table[n]) for n in np.frombuffer(raw, f"<u{width}")]


def root(square: Fraction) -> float:
    """The square root of a fraction that no float may hold, the largest float at most."""
    if not square:
        return 0.0
    scaled = math.isqrt(square.numerator * 2**4600 // square.denominator)
    try:
        return float(Fraction(scaled, 2**2300))
    except OverflowError:
        return float_info.max


def approx(value: float, scale: float = 0.0) -> Any:
    """Equal within 1e-12 of itself, or of the sum that it is the rest of."""
    return pytest.approx(value, rel=1e-12, abs=max(abs(scale) * 1e-12, 5e-324))


def check(found: Numbers, a: Bits, b: Bits, element: str, other: str | None = None) -> None:
    """Compare with the definitions, computed without rounding."""
    other = other or element
    shape = a.shape[:-1]
    parts = PARTS.get(other, ("", 1))[1]
    x, y = numbers_of(a, element), numbers_of(b, other)
    count = math.prod(shape)
    if element == other:
        changed = (a != b).any(axis=-1).reshape(-1)
    else:
        changed = np.array([p != q and not (p != p and q != q) for p, q in zip(x, y, strict=True)])
    assert (found.elements, found.changed) == (count, int(changed.sum()))
    assert found.changed_share == found.changed / count
    rows = np.unique(np.flatnonzero(changed) // max(math.prod(shape[1:]), 1))
    assert found.rows.changed == len(rows)
    assert found.rows.rows == (shape[0] if shape else 1)
    assert [r for low, high in found.rows.ranges for r in range(low, high)] == rows.tolist()
    assert sum(found.rows.blocks.changed_rows) == len(rows)

    pairs = [
        (n, Fraction(p), Fraction(q))
        for n, (p, q) in enumerate(zip(x, y, strict=True))
        if math.isfinite(p) and math.isfinite(q)
    ]
    change = sum(((q - p) ** 2 for _, p, q in pairs), Fraction())
    base = sum((p**2 for _, p, q in pairs), Fraction())
    target = sum((q**2 for _, p, q in pairs), Fraction())
    assert found.l2 == approx(root(change))
    assert found.base_norm == approx(root(base))
    assert found.rows.blocks.l2 is not None
    assert math.hypot(*found.rows.blocks.l2) == approx(found.l2) or found.l2 == float_info.max
    if not change:
        assert found.relative_l2 == 0
    elif not base:
        assert found.relative_l2 is None
    else:
        assert found.relative_l2 == approx(root(change / base))
    if base and target:
        dot = sum((p * q for _, p, q in pairs), Fraction())
        wanted = root(dot**2 / (base * target)) * (1 if dot > 0 else -1)
        assert found.cosine == pytest.approx(wanted, abs=1e-12)
    else:
        assert found.cosine is None
    most, at = max(((abs(q - p), -n) for n, p, q in pairs), default=(Fraction(), 0))
    if not most:
        assert (found.max_abs, found.max_abs_at) == (0, None)
    else:
        assert found.max_abs == approx(root(most**2))
        index = found.max_abs_at
        assert index is not None
        where = int(np.ravel_multi_index(index, shape)) if shape else 0
        near = [abs(q - p) for n, p, q in pairs if n // parts == where]
        assert max(near) >= most * (1 - Fraction(1, 10**15)), -at
    if {element, other} <= INTEGERS and element == other:
        assert type(found.max_abs) is int or not most
        assert found.max_abs == most
    assert found.sign_flips == sum((p < 0 < q) or (q < 0 < p) for _, p, q in pairs)
    both = list(zip(x, y, strict=True))
    assert found.new_nan == sum(q != q and p == p for p, q in both)
    assert found.new_inf == sum(math.isinf(q) and not math.isinf(p) for p, q in both)
    for side, held in ((found.before, x), (found.after, y)):
        finite = [Fraction(v) for v in held if math.isfinite(v)]
        assert side.count == len(held)
        assert side.nan == sum(v != v for v in held)
        assert side.inf == sum(math.isinf(v) for v in held)
        assert side.zeros == sum(v == 0 for v in held)
        if not finite:
            assert (side.mean, side.std) == (None, None)
            continue
        mean = sum(finite, Fraction()) / len(finite)
        top = float(max(map(abs, finite)))
        assert side.mean == approx(float(mean), top * 1e-3)
        spread = sum(((v - mean) ** 2 for v in finite), Fraction()) / len(finite)
        assert side.std == pytest.approx(root(spread), rel=1e-12, abs=max(top * 1e-15, 5e-324))


def compared(a: Tensor, b: Tensor) -> Numbers:
    fitted = as_numbers(a), as_numbers(b)
    assert fitted[0] is not None
    assert fitted[1] is not None
    return compare_numbers(fitted[0], fitted[1], lambda _count: None)


ELEMENTS = st.sampled_from(sorted(ITEM_BYTES))
SHAPES = st.lists(st.integers(1, 5), max_size=3).map(tuple)
LAYOUTS = st.tuples(
    st.sampled_from(["C", "F", "reversed", "strided"]), st.sampled_from(["little", "big"])
)


@given(st.data(), ELEMENTS, SHAPES, LAYOUTS, LAYOUTS)
def test_any_bits_in_any_order(
    data: st.DataObject,
    element: str,
    shape: tuple[int, ...],
    layout_a: tuple[str, str],
    layout_b: tuple[str, str],
) -> None:
    size = math.prod(shape) * ITEM_BYTES[element]
    raw = data.draw(st.binary(min_size=size, max_size=size))
    edits = data.draw(
        st.lists(st.tuples(st.integers(0, size - 1), st.integers(1, 255)), max_size=4)
    )
    other = bytearray(raw)
    for place, mask in edits:
        other[place] ^= mask
    a, b = bits_of(raw, element, shape), bits_of(bytes(other), element, shape)
    stored_a = stored(a, element, *layout_a, gap=2)
    stored_b = stored(b, element, *layout_b, gap=3)
    fitted = as_numbers(stored_a), as_numbers(stored_b)
    assert fitted[0] is not None
    assert fitted[1] is not None
    assert is_same(*fitted, lambda _count: None) == (raw == bytes(other))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "BLOCK", 64)
        patch.setattr(tensor_bytes, "_PREFIX_BLOCK", 16)
        patch.setattr(compare, "SEGMENT", 16)
        check(compared(stored_a, stored_b), a, b, element)


EXTREMES = [0.0, -0.0, 5e-324, -5e-324, 2.0**-1022, 1e-300, -1e-200, 1.0, -1.0, 3.5, 1e150,
            -1e200, 1.7e308, -1.7e308, float_info.max, -float_info.max, math.inf, -math.inf,
            math.nan]  # fmt: skip
EXTREME = st.one_of(st.sampled_from(EXTREMES), st.floats())


@given(
    st.lists(st.tuples(EXTREME, EXTREME, st.booleans()), min_size=1, max_size=30),
    st.sampled_from([8, 16, 64]),
)
@example([(1.7e308, -1.7e308, True), (1e-300, 2e-300, True)], 8)
@example([(float_info.max, -float_info.max, True)] * 9, 64)
@example([(1e-300, 2e-300, True), (0.0, 0.0, False)], 8)
def test_extremes_of_float64(items: list[tuple[float, float, bool]], block: int) -> None:
    old = [a for a, _, _ in items]
    new = [b if is_new else a for a, b, is_new in items]
    a, b = (bits_of(np.array(v, "<f8").tobytes(), "f64", (len(v),)) for v in (old, new))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "BLOCK", block)
        patch.setattr(compare, "SEGMENT", 16)
        check(compared(stored(a, "f64"), stored(b, "f64")), a, b, "f64")


@given(st.data(), ELEMENTS, ELEMENTS, st.integers(1, 20))
def test_two_dtypes_are_compared_by_value(
    data: st.DataObject, element: str, other: str, count: int
) -> None:
    assume(element != other)
    assume(not {element, other} & set(PARTS))
    # 64-bit integers and others are compared in float64: those that it holds.
    sides = []
    for name in (element, other):
        raw = data.draw(
            st.binary(min_size=count * ITEM_BYTES[name], max_size=count * ITEM_BYTES[name])
        )
        if name in {"i64", "u64"}:
            raw = (np.frombuffer(raw, "<u8") >> np.uint64(12)).tobytes()
        sides.append(bits_of(raw, name, (count,)))
    found = compared(stored(sides[0], element), stored(sides[1], other))
    assert found.ulp is None
    check(found, *sides, element, other)


def test_a_rounded_copy_has_numbers() -> None:
    values = np.random.default_rng(SEED).standard_normal((40, 33)).astype("f4")
    rounded = (values.view("u4") >> 16).astype("u2")
    a = Tensor("w", "", values.shape, memoryview(values.tobytes()), 0, "f32")
    b = Tensor("w", "", values.shape, memoryview(rounded.tobytes()), 0, "bf16")
    found = compared(a, b)
    exact = (rounded.astype("u4") << 16).view("f4").astype("f8")
    assert found.changed == np.count_nonzero(exact != values)
    assert found.l2 == approx(float(np.linalg.norm(exact - values)))
    assert 0 < (found.relative_l2 or 0) < 2**-7


def test_real_numbers_against_complex_ones() -> None:
    real, both = np.array([1.0, 2.0], "f4"), np.array([1 + 0j, 2 + 3j], "c8")
    a = Tensor("w", "", (2,), memoryview(real.tobytes()), 0, "f32")
    b = Tensor("w", "", (2,), memoryview(both.tobytes()), 0, "c64")
    found = compared(a, b)
    assert (found.changed, found.l2, found.max_abs_at) == (1, 3.0, (1,))
    assert compared(b, a).l2 == 3.0


@pytest.mark.parametrize("element", ["f64", "f32", "f16", "bf16", "i8", "u64", "c64"])
def test_large_arrays_against_numpy(element: str) -> None:
    rng = np.random.default_rng(SEED)
    shape = (700, 321)
    if element == "bf16":
        wide = rng.standard_normal((2, *shape)).astype("f4").view("u4")
        a, b = (wide >> 16).astype("u2")
        b = np.where(rng.random(shape) < 0.01, b, a)
        x, y = ((w.astype("u4") << 16).view("f4").astype("f8") for w in (a, b))
    elif element == "c64":
        a = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype("c8")
        b = np.where(rng.random(shape) < 0.01, a * 2, a).astype("c8")
        x, y = a.view("f4").astype("f8"), b.view("f4").astype("f8")
    else:
        a = np.abs(rng.standard_normal(shape) * 20 + 50).astype(WORDS[element])
        b = np.where(rng.random(shape) < 0.01, a // 2, a).astype(WORDS[element])
        x, y = a.astype("f8"), b.astype("f8")
    found = compared(
        Tensor("w", "", shape, memoryview(a.tobytes()), 0, element),
        Tensor("w", "", shape[::-1], memoryview(b.tobytes()), 0, element, "reversed"),
    )
    delta = y - x
    assert found.changed == np.count_nonzero(a != b)
    assert found.rows.changed == np.count_nonzero((a != b).any(axis=1))
    assert found.l2 == approx(float(np.linalg.norm(delta)))
    assert found.relative_l2 == approx(float(np.linalg.norm(delta) / np.linalg.norm(x)))
    assert found.max_abs == float(np.abs(delta).max())
    parts = x.size // a.size
    assert found.max_abs_at == np.unravel_index(np.abs(delta).argmax() // parts, shape)
    cosine = (x * y).sum() / np.linalg.norm(x) / np.linalg.norm(y)
    assert found.cosine == approx(float(cosine), 1)
    for side, values in ((found.before, x), (found.after, y)):
        assert side.mean == approx(float(values.mean()), float(np.abs(values).mean()))
        assert side.std == approx(float(values.std()))


def test_a_small_spread_around_a_large_mean_is_kept() -> None:
    values = 1e9 + (np.arange(100_000) % 2)
    other = values.copy()
    other[::1000] += 1
    a, b = (Tensor("w", "", v.shape, memoryview(v.tobytes()), 0, "f64") for v in (values, other))
    found = compared(a, b)
    assert found.before.std == pytest.approx(0.5, rel=1e-12)
    assert found.l2 == approx(10.0)


class TestUlp:
    """Distances in floats of the format, in buckets of powers of two."""

    @staticmethod
    def ulp(old: Any, new: Any, element: str, word: str) -> tuple[tuple[int, int], ...] | None:
        a, b = np.array(old, word), np.array(new, word)
        found = compared(
            Tensor("w", "", a.shape, memoryview(a.tobytes()), 0, element),
            Tensor("w", "", b.shape, memoryview(b.tobytes()), 0, element),
        )
        return found.ulp

    def test_neighbours(self) -> None:
        one = np.float32(1)
        above = np.nextafter(one, np.float32(2))
        assert self.ulp([one, one, above], [above, one, one], "f32", "f4") == ((1, 2),)

    def test_across_zero(self) -> None:
        tiny = 5e-324
        assert self.ulp([-tiny, 0.0], [tiny, -0.0], "f64", "f8") == ((0, 1), (2, 1))

    @pytest.mark.parametrize("distance", [3, 4, 7, 8, 2**53 - 1, 2**54 - 1, 2**54, 2**62])
    def test_a_distance_is_in_its_bucket(self, distance: int) -> None:
        found = self.ulp([0], [distance], "f64", "u8")
        assert found == ((2 ** (distance.bit_length() - 1), 1),)

    def test_the_widest(self) -> None:
        low, high = -float_info.max, float_info.max
        assert self.ulp([low], [high], "f64", "f8") == ((2**63, 1),)

    def test_what_is_not_finite_has_no_distance(self) -> None:
        assert self.ulp([1.0, 1.0], [math.nan, math.inf], "f64", "f8") == ()

    def test_eight_bits(self) -> None:
        assert self.ulp([0x38, 0x81], [0x3A, 0x01], "f8_e4m3", "u1") == ((2, 2),)
        assert self.ulp([0x80], [0x7F], "f8_e8m0", "u1") == ((1, 1),)

    def test_integers_have_none(self) -> None:
        assert self.ulp([1], [2], "i32", "i4") is None


def test_wide_integers_are_exact() -> None:
    a = np.array([2**63 - 1, -(2**63), 2**62 + 1], "<i8")
    b = np.array([-(2**63), -(2**63), 2**62], "<i8")
    found = compared(
        Tensor("w", "", (3,), memoryview(a.tobytes()), 0, "i64"),
        Tensor("w", "", (3,), memoryview(b.tobytes()), 0, "i64"),
    )
    assert (found.max_abs, found.max_abs_at, found.changed) == (2**64 - 1, (0,), 2)
    close = compared(
        Tensor("w", "", (1,), memoryview(a[2:].tobytes()), 0, "i64"),
        Tensor("w", "", (1,), memoryview(b[2:].tobytes()), 0, "i64"),
    )
    assert (close.max_abs, close.l2) == (1, 1.0)


class TestRows:
    @staticmethod
    def rows(changed: list[int], count: int) -> Numbers:
        a = np.zeros((count, 2), "f4")
        b = a.copy()
        b[changed, 1] = 3
        return compared(
            Tensor("w", "", a.shape, memoryview(a.tobytes()), 0, "f32"),
            Tensor("w", "", b.shape, memoryview(b.tobytes()), 0, "f32"),
        )

    @given(st.sets(st.integers(0, 399), min_size=1))
    def test_ranges_hold_the_changed_rows(self, changed: set[int]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compare, "BLOCK", 24)
            patch.setattr(numbers, "MAX_RANGES", 8)
            found = self.rows(sorted(changed), 400).rows
        assert found.changed == len(changed)
        assert len(found.ranges) <= 8
        held = [row for low, high in found.ranges for row in range(low, high)]
        assert len(held) == len(set(held))
        assert changed <= set(held)
        assert (set(held) == changed) == found.exact
        ends = {low for low, _ in found.ranges} | {high - 1 for _, high in found.ranges}
        assert ends <= changed

    def test_blocks_of_rows(self) -> None:
        found = self.rows([0, 1, 2, 999], 1000).rows.blocks
        assert (found.rows, len(found.changed_rows)) == (16, 63)
        assert (found.changed_rows[0], found.changed_rows[-1], sum(found.changed_rows)) == (3, 1, 4)
        assert found.l2 is not None
        assert found.l2[0] == approx(math.sqrt(27))
        assert found.l2[-1] == 3.0
        assert found.l2[1] == 0.0

    def test_rows_joined_in_haste_are_counted_exactly(self) -> None:
        changed = list(range(0, 60_000, 3))
        found = self.rows(changed, 60_000).rows
        assert found.changed == len(changed)
        assert len(found.ranges) == numbers.MAX_RANGES
        assert not found.exact


class TestBytes:
    @staticmethod
    def bytes_of(a: bytes, b: bytes, shape: tuple[int, ...]) -> ByteChange:
        return compare_bytes(
            Tensor("w", "Q4_0", shape, memoryview(a), 0),
            Tensor("w", "Q4_0", shape, memoryview(b), 0),
            lambda _count: None,
        )

    def test_rows_of_packed_items(self) -> None:
        old = bytes(18 * 4)
        new = bytearray(old)
        new[18 * 2 + 3] = new[18 * 2 + 4] = 1
        found = self.bytes_of(old, bytes(new), (4, 32))
        assert (found.nbytes, found.changed, found.changed_share) == (72, 2, 2 / 72)
        assert found.rows is not None
        assert (found.rows.changed, found.rows.ranges) == (1, ((2, 3),))

    def test_without_whole_rows(self) -> None:
        assert self.bytes_of(bytes(7), b"\1" * 7, (2, 5)).rows is None


def test_fewer_bytes_than_a_shape_needs_are_no_numbers() -> None:
    assert as_numbers(Tensor("w", "", (3,), memoryview(b"1234"), 0, "f32")) is None
    padded = as_numbers(Tensor("w", "", (1,), memoryview(b"12345678"), 0, "f32"))
    assert padded is not None
    assert padded.nbytes == 4


def test_strides_that_do_not_fit_are_refused() -> None:
    tensor = Tensor("w", "", (4,), memoryview(b"12345678"), 0, "f32", strides=(2,))
    assert as_numbers(tensor) is None
    tensor = Tensor("w", "", (2, 1), memoryview(b"12345678"), 0, "f32", strides=(1,))
    with pytest.raises(FormatError):
        compared(tensor, tensor)


def test_memory_does_not_grow_with_the_tensor() -> None:
    def peak(rows: int) -> int:
        a = np.zeros((rows, 1024), "f4")
        b = a + 1
        held = [Tensor("w", "", a.shape, v.reshape(-1).view("u1").data, 0, "f32") for v in (a, b)]
        tracemalloc.start()
        try:
            assert compare_numbers(*held, lambda _c: None, threads=2).changed == a.size
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(256)
    # Some blocks are in flight, of 256 KiB each, with what they become.
    assert peak(16_384) < 24 * 1024 * 1024


@pytest.mark.torch
@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
def test_numbers_against_torch(name: str) -> None:
    import torch

    elements = {
        "bfloat16": "bf16",
        "float16": "f16",
        "float8_e4m3fn": "f8_e4m3",
        "float8_e5m2": "f8_e5m2",
    }
    torch.manual_seed(SEED)
    dtype = getattr(torch, name)
    old = torch.randn(300, 77).to(dtype)
    new = (old.to(torch.float32) * (1 + 0.1 * (torch.rand(300, 77) < 0.05))).to(dtype)
    raws = [v.view(torch.uint8).numpy().tobytes() for v in (old, new)]
    held = [Tensor("w", "", (300, 77), memoryview(r), 0, elements[name]) for r in raws]
    found = compared(*held)
    x, y = old.to(torch.float64), new.to(torch.float64)
    assert found.changed == int((x != y).sum()) > 0
    assert found.l2 == approx(float((y - x).norm()))
    assert found.relative_l2 == approx(float((y - x).norm() / x.norm()))
    assert found.max_abs == float((y - x).abs().max())
    assert found.cosine == approx(float((x * y).sum() / x.norm() / y.norm()), 1)
    assert found.after.mean == approx(float(y.mean()), 1)
    assert found.after.std == approx(float(y.std(correction=0)))
