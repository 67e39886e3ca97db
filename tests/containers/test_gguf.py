"""GGUF: which files are read, what becomes of tensors and metadata."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from hashlib import sha256

import pytest
from gguf import GGUFReader
from gguf.constants import GGML_QUANT_SIZES

from tests.containers.gguf_files import (
    ARCHITECTURE,
    ARRAY,
    BOOL,
    F32,
    Q4_0,
    STRING,
    UINT32,
    alignment,
    array,
    entry,
    head,
    info,
    padded,
    string,
)
from tests.containers.gguf_files import gguf as made
from tests.containers.samples import check_cut, spelled
from tests.data import GOLDEN, fixture, golden, golden_of
from wtxtgit.containers.any_format import check, describe, split, tensors
from wtxtgit.containers.gguf import read
from wtxtgit.containers.gguf.read import TYPES
from wtxtgit.errors import FormatError


def test_ggml_types_are_those_of_the_gguf_package() -> None:
    for ggml_type, (block, size) in GGML_QUANT_SIZES.items():
        known = TYPES[int(ggml_type)]
        assert (known.name, known.block, known.size) == (ggml_type.name, block, size)


@pytest.mark.parametrize("number", [4, 36, 99, 2**32 - 1])
def test_a_tensor_of_an_unknown_type_is_listed_and_is_gap(number: int) -> None:
    infos = [info("a", (2,), 0), info("new", (64,), 32, number), info("b", (2,), 128)]
    data = made(infos=infos, data=bytes(range(1, 137)))
    result = split(memoryview(data))
    check_cut(result, data)
    assert spelled(result) == ["_header", "a", "_gap", "b"]
    listed = {tensor.name: tensor for tensor in describe(memoryview(data)).tensors}
    assert listed["new"].dtype == str(number)
    assert listed["new"].absent
    assert not listed["a"].absent
    # What it holds is out of reach, and is what stands where no tensor does.
    errors = check(memoryview(data)).errors
    assert {error.field for error in errors} == {"type", "offset", "padding"}
    assert any(e.field == "type" and str(number) in e.message for e in errors)


def test_the_header_tensors_and_gaps() -> None:
    infos = [
        info("a.w", (3, 2), 0),
        info("q", (64, 2, 2), 32, Q4_0),
        info("scalar", (), 192),
        info("empty", (0, 5), 2**64 - 1),
    ]
    data = made(infos=infos, data=bytes(range(1, 25)) + bytes(8) + b"q" * 144 + bytes(16) + b"abcd")
    result = split(memoryview(data))
    check_cut(result, data)
    assert result.layout.format == "gguf"
    assert spelled(result) == ["_header", "a_w", "zeros:8", "q", "zeros:16", "scalar"]
    assert len(result.arrays[0].data) == len(padded(head(infos=infos)))
    assert [(a.dtype, a.shape) for a in result.arrays[1:]] == [
        ("f32", (2, 3)),
        ("u8", (4, 36)),
        ("f32", ()),
    ]
    tensors_of_text = [extent for extent in result.layout.extents if extent.is_tensor]
    assert [(e.dtype, e.shape, e.order) for e in tensors_of_text] == [
        ("F32", (3, 2), "F"),
        ("Q4_0", (64, 2, 2), "F"),
        ("F32", (), "F"),
    ]
    listed = describe(memoryview(data)).tensors
    assert [(t.name, t.element, t.shape, len(t.data), t.order) for t in listed] == [
        ("a.w", "f32", (3, 2), 24, "reversed"),
        ("q", None, (64, 2, 2), 144, "reversed"),
        ("scalar", "f32", (), 4, "reversed"),
        ("empty", "f32", (0, 5), 0, "reversed"),
    ]


@pytest.mark.parametrize("unit", [1, 8, 64, 4096])
def test_offsets_count_from_the_aligned_end_of_the_infos(unit: int) -> None:
    data = made([ARCHITECTURE, alignment(unit)], [info("w", (1,), 0)], b"abcd", unit=unit)
    (tensor,) = describe(memoryview(data)).tensors
    assert bytes(tensor.data) == b"abcd"
    assert tensor.offset == len(data) - 4


def test_a_file_without_data_may_end_where_the_infos_do() -> None:
    data = head(infos=[info("w", (0,), 0)])
    assert spelled(split(memoryview(data))) == ["_header"]
    assert spelled(split(memoryview(padded(data)))) == ["_header"]
    assert check(memoryview(data)).errors == []


@pytest.mark.parametrize("version", [2, 3])
def test_the_versions_that_are_read(version: int) -> None:
    assert describe(memoryview(head(version=version))).metadata["version"] == version


def big(data: bytes) -> bytes:
    """A file without metadata and tensors, its numbers swapped."""
    return data[:4] + struct.pack(">IQQ", *struct.unpack("<IQQ", data[4:]))


def test_big_endian_files_say_so() -> None:
    data = big(head([]))
    assert split(memoryview(data)).layout.format == "gguf"
    assert describe(memoryview(data)).metadata["byteorder"] == "big"


def test_numbers_of_big_endian_files_are_bytes_in_the_text() -> None:
    path = "golden/gguf/big_endian.gguf"
    data = fixture(path)
    result = split(memoryview(data))
    dtypes = {a.name: a.dtype for a in result.arrays}
    assert dtypes["blk_1_int8"] == "i8"
    assert {dtype for name, dtype in dtypes.items() if name != "blk_1_int8"} == {"u8"}
    found = {t.name: t for t in describe(memoryview(data)).tensors}
    swapped = bytes(found["one"].data)[::-1]
    assert sha256(swapped).hexdigest() == golden()[path]["tensors"]["one"]
    assert found["one"].byteorder == "big"
    assert found["blk.1.int8"].byteorder == "little"


TOKENS, SCORES = "tokenizer.ggml.tokens", "tokenizer.ggml.scores"


def items_of(key: str) -> dict[str, str]:
    """The hash of an array's items, as gguf's own reader finds them."""
    reader = GGUFReader(GOLDEN / "gguf/metadata.gguf")
    # Before the items come the key's length, the key, and the types and count of the array.
    items = reader.fields[key].parts[5:]
    return {"sha256": sha256(b"".join(part.tobytes() for part in items)).hexdigest()}


def test_values_of_all_types() -> None:
    listed = describe(memoryview(fixture("golden/gguf/metadata.gguf")))
    json.dumps(listed.metadata)
    values = listed.metadata["metadata_kv"]
    assert values == {
        "general.architecture": "gpt2",
        "general.alignment": 64,
        "v.u8": 255,
        "v.i8": -128,
        "v.u16": 2**16 - 1,
        "v.i16": -(2**15),
        "v.u32": 2**32 - 1,
        "v.i32": -(2**31),
        "v.f32": 0.5,
        "v.bool": True,
        "v.string": 'α\n"β',
        "v.u64": 2**64 - 1,
        "v.i64": -(2**63),
        "v.f64": 1e300,
        "v.ints": [1, -2, 3],
        "v.floats": [0.25, 1.0],
        "v.bools": [True, False],
        "tokenizer.ggml.tokens": {"type": "string", "count": 100} | items_of(TOKENS),
        "tokenizer.ggml.scores": {"type": "float32", "count": 100} | items_of(SCORES),
    }
    assert listed.tags == {"general.architecture": "gpt2", "v.string": 'α\n"β'}
    assert set(listed.untold) == set(values) - set(listed.tags)


def nested(depth: int, inner: bytes = b"") -> bytes:
    """An array in an array ..., `depth` of them, as the value of a key."""
    raw = array(BOOL, len(inner), inner)
    for _ in range(depth - 1):
        raw = array(ARRAY, 1, raw)
    return entry("deep", ARRAY, raw)


def test_nested_arrays_are_listed_and_bounded() -> None:
    two = entry("two", ARRAY, array(ARRAY, 2, array(BOOL, 2, b"\0\1") + array(STRING, 0, b"")))
    many = entry("many", ARRAY, array(ARRAY, 2, array(BOOL, 65, bytes(65)) + array(0, 1, b"\7")))
    values = describe(memoryview(head([two, many, nested(64)]))).metadata["metadata_kv"]
    assert isinstance(values, dict)
    assert values["two"] == [[False, True], []]
    told = {"type": "bool", "count": 65, "sha256": sha256(bytes(65)).hexdigest()}
    assert values["many"] == [told, [7]]
    deep = values["deep"]
    for _ in range(63):
        (deep,) = deep
    assert deep == []
    with pytest.raises(FormatError, match="nested too deeply") as caught:
        describe(memoryview(head([nested(65)])))
    assert caught.value.kind == "limit"


def test_the_last_of_equal_keys_counts() -> None:
    entries = [alignment(8), entry("a", STRING, string("1")), alignment(64)]
    entries.append(entry("a", UINT32, bytes(4)))
    data = made(entries, [info("w", (1,), 0)], b"abcd", unit=64)
    listed = describe(memoryview(data))
    assert listed.metadata["metadata_kv"] == {"general.alignment": 64, "a": 0}
    assert listed.tags == {}
    assert bytes(listed.tensors[0].data) == b"abcd"


def test_long_texts_are_no_tags() -> None:
    entries = [
        entry("kept", STRING, string("x" * read.MAX_TAG)),
        entry("told", STRING, string("x" * (read.MAX_TAG + 1))),
    ]
    listed = describe(memoryview(head(entries)))
    assert (list(listed.tags), listed.untold) == (["kept"], ("told",))


def test_a_long_vocabulary_is_passed_over() -> None:
    tokens = entry("tokens", ARRAY, array(STRING, 10**6, string("ab") * 10**6))
    listed = describe(memoryview(head([tokens, ARCHITECTURE])))
    assert listed.metadata["metadata_kv"] == {
        "tokens": {
            "type": "string",
            "count": 10**6,
            "sha256": sha256(string("ab") * 10**6).hexdigest(),
        },
        "general.architecture": "llama",
    }


BIG = 2**63
ONE = info("w", (1,), 0)
REFUSED = [
    (b"GGUF", "structure", 4, "version"),
    (head(version=0), "structure", 4, "version"),
    (head(version=1), "structure", 4, "version"),
    (head(version=4), "structure", 4, "version"),
    (head()[:20], "structure", 16, "metadata_kv_count"),
    (head(kv_count=BIG), "structure", 24, "metadata_kv_count"),
    (head(tensor_count=BIG), "structure", 24, "tensor_count"),
    (head(kv_count=2), "structure", 24 + len(ARCHITECTURE), "key length"),
    (head(tensor_count=1), "structure", 24 + len(ARCHITECTURE), "name length"),
    (head([struct.pack("<Q", BIG) + bytes(9)]), "structure", 32, "key"),
    (head([entry(b"\xff", 0, b"\0")]), "structure", 32, "key"),
    (head([entry("a", 13, b"\0")]), "structure", 33, "value_type"),
    (head([entry("a", UINT32, b"\0\0\0")]), "structure", 37, "value"),
    (head([entry("a", STRING, struct.pack("<Q", BIG))]), "structure", 45, "string"),
    (head([entry("a", ARRAY, array(13, 0, b""))]), "structure", 37, "array type"),
    (head([entry("a", ARRAY, array(UINT32, BIG, bytes(16)))]), "structure", 49, "array"),
    (head([entry("a", ARRAY, array(STRING, 2, string("abcdefgh")))]), "structure", 49, "string"),
    (
        head([entry("a", ARRAY, array(STRING, 1, struct.pack("<Q", BIG)))]),
        "structure",
        49,
        "string",
    ),
    (head([alignment(0)]), "structure", 53, "general.alignment"),
    (head([alignment(24)]), "structure", 53, "general.alignment"),
    (head([entry("general.alignment", 10, bytes(8))]), "structure", 24, "general.alignment"),
    (head([], [info(b"\xff", (1,), 0)]), "structure", 32, "name"),
    (head([], [info("w", (1,) * 9, 0)]), "limit", 24, "n_dimensions"),
    (head([], [info("w", (), 0, rank=2**32 - 1)]), "limit", 24, "n_dimensions"),
    (head([], [info("w", (33,), 0, Q4_0)]), "structure", 24, "dimensions"),
    (head([], [info("w", (), 0, Q4_0)]), "structure", 24, "dimensions"),
    (head([], [ONE])[:-1], "structure", 37, "dimensions"),
]


@pytest.mark.parametrize(("data", "kind", "offset", "field"), REFUSED)
def test_files_that_are_refused(data: bytes, kind: str, offset: int, field: str) -> None:
    with pytest.raises(FormatError) as caught:
        describe(memoryview(data))
    error = caught.value
    assert (error.kind, error.offset, error.field) == (kind, offset, field)
    assert split(memoryview(data)).reason == error.message
    (problem,) = check(memoryview(data)).errors
    assert (problem.kind, problem.offset, problem.field) == (kind, offset, field)


@pytest.mark.parametrize(
    ("shape", "offset", "number"),
    [
        ((2,), 0, F32),
        ((1,), 1, F32),
        ((1,), 2**64 - 4, F32),
        ((2**64 - 1,) * 8, 0, F32),
        ((32,), 0, Q4_0),
    ],
)
def test_tensors_outside_of_the_file_are_refused(
    shape: tuple[int, ...], offset: int, number: int
) -> None:
    data = made(infos=[info("w", shape, offset, number)], data=b"abcd")
    with pytest.raises(FormatError, match=r"tensor .w. of .* reaches outside") as caught:
        describe(memoryview(data))
    start = len(padded(head(infos=[info("w", shape, offset)])))
    assert caught.value.offset == start + offset


@pytest.mark.parametrize(
    ("name", "count"), [("MAX_ENTRIES", "kv_count"), ("MAX_TENSORS", "tensor_count")]
)
def test_counts_are_limited(name: str, count: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {
        "kv_count": head([ARCHITECTURE, alignment(8), nested(2)]),
        "tensor_count": head([], [info("w", (0,), 0)] * 3),
    }[count]
    monkeypatch.setattr(read, name, 3)
    describe(memoryview(data))
    monkeypatch.setattr(read, name, 2)
    with pytest.raises(FormatError) as caught:
        describe(memoryview(data))
    assert caught.value.kind == "limit"
    assert (caught.value.field or "").endswith(count)


@pytest.mark.parametrize(
    "build",
    [
        lambda: head([entry("a", STRING, string("x" * 100))], [ONE]),
        lambda: head([entry("a", ARRAY, array(STRING, 100, string("x") * 100))], [ONE]),
        lambda: head([entry("a", ARRAY, array(BOOL, 100, bytes(100)))], [ONE]),
        lambda: head([nested(9)], [ONE]),
    ],
)
def test_the_header_is_limited(build: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    raw = build()
    data = padded(raw) + bytes(32)
    monkeypatch.setattr(read, "MAX_JSON", len(raw))
    describe(memoryview(data))
    for limit in range(24, len(raw)):
        monkeypatch.setattr(read, "MAX_JSON", limit)
        with pytest.raises(FormatError) as caught:
            describe(memoryview(data))
        assert caught.value.kind == "limit"


def test_limits() -> None:
    assert read.MAX_JSON == 100 * 2**20
    assert read.MAX_TENSORS == read.MAX_ENTRIES == 10**6
    assert read.MAX_DEPTH == 64
    assert read.MAX_DIMENSIONS == 8


@pytest.mark.parametrize("path", [path for path, r in golden_of("gguf").items() if r["tensors"]])
def test_our_reader_has_what_the_gguf_package_wrote(path: str) -> None:
    sums = golden()[path]["tensors"]
    listed = list(tensors(describe(memoryview(fixture(path)))))
    assert [t.name for t in listed] == list(sums)
    for tensor in listed:
        if tensor.byteorder == "little":
            assert sha256(tensor.data).hexdigest() == sums[tensor.name]
