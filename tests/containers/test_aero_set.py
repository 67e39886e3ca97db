"""AEROSET: the files of a set, what its index says of them, and paths that lead out."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.containers.aero_files import (
    WEIGHTS,
    digest,
    entry,
    file,
    manifest,
    read_strictly,
    shard,
    tidx,
)
from tests.containers.sources import content, models, source
from tests.data import all_entries, path_of
from wtxtgit.containers import any_format
from wtxtgit.containers.aero import aeroset, write
from wtxtgit.errors import FormatError, InputError
from wtxtgit.model.findings import Findings, Problem
from wtxtgit.model.tensor import Description, ReadOptions, TensorSource

SETS = [item for item in all_entries() if item["format"] == "AEROSET"]
Files = dict[str, bytes]
LISTED = "m.aeroset.json"


def opener(files: Files) -> Callable[[str], memoryview]:
    def open_member(path: str) -> memoryview:
        if path not in files:
            raise InputError("no such file")
        return memoryview(files[path])

    return open_member


def check(files: Files, **options: Any) -> Findings:
    return any_format.check(memoryview(files[LISTED]), ReadOptions(**options), opener(files))


def describe(files: Files, **options: Any) -> Description:
    data = memoryview(files[LISTED])
    found = any_format.describe(data, ReadOptions(**options), opener(files))
    json.dumps(found.metadata)
    return found


def listing(files: Files, homes: dict[str, list[int]], **changes: object) -> bytes:
    def member(path: str) -> dict[str, object]:
        data = files[path]
        return {"path": path, "sha256": sha256(data).hexdigest(), "size_bytes": len(data)}

    value: dict[str, object] = {
        "format": {"name": "AEROSET", "version": [0, 1]},
        "model": {"name": "demo", "architecture": "llama"},
        "parts": [member(path) | {"shards": shards} for path, shards in homes.items()],
        "global_tidx": member("index.aero"),
    }
    return json.dumps(value | changes).encode()


OWN = [entry("a", [50], 0, 200), entry("b", [50], 0, 200, shard_id=1)]
ALL = [
    entry("a", [50], 0, 200, shard_id=4),
    entry("b", [50], 0, 200, shard_id=7),
    entry("c", [50], 200, 200, shard_id=0),
]
LAST = [entry("c", [50], 200, 200)]
PARTS = {"p0.aero": [4, 7], "sub/p1.aero": [0]}


def a_set(
    own: list[dict[str, Any]] = OWN,
    everything: list[dict[str, Any]] = ALL,
    homes: dict[str, list[int]] = PARTS,
    **changes: object,
) -> Files:
    """Three tensors: two in shards 4 and 7 of the set, one in shard 0."""
    files = {
        "p0.aero": file([tidx(*own), shard(WEIGHTS), shard(WEIGHTS[::-1], 1)]),
        "sub/p1.aero": file([tidx(*LAST), shard(WEIGHTS[100:] + WEIGHTS[:100])]),
        "index.aero": file([manifest(shards=[]), tidx(*everything)]),
    }
    return files | {LISTED: listing(files, homes, **changes)}


def found(problems: list[Problem]) -> list[tuple[str, str | None, object]]:
    return [(problem.kind, problem.field, problem.chunk) for problem in problems]


def test_a_sound_set() -> None:
    files = a_set()
    assert any_format.identify(memoryview(files[LISTED])) == "aeroset"
    verdict = check(files)
    assert (verdict.errors, verdict.warnings) == ([], [])
    told = describe(files)
    assert told.format == "aeroset"
    assert [(t.name, bytes(t.data), t.offset, t.absent) for t in told.tensors] == [
        ("a", WEIGHTS[:200], None, None),
        ("b", WEIGHTS[::-1][:200], None, None),
        ("c", (WEIGHTS[300:] + WEIGHTS[:100]), None, None),
    ]
    assert told.tags == {"model_name": "demo", "architecture": "llama"}
    assert told.metadata["parts"] == [
        {"path": path, "shards": shards} for path, shards in PARTS.items()
    ]


@pytest.mark.parametrize("item", SETS, ids=lambda item: item["file"])
def test_sets_of_the_original_writer(item: dict[str, Any]) -> None:
    path = path_of(item)
    data = memoryview(path.read_bytes())

    def open_member(name: str) -> memoryview:
        return memoryview((path.parent / name).read_bytes())

    assert any_format.identify(data) == "aeroset"
    verdict = any_format.check(data, ReadOptions(), open_member)
    assert verdict.errors == []
    assert {warning.field for warning in verdict.warnings} <= {"blake3_256"}
    told = any_format.describe(data, ReadOptions(), open_member)
    listed = {tensor.name: tensor for tensor in told.tensors}
    assert len(listed) == len(item["tensors"])
    for wanted in item["tensors"]:
        tensor = listed[wanted["name"]]
        assert list(tensor.shape) == wanted["shape"]
        assert sha256(tensor.data).hexdigest() == wanted["sha256"]


def test_the_json_alone_is_stored_whole() -> None:
    data = memoryview(a_set()[LISTED])
    assert any_format.split(data).layout.format == "opaque"
    assert any_format.describe(data).format == "opaque"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"format": {"name": "AEROSET"}}', True),
        (b'{"x":1,"format":{"name"  :\n"AEROSET","version":[9,9]}}', True),
        (b'{"format": {"name": "AERO"}}', False),
        (b'{"AEROSET": 1}', False),
        (b"{" + b" " * 70_000 + b'"format": {"name": "AEROSET"}}', False),
        (b"", False),
    ],
)
def test_which_json_is_an_index(text: bytes, expected: bool) -> None:
    assert aeroset.is_index(memoryview(text)) is expected
    assert (any_format.identify(memoryview(text)) == "aeroset") is expected


PATHS = [
    "../index.aero",
    "a/../../index.aero",
    "a/..",
    "..",
    ".",
    "./p0.aero",
    "",
    "/etc/passwd",
    "//server/share",
    "a//b",
    "a/",
    "a\\b",
    "..\\p0.aero",
    "C:p0.aero",
    "p0.aero\0",
    "https://example.com/p0.aero",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("where", ["parts", "global_tidx"])
def test_paths_that_lead_out_of_the_folder(path: str, where: str) -> None:
    opened: list[str] = []

    def open_member(name: str) -> memoryview:
        opened.append(name)
        return memoryview(b"")

    part = {"path": path, "sha256": "0" * 64, "size_bytes": 0, "shards": [0]}
    data = memoryview(listing(a_set(), PARTS, **{where: [part] if where == "parts" else part}))
    verdict = any_format.check(data, ReadOptions(), open_member)
    assert [(error.kind, error.field) for error in verdict.errors] == [("structure", "path")]
    with pytest.raises(FormatError, match="is not a path in the set's folder"):
        any_format.describe(data, ReadOptions(), open_member)
    assert opened == []


MEMBER = {"path": "x.aero", "sha256": "0" * 64, "size_bytes": 0, "shards": [0]}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"format": {"name": "AEROSET", "version": [0, 3]}}, "version"),
        ({"format": {"name": "AEROSET", "version": "0.1"}}, "version"),
        ({"format": {"name": "AEROSET"}}, "version"),
        ({"format": {"name": "AERO"}, "model": {"name": "AEROSET"}}, "format"),
        ({"format": "AEROSET", "model": {"name": "AEROSET"}}, "format"),
        ({"parts": {}}, "parts"),
        ({"parts": [1]}, "parts"),
        ({"parts": None}, "parts"),
        ({"parts": [MEMBER, MEMBER]}, "path"),
        ({"parts": [MEMBER | {"path": "index.aero"}]}, "path"),
        ({"parts": [MEMBER, MEMBER | {"path": "y"}]}, "shards"),
        ({"parts": [MEMBER | {"shards": [1, 1]}]}, "shards"),
        ({"parts": [MEMBER | {"shards": [-1]}]}, "shards"),
        ({"parts": [MEMBER | {"shards": [True]}]}, "shards"),
        ({"parts": [MEMBER | {"shards": None}]}, "shards"),
        ({"parts": [MEMBER | {"path": 1}]}, "path"),
        ({"parts": [MEMBER | {"path": "\ud800"}]}, "path"),
        ({"parts": [MEMBER | {"sha256": "0" * 63}]}, "sha256"),
        ({"parts": [MEMBER | {"sha256": 0}]}, "sha256"),
        ({"parts": [MEMBER | {"size_bytes": -1}]}, "size_bytes"),
        ({"parts": [MEMBER | {"size_bytes": 1.5}]}, "size_bytes"),
        ({"global_tidx": None}, "global_tidx"),
        ({"global_tidx": {}}, "path"),
    ],
)
def test_indexes_that_are_refused(changes: dict[str, object], field: str) -> None:
    verdict = check(a_set(**changes))
    assert [(error.kind, error.field) for error in verdict.errors] == [("structure", field)]


def test_json_that_is_refused() -> None:
    good = a_set()[LISTED]
    deep = good[:-1] + b',"x":' + b"[" * 70 + b"]" * 70 + b"}"
    for data, kind in (
        (good[:-1], "structure"),
        (deep, "limit"),
        (good[:-1] + b',"parts":[]}', "structure"),
    ):
        verdict = check({LISTED: data})
        assert [error.kind for error in verdict.errors] == [kind]


def test_too_many_parts_and_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, field in (("MAX_SET_FILES", "parts"), ("MAX_TENSORS", "shards")):
        with monkeypatch.context() as patched:
            patched.setattr(aeroset, limit, 1)
            (error,) = check(a_set()).errors
            assert (error.kind, error.field) == ("limit", field)


def test_version_0_2_and_keys_for_remote_readers() -> None:
    files = a_set(
        format={"name": "AEROSET", "version": [0, 2]},
        base_url="https://example.com/model",
        cache={"enabled": True},
    )
    verdict = check(files)
    assert (verdict.errors, verdict.warnings) == ([], [])
    told = describe(files).metadata
    assert (told["version"], told["base_url"]) == ("0.2", "https://example.com/model")
    assert told["further"] == {"cache": {"enabled": True}}


@pytest.mark.parametrize("path", ["p0.aero", "index.aero"])
def test_files_that_are_not_what_the_set_says(path: str) -> None:
    files = a_set()
    longer = files | {path: files[path] + b"\0"}
    assert found(check(longer).errors) == [
        ("structure", "size_bytes", path),
        ("sha256", "sha256", path),
    ]
    missing = {name: data for name, data in files.items() if name != path}
    verdict = check(missing)
    assert found(verdict.errors) == [("structure", "path", path)]
    assert verdict.errors[0].message == f"'{path}' can't be opened: no such file"
    other = check(files | {path: b"something else"})
    assert found(other.errors)[-1] == ("structure", "magic", path)


def test_findings_in_a_part_name_the_part() -> None:
    files = a_set()
    data = files["p0.aero"]
    at = data.index(WEIGHTS)
    damaged = data[:at] + b"\xff" + data[at + 1 :]
    verdict = check(files | {"p0.aero": damaged})
    assert found(verdict.errors) == [
        ("sha256", "sha256", "p0.aero"),
        ("blake3", "blake3_256", "weights.shard0"),
    ]
    assert verdict.errors[1].offset == at
    assert verdict.errors[1].message.startswith("'p0.aero': BLAKE3 of the chunk is ")


@pytest.mark.parametrize(
    ("key", "kind", "value"),
    [
        *[("sha256", "sha256", None), ("size_bytes", "structure", None)],
        ("sha256", "structure", str.upper),
    ],
)
def test_hashes_and_sizes_as_the_original_reader_takes_them(
    key: str, kind: str, value: Any
) -> None:
    files = a_set()
    index = json.loads(files[LISTED])
    for member in (*index["parts"], index["global_tidx"]):
        if value is None:
            del member[key]
        else:
            member[key] = value(member[key])
    verdict = check(files | {LISTED: json.dumps(index).encode()})
    assert [(one.kind, one.field) for one in verdict.errors] == [(kind, key)] * 3
    assert verdict.warnings == []


def test_shards_of_a_part_that_the_set_does_not_list_and_the_other_way_round() -> None:
    files = a_set()
    index = json.loads(files[LISTED])
    index["parts"][0]["shards"].append(77)
    verdict = check(files | {LISTED: json.dumps(index).encode()})
    assert found(verdict.errors) == [("structure", "shards", "p0.aero")]
    assert "lacks weights.shard2" in verdict.errors[0].message


def test_a_part_that_is_missing_leaves_the_others() -> None:
    files = a_set()
    del files["p0.aero"]
    absent = [tensor.absent for tensor in describe(files).tensors]
    assert absent == ["'p0.aero' can't be opened: no such file"] * 2 + [None]
    del files["index.aero"]
    with pytest.raises(FormatError, match=r"'index.aero' can't be opened"):
        describe(files)


def test_shards_that_no_part_has() -> None:
    files = a_set(homes={"p0.aero": [4], "sub/p1.aero": [0]})
    assert [tensor.absent for tensor in describe(files).tensors] == [
        None,
        "its shard is in no part",
        None,
    ]
    verdict = check(files)
    assert found(verdict.errors) == [
        ("structure", "shard_id", "index.aero"),
        # The part has both, but the set does not know.
        ("structure", "shards", "p0.aero"),
        ("structure", "tensors", "p0.aero"),
    ]
    assert "not listed by the set" in verdict.errors[1].message


@pytest.mark.parametrize(
    "changes",
    [{"shape": [25, 2]}, {"dtype": 8}, {"data_off": 4}, {"data_len": 196, "shape": [49]}],
)
def test_an_index_at_odds_with_a_part(changes: dict[str, Any]) -> None:
    files = a_set(everything=[ALL[0] | changes, *ALL[1:]])
    assert found(check(files).errors) == [("structure", "tensors", "p0.aero")]


def test_tensors_that_only_one_side_has() -> None:
    # Who reads the set does not find it.
    verdict = check(a_set(everything=ALL[1:]))
    assert (found(verdict.errors), verdict.warnings) == (
        [("structure", "tensors", "p0.aero")],
        [],
    )
    verdict = check(a_set(own=OWN[1:]))
    assert (verdict.errors, found(verdict.warnings)) == (
        [],
        [("structure", "tensors", "p0.aero")],
    )


@pytest.mark.parametrize("changes", [{"data_off": 300}, {"data_off": -1}, {"data_len": -1}])
def test_tensors_outside_of_their_part(changes: dict[str, Any]) -> None:
    files = a_set(everything=[ALL[0] | changes, *ALL[1:]], own=OWN[1:])
    assert ("structure", "shard_id", "p0.aero") in found(check(files).errors)
    assert "reaches outside" in str(describe(files).tensors[0].absent)


def test_hashes_in_the_index_of_the_set() -> None:
    right = digest(WEIGHTS[:200]).hex()
    for own, value, expected in (
        (OWN, right, []),
        ([OWN[0] | {"hash_b3": right}, OWN[1]], right, []),
        (OWN, digest(b"").hex(), [("blake3", "hash_b3", "p0.aero")]),
        (OWN[1:], digest(b"").hex(), [("blake3", "hash_b3", "p0.aero")]),
    ):
        files = a_set(own=own, everything=[ALL[0] | {"hash_b3": value}, *ALL[1:]])
        assert found(check(files).errors) == expected


def test_compressed_shards_of_parts() -> None:
    files = a_set()
    files["p0.aero"] = file([tidx(*OWN), shard(WEIGHTS, flags=1), shard(WEIGHTS[::-1], 1)])
    files[LISTED] = listing(files, PARTS)
    assert bytes(describe(files).tensors[0].data) == WEIGHTS[:200]
    assert check(files).errors == []
    assert describe(files, max_chunk=399).tensors[0].absent
    assert ("limit", "chunk_ulen", "weights.shard0") in found(check(files, max_chunk=399).errors)


def test_each_decoded_shard_of_a_part_has_a_limit() -> None:
    files = a_set()
    files["p0.aero"] = file([tidx(*OWN), shard(WEIGHTS, flags=1), shard(WEIGHTS[::-1], 1)])
    files["sub/p1.aero"] = file([tidx(*LAST), shard(WEIGHTS, flags=1)])
    files[LISTED] = listing(files, PARTS)
    assert [tensor.absent for tensor in describe(files, max_chunk=400).tensors] == [None] * 3
    reasons = [tensor.absent for tensor in describe(files, max_chunk=399).tensors]
    assert [reason is not None and "over 399" in reason for reason in reasons] == [
        True,
        False,
        True,
    ]


def written(tensors: list[TensorSource], max_part: int, tags: dict[str, str]) -> Files:
    return {
        name: b"".join(pieces) for name, pieces in write.build_set(tensors, tags, "m", max_part)
    }


@given(models(["u8", "f32", "bf16"]), st.integers(1, 200))
def test_what_is_written(tensors: list[TensorSource], max_part: int) -> None:
    files = written(tensors, max_part, {"model_name": "demo", "x": "y"})
    assert files == written(tensors, max_part, {"model_name": "demo", "x": "y"})
    assert list(files)[-2:] == ["m-index.aero", LISTED]
    verdict = check(files)
    assert (verdict.errors, verdict.warnings) == ([], [])
    told = describe(files)
    assert told.tags == {"model_name": "demo", "x": "y"}
    assert [(t.name, t.element, t.shape, bytes(t.data)) for t in told.tensors] == [
        (t.name, t.element, t.shape, content(t)) for t in tensors
    ]
    for name in list(files)[:-2]:
        reading = read_strictly(files[name])
        assert [name for fourcc, name in reading.chunks if fourcc == b"WTSH"] == ["weights.shard0"]
    value = json.loads(files[LISTED])
    assert [part["shards"] for part in value["parts"]] == [[n] for n in range(len(value["parts"]))]
    for member in (*value["parts"], value["global_tidx"]):
        data = files[member["path"]]
        assert (member["size_bytes"], member["sha256"]) == (len(data), sha256(data).hexdigest())


def test_parts_are_filled_up_to_their_limit() -> None:
    tensors = [source(f"t{n}", "u8", (60,)) for n in range(4)]
    assert len(written(tensors, 124, {})) == 2 + 2
    assert len(written(tensors, 123, {})) == 4 + 2
    assert len(written([], 100, {})) == 2


def test_the_listing_can_be_made_first() -> None:
    tensors = [source(f"t{n}", "u8", (60,)) for n in range(3)]
    made = dict(write.build_set(tensors, {}, "m", 60))
    listed = b"".join(made.pop(LISTED))
    files = {name: b"".join(pieces) for name, pieces in made.items()}
    assert check(files | {LISTED: listed}).errors == []


def test_stems_that_no_set_could_be_read_with() -> None:
    for stem in ("../m", "a:b", "a\\b", "a\0"):
        with pytest.raises(FormatError, match="can't be used to name the files"):
            write.build_set([], {}, stem, 100)
