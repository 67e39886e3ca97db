"""Checks of torch files: CRC-32, storages, what loading a file would call."""

from __future__ import annotations

import struct
import zlib

import pytest

from tests.containers.torch_files import (
    LEGACY_MAGIC,
    archive,
    call,
    legacy,
    name,
    named,
    number,
    pickled,
    storage,
    tensor,
    text,
    vector,
    zipped,
)
from tests.data import fixture
from wtxtgit.containers.any_format import check
from wtxtgit.containers.torch.check import is_safe
from wtxtgit.containers.torch.pickle_read import Global
from wtxtgit.model.findings import Findings, Problem
from wtxtgit.model.tensor import ReadOptions

FLOATS = struct.pack("<6f", *range(6))


def found(data: bytes, **options: int) -> Findings:
    return check(memoryview(data), ReadOptions(**options))


def only(problems: list[Problem]) -> Problem:
    (problem,) = problems
    return problem


def aligned(value: bytes, storages: dict[str, bytes]) -> bytes:
    """A file whose storages start anywhere, and which says so."""
    return archive(value, storages, more={".storage_alignment": b"1"})


GOOD = aligned(named(w=vector("0", 6)), {"0": FLOATS})


def test_a_file_without_faults() -> None:
    assert found(GOOD) == Findings()
    assert found(fixture("plain/nested_a.pt")) == Findings()
    assert found(fixture("plain/legacy_a.pt")) == Findings()


@pytest.mark.parametrize("deflated", [[], ["data/0"]])
def test_crc32_of_each_member(deflated: list[str]) -> None:
    data = bytearray(archive(named(w=vector("0", 6)), {"0": FLOATS}, deflated=deflated))
    wrong = zlib.crc32(FLOATS).to_bytes(4, "little")
    entry = data.rindex(wrong)
    data[entry : entry + 4] = b"\0\0\0\1"
    error, local = found(bytes(data)).errors[::-1]
    assert (local.kind, local.field, local.chunk) == ("structure", "crc32", "archive/data/0")
    assert (error.kind, error.field, error.chunk) == ("crc32", "crc32", "archive/data/0")
    assert error.offset == data.index(b"archive/data/0") + len("archive/data/0")


def test_a_file_written_without_crc32_is_told() -> None:
    data = bytearray(GOOD)
    for raw in (FLOATS, pickled(named(w=vector("0", 6))), b"little", b"3\n", b"1"):
        crc32 = zlib.crc32(raw).to_bytes(4, "little")
        while crc32 in data:
            data[data.index(crc32) : data.index(crc32) + 4] = bytes(4)
    result = found(bytes(data))
    assert result.errors == []
    assert only(result.warnings).kind == "crc32"


def test_deflated_members_that_do_not_inflate() -> None:
    raw = b"abc" * 999
    value = named(w=vector("0", len(raw), "ByteStorage"))
    data = bytearray(archive(value, {"0": raw}, deflated=["data/0"]))
    start = data.index(b"archive/data/0") + len("archive/data/0")
    data[start] ^= 0xFF
    errors = found(bytes(data)).errors
    assert [(e.kind, e.chunk) for e in errors] == [("structure", "archive/data/0")]
    limited = archive(value, {"0": raw}, deflated=["data/0"])
    assert only(found(limited, max_chunk=len(raw) - 1).errors).kind == "limit"
    assert found(limited, max_chunk=len(raw)).errors == []


def test_storages_that_are_missing() -> None:
    error = only(found(aligned(named(w=vector("0", 6), v=vector("0", 6)), {})).errors)
    assert (error.kind, error.field) == ("structure", "storage")
    assert found(aligned(named(w=vector("0", 0)), {})).errors == []


@pytest.mark.parametrize(("numel", "raw"), [(5, FLOATS), (6, FLOATS + b"more"), (6, FLOATS[:-1])])
def test_storages_of_another_length_than_the_pickle_says(numel: int, raw: bytes) -> None:
    value = named(w=storage("FloatStorage", "0", numel))
    error = only(found(aligned(value, {"0": raw})).errors)
    assert (error.kind, error.field) == ("structure", "numel")
    assert error.offset is not None


def test_tensors_that_reach_outside_of_their_storage() -> None:
    shared = tensor("0", 6, [2, 3], [4, 1]) + b"q\x00"
    data = aligned(named(w=shared, v=b"h\x00"), {"0": FLOATS})
    error = only(found(data).errors)
    assert (error.kind, error.field) == ("structure", "storage")
    assert error.offset == data.index(b"archive/data/0") + len("archive/data/0")
    assert "'w'" in error.message


def test_storages_of_unknown_items_are_out_of_reach() -> None:
    value = named(w=vector("0", 6, "OddStorage"))
    errors = found(aligned(value, {"0": FLOATS})).errors
    assert [error.field for error in errors] == ["data.pkl", "dtype"]


def test_storages_of_no_tensor() -> None:
    error = only(found(aligned(b"N", {"0": FLOATS})).errors)
    assert (error.kind, error.chunk) == ("structure", "archive/data/0")


def test_members_with_one_name() -> None:
    data = aligned(named(w=vector("0", 6)), {"0": FLOATS, "1": FLOATS})
    error = only(found(data.replace(b"data/1", b"data/0")).errors)
    assert (error.field, "more than once" in error.message) == ("name", True)


def test_members_that_share_bytes() -> None:
    data = bytearray(aligned(named(w=vector("0", 6)), {"0": FLOATS, "1": FLOATS}))
    one, two = (data.index(b"PK\x03\x04", data.index(f"data/{n}".encode()) - 40) for n in (0, 1))
    entry = data.rindex(b"archive/data/1") - 4
    assert int.from_bytes(data[entry : entry + 4], "little") == two
    data[entry : entry + 4] = one.to_bytes(4, "little")
    errors = [e for e in found(bytes(data)).errors if e.chunk == "archive/data/1"]
    assert [e.field for e in errors] == ["payload", "data/"]


def test_what_loading_would_call_is_told_and_not_called() -> None:
    value = named(w=vector("0", 6), x=call(name("os", "system"), text("touch made")))
    result = found(aligned(value, {"0": FLOATS}))
    assert result.errors == []
    warning = only(result.warnings)
    assert warning.field == "global"
    assert "'os.system'" in warning.message


def test_pickles_that_weights_only_does_not_read() -> None:
    result = found(aligned(named(w=vector("0", 6), x=b"\x8c\x01a"), {"0": FLOATS}))
    assert only(result.warnings).field == "data.pkl"


def test_bytes_after_the_pickle() -> None:
    members = {"a/data.pkl": pickled(b"N") + b"N", "a/version": b"3"}
    for deflated in ([], ["data.pkl"]):
        error = only(found(zipped(members, deflated)).errors)
        assert (error.field, "1 bytes follow" in error.message) == ("data.pkl", True)


def test_code_of_torchscript_is_told() -> None:
    own = call(name("__torch__.Net", "Net"))
    more = {"constants.pkl": pickled(b")"), ".storage_alignment": b"1"}
    warning = only(found(archive(named(w=own), more=more)).warnings)
    assert warning.field == "constants.pkl"


def test_storages_that_are_not_aligned() -> None:
    data = archive(named(w=vector("0", 6)), {"0": FLOATS}, more={".storage_alignment": b"64"})
    warning = only(found(data).warnings)
    assert warning.field == ".storage_alignment"
    assert (warning.offset or 0) % 64


def test_which_globals_are_safe() -> None:
    safe = ["torch FloatStorage", "torch.cuda HalfStorage", "torch float8_e5m2", "torch LongTensor"]
    safe += ["collections OrderedDict", "__builtin__ set", "torch.storage UntypedStorage"]
    unsafe = ["builtins eval", "os system", "torch load", "mine FloatStorage", "torch.hub float32"]
    assert [is_safe(Global(*words.split())) for words in safe] == [True] * len(safe)
    assert [is_safe(Global(*words.split())) for words in unsafe] == [False] * len(unsafe)


def test_a_string_of_python_2_whose_encoding_nobody_knows() -> None:
    value = named(w=vector("0", 6), k=b"U\x02\xff\xfe")
    fields = [problem.field for problem in found(archive(value, {"0": FLOATS})).warnings]
    assert fields == [".storage_alignment", "data.pkl"]
    told = only(found(legacy(named(k=b"U\x02\xff\xfe"), {})).warnings)
    assert (told.field, "encoding" in told.message) == ("pickle", True)
    assert found(legacy(named(k=b"U\x02ab"), {})) == Findings()


def test_legacy_storages() -> None:
    value = named(w=vector("0", 6, "FloatStorage").replace(b"tQ", b"NtQ", 1))
    assert found(legacy(value, {"0": (6, FLOATS)})) == Findings()
    longer = only(found(legacy(value, {"0": (7, FLOATS + bytes(4))})).errors)
    assert (longer.kind, longer.field) == ("structure", "numel")
    missing = only(found(legacy(value, {})).errors)
    assert (missing.kind, missing.field) == ("structure", "storage")
    after = only(found(legacy(value, {"0": (6, FLOATS)}) + b"more").errors)
    assert after.field == "storage"
    harmful = named(w=call(name("os", "system"), text("x")))
    assert only(found(legacy(harmful, {})).warnings).field == "global"


def test_storages_without_dtype_in_a_legacy_file() -> None:
    """torch writes them for dtypes such as uint16, and then can't load the file."""
    for kind, wanted in (("ByteStorage", []), ("UntypedStorage", ["'0' has no dtype"])):
        value = named(w=storage(kind, "0", 24, b"N"))
        errors = found(legacy(value, {"0": (24, FLOATS)})).errors
        assert [error.field for error in errors] == ["pickle"] * len(wanted)
        assert all(word in error.message for word, error in zip(wanted, errors, strict=True))
        assert found(aligned(named(w=vector("0", 24, kind)), {"0": FLOATS})).errors == []


def test_a_storage_that_is_named_with_two_dtypes() -> None:
    """torch reads all of its tensors with the first one, whatever they say."""
    value = named(a=vector("0", 3, "DoubleStorage"), b=vector("0", 6))
    error = only(found(aligned(value, {"0": FLOATS})).errors)
    assert (error.kind, error.field) == ("structure", "data.pkl")
    assert "'0' is named with 'float64' and with 'float32'" in error.message
    both = named(a=storage("DoubleStorage", "0", 3, b"N"), b=storage("FloatStorage", "0", 6, b"N"))
    assert "torch reads all of it" in only(found(legacy(both, {"0": (3, FLOATS)})).errors).message


def test_legacy_files_that_can_not_be_read() -> None:
    error = only(found(LEGACY_MAGIC + pickled(number(1))).errors)
    assert (error.kind, error.field, error.offset) == (
        "structure",
        "protocol version",
        len(LEGACY_MAGIC),
    )


def _members(**changed: bytes | None) -> dict[str, bytes]:
    members: dict[str, bytes | None] = {
        "data.pkl": pickled(named(w=vector("0", 6))), "byteorder": b"little",
        "data/0": FLOATS, "version": b"3\n", **changed,
    }  # fmt: skip
    return {f"archive/{name}": raw for name, raw in members.items() if raw is not None}


WHOLE = zipped(_members())


@pytest.mark.parametrize(
    ("data", "field"),
    [
        *[
            (zipped(_members(version=value)), "version")
            for value in (b"11", b"x", b"", b"-1", None)
        ],
        *[(zipped(_members(byteorder=value)), "byteorder") for value in (b"middle", b"")],
        (zipped(_members() | {"other/x": b"1"}), "name"),
        (zipped({"other/x": b"1"} | _members()), "name"),
        (WHOLE + WHOLE, "end of central directory"),
        (WHOLE.replace(b"archive/data/0", b"archive/data/1", 1), "name"),
    ],
)
def test_what_the_reader_of_torch_refuses(data: bytes, field: str) -> None:
    assert check(memoryview(WHOLE)).errors == []
    assert field in {error.field for error in check(memoryview(data)).errors}
