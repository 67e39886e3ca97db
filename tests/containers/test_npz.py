"""npz files: arrays, parts and checks, against numpy and by hand."""

from __future__ import annotations

import io
import struct
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tests.containers.samples import check_cut, spelled
from tests.containers.zip_files import Entry, as_numpy, deflate, npy, npy_fields, npy_text, zipped
from tests.data import entries, fixture
from wtxtgit.containers.any_format import check, describe, split
from wtxtgit.containers.fold import read as fold
from wtxtgit.containers.registry import detect
from wtxtgit.errors import FormatError
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions, Tensor

A = np.arange(6, dtype="<f4").reshape(2, 3)
RAW = npy(A)
NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1, max_size=8
)
DTYPES = st.one_of(
    npst.boolean_dtypes(),
    npst.integer_dtypes(endianness="?"),
    npst.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    npst.complex_number_dtypes(endianness="?"),
    npst.byte_string_dtypes(min_len=1),
)


def tensors(data: bytes, options: ReadOptions | None = None) -> dict[str, Tensor]:
    listed = describe(memoryview(data), options or ReadOptions()).tensors
    found = {tensor.name: tensor for tensor in listed}
    assert len(found) == len(listed)
    return found


def told(data: bytes, options: ReadOptions | None = None) -> Findings:
    return check(memoryview(data), options or ReadOptions())


def errors(data: bytes) -> list[tuple[str, str | None, int | None, Any]]:
    return [(e.kind, e.field, e.offset, e.chunk) for e in told(data).errors]


def warned(data: bytes) -> list[tuple[str, str | None, int | None, Any]]:
    findings = told(data)
    assert not findings.errors
    return [(w.kind, w.field, w.offset, w.chunk) for w in findings.warnings]


def little(tensor: Tensor) -> bytes:
    """The items in C order, little-endian."""
    array = as_numpy(tensor)
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


MANIFEST = [entry for entry in entries() if entry["format"] == "npz"]


@pytest.mark.parametrize("entry", MANIFEST, ids=lambda entry: entry["file"])
def test_arrays_of_real_files(entry: dict[str, Any]) -> None:
    found = tensors(fixture(entry["file"]))
    assert list(found) == [wanted["name"] for wanted in entry["tensors"]]
    for wanted in entry["tensors"]:
        tensor = found[wanted["name"]]
        assert tensor.shape == tuple(wanted["shape"])
        assert sha256(little(tensor)).hexdigest() == wanted["sha256"]
        if tensor.offset is not None:
            start = tensor.offset
            assert fixture(entry["file"])[start : start + len(tensor.data)] == tensor.data
        assert (tensor.offset is None) == ("npz_deflate" in entry["quirks"])
    assert told(fixture(entry["file"])) == Findings()


def test_there_are_real_files() -> None:
    quirks = {quirk for entry in MANIFEST for quirk in entry["quirks"]}
    assert quirks >= {"npz_stored", "npz_deflate", "npz_fortran_order", "npz_big_endian"}


def test_odd_arrays_of_a_real_chunk() -> None:
    file = memoryview(fixture("fold/npz_odd_a.fold"))
    (chunk,) = fold.read(file).chunks
    data = bytes(file[chunk.payload_start : chunk.payload_end])
    found = tensors(data)
    (entry,) = [entry for entry in entries() if entry["file"] == "fold/npz_odd_a.fold"]
    for wanted in entry["tensors"]:
        tensor = found.pop(wanted["name"])
        assert tensor.shape == tuple(wanted["shape"])
        assert sha256(little(tensor)).hexdigest() == wanted["sha256"]
    assert list(found) == ["obj"]
    assert (found["obj"].dtype, found["obj"].element) == ("|O", None)
    assert [field for _, field, _, _ in warned(data)] == ["descr"]


@settings(max_examples=40, deadline=None)
@given(data=st.data(), names=st.lists(NAMES, unique=True, max_size=4), packed=st.booleans())
def test_what_numpy_saves_is_described(data: st.DataObject, names: list[str], packed: bool) -> None:
    shapes = npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    made = {}
    for name in names:
        dtype, shape = data.draw(DTYPES), data.draw(shapes)
        order = "F" if data.draw(st.booleans()) else "C"
        size = int(np.prod(shape, dtype=int)) * dtype.itemsize
        content = bytes(data.draw(st.binary(min_size=1, max_size=16)) * size)[:size]
        made[name] = np.asarray(np.frombuffer(content, dtype).reshape(shape), order=order)
        if dtype.kind == "b":
            made[name] = np.zeros(shape, bool, order)
    buffer = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(buffer, allow_pickle=False, **made)
    raw = buffer.getvalue()
    cut = split(memoryview(raw))
    check_cut(cut, raw)
    if not names:
        assert detect(memoryview(raw)) == "opaque"
        return
    assert cut.layout.format == "npz"
    found = tensors(raw)
    assert list(found) == names
    for name, array in made.items():
        assert found[name].shape == array.shape
        assert as_numpy(found[name]).tobytes() == array.tobytes()
        assert found[name].order == ("C" if array.flags["C_CONTIGUOUS"] else "F")
    assert told(raw) == Findings()


def test_parts_of_a_file() -> None:
    cut = split(memoryview(fixture("golden/npz/mixed_members.npz")))
    named = [e for e in cut.layout.extents if e.array is not None]
    assert [(e.array, e.name, e.dtype, e.shape) for e in named] == [
        ("README_txt", "README.txt", None, None),
        ("_npy", None, None, None),
        ("w", "w", "<f4", (3, 4)),
        ("packed_npy", "packed.npy", None, None),
        ("broken_npy", "broken.npy", None, None),
        ("_npy__2", None, None, None),
        ("with_extra", "with_extra", "|i1", (4,)),
        ("_npy__3", None, None, None),
        ("w__2", "w", "<f4", (3, 4)),
        ("_directory", None, None, None),
    ]
    assert [word[:4] for word in spelled(cut)].count("hex:") == 6


def test_descriptors_are_gaps() -> None:
    words = spelled(split(memoryview(fixture("golden/npz/descriptors.npz"))))
    assert [word.partition(":")[0] for word in words] == [
        *("hex", "_npy", "a", "hex", "_npy__2", "z", "hex", "_directory")
    ]
    assert words[6].startswith("hex:504b0708")


def test_what_else_a_file_holds_is_told() -> None:
    data = fixture("golden/npz/mixed_members.npz")
    found = describe(memoryview(data))
    assert found.untold == ("README.txt",)
    assert [tensor.name for tensor in found.tensors] == ["w", "packed", "broken", "with_extra", "w"]
    packed, broken = found.tensors[1], found.tensors[2]
    assert (packed.offset, packed.shape, packed.data) == (None, (50, 4), bytes(800))
    assert (broken.dtype, broken.shape, len(broken.data)) == ("", (), 0)
    assert "keys" in (broken.absent or "")
    assert found.metadata["members"][0] == {  # type: ignore[index]
        "name": "README.txt",
        "method": 0,
        "size": 25,
    }


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["a.npy"], "npz"),
        (["a.txt", "dir/b.npy"], "npz"),
        (["a.npy", "data.pkl"], "torch"),
        (["x.npy", "model/data.pkl"], "torch"),
        (["data.pkl/a.npy"], "npz"),
        (["a/b/data.pkl"], "opaque"),
        (["model/version"], "opaque"),
        (["a.npy.txt", "a.NPY"], "opaque"),
        ([".npy"], "npz"),
        ([], "opaque"),
    ],
)
def test_zips_are_told_by_their_members(names: list[str], wanted: str) -> None:
    data = zipped([Entry(name.encode(), b"x") for name in names])
    assert detect(memoryview(data)) == wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (b"a.npy", "npz"),
        (b"model/data.pkl", "torch"),
        (b"model/version", "torch"),
        (b"a.txt", "opaque"),
        (b"\xff.txt", "opaque"),
    ],
)
def test_zips_without_a_directory_are_told_by_their_first_member(name: bytes, wanted: str) -> None:
    data = zipped([Entry(name, b"x"), Entry(b"data.pkl")])[:-1]
    assert detect(memoryview(data)) == wanted


def test_a_file_that_is_cut_off_is_an_error() -> None:
    data = fixture("golden/npz/savez.npz")[:-1]
    cut = split(memoryview(data))
    check_cut(cut, data)
    assert (cut.layout.format, spelled(cut)) == ("opaque", ["data"])
    assert "no end of central directory" in (cut.reason or "")
    field = "end of central directory"
    assert errors(data) == [("structure", field, len(data), None)]
    with pytest.raises(FormatError):
        describe(memoryview(data))


@pytest.mark.parametrize("packed", [0, 8])
def test_a_changed_byte_of_a_payload_is_found(packed: int) -> None:
    data = bytearray(zipped([Entry(b"x.npy", RAW), Entry(b"a.npy", RAW, packed)]))
    start = data.rindex(b"a.npy", 0, data.index(b"PK\1\2")) + 5
    end = data.index(b"PK\1\2")
    for place in (start, (start + end) // 2, end - 1):
        changed = bytearray(data)
        changed[place] ^= 1
        found = errors(bytes(changed))
        assert found
        assert all(chunk == "a.npy" and offset == start for _, _, offset, chunk in found)
        assert {kind for kind, *_ in found} <= {"crc32", "structure"}
        good = tensors(bytes(changed))["x"]
        assert good.data == A.tobytes()
    changed = bytearray(data)
    changed[end - 1] ^= 1
    if packed == 0:
        assert errors(bytes(changed)) == [("crc32", "crc32", start, "a.npy")]


def test_a_damaged_deflated_array_is_refused() -> None:
    entry = Entry(b"a.npy", RAW, 8, crc32=1)
    tensor = tensors(zipped([entry]))["a"]
    assert (tensor.shape, tensor.dtype, tensor.nbytes) == ((2, 3), "<f4", 24)
    with pytest.raises(FormatError, match="crc32 is"):
        assert tensor.data
    assert errors(zipped([entry])) == [("crc32", "crc32", 35, "a.npy")]
    for payload in (b"", b"\xff\xff", deflate(RAW)[:20]):
        entry = Entry(b"a.npy", RAW, 8, payload=payload)
        tensor = tensors(zipped([entry]))["a"]
        assert tensor.absent
        assert (tensor.shape, tensor.nbytes) == ((), 0)
        assert errors(zipped([entry])) == [("structure", "payload", 35, "a.npy")]


def test_a_header_is_read_without_its_array() -> None:
    content = npy(np.random.default_rng(7).integers(0, 15, 100_000, dtype="u1"))
    packed = deflate(content)
    cut_off = packed[: len(packed) // 2]
    tensor = tensors(zipped([Entry(b"a.npy", content, 8, payload=cut_off)]))["a"]
    assert (tensor.shape, tensor.absent) == ((100_000,), None)
    with pytest.raises(FormatError, match="ends inside its deflate stream"):
        assert tensor.data


def test_each_decoded_array_has_a_limit() -> None:
    big = npy(np.zeros(1000))
    data = zipped([Entry(b"%d.npy" % n, big, 8) for n in range(3)] + [Entry(b"s.npy", big)])
    for most, absent in ((len(big), False), (len(big) - 1, True)):
        found = tensors(data, ReadOptions(max_chunk=most))
        assert [tensor.absent is not None for tensor in found.values()] == [absent] * 3 + [False]
        assert (found["2"].shape, found["2"].dtype) == ((1000,), "<f8")
    assert "over" in (found["2"].absent or "")
    assert told(data, ReadOptions(max_chunk=len(big))) == Findings()
    limited = told(data, ReadOptions(max_chunk=len(big) - 1)).errors
    assert [(e.kind, e.field, e.chunk) for e in limited] == [
        ("limit", "payload", f"{n}.npy") for n in range(3)
    ]


def test_a_bomb_does_not_get_off() -> None:
    packed = deflate(bytes(60_000_000))
    bomb = Entry(b"a.npy", RAW, 8, payload=packed)
    assert errors(zipped([bomb])) == [("structure", "payload", 35, "a.npy")]
    assert tensors(zipped([bomb]))["a"].absent


def test_members_that_share_bytes_are_looked_at_once() -> None:
    big = npy(np.zeros(100_000))
    first = Entry(b"0.npy", big)
    shared = [
        Entry(b"%d.npy" % n, offset=0, length=len(big), size=len(big), crc32=0)
        for n in range(1, 400)
    ]
    data = zipped([first, *shared])
    found = errors(data)
    # The local headers of all but the first one are nobody's.
    assert [e[1] for e in found if e[:3] != ("structure", "payload", 35)] == ["gap"]
    assert len(found) == 400
    listed = describe(memoryview(data)).tensors
    assert [tensor.offset for tensor in listed] == [35 + 128] * 400
    cut = split(memoryview(data))
    check_cut(cut, data)
    assert cut.layout.format == "npz"
    assert [e.name for e in cut.layout.extents if e.dtype is not None] == ["0"]


def names(data: bytes) -> list[str]:
    """Arrays of the file's extents, gaps left out."""
    cut = split(memoryview(data))
    check_cut(cut, data)
    assert cut.layout.format == "npz"
    named = [extent.name or extent.array for extent in cut.layout.extents]
    return [name for name in named if name is not None and not name.startswith("_gap")]


def whole(name: bytes, offset: int, length: int = len(RAW), **changes: Any) -> Entry:
    """A member without bytes of its own: those behind the local header at `offset`."""
    return Entry(name, offset=offset, length=length, size=length, crc32=0, **changes)


def test_ranges_of_members_compete_and_not_members() -> None:
    # Equal ranges: the smaller name.
    data = zipped([Entry(b"b.npy", RAW), whole(b"a.npy", 0)])
    assert names(data) == ["_npy", "a", "_directory"]
    # Behind the array that the member starts with, its bytes are no range.
    inside = Entry(b"a.npy", RAW + b"PK\3\4" + bytes(22) + b"\1\0\0\0i" + b"inside")
    data = zipped([inside, whole(b"i", 35 + len(RAW), 6)])
    assert names(data) == ["_npy", "a", "i", "_directory"]
    assert ("structure", "payload", 35 + len(RAW) + 31, "i") in errors(data)
    # A local header that lies in another member's tail says where a payload starts.
    data = zipped(
        [Entry(b"x.npy", RAW, length=len(RAW) + 40, size=len(RAW) + 40), Entry(b"y.npy", RAW)]
    )
    assert names(data) == ["_npy", "x", "_npy__2", "y", "_directory"]
    assert list(tensors(data)) == ["x", "y"]


def test_a_payload_that_starts_before_the_directory_keeps_its_bytes() -> None:
    longer = {"length": len(RAW) + 20, "size": len(RAW) + 20}
    data = zipped([Entry(b"a.npy", RAW, **longer)])
    assert names(data) == ["_npy", "a", "_directory"]
    assert ("structure", "payload", 35, "a.npy") in errors(data)
    data = zipped([Entry(b"a.npy", RAW), Entry(b"t", b"text", length=24, size=24)])
    assert names(data) == ["_npy", "a", "t"]
    assert errors(data) == [("structure", "payload", data.index(b"text"), "t")]


def test_headers_that_many_members_claim_have_a_limit_together() -> None:
    text = "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }"
    long = npy_text(text.ljust(60_000), b"x")
    length = len(long)

    def claimed(count: int) -> bytes:
        others = [whole(b"%02d.npy" % n, 0, length) for n in range(1, count)]
        return zipped([Entry(b"00.npy", long), *others])

    # 4 x 60,000 bytes and 1 MiB are 21 headers; entries add less than half of one.
    assert names(claimed(21)) == ["_npy", "00", "_directory"]
    cut = split(memoryview(claimed(22)))
    assert (cut.layout.format, spelled(cut)) == ("opaque", ["data"])
    assert errors(claimed(22)) == [("limit", "header", 36, None)]
    assert "too long" in (cut.reason or "")


@pytest.mark.parametrize("method", [0, 8])
def test_encrypted_members_are_payloads(method: int) -> None:
    data = zipped([Entry(b"a.npy", RAW, method, flags=1), Entry(b"b.npy", RAW)])
    assert names(data) == ["a.npy", "_npy", "b", "_directory"]
    assert errors(data) == [("structure", "flags", data.index(b"PK\1\2"), "a.npy")]
    found = tensors(data)
    assert "'a.npy' is encrypted" in (found["a"].absent or "")
    assert found["b"].data == A.tobytes()


def test_an_empty_member_points_nowhere() -> None:
    data = zipped([Entry(b"a.npy", RAW), Entry(b"e", offset=2**31)])
    assert names(data) == ["_npy", "a", "_directory"]
    place = data.rindex(b"PK\1\2")
    assert errors(data)[0] == ("structure", "local header", place, "e")


def test_bytes_after_the_end_belong_to_the_directory() -> None:
    good = zipped([Entry(b"a.npy", RAW)])
    data = good + b"after"
    with np.load(io.BytesIO(data)) as loaded:
        assert loaded["a"].tobytes() == A.tobytes()
    assert names(data) == ["_npy", "a", "_directory"]
    assert split(memoryview(data)).layout.extents[-1].array == "_directory"
    assert tensors(data)["a"].data == A.tobytes()


def test_members_inside_one_another() -> None:
    inner = zipped([Entry(b"b.npy", npy(np.zeros(4)))])
    outer = Entry(b"a.npy", npy(np.frombuffer(inner, "u1")))
    start = 35 + outer.content.index(b"PK\3\4")
    data = zipped([outer, Entry(b"b.npy", RAW, offset=start, length=160, size=160)])
    assert ("structure", "payload") in [(kind, field) for kind, field, _, _ in errors(data)]
    cut = split(memoryview(data))
    check_cut(cut, data)
    assert [e.name for e in cut.layout.extents if e.dtype is not None] == ["a"]


def test_other_methods_are_not_checked_and_told() -> None:
    entry = Entry(b"a.npy", RAW, 12)
    data = zipped([entry])
    assert errors(data) == [("structure", "method", data.index(b"PK\1\2"), "a.npy")]
    assert "method 12" in (tensors(data)["a"].absent or "")


def test_names_there_twice_are_told() -> None:
    data = zipped([Entry(b"a.npy", RAW), Entry(b"a.npy", RAW)])
    assert errors(data) == [("structure", "name", data.rindex(b"PK\1\2"), "a.npy")]
    assert [tensor.name for tensor in describe(memoryview(data)).tensors] == ["a", "a"]


def test_members_that_are_no_arrays_are_told() -> None:
    data = zipped([Entry(b"a.npy", RAW), Entry(b"b.txt", b"hello")])
    assert warned(data) == [("structure", "name", data.index(b"hello"), "b.txt")]
    assert errors(zipped([Entry(b"a.npy", RAW), Entry(b"b.txt", b"hello", crc32=0)])) == [
        ("crc32", "crc32", data.index(b"hello"), "b.txt")
    ]


@pytest.mark.parametrize("method", [0, 8])
@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"\x93NUMPZ", "magic"),
        (npy_fields("'<q4'"), "descr"),
        (npy_fields(shape="(2,)", data=bytes(7)), "data"),
        (b"", "magic"),
    ],
)
def test_arrays_that_can_not_be_read_are_errors(content: bytes, field: str, method: int) -> None:
    data = zipped([Entry(b"a.npy", content, method), Entry(b"b.npy", RAW)])
    assert errors(data) == [("structure", field, 35, "a.npy")]
    assert tensors(data)["a"].absent
    assert tensors(data)["b"].data == A.tobytes()
    cut = split(memoryview(data))
    check_cut(cut, data)
    assert cut.layout.format == "npz"


def test_errors_of_arrays_name_their_member() -> None:
    entries = [Entry(b"a.npy", RAW + b"x"), Entry(b"b.npy", RAW + b"x", 8)]
    assert errors(zipped(entries)) == [
        ("structure", "data", 35 + len(RAW), "a.npy"),
        ("structure", "data", 35 + len(RAW) + 1 + 35, "b.npy"),
    ]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"local_name": b"b.npy"}, "name"),
        ({"local_flags": 1 << 11}, "flags"),
        ({"local_method": 8}, "method"),
        ({"local_crc32": 0}, "crc32"),
        ({"local_length": 0}, "compressed size"),
        ({"local_size": 0}, "size"),
    ],
)
def test_local_headers_at_odds_with_the_directory_are_told(
    changes: dict[str, Any], field: str
) -> None:
    data = zipped([Entry(b"c.npy", RAW), Entry(b"a.npy", RAW, **changes)])
    assert errors(data) == [("structure", field, 35 + len(RAW), "a.npy")]
    assert tensors(data)["a"].data == A.tobytes()


def test_local_headers_may_leave_sizes_out() -> None:
    left_out = {"local_crc32": 0, "local_length": 0, "local_size": 0}
    streamed = Entry(b"a.npy", RAW, flags=8, **left_out)
    wide = Entry(
        b"b.npy",
        RAW,
        local_length=2**32 - 1,
        local_size=2**32 - 1,
        local_extra=struct.pack("<HHQQ", 1, 16, len(RAW), len(RAW)),
    )
    assert warned(zipped([streamed, wide])) == []


@pytest.mark.parametrize("path", ["golden/npz/mixed_members.npz", "golden/npz/descriptors.npz"])
def test_every_changed_byte_is_cut_and_checked(path: str) -> None:
    good = fixture(path)
    for place in range(len(good)):
        data = bytearray(good)
        data[place] ^= 0x41
        check_cut(split(memoryview(data)), bytes(data))
        findings = told(bytes(data))
        json_of = [problem.as_dict() for problem in (*findings.errors, *findings.warnings)]
        assert all(record["kind"] in ("structure", "limit", "crc32") for record in json_of)


def test_every_truncation_is_an_error() -> None:
    good = fixture("golden/npz/descriptors.npz")
    for end in range(4, len(good)):
        check_cut(split(memoryview(good[:end])), good[:end])
        assert told(good[:end]).errors
