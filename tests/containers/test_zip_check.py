"""Zips of which readers would find different members, or none."""

from __future__ import annotations

import io
import struct
import zipfile
from typing import Any

import numpy as np
import pytest

from tests.containers.zip_files import Entry, npy, zip64_end, zipped
from wtxtgit.containers.any_format import check
from wtxtgit.model.findings import Findings

RAW = npy(np.arange(3))
A = Entry(b"a.npy", RAW)
GOOD = zipped([A, Entry(b"b.npy", RAW, 8)])
OTHER = zipped([Entry(b"c.npy", RAW)])


def found(data: bytes) -> Findings:
    return check(memoryview(data))


def fields(data: bytes) -> list[str | None]:
    return [error.field for error in found(data).errors]


def test_what_writers_leave_holds() -> None:
    assert found(GOOD) == Findings()
    assert fields(zipped([A], comment=b"made by hand")) == []
    streamed = io.BytesIO()
    streamed.seekable = lambda: False  # type: ignore[method-assign]
    with zipfile.ZipFile(streamed, "w") as file, file.open("a.npy", "w", force_zip64=True) as out:
        out.write(RAW)
    assert found(streamed.getvalue()) == Findings()


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (GOOD + OTHER, "gap"),
        (OTHER + GOOD, "gap"),
        (GOOD + b"x", "gap"),
        (zipped([A], prefix=OTHER), "gap"),
        (zipped([Entry(b"a.npy", RAW, payload=RAW + b"x", length=len(RAW))]), "gap"),
        (zipped([A], comment=OTHER), "end of central directory"),
    ],
)
def test_members_that_are_hidden(data: bytes, field: str) -> None:
    errors = fields(data)
    assert errors
    # Where another archive's directory is the last one, it is that one which is read.
    assert field in errors or "central directory" in errors


def test_zeros_of_no_member_hide_nothing() -> None:
    padded = found(GOOD + bytes(8))
    assert padded.errors == []
    assert [warning.field for warning in padded.warnings] == ["gap"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"flags": 1 << 5}, "flags"),
        ({"flags": 1 << 13}, "flags"),
        ({"name": b"a.npy\0x"}, "name"),
        ({"extra": b"\xff\xff\xff\xff"}, "extra fields"),
        ({"extra": struct.pack("<HHBI", 0x7075, 10, 1, 0) + b"b.npy"}, "extra fields"),
        ({"disk": 0xFFFF, "extra": struct.pack("<HHI", 1, 4, 0)}, "disk"),
        ({"name": b"a.npy/"}, "attributes"),
    ],
)
def test_entries_that_readers_take_in_different_ways(changes: dict[str, Any], field: str) -> None:
    assert field in fields(zipped([Entry(**({"name": b"a.npy", "content": RAW} | changes)), A]))


def test_versions_and_attributes_that_readers_refuse() -> None:
    entry = GOOD.index(b"PK\1\2")
    for at, value, field in ((entry + 6, 64, "version"), (entry + 38, 0x10, "attributes")):
        data = bytearray(GOOD)
        data[at] = value
        assert fields(bytes(data)) == [field]
    data = bytearray(GOOD)
    data[4] = 200
    assert fields(bytes(data)) == ["version"]


def test_a_zip64_locator_counts_one_disk() -> None:
    one = zipped([A])
    size, offset = struct.unpack("<II", one[-10:-2])
    for disks, wanted in ((1, []), (0, ["zip64 locator"])):
        end = zip64_end(1, size, offset, disks=disks)
        assert fields(zipped([A], before_end=end)) == wanted


def test_an_array_behind_a_member_of_its_name() -> None:
    assert fields(zipped([A, Entry(b"a", b"text")])) == ["name"]
