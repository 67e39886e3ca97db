"""torch files written anew with other bytes of tensors: nothing else of them changes."""

from __future__ import annotations

import io
import struct
import time
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.containers import zip_files
from tests.containers.resealing import OPTIONS, content, opened, own_by_name
from tests.containers.sources import models, source
from tests.containers.torch_files import (
    archive,
    call,
    dict_of,
    items_of,
    name,
    named,
    number,
    pickled,
    saved,
    storage,
    tensor,
    text,
    tuple_of,
    vector,
    zipped,
)
from tests.data import fixture, golden_of
from wtxtgit.containers import zip_read
from wtxtgit.containers.any_format import check
from wtxtgit.containers.torch import overlay, write
from wtxtgit.containers.torch.read import read
from wtxtgit.containers.torch.reseal import entries, reseal, rest, values
from wtxtgit.errors import FormatError
from wtxtgit.io.view import PIECE
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import Entry, NewContent, PlacedEntry, ReadOptions, TensorSource

FILES = sorted(golden_of("torch"))


def resealed(
    data: bytes, contents: Mapping[str, bytes] | None = None, options: ReadOptions = OPTIONS
) -> bytes:
    container = opened(data)
    return b"".join(reseal(container, own_by_name(container, contents), None, options))


def held(entry: Entry) -> bytes:
    assert entry.tensor is not None
    return bytes(entry.tensor.data)


def tensors(data: bytes) -> dict[str, bytes]:
    return {e.name: items_of(e.tensor) for e in entries(opened(data), OPTIONS) if e.tensor}


def flipped(raw: bytes) -> bytes:
    return bytes(byte ^ 0x5A for byte in raw)


def refused(data: bytes, contents: Mapping[str, bytes] | None = None) -> FormatError:
    with pytest.raises(FormatError) as caught:
        resealed(data, contents)
    return caught.value


# Nothing changes.


@pytest.mark.parametrize("path", FILES)
def test_a_file_without_changes_is_the_same(path: str) -> None:
    data = fixture(path)
    container = opened(data)
    assert resealed(data) == data
    again = b"".join(reseal(container, own_by_name(container), values(container, OPTIONS), OPTIONS))
    assert again == data


@settings(max_examples=40)
@given(models(sorted(write.DTYPES)), st.randoms(use_true_random=False))
def test_other_bytes_of_files_that_are_written_here(
    sources: list[TensorSource], random: Random
) -> None:
    data = b"".join(write.build_model(sources, {}))
    assert resealed(data) == data
    chosen = [s for s in sources if s.nbytes and random.random() < 0.5]
    contents = {s.name: random.randbytes(s.nbytes) for s in chosen}
    # Another writing of the same tensors is the same file.
    anew = [source(s.name, s.element, s.shape, contents.get(s.name)) for s in sources]
    assert resealed(data, contents) == b"".join(write.build_model(anew, {}))


# Other bytes.


@pytest.mark.parametrize("path", FILES)
def test_one_tensor_of_a_file_changes_and_no_other(path: str) -> None:
    data = fixture(path)
    listed = entries(opened(data), OPTIONS)
    findings = check(memoryview(data))
    before = tensors(data)
    for entry in listed[::-1][:8]:
        assert entry.tensor is not None
        if entry.tensor.nbytes == 0 or entry.tensor.element == "bool":
            continue
        contents = {entry.name: flipped(held(entry))}
        if is_shared(listed, entry):
            assert "share bytes" in refused(data, contents).message
            continue
        made = resealed(data, contents)
        after = tensors(made)
        assert {n for n in before if before[n] != after[n]} == {entry.name}
        assert check(memoryview(made)).errors == []
        assert beside_alignment(check(memoryview(made))) == beside_alignment(findings)
        assert zipfile.ZipFile(io.BytesIO(made)).testzip() is None
        assert values(opened(made), OPTIONS) == values(opened(data), OPTIONS)


def beside_alignment(findings: Findings) -> set[str]:
    return {w.message for w in findings.warnings if w.field != ".storage_alignment"}


def is_shared(listed: Sequence[Entry], entry: Entry) -> bool:
    """Whether another tensor has bytes of this one; these files' offsets tell."""

    def span(one: Entry) -> range:
        assert one.tensor is not None
        start = one.tensor.offset
        return range(0) if start is None else range(start, start + one.tensor.nbytes)

    mine = span(entry)
    return any(
        max(mine.start, span(other).start) < min(mine.stop, span(other).stop)
        for other in listed
        if other is not entry
    )


def differences(one: bytes, other: bytes) -> list[int]:
    assert len(one) == len(other)
    pair = np.frombuffer(one, np.uint8) != np.frombuffer(other, np.uint8)
    found: list[int] = np.flatnonzero(pair).tolist()
    return found


def test_only_bytes_of_the_tensor_and_of_its_hashes_change() -> None:
    data = fixture("plain/nested_a.pt")
    container = opened(data)
    (entry, *_) = (e for e in entries(container, OPTIONS) if e.tensor and e.tensor.nbytes > 8)
    assert entry.tensor is not None
    member = next(m for m in container.directory.members if m.start == entry.tensor.offset)
    made = resealed(data, {entry.name: flipped(held(entry))})
    fingerprint = container.member(".data/serialization_id")
    allowed = set(range(member.start, member.end)) | set(range(member.end + 4, member.end + 8))
    allowed |= set(range(member.entry + 16, member.entry + 20))
    assert fingerprint is not None
    allowed |= set(range(fingerprint.start + 20, fingerprint.end))
    allowed |= set(range(fingerprint.end + 4, fingerprint.end + 8))
    allowed |= set(range(fingerprint.entry + 16, fingerprint.entry + 20))
    assert set(differences(data, made)) <= allowed
    assert set(differences(data, made)) >= set(range(member.start, member.end))
    # The local header leaves its hash to the descriptor.
    assert made[member.header + 14 : member.header + 18] == bytes(4)
    assert opened(made).member(".data/serialization_id") != fingerprint


def test_a_fingerprint_that_is_none_stays() -> None:
    more = {".data/serialization_id": b"7" * 40}
    data = archive(named(w=vector("0", 1)), {"0": bytes(4)}, more=more)
    made = resealed(data, {"w": b"abcd"})
    assert zipfile.ZipFile(io.BytesIO(made)).read("archive/.data/serialization_id") == b"7" * 40


def test_files_without_crc32_stay_without() -> None:
    data = bytearray(archive(named(w=vector("0", 1)), {"0": b"wxyz"}))
    for member in opened(bytes(data)).directory.members:
        data[member.header + 14 : member.header + 18] = bytes(4)
        data[member.entry + 16 : member.entry + 20] = bytes(4)
    made = resealed(bytes(data), {"w": b"abcd"})
    assert made == bytes(data).replace(b"wxyz", b"abcd")


@pytest.mark.parametrize("magic", [b"PK\7\x08", b""])
@pytest.mark.parametrize("width", ["I", "Q"])
@pytest.mark.parametrize("has_local", [True, False])
def test_the_crc32_is_changed_wherever_it_stands(magic: bytes, width: str, has_local: bool) -> None:
    raw, other = b"wxyz", b"abcd"

    def made_of(payload: bytes) -> bytes:
        crc32 = zlib.crc32(payload)
        descriptor = magic + struct.pack(f"<I{width}{width}", crc32, 4, 4)
        whole = zip_files.Entry(b"a/data/0", payload, flags=8, local_crc32=crc32 * has_local)
        pickle = zip_files.Entry(b"a/data.pkl", pickled(named(w=vector("0", 1))))
        # What stands behind a payload is part of the next local header's way there.
        zipped_up = zip_files.zipped([pickle, whole], before_end=b"")
        entry = read(memoryview(zipped_up)).storages["0"]
        head, tail = zipped_up[: entry.end], zipped_up[entry.end :]
        moved = bytearray(head + descriptor + tail)
        end = moved.rfind(b"PK\5\6")
        at = struct.unpack_from("<I", moved, end + 16)[0] + len(descriptor)
        struct.pack_into("<I", moved, end + 16, at)
        return bytes(moved)

    assert resealed(made_of(raw), {"w": other}) == made_of(other)


def test_a_crc32_that_happens_to_be_0() -> None:
    """A field that is left to a descriptor looks alike and stays empty."""
    raw, other = b"\x9d\x0a\xd9\x6d", b"abcd"
    assert zlib.crc32(raw) == 0
    pickle = zip_files.Entry(b"a/data.pkl", pickled(named(w=vector("0", 1))))
    for flags, expected in ((8, 0), (0, zlib.crc32(other))):
        data = zip_files.zipped([pickle, zip_files.Entry(b"a/data/0", raw, flags=flags)])
        made = resealed(data, {"w": other})
        member = opened(made).storages["0"]
        assert struct.unpack_from("<I", made, member.header + 14) == (expected,)
        assert member.crc32 == zlib.crc32(other)


def test_arrays_in_members_change() -> None:
    array = zip_files.npy(np.arange(4, dtype="<i2"))
    data = archive(named(w=vector("0", 1)), {"0": bytes(4)}, more={"x.npy": array})
    assert [e.name for e in entries(opened(data), OPTIONS)] == ["w", "archive/x"]
    made = resealed(data, {"archive/x": b"abcdefgh"})
    with zipfile.ZipFile(io.BytesIO(made)) as file:
        found = np.load(io.BytesIO(file.read("archive/x.npy")))
    assert found.tobytes() == b"abcdefgh"
    assert check(memoryview(made)).errors == []


@pytest.mark.parametrize("deflated", [["data/0"], ["data/0", "data.pkl"], ["data/1"]])
def test_compressed_storages_are_compressed_again(deflated: list[str]) -> None:
    zeros, others = bytes(4000), bytes(range(256))
    value = named(a=vector("0", 1000), b=vector("1", 64))
    more = {".storage_alignment": b"256", "empty": b""}
    data = archive(value, {"0": zeros, "1": others}, deflated=deflated, more=more)
    made = resealed(data, {"a": b"\1" * 4000})
    assert tensors(made) == {"a": b"\1" * 4000, "b": others}
    assert check(memoryview(made)).errors == []
    before, after = (zipfile.ZipFile(io.BytesIO(d)) for d in (data, made))
    assert after.testzip() is None
    assert before.namelist() == after.namelist()
    methods = [i.compress_type for i in before.infolist()]
    assert [i.compress_type for i in after.infolist()] == methods
    stored = [m for m in opened(made).directory.members if m.stored]
    if "data/0" in deflated:
        assert len(made) < 4000
        assert all(m.start % 256 == 0 for m in stored)
    else:
        assert len(made) == len(data)


# Tensors that share a storage.


def shared(**views: bytes) -> bytes:
    return archive(named(**views), {"0": bytes(range(48))})


def test_tied_tensors_change_together() -> None:
    data = shared(a=vector("0", 12), b=tensor("0", 12, [3, 4], [4, 1]))
    other = bytes(range(100, 148))
    assert tensors(resealed(data, {"a": other, "b": other})) == {"a": other, "b": other}
    for contents in ({"a": other}, {"b": other}, {"a": other, "b": flipped(other)}):
        error = refused(data, contents)
        assert (error.field, error.kind) == ("entries", "structure")
        assert "share bytes" in error.message
    assert resealed(data, {"a": bytes(range(48))}) == data


def test_a_tensor_of_two_names() -> None:
    made = vector("0", 12) + b"q\1"
    data = archive(dict_of((text("a"), made), (text("b"), b"h\1")), {"0": bytes(48)})
    other = bytes(range(48))
    assert set(tensors(resealed(data, {"a": other, "b": other})).values()) == {other}
    assert "share bytes" in refused(data, {"b": other}).message


def test_columns_of_one_matrix_change_apart() -> None:
    """The bytes between the items of a tensor are those of others, and are not asked for."""
    data = shared(
        left=tensor("0", 12, [3, 2], [4, 1]),
        right=tensor("0", 12, [3, 2], [4, 1], offset=2),
    )
    listed = {e.name: e.tensor for e in entries(opened(data), OPTIONS)}
    assert listed["left"] is not None
    assert listed["left"].nbytes == 40
    made = resealed(data, {"left": b"\xee" * 40})
    matrix = np.frombuffer(made[slice(*_storage(made))], np.uint32).reshape(3, 4)
    expected = np.arange(48, dtype=np.uint8).view(np.uint32).reshape(3, 4).copy()
    expected[:, :2] = 0xEEEEEEEE
    assert matrix.tolist() == expected.tolist()
    both = resealed(data, {"left": b"\xee" * 40, "right": b"\xdd" * 40})
    expected[:, 2:] = 0xDDDDDDDD
    raw = both[slice(*_storage(both))]
    assert np.frombuffer(raw, np.uint32).reshape(3, 4).tolist() == expected.tolist()


def _storage(data: bytes) -> tuple[int, int]:
    member = opened(data).storages["0"]
    return member.start, member.end


@st.composite
def views(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    shape = tuple(draw(st.lists(st.integers(1, 5), max_size=3)))
    strides = tuple(draw(st.integers(0, 9)) for _ in shape)
    last = sum((d - 1) * s for d, s in zip(shape, strides, strict=True))
    return shape, strides, draw(st.integers(0, max(0, 119 - last)))


def places(view: tuple[tuple[int, ...], tuple[int, ...], int]) -> set[int]:
    shape, strides, offset = view
    return {
        offset + sum(i * s for i, s in zip(index, strides, strict=True))
        for index in product(*map(range, shape))
    }


@settings(max_examples=60)
@given(st.lists(views(), min_size=1, max_size=4), st.randoms(use_true_random=False), st.data())
def test_any_views_of_a_storage(
    found: list[tuple[tuple[int, ...], tuple[int, ...], int]], random: Random, data: st.DataObject
) -> None:
    """All items of all views get what numpy would give them, in any order of the views."""
    whole = bytearray(random.randbytes(480))
    picked = {
        f"t{n}": tensor("0", 120, shape, strides, offset=offset)
        for n, (shape, strides, offset) in enumerate(found)
    }
    container = opened(archive(named(**picked), {"0": bytes(whole)}))
    items = set().union(*map(places, found))
    for place in items:
        struct.pack_into("I", whole, 4 * place, random.randrange(2**32))
    contents = {}
    for n, (entry, (_, _, offset)) in enumerate(
        zip(entries(container, OPTIONS), found, strict=True)
    ):
        assert entry.tensor is not None
        size = entry.tensor.nbytes
        part = bytearray(whole[4 * offset : 4 * offset + size])
        if is_exact(found):
            for place in set(range(offset, offset + size // 4)) - places(found[n]):
                struct.pack_into("4s", part, 4 * (place - offset), b"gap!")
        contents[entry.name] = bytes(part)
    placed = data.draw(st.permutations(own_by_name(container, contents)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlay, "STEP", 33)
        sealed = b"".join(reseal(container, placed, None, OPTIONS))
        if is_exact(found):
            assert ("data/0" in values(container, OPTIONS)) == (len(items) < 120)
    start, end = _storage(sealed)
    assert sealed[start:end] == whole


def is_exact(found: Sequence[tuple[tuple[int, ...], tuple[int, ...], int]]) -> bool:
    """Whether the items of all views can be told from what is between them."""
    for shape, strides, _ in found:
        steps = overlay.item_steps(shape, strides)
        last = sum((d - 1) * s for d, s in zip(shape, strides, strict=True))
        if steps is None and len(places((shape, strides, 0))) != last + 1:
            return False
    return True


# Entries of other files.


def test_tensors_of_another_file_with_other_keys() -> None:
    mine = archive(named(a=vector("0", 2), b=vector("1", 1)), {"0": b"mine----", "1": b"mine"})
    theirs = archive(
        named(a=vector("x", 2), b=vector("y", 1)),
        {"y": b"them", "x": b"theirs--"},
        folder="model/",
        deflated=["data/x"],
    )
    ours, other = opened(mine), opened(theirs)
    assert values(ours, OPTIONS) == values(other, OPTIONS)
    placed = [PlacedEntry(other, 0), PlacedEntry(ours, 1)]
    made = b"".join(reseal(ours, placed, values(other, OPTIONS), OPTIONS))
    assert made[: len(mine)].replace(b"theirs--", b"mine----")[:20] == mine[:20]
    assert tensors(made) == {"a": b"theirs--", "b": b"mine"}
    assert check(memoryview(made)).errors == []
    backwards = [PlacedEntry(ours, 1), PlacedEntry(other, 0, content(b"contents"))]
    again = b"".join(reseal(ours, backwards, None, OPTIONS))
    assert tensors(again) == {"a": b"contents", "b": b"mine"}


def test_tensors_of_one_name_are_told_by_their_order() -> None:
    pairs = (text("a.b"), vector("0", 1)), (text("a"), named(b=vector("1", 1)))
    data = archive(dict_of(*pairs), {"0": b"0000", "1": b"1111"})
    container = opened(data)
    assert [e.name for e in entries(container, OPTIONS)] == ["a.b", "a.b"]
    placed = [PlacedEntry(container, 0), PlacedEntry(container, 1, content(b"2222"))]
    made = opened(b"".join(reseal(container, placed, None, OPTIONS)))
    assert [held(e) for e in entries(made, OPTIONS)] == [b"0000", b"2222"]


def test_a_side_that_gained_a_tensor_is_written_where_its_values_are_asked_for() -> None:
    mine = archive(named(a=vector("0", 1)), {"0": b"mine"})
    theirs = archive(named(a=vector("0", 1), b=vector("1", 1)), {"0": b"base", "1": b"gain"})
    ours, other = opened(mine), opened(theirs)
    placed = [PlacedEntry(ours, 0), PlacedEntry(other, 1)]
    made = b"".join(reseal(ours, placed, values(other, OPTIONS), OPTIONS))
    assert tensors(made) == {"a": b"mine", "b": b"gain"}
    # A view of a part of a storage is nothing that stands for itself.
    part = archive(named(a=vector("0", 1), b=vector("1", 2)), {"0": b"base", "1": b"gain" * 3})
    placed[1] = PlacedEntry(opened(part), 1)
    for wanted in (None, values(ours, OPTIONS)):
        with pytest.raises(FormatError, match="torch files can't gain tensor 'b'"):
            reseal(ours, placed, wanted, OPTIONS)


def test_what_torch_files_can_not_take() -> None:
    mine = opened(archive(named(a=vector("0", 1), n=number(1)), {"0": b"mine"}))
    wider = opened(archive(named(a=vector("0", 1, "DoubleStorage"), n=number(2)), {"0": b"8" * 8}))
    wanted = values(mine, OPTIONS)
    for placed, changed, message in (
        ([], None, "lose tensor 'a'"),
        ([PlacedEntry(mine, 0), PlacedEntry(mine, 0)], None, "gain tensor 'a'"),
        ([PlacedEntry(wider, 0)], None, "change the dtype, shape or strides"),
        ([PlacedEntry(mine, 0)], {**wanted, "version": b"4\n"}, "change 'version'"),
        ([PlacedEntry(mine, 0)], {**wanted, "more": b""}, "change 'more'"),
        ([PlacedEntry(mine, 0)], {}, "change 'data.pkl'"),
        ([PlacedEntry(mine, 0, content(b"12345"))], None, "has 4 bytes, not 5"),
        ([PlacedEntry(object(), 0)], None, "another format"),
    ):
        with pytest.raises(FormatError, match=message) as caught:
            reseal(mine, placed, changed, OPTIONS)
        assert caught.value.field == "entries"


# Values.


def test_what_is_beside_the_tensors_is_a_value() -> None:
    base: dict[str, Any] = {
        "value": named(a=vector("0", 1), n=number(1)),
        "storages": {"0": b"abcd"},
    }
    first = values(opened(archive(**base)), OPTIONS)
    assert first.keys() == {"data.pkl", "byteorder", "version"}
    assert first["version"] == b"3\n"
    others: dict[str, dict[str, Any]] = {
        "data.pkl": {"value": named(a=vector("0", 1), n=number(2))},
        "byteorder": {"byteorder": b"big"},
        "code/x.py": {"more": {"code/x.py": b"x" * 100}},
        "data/-7": {"storages": {"0": b"abcd", "7": b"none's"}},
        "data/0": {"value": named(a=vector("0", 1), n=number(1)), "storages": {"0": b"abcd!!"}},
    }
    for key, change in others.items():
        found = values(opened(archive(**(base | change))), OPTIONS)
        changed = {k for k in {**first, **found} if first.get(k) != found.get(k)}
        # A tensor with only a part of its storage is no item of its own any more.
        assert changed == ({key, "data.pkl"} if key == "data/0" else {key})
    same: list[dict[str, Any]] = [
        {"storages": {"0": b"else"}},
        {"folder": "other/"},
        {"more": {".storage_alignment": b"128", ".data/serialization_id": b"1" * 40}},
        {"byteorder": None},
        {"deflated": ["data/0", "data.pkl"]},
        {"value": named(a=vector("5", 1), n=number(1)), "storages": {"5": b"abcd"}},
    ]
    for change in same:
        assert values(opened(archive(**(base | change))), OPTIONS) == first


PICKLES = [
    named(n=number(1)),
    named(n=number(2)),
    named(n=b"\x88"),
    named(n=b"N"),
    named(n=b"G" + struct.pack(">d", 1.0)),
    named(n=b"G" + struct.pack(">d", -0.0)),
    named(n=b"G" + struct.pack(">d", 0.0)),
    named(n=text("1")),
    named(n=b"C\x011"),
    named(m=number(1)),
    named(n=number(1), m=number(1)),
    named(n=tuple_of(number(1))),
    named(n=tuple_of(number(1), tuple_of())),
    named(n=tuple_of(tuple_of(), number(1))),
    named(n=b"](K\1e"),
    named(n=b"\x8f(K\1\x90"),
    named(n=b"}K\1K\1s"),
    named(n=name("a", "b")),
    named(n=name("a", "c")),
    named(n=call(name("a", "b"), number(1))),
    named(n=call(name("a", "b"), number(1)) + b"}b"),
    named(n=call(name("a", "b"), number(1)) + b"K\1a"),
    named(n=call(name("a", "b"), number(1)) + b"K\1K\1s"),
    named(n=b"](K\1K\1e"),
    named(n=b"]q\1h\1a"),
    named(n=b"]q\1h\1ah\1a"),
    named(n=tuple_of(b"]q\1", b"h\1")),
    named(n=tuple_of(b"]q\1", b"]")),
    named(n=b"\x8b\x00\x01\x00\x00" + b"\1" * 256),
    named(n=b"\x8b\x00\x01\x00\x00" + b"\2" * 256),
    named(n=tuple_of(storage("FloatStorage", "0", 1), storage("FloatStorage", "1", 1))),
    named(n=tuple_of(storage("FloatStorage", "0", 1), storage("FloatStorage", "0", 1))),
    named(n=storage("FloatStorage", "0", 2)),
    named(n=storage("LongStorage", "0", 2)),
]


def told(value: bytes) -> object:
    return values(opened(zipped({"a/data.pkl": pickled(value)})), OPTIONS)["data.pkl"]


def test_pickles_of_different_values_are_told_apart() -> None:
    found = [told(value) for value in PICKLES]
    assert len(set(found)) == len(PICKLES)
    assert [told(value) for value in PICKLES] == found


def test_pickles_of_one_value_are_the_same() -> None:
    one = tuple_of(text("k") + b"q\1", b"h\1", storage("FloatStorage", "0", 1), b"K\1", b"\x86" * 0)
    other = tuple_of(text("k"), text("k"), storage("FloatStorage", "zz", 1), b"M\1\0")
    assert told(one) == told(other)
    assert told(named(n=b"K\1")) == told(b"\x95\3" + bytes(7) + named(n=number(1)))


def test_a_value_of_many_references_is_looked_at_once() -> None:
    """Texts and tuples that hold one another double with each level."""
    long = text("x" * 2**20)
    doubled = text("a") + b"\x94" + b"".join(b"2\x86\x94" for _ in range(200))
    repeated = b"(" + long + b"q\1" + b"0" * 0 + long + b"q\2" + b"h\1h\2" * 20_000 + b"l"
    started = time.process_time()
    assert told(doubled)
    assert told(repeated)
    assert time.process_time() - started < 3


def test_storages_that_can_not_be_read_are_values_as_they_are() -> None:
    def found(raw: bytes) -> object:
        data = archive(named(a=vector("0", 100)), {"0": raw}, deflated=["data/0"])
        return values(opened(data), ReadOptions(max_chunk=399)).get("data/0")

    assert found(b"a" * 400) == found(b"a" * 400) != found(b"b" * 400)
    assert found(b"a" * 400) is not None


# Damage and hostile files.


def test_damage_is_not_sealed() -> None:
    data = archive(
        named(a=vector("0", 2), b=vector("1", 1)), {"0": b"abcdefgh", "1": b"intact"[:4]}
    )
    damaged = data.replace(b"abcdefgh", b"abcdefgX")
    assert refused(damaged, {"a": b"other..."}).field == "crc32"
    assert check(memoryview(resealed(damaged, {"b": b"else"}))).errors != []
    mine = opened(data)
    with pytest.raises(FormatError, match="a crc32 that differs"):
        reseal(mine, [PlacedEntry(opened(damaged), 0), PlacedEntry(mine, 1)], None, OPTIONS)
    packed = archive(
        named(a=vector("0", 2), b=vector("1", 1)), {"0": b"abcdefgh", "1": b"1234"}, deflated=["1"]
    )
    assert refused(packed.replace(b"abcdefgh", b"abcdefgX"), {"b": b"else"}).field == "crc32"


def test_members_that_share_bytes_are_not_sealed() -> None:
    value = named(a=vector("0", 2), b=vector("1", 2))
    raw = b"abcdefgh"
    parts = [
        zip_files.Entry(b"a/data.pkl", pickled(value)),
        zip_files.Entry(b"a/data/0", raw),
        zip_files.Entry(b"a/data/1", raw),
    ]
    plain = zip_files.zipped(parts)
    first = opened(plain).storages["0"]
    second = opened(plain).storages["1"]
    data = bytearray(plain)
    struct.pack_into("<I", data, second.entry + 42, first.header)
    assert opened(bytes(data)).storages["1"].start == first.start
    assert resealed(bytes(data)) == data
    assert refused(bytes(data), {"a": flipped(raw)}).field == "payload"
    with pytest.raises(FormatError, match="share bytes"):
        values(opened(bytes(data)), OPTIONS)


def test_a_local_header_within_a_payload_is_not_changed() -> None:
    """Its CRC-32 would be changed in the tensor of another member."""
    value = named(a=vector("0", 24), b=vector("1", 1))
    inner = zip_files.filled(zip_files.Entry(b"x", b"wxyz"))
    hidden = zip_files.local(inner)
    payload = hidden[:-4].ljust(92, b"-") + b"wxyz"
    header = struct.pack("<HH", 26, 92 - 30 - 26)
    payload = payload[:26] + header + payload[30:]
    parts = [
        zip_files.Entry(b"a/data.pkl", pickled(value)),
        zip_files.Entry(b"a/data/0", payload[:92] + b"...."),
        zip_files.Entry(b"a/data/1", b"wxyz"),
    ]
    plain = zip_files.zipped(parts)
    outer, second = opened(plain).storages["0"], opened(plain).storages["1"]
    data = bytearray(plain)
    # The second one's header is in the first one's payload, its own payload behind it.
    reach = second.start - outer.start - 30 - 26
    struct.pack_into("<H", data, outer.start + 28, reach)
    struct.pack_into("<I", data, second.entry + 42, outer.start)
    crc32 = zlib.crc32(bytes(data[outer.start : outer.end]))
    struct.pack_into("<I", data, outer.header + 14, crc32)
    struct.pack_into("<I", data, outer.entry + 16, crc32)
    found = opened(bytes(data)).storages["1"]
    assert (found.start, found.header) == (second.start, outer.start)
    assert refused(bytes(data), {"b": b"abcd"}).field == "payload"


def test_contents_of_another_length_than_they_say() -> None:
    data = archive(named(a=vector("0", 1)), {"0": b"abcd"})
    container = opened(data)
    for raw, message in ((b"abc", "too few bytes"), (b"abcde", "too many bytes")):
        lying = NewContent(4, lambda raw=raw: iter((raw,)))  # type: ignore[misc]
        with pytest.raises(FormatError, match=message) as caught:
            reseal(container, [PlacedEntry(container, 0, lying)], None, OPTIONS)
        assert caught.value.field == "entries"


def test_many_tensors_of_the_same_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay, "LEAST_COVERED", 0)
    picked = {f"t{n}": tensor("0", 100, [50 - n], [2]) for n in range(40)}
    data = archive(named(**picked), {"0": bytes(400)})
    assert values(opened(data), OPTIONS)
    monkeypatch.setattr(overlay, "MOST_PASSES", 20)
    with pytest.raises(FormatError) as caught:
        values(opened(data), OPTIONS)
    assert caught.value.kind == "limit"
    assert refused(data, {"t3": bytes(4 * 93)}).kind == "limit"


def test_many_tensors_are_sealed_fast() -> None:
    count = 4_000
    pairs = [(text(f"t{n}"), tensor("0", count, [1], [1], offset=n)) for n in range(count)]
    data = archive(dict_of(*pairs), {"0": bytes(4 * count)})
    container = opened(data)
    started = time.process_time()
    placed = own_by_name(container, {f"t{n}": b"abcd" for n in range(0, count, 2)})
    made = b"".join(reseal(container, placed, None, OPTIONS))
    assert time.process_time() - started < 5
    start, end = _storage(made)
    assert made[start:end] == b"abcd\0\0\0\0" * (count // 2)


def test_nothing_of_a_tensor_is_held() -> None:
    """Pieces are small, and a tensor's blocks are given on as they come."""
    size = 2**24
    data = archive(named(a=vector("0", size // 4)), {"0": bytes(size)})
    container = opened(data)
    block = b"\1" * 2**20
    placed = [PlacedEntry(container, 0, NewContent(size, lambda: iter([block] * 16)))]
    pieces = list(reseal(container, placed, None, OPTIONS))
    assert max(map(len, pieces)) <= PIECE
    made = b"".join(pieces)
    assert tensors(made) == {"a": block * 16}
    assert zip_read.read(memoryview(made)) is not None


def test_any_damage_of_a_file_raises_only_our_errors() -> None:
    data = archive(named(a=vector("0", 4), b=tensor("0", 4, [2], [2])), {"0": bytes(range(16))})
    random = Random(7)  # noqa: S311
    sealed = 0
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(random.randint(1, 3)):
            broken[random.randrange(len(broken))] = random.randrange(256)
        try:
            container = opened(bytes(broken))
            values(container, OPTIONS)
            listed = entries(container, OPTIONS)
            placed = [
                PlacedEntry(container, n, content(flipped(held(entry))))
                for n, entry in enumerate(listed)
            ]
            made = b"".join(reseal(container, placed, None, OPTIONS))
        except FormatError:
            continue
        assert len(made) == len(broken)
        sealed += 1
    assert sealed


# torch itself.


@pytest.mark.torch
@pytest.mark.parametrize("crc32", [True, False])
def test_a_resealed_file_is_what_torch_would_have_written(crc32: bool) -> None:
    """Byte for byte, torch's own fingerprint of the file too."""
    import torch

    shapes = {"w": (3, 4), "b": (4,), "empty": (0,), "scalar": ()}
    first = {n: torch.full(shape, 1.5) for n, shape in shapes.items()}
    second = first | {"w": torch.arange(12.0).reshape(3, 4), "scalar": torch.tensor(7.0)}
    torch.serialization.set_crc32_options(crc32)
    try:
        before, after = saved(torch, first), saved(torch, second)
    finally:
        torch.serialization.set_crc32_options(True)
    changed = {n: second[n].numpy().tobytes() for n in ("w", "scalar")}
    assert resealed(before, changed) == after
    other = opened(after)
    placed = [PlacedEntry(other, n) for n in range(len(shapes))]
    assert b"".join(reseal(opened(before), placed, None, OPTIONS)) == after


@pytest.mark.torch
@pytest.mark.parametrize("mmap", [True, False])
def test_torch_loads_what_is_resealed(mmap: bool, tmp_path: Path) -> None:
    import torch

    table = torch.arange(24.0).reshape(4, 6)
    model: dict[str, Any] = {
        "head": table[:, :2],
        "tail": table[:, 2:],
        "tied": [torch.ones(3)] * 2,
        "half": torch.ones(5, dtype=torch.bfloat16),
    }
    data = saved(torch, model)
    container = opened(data)
    contents = {e.name: flipped(held(e)) for e in entries(container, OPTIONS) if e.name != "tail"}
    file = tmp_path / "model.pt"
    file.write_bytes(resealed(data, contents))
    loaded = torch.load(file, weights_only=True, mmap=mmap)
    assert torch.equal(loaded["tail"], table[:, 2:])

    def bits(tensor: torch.Tensor) -> bytes:
        return bytes(tensor.clone().reshape(-1).contiguous().view(torch.uint8).numpy())

    assert bits(loaded["head"]) == flipped(bits(table[:, :2]))
    assert loaded["tied"][0].data_ptr() == loaded["tied"][1].data_ptr()
    for key in ("half", "tied"):
        was, now = model[key], loaded[key]
        pair = (was[0], now[0]) if key == "tied" else (was, now)
        assert bits(pair[1]) == flipped(bits(pair[0]))


@pytest.mark.torch
def test_torch_loads_storages_that_were_compressed_again() -> None:
    import torch

    data = saved(torch, {"w": torch.zeros(1000), "v": torch.ones(3)})
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        packed = zipped({n: file.read(n) for n in file.namelist()}, ["data/0"])
    made = resealed(packed, {"w": torch.ones(1000).numpy().tobytes()})
    loaded = torch.load(io.BytesIO(made), weights_only=True)
    assert torch.equal(loaded["w"], torch.ones(1000))
    assert torch.equal(loaded["v"], torch.ones(3))
    assert len(made) < 2500


def test_the_rest_is_what_neither_tensors_nor_values_tell() -> None:
    value = named(a=vector("0", 2))
    raw = struct.pack("<2f", 1, 2)
    plain = archive(value, {"0": raw})

    def again(change: Any, name: str = "a/") -> bytes:
        out = io.BytesIO(archive(value, {"0": raw}, folder=name))
        with zipfile.ZipFile(out, "a") as file:
            change(file)
        return out.getvalue()

    def comment(text: bytes) -> Any:
        return lambda file: setattr(file, "comment", text)

    def rest_of(data: bytes) -> dict[str, object]:
        return rest(opened(data), OPTIONS)

    usual: dict[str, object] = {}
    assert rest_of(plain) == usual
    assert rest_of(archive(value, {"0": flipped(raw)}, folder="other/")) == usual
    # What follows from the writing.
    extra = {".storage_alignment": b"64", ".data/serialization_id": b"1" * 40}
    assert rest_of(archive(value, {"0": raw}, more=extra)) == usual
    on_device = value.replace(text("cpu"), text("cuda:0"))
    assert on_device != value
    folder = zipfile.ZipInfo("a/empty/")
    found = [
        rest_of(again(comment(b"one"))),
        rest_of(again(comment(b"two"))),
        rest_of(again(lambda file: file.writestr(folder, b""))),
        rest_of(plain + b"behind"),
        rest_of(archive(value, {"0": raw}, deflated=["data/0"])),
        # Where a tensor was that is an item of its own is told with it.
        rest_of(archive(on_device, {"0": raw + raw})),
    ]
    assert usual not in found
    assert all(found.count(one) == 1 for one in found)
    assert values(opened(archive(on_device, {"0": raw})), OPTIONS) == values(opened(plain), OPTIONS)


def test_the_rest_tells_members_of_the_same_name() -> None:
    value = named(a=vector("0", 2))
    found = []
    for first in (b"one", b"two"):
        entries_of = [
            zip_files.Entry(b"a/data.pkl", pickled(value)),
            zip_files.Entry(b"a/data/0", bytes(8)),
            zip_files.Entry(b"a/note", first),
            zip_files.Entry(b"a/note", b"last"),
        ]
        container = opened(zip_files.zipped(entries_of))
        found.append((values(container, OPTIONS), rest(container, OPTIONS)))
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]
    assert found[0][1].keys() == {"repeated members"}
