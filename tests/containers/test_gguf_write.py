"""GGUF: what is written, read back by the gguf package and by us."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtxtgit.containers.any_format import check, describe
from wtxtgit.containers.gguf.read import TYPES
from wtxtgit.containers.gguf.write import DTYPES, build_model
from wtxtgit.errors import FormatError
from wtxtgit.model.tensor import ITEM_BYTES, TensorSource


def source(
    name: str, element: str, shape: tuple[int, ...], raw: bytes | None = None
) -> TensorSource:
    size = ITEM_BYTES[element] * prod(shape)
    held = bytes(index % 251 for index in range(size)) if raw is None else raw

    def blocks() -> Iterator[bytes]:
        for pos in range(0, len(held), 7):
            yield held[pos : pos + 7]

    return TensorSource(name, element, shape, size, blocks)


def built(tensors: list[TensorSource], tags: dict[str, str] | None = None) -> bytes:
    return b"".join(build_model(tensors, tags or {}))


def read_by_the_package(data: bytes, folder: Path) -> gguf.GGUFReader:
    path = folder / "made.gguf"
    path.write_bytes(data)
    return gguf.GGUFReader(path)


def text(reader: gguf.GGUFReader, key: str) -> str:
    return bytes(reader.fields[key].parts[-1]).decode()


def test_a_file_in_bytes() -> None:
    header = (
        b"GGUF\3\0\0\0",
        b"\1\0\0\0\0\0\0\0",
        b"\2\0\0\0\0\0\0\0",
        b"\1\0\0\0\0\0\0\0a",
        b"\x08\0\0\0",
        b"\1\0\0\0\0\0\0\0b",
        b"\x14\0\0\0\0\0\0\0general.architecture",
        b"\x08\0\0\0",
        b"\3\0\0\0\0\0\0\0gpt",
        b"\1\0\0\0\0\0\0\0w",
        b"\2\0\0\0",
        b"\2\0\0\0\0\0\0\0",
        b"\1\0\0\0\0\0\0\0",
        b"\0\0\0\0",
        b"\0\0\0\0\0\0\0\0",
    )
    expected = b"".join(header) + bytes(30) + bytes(range(8)) + bytes(24)
    assert len(b"".join(header)) == 130
    assert (
        built([source("w", "f32", (1, 2))], {"general.architecture": "gpt", "a": "b"}) == expected
    )


def test_the_gguf_package_reads_what_we_write(tmp_path: Path) -> None:
    tensors = [source(f"t.{element}", element, (3, 2, 5)) for element in DTYPES]
    tensors += [
        source("scalar", "f64", ()),
        source("empty", "f32", (0, 4)),
        source("last", "i8", (1,)),
    ]
    data = built(tensors, {"general.name": "Grüße", "format": "pt"})
    reader = read_by_the_package(data, tmp_path)
    assert text(reader, "general.architecture") == "unknown"
    assert text(reader, "general.name") == "Grüße"
    assert text(reader, "format") == "pt"
    assert [t.name for t in reader.tensors] == [t.name for t in tensors]
    for ours, theirs in zip(tensors, reader.tensors, strict=True):
        assert b"".join(ours.blocks()) == theirs.data.tobytes()
        assert int(theirs.tensor_type) == DTYPES[ours.element]
        assert tuple(int(size) for size in theirs.shape) == ours.shape[::-1]


def test_the_gguf_package_writes_the_same_bytes(tmp_path: Path) -> None:
    values = np.arange(15, dtype=np.float32).reshape(3, 5)
    path = tmp_path / "theirs.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("n")
    writer.add_tensor("a", values)
    writer.add_tensor("b", values.astype(np.int64))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ours = [
        source("a", "f32", (3, 5), values.tobytes()),
        source("b", "i64", (3, 5), values.astype(np.int64).tobytes()),
    ]
    assert built(ours, {"general.name": "n", "general.architecture": "llama"}) == path.read_bytes()


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
keys = st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1, max_size=20)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    st.dictionaries(names, st.tuples(st.sampled_from(sorted(DTYPES)), shapes), max_size=5),
    st.dictionaries(keys, texts, max_size=4),
)
def test_what_is_written_is_read(
    tensors: dict[str, tuple[str, tuple[int, ...]]], tags: dict[str, str]
) -> None:
    sources = [source(name, element, shape) for name, (element, shape) in tensors.items()]
    data = built(sources, tags)
    assert built(sources, dict(reversed(tags.items()))) == data
    listed = describe(memoryview(data))
    assert listed.tags == {"general.architecture": "unknown"} | tags
    assert listed.untold == ()
    assert [(t.name, t.element, t.shape[::-1], bytes(t.data)) for t in listed.tensors] == [
        (s.name, s.element, s.shape, b"".join(s.blocks())) for s in sources
    ]
    findings = check(memoryview(data))
    assert findings.errors == []
    assert {problem.field for problem in findings.warnings} <= {"dimensions", "n_dimensions"}


@pytest.mark.parametrize(
    ("tensors", "tags", "field"),
    [
        ([source("w", "u8", (1,))], {}, "type"),
        ([source("w", "bool", (1,))], {}, "type"),
        ([source("w", "c64", (1,))], {}, "type"),
        ([source("w", "f8_e4m3", (1,))], {}, "type"),
        ([source("w", "f32", (1,) * 5)], {}, "n_dimensions"),
        ([source("n" * 64, "f32", (1,))], {}, "name"),
        ([source("é" * 32, "f32", (1,))], {}, "name"),
        ([source("\ud800", "f32", (1,))], {}, "string"),
        ([source("w", "f32", (1,)), source("w", "i8", (1,))], {}, "name"),
        ([], {"": "x"}, "key"),
        ([], {"é": "x"}, "key"),
        ([], {"k" * 65_536: "x"}, "key"),
        ([], {"general.alignment": "32"}, "key"),
        ([], {"k": "\ud800"}, "string"),
    ],
)
def test_what_gguf_can_not_hold_is_refused_at_once(
    tensors: list[TensorSource], tags: dict[str, str], field: str
) -> None:
    with pytest.raises(FormatError) as caught:
        build_model(tensors, tags)
    assert caught.value.field == field


def test_a_source_that_has_not_the_bytes_of_its_shape_is_refused() -> None:
    wrong = TensorSource("w", "f32", (2,), 4, lambda: iter([b"abcd"]))
    with pytest.raises(FormatError, match="4 bytes"):
        build_model([wrong], {})


def test_dtypes_are_all_types_that_are_numbers() -> None:
    assert {TYPES[number].element for number in DTYPES.values()} == set(DTYPES)
    assert set(DTYPES) == {"f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64"}


def test_the_example_of_the_specification() -> None:
    page = (Path(__file__).parents[2] / "docs" / "spec" / "gguf.md").read_text("utf-8")
    printed = re.findall(r"^[0-9a-f]{8}: ((?:[0-9a-f]{4} )+)", page, re.MULTILINE)
    raw = np.array([1.0, -2.0], "<f4").tobytes()
    tags = {"general.architecture": "gpt", "a": "b"}
    assert bytes.fromhex("".join(printed)) == built([source("w", "f32", (1, 2), raw)], tags)
