"""Checkpoints compared: matching, texts of which little is decoded, and what lies."""

from __future__ import annotations

import json
import re
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wtxtgit as api
from tests.containers.gguf_files import quantised_file
from tests.data import FIXTURES, GOLDEN, all_entries, fixture_path, path_of, seeded
from wtxtgit.checkpoint.convert import convert
from wtxtgit.comparison.diff import diff
from wtxtgit.containers import any_format
from wtxtgit.errors import CheckError, InputError, WtxtgitError
from wtxtgit.model.array import Extent, Layout, Meta
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.report.diff import ByteChange, DiffReport, Numbers, TensorDiff, TensorStatus
from wtxtgit.text import verify
from wtxtgit.text.layout import snapshot_of, with_layout
from wtxtgit.text.write import dumps

OPTIONS = ReadOptions()
DTYPES = {"f8": "F64", "f4": "F32", "f2": "F16", "i8": "I64", "i4": "I32", "u1": "U8", "u2": "BF16"}


def file(path: Path, tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> Path:
    """A safetensors file; u2 stands for bf16."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    held = b""
    for name, value in tensors.items():
        array = np.asarray(value)
        span = [len(held), len(held) + array.nbytes]
        word = DTYPES[array.dtype.str[1:]]
        header[name] = {"dtype": word, "shape": list(array.shape), "data_offsets": span}
        held += array.tobytes()
    spelled = json.dumps(header).encode()
    spelled += b" " * (-len(spelled) % 8)
    path.write_bytes(struct.pack("<Q", len(spelled)) + spelled + held)
    return path


def text_of(path: Path) -> Path:
    """The text that git stores for a file, beside it."""
    text = path.with_name(f"{path.name}.wtxt")
    text.write_bytes(dumps(snapshot_of(any_format.split(memoryview(path.read_bytes())))))
    return text


def run(a: Path, b: Path, **options: Any) -> DiffReport:
    return diff(str(a), str(b), options.pop("options", OPTIONS), **options)


def by_name(report: DiffReport) -> dict[str, TensorDiff]:
    return {tensor.name: tensor for tensor in report.tensors}


def statuses(report: DiffReport) -> dict[str, str]:
    return {tensor.name: str(tensor.status) for tensor in report.tensors}


def numbers(tensor: TensorDiff) -> Numbers:
    assert isinstance(tensor.change, Numbers)
    return tensor.change


WEIGHTS = {
    "embed": np.arange(640, dtype="f4").reshape(80, 8),
    "q": np.ones((8, 8), "f2"),
    "step": np.array(3, "i8"),
}


def edited(**changes: Any) -> dict[str, Any]:
    return {**WEIGHTS, **changes}


def changed_rows(*rows: int) -> Any:
    array = WEIGHTS["embed"].copy()
    array[list(rows)] *= -2
    return array


PAIRS = [entry for entry in all_entries() if "pair" in entry]
VALUES = [entry for entry in PAIRS if "changed_tensor" in entry["pair"]]


def second(entry: dict[str, Any]) -> dict[str, Any]:
    (other,) = [e for e in PAIRS if e["pair"]["id"] == entry["pair"]["id"] and e is not entry]
    return other


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize(
    "entry", [e for e in VALUES if e["pair"]["version"] == "v1"], ids=lambda e: e["file"]
)
def test_pairs_of_the_original_writers(
    entry: dict[str, Any], as_text: bool, tmp_path: Path
) -> None:
    sides = []
    for n, side in enumerate((entry, second(entry))):
        path = tmp_path / f"{n}{Path(side['file']).suffix}"
        path.write_bytes(path_of(side).read_bytes())
        sides.append(text_of(path) if as_text else path)
    found = run(*sides)
    (changed,) = found.of(TensorStatus.CHANGED)
    assert changed.name.endswith(entry["pair"]["changed_tensor"])
    assert ("/" in changed.name) == (entry["format"] == "FOLD")
    rows = entry["pair"]["changed_rows"]
    facts = numbers(changed).rows
    assert [r for low, high in facts.ranges for r in range(low, high)] == rows
    assert facts.changed == len(rows)
    assert len(found.of(TensorStatus.SAME)) == len(entry["tensors"]) - 1
    assert len(found.tensors) == len(entry["tensors"])
    back = run(sides[1], sides[0])
    assert numbers(by_name(back)[changed.name]).l2 == numbers(changed).l2


def test_the_pair_without_bytes() -> None:
    found = run(*(FIXTURES / f"mlcp/pair_v{n}_a.checkpoint" for n in (1, 2)))
    assert statuses(found) == {"a": "changed", "b": "unread", "c": "added"}
    changed = by_name(found)["a"]
    assert (changed.base_shape, changed.shape, changed.change) == ((4, 4), (8, 4), None)
    assert "no bytes" in (by_name(found)["b"].reason or "")


def test_the_pair_of_indexes() -> None:
    found = run(*(FIXTURES / f"taridx/pair_v{n}/train.taridx" for n in (1, 2)))
    assert found.tensors == ()
    assert {change.path for change in found.metadata} == {"/n_stems", "/n_rows"}
    assert found.notes == ("neither side has tensors",)


@pytest.mark.parametrize("as_text", [False, True])
def test_what_becomes_of_tensors(as_text: bool, tmp_path: Path) -> None:
    a = file(
        tmp_path / "a", {**WEIGHTS, "old": np.arange(7, dtype="f4"), "gone": np.zeros(5, "i4")}
    )
    b = file(
        tmp_path / "b",
        {
            "new": np.arange(7, dtype="f4"),
            "q": np.ones((4, 16), "f2"),
            "come": np.ones(5, "i4"),
            "embed": changed_rows(5, 6, 79),
            "step": np.array(3, "i8"),
        },
    )
    found = run(text_of(a), text_of(b)) if as_text else run(a, b)
    assert statuses(found) == {
        "new": "renamed",
        "q": "changed",
        "come": "added",
        "embed": "changed",
        "step": "same",
        "gone": "removed",
    }
    tensors = by_name(found)
    assert tensors["new"].base_name == "old"
    assert (tensors["q"].base_shape, tensors["q"].change) == ((8, 8), None)
    embed = numbers(tensors["embed"])
    assert embed.rows.ranges == ((5, 7), (79, 80))
    assert embed.max_abs_at == (79, 7)
    assert found.by_change()[0].name == "q"
    assert found.summary.counts[TensorStatus.CHANGED] == 2
    assert found.summary.changed_elements == 24


def test_a_dtype_change_has_numbers_too(tmp_path: Path) -> None:
    half = (WEIGHTS["embed"].view("u4") >> 16).astype("u2")
    found = run(file(tmp_path / "a", WEIGHTS), file(tmp_path / "b", edited(embed=half)))
    tensor = by_name(found)["embed"]
    assert (tensor.base_dtype, tensor.dtype, tensor.base_shape) == ("f32", "bf16", None)
    exact = (half.astype("u4") << 16).view("f4")
    assert numbers(tensor).changed == np.count_nonzero(exact != WEIGHTS["embed"])
    equal = run(
        file(tmp_path / "a", {"w": np.ones(4, "f4")}), file(tmp_path / "b", {"w": np.ones(4, "f8")})
    )
    tensor = by_name(equal)["w"]
    assert (tensor.status, numbers(tensor).changed, numbers(tensor).l2) == (
        TensorStatus.CHANGED,
        0,
        0,
    )


def test_only_moved_in_the_file_is_the_same(tmp_path: Path) -> None:
    backwards = dict(reversed(WEIGHTS.items()))
    a, b = file(tmp_path / "a", WEIGHTS), file(tmp_path / "b", backwards)
    for found in (run(a, b), run(text_of(a), text_of(b))):
        assert set(statuses(found).values()) == {"same"}
        assert found.metadata == ()


@pytest.mark.parametrize("ending", [".npz", ".pt", ".gguf", ".aero", ".fold"])
def test_formats_are_compared_by_value(ending: str, tmp_path: Path) -> None:
    a = file(tmp_path / "a.safetensors", {"embed": WEIGHTS["embed"], "q": WEIGHTS["q"]})
    b = file(tmp_path / "b.safetensors", {"embed": changed_rows(4), "q": WEIGHTS["q"]})
    other = tmp_path / f"b{ending}"
    convert(str(b), other, OPTIONS)
    found = run(a, other)
    if ending == ".fold":
        assert {t.status for t in found.tensors} == {
            TensorStatus.RENAMED,
            TensorStatus.ADDED,
            TensorStatus.REMOVED,
        }
        return
    assert statuses(found) == {"embed": "changed", "q": "same"}
    tensor = by_name(found)["embed"]
    assert (tensor.shape, tensor.base_shape, tensor.base_dtype) == ((80, 8), None, None)
    assert numbers(tensor).rows.ranges == ((4, 5),)
    assert any("only tags are compared" in note for note in found.notes)


def test_fortran_order_is_compared_by_value(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", w=WEIGHTS["embed"])
    np.savez_compressed(tmp_path / "b.npz", w=np.asfortranarray(changed_rows(9)).astype(">f4"))
    found = run(tmp_path / "a.npz", tmp_path / "b.npz")
    assert numbers(by_name(found)["w"]).rows.ranges == ((9, 10),)
    np.savez(tmp_path / "b.npz", w=np.asfortranarray(WEIGHTS["embed"]))
    assert statuses(run(tmp_path / "a.npz", tmp_path / "b.npz")) == {"w": "same"}


def test_packed_items_are_compared_as_bytes(tmp_path: Path) -> None:
    raw = bytearray(range(74)) * 2
    before = quantised_file(w=("IQ2_XS", bytes(raw)))
    raw[80] ^= 1
    (tmp_path / "a.gguf").write_bytes(before)
    (tmp_path / "b.gguf").write_bytes(quantised_file(w=("IQ2_XS", bytes(raw))))
    found = run(tmp_path / "a.gguf", tmp_path / "b.gguf")
    (changed,) = found.of(TensorStatus.CHANGED)
    assert isinstance(changed.change, ByteChange)
    assert (changed.change.changed, changed.change.nbytes) == (1, 148)
    assert changed.change.rows is not None
    assert changed.change.rows.ranges == ((1, 2),)


@pytest.mark.parametrize("path", sorted(p for p in GOLDEN.glob("*/*") if p.is_file()), ids=str)
def test_every_kind_of_file_is_the_same_as_itself(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    found = run(path, copy)
    assert {t.status for t in found.tensors} <= {TensorStatus.SAME}
    assert found.metadata == ()
    of_texts = run(text_of(copy), text_of(copy))
    assert of_texts.tensors == found.tensors
    mixed = run(path, text_of(copy))
    assert mixed.tensors == found.tensors


class TestTexts:
    """Of two texts only what differs is decoded, and no claim is believed."""

    @pytest.fixture
    def decoded(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The arrays that are decoded from here on."""
        names: list[str] = []
        check = verify.check

        def noted(text: Any, block: Any) -> Any:
            names.append(block.array.name)
            return check(text, block)

        monkeypatch.setattr(verify, "check", noted)
        return names

    @pytest.fixture
    def texts(self, tmp_path: Path) -> tuple[Path, Path]:
        a = file(tmp_path / "a", WEIGHTS)
        b = file(tmp_path / "b", edited(embed=changed_rows(7)))
        return text_of(a), text_of(b)

    def test_what_is_the_same_is_not_decoded(
        self, texts: tuple[Path, Path], decoded: list[str]
    ) -> None:
        assert statuses(run(*texts)) == {"embed": "changed", "q": "same", "step": "same"}
        assert set(decoded) == {"_layout", "_header", "embed"}

    def test_a_renamed_one_is_not_decoded(self, tmp_path: Path, decoded: list[str]) -> None:
        a = text_of(file(tmp_path / "a", WEIGHTS))
        b = text_of(file(tmp_path / "b", {"k" if n == "q" else n: v for n, v in WEIGHTS.items()}))
        found = run(a, b)
        assert statuses(found) == {"embed": "same", "k": "renamed", "step": "same"}
        assert set(decoded) == {"_layout", "_header"}

    def test_a_text_against_a_file(self, texts: tuple[Path, Path], tmp_path: Path) -> None:
        for sides in ((texts[0], tmp_path / "b"), (tmp_path / "a", texts[1])):
            assert run(*sides).tensors == run(*texts).tensors

    def test_an_equal_hash_is_not_believed(self, texts: tuple[Path, Path]) -> None:
        honest, liar = (text.read_bytes() for text in texts)
        claim = re.compile(rb"^(arr name=embed .*sha256=)([0-9a-f]{64})", re.MULTILINE)
        match = claim.search(honest)
        assert match
        forged = claim.sub(rb"\g<1>" + match[2], liar)
        assert forged != liar
        texts[1].write_bytes(forged)
        found = by_name(run(*texts))["embed"]
        assert numbers(found).rows.ranges == ((7, 8),)

    def test_another_hash_is_not_believed(self, texts: tuple[Path, Path]) -> None:
        text = texts[0].read_bytes()
        forged = re.sub(rb"(?m)^(arr name=q .*sha256=)[0-9a-f]{64}", rb"\g<1>" + b"0" * 64, text)
        assert forged != text
        texts[1].write_bytes(forged)
        assert set(statuses(run(*texts)).values()) == {"same"}

    def test_damage_in_what_differs_is_found(self, texts: tuple[Path, Path]) -> None:
        lines = texts[1].read_bytes().splitlines(keepends=True)
        at = next(n for n, line in enumerate(lines) if line.startswith(b"arr name=embed "))
        first = next(n for n in range(at, len(lines)) if lines[n].startswith(b"ch ")) + 1
        lines[first] = (b"B" if lines[first][:1] != b"B" else b"C") + lines[first][1:]
        texts[1].write_bytes(b"".join(lines))
        with pytest.raises(CheckError, match=f"line {first + 1}") as caught:
            run(*texts)
        assert str(texts[1]) in caught.value.message
        assert caught.value.hint

    @pytest.mark.parametrize("cut", [10, 200, 1500, -1, -9])
    def test_a_text_that_is_cut_off_is_refused(self, texts: tuple[Path, Path], cut: int) -> None:
        texts[1].write_bytes(texts[1].read_bytes()[:cut])
        with pytest.raises(CheckError):
            run(*texts)

    def test_a_header_that_is_called_a_tensor_is_read(self, tmp_path: Path) -> None:
        """The layout's word for it would leave a hole where the structure is."""
        sides = []
        for name, embed in (("a", WEIGHTS["embed"]), ("b", changed_rows(7))):
            cut = any_format.split(
                memoryview(file(tmp_path / name, edited(embed=embed)).read_bytes())
            )
            head = cut.arrays[0]
            extents = [
                Extent("h", "U8", "h", head.shape) if e.array == head.name else e
                for e in cut.layout.extents
            ]
            arrays = [replace(head, name="h"), *cut.arrays[1:]]
            layout = Layout(cut.layout.format, cut.layout.size, tuple(extents))
            path = tmp_path / f"{name}.wtxt"
            path.write_bytes(dumps(with_layout(layout, arrays, Meta(schema="safetensors/v1"))))
            sides.append(path)
        assert statuses(run(*sides)) == {"embed": "changed", "q": "same", "step": "same"}

    def test_parity_does_not_take_holes_for_damage(self, tmp_path: Path) -> None:
        raw = fixture_path("fold/none_rs16_flipped_a.fold").read_bytes()
        a, b = tmp_path / "a.fold", tmp_path / "b.fold"
        a.write_bytes(raw)
        b.write_bytes(raw)
        found = run(text_of(a), text_of(b))
        assert {t.status for t in found.tensors} == {TensorStatus.SAME}
        assert all(t.reason is None for t in found.tensors)


class TestNative:
    """Texts of arrays."""

    @staticmethod
    def dumped(path: Path, arrays: dict[str, Any], **meta: Any) -> Path:
        api.dump(arrays, path, meta=api.Meta(**meta))
        return path

    def test_arrays_and_generation(self, tmp_path: Path) -> None:
        a = self.dumped(tmp_path / "a", {"W": WEIGHTS["embed"], "b": np.zeros(3)}, gen=1)
        b = self.dumped(tmp_path / "b", {"W": changed_rows(3), "b": np.zeros(3)}, gen=2)
        found = run(a, b)
        assert statuses(found) == {"W": "changed", "b": "same"}
        assert [change.as_dict() for change in found.metadata] == [
            {"path": "/gen", "change": "changed", "before": 1, "after": 2}
        ]

    @pytest.mark.parametrize("dtype", ["?", "f2", "c8", "c16", "f4", "i2", "u8"])
    def test_other_dtypes_and_names(self, dtype: str, tmp_path: Path) -> None:
        old = np.ones((4, 3), dtype)
        new = old.copy()
        new[2] = 0
        a = self.dumped(tmp_path / "a", {"layer.0": old})
        b = self.dumped(tmp_path / "b", {"layer.0": new})
        (tensor,) = run(a, b).tensors
        assert (tensor.name, tensor.shape) == ("layer.0", (4, 3))
        change = numbers(tensor)
        assert (change.elements, change.changed) == (12, 3)
        assert change.rows.ranges == ((2, 3),)
        assert change.l2 == pytest.approx(3**0.5)
        np.savez(tmp_path / "b.npz", **{"layer.0": new})
        assert numbers(run(a, tmp_path / "b.npz").tensors[0]).l2 == change.l2

    def test_a_pending_text_is_compared(self, tmp_path: Path) -> None:
        a = self.dumped(tmp_path / "a", {"W": np.zeros(3)})
        api.dump({"W": np.ones(3)}, tmp_path / "b", pending=True)
        assert numbers(run(a, tmp_path / "b").tensors[0]).l2 == pytest.approx(3**0.5)

    def test_empty_arrays(self, tmp_path: Path) -> None:
        a = self.dumped(tmp_path / "a", {"W": np.zeros((0, 4)), "x": np.zeros(0)})
        b = self.dumped(tmp_path / "b", {"W": np.zeros((0, 4)), "x": np.zeros(0)})
        assert statuses(run(a, b)) == {"W": "same", "x": "same"}


class TestRefused:
    @pytest.fixture
    def good(self, tmp_path: Path) -> Path:
        return file(tmp_path / "good", WEIGHTS)

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "file is empty"),
            (b"no checkpoint", "no known magic"),
            (struct.pack("<Q", 200 * 1024**2) + b"{" + b" " * 64, "bad: "),
            (struct.pack("<Q", 64) + b"{" * 64, "bad: "),
        ],
    )
    def test_what_is_no_checkpoint(self, content: bytes, words: str, good: Path) -> None:
        bad = good.with_name("bad")
        bad.write_bytes(content)
        for sides in ((bad, good), (good, bad)):
            with pytest.raises(InputError, match=words) as caught:
                run(*sides)
            assert str(bad) in caught.value.message

    def test_a_text_of_no_checkpoint(self, good: Path) -> None:
        bad = good.with_name("bad")
        bad.write_bytes(b"just notes" * 100)
        with pytest.raises(InputError, match="not a known checkpoint"):
            run(text_of(bad), text_of(good))

    def test_a_file_that_is_not_there(self, good: Path) -> None:
        with pytest.raises(InputError, match="missing"):
            run(good, good.with_name("missing"))

    def test_a_huge_header_is_refused(self, good: Path) -> None:
        bad = good.with_name("bad")
        spelled = b"{" + b" " * (101 * 1024**2) + b"}"
        with bad.open("wb") as out:
            out.write(struct.pack("<Q", len(spelled)))
            out.write(spelled)
        with pytest.raises(InputError) as caught:
            run(good, bad)
        assert caught.value.exit_code == 3


def test_nothing_in_common_is_compared_all_the_same(tmp_path: Path) -> None:
    a = file(tmp_path / "a", {"x": np.zeros(3, "f4")})
    b = file(tmp_path / "b", {"y": np.ones(3, "f4")})
    found = run(a, b)
    assert statuses(found) == {"y": "added", "x": "removed"}
    assert found.notes == ("the two have no tensor in common",)


def test_tensors_of_one_name_are_matched_in_order(tmp_path: Path) -> None:
    entry = fixture_path("fold/none_json_a.fold")
    found = run(entry, entry)
    assert len(found.tensors) == len({id(t) for t in found.tensors})


def test_a_set_is_compared_as_one_checkpoint(tmp_path: Path) -> None:
    sides = []
    for name, embed in (("a", WEIGHTS["embed"]), ("b", changed_rows(2))):
        folder = tmp_path / name
        folder.mkdir()
        source = file(folder / "m", {"embed": embed, "q": WEIGHTS["q"]})
        convert(str(source), folder / "m.safetensors", OPTIONS, max_shard=128)
        sides.append(folder / "m.safetensors.index.json")
    found = run(*sides)
    assert statuses(found) == {"embed": "changed", "q": "same"}
    assert numbers(by_name(found)["embed"]).rows.ranges == ((2, 3),)


def test_progress_counts_bytes(tmp_path: Path) -> None:
    done: list[int] = []
    count: Callable[[int], None] = done.append
    a = file(tmp_path / "a", WEIGHTS)
    run(a, file(tmp_path / "b", edited(embed=changed_rows(1))), progress=count)
    # Where both sides are the same and where they differ, each byte counts once.
    assert sum(done) == sum(weights.nbytes for weights in WEIGHTS.values())


def test_a_report_is_plain_data(tmp_path: Path) -> None:
    a = file(tmp_path / "a", WEIGHTS, {"lr": "0.1", "gone": "x"})
    b = file(tmp_path / "b", edited(embed=changed_rows(5, 6)), {"lr": "0.2", "new": "y"})
    record = json.loads(json.dumps(run(a, b).as_dict(), allow_nan=False))
    keys = {"a", "b", "format", "tensors", "metadata", "parts", "notes", "summary"}
    assert set(record) == keys
    (embed,) = [t for t in record["tensors"] if t["name"] == "embed"]
    assert {
        "status": "changed",
        "dtype": "f32",
        "shape": [80, 8],
        "elements": 640,
        "changed_elements": 16,
        "changed_share": 16 / 640,
        "rows": 80,
        "changed_rows": 2,
        "row_ranges": [[5, 7]],
        "row_ranges_exact": True,
        "max_abs": 3.0 * 55,
        "max_abs_at": [6, 7],
        "new_nan": 0,
        "new_inf": 0,
        "sign_flips": 16,
    }.items() <= embed.items()
    assert {"l2", "relative_l2", "cosine", "before", "after", "ulp", "row_blocks"} <= set(embed)
    assert record["metadata"] == [
        {"path": "/__metadata__/lr", "change": "changed", "before": "0.1", "after": "0.2"},
        {"path": "/__metadata__/gone", "change": "removed", "before": "x"},
        {"path": "/__metadata__/new", "change": "added", "after": "y"},
    ]
    summary = record["summary"]
    assert (summary["tensors"], summary["changed"], summary["same"]) == (3, 1, 2)
    assert summary["l2"] == embed["l2"]
    assert summary["metadata"] == 3


@pytest.mark.parametrize("as_text", [False, True])
def test_memory_does_not_grow_with_the_files(as_text: bool, tmp_path: Path) -> None:
    def peak(rows: int) -> int:
        sides = []
        for name, value in (("a", 1), ("b", 2)):
            array = np.ones((rows, 1024), "f4")
            array[::100] = value
            path = file(tmp_path / name, {"w": array})
            sides.append(text_of(path) if as_text else path)
        tracemalloc.start()
        try:
            (tensor,) = run(*sides, threads=2).tensors
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            assert numbers(tensor).rows.changed == len(range(0, rows, 100))

    peak(256)
    # Some blocks are in flight; the files have 64 MiB together.
    assert peak(8192) < 24 * 1024 * 1024


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_raise_nothing_of_their_own(seed: int, tmp_path: Path) -> None:
    chance = seeded(seed)
    sources = [path for path in sorted(GOLDEN.glob("*/*")) if path.is_file()]
    compared = 0
    for _ in range(60):
        source = chance.choice(sources).read_bytes()
        sides = []
        for name in "ab":
            content = source
            if chance.random() < 0.5:
                content = dumps(snapshot_of(any_format.split(memoryview(source))))
            damaged = bytearray(content)
            for _ in range(chance.randint(0, 2)):
                damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
            path = tmp_path / name
            path.write_bytes(damaged)
            sides.append(path)
        try:
            json.dumps(run(*sides, options=ReadOptions(max_chunk=2**22)).as_dict(), default=str)
            compared += 1
        except WtxtgitError:
            continue
    assert compared
