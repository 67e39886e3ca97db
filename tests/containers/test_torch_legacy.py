"""torch files from before its zips: read, and stored whole."""

from __future__ import annotations

import struct
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.containers.samples import check_cut
from tests.containers.torch_files import (
    LEGACY_MAGIC,
    LEGACY_VERSION,
    call,
    items_of,
    legacy,
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
)
from tests.data import fixture
from wtxtgit.containers.any_format import check, describe, identify, split
from wtxtgit.containers.registry import detect
from wtxtgit.containers.torch import legacy as format_legacy
from wtxtgit.errors import FormatError
from wtxtgit.model.tensor import Tensor

FLOATS = struct.pack("<6f", *range(6))
PATH = "plain/legacy_a.pt"


def rebuilt(held: bytes, offset: int, shape: list[int], strides: list[int]) -> bytes:
    function = name("torch._utils", "_rebuild_tensor")
    return call(function, held, number(offset), sizes(shape), sizes(strides))


def held(key: str, numel: int, part: bytes = b"N") -> bytes:
    return storage("FloatStorage", key, numel, part)


def found(data: bytes) -> dict[str, Tensor]:
    return {one.name: one for one in describe(memoryview(data)).tensors}


def test_a_legacy_file_is_told_and_stored_whole() -> None:
    data = fixture(PATH)
    view = memoryview(data)
    assert detect(view) == "opaque"
    assert identify(view) == "torch"
    result = split(view)
    check_cut(result, data)
    assert result.reason == format_legacy.REASON
    described = describe(view)
    assert described.format == "torch"
    assert described.metadata["reason"] == format_legacy.REASON


def test_storages_follow_in_the_order_of_their_keys() -> None:
    value = named(w=rebuilt(held("b", 6), 0, [2, 3], [3, 1]), v=rebuilt(held("a", 2), 1, [1], [1]))
    data = legacy(value, {"a": (2, FLOATS[:8]), "b": (6, FLOATS)})
    listed = found(data)
    assert bytes(listed["w"].data) == FLOATS
    assert bytes(listed["v"].data) == FLOATS[4:8]
    assert listed["w"].offset == len(data) - len(FLOATS)


def test_strided_views_and_parts_of_storages() -> None:
    part = tuple_of(text("a.part"), number(2), number(4))
    value = named(
        t=rebuilt(held("a", 6), 0, [3, 2], [1, 3]), p=rebuilt(held("a", 6, part), 1, [3], [1])
    )
    listed = found(legacy(value, {"a": (6, FLOATS)}))
    assert struct.unpack("<6f", items_of(listed["t"])) == (0, 3, 1, 4, 2, 5)
    assert struct.unpack("<3f", items_of(listed["p"])) == (3, 4, 5)


def test_negated_tensors_are_listed_by_value() -> None:
    negated = tensor("a", 6, [2], [3], more=[b"N"], metadata=named(neg=b"\x88"))
    listed = found(
        legacy(named(w=negated, v=rebuilt(held("a", 6), 0, [6], [1])), {"a": (6, FLOATS)})
    )
    assert struct.unpack("<2f", items_of(listed["w"])) == (0, -3)
    assert bytes(listed["v"].data) == FLOATS


def test_classes_of_modules_are_known_by_their_names() -> None:
    module = (
        tuple_of(text("module"), name("mine", "Net"), text("net.py"), text("class Net:")) + b"Q"
    )
    value = module + b")\x81" + named(w=rebuilt(held("a", 6), 0, [6], [1])) + b"b"
    assert list(found(legacy(value, {"a": (6, FLOATS)}))) == ["w"]


def test_a_storage_that_is_missing() -> None:
    listed = found(legacy(named(w=rebuilt(held("a", 6), 0, [6], [1])), {}))
    assert listed["w"].absent is not None


def test_a_view_outside_of_its_storage_is_absent() -> None:
    data = legacy(ONE, {"a": (5, FLOATS[:-4])})
    assert found(data)["w"].absent == "reaches past the end of its storage of 20 bytes"
    fields = [(e.kind, e.field, e.offset) for e in check(memoryview(data)).errors]
    assert ("structure", "storage", len(data) - 20) in fields


def refusal(data: bytes) -> FormatError:
    with pytest.raises(FormatError) as caught:
        describe(memoryview(data))
    return caught.value


ODD = named(w=rebuilt(storage("OddStorage", "a", 6, b"N"), 0, [6], [1]))
ONE = named(w=rebuilt(held("a", 6), 0, [6], [1]))
PICKLES = LEGACY_MAGIC + LEGACY_VERSION + pickled(b"}") + pickled(ONE)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (LEGACY_MAGIC + pickled(number(1)), "protocol version"),
        (LEGACY_MAGIC + LEGACY_VERSION, "system info"),
        (PICKLES, "storage keys"),
        (PICKLES + pickled(b"N"), "storage keys"),
        (PICKLES + pickled(list_of(number(1))), "storage keys"),
        (PICKLES + pickled(list_of(text("b"))), "storage keys"),
        (PICKLES + pickled(list_of(text("a"))), "numel"),
        (PICKLES + pickled(list_of(text("a"))) + b"\xff" * 8, "storage"),
        (PICKLES + pickled(list_of(text("a"))) + b"\x06" + bytes(7) + FLOATS[:-1], "storage"),
        (legacy(ODD, {"a": (6, FLOATS)}), "storage keys"),
    ],
)
def test_what_is_refused(data: bytes, field: str) -> None:
    assert refusal(data).field == field
    assert refusal(data).offset is not None
    check_cut(split(memoryview(data)), data)


def test_a_key_that_is_there_twice() -> None:
    keys = pickled(list_of(text("a"), text("a")))
    assert "more than once" in refusal(PICKLES + keys + (b"\x06" + bytes(7) + FLOATS) * 2).message


@pytest.mark.parametrize("protocol", [b"\x80\x02", b"\x80\x04\x95" + bytes([13]) + bytes(7)])
def test_the_magic_of_each_protocol(protocol: bytes) -> None:
    magic = protocol + LEGACY_MAGIC[2:]
    assert format_legacy.claims(memoryview(magic))
    assert not format_legacy.claims(memoryview(magic[:-1]))


def test_files_cut_short_or_changed_at_every_byte() -> None:
    data = fixture(PATH)
    whole = sha256(data).digest()
    for place in range(0, len(data), 7):
        changed = bytearray(data)
        changed[place] ^= 0xFF
        for made in (data[:place], bytes(changed)):
            assert sha256(made).digest() != whole
            check_cut(split(memoryview(made)), made)
            try:
                found(made)
            except FormatError as error:
                assert error.offset is not None  # noqa: PT017


@given(st.binary(max_size=80))
def test_any_bytes_after_the_magic_raise_only_format_errors(raw: bytes) -> None:
    data = LEGACY_MAGIC + LEGACY_VERSION + raw
    assert split(memoryview(data)).reason == format_legacy.REASON
    with pytest.raises(FormatError):
        describe(memoryview(data))
