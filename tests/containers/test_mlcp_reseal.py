"""MLCP files written anew with other bytes, other tensors, other values."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.containers import samples
from tests.containers.resealing import OPTIONS, content, opened, own_by_name
from tests.containers.samples import manifest_entries, mlcp_record
from tests.containers.sources import models, source
from tests.data import fixture
from wtxtgit.containers.any_format import check, describe
from wtxtgit.containers.mlcp.read import Mlcp, Placement
from wtxtgit.containers.mlcp.reseal import entries, reseal, rest, values
from wtxtgit.containers.mlcp.write import DTYPES, build, build_model, format_json
from wtxtgit.errors import FormatError
from wtxtgit.io.view import PIECE, Buffer
from wtxtgit.model.tensor import NewContent, PlacedEntry, TensorSource

FILES = [
    entry["file"]
    for entry in manifest_entries()
    if entry["format"] == "MLCP" and entry["file"].endswith(".checkpoint")
]


def resealed(
    data: bytes,
    contents: Mapping[str, bytes] | None = None,
    changed: Mapping[str, object] | None = None,
) -> bytes:
    container = opened(data)
    return b"".join(reseal(container, own_by_name(container, contents), changed, OPTIONS))


def put(
    container: Mlcp, *placed: PlacedEntry, changed: Mapping[str, object] | None = None
) -> bytes:
    return b"".join(reseal(container, placed, changed, OPTIONS))


def tensors(data: bytes) -> list[tuple[str, bytes]]:
    return [(t.name, bytes(t.data)) for t in describe(memoryview(data)).tensors]


def metadata(data: bytes) -> Any:
    return opened(data).metadata


def findings(data: bytes) -> tuple[list[str], list[str]]:
    found = check(memoryview(data))
    return [e.message for e in found.errors], [w.message for w in found.warnings]


def inline(*shards: list[TensorSource], checksums: bool = False, infos: bool = False) -> bytes:
    """A file with bytes after each record."""
    raw = b"".join(build(shards, inline_data=True))
    if not checksums and not infos:
        return raw
    made = metadata(raw)
    if checksums:
        for n, shard in enumerate(made["shards"]):
            shard["checksum"] = f"sha256:{n}"
    if infos:
        made["tensorInfos"] = [item for shard in made["shards"] for item in shard["tensors"]]
    return b"".join(build(shards, format_json(made), inline_data=True))


W, B, N = source("w", "f32", (2, 3)), source("b", "f32", (3,)), source("n", "i64", ())


# Nothing changes.


@pytest.mark.parametrize("path", FILES)
def test_a_file_without_changes_is_the_same(path: str) -> None:
    data = fixture(path)
    container = opened(data)
    assert resealed(data) == data
    assert resealed(data, changed=values(container, OPTIONS)) == data
    other = opened(data)
    theirs = [PlacedEntry(other, n) for n in range(len(entries(other, OPTIONS)))]
    assert put(container, *theirs) == data


@given(models(list(DTYPES)), st.integers(0, 6), st.integers(0, 2**32))
def test_other_bytes_of_files_that_are_written_here(
    sources: list[TensorSource], cut: int, seed: int
) -> None:
    random = Random(seed)  # noqa: S311
    shards = [sources[:cut], sources[cut:]]
    data = inline(*shards)
    assert resealed(data) == data
    chosen = {s.name: random.randbytes(s.nbytes) for s in sources if random.random() < 0.5}
    anew = [[source(s.name, s.element, s.shape, chosen.get(s.name)) for s in p] for p in shards]
    # Noise is no record: nothing is refused here.
    assert resealed(data, chosen) == inline(*anew)


# Other bytes.


def test_only_the_bytes_of_the_tensor_change() -> None:
    data = inline([W, B], [N])
    before = opened(data).body.records[1].end
    made = resealed(data, {"b": b"abcdefghijkl"})
    assert made == data[:before] + b"abcdefghijkl" + data[before + 12 :]
    assert findings(made) == findings(data)


def test_bytes_after_all_records() -> None:
    body = struct.pack("<i", 1) + mlcp_record(b"a", "Int8", [2], 2) + struct.pack("<i", 0)
    body += struct.pack("<i", 1) + mlcp_record(b"b", "Int8", [3], 3)
    data = samples.mlcp({"shards": [1, 2, 3]}, body + b"\1\2\3\4\5")
    assert opened(data).body.placement is Placement.AFTER_ALL
    assert resealed(data, {"b": b"xyz"}) == data[:-3] + b"xyz"
    container = opened(data)
    (b_first,) = (entry for entry in entries(container, OPTIONS) if entry.name == "b")
    assert b_first.stored is not None
    assert bytes(b_first.stored) == b"\3\4\5"
    made = put(container, *own_by_name(container), changed={"shards": {"0": 1, "1": 2, "2": 4}})
    assert opened(made).body.placement is Placement.AFTER_ALL
    assert tensors(made) == tensors(data)
    # One tensor that is the last in the file has its bytes after it in either way.
    made = put(container, PlacedEntry(container, 1))
    assert tensors(made) == [("b", b"\3\4\5")]
    assert opened(made).body.shard_count == 3


@pytest.mark.parametrize("infos", [True, False])
def test_bytes_that_would_be_read_as_shards_are_refused(infos: bool) -> None:
    one = source("b", "f32", (4,), b"\1" * 16)
    data = inline([one], infos=infos)
    with pytest.raises(FormatError, match="would be read as records"):
        resealed(data, {"b": bytes(16)})


def test_a_checksum_of_other_bytes_is_given_up() -> None:
    """What it is of is a shard's own file, which is not here."""
    data = inline([W], [B, N], checksums=True)
    made = resealed(data, {"n": b"12345678"})
    assert [shard["checksum"] for shard in metadata(made)["shards"]] == ["sha256:0", None]
    assert dict(tensors(made)) == dict(tensors(data)) | {"n": b"12345678"}
    assert findings(made) == findings(data)
    again = metadata(data)
    again["shards"][1]["checksum"] = None
    assert metadata(made) == again


# Records that come and go.


@pytest.mark.parametrize("infos", [True, False])
def test_a_tensor_is_added_and_another_removed(infos: bool) -> None:
    more = source("more", "u8", (5,))
    data, theirs = inline([W, B], [N], infos=infos), inline([W, more], [N], infos=infos)
    ours, other = opened(data), opened(theirs)
    made = put(
        ours,
        PlacedEntry(ours, 0),
        PlacedEntry(other, 1),
        PlacedEntry(ours, 2, content(b"12345678")),
    )
    expected = inline([W, more], [source("n", "i64", (), b"12345678")], infos=infos)
    assert made == expected
    assert findings(made) == findings(data)


def test_a_tensor_of_another_dtype_and_shape() -> None:
    wide = source("b", "f64", (2, 2))
    ours, other = opened(inline([W, B])), opened(inline([W, wide]))
    made = put(ours, PlacedEntry(ours, 0), PlacedEntry(other, 1), changed=values(other, OPTIONS))
    assert made == other.data


def test_records_without_bytes_stay_without() -> None:
    data = b"".join(build([[W, B], [N]]))
    theirs = b"".join(build([[W], [N, source("x", "i8", (7,))]]))
    ours, other = opened(data), opened(theirs)
    made = put(ours, PlacedEntry(ours, 0), PlacedEntry(ours, 2), PlacedEntry(other, 2))
    assert made == theirs
    assert findings(made) == ([], [])
    with pytest.raises(FormatError, match="has 0 bytes in the file, not 8"):
        put(ours, PlacedEntry(ours, 2, content(b"12345678")))
    with_bytes = opened(inline([W], [N]))
    for skeleton, placed in (
        (ours, [PlacedEntry(ours, 0), PlacedEntry(with_bytes, 1)]),
        (with_bytes, [PlacedEntry(with_bytes, 0), PlacedEntry(ours, 2)]),
    ):
        with pytest.raises(FormatError, match="has no bytes in its file") as caught:
            put(skeleton, *placed)
        assert caught.value.field == "entries"


@pytest.mark.parametrize("path", FILES)
def test_a_record_is_taken_out_of_each_file(path: str) -> None:
    """Nothing is warned of that was not before, or it is refused with words."""
    data = fixture(path)
    container = opened(data)
    placed = own_by_name(container)
    before = findings(data)
    for number in range(min(len(placed), 3)):
        made = put(container, *placed[:number], *placed[number + 1 :])
        errors, warnings = findings(made)
        assert errors == before[0]
        assert set(warnings) <= set(before[1])
        assert len(tensors(made)) == len(placed) - 1
        assert opened(made).body.shard_count == container.body.shard_count
        assert opened(made).version == container.version


def test_line_ends_of_windows_stay() -> None:
    data = fixture("mlcp/crlf_windows_a.checkpoint")
    container = opened(data)
    made = opened(put(container, *own_by_name(container)[1:]))
    raw = bytes(made.data[made.metadata_start : made.header_end])
    assert raw.count(b"\n") == raw.count(b"\r\n") > 100
    shard = made.metadata["shards"][0]  # type: ignore[index]
    assert [item["name"] for item in shard["tensors"]] == ["layers.0.b"]
    assert (shard["tensors"][0]["offset"], shard["fileSize"]) == (0, 64)
    assert shard["checksum"].startswith("sha256:a")


def test_tensors_of_one_name_change_places() -> None:
    first, second = (source("a", "i8", (2,), raw) for raw in (b"12", b"ab"))
    container = opened(inline([first, second]))
    made = put(container, PlacedEntry(container, 1), PlacedEntry(container, 0))
    assert made == inline([second, first])


def test_what_a_list_says_beyond_the_record_goes_with_it() -> None:
    ours = opened(inline([W, B]))
    theirs = metadata(inline([W, B]))
    theirs["shards"][0]["tensors"][1] |= {"quantized": True, "offset": 0}
    other = opened(b"".join(build([[W, B]], format_json(theirs), inline_data=True)))
    forms = [entry.form for entry in entries(other, OPTIONS)]
    assert forms[0] == entries(ours, OPTIONS)[0].form
    assert forms[1] != entries(ours, OPTIONS)[1].form
    made = metadata(put(ours, PlacedEntry(ours, 0), PlacedEntry(other, 1)))
    assert made["shards"][0]["tensors"][1]["quantized"] is True
    assert made["shards"][0]["tensors"][1]["offset"] == W.nbytes


def test_lists_that_are_not_those_of_the_records_can_not_be_brought_up_to_date() -> None:
    raw = metadata(inline([W, B]))
    for tensors_of in ([], [{"name": "w"}, {"name": "c"}], [1, 2]):
        raw["shards"][0]["tensors"] = tensors_of
        container = opened(b"".join(build([[W, B]], format_json(raw), inline_data=True)))
        assert put(container, *own_by_name(container, {"b": bytes(range(12))})) != container.data
        with pytest.raises(FormatError, match="can't be brought up to date") as caught:
            put(container, *own_by_name(container)[:1])
        assert caught.value.field == "tensors"
    raw["shards"][0] = {"tensors": None, "fileSize": None}
    container = opened(b"".join(build([[W, B]], format_json(raw), inline_data=True)))
    made = put(container, *own_by_name(container)[:1])
    assert metadata(made) == raw
    assert tensors(made)[0][0] == "w"


def test_offsets_that_do_not_count_bytes_stay() -> None:
    raw = metadata(inline([W, B]))
    for item, offset in zip(raw["shards"][0]["tensors"], (4096, 8192), strict=True):
        item["offset"] = offset
    container = opened(b"".join(build([[W, B]], format_json(raw), inline_data=True)))
    made = metadata(put(container, *own_by_name(container)[1:]))
    assert made["shards"][0]["tensors"][0]["offset"] == 8192


# Values.


def test_values_are_what_somebody_sets() -> None:
    data = inline([W], [N], checksums=True, infos=True)
    found = values(opened(data), OPTIONS)
    assert found["shards"] == {
        "0": {"rank": 0, "filePath": "shard_0.shard"},
        "1": {"rank": 1, "filePath": "shard_1.shard"},
    }
    assert not {"timestamp", "version", "tensorInfos"} & found.keys()
    assert found["worldSize"] == 2
    # Where there are no bytes the checksum alone tells what the tensors are.
    bare = opened(fixture("mlcp/three_shards_full_a.checkpoint"))
    shards: Any = values(bare, OPTIONS)["shards"]
    assert shards["1"]["checksum"].startswith("sha256:b")
    assert values(opened(samples.mlcp([1])), OPTIONS) == {"metadata": [1]}
    assert values(opened(samples.mlcp({"shards": None})), OPTIONS) == {"shards": None}


@pytest.mark.parametrize("path", FILES)
def test_a_value_changes_and_nothing_else(path: str) -> None:
    data = fixture(path)
    container = opened(data)
    found = values(container, OPTIONS)
    wanted = {**found, "customFields": {"note": "é"}, "added": [1, {"a": None}]}
    made = resealed(data, changed=wanted)
    assert values(opened(made), OPTIONS) == wanted
    assert tensors(made) == tensors(data)
    assert findings(made) == findings(data)
    old, new = metadata(data), metadata(made)
    assert new == old | {"customFields": {"note": "é"}, "added": [1, {"a": None}]}
    assert list(new) == [*old, "added"]
    assert resealed(made, changed=found) == data


def test_values_with_bytes() -> None:
    data = inline([W], [N], checksums=True)
    wanted: dict[str, Any] = values(opened(data), OPTIONS)
    del wanted["training"]
    wanted["shards"]["1"]["rank"] = 7
    wanted["sharding"]["precision"] = "other"
    made = resealed(data, {"w": b"\1" * 24}, wanted)
    expected = metadata(data)
    del expected["training"]
    expected["sharding"]["precision"] = "other"
    expected["shards"][1]["rank"] = 7
    expected["shards"][0]["checksum"] = None
    assert json.dumps(metadata(made)) == json.dumps(expected)
    assert tensors(made)[0] == ("w", b"\1" * 24)


def test_a_shard_is_added_with_its_tensors() -> None:
    ours, other = opened(inline([W], checksums=True)), opened(inline([W], [N], checksums=True))
    wanted = values(other, OPTIONS)
    made = put(ours, PlacedEntry(ours, 0), PlacedEntry(other, 1), changed=wanted)
    assert made == other.data
    back = put(other, PlacedEntry(other, 0), changed=values(ours, OPTIONS))
    assert back == ours.data
    assert metadata(made)["shards"][1]["checksum"] == "sha256:1"
    noted = put(
        ours, PlacedEntry(ours, 0), PlacedEntry(other, 1, content(b"12345678")), changed=wanted
    )
    assert metadata(noted)["shards"][1]["checksum"] is None
    with pytest.raises(FormatError, match="is in shard 1, but there are only 1 shards") as caught:
        put(ours, PlacedEntry(ours, 0), PlacedEntry(other, 1))
    assert caught.value.field == "entries"
    assert "'n'" in caught.value.message


@pytest.mark.parametrize(
    ("skeleton", "changed", "field"),
    [
        (b"[1]", {"metadata": [2]}, "metadata"),
        (b"[1]", {"a": 1}, "metadata"),
        (b'{"shards":[{}]}', {"shards": {"1": {}}}, "shards"),
        (b'{"shards":null}', {"shards": {"0": 1, "2": 1}}, "shards"),
    ],
)
def test_values_that_the_metadata_can_not_have(
    skeleton: bytes, changed: dict[str, object], field: str
) -> None:
    with pytest.raises(FormatError) as caught:
        resealed(samples.mlcp(skeleton), changed=changed)
    assert caught.value.field == field


def test_shards_that_are_listed_otherwise() -> None:
    for raw in (b'{"shards":[1,"a",null]}', b'{"shards":{"x":1}}', b'{"shards":7}'):
        data = samples.mlcp(raw, bytes(12))
        wanted = {**values(opened(data), OPTIONS), "a": 1}
        made = resealed(data, changed=wanted)
        assert metadata(made) == json.loads(raw) | {"a": 1}
        assert opened(made).body.shard_count == 3


# Hostile input.


def test_entries_that_do_not_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    container = opened(inline([W, B]))
    with pytest.raises(FormatError, match="another format"):
        put(container, PlacedEntry(object(), 0))
    for raw in (b"\1" * 11, b"\1" * 13):
        lying = NewContent(12, lambda raw=raw: iter((raw,)))  # type: ignore[misc]
        with pytest.raises(FormatError, match=f"{len(raw)} bytes, not 12"):
            put(container, PlacedEntry(container, 0), PlacedEntry(container, 1, lying))
    from wtxtgit.containers.mlcp import reseal as module

    monkeypatch.setattr(module, "MAX_TENSORS", 2)
    with pytest.raises(FormatError) as caught:
        put(container, *([PlacedEntry(container, 0)] * 3))
    assert caught.value.kind == "limit"


def test_nothing_of_a_tensor_is_held() -> None:
    block = b"\x0a\xd7\x23\x3c" * 2**18
    size = 64 * len(block)
    big = TensorSource("a", "f32", (size // 4,), size, lambda: iter([block] * 64))
    made = 0

    def blocks() -> Iterator[Buffer]:
        nonlocal made
        for _ in range(64):
            made += 1
            yield block

    container = opened(b"".join(build_model([big, B], {}, inline_data=True)))
    pieces = reseal(
        container,
        [PlacedEntry(container, 0, NewContent(size, blocks)), PlacedEntry(container, 1)],
        None,
        OPTIONS,
    )
    assert made <= 4
    assert max(len(piece) for piece in pieces) <= PIECE
    assert made >= 64


@given(st.binary(max_size=200), st.sampled_from([b"{}", b'{"shards":[{},{"tensors":[]}]}', b"7"]))
def test_any_file_that_is_read_stays_or_is_refused(body: bytes, raw: bytes) -> None:
    try:
        container = opened(samples.mlcp(raw, body))
    except FormatError:
        return
    assert put(container, *own_by_name(container)) == container.data
    try:
        made = put(container, *own_by_name(container)[1:])
    except FormatError:
        return
    assert len(opened(made).body.records) == max(len(container.body.records) - 1, 0)


def test_the_rest_is_what_the_metadata_say_otherwise_than_the_records() -> None:
    data = inline([W, B], [N], checksums=True, infos=True)

    def with_metadata(change: Any) -> dict[str, object]:
        made = metadata(data)
        change(made)
        return rest(
            opened(b"".join(build([[W, B], [N]], format_json(made), inline_data=True))), OPTIONS
        )

    assert rest(opened(data), OPTIONS) == {}
    assert with_metadata(lambda m: m.update(timestamp="2001-01-01", version="9")) == {}
    assert with_metadata(lambda m: m["shards"][0].update(checksum="sha256:other")) == {}
    assert with_metadata(lambda m: m.update(worldSize=9)) == {}
    found = [
        with_metadata(lambda m: m["shards"][0].update(fileSize=1)),
        with_metadata(lambda m: m["shards"][0].pop("fileSize")),
        with_metadata(lambda m: m["shards"][1].update(tensors=None)),
        with_metadata(lambda m: m["shards"][1].update(tensors=[])),
        with_metadata(lambda m: m["shards"][1].pop("tensors")),
        with_metadata(lambda m: m["shards"][0]["tensors"][1].update(dataType=99)),
        with_metadata(lambda m: m["tensorInfos"][0].update(shape=[6])),
        with_metadata(lambda m: m["tensorInfos"].pop()),
    ]
    assert {} not in found
    assert all(found.count(one) == 1 for one in found)
    assert rest(opened(resealed(data, {"w": bytes(24)})), OPTIONS) == {}
