"""GGUF: files that are written again with other tensors and metadata."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.containers import gguf_files, resealing
from tests.containers.gguf_files import (
    ARCHITECTURE,
    ARRAY,
    BOOL,
    STRING,
    UINT32,
    alignment,
    array,
    entry,
    info,
    string,
)
from tests.containers.resealing import OPTIONS, changed, content, inverted, opened, own, refused
from tests.containers.sources import models
from tests.data import fixture, golden_of
from wtxtgit.containers.any_format import check, describe
from wtxtgit.containers.gguf import reseal as module
from wtxtgit.containers.gguf.check import check_into
from wtxtgit.containers.gguf.read import Gguf
from wtxtgit.containers.gguf.write import DTYPES, build_model
from wtxtgit.io.view import PIECE, Buffer
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import NewContent, PlacedEntry, TensorSource

FILES = sorted(golden_of("gguf"))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
KEYS = st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=1, max_size=8)
TAGS = st.dictionaries(KEYS, TEXTS, max_size=3)
Q8_0 = 8
UNKNOWN = 99


def all_of(container: Gguf) -> list[PlacedEntry]:
    return own(container, len(container.infos))


def resealed(
    container: Gguf, placed: Sequence[PlacedEntry], values: Mapping[str, object] | None = None
) -> bytes:
    """The file, which has no errors but what only other readers refuse."""
    data = resealing.resealed(container, placed, values)
    findings = Findings(is_rewritten=True)
    check_into(opened(data), findings)
    assert not findings.errors
    return data


def little(value_type: int, raw: bytes) -> module.Value:
    return value_type, raw, "little"


def floats(*items: float) -> bytes:
    return struct.pack(f"<{len(items)}f", *items)


def small(*entries: bytes, data: bytes | None = None) -> bytes:
    """A file of two tensors, a (two floats) and b (a block of Q8_0), and these pairs."""
    held = gguf_files.padded(floats(1, -2)) + bytes(range(34))
    return gguf_files.gguf(
        [ARCHITECTURE, *entries],
        [info("a", [2], 0), info("b", [32], 32, Q8_0)],
        gguf_files.padded(held if data is None else data),
    )


def by_the_package(data: bytes, folder: Path) -> dict[str, tuple[int, list[int], bytes]]:
    """The tensors as the gguf package reads them."""
    path = folder / "made.gguf"
    path.write_bytes(data)
    return {
        t.name: (int(t.tensor_type), [int(size) for size in t.shape], t.data.tobytes())
        for t in gguf.GGUFReader(path).tensors
    }


@pytest.mark.parametrize("file", FILES)
def test_a_fixture_that_is_not_changed_stays(file: str) -> None:
    data = fixture(file)
    container = opened(data)
    entries = module.entries(container, OPTIONS)
    assert [entry.name for entry in entries] == [t.name for t in describe(container.data).tensors]
    assert resealed(container, all_of(container)) == data
    assert resealed(container, all_of(container), module.values(container, OPTIONS)) == data


@pytest.mark.parametrize("file", FILES)
def test_a_fixture_that_is_laid_out_anew(file: str) -> None:
    container = opened(fixture(file))
    before = describe(container.data)
    values = {**module.values(container, OPTIONS), "added": (BOOL, b"\0", container.byteorder)}
    data = resealed(container, all_of(container)[::-1], values)
    after = describe(memoryview(data))
    listed = before.metadata["metadata_kv"]
    assert isinstance(listed, dict)
    assert after.metadata == {**before.metadata, "metadata_kv": {**listed, "added": False}}
    assert after.tags == before.tags
    assert [(t.name, t.dtype, t.shape, bytes(t.data)) for t in after.tensors] == [
        (t.name, t.dtype, t.shape, bytes(t.data)) for t in before.tensors[::-1]
    ]
    warned = {problem.field for problem in check(container.data).warnings}
    assert {problem.field for problem in check(memoryview(data)).warnings} <= warned
    again = opened(data)
    assert module.values(again, OPTIONS) == values
    assert again.version == container.version


@settings(max_examples=50)
@given(models(sorted(DTYPES)), TAGS, st.data())
def test_tensors_are_put_where_they_stand(
    tensors: list[TensorSource], tags: dict[str, str], data: st.DataObject
) -> None:
    raw = b"".join(build_model(tensors, tags))
    container = opened(raw)
    listed = describe(container.data).tensors
    assert resealed(container, all_of(container)) == raw
    chosen = data.draw(st.sets(st.sampled_from(range(len(listed))))) if listed else set()
    wanted = bytearray(raw)
    contents = {}
    for number in chosen:
        start = listed[number].offset
        assert start is not None
        contents[number] = inverted(listed[number].data)
        wanted[start : start + len(contents[number])] = contents[number]
    assert resealed(container, changed(all_of(container), contents)) == wanted


@settings(max_examples=50)
@given(models(sorted(DTYPES)), models(sorted(DTYPES)), TAGS)
def test_tensors_of_two_files_are_written_as_a_writer_does(
    first: list[TensorSource], second: list[TensorSource], tags: dict[str, str]
) -> None:
    ours = opened(b"".join(build_model(first, tags)))
    theirs = opened(b"".join(build_model(second, {})))
    names = {tensor.name for tensor in first}
    added = [number for number, tensor in enumerate(second) if tensor.name not in names]
    placed = [*(PlacedEntry(theirs, number) for number in added), *all_of(ours)]
    wanted = build_model([*(second[number] for number in added), *first], tags)
    assert resealed(ours, placed) == b"".join(wanted)


def test_what_no_tensor_has_stays_where_tensors_do() -> None:
    # A gap, padding that is not zero, an order of its own, and bytes at the end.
    infos = [info("b", [2], 96), info("a", [2], 32)]
    held = bytes(range(1, 33)) + floats(1, 2) + b"\5" * 56 + floats(3, 4) + b"end"
    data = gguf_files.gguf(infos=infos, data=held)
    container = opened(data)
    assert resealed(container, all_of(container)) == data
    wanted = data[: -len(held) + 32] + floats(5, 6) + held[40:]
    assert resealed(container, changed(all_of(container), {1: floats(5, 6)})) == wanted
    wanted = gguf_files.gguf(
        infos=[info("a", [2], 0), info("b", [2], 32)],
        data=gguf_files.padded(floats(1, 2)) + gguf_files.padded(floats(3, 4)),
    )
    assert resealed(container, all_of(container)[::-1]) == wanted


def test_a_tensor_of_another_file_takes_the_place_of_its_like() -> None:
    data = small()
    ours, theirs = opened(data + b"end"), opened(small(data=inverted(data[-96:])))
    data = resealed(ours, [PlacedEntry(ours, 0), PlacedEntry(theirs, 1)])
    assert data == small()[:-64] + inverted(bytes(range(34))) + bytes(30) + b"end"


def test_the_gguf_package_reads_what_is_added_and_removed(tmp_path: Path) -> None:
    ours = opened(small())
    block = bytes(range(100, 134))
    theirs = opened(
        gguf_files.gguf(
            infos=[info("c", [32, 1], 0, Q8_0), info("d", [1], 64)], data=block + bytes(62)
        )
    )
    placed = [
        PlacedEntry(ours, 1),
        PlacedEntry(theirs, 1, content(floats(3))),
        PlacedEntry(theirs, 0),
    ]
    data = resealed(ours, placed)
    assert by_the_package(data, tmp_path) == {
        "b": (Q8_0, [32], bytes(range(34))),
        "d": (0, [1], floats(3)),
        "c": (Q8_0, [32, 1], block),
    }
    assert resealed(ours, []) == gguf_files.head([ARCHITECTURE])


def test_another_type_and_shape(tmp_path: Path) -> None:
    ours = opened(small())
    theirs = opened(gguf_files.gguf(infos=[info("a", [4, 2], 0, 1)], data=bytes(range(16))))
    data = resealed(ours, [PlacedEntry(theirs, 0), PlacedEntry(ours, 1, content(bytes(34)))])
    assert by_the_package(data, tmp_path) == {
        "a": (1, [4, 2], bytes(range(16))),
        "b": (Q8_0, [32], bytes(34)),
    }
    assert data == gguf_files.gguf(
        infos=[info("a", [4, 2], 0, 1), info("b", [32], 32, Q8_0)],
        data=gguf_files.padded(bytes(range(16))) + bytes(64),
    )


def test_values_are_the_bytes_of_the_file() -> None:
    nested = array(ARRAY, 2, array(BOOL, 1, b"\1") + array(STRING, 1, string("x")))
    container = opened(
        small(alignment(64), entry("n", ARRAY, nested), entry("t", STRING, string("é")))
    )
    assert module.values(container, OPTIONS) == {
        "general.architecture": little(STRING, string("llama")),
        "general.alignment": little(UINT32, b"\x40\0\0\0"),
        "n": little(ARRAY, nested),
        "t": little(STRING, string("é")),
    }
    assert module.values(opened(gguf_files.head([])), OPTIONS) == {}
    assert module.values(opened(gguf_files.head([entry("t", BOOL, b"\0")])), OPTIONS) == {
        "t": little(BOOL, b"\0")
    }


def test_other_values() -> None:
    ours = opened(small(entry("x", UINT32, bytes(4)), entry("y", BOOL, b"\1")))
    values = {
        "general.architecture": little(STRING, string("llama")),
        "new": little(ARRAY, array(UINT32, 1, b"abcd")),
        "y": little(STRING, string("now a text")),
        "later": little(BOOL, b"\0"),
    }
    wanted = small(
        entry("new", ARRAY, array(UINT32, 1, b"abcd")),
        entry("y", STRING, string("now a text")),
        entry("later", BOOL, b"\0"),
    )
    assert resealed(ours, all_of(ours), values) == wanted
    data = resealed(ours, changed(all_of(ours), {1: bytes(34)}), values)
    assert data == wanted[:-64] + bytes(64)
    # The order is part of them.
    before = dict(reversed(module.values(ours, OPTIONS).items()))
    assert [entry.key for entry in opened(resealed(ours, all_of(ours), before)).entries] == [
        "y",
        "x",
        "general.architecture",
    ]


def test_another_alignment_moves_the_tensors(tmp_path: Path) -> None:
    ours = opened(small())
    values = module.values(ours, OPTIONS) | {"general.alignment": little(UINT32, b"\0\1\0\0")}
    data = resealed(ours, all_of(ours), values)
    offsets = [tensor.offset for tensor in describe(memoryview(data)).tensors]
    assert offsets == [256, 512]
    assert len(data) == 768
    warned = [problem.field for problem in check(memoryview(data)).warnings]
    assert warned == ["general.quantization_version"]
    assert by_the_package(data, tmp_path) == by_the_package(small(), tmp_path)
    found = refused(ours, all_of(ours), {"general.alignment": little(UINT32, b"\3\0\0\0")})
    assert found.field == "general.alignment"
    found = refused(ours, all_of(ours), {"general.alignment": little(STRING, string("32"))})
    assert found.field == "general.alignment"


def test_forms_tell_what_an_info_says() -> None:
    def form(*args: object, version: int = 3, data: bytes = bytes(64)) -> object:
        made = gguf_files.padded(gguf_files.head([], [info(*args)], version=version)) + data  # type: ignore[arg-type]
        return module.entries(opened(made), OPTIONS)[0].form

    forms = [
        form("a", [2], 0),
        form("a", [2, 1], 0),
        form("a", [1], 0),
        form("a", [2], 0, 26),
        form("a", [2], 0, UNKNOWN),
        form("a", [2], 0, UNKNOWN + 1),
    ]
    assert len(set(forms)) == len(forms)
    assert form("another", [2], 32, version=2) == forms[0]


def test_tensors_of_unknown_types_stay_in_their_file() -> None:
    infos = [info("a", [2], 0), info("u", [2], 32, UNKNOWN), info("b", [2], 64)]
    data = gguf_files.gguf(infos=infos, data=bytes(range(96)))
    other = gguf_files.gguf(infos=infos, data=bytes(range(95)) + b"x")
    changed_data = gguf_files.gguf(infos=infos, data=bytes(range(33)) + bytes(63))
    container = opened(data)
    entries = module.entries(container, OPTIONS)
    assert [(e.tensor is None, e.unread is None) for e in entries] == [
        (False, True),
        (True, False),
        (False, True),
    ]
    assert entries[1].stored == bytes(range(32, 64))
    assert module.entries(opened(other), OPTIONS)[1].stored == entries[1].stored
    assert module.entries(opened(changed_data), OPTIONS)[1].stored != entries[1].stored
    placed = changed(all_of(container), {0: b"abcdefgh"})
    assert resealed(container, placed) == data[:-96] + b"abcdefgh" + bytes(range(8, 96))
    for placed in (all_of(container)[1:], all_of(opened(other))):
        found = refused(container, placed)
        assert (found.field, found.message) == (
            "type",
            "tensor 'u' can't be moved: its type 99 is unknown",
        )
    assert refused(container, changed(all_of(container), {1: b"a"})).field == "entries"
    assert resealed(container, [PlacedEntry(container, 2)])


def test_the_other_byte_order_stays_apart() -> None:
    big, ours = opened(fixture("golden/gguf/big_endian.gguf")), opened(small())
    assert big.byteorder == "big"
    placed = changed(
        all_of(big),
        {n: inverted(e.stored or b"") for n, e in enumerate(module.entries(big, OPTIONS))},
    )
    data = resealed(big, placed[::-1])
    assert opened(data).byteorder == "big"
    assert [bytes(t.data) for t in describe(memoryview(data)).tensors[::-1]] == [
        inverted(t.data) for t in describe(big.data).tensors
    ]
    # Of a number without dimensions all bytes are the same in either order.
    forms = [
        module.entries(opened(gguf_files.padded(raw) + bytes(4)), OPTIONS)[0].form
        for raw in (
            gguf_files.head([], [info("a", [], 0)]),
            b"GGUF" + struct.pack(">IQQQ1sIIQ", 3, 1, 0, 1, b"a", 0, 0, 0),
        )
    ]
    assert forms[0] != forms[1]
    for container, other in ((ours, big), (big, ours)):
        found = refused(container, all_of(other))
        assert (found.field, f"{other.byteorder}-endian" in found.message) == ("entries", True)
        found = refused(container, all_of(container), module.values(other, OPTIONS))
        assert (found.field, f"{other.byteorder}-endian" in found.message) == ("key", True)


def test_what_is_refused() -> None:
    ours = opened(small())
    found = refused(ours, [*all_of(ours), PlacedEntry(ours, 0)])
    assert (found.field, found.message) == ("name", "two tensors are named 'a'")
    found = refused(ours, changed(all_of(ours), {0: b"abc"}))
    assert found.message == "tensor 'a' has 8 bytes, but 3 were given"


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (small(ARCHITECTURE), "key"),
        (small(entry("b", BOOL, b"\2")), "bool"),
        (gguf_files.gguf(infos=[info("a", [2], 0), info("a", [1], 32)], data=bytes(64)), "name"),
        (gguf_files.gguf(infos=[info("a", [2], 0), info("b", [2], 4)], data=bytes(64)), "offset"),
    ],
)
def test_damage_is_not_written_again(bad: bytes, field: str) -> None:
    ours, theirs = opened(small()), opened(bad)
    for container, placed in ((theirs, all_of(theirs)), (theirs, []), (ours, all_of(theirs))):
        assert refused(container, placed).field == field


def test_tensors_that_share_their_bytes() -> None:
    infos = [info(name, [2], 0) for name in "abc"] + [info("d", [2], 32)]
    data = gguf_files.gguf(infos=infos, data=bytes(range(64)))
    container = opened(data)
    placed = all_of(container)
    same = dict.fromkeys(range(3), b"abcdefgh")
    assert resealed(container, changed(placed, same)) == data[:-64] + b"abcdefgh" + data[-56:]
    assert resealed(container, changed(placed, {3: b"abcdefgh"}))[-32:-24] == b"abcdefgh"
    found = refused(container, changed(placed, {**same, 2: bytes(8)}))
    assert found.message == "tensors 'a' and 'b' share their bytes, so they can't differ"
    moved = describe(memoryview(resealed(container, placed[::-1]))).tensors
    assert [(t.name, bytes(t.data)) for t in moved] == [
        ("d", bytes(range(32, 40))),
        *((name, bytes(range(8))) for name in "cba"),
    ]


def test_a_file_is_not_made_much_larger() -> None:
    bomb = opened(
        gguf_files.gguf(
            infos=[info(f"t{n}", [10**5], 0) for n in range(100)], data=bytes(4 * 10**5)
        )
    )
    assert resealed(bomb, all_of(bomb)) == bomb.data
    assert refused(bomb, all_of(bomb)[1:]).kind == "limit"
    assert (
        refused(bomb, changed(all_of(bomb), dict.fromkeys(range(100), bytes(4 * 10**5)))).kind
        == "limit"
    )


def test_an_alignment_does_not_make_a_file_much_larger() -> None:
    # Offsets that are no multiples of it are read.
    head = gguf_files.head(
        [ARCHITECTURE, alignment(2**23)], [info(str(n), [1], 4 * n) for n in range(4)]
    )
    container = opened(gguf_files.padded(head, 2**23) + bytes(16))
    placed = all_of(container)
    assert resealed(container, placed) == container.data
    found = refused(container, placed[1:])
    assert (found.kind, found.field) == ("limit", "padding")
    pieces = list(module.reseal(container, placed[1:2], None, OPTIONS))
    assert max(map(len, pieces)) <= PIECE
    assert sum(map(len, pieces)) == 2**24
    ours = opened(small())
    values = {"general.alignment": little(UINT32, b"\0\0\0\x80")}
    assert refused(ours, all_of(ours), values).field == "padding"


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = opened(small(entry("x", BOOL, b"\1")))
    placed, values = all_of(ours)[::-1], module.values(ours, OPTIONS)
    for limit, value, field in (
        ("MAX_TENSORS", 2, "tensor_count"),
        ("MAX_ENTRIES", 2, "metadata_kv_count"),
        ("MAX_JSON", ours.infos_end, "header"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, limit, value)
            assert resealed(ours, placed, values)
            patch.setattr(module, limit, value - 1)
            found = refused(ours, placed, values)
            assert (found.kind, found.field) == ("limit", field)


def test_nothing_of_a_tensor_is_held() -> None:
    made = 0

    def blocks() -> Iterator[Buffer]:
        nonlocal made
        for _ in range(8):
            made += 1
            yield bytes(2**20)

    infos = [info("a", [2**21], 0), info("b", [2**21], 2**23)]
    container = opened(gguf_files.gguf(infos=infos, data=bytes(2**24)))
    placed = [PlacedEntry(container, 0, NewContent(2**23, blocks)), PlacedEntry(container, 1)]
    for order in (placed, placed[::-1]):
        made = 0
        pieces = module.reseal(container, order, None, OPTIONS)
        assert made == 0
        sizes = [len(piece) for piece in pieces]
        assert max(sizes) == PIECE
        assert sum(sizes) == len(container.data)
        assert made == 8


def test_floats_are_those_that_were_given(tmp_path: Path) -> None:
    values = np.linspace(0, 1, 2, dtype="<f4")
    container = opened(small())
    data = resealed(container, changed(all_of(container), {0: values.tobytes()}))
    assert by_the_package(data, tmp_path)["a"] == (0, [2], values.tobytes())
    assert by_the_package(data, tmp_path)["b"] == by_the_package(small(), tmp_path)["b"]


def test_the_rest_is_what_no_tensor_has() -> None:
    held = gguf_files.padded(floats(1, -2)) + bytes(range(34))

    def rest(data: bytes) -> dict[str, object]:
        return module.rest(opened(data), OPTIONS)

    usual = {"version": 3, "byte order": "little"}
    assert rest(small()) == rest(small(data=held)) == usual
    assert rest(small(entry("k", STRING, string("v")), data=bytes(66))) == usual
    odd = [
        rest(small(data=held + b"x")),
        rest(small(data=held + b"y")),
        rest(small(data=held[:9] + b"z" + held[10:])),
        rest(fixture("golden/gguf/version2.gguf")),
        rest(fixture("golden/gguf/big_endian.gguf")),
    ]
    assert usual not in odd
    assert all(odd.count(one) == 1 for one in odd)
    # What follows a tensor of an unknown type is told with it.
    unknown = gguf_files.gguf([ARCHITECTURE], [info("a", [2], 0, UNKNOWN)], b"any" * 20)
    assert rest(unknown) == usual
