"""torch files: what is found in them, and how they are cut."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from tests.containers.samples import check_cut, spelled
from tests.containers.torch_files import (
    EMPTY_HOOKS,
    archive,
    call,
    dict_of,
    items_of,
    list_of,
    name,
    named,
    number,
    pickled,
    sizes,
    storage,
    tensor,
    text,
    tuple_of,
    vector,
    zipped,
)
from tests.data import entries, fixture
from wtxtgit.containers.any_format import check, describe, split, tensors
from wtxtgit.containers.registry import detect
from wtxtgit.containers.torch import read, views
from wtxtgit.errors import FormatError
from wtxtgit.model.array import Cut
from wtxtgit.model.tensor import ReadOptions, Tensor

FLOATS = struct.pack("<6f", *range(6))
TSAV = {"TSAV", "TORC"}


def cut(data: bytes) -> Cut:
    result = split(memoryview(data))
    check_cut(result, data)
    return result


def parts(data: bytes) -> list[str]:
    """The arrays that are neither members of every torch file nor gaps."""
    usual = ("archive_data_pkl", "archive_byteorder", "archive_version", "_gap", "_directory")
    result = cut(data)
    assert result.layout.format == "torch"
    return [a.name for a in result.arrays if not a.name.startswith(usual)]


def found(data: bytes, **options: int) -> dict[str, Tensor]:
    described = describe(memoryview(data), ReadOptions(**options))
    return {tensor.name: tensor for tensor in described.tensors}


def names(value: bytes, storages: dict[str, bytes] | None = None) -> list[str]:
    data = archive(value, storages or {"0": FLOATS})
    return [tensor.name for tensor in describe(memoryview(data)).tensors]


def holds_torch(entry: dict[str, Any]) -> bool:
    kinds = {chunk["ctype"] for chunk in entry.get("chunks", [])}
    return "tensors" in entry and (entry["format"] == "torch.pt" or bool(kinds & TSAV))


@pytest.mark.parametrize("entry", [e for e in entries() if holds_torch(e)], ids=lambda e: e["file"])
def test_the_tensors_of_original_writers(entry: dict[str, Any]) -> None:
    data = memoryview(fixture(entry["file"]))
    listed = {tensor.name: tensor for tensor in tensors(describe(data))}
    for wanted in entry["tensors"]:
        first, *rest = map(str, wanted["path"])
        if entry["format"] == "FOLD":
            tensor = listed[f"{first}/{'.'.join(rest)}"]
        elif "pt_legacy_pickle" in entry["quirks"]:
            # The manifest names these after the value of which a part was saved.
            tensor = listed[".".join(rest)]
        else:
            tensor = listed[".".join((first, *rest))]
        assert tensor.absent is None
        assert tensor.dtype == wanted["dtype"]
        assert list(tensor.shape) == wanted["shape"]
        assert sha256(items_of(tensor)).hexdigest() == wanted["sha256"]


def test_a_storage_that_one_tensor_covers_is_that_tensor() -> None:
    data = archive(named(w=tensor("0", 6, [2, 3], [3, 1])), {"0": FLOATS})
    result = cut(data)
    extent = next(extent for extent in result.layout.extents if extent.is_tensor)
    assert (extent.name, extent.dtype, extent.shape) == ("w", "float32", (2, 3))
    array = next(array for array in result.arrays if array.name == "w")
    assert (array.dtype, array.shape, bytes(array.data)) == ("f32", (2, 3), FLOATS)


def test_the_other_members_are_named_parts() -> None:
    result = cut(archive(named(w=vector("0", 6)), {"0": FLOATS}))
    named_parts = [e.name for e in result.layout.extents if e.name and not e.is_tensor]
    assert named_parts == ["archive/data.pkl", "archive/byteorder", "archive/version"]
    assert spelled(result)[-1] == "_directory"


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(named(w=tensor("0", 6, [3, 2], [1, 3])), id="strided"),
        pytest.param(named(w=vector("0", 6), v=vector("0", 6)), id="two"),
        pytest.param(named(w=tensor("0", 6, [5], [1])), id="not to its end"),
        pytest.param(named(w=tensor("0", 6, [5], [1], offset=1)), id="not from its start"),
        pytest.param(named(w=storage("FloatStorage", "0", 6)), id="no tensor"),
        pytest.param(named(w=b"N"), id="none"),
    ],
)
def test_any_other_storage_is_a_part(value: bytes) -> None:
    assert parts(archive(value, {"0": FLOATS})) == ["archive_data_0"]


def test_a_view_beside_the_tensor_that_covers_is_no_matter() -> None:
    value = named(v=tensor("0", 6, [2], [1]), w=tensor("0", 6, [6, 1], [1, 99]))
    assert parts(archive(value, {"0": FLOATS})) == ["w"]


def test_a_tensor_of_two_names_is_one_tensor() -> None:
    leaf = vector("0", 6) + b"q\x00"
    subclass = call(
        name("torch._tensor", "_rebuild_from_type_v2"),
        name("torch._utils", "_rebuild_tensor"),
        name("mine", "Kind"),
        tuple_of(storage("FloatStorage", "0", 6), number(0), sizes([6]), sizes([1])),
        named(),
    )
    for value, first in (
        (list_of(leaf, b"h\x00"), "0"),
        (named(m=list_of(leaf), o=dict_of((number(7), b"h\x00"))), "m.0"),
        (list_of(subclass + b"q\x00", b"h\x00"), "0"),
    ):
        data = archive(value, {"0": FLOATS})
        tensors = [e.name for e in cut(data).layout.extents if e.is_tensor]
        assert tensors == [first]
        assert len(found(data)) == 2


def test_two_tensors_of_one_storage_leave_it_a_part_also_where_they_look_alike() -> None:
    assert parts(archive(list_of(vector("0", 6), vector("0", 6)), {"0": FLOATS})) == [
        "archive_data_0"
    ]
    shared = vector("0", 6) + b"q\x00"
    value = list_of(shared, b"h\x00", vector("0", 6))
    assert parts(archive(value, {"0": FLOATS})) == ["archive_data_0"]


@pytest.mark.parametrize(
    "outside",
    [
        pytest.param(tensor("0", 6, [2, 3], [4, 1]), id="strides"),
        pytest.param(tensor("0", 6, [6], [1], offset=1), id="offset"),
        pytest.param(tensor("0", 6, [2**63 - 1] * 64, [2**63 - 1] * 64), id="sizes"),
    ],
)
def test_a_view_outside_of_its_storage_covers_nothing(outside: bytes) -> None:
    data = archive(named(w=outside, v=vector("1", 6)), {"0": FLOATS, "1": FLOATS})
    assert parts(data) == ["archive_data_0", "v"]
    listed = found(data)
    assert listed["v"].absent is None
    assert listed["w"].absent == "reaches past the end of its storage of 24 bytes"
    assert bytes(listed["w"].data) == b""


def test_a_storage_of_an_unknown_class_is_a_part() -> None:
    data = archive(named(w=vector("0", 6, "OddStorage")), {"0": FLOATS})
    assert parts(data) == ["archive_data_0"]
    listed = found(data)["w"]
    assert (listed.dtype, listed.element) == ("torch.OddStorage", None)
    assert listed.absent == "its dtype is unknown"


@pytest.mark.parametrize(("size", "raw"), [(6, FLOATS), (0, b"")])
def test_a_tensor_of_an_unknown_dtype_leaves_its_storage_a_part(size: int, raw: bytes) -> None:
    rebuilt = call(
        name("torch._utils", "_rebuild_tensor_v3"),
        storage("UntypedStorage", "0", len(raw)),
        *(number(0), sizes([size]), sizes([1]), b"\x89", EMPTY_HOOKS, name("torch", "float3")),
    )
    data = archive(named(w=rebuilt, v=vector("1", 6)), {"0": raw, "1": FLOATS})
    assert parts(data) == (["archive_data_0", "v"] if raw else ["v"])
    listed = found(data)["w"]
    assert (listed.dtype, listed.element) == ("torch.float3", None)
    assert listed.absent == "its dtype is unknown"


def npy(array: np.ndarray[Any, Any]) -> bytes:
    made = io.BytesIO()
    np.save(made, array)
    return made.getvalue()


def test_stored_npy_members_are_tensors() -> None:
    raw = npy(np.arange(6, dtype="<f4").reshape(2, 3))
    more = {"x.npy": raw, "bad.npy": b"no array", "packed.npy": raw}
    data = archive(named(w=vector("0", 6)), {"0": FLOATS}, more=more, deflated=["packed.npy"])
    assert parts(data) == [
        *("w", "_npy", "archive_x", "archive_bad_npy", "archive_packed_npy"),
    ]
    extent = next(e for e in cut(data).layout.extents if e.name == "archive/x")
    assert (extent.dtype, extent.shape) == ("<f4", (2, 3))
    listed = found(data)
    assert list(listed) == ["w", "archive/x"]
    assert bytes(listed["archive/x"].data) == FLOATS
    offset = listed["archive/x"].offset
    assert offset is not None
    assert data[offset : offset + 24] == FLOATS


def test_a_covered_storage_named_npy_is_its_tensor() -> None:
    raw = npy(np.zeros(0, dtype="<f4"))
    data = archive(named(w=vector("0.npy", len(raw), "ByteStorage")), {"0.npy": raw})
    assert parts(data) == ["w"]


def test_all_headers_of_npy_members_are_bounded() -> None:
    text = b"{'descr': '|u1', 'fortran_order': False, 'shape': (0,)}"
    header = b"\x93NUMPY\x02\x00" + (2**20).to_bytes(4, "little") + text.ljust(2**20)
    members = {"a/data.pkl": pickled(b"N"), **{f"a/{n}.npy": b"" for n in range(10)}}
    data = bytearray(zipped({**members, "a/0.npy": header}))
    first = data.index(b"PK\x03\x04", 10)
    assert split(memoryview(data)).layout.format == "torch"
    # All ten claim the header of the first.
    place = data.index(b"PK\x01\x02")
    sizes_of = None
    for _ in range(11):
        if b"a/0.npy" in data[place : place + 60]:
            sizes_of = data[place + 20 : place + 28]
        if sizes_of is not None:
            data[place + 20 : place + 28] = sizes_of
            data[place + 42 : place + 46] = first.to_bytes(4, "little")
        place = data.find(b"PK\x01\x02", place + 1)
    with pytest.raises(FormatError) as caught:
        read.read(memoryview(data))
    assert (caught.value.kind, caught.value.field) == ("limit", "header")
    assert caught.value.offset is not None
    result = split(memoryview(data))
    assert (result.layout.format, result.reason) == ("opaque", caught.value.message)


def test_bytes_of_protocol_2_are_bytes() -> None:
    encode = call(name("_codecs", "encode"), text("k\xff"), text("latin1"))
    empty = call(name("__builtin__", "bytes"))
    value = dict_of((encode, vector("0", 6)), (empty, vector("0", 6)))
    assert (
        names(value)
        == ["b'k\\xff'", "b''"]
        == names(dict_of((b"C\x02k\xff", vector("0", 6)), (b"C\x00", vector("0", 6))))
    )
    other = call(name("_codecs", "encode"), text("\u0100"), text("latin1"))
    assert names(dict_of((other, vector("0", 6)))) == ["_codecs.encode"]


def test_a_deflated_storage_is_a_part_and_its_tensor_is_read() -> None:
    data = archive(named(w=vector("0", 6)), {"0": FLOATS}, deflated=["data/0"])
    assert parts(data) == ["archive_data_0"]
    listed = found(data)["w"]
    assert bytes(listed.data) == FLOATS
    assert listed.offset is None
    assert found(data, max_chunk=23)["w"].absent == read.TOO_LARGE
    assert found(data, max_chunk=24)["w"].absent is None


def test_each_deflated_storage_has_a_limit() -> None:
    value = named(v=vector("0", 6), w=vector("1", 6), u=vector("0", 6))
    data = archive(value, {"0": FLOATS, "1": FLOATS + FLOATS}, deflated=["data/0", "data/1"])
    listed = found(data, max_chunk=24)
    assert [listed[key].absent for key in "vwu"] == [None, read.TOO_LARGE, None]
    assert bytes(listed["v"].data) == bytes(listed["u"].data) == FLOATS


def test_a_deflated_pickle_is_read() -> None:
    data = archive(named(w=vector("0", 6)), {"0": FLOATS}, deflated=["data.pkl"])
    assert parts(data) == ["w"]


def test_a_big_endian_file_is_told_and_its_arrays_are_bytes() -> None:
    data = archive(named(w=vector("0", 6)), {"0": FLOATS}, byteorder=b"big")
    assert found(data)["w"].byteorder == "big"
    array = next(array for array in cut(data).arrays if array.name == "w")
    assert (array.dtype, array.shape) == ("u8", (24,))


def test_a_file_without_byteorder_is_little_endian() -> None:
    assert found(archive(named(w=vector("0", 6)), {"0": FLOATS}, byteorder=None))["w"]


def test_views_start_at_their_first_item() -> None:
    value = named(w=tensor("0", 7, [2, 2], [3, 2], offset=1))
    data = archive(value, {"0": FLOATS[:4] + FLOATS})
    listed = found(data)["w"]
    assert listed.strides == (3, 2)
    assert struct.unpack("<4f", items_of(listed)) == (0.0, 2.0, 3.0, 5.0)
    assert listed.offset is not None
    assert data[listed.offset : listed.offset + len(listed.data)] == listed.data


@pytest.mark.parametrize(("shape", "strides"), [([0, 3], [3, 1]), ([2, 0], [7, 9])])
def test_tensors_without_items(shape: list[int], strides: list[int]) -> None:
    listed = found(archive(named(w=tensor("0", 0, shape, strides)), {"0": b""}))["w"]
    assert (listed.shape, bytes(listed.data), listed.absent) == (tuple(shape), b"", None)
    assert found(archive(named(w=tensor("0", 0, shape, strides))))["w"].absent is None


def test_repeated_items_are_bounded() -> None:
    value = named(w=tensor("0", 6, [2**40, 6], [0, 1]))
    listed = found(archive(value, {"0": FLOATS}))["w"]
    assert listed.absent is not None
    few = named(w=tensor("0", 6, [3, 6], [0, 1]))
    assert items_of(found(archive(few, {"0": FLOATS}))["w"]) == 3 * FLOATS


@pytest.mark.parametrize("kind", [k for k in views.STORAGES if not k.startswith("_")])
def test_every_class_of_storage(kind: str) -> None:
    dtype = views.STORAGES[kind]
    raw = bytes(range(4 * views.SIZES[dtype]))
    listed = found(archive(named(w=vector("0", 4, kind)), {"0": raw}))["w"]
    assert (listed.dtype, listed.element) == (dtype, views.ELEMENTS.get(dtype))
    if dtype not in views.PACKED:
        assert bytes(listed.data) == raw


@pytest.mark.parametrize("dtype", views.SIZES)
def test_every_dtype_of_bytes(dtype: str) -> None:
    raw = bytes(range(4 * views.SIZES[dtype]))
    rebuilt = call(
        name("torch._utils", "_rebuild_tensor_v3"),
        storage("UntypedStorage", "0", len(raw)),
        *(number(0), sizes([4]), sizes([1]), b"\x89", EMPTY_HOOKS, name("torch", dtype)),
    )
    listed = found(archive(named(w=rebuilt), {"0": raw}))["w"]
    assert (listed.dtype, listed.element) == (dtype, views.ELEMENTS.get(dtype))
    if dtype not in views.PACKED:
        assert bytes(listed.data) == raw


@pytest.mark.parametrize("bit", ["conj", "neg"])
@pytest.mark.parametrize("is_strided", [False, True])
def test_conjugated_and_negated_values_are_those_that_torch_reads(
    bit: str, is_strided: bool
) -> None:
    bits = named(**{bit: b"\x88"})
    shape, strides = ([2, 1], [2, 1]) if is_strided else ([3], [1])
    value = tensor("0", 3, shape, strides, kind="ComplexFloatStorage", metadata=bits)
    data = archive(named(w=value), {"0": FLOATS})
    stored = np.frombuffer(FLOATS, "<c8", 3)
    items = stored[::2].reshape(2, 1) if is_strided else stored
    wanted = np.conj(items) if bit == "conj" else -items
    listed = found(data)["w"]
    assert (listed.element, listed.strides) == ("c64", None)
    assert bytes(listed.data) == wanted.tobytes()
    if is_strided:
        return
    # What git stores are the bytes that the file has.
    array = next(array for array in cut(data).arrays if array.name == "w")
    assert array.dtype == "u8"


def test_quantised_values_are_no_plain_numbers() -> None:
    scheme = tuple_of(
        name("torch", "per_channel_affine"), vector("1", 3, "DoubleStorage"), number(0)
    )
    value = call(
        name("torch._utils", "_rebuild_qtensor"),
        storage("QInt8Storage", "0", 6),
        *(number(0), sizes([2, 3]), sizes([3, 1]), scheme, b"\x89", EMPTY_HOOKS),
    )
    listed = found(archive(named(w=value), {"0": b"abcdef", "1": FLOATS}))
    assert (listed["w"].dtype, listed["w"].element) == ("qint8", None)
    assert listed["w.4.1"].dtype == "float64"


def test_names_are_paths() -> None:
    leaf = vector("0", 6)
    parameter = call(name("torch._utils", "_rebuild_parameter"), leaf, b"\x88", EMPTY_HOOKS)
    state = named(weight=parameter, training=b"\x88")
    module = name("models", "Net") + b")\x81" + named(_buffers=state) + b"b"
    value = dict_of(
        (text("a.b"), list_of(leaf, tuple_of(leaf))),
        (number(7), leaf),
        (b"\x88", leaf),
        (b"N", leaf),
        (b"G" + struct.pack(">d", 0.5), leaf),
        (tuple_of(text("x"), number(1)), leaf),
        (text("net"), module),
        (text(""), leaf),
    )
    assert names(value) == [
        *("a.b.0", "a.b.1.0", "7", "True", "None", "0.5", "(x, 1)"),
        *("net._buffers.weight", ""),
    ]


def test_a_tensor_that_is_the_value() -> None:
    assert names(vector("0", 6)) == ["tensor"]


def test_of_equal_keys_the_last_value_counts_at_the_first_place() -> None:
    pairs = [(number(1), vector("0", 6)), (text("b"), vector("0", 5)), (b"\x88", vector("0", 4))]
    data = archive(dict_of(*pairs), {"0": FLOATS})
    described = describe(memoryview(data)).tensors
    assert [(t.name, t.shape) for t in described] == [("1", (4,)), ("b", (5,))]


def test_dicts_of_python_2_and_attributes_of_dicts() -> None:
    ordered = name("collections", "OrderedDict")
    pairs = list_of(list_of(text("a"), vector("0", 6)), list_of(text("b"), vector("0", 6)))
    state = named(extra=vector("0", 6), _metadata=named(version=number(1)))
    value = call(ordered, pairs) + state + b"b"
    assert names(value) == ["a", "b", "extra"]


def test_tensors_with_attributes() -> None:
    leaf = vector("0", 6)
    rebuild, *args = (
        name("torch._utils", "_rebuild_tensor_v2"),
        storage("FloatStorage", "0", 6),
        *(number(0), sizes([6]), sizes([1]), b"\x89", EMPTY_HOOKS),
    )
    subclass = call(
        name("torch._tensor", "_rebuild_from_type_v2"),
        *(rebuild, name("mine", "Kind"), tuple_of(*args), named(scale=leaf)),
    )
    with_state = call(
        name("torch._utils", "_rebuild_parameter_with_state"),
        *(leaf, b"\x88", EMPTY_HOOKS, named(mask=leaf)),
    )
    assert names(named(s=subclass, p=with_state)) == ["s", "s.scale", "p", "p.mask"]


def test_unknown_objects_are_walked_once_and_plain_data_wherever_it_is() -> None:
    thing = call(name("mine", "Thing"), vector("0", 6)) + b"q\x00"
    shared = list_of(vector("0", 6)) + b"q\x01"
    value = named(a=thing, b=b"h\x00", c=shared, d=b"h\x01")
    assert names(value) == ["a.0", "c.0", "d.0"]


def test_values_that_hold_themselves() -> None:
    loop = b"]q\x00(" + vector("0", 6) + b"h\x00e"
    assert names(loop) == ["0"]
    thing = name("mine", "Thing") + b")\x81q\x00" + named(me=b"h\x00", w=vector("0", 6)) + b"b"
    assert names(thing) == ["w"]


def test_tensors_on_the_meta_device_are_listed_without_bytes() -> None:
    value = call(
        name("torch._utils", "_rebuild_meta_tensor_no_storage"),
        *(name("torch", "float32"), sizes([2, 3]), sizes([3, 1]), b"\x89"),
    )
    listed = found(archive(named(w=value)))["w"]
    assert (listed.shape, listed.dtype) == ((2, 3), "float32")
    assert listed.absent is not None


def test_what_a_file_says_of_itself() -> None:
    value = named(
        w=vector("0", 6), arch=text("resnet"), epoch=number(3), none=b"N", extra=named(a=number(1))
    )
    described = describe(memoryview(archive(value, {"0": FLOATS})))
    assert described.format == "torch"
    assert described.tags == {"arch": "resnet"}
    assert described.untold == ("epoch", "extra")
    metadata = described.metadata
    assert (metadata["protocol"], metadata["byteorder"], metadata["version"]) == (2, "little", "3")
    assert metadata["globals"] == [
        "torch._utils._rebuild_tensor_v2",
        "torch.FloatStorage",
        "collections.OrderedDict",
    ]
    assert [m["name"] for m in metadata["members"]][:1] == ["archive/data.pkl"]  # type: ignore[attr-defined]
    json.dumps(metadata)


def test_the_folder_has_any_name_or_none() -> None:
    value, storages = named(w=vector("0", 6)), {"0": FLOATS}
    for folder in ("a/", "x y/", ""):
        assert list(found(archive(value, storages, folder=folder))) == ["w"]
    # A first member without the pickle: another tool has put it there.
    members = {"notes": b"", "m/data.pkl": pickled(value), "m/data/0": FLOATS}
    assert list(found(zipped(members))) == ["w"]


def test_of_members_with_one_name_the_last_counts() -> None:
    first, last = FLOATS, FLOATS[::-1]
    twice = archive(named(w=vector("0", 6)), {"0": first}, more={"data/9": last})
    twice = twice.replace(b"archive/data/9", b"archive/data/0")
    assert bytes(found(twice)["w"].data) == last
    assert parts(twice) == ["archive_data_0", "w"]


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "negative stride": (
        lambda: archive(named(w=tensor("0", 6, [6], [-1], offset=5)), {"0": FLOATS}),
        "data.pkl",
    ),
    "other rank": (
        lambda: archive(named(w=tensor("0", 6, [6], [1, 1])), {"0": FLOATS}),
        "data.pkl",
    ),
    "rank over 64": (
        lambda: archive(named(w=tensor("0", 6, [1] * 65, [1] * 65)), {"0": FLOATS}),
        "data.pkl",
    ),
    "negative numel": (lambda: archive(named(w=vector("0", -1))), "data.pkl"),
    "unknown persistent id": (
        lambda: archive(tuple_of(text("file"), text("x")) + b"Q"),
        "data.pkl",
    ),
    "no tuple as persistent id": (lambda: archive(text("file") + b"Q"), "data.pkl"),
    "unknown byteorder": (lambda: archive(b"N", byteorder=b"middle"), "byteorder"),
    "lone surrogate": (lambda: archive(dict_of((text("\ud800"), vector("0", 6)))), "tensor name"),
}


@pytest.mark.parametrize("case", BAD)
def test_files_that_can_not_be_read_are_stored_whole(case: str) -> None:
    build, field = BAD[case]
    data = memoryview(build())
    with pytest.raises(FormatError) as caught:
        read.read(data)
    assert caught.value.field == field
    assert caught.value.offset is not None
    result = split(data)
    assert result.layout.format == "opaque"
    assert result.reason == caught.value.message
    assert [error.field for error in check(data).errors] == [field]


def test_places_in_a_deflated_pickle_are_those_of_its_member() -> None:
    data = archive(b"V", deflated=["data.pkl"])
    with pytest.raises(FormatError) as caught:
        read.read(memoryview(data))
    assert caught.value.offset == 30 + len("archive/data.pkl")


def test_a_zip_without_a_pickle_is_no_torch_file() -> None:
    data = memoryview(zipped({"a/version": b"3"}))
    assert detect(data) == "opaque"
    with pytest.raises(FormatError, match="no member"):
        read.read(data)


def test_detection() -> None:
    assert detect(memoryview(archive(b"N"))) == "torch"
