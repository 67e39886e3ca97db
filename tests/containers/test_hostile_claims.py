"""What files must not make of readers: an error of another kind, a wrong place, a long wait."""

from __future__ import annotations

import struct

import msgpack
import pytest
import zstandard

from tests.containers import samples, torch_files
from tests.containers.samples import aero_entry, fold_chunk, tensor_item
from wtxtgit.checkpoint.convert import sources_of
from wtxtgit.containers.aero.read import Aero
from wtxtgit.containers.aero.repack import repack
from wtxtgit.containers.any_format import check, describe, read
from wtxtgit.errors import FormatError, InputError
from wtxtgit.model.array import bounded_product
from wtxtgit.model.tensor import ReadOptions, Tensor
from wtxtgit.tensors.statistics import statistics
from wtxtgit.tensors.tensor_bytes import array, blocks

OPTIONS = ReadOptions(max_chunk=2**20)


def tensor_of(data: bytes) -> Tensor:
    (found,) = describe(memoryview(data), OPTIONS).tensors
    return found


def first_error(data: bytes) -> tuple[int | None, str | None, str]:
    problem = check(memoryview(data), OPTIONS).errors[0]
    return problem.offset, problem.field, problem.message


@pytest.mark.parametrize(
    ("entry", "field"), [(1, "chunks"), ({"offset": 28}, "name"), ({"name": "a"}, "offset")]
)
def test_an_entry_of_a_fold_index_that_is_refused_has_the_place_of_the_index(
    entry: object, field: str
) -> None:
    data = samples.fold([fold_chunk(b"JSON", b"{}")], {"chunks": [entry]})
    assert first_error(data)[:2] == (28 + 32 + 2, field)


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63])
def test_a_fold_chunk_outside_of_the_file_is_told_at_the_index(offset: int) -> None:
    data = samples.fold([], {"chunks": [{"name": "a", "offset": offset}]})
    assert first_error(data)[0] == 28


def test_an_aero_tensor_before_its_shard_is_told_inside_of_the_file() -> None:
    tidx = samples.tidx([aero_entry("a", -8, 4)])
    data = samples.aero([(b"TIDX", b"t", tidx), (b"WTSH", b"weights.shard0", b"abcd")])
    assert first_error(data)[0] == len(data) - 4


def test_an_aero_name_outside_of_the_string_table_is_told_at_its_toc_entry() -> None:
    data = bytearray(samples.aero([(b"TIDX", b"t", samples.tidx([]))]))
    struct.pack_into("<I", data, 112 + 32, 7)
    assert first_error(bytes(data))[0] == 112


def test_a_line_break_in_a_chunk_type_breaks_no_message() -> None:
    chunk = fold_chunk(b"JS\nN", b"{}")
    index = {"chunks": [{"name": "a", "offset": 28, "ctype": "JSON"}]}
    messages = [p.message for p in check(memoryview(samples.fold([chunk], index))).errors]
    assert "ctype is 'JS\\nN', index has 'JSON'" in messages


def test_a_line_break_in_a_dtype_breaks_no_message() -> None:
    data = samples.safetensors({"a": tensor_item("F\n32", [1], 0, 4)}, bytes(4))
    with pytest.raises(FormatError, match=r"is 'F\\n32', which numpy does not have"):
        array(tensor_of(data))


@pytest.mark.parametrize("metadata", [{"a\ud800": "b"}, {"tags": {"a": "\udfff"}}])
def test_a_lone_surrogate_is_in_no_tag_of_a_fold_file(metadata: object) -> None:
    data = samples.fold([], {"chunks": [], "metadata": metadata})
    found = describe(memoryview(data), OPTIONS)
    assert found.tags == {}
    assert len(found.untold) == 1


def test_entries_for_one_compressed_fold_chunk_are_opened_once() -> None:
    frame = zstandard.compress(bytes(2**20))
    chunk = struct.pack(">4sIQQII", b"NPZ0", 1, 2**20, len(frame), 0, 0) + frame
    index = {"chunks": [{"name": str(n), "offset": 28} for n in range(50)]}
    found = describe(memoryview(samples.fold([chunk], index)), OPTIONS)
    assert [nested.name for nested in found.nested] == ["0"]
    assert len(found.untold) == 49


def test_aero_chunk_names_that_share_bytes_are_refused_in_a_small_file() -> None:
    count, length = 1000, 20_000
    entry = struct.pack("<4sIQQQIIQ32s", b"ABCD", 0, 0, 0, 0, 0, length, 0, b"")
    toc = struct.pack("<IIQ", count, 0, 0) + entry * count
    head = struct.pack(
        *("<4sHHIQQQQQ16s28s", b"AERO", 0, 1, 96, 96, len(toc), 96 + len(toc), length),
        *(0, bytes(16), b""),
    )
    data = head + toc + b"\xff" * length
    with pytest.raises(FormatError, match="too long") as refusal:
        describe(memoryview(data), OPTIONS)
    assert refusal.value.kind == "limit"
    assert "limit" in [problem.kind for problem in check(memoryview(data)).errors]


def test_aero_page_hashes_that_nothing_checked_are_not_repacked() -> None:
    pages = zstandard.compress(msgpack.packb({"page_size": 1}))
    data = bytearray(samples.aero([(b"PHSH", b"p", pages, 1), (b"WTSH", b"weights.shard0", b"a")]))
    struct.pack_into("<Q", data, 112 + 24, len(msgpack.packb({"page_size": 1})))
    container = read(memoryview(bytes(data)))
    assert isinstance(container, Aero)
    with pytest.raises(FormatError, match="page hashes are compressed"):
        repack(container, "none", OPTIONS)


def test_bytes_in_an_aero_manifest_are_told_as_hex() -> None:
    manifest = msgpack.packb({"a": b"\x01\xff", "b": [b"", {"c": b"\x10"}], "d": 1})
    found = describe(memoryview(samples.aero([(b"MMSG", b"m", manifest)])), OPTIONS)
    assert found.metadata["mmsg"] == {"a": "01ff", "b": ["", {"c": "10"}], "d": 1}


LONG = [2**62] * 3000


@pytest.mark.parametrize(
    "data",
    [
        samples.safetensors({"a": tensor_item("F32", LONG, 0, 4)}, b"abcd"),
        samples.mlcp(
            {"shards": [1]},
            b"\1\0\0\0" + samples.mlcp_record(b"a", "Float32", LONG, 4) + b"abcd",
        ),
    ],
    ids=["safetensors", "mlcp"],
)
def test_a_shape_of_thousands_of_dimensions_costs_no_products(data: bytes) -> None:
    tensor = tensor_of(data)
    assert b"".join(blocks(tensor)) == b"abcd"
    assert statistics(tensor) is None
    with pytest.raises(FormatError, match="3000 dimensions"):
        array(tensor)


def test_items_are_counted_no_further_than_they_can_be() -> None:
    assert bounded_product(1, (), 9) == 1
    assert bounded_product(1, (2, 3), 6) == 6
    assert bounded_product(1, (2, 3), 5) > 5
    assert bounded_product(1, (2**62, 2**62, 0), 5) == 0
    assert abs(bounded_product(1, (-2, 3), 5)) > 5
    assert 5 < bounded_product(1, (2**62,) * 10_000, 5) < 2**63
    assert -(2**63) < bounded_product(1, (-(2**62),) * 10_000, 5) < -5


@pytest.mark.parametrize("shape", [[2**62, 2**62, 0], [0, 2**63]])
def test_an_empty_array_with_sizes_that_numpy_does_not_hold_is_refused(shape: list[int]) -> None:
    data = samples.safetensors({"a": tensor_item("F32", shape, 0, 0)})
    tensor = tensor_of(data)
    assert list(blocks(tensor)) == []
    with pytest.raises(FormatError, match="shape that numpy does not support"):
        array(tensor)


def test_a_stride_along_one_item_may_be_any() -> None:
    view = torch_files.tensor("0", 4, [1, 2], [2**62, 2])
    tensor = tensor_of(torch_files.archive(view, {"0": struct.pack("<4f", 1, 2, 3, 4)}))
    assert array(tensor).tolist() == [[1.0, 3.0]]
    assert b"".join(blocks(tensor)) == struct.pack("<2f", 1, 3)


def test_a_model_whose_shapes_do_not_fit_is_no_source() -> None:
    data = samples.safetensors({"a": tensor_item("F32", [2**62] * 40, 0, 4)}, b"abcd")
    with pytest.raises(InputError, match="does not fit its shape"):
        sources_of("a", describe(memoryview(data)), OPTIONS, len(data))
