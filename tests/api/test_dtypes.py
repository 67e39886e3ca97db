"""All dtypes through all pairs of doors: in through one, out of another, as they went in.

What an output's format lacks is refused by name, with a hint, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from random import Random

import numpy as np
import pytest

import wtxtgit
from tests.containers.samples import safetensors
from wtxtgit.checkpoint import cat
from wtxtgit.checkpoint.convert import convert
from wtxtgit.checkpoint.emit import NewGeneration, emit, write_text
from wtxtgit.checkpoint.inspect import inspect
from wtxtgit.checkpoint.open import read
from wtxtgit.checkpoint.restore import restore
from wtxtgit.containers import any_format
from wtxtgit.errors import InputError, WtxtgitError
from wtxtgit.model.array import Meta
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.stream import Snapshots, targets
from wtxtgit.stream.pull import pull
from wtxtgit.tensors.tensor_bytes import sha256_of
from wtxtgit.text.native import stand_in

OPTIONS = ReadOptions()
# numpy's spelling of each element, or the name that ml_dtypes gives it, as the pages have them.
NUMBERS = {
    "f64": "<f8",
    "f32": "<f4",
    "f16": "<f2",
    "bf16": "bfloat16",
    "f8_e4m3": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
    "f8_e8m0": "float8_e8m0fnu",
    "f8_e4m3fnuz": "float8_e4m3fnuz",
    "f8_e5m2fnuz": "float8_e5m2fnuz",
    "i64": "<i8",
    "u64": "<u8",
    "i32": "<i4",
    "u32": "<u4",
    "i16": "<i2",
    "u16": "<u2",
    "i8": "|i1",
    "u8": "|u1",
    "bool": "|b1",
    "c64": "<c8",
    "c128": "<c16",
}
WIDTHS = {"bf16": 2, **dict.fromkeys((e for e in NUMBERS if e.startswith("f8")), 1)}
FLOAT8 = {element for element in NUMBERS if element.startswith("f8")}
SPELLED = {"<U3", "|S4", "<M8[ns]", "<m8[s]", "|V5"}
UNKNOWN = {"int4", "float8_e3m4", "float4_e2m1fn_x2"}
"""Extensions of numpy that only a text can hold."""
COMPLEX = {"c64", "c128"}
ALL = set(NUMBERS) | SPELLED | UNKNOWN
HOLDS = {
    ".safetensors": set(NUMBERS) - {"c128"},
    ".npz": (set(NUMBERS) - FLOAT8 - {"bf16"}) | SPELLED,
    ".pt": set(NUMBERS),
    ".fold": set(NUMBERS) - {"c128"},
    ".aero": set(NUMBERS) - FLOAT8 - COMPLEX,
    ".checkpoint": set(NUMBERS) - FLOAT8 - COMPLEX,
    ".gguf": {"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8"},
}


def name_of(element: str) -> str:
    return "t_" + "".join(c if c.isalnum() else "_" for c in element)


def array_of(element: str) -> np.ndarray:
    """Two rows of this dtype, whose bytes are noise."""
    if element in UNKNOWN:
        dtype = stand_in("|u1", element)
    elif element in WIDTHS:
        dtype = stand_in(f"<u{WIDTHS[element]}", NUMBERS[element])
    else:
        dtype = np.dtype(NUMBERS.get(element, element))
    raw = Random(element).randbytes(6 * dtype.itemsize)  # noqa: S311
    if element == "bool":
        raw = bytes(byte & 1 for byte in raw)
    if element == "<U3":
        raw = "abcdefghijklmnopqr".encode("utf-32-le")
    return np.frombuffer(raw, dtype).reshape(2, 3)


def arrays_of(elements: Iterable[str]) -> dict[str, np.ndarray]:
    return {name_of(element): array_of(element) for element in elements}


Content = Mapping[str, tuple[str, tuple[int, ...], bytes]]


def wanted(elements: Iterable[str]) -> Content:
    return {
        name_of(one): (one, (2, 3), sha256(array_of(one).tobytes()).digest()) for one in elements
    }


def content(path: Path) -> Content:
    """Dtype, shape and SHA-256 of all tensors of a checkpoint, by name."""
    found = any_format.tensors(any_format.describe(read(str(path))), OPTIONS)
    return {
        one.name.rpartition("/")[2]: (
            one.element or one.packing or one.dtype,
            one.logical_shape,
            sha256_of(one),
        )
        for one in found
    }


def text(folder: Path, elements: Iterable[str]) -> Path:
    wtxtgit.dump(arrays_of(elements), folder / "in.wtxt", meta=Meta(gen=1))
    return folder / "in.wtxt"


def published(folder: Path, elements: Iterable[str]) -> Path:
    with Snapshots(folder / "ring", to=[targets.Folder(folder / "t")]) as snapshots:
        snapshots.publish(arrays_of(elements), gen=1)
    return folder / "t"


def restored(source: Path, out: Path) -> None:
    restore(str(source), out)


def pulled(source: Path, out: Path) -> None:
    pull(targets.Folder(source), 1, out)


def dumped(source: Path, out: Path) -> None:
    wtxtgit.dump(wtxtgit.load(source), out)


def opened(source: Path, out: Path) -> None:
    with wtxtgit.open(source) as lazily:
        wtxtgit.dump(lazily, out)


def catted(source: Path, out: Path) -> None:
    names = [tensor.name for tensor in inspect(str(source), OPTIONS).tensors]
    with cat.opened(str(source), names, OPTIONS) as found:
        cat.write_tensors(out, found, OPTIONS)


def converted(source: Path, out: Path) -> None:
    convert(str(source), out, OPTIONS, inline_data=out.suffix == ".checkpoint")


def by_text(source: Path, out: Path) -> None:
    """By the text of a file, which is another file only for another format."""
    write_text(emit(source, NewGeneration()), source.with_suffix(".wtxt"))
    converted(source.with_suffix(".wtxt"), out)


def by_native(source: Path, out: Path) -> None:
    wtxtgit.dump(wtxtgit.load(source), source.with_suffix(".native.wtxt"))
    restore(str(source.with_suffix(".native.wtxt")), out)


Out = Callable[[Path, Path], None]
OF_ARRAYS: list[tuple[Callable[[Path, Iterable[str]], Path], Out]] = [
    (text, restored),
    (text, dumped),
    (text, opened),
    (text, catted),
    (published, pulled),
]
OF_FILES: list[Out] = [converted, catted, dumped, opened, by_text, by_native]


@pytest.mark.parametrize("ending", HOLDS)
@pytest.mark.parametrize(("into", "out"), OF_ARRAYS)
def test_arrays_leave_as_they_came(
    into: Callable[[Path, Iterable[str]], Path], out: Out, ending: str, tmp_path: Path
) -> None:
    fitting = ALL & HOLDS[ending]
    made = tmp_path / f"out{ending}"
    source = into(tmp_path, fitting)
    out(source, made)
    assert content(made) == wanted(fitting)
    # FOLD has its tensors in a chunk, whose name theirs begin with.
    if into is text and ending != ".fold":
        summary = wtxtgit.diff(source, made).summary
        assert (summary.tensors, summary.counts["same"]) == (len(fitting), len(fitting))


@pytest.mark.parametrize("ending", HOLDS)
@pytest.mark.parametrize(("into", "out"), OF_ARRAYS)
def test_what_a_format_lacks_is_refused(
    into: Callable[[Path, Iterable[str]], Path], out: Out, ending: str, tmp_path: Path
) -> None:
    for number, element in enumerate(sorted(ALL - HOLDS[ending])):
        folder = tmp_path / str(number)
        folder.mkdir()
        made = folder / f"out{ending}"
        with pytest.raises(InputError, match=name_of(element)) as refused:
            out(into(folder, ["f32", element]), made)
        assert not made.exists()
        if element in NUMBERS:
            assert ".pt" in (refused.value.hint or "")


@pytest.mark.parametrize("ending", HOLDS)
@pytest.mark.parametrize("start", HOLDS)
@pytest.mark.parametrize("out", OF_FILES)
def test_files_leave_as_they_came(out: Out, start: str, ending: str, tmp_path: Path) -> None:
    fitting = HOLDS[start] & HOLDS[ending]
    source, made = tmp_path / f"in{start}", tmp_path / f"out{ending}"
    wtxtgit.dump(arrays_of(fitting), source)
    assert content(source) == wanted(fitting)
    out(source, made)
    assert content(made) == wanted(fitting)


@pytest.mark.parametrize("start", HOLDS)
@pytest.mark.parametrize("out", OF_FILES)
def test_what_another_format_lacks_is_refused(out: Out, start: str, tmp_path: Path) -> None:
    for ending, held in HOLDS.items():
        lacking = HOLDS[start] - held
        if not lacking:
            continue
        source, made = tmp_path / f"in{start}", tmp_path / f"out{ending}"
        wtxtgit.dump(arrays_of(lacking), source)
        with pytest.raises(InputError, match="dtype"):
            out(source, made)
        assert not made.exists()


@pytest.mark.parametrize("element", sorted(ALL))
def test_python_and_texts_hold_all_of_them(element: str, tmp_path: Path) -> None:
    path = text(tmp_path, [element])
    listed = inspect(str(path), OPTIONS).tensors
    assert [one.dtype for one in listed] == [element]
    with wtxtgit.open(path) as lazily:
        for arrays in (wtxtgit.load(path), lazily, {name: one[:] for name, one in lazily.items()}):
            wtxtgit.dump(arrays, tmp_path / "again.wtxt", meta=Meta(gen=1))
            assert (tmp_path / "again.wtxt").read_bytes() == path.read_bytes()


def test_bytes_without_a_dtype_in_numpy_are_never_taken_for_numbers(tmp_path: Path) -> None:
    """Four-bit floats of safetensors, records of npz: read as bytes, written as nothing else."""
    header = {"a": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}}
    small = tmp_path / "small.safetensors"
    small.write_bytes(safetensors(header, b"\x12\x34"))
    records = tmp_path / "records.npz"
    np.savez(records, a=np.zeros(2, [("x", "<i4"), ("y", "<f2")]))
    for source in (small, records):
        for ending in HOLDS:
            for out in (converted, catted, dumped, opened):
                with pytest.raises(WtxtgitError, match="a"):
                    out(source, tmp_path / f"out{ending}")
                assert not (tmp_path / f"out{ending}").exists()


@pytest.mark.torch
@pytest.mark.parametrize("ending", [".safetensors", ".pt", ".gguf", ".fold", ".aero"])
def test_a_snapshot_of_torch_is_pulled_and_restored(ending: str, tmp_path: Path) -> None:
    import torch

    of_torch = {
        "bf16": torch.bfloat16,
        "f8_e4m3": torch.float8_e4m3fn,
        "f8_e5m2": torch.float8_e5m2,
        "f8_e8m0": torch.float8_e8m0fnu,
        "f16": torch.float16,
    }
    held = [one for one in of_torch if one in HOLDS[ending]]
    with Snapshots(tmp_path / "ring", to=[targets.Folder(tmp_path / "t")]) as snapshots:
        weights = {name_of(one): torch.ones(2, 3).to(of_torch[one]) for one in held}
        snapshots.publish(weights, gen=1)
    pulled(tmp_path / "t", tmp_path / f"pulled{ending}")
    restored(tmp_path / "ring/gen-000001.wtxt", tmp_path / f"restored{ending}")
    for path in (tmp_path / f"pulled{ending}", tmp_path / f"restored{ending}"):
        assert {name: dtype for name, (dtype, _, _) in content(path).items()} == {
            name_of(one): one for one in held
        }
