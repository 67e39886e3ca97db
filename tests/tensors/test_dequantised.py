"""The numbers of quantised blocks, and what a diff says of them."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.containers.gguf_files import quantised_file
from wtxtgit.comparison.diff import diff
from wtxtgit.model.ggml import TYPES
from wtxtgit.model.tensor import ReadOptions, Tensor
from wtxtgit.report.diff import ByteChange, DiffReport, Numbers, TensorDiff
from wtxtgit.tensors.dequantised import _DECODERS
from wtxtgit.tensors.tensor_bytes import as_values, blocks

Bytes = NDArray[np.uint8]
KINDS = {kind.name: kind for kind in TYPES.values()}
ONE = b"\x00\x3c"
"""1 as f16."""
TWO = b"\x00\x40"

VECTORS: dict[str, tuple[dict[int, bytes], float, dict[int, float]]] = {
    # Lower halves of bytes are items 0 to 15, upper ones 16 to 31.
    "Q4_0": ({0: TWO, 2: b"\x88" * 16, 5: b"\x7f"}, 0, {3: 14, 19: -2}),
    "Q4_1": ({0: TWO, 2: ONE, 7: b"\x7f"}, 1, {3: 31, 19: 15}),
    "Q5_0": ({0: TWO, 2: b"\xff\xff\xf7\xff", 9: b"\x10"}, 0, {3: 0, 19: -30}),
    "Q5_1": ({0: TWO, 2: ONE, 6: b"\x08", 11: b"\x10"}, 1, {19: 35}),
    "Q8_0": ({0: TWO, 2: b"\x80", 33: b"\x7f"}, 0, {0: -256, 31: 254}),
    # The scale of part 9 is 3, its least number 2 of dmin; part 9 is half of a run's first bits.
    "Q2_K": ({9: b"\x23", 16 + 32 + 16 + 5: b"\x02", 80: TWO, 82: ONE}, 0,
             dict.fromkeys(range(144, 160), -2) | {149: 10}),
    # A scale is stored with 32 more, and of each number's highest bit the opposite.
    "Q3_K": ({0: b"\xff" * 32, 32 + 32 + 7: b"\x0c", 96: b"\x00" * 8, 104: b"\xaa" * 4,
              96 + 2: b"\x50", 108: TWO}, 0, {167: 2 * 5 * 3}),
    "Q4_K": ({0: TWO, 2: ONE, 4 + 1: b"\x40", 4 + 9: b"\x03", 16 + 64 + 7: b"\x70"}, 0,
             {167: 2 * 19 * 7}),
    "Q5_K": ({0: TWO, 2: ONE, 4 + 1: b"\x40", 4 + 5: b"\x80", 4 + 9: b"\x13",
              16 + 7: b"\x20", 48 + 64 + 7: b"\x70"}, 0,
             dict.fromkeys(range(160, 192), -33) | {167: 2 * 19 * 23 - 33}),
    "Q6_K": ({0: b"\x00" * 128, 128: b"\xaa" * 64, 192 + 10: b"\xfd",
              64 + 32 + 7: b"\x0f", 208: TWO}, 0, {167: 2 * -3 * 15}),
    "Q8_K": ({0: b"\x00\x00\x00\x40", 4 + 200: b"\xff"}, 0, {200: -2}),
    "TQ2_0": ({0: b"\x55" * 64, 32 + 7: b"\x95", 64: TWO}, 0, {128 + 96 + 7: 2}),
    # 128 of 256 is the digit 1, from which 1 is taken.
    "TQ1_0": ({0: b"\x80" * 52, 48: b"\xff", 52: TWO}, 0, dict.fromkeys(range(240, 256, 4), 2)),
    "IQ4_NL": ({0: TWO, 2: b"\x88" * 16, 5: b"\x0f"}, 2, {3: 226, 19: -254}),
    # Scales have 32 more; that of part 5 is 34, of others 32.
    "IQ4_XS": ({0: TWO, 2: b"\xaa\xaa", 4 + 2: b"\x20", 8: b"\x88" * 128, 8 + 80 + 7: b"\x8f"}, 0,
               dict.fromkeys(range(160, 192), 4) | {167: 4 * 113}),
    "MXFP4": ({0: b"\x81", 1 + 3: b"\xf1"}, 0, {3: 2, 19: -24}),
    "NVFP4": ({0: b"\x38\x40\x7f", 4 + 3: b"\xf1", 4 + 8: b"\x02", 4 + 16: b"\x11"}, 0,
              {3: 0.5, 11: -6, 16: 2}),
}  # fmt: skip
"""By type: bytes at offsets of a block of zeros; its numbers; and those that differ, by index."""


@pytest.mark.parametrize("name", VECTORS)
def test_by_hand(name: str) -> None:
    held, usual, others = VECTORS[name]
    kind = KINDS[name]
    block = bytearray(kind.size)
    for at, content in held.items():
        block[at : at + len(content)] = content
    wanted = np.full(kind.block, usual, "f4")
    wanted[list(others)] = list(others.values())
    assert _DECODERS[name](np.frombuffer(block, np.uint8).reshape(1, -1))[0].tolist() == (
        wanted.tolist()
    )


def test_every_type_has_a_vector() -> None:
    assert VECTORS.keys() == _DECODERS.keys()


@pytest.mark.parametrize("name", sorted(_DECODERS.keys() - {"Q8_K"}))
def test_against_ggml_in_python(name: str) -> None:
    gguf = pytest.importorskip("gguf")
    raw = random_blocks(name, 300)
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name])
        assert np.array_equal(_DECODERS[name](raw), wanted, equal_nan=True)


def random_blocks(name: str, count: int, seed: int = 0) -> Bytes:
    """Blocks of any bytes, with any scales."""
    return np.random.default_rng(seed).integers(0, 256, (count, KINDS[name].size), np.uint8)


SCALES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "TQ1_0": (52,), "TQ2_0": (64,)}


def sound_blocks(name: str, count: int, seed: int = 0) -> Bytes:
    """Blocks whose scales are ordinary numbers."""
    made = random_blocks(name, count, seed)
    if name == "Q8_K":
        made[:, :4] = np.array([0.01], "<f4").view(np.uint8)
        return made
    if name in ("MXFP4", "NVFP4"):
        made[:, : 1 if name == "MXFP4" else 4] = 0x38
        return made
    two = name in ("Q4_1", "Q5_1", "Q4_K", "Q5_K")
    for at in SCALES.get(name, (0, 2) if two else (0,)):
        made[:, at : at + 2] = np.array([0.01], "<f2").view(np.uint8)
    return made


def tensor(raw: Bytes, name: str) -> Tensor:
    items = len(raw) * KINDS[name].block
    return Tensor("w", name, (items,), memoryview(raw.tobytes()), 0, packing=f"ggml:{name}")


def test_parts_of_blocks() -> None:
    values = as_values(tensor(sound_blocks("Q4_K", 5), "Q4_K"))
    assert values is not None
    whole = b"".join(blocks(values))
    assert len(whole) == values.nbytes == 5 * 256 * 4
    for start, end in ((0, 4), (3, 1030), (1020, 1028), (4096, 5120), (5119, 5120)):
        assert bytes(values.view[start:end]) == whole[start:end]


def test_what_is_not_decoded() -> None:
    whole = tensor(sound_blocks("Q4_K", 2), "Q4_K")
    cut = Tensor("w", "Q4_K", (512,), whole.data[:-1], 0, packing="ggml:Q4_K")
    uneven = Tensor("w", "Q4_K", (500,), whole.data, 0, packing="ggml:Q4_K")
    coarse = tensor(random_blocks("IQ2_XS", 2), "IQ2_XS")
    assert [as_values(one) for one in (cut, uneven, coarse)] == [None, None, None]


def test_a_large_tensor_is_never_decoded_whole() -> None:
    values = as_values(tensor(sound_blocks("Q4_K", 20_000), "Q4_K"))
    assert values is not None
    tracemalloc.start()
    assert sum(len(block) for block in blocks(values, 256 * 1024)) == values.nbytes == 20_480_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 1024 * 1024


def compared(folder: Path, before: Bytes, after: Bytes, *names: str) -> DiffReport:
    paths = folder / "before.gguf", folder / "after.gguf"
    for path, raw, name in zip(paths, (before, after), (names * 2)[:2], strict=True):
        path.write_bytes(quantised_file(w=(name, raw.tobytes())))
    return diff(*map(str, paths), ReadOptions())


def changed(report: DiffReport) -> TensorDiff:
    (one,) = report.by_change()
    return one


@pytest.mark.parametrize("name", _DECODERS)
def test_other_numbers_under_the_same_scales(tmp_path: Path, name: str) -> None:
    before, after = sound_blocks(name, 40), sound_blocks(name, 40, seed=1)
    report = compared(tmp_path, before, after, name)
    change = changed(report).change
    assert isinstance(change, Numbers)
    x, y = (_DECODERS[name](raw).astype("f8") for raw in (before, after))
    relative = np.linalg.norm(y - x) / np.linalg.norm(x)
    assert change.relative_l2 == pytest.approx(relative)
    assert change.elements == x.size
    assert change.changed == np.count_nonzero(x != y)
    assert change.changed_bytes == np.count_nonzero(before != after)
    assert report.summary.relative_l2 == pytest.approx(relative)
    assert report.notes == ()
    told = report.as_dict()["tensors"][0]
    assert (told["bytes"], "ulp" in told) == (before.size, False)


def test_a_type_whose_numbers_are_not_known(tmp_path: Path) -> None:
    before = sound_blocks("IQ2_XS", 40)
    after = before.copy()
    after[3, 20] ^= 1
    report = compared(tmp_path, before, after, "IQ2_XS")
    change = changed(report).change
    assert isinstance(change, ByteChange)
    assert change.compared_by == report.as_dict()["tensors"][0]["compared_by"] == "scales"
    assert report.notes == (
        "1 tensor (IQ2_XS) compared by bytes and scales: how much the values changed is not known",
    )
    # Nothing is known but its bytes.
    report = compared(tmp_path, random_blocks("IQ1_M", 4), random_blocks("IQ1_M", 4, 1), "IQ1_M")
    assert report.as_dict()["tensors"][0]["compared_by"] == "bytes"
    assert report.notes == (
        "1 tensor (IQ1_M) compared by bytes: how much the values changed is not known",
    )


def test_bytes_that_change_no_value(tmp_path: Path) -> None:
    """The numbers of a block whose scales are 0."""
    before = sound_blocks("Q4_K", 40)
    before[7, :4] = 0
    after = before.copy()
    after[7, 20:50] ^= 0xFF
    one = changed(compared(tmp_path, before, after, "Q4_K"))
    assert one.reason == "30 bytes differ, but no value"
    assert isinstance(one.change, Numbers)
    assert (one.change.changed, one.change.changed_bytes) == (0, 30)


def test_negated_and_multiplied(tmp_path: Path) -> None:
    before = sound_blocks("Q6_K", 40)
    after = before.copy()
    after[:, 192:208] = -before[:, 192:208].view(np.int8).clip(-127).view(np.uint8)
    found = changed(compared(tmp_path, before, after, "Q6_K")).concerns
    assert [one.message[:35] for one in found] == ["the items point the other way: cosi"]
    after = before.copy()
    after[:, 208:] = np.array([0.04], "<f2").view(np.uint8)
    found = changed(compared(tmp_path, before, after, "Q6_K")).concerns
    assert [one.message for one in found] == ["all items were multiplied by 4"]


class TestAnotherType:
    """A model that is quantised, or quantised anew, has no risks for that."""

    @pytest.fixture
    def weights(self) -> NDArray[np.float32]:
        made = np.random.default_rng(0).standard_normal((64, 256)).astype("f4")
        # Rows that were never trained.
        made[60:] *= 1e-12
        return made

    def quantised(self, weights: NDArray[np.float32], name: str) -> Bytes:
        gguf = pytest.importorskip("gguf")
        raw = gguf.quants.quantize(weights, gguf.GGMLQuantizationType[name])
        flat: Bytes = raw.view(np.uint8).reshape(-1, KINDS[name].size)
        return flat

    @pytest.mark.parametrize(
        ("names", "least", "most"),
        [
            (("F32", "Q8_0"), 0.001, 0.02),
            (("F32", "Q4_0"), 0.03, 0.2),
            (("Q8_0", "Q4_1"), 0.03, 0.2),
            (("Q5_1", "Q5_0"), 0.01, 0.2),
            (("F32", "TQ2_0"), 0.3, 1.2),
        ],
    )
    def test_is_compared_by_value(
        self,
        tmp_path: Path,
        weights: NDArray[np.float32],
        names: tuple[str, str],
        least: float,
        most: float,
    ) -> None:
        report = compared(tmp_path, *(self.quantised(weights, name) for name in names), *names)
        one = changed(report)
        assert (one.base_dtype or "").lower() == names[0].lower()
        assert isinstance(one.change, Numbers)
        assert least < (one.change.relative_l2 or 0) < most
        assert one.concerns == ()

    def test_of_other_weights_is_told(self, tmp_path: Path, weights: NDArray[np.float32]) -> None:
        raws = self.quantised(weights, "F32"), self.quantised(-weights, "Q8_0")
        assert [
            str(one.risk) for one in changed(compared(tmp_path, *raws, "F32", "Q8_0")).concerns
        ] == ["negated"]

    def test_to_a_type_that_is_not_known(
        self, tmp_path: Path, weights: NDArray[np.float32]
    ) -> None:
        raw = self.quantised(weights, "F32")
        one = changed(compared(tmp_path, raw, random_blocks("IQ1_M", 64), "F32", "IQ1_M"))
        assert (one.change, one.dtype) == (None, "IQ1_M")
