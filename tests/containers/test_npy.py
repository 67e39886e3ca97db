"""npy files: headers against numpy, parts, checks, writing."""

from __future__ import annotations

import io
import warnings
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from tests.containers.samples import check_cut, spelled
from tests.containers.zip_files import as_numpy, example, npy, npy_fields, npy_text
from wtxtgit.containers import npy_header, npy_literal
from wtxtgit.containers.any_format import check, describe, split
from wtxtgit.containers.npy.file import DTYPES, build_model
from wtxtgit.errors import FormatError
from wtxtgit.model.tensor import ITEM_BYTES, Tensor, TensorSource

ELEMENTS = {
    np.dtype(descr).newbyteorder("<").str: element for element, descr in npy_header.DESCR.items()
}
STRUCTURES = st.one_of(
    npst.array_dtypes(max_size=3, allow_subarrays=True),
    npst.nested_dtypes(max_leaves=5, max_itemsize=200),
)
SCALARS = st.one_of(
    npst.boolean_dtypes(),
    npst.integer_dtypes(endianness="?"),
    npst.unsigned_integer_dtypes(endianness="?"),
    npst.floating_dtypes(endianness="?"),
    npst.complex_number_dtypes(endianness="?"),
    npst.byte_string_dtypes(),
    npst.unicode_string_dtypes(endianness="?"),
    npst.datetime64_dtypes(endianness="?"),
    npst.timedelta64_dtypes(endianness="?"),
)
SHAPES = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def saved(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # numpy warns that only newer readers can read field names beyond latin-1.
        warnings.simplefilter("ignore", UserWarning)
        np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def only(data: bytes) -> Tensor:
    (tensor,) = describe(memoryview(data)).tensors
    return tensor


@settings(max_examples=150, deadline=None)
@given(data=st.data(), dtype=SCALARS, shape=SHAPES, fortran=st.booleans())
def test_what_numpy_saves_is_described(
    data: st.DataObject, dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool
) -> None:
    array = np.frombuffer(data.draw(st.binary(min_size=64, max_size=64)) * 64, np.uint8)
    count = int(np.prod(shape, dtype=int)) * dtype.itemsize
    array = np.resize(array, count).view(dtype) if count else np.zeros(shape, dtype)
    array = array.reshape(shape)
    if dtype.kind == "U":
        array = np.full(shape, "aé", dtype)
    array = np.asarray(array, order="F" if fortran else "C")
    raw = saved(array)
    tensor = only(raw)
    assert tensor.shape == shape
    # An array that is both is written as C.
    assert tensor.order == ("C" if array.flags["C_CONTIGUOUS"] else "F")
    element = ELEMENTS.get(dtype.newbyteorder("<").str)
    assert tensor.element == element
    if element is not None:
        assert tensor.byteorder == ("big" if dtype.byteorder == ">" else "little")
    if dtype.itemsize:
        assert as_numpy(tensor).tobytes() == array.tobytes()
    assert not check(memoryview(raw)).errors
    cut = split(memoryview(raw))
    check_cut(cut, raw)
    assert cut.layout.format == "npy"
    assert spelled(cut) == (["_header", "data"] if array.nbytes else ["_header"])


@settings(max_examples=80, deadline=None)
@given(dtype=STRUCTURES, shape=SHAPES)
def test_structures_that_numpy_saves_are_described(
    dtype: np.dtype[Any], shape: tuple[int, ...]
) -> None:
    raw = saved(np.zeros(shape, dtype))
    tensor = only(raw)
    assert tensor.shape == shape
    assert tensor.element is None or dtype.names is None
    assert len(tensor.data) == np.zeros(shape, dtype).nbytes
    assert tensor.dtype.isascii()
    if dtype.names is not None:
        assert npy_literal.parse(tensor.dtype) == np.lib.format.dtype_to_descr(dtype)


@pytest.mark.parametrize(
    ("descr", "element", "byteorder", "size"),
    [
        ("<f4", "f32", "little", 4),
        (">f2", "f16", "big", 2),
        ("|b1", "bool", "little", 1),
        (">i1", "i8", "little", 1),
        (">c16", "c128", "big", 16),
        ("|f4", None, "little", 4),
        ("=f4", None, "little", 4),
        ("f4", None, "little", 4),
        ("<f16", None, "little", 16),
        ("<f1", None, "little", 1),
        ("<V2", None, "little", 2),
        ("|S0", None, "little", 0),
        (">U3", None, "big", 12),
        (">M8[25s]", None, "big", 8),
        ("<m8[ns]", None, "little", 8),
    ],
)
def test_dtypes(descr: str, element: str | None, byteorder: str, size: int) -> None:
    tensor = only(npy_fields(repr(descr), shape="(2,)", data=bytes(2 * size)))
    assert (tensor.dtype, tensor.element, tensor.byteorder) == (descr, element, byteorder)
    assert len(tensor.data) == 2 * size


def test_structured_dtypes_are_told_as_their_literal_in_ascii() -> None:
    descr = """[ ("a",'<f4'),(('title', 'é'), [('it\\'s', '<i2', (2, 3))], 2), ]"""
    tensor = only(npy_fields(descr, shape="(1,)", data=bytes(28)).replace("é".encode(), b"\xe9 "))
    assert tensor.dtype == """[('a', '<f4'), (('title', '\\xe9 '), [("it's", '<i2', (2, 3))], 2)]"""
    assert len(tensor.data) == 28


def test_objects_are_listed_to_the_end_and_never_read() -> None:
    pickle = b"cos\nsystem\n(S'false'\ntR."
    for descr in ("'|O'", "'O8'", "[('a', '|O'), ('b', '<f4')]"):
        data = memoryview(npy_fields(descr, shape="(3, 3)", data=pickle))
        tensor = only(bytes(data))
        assert tensor.data == pickle
        assert tensor.element is None
        findings = check(data)
        assert not findings.errors
        assert "never read" in next(w for w in findings.warnings if w.field == "descr").message


def refused(data: bytes, field: str, offset: int, kind: str = "structure") -> None:
    with pytest.raises(FormatError) as caught:
        describe(memoryview(data))
    error = caught.value
    assert (error.kind, error.field, error.offset) == (kind, field, offset)
    cut = split(memoryview(data))
    check_cut(cut, data)
    assert (cut.layout.format, cut.reason) == ("opaque", error.message)
    assert [(e.kind, e.offset, e.field) for e in check(memoryview(data)).errors] == [
        (kind, offset, field)
    ]


@pytest.mark.parametrize("version", [(0, 9), (1, 1), (4, 0)])
def test_other_versions_are_refused(version: tuple[int, int]) -> None:
    refused(npy_text(npy(1.0)[10:], version=version), "version", 6)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_each_version_is_read(version: tuple[int, int]) -> None:
    array = np.arange(4, dtype="<i2")
    tensor = only(npy(array, version))
    assert tensor.data == array.tobytes()
    cut = describe(memoryview(npy(array, version))).metadata
    assert cut == {"version": ".".join(map(str, version))}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"fortran_order": "0"}, "fortran_order"),
        ({"fortran_order": "'False'"}, "fortran_order"),
        ({"shape": "[1]"}, "shape"),
        ({"shape": "1"}, "shape"),
        ({"shape": "(1)"}, "shape"),
        ({"shape": "(-1,)"}, "shape"),
        ({"shape": "(True,)"}, "shape"),
        ({"shape": "('1',)"}, "shape"),
        ({"descr": "'<q4'"}, "descr"),
        ({"descr": "'<f'"}, "descr"),
        ({"descr": "'float32'"}, "descr"),
        ({"descr": "''"}, "descr"),
        ({"descr": "'<f4\\n'"}, "descr"),
        ({"descr": "4"}, "descr"),
        ({"descr": "('<f4',)"}, "descr"),
        ({"descr": "('<f4', (-1,))"}, "descr"),
        ({"descr": "['<f4']"}, "descr"),
        ({"descr": "[('a',)]"}, "descr"),
        ({"descr": "[(1, '<f4')]"}, "descr"),
        ({"descr": "[((), '<f4')]"}, "descr"),
        ({"descr": "[('a', '<f4', 'x')]"}, "descr"),
        ({"descr": "[('a', {})]"}, "descr"),
    ],
)
def test_wrong_fields_are_refused(fields: dict[str, str], field: str) -> None:
    refused(npy_fields(data=bytes(8), **fields), field, 10)


@pytest.mark.parametrize(
    "descr",
    ["'<V2147483648'", "('<V65536', (65536, 0, 1))", "[('a', ('<f8', (4294967296, 4294967296)))]"],
)
def test_items_may_not_be_too_long(descr: str) -> None:
    data = npy_fields(descr, shape="(0,)")
    if ", 0" in descr:
        assert only(data).data == b""
    else:
        refused(data, "descr", 10, "limit")


@pytest.mark.parametrize("shape", ["(3,)", "(18446744073709551615, 18446744073709551615)", "(2,) "])
def test_arrays_must_stand_inside(shape: str) -> None:
    data = npy_fields(shape=shape, data=bytes(7))
    refused(data, "data", len(data) - 7)


@pytest.mark.parametrize(
    ("descr", "shape", "is_read"),
    [
        ("('<f2', (2,))", "(2,)", False),
        ("('<f2', 2)", "()", False),
        ("(('<f2', (2,)), (1,))", "(1,)", False),
        ("('<f2', (1, 1))", "(2,)", True),
        ("('<f2', (2,))", "(0, 3)", True),
        ("[('a', '<f2', (2,))]", "(2,)", True),
    ],
)
def test_a_dtype_that_has_a_shape_as_a_whole(descr: str, shape: str, *, is_read: bool) -> None:
    size = np.lib.format.descr_to_dtype(npy_literal.parse(descr)).itemsize
    data = npy_fields(descr, shape=shape, data=bytes(size * prod(npy_literal.parse(shape))))
    try:
        np.load(io.BytesIO(data))
    except ValueError:
        assert not is_read
        assert [error.field for error in check(memoryview(data)).errors] == ["descr"]
    else:
        assert is_read
        assert check(memoryview(data)).errors == []


def test_arrays_without_items_need_no_bytes() -> None:
    assert only(npy_fields(shape="(18446744073709551615, 0)")).data == b""
    assert only(npy_fields("'|S0'", shape="(18446744073709551615,)")).data == b""


def test_headers_that_are_cut_or_too_long_are_refused() -> None:
    good = npy(np.arange(3))
    for end in range(6, len(good)):
        refused_at = split(memoryview(good[:end]))
        check_cut(refused_at, good[:end])
        assert refused_at.layout.format == "opaque"
    refused(b"\x93NUMPY\1", "version", 7)
    refused(b"\x93NUMPY\1\0\1", "header length", 8)
    refused(b"\x93NUMPY\2\0\xff\xff\0\0", "header", 12)
    refused(b"\x93NUMPY\2\0\0\0\x10\0", "header", 12)
    refused(b"\x93NUMPY\2\0\1\0\x10\0", "header length", 8, "limit")


def test_headers_of_version_2_are_as_long_as_numpy_writes_them() -> None:
    array = np.zeros(2, [(f"field_number_{n}", "<f4") for n in range(4000)])
    data = npy(array, (2, 0))
    assert len(data) > 65_535 + array.nbytes
    assert data[6:8] == b"\2\0"
    (tensor,) = describe(memoryview(data)).tensors
    assert as_numpy(tensor).dtype == array.dtype
    assert len(tensor.data) == array.nbytes
    check_cut(split(memoryview(data)), data)
    text = "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }"
    longest = npy_text(text.ljust(2**20), b"x", (3, 0))
    (tensor,) = describe(memoryview(longest)).tensors
    assert tensor.data == b"x"
    longest = npy_fields(shape="(" + "1, " * 21_000 + ")", data=bytes(4))
    assert only(longest).shape == (1,) * 21_000


def test_version_3_is_utf8() -> None:
    text = "{'descr': [('é', '<f4')], 'fortran_order': False, 'shape': ()}"
    assert only(npy_text(text, bytes(4), (3, 0))).dtype == "[('\\xe9', '<f4')]"
    refused(npy_text(text.encode("latin-1"), bytes(4), (3, 0)), "header", 12 + text.index("é"))


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("{'descr': '<f4', 'fortran_order': False}", 0),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (), 'more': 1}", 0),
        ("()", 0),
    ],
)
def test_other_keys_are_refused(text: str, at: int) -> None:
    refused(npy_text(text), "header", 10 + at)


VALUES = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3),
    ),
    max_leaves=12,
)


@given(VALUES)
def test_literals_are_read_as_python_writes_them(value: object) -> None:
    assert npy_literal.parse(repr(value)) == value
    assert npy_literal.parse(ascii(value)) == value
    assert repr(npy_literal.parse(f" \t{value!a}\r\n")) == repr(value)


def test_blanks_and_last_commas_are_passed() -> None:
    text = " { 'a'\t: [ 1 ,\r\n ( 2 , ) , ( 3 ) , ( ) , ] , } "
    assert npy_literal.parse(text) == {"a": [1, (2,), 3, ()]}


@pytest.mark.parametrize(
    ("text", "at", "kind"),
    [
        ("", 0, "structure"),
        ("{", 1, "structure"),
        ("(,)", 2, "structure"),
        ("(1 2)", 3, "structure"),
        ("[1,,]", 4, "structure"),
        ("[1)", 2, "structure"),
        ("{1: 2}", 2, "structure"),
        ("{'a' 2}", 5, "structure"),
        ("{'a': 1 'b': 2}", 8, "structure"),
        ("{'a': 1, 'a': 2}", 13, "structure"),
        ("1 1", 2, "structure"),
        ("01", 0, "structure"),
        ("1.0", 0, "structure"),
        ("1_0", 0, "structure"),
        ("0x1", 0, "structure"),
        ("1LL", 0, "structure"),
        ("--1", 0, "structure"),
        ("None", 0, "structure"),
        ("Truee", 0, "structure"),
        ("'a", 0, "structure"),
        ("'a\nb'", 0, "structure"),
        ("b'a'", 0, "structure"),
        ("'\\101'", 6, "structure"),
        ("'\\x1'", 5, "structure"),
        ("'\\ud800'", 8, "structure"),
        ("'\\U00110000'", 12, "structure"),
        ("__import__('os')", 0, "structure"),
        ("18446744073709551616", 20, "limit"),
        ("-9223372036854775809", 20, "limit"),
        ("9" * 60_000, 60_000, "limit"),
        ("[" * 33 + "]" * 33, 32, "limit"),
        ("(" * 60_000, 32, "limit"),
    ],
)
def test_what_is_no_literal_is_refused(text: str, at: int, kind: str) -> None:
    with pytest.raises(FormatError) as caught:
        npy_literal.parse(text, 100)
    found = caught.value
    assert (found.kind, found.field, found.offset) == (kind, "header", 100 + at)


def test_nesting_up_to_the_limit_is_read() -> None:
    assert npy_literal.parse("[" * 32 + "]" * 32) is not None


def test_long_integers_are_python_2s() -> None:
    assert npy_literal.parse("(3L, 4L)", long_integers=True) == (3, 4)
    with pytest.raises(FormatError):
        npy_literal.parse("(3L,)")
    text = "{'descr': '|u1', 'fortran_order': False, 'shape': (2L,), }"
    assert only(npy_text(text, b"ab")).shape == (2,)
    refused(npy_text(text, b"ab", (3, 0)), "header", 12 + text.index("L") + 1)


def warnings_of(data: bytes) -> list[tuple[str, str | None, int | None]]:
    findings = check(memoryview(data))
    assert not findings.errors
    return [(w.kind, w.field, w.offset) for w in findings.warnings]


def test_what_numpy_writes_has_no_warning() -> None:
    assert warnings_of(npy(np.arange(5))) == []
    assert warnings_of(npy(np.arange(5), (2, 0))) == []


def test_what_numpy_does_not_write_is_warned_of() -> None:
    good = npy(np.arange(5, dtype="<i4"))
    assert warnings_of(good + good) == [("structure", "data", len(good))]
    assert [e.field for e in check(memoryview(good + b"after")).errors] == ["data"]
    text = good[10:-20].decode()
    aligned = npy_text(text[:-1] + " ", bytes(20))
    assert warnings_of(aligned) == [("structure", "header", 128)]
    shorter = npy_text(text[:-2] + "\n", bytes(20))
    assert warnings_of(shorter) == [("structure", "header length", 0)]


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("name", ["a", "\xe9"])
@pytest.mark.parametrize("size", [9_990, 10_000, 10_001])
def test_a_note_says_exactly_which_headers_numpy_refuses(
    size: int, name: str, version: tuple[int, int]
) -> None:
    """It counts the characters of the header's text alone."""
    text = f"{{'descr': [('{name}', '<i2')], 'fortran_order': False, 'shape': (1,), }}"
    raw = f"{text:{size - 1}}\n".encode("utf-8" if version == (3, 0) else "latin-1")
    data = npy_text(raw, b"ab", version)
    notes = [warning.message for warning in check(memoryview(data)).warnings]
    told = f"numpy.load refuses a header of {size} characters unless max_header_size allows it"
    assert [n for n in notes if "numpy.load" in n] == ([told] if size > 10_000 else [])
    try:
        np.load(io.BytesIO(data))
    except ValueError:
        assert size > 10_000
    else:
        assert size <= 10_000


def test_every_changed_byte_is_read_or_refused() -> None:
    good = npy(np.zeros(2, [("a", "<i2", (2,)), ("b", "<M8[D]")]))
    for place in range(len(good)):
        for change in (1, 2, 0x20, 0x80):
            data = bytearray(good)
            data[place] ^= change
            check_cut(split(memoryview(data)), bytes(data))
            check(memoryview(data))


@given(st.binary(max_size=80), st.sampled_from([(1, 0), (2, 0), (3, 0)]))
def test_any_header(raw: bytes, version: tuple[int, int]) -> None:
    data = npy_text(raw, b"data", version)
    check_cut(split(memoryview(data)), data)


def source(element: str, shape: tuple[int, ...], raw: bytes) -> TensorSource:
    def blocks() -> Any:
        yield raw[:3]
        yield raw[3:]

    return TensorSource("w", element, shape, len(raw), blocks)


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (1234567, 0), (2, 1, 2)])
def test_written_files_are_those_of_numpy(element: str, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape, dtype=int)) * ITEM_BYTES[element]
    raw = bytes(n % 2 for n in range(count))
    written = b"".join(build_model([source(element, shape, raw)], {"a": "tag"}))
    assert written == npy(np.frombuffer(raw, DTYPES[element]).reshape(shape))
    assert only(written).element == element
    assert warnings_of(written) == []


def test_the_example_of_the_spec() -> None:
    assert example("npy.md") == npy(np.array([1, -2], "<i2"))


def test_what_npy_can_not_hold_is_refused_at_once() -> None:
    one = source("f32", (), bytes(4))
    for tensors, field in (
        ([], "data"),
        ([one, one], "data"),
        ([source("bf16", (2,), bytes(4))], "descr"),
        ([source("f32", (1,) * 65, bytes(4))], "shape"),
    ):
        with pytest.raises(FormatError) as caught:
            build_model(tensors, {})
        assert caught.value.field == field
