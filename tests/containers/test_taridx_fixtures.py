"""TARIDX: what the manifest says of each index; its tars give the same index again."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import entries, fixture
from wtxtgit.containers.any_format import check
from wtxtgit.containers.tar_index import Tar
from wtxtgit.containers.taridx import tar, write
from wtxtgit.containers.taridx.read import Taridx, read
from wtxtgit.containers.taridx.shards import check_shards, find, find_in_shards
from wtxtgit.errors import FormatError

ENTRIES = [entry for entry in entries() if entry["format"] == "TARIDX"]
FID_ONE_TOO_SMALL = "fid_off_by_one_after_empty_shard"
FILTERED = "filtered_state_n_stems_stale"
each = pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e["file"])


def opened(entry: dict[str, Any]) -> Taridx:
    return read(memoryview(fixture(entry["file"])))


def shards_of(entry: dict[str, Any]) -> list[Tar]:
    paths = [shard["file"] for shard in entry["shards"]]
    assert [path.rpartition("/")[2] for path in paths] == tar.shards_of(
        [path.rpartition("/")[2] for path in reversed(paths)],
        entry["file"].rpartition("/")[2].removesuffix(".taridx"),
    )
    return [Tar(path.rpartition("/")[2], memoryview(fixture(path))) for path in paths]


def keyhash_of(entry: dict[str, Any]) -> Callable[[str], int]:
    """The hash that the fixture's writer was told to use."""
    bits = entry["options"].get("weak_hash_bits") or 64
    return lambda stem: tar.keyhash(stem) & ((1 << bits) - 1)


def loads(entry: dict[str, Any]) -> bool:
    """Whether the original reader loaded the index, tables and all."""
    wrong = "upstream_load_wrong_crash_table" in entry["quirks"]
    return entry["upstream_reader"].startswith("ok") and not wrong


def test_there_are_fixtures() -> None:
    assert len(ENTRIES) >= 26


@each
def test_header_tables_and_rows(entry: dict[str, Any]) -> None:
    index = opened(entry)
    for field in ("n_stems", "n_rows", "n_ext", "n_crash", "off_crash", "off_arr", "flags"):
        assert getattr(index.header, field) == entry["header"][field]
    assert index.extensions() == entry["ext_table"]
    assert index.crash_stems() == entry["crash_table"]
    listed = index.rows().tolist()
    assert listed == [
        (
            row["fid"],
            row["offset"],
            row["size"],
            entry["ext_table"].index(row["ext"]),
            row["crashid"],
            int(row["keyhash"], 16),
        )
        for row in entry["rows"]
    ]


@each
def test_a_valid_index_has_no_errors(entry: dict[str, Any]) -> None:
    assert entry["valid"]
    found = check(memoryview(fixture(entry["file"])))
    assert found.errors == []
    messages = " ".join(problem.message for problem in found.warnings)
    fails = "upstream_load_fails_n_ext" in entry["quirks"] or "n_ext" in entry["upstream_reader"]
    wrong = "upstream_load_wrong_crash_table" in entry["quirks"]
    assert ("the original reader fails" in messages) == (fails or wrong)
    assert ("n_stems is" in messages) == (FILTERED in entry["quirks"])
    assert ("bits of xxh64" in messages) == bool(entry["options"].get("weak_hash_bits"))


@each
def test_every_row_fits_its_shard(entry: dict[str, Any]) -> None:
    found = check_shards(opened(entry), shards_of(entry))
    assert found.errors == []
    fields = [problem.field for problem in found.warnings]
    quirks = {FID_ONE_TOO_SMALL: "fid", FILTERED: "n_rows"}
    assert fields == [field for quirk, field in quirks.items() if quirk in entry["quirks"]]


@each
def test_every_member_is_found_by_its_name(entry: dict[str, Any]) -> None:
    index, shards = opened(entry), shards_of(entry)
    stems = [row["stem_on_disk"] if row["payload_ok"] else None for row in entry["rows"]]
    for place, (row, stem) in enumerate(zip(entry["rows"], stems, strict=True)):
        if stem is None:
            continue
        name = f"{stem}.{row['ext']}" if row["ext"] else stem
        places = find(index, name)
        assert place in places
        found = list(find_in_shards(index, places, name, shards))
        assert row["payload_sha256"] in [sha256(member.data).hexdigest() for member in found]


@each
def test_the_tars_give_the_same_index(entry: dict[str, Any]) -> None:
    """But for an old writer's fids after an empty shard, and rows that were filtered out."""
    shards = [(shard.name, shard.data) for shard in shards_of(entry)]
    if not loads(entry):
        # The original writer makes an index of them that its reader can't load.
        with pytest.raises(FormatError, match=r"member .* the format's own reader can't load it"):
            write.index(shards, keyhash=keyhash_of(entry))
        return
    made = write.index(
        shards,
        contiguous="rows_sorted_by_keyhash" in entry["quirks"],
        keyhash=keyhash_of(entry),
    )
    held = memoryview(fixture(entry["file"]))
    if FID_ONE_TOO_SMALL in entry["quirks"]:
        rows = read(held).rows()
        assert (made.rows["fid"] == rows["fid"]).tolist() == (rows["fid"] == 0).tolist()
        assert (made.rows["fid"] - rows["fid"]).tolist() == [0] * 6 + [1] * 6
        rows = rows.copy()
        rows["fid"] = made.rows["fid"]
        held = memoryview(bytes(held[: -rows.nbytes]) + rows.tobytes())
    if FILTERED in entry["quirks"]:
        rows = read(held).rows()
        assert made.extensions == tuple(entry["ext_table"])
        assert made.n_stems == entry["header"]["n_stems"]
        assert set(rows.tolist()) < set(made.rows.tolist())
    else:
        assert b"".join(made.pieces()) == held


def test_after_an_empty_shard_members_are_found_in_the_right_one() -> None:
    (entry,) = (e for e in ENTRIES if e["file"] == "taridx/empty_middle_a/train.taridx")
    index, shards = opened(entry), shards_of(entry)
    for name in ("b0000.json", "b0001.json"):
        (member,) = find_in_shards(index, find(index, name), name, shards)
        assert member.name.endswith(name)
        assert np.frombuffer(member.data, np.uint8).size == 23


@given(
    st.sampled_from(ENTRIES),
    st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_a_damaged_index_raises_nothing_but_what_read_says(
    entry: dict[str, Any], changes: list[tuple[int, int]]
) -> None:
    data = bytearray(fixture(entry["file"]))
    for place, value in changes:
        data[place % len(data)] = value
    check(memoryview(data))
    try:
        index = read(memoryview(data))
        index.extensions()
    except FormatError:
        return
    shards = shards_of(entry)
    check_shards(index, shards)
    for name in ("s0000.jpg", "k0003.txt", ""):
        list(find_in_shards(index, find(index, name), name, shards))
