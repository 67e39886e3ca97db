"""AERO: what is checked, and how each finding is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgpack
import pytest
import zstandard

from tests.containers.aero_files import (
    CRITICAL,
    OPTIONAL,
    TOC,
    WEIGHTS,
    Chunk,
    brief,
    changed,
    check,
    digest,
    entry,
    file,
    integrity,
    manifest,
    model,
    pages,
    phsh,
    shard,
    tidx,
)
from tests.data import entries, fixture
from wtxtgit.containers.aero import check as aero_check
from wtxtgit.containers.aero import content, hashes, read
from wtxtgit.containers.any_format import describe
from wtxtgit.model.tensor import ReadOptions

AERO = [item for item in entries() if item["format"] == "AERO"]
WHOLE = memoryview(model())
START = int.from_bytes(WHOLE[TOC + 8 : TOC + 16], "little")
"""Where the index of `model` stands."""
INDEX_END = START + int.from_bytes(WHOLE[TOC + 16 : TOC + 24], "little")
SHARD_START = int.from_bytes(WHOLE[TOC + 88 : TOC + 96], "little")


def only_error(data: bytes, **options: Any) -> tuple[str, str | None, int | None]:
    found = check(data, **options)
    assert len(found.errors) == 1, found.errors
    return brief(found.errors)[0]


def only_warning(data: bytes) -> tuple[str, str | None, int | None]:
    found = check(data)
    assert found.errors == []
    assert len(found.warnings) == 1, found.warnings
    return brief(found.warnings)[0]


def test_a_sound_file_has_no_findings() -> None:
    for data in (model(), model(ihsh=True), model(phsh("weights.shard0", 64, pages(WEIGHTS, 64)))):
        found = check(data)
        assert (found.errors, found.warnings) == ([], [])


def quirky(quirk: str) -> list[bytes]:
    found = [fixture(item["file"]) for item in AERO if quirk in item["quirks"]]
    assert found
    return found


@pytest.mark.parametrize(
    ("quirk", "kind", "field", "words"),
    [
        ("mjsn_blake3_zero_writer_bug", "blake3", "blake3_256", "no hash"),
        ("chunk_offset_beyond_eof_len0", "structure", "chunk_offset", "past the file's end"),
        ("wtsh_compressed_zstd", "structure", "chunk_flags", "WTSH is compressed"),
        ("no_tidx", "structure", "fourcc", "no TIDX"),
        ("two_tidx", "structure", "fourcc", "2 TIDX chunks"),
        ("tidx_overruns_wtsh_writer_bug", "structure", "chunk_offset", "overlaps chunk 'tensors'"),
    ],
)
def test_quirks_that_are_warnings(quirk: str, kind: str, field: str, words: str) -> None:
    for data in quirky(quirk):
        warnings = check(data).warnings
        assert any((w.kind, w.field) == (kind, field) and words in w.message for w in warnings)


def test_zero_filled_entries_and_the_digest_that_saw_them_whole() -> None:
    for data in quirky("ihsh_low_level_write_bug"):
        errors = check(data).errors
        assert brief(errors)[0] == ("structure", "fourcc", TOC + 80)
        assert errors[0].message == "TOC entries filled with zeros: 4 of 5"
        assert ("blake3", "digest") in {(error.kind, error.field) for error in errors}


def test_file_flags() -> None:
    for data in (*quirky("file_flags_nonzero"), model(flags=1), model(flags=1 << 63)):
        assert only_error(data) == ("structure", "file_flags", 44)


def test_a_writer_that_overran_its_weights() -> None:
    for data in quirky("tidx_overruns_wtsh_writer_bug"):
        errors = check(data).errors
        assert {error.kind for error in errors} == {"blake3"}
        assert {error.field for error in errors} >= {"blake3_256", "hash_b3"}
        assert {error.chunk for error in errors} == {"weights.shard0"}


@pytest.mark.parametrize("item", AERO, ids=lambda item: item["file"])
def test_every_byte_of_a_chunk_is_hashed(item: dict[str, Any]) -> None:
    data = fixture(item["file"])
    before = check(data)
    for chunk in describe(memoryview(data)).metadata["chunks"]:  # type: ignore[attr-defined]
        hashed = not any(
            w.field == "blake3_256" and w.chunk == chunk["name"] for w in before.warnings
        )
        if chunk["length"] and hashed and not before.errors:
            for place in (chunk["offset"], chunk["offset"] + chunk["length"] - 1):
                damaged = changed(data, place, "B", data[place] ^ 1)
                assert check(damaged).errors


@pytest.mark.parametrize(
    ("offset", "layout", "value", "expected"),
    [
        (TOC + 48, "32s", bytes(32), ("blake3", "blake3_256", TOC + 48)),
        (TOC + 161, "B", 0, ("structure", "name_off", TOC + 32)),
    ],
)
def test_fields_that_warn(offset: int, layout: str, value: object, expected: object) -> None:
    assert only_warning(changed(model(), offset, layout, value)) == expected


@pytest.mark.parametrize(
    ("offset", "layout", "value", "expected"),
    [
        (68, "<B", 1, ("structure", "reserved", 68)),
        (95, "<B", 1, ("structure", "reserved", 68)),
        (TOC - 12, "<I", 1, ("structure", "reserved0", TOC - 12)),
        (TOC - 8, "<Q", 1, ("structure", "reserved1", TOC - 8)),
        (TOC + 40, "<Q", 1, ("structure", "reserved0", TOC + 40)),
        (TOC + 160, "B", 0xFF, ("structure", "name_off", TOC + 32)),
        (SHARD_START - 1, "B", 7, ("structure", "chunk_offset", INDEX_END)),
    ],
)
def test_what_no_writer_leaves_so(
    offset: int, layout: str, value: object, expected: object
) -> None:
    assert only_error(changed(model(), offset, layout, value)) == expected


def test_a_gap_is_told_where_it_starts() -> None:
    data = model() + b"\0\0x"
    assert only_error(data) == ("structure", "chunk_offset", len(data) - 3)
    assert check(model() + bytes(3)).warnings == []


@pytest.mark.parametrize(
    ("fields", "field", "offset"),
    [
        ({"toc_length": 16 + 80 * 2 + 8}, "toc_length", 20),
        ({"names_length": 23}, "string_table_length", 36),
    ],
)
def test_lengths_and_places_in_the_header(fields: dict[str, int], field: str, offset: int) -> None:
    assert ("structure", field, offset) in brief(check(model(**fields)).errors)


def test_a_toc_that_is_not_behind_the_header() -> None:
    data = model()
    count = int.from_bytes(data[96:100], "little")
    toc = data[96 : 96 + 16 + 80 * count]
    moved = changed(data + toc, 12, "<Q", len(data))
    found = brief(check(moved).errors)
    assert ("structure", "toc_offset", 12) in found
    # Where it stood there is a gap now.
    assert ("structure", "chunk_offset", 96) in found


def test_a_string_table_that_is_not_aligned() -> None:
    data = model() + b"\0"
    names = data[TOC + 160 : TOC + 160 + 24]
    moved = changed(data + names, 28, "<Q", len(data))
    assert len(data) % 8 == 1
    assert ("structure", "string_table_offset", 28) in brief(check(moved).errors)


def test_chunk_names() -> None:
    twice = file([Chunk(b"NOTE", b"n", b"1"), Chunk(b"NOTE", b"n", b"2"), tidx()])
    assert only_error(twice) == ("structure", "name_off", TOC + 80 + 32)
    same = file([Chunk(b"NOTE", b"n", b"1"), Chunk(b"NOTE", b"n", b"1"), tidx()])
    assert only_warning(same) == ("structure", "name_off", TOC + 80 + 32)
    for fine in ([Chunk(b"NOTE", b"", b"1")] * 2, [Chunk(b"N%dTE" % n, b"n", b"") for n in (1, 2)]):
        assert check(file([*fine, tidx()])).warnings == []
    assert only_warning(file([Chunk(b"NOTE", b"a\0b", b"1"), tidx()])) == (
        "structure",
        "name_off",
        TOC + 32,
    )


@pytest.mark.parametrize(("field", "by"), [(32, 1), (32, -1), (36, -1)])
def test_a_name_is_a_whole_one_of_the_table(field: int, by: int) -> None:
    data = model(Chunk(b"NOTE", b"note", b"1"))
    at = TOC + 160 + field
    moved = changed(data, at, "<I", int.from_bytes(data[at : at + 4], "little") + by)
    assert ("structure", "name_off", TOC + 160 + 32) in brief(check(moved).errors)


def test_unknown_types_and_flags_are_fine() -> None:
    found = check(model(Chunk(b"\xff\xfeX ", b"x", b"abc", 0x8000_0000), Chunk(b"NOTE", b"", b"")))
    assert (found.errors, found.warnings) == ([], [])


def test_payloads_that_are_not_aligned_or_overlap() -> None:
    data = model(Chunk(b"NOTE", b"n", WEIGHTS[10:20], offset=SHARD_START + 10))
    first, second = check(data).warnings
    assert brief([first])[0] == ("structure", "chunk_offset", TOC + 160 + 8)
    assert first.chunk == "n"
    moved = int.from_bytes(data[TOC + 160 + 8 : TOC + 160 + 16], "little")
    assert brief([second])[0] == ("structure", "chunk_offset", moved)


def test_a_chunk_over_the_string_table() -> None:
    data = file([Chunk(b"NOTE", b"abcdefgh", b"abcdefgh", offset=TOC + 160), tidx()])
    assert only_warning(data) == ("structure", "chunk_offset", TOC + 160)
    assert check(data).warnings[0].message == "string table overlaps chunk 'abcdefgh'"


def test_hashes_of_chunks() -> None:
    data = model(Chunk(b"NOTE", b"n", b"abc", digest=digest(b"abd")))
    assert only_error(data) == ("blake3", "blake3_256", len(data) - 3)
    assert check(data).errors[0].chunk == "n"
    zipped = model(Chunk(b"NOTE", b"n", b"abc", 1, digest=digest(b"abd")))
    assert only_error(zipped)[:2] == ("blake3", "blake3_256")
    assert check(model(Chunk(b"NOTE", b"n", b"abc", 1))).errors == []


@pytest.mark.parametrize("flags", [0, 1])
@pytest.mark.parametrize("ulen", [2, 4, 0, 2**40])
def test_lengths_of_content(flags: int, ulen: int) -> None:
    data = model(Chunk(b"NOTE", b"n", b"abc", flags, ulen=ulen))
    kind, field, offset = only_error(data)
    assert (kind, field) == ("limit" if flags and ulen == 2**40 else "structure", "chunk_ulen")
    assert offset == int.from_bytes(data[TOC + 160 + 8 : TOC + 160 + 16], "little")


def test_frames_that_can_not_be_read() -> None:
    good = zstandard.compress(b"abc" * 100)
    for stored in (b"", b"abc", good[:-1], good[:-3] + b"\xff\xff\xff"):
        note = Chunk(b"NOTE", b"n", b"abc" * 100, 1, stored)
        assert only_error(model(note))[0] == "structure"
    data = model(Chunk(b"NOTE", b"n", b"abc" * 100, 1, good + b"more"))
    assert only_error(data) == ("structure", "chunk_length", len(data) - 4)
    data = model(Chunk(b"NOTE", b"n", b"abc" * 100, 1, good + bytes(4)))
    assert only_warning(data) == ("structure", "chunk_length", len(data) - 4)


@pytest.mark.parametrize("fourcc", [b"MJSN", b"MMSG", b"PHSH", b"IHSH"])
@pytest.mark.parametrize("flags", [0, 1])
def test_metadata_over_2_gb_is_not_decoded(fourcc: bytes, flags: int) -> None:
    chunk = Chunk(fourcc, b"x", b"{}", flags, ulen=2 * 2**30 + 1)
    found = check(model(chunk), max_chunk=2**40)
    told = {(error.kind, error.field) for error in found.errors}
    never = {("structure", "chunk_flags")} if flags and fourcc in (b"PHSH", b"IHSH") else set()
    assert told == {("limit", "chunk_ulen")} | never


def test_a_string_table_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read.MAX_STRING_TABLE == 512 * 2**20
    monkeypatch.setattr(aero_check, "MAX_STRING_TABLE", 23)
    assert only_error(model()) == ("limit", "string_table_length", 36)
    monkeypatch.setattr(aero_check, "MAX_STRING_TABLE", 24)
    assert check(model()).errors == []


def test_names_that_are_too_long_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aero_check, "MAX_NAMES", len("tensorsweights.shard0") - 1)
    assert only_error(model()) == ("limit", "name_len", 96)


def test_too_many_entries() -> None:
    data = changed(model(), 96, "<I", 1_000_001)
    assert only_error(data) == ("limit", "entry_count", 96)


def test_a_bomb_is_not_decoded_further_than_allowed() -> None:
    bomb = Chunk(b"NOTE", b"n", bytes(2**20), 1)
    data = model(bomb)
    assert len(data) < 2000
    assert check(data).errors == []
    assert only_error(data, max_chunk=2**20 - 1)[:2] == ("limit", "chunk_ulen")
    one_more = Chunk(b"NOTE", b"m", bytes(2**20), 1, digest=digest(b""))
    others = [Chunk(b"NOTE", b"n%d" % n, bytes(2**20), 1) for n in range(3)]
    assert only_error(model(bomb, *others, one_more), max_chunk=2**20)[:2] == (
        "limit",
        "chunk_ulen",
    )


def test_chunks_that_share_bytes_are_hashed_a_bounded_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(content, "LEAST_HASHED", 0)
    raw = WEIGHTS * 10

    def with_copies(start: int) -> bytes:
        copies = [
            Chunk(b"NOTE", b"", raw, digest=bytes([1 + n % 250, n // 250]) * 16, offset=start)
            for n in range(300)
        ]
        return model(Chunk(b"NOTE", b"", raw), *copies)

    data = with_copies(with_copies(0).index(raw))
    kinds = [error.kind for error in check(data).errors]
    assert len(kinds) == 300
    # Those that were looked at have wrong hashes.
    assert 20 < kinds.count("blake3") < 100
    assert set(kinds) == {"blake3", "limit"}


def test_equal_entries_are_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "LEAST_HASHED", 0)
    data = model(*[Chunk(b"NOTE", b"n", WEIGHTS, offset=SHARD_START)] * 500)
    assert [error for error in check(data).errors if error.kind == "limit"] == []


@pytest.mark.parametrize(
    ("item", "field"),
    [
        (entry("a", [-50], 0, 200), "shape"),
        (entry("a", [50, -1], 0, 200), "shape"),
        (entry("a", [51], 0, 200), "data_len"),
        (entry("a", [2**60, 2**60, 2**60], 0, 200), "data_len"),
        (entry("a", [50], 0, 200, shard_id=1), "shard_id"),
        (entry("a", [50], 0, 200, hash_b3="ab"), "hash_b3"),
        (entry("a", [50], 0, 200, hash_b3=7), "hash_b3"),
        (entry("a", [42], 0, 200), "data_len"),
        (entry("a", [50], 0, 200, dtype=77), "dtype"),
    ],
)
def test_index_entries_that_are_errors(item: dict[str, Any], field: str) -> None:
    assert only_error(file([tidx(item), shard(WEIGHTS)]))[:2] == ("structure", field)


@pytest.mark.parametrize(
    ("items", "field"),
    [
        ([entry("b", [50], 100, 200), entry("a", [50], 0, 200)], "data_off"),
        ([entry("b", [50], 0, 200), entry("a", [50], 0, 200)], "data_off"),
    ],
)
def test_index_entries_that_warn(items: list[dict[str, Any]], field: str) -> None:
    data = file([tidx(*items), shard(WEIGHTS)])
    assert only_warning(data) == ("structure", field, START)
    assert check(data).warnings[0].chunk == "tensors"


def test_a_name_that_is_there_twice_hides_a_tensor() -> None:
    one = entry("a", [50], 0, 200)
    for other in (entry("a", [50], 200, 200), entry("a", [5, 10], 0, 200), one | {"x": 1}):
        data = file([tidx(one, other), shard(WEIGHTS)])
        assert ("structure", "name", START) in brief(check(data).errors)
    found = check(file([tidx(one, one), shard(WEIGHTS)]))
    assert found.errors == []
    assert {warning.field for warning in found.warnings} == {"name", "data_off"}


def test_weights_without_an_index_are_out_of_reach() -> None:
    for data in (
        file([shard(WEIGHTS)]),
        # One bit of the type, with and without a manifest that says what it was.
        changed(model(), TOC, "4s", b"TIDY"),
        changed(model(manifest()), TOC, "4s", b"TIDY"),
    ):
        assert ("structure", "fourcc") in {(e.kind, e.field) for e in check(data).errors}
    assert only_warning(file([Chunk(b"NOTE", b"n", b"x")])) == ("structure", "fourcc", 96)
    assert only_warning(file([shard(b"")])) == ("structure", "fourcc", 96)


@pytest.mark.parametrize(
    ("fourcc", "name"),
    [
        *[(b"MJSN", b"meta.json"), (b"MMSG", b"manifest"), (b"TIDX", b"tensors")],
        *[(b"IHSH", b"control.integrity"), (b"WTSH", b"weights.shard7")],
        (b"PHSH", b"weights.shard7.phsh"),
    ],
)
def test_an_unknown_type_under_the_name_of_a_known_one(fourcc: bytes, name: bytes) -> None:
    data = model(Chunk(b"NOTE", name, b"{}"))
    assert only_error(data) == ("structure", "fourcc", TOC + 160)
    assert fourcc.decode() in check(data).errors[0].message
    assert check(model(Chunk(b"NOTE", name + b"x", b"{}"))).errors == []


def test_a_known_type_under_the_name_of_another_one() -> None:
    """Of two indexes the second becomes the first where the type of the first is another one."""
    second = replace(tidx(), name=b"tensors2")
    data = file([*[tidx(entry("a", [50], 0, 200)), second], shard(WEIGHTS)])
    assert check(data).errors == []
    assert ("structure", "fourcc", TOC) in brief(check(changed(data, TOC, "4s", b"WTSH")).errors)


def test_a_second_index_that_lists_more() -> None:
    one, two = entry("a", [50], 0, 200), entry("b", [50], 200, 200)
    weights = shard(WEIGHTS)
    for second in (tidx(), tidx(one), tidx(one, two)):
        found = check(file([tidx(one, two), replace(second, name=b"tensors2"), weights]))
        assert found.errors == []
        assert [warning.field for warning in found.warnings] == ["fourcc"]
    for second in (tidx(two), tidx(one | {"shape": [5, 10]}), Chunk(b"TIDX", b"t", b"\xc1")):
        data = file([tidx(one), replace(second, name=b"tensors2"), weights])
        assert only_error(data)[:2] == ("structure", "fourcc")


def test_more_than_one_further_index_is_not_looked_into() -> None:
    again = [Chunk(b"TIDX", b"t%d" % n, msgpack.packb({"tensors": []})) for n in range(3)]
    assert check(file([tidx(), *again[:1]])).errors == []
    assert only_error(file([tidx(), *again[:2]]))[:2] == ("structure", "fourcc")


def test_metadata_twice() -> None:
    for fourcc in (b"MJSN", b"MMSG"):
        raw = {b"MJSN": b"{}", b"MMSG": b"\x80"}[fourcc]
        same = [Chunk(fourcc, b"", raw), Chunk(fourcc, b"", raw, 1)]
        assert only_warning(model(*same))[:2] == ("structure", "fourcc")
        other = [Chunk(fourcc, b"", raw), Chunk(fourcc, b"", b"[1]")]
        assert only_error(model(*other))[:2] == ("structure", "fourcc")


def test_metadata_without_a_hash_has_to_be_readable() -> None:
    for fourcc, field, raw in ((b"MJSN", "mjsn", b"{\xc1"), (b"MMSG", "mmsg", b"\x81\xc1")):
        bare = Chunk(fourcc, b"m", raw, digest=bytes(32))
        assert only_error(model(bare))[:2] == ("structure", field)
        # A hash shows that it is what the writer put there.
        assert only_warning(model(Chunk(fourcc, b"m", raw)))[:2] == ("structure", "chunk")


def test_shared_bytes_count_as_both_only_where_hashes_show_it() -> None:
    note = Chunk(b"NOTE", b"n", WEIGHTS[16:32], offset=SHARD_START + 96)
    assert check(model(note)).errors == []
    held = Chunk(b"NOTE", b"n", WEIGHTS[16:32], offset=SHARD_START + 96, digest=bytes(32))
    errors = check(model(held)).errors
    assert ("structure", "chunk_offset") in {(error.kind, error.field) for error in errors}


@pytest.mark.parametrize(
    "items",
    [
        [entry("a", [43], 0, 200)],
        [entry("a", [0, 2**63], 0, 0), entry("s", [], 396, 4)],
        [entry("a", [7], 0, 200, dtype=0x8000)],
        [entry("a", [50], 0, 200, hash_b3=""), entry("e", [0], 10**9, 0)],
        [entry("a", [50], 0, 200, hash_b3=digest(WEIGHTS[:200]).hex(), quant_id=3)],
    ],
)
def test_index_entries_that_are_fine(items: list[dict[str, Any]]) -> None:
    found = check(file([tidx(*items), shard(WEIGHTS)]))
    assert (found.errors, found.warnings) == ([], [])


def test_hashes_of_tensors() -> None:
    wrong = entry("b", [50], 200, 200, hash_b3=digest(b"").hex())
    data = file([tidx(wrong), shard(WEIGHTS)])
    assert only_error(data) == ("blake3", "hash_b3", data.index(WEIGHTS) + 200)
    assert "tensor 'b'" in check(data).errors[0].message
    packed = file([tidx(wrong), shard(WEIGHTS, flags=1)])
    assert only_error(packed)[:2] == ("blake3", "hash_b3")
    empty = entry("e", [0], 0, 0, hash_b3=digest(b"x").hex())
    assert only_error(file([tidx(empty), shard(WEIGHTS)]))[:2] == ("blake3", "hash_b3")


def test_tensors_of_a_compressed_shard_lie_in_its_content() -> None:
    inside = file([tidx(entry("a", [50], 200, 200)), shard(bytes(400), flags=1)])
    assert check(inside).errors == []
    outside = file([tidx(entry("a", [50], 201, 200)), shard(bytes(400), flags=1)])
    assert only_error(outside)[:2] == ("structure", "data_off")


def page_file(*chunks: Chunk) -> bytes:
    return file([tidx(), shard(WEIGHTS), *chunks])


def test_pages() -> None:
    good = pages(WEIGHTS, 64)
    assert len(good) == 7
    for size, count in ((64, 7), (400, 1), (4 << 20, 1), (399, 2)):
        digests = pages(WEIGHTS, size)
        assert len(digests) == count
        assert check(page_file(phsh("weights.shard0", size, digests))).errors == []
    damaged = page_file(phsh("weights.shard0", 64, [*good[:5], digest(b""), good[6]]))
    assert only_error(damaged) == ("blake3", "digests", damaged.index(WEIGHTS) + 5 * 64)
    assert "page 5" in check(damaged).errors[0].message
    empty = file([tidx(), shard(b""), phsh("weights.shard0", 64, [])])
    assert check(empty).errors == []


def test_pages_of_a_compressed_shard_are_those_of_its_content() -> None:
    good = phsh("weights.shard0", 64, pages(WEIGHTS, 64))
    assert check(file([tidx(), shard(WEIGHTS, flags=1), good])).errors == []
    wrong = phsh("weights.shard0", 400, [digest(b"")])
    assert only_error(file([tidx(), shard(WEIGHTS, flags=1), wrong]))[:2] == ("blake3", "digests")


@pytest.mark.parametrize(
    ("chunk", "field"),
    [
        (phsh("weights.shard0", 0, []), "page_size"),
        (phsh("weights.shard0", -1, []), "page_size"),
        (phsh("weights.shard0", True, []), "page_size"),
        (phsh("weights.shard0", 2.0, []), "page_size"),
        (phsh("weights.shard0", 64, [bytes(32)] * 6), "digests"),
        (phsh("weights.shard0", 64, []), "digests"),
        (phsh("weights.shard0", 400, [bytes(31)]), "digests"),
        (phsh("weights.shard0", 400, ["ab" * 16]), "digests"),
        (phsh("weights.shard0", 400, None), "digests"),
        (phsh(None, 400, [digest(WEIGHTS)]), "shard_name"),
        (Chunk(b"PHSH", b"p", b"\x90"), "PHSH"),
        (Chunk(b"PHSH", b"p", b"\x81"), "phsh"),
        (Chunk(b"PHSH", b"p", b""), "phsh"),
    ],
)
def test_page_hashes_that_are_wrong(chunk: Chunk, field: str) -> None:
    assert only_error(page_file(chunk))[:2] == ("structure", field)


@pytest.mark.parametrize(
    ("chunks", "field"),
    [
        ([phsh("weights.shard7", 400, [bytes(32)])], "shard_name"),
        ([phsh("weights.shard0", 400, [digest(WEIGHTS)])] * 2, "shard_name"),
        (
            [Chunk(b"PHSH", b"p", phsh("weights.shard0", 400, [digest(WEIGHTS)]).content)],
            "name_off",
        ),
    ],
)
def test_page_hashes_that_warn(chunks: list[Chunk], field: str) -> None:
    found = check(page_file(*chunks))
    assert found.errors == []
    assert ("structure", field) in {(warning.kind, warning.field) for warning in found.warnings}


def test_page_hashes_that_are_compressed_are_not_looked_at() -> None:
    data = page_file(phsh("weights.shard0", 400, [bytes(32)], flags=1))
    assert only_error(data)[:2] == ("structure", "chunk_flags")


def test_too_many_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "MAX_PAGES", 6)
    data = page_file(phsh("weights.shard0", 64, pages(WEIGHTS, 64)))
    assert only_error(data)[:2] == ("limit", "digests")


def test_page_hashes_that_share_bytes_are_read_a_bounded_number_of_times() -> None:
    one = phsh("weights.shard9", 1, [bytes(32)] * 1000)

    def with_copies(start: int) -> bytes:
        copies = [replace(one, offset=start, digest=bytes(32))] * 4
        return page_file(one, *copies)

    data = with_copies(with_copies(0).index(one.content))
    limits = [found for found in brief(check(data).errors) if found[0] == "limit"]
    assert limits == [("limit", "chunk_offset", data.index(one.content))] * 4


def control_end(data: bytes) -> int:
    return int.from_bytes(data[TOC + 8 : TOC + 16], "little")


def resealed(data: bytes, payload: bytes) -> bytes:
    """The file with another IHSH payload, whose chunk hash holds."""
    start = control_end(data)
    payload = payload.ljust(256, b"\0")
    data = data[:start] + payload + data[start + 256 :]
    return changed(data, TOC + 48, "32s", digest(payload))


SEALED = model(ihsh=True)


def test_the_control_region_is_sealed() -> None:
    start = control_end(SEALED)
    for place in (52, 67, TOC + 4, TOC + 80 + 4, start - 1):
        found = check(changed(SEALED, place, "B", SEALED[place] ^ 0x80))
        assert ("blake3", "digest", start) in brief(found.errors)
    # The hashes in the TOC are no part of it.
    found = check(changed(SEALED, TOC + 80 + 48, "32s", digest(b"")))
    assert [error.field for error in found.errors] == ["blake3_256"]


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        (integrity(bytes(31), [[0, 96]]), "digest"),
        (integrity(b"", [[0, 96]]), "digest"),
        (integrity(bytes(32), [[0, 10**9]]), "covered_ranges"),
        (integrity(bytes(32), [[9, 8]]), "covered_ranges"),
        (integrity(bytes(32), [[-1, 8]]), "covered_ranges"),
        (integrity(bytes(32), [[0]]), "covered_ranges"),
        (integrity(bytes(32), ["ab"]), "covered_ranges"),
        (integrity(bytes(32), {"0": 96}), "covered_ranges"),
        (b"\x90", "IHSH"),
        (b"\xc1", "ihsh"),
        (b"\xdf", "algo"),
        (integrity(bytes(32), [[0, 96]], 7), "algo"),
    ],
)
def test_seals_that_are_wrong(payload: bytes, field: str) -> None:
    kind, found, offset = only_error(resealed(SEALED, payload))
    assert (kind, found) == ("structure", field)
    assert offset is not None
    assert offset >= control_end(SEALED)


def test_a_seal_of_too_much() -> None:
    ranges = [[0, 300]] * 50_000
    content = msgpack.packb({"algo": "blake3-256", "covered_ranges": ranges, "digest": bytes(32)})
    data = file([Chunk(b"IHSH", b"s", content, OPTIONAL), tidx()])
    assert only_error(data)[:2] == ("limit", "chunk_offset")


def test_seals_of_other_algorithms_and_of_less() -> None:
    other = resealed(SEALED, integrity(bytes(32), [[0, 96]], "sha-3"))
    assert only_error(other) == ("blake3", "algo", control_end(SEALED))
    start = control_end(SEALED)
    part = resealed(SEALED, integrity(digest(SEALED[:96]), [[0, 96]]))
    assert only_warning(part) == ("structure", "covered_ranges", start)


def test_a_seal_in_several_ranges() -> None:
    start = control_end(SEALED)
    zeroed = bytearray(SEALED[:start])
    for place in range(3):
        zeroed[TOC + 80 * place + 48 : TOC + 80 * place + 80] = bytes(32)
    ranges = [[96, start], [50, 170], [0, 96]]
    value = digest(b"".join(bytes(zeroed[first:end]) for first, end in ranges))
    found = check(resealed(SEALED, integrity(value, ranges)))
    assert (found.errors, found.warnings) == ([], [])


def test_a_seal_that_is_not_first() -> None:
    data = file([tidx(), Chunk(b"IHSH", b"s", integrity(digest(b""), []), OPTIONAL)])
    fields = [warning.field for warning in check(data).warnings]
    assert fields == ["covered_ranges", "chunk_offset"]


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"chunks": [{"fourcc": "WTSH", "toc_index": 0}]}, "chunks"),
        ({"chunks": [{"fourcc": "TIDX", "toc_index": 3}]}, "chunks"),
        ({"chunks": [{"fourcc": "TIDX", "toc_index": -1}]}, "chunks"),
        ({"chunks": [{"fourcc": "TIDX"}]}, "chunks"),
        ({"shards": [{"toc_index": 0, "size_bytes": 400}]}, "shards"),
        ({"shards": [{"toc_index": 1, "size_bytes": 401}]}, "shards"),
        ({"shards": [{"toc_index": 9, "size_bytes": 400}]}, "shards"),
    ],
)
def test_manifests_at_odds_with_the_toc(value: dict[str, object], field: str) -> None:
    data = model(manifest(**value))
    assert only_error(data)[:2] == ("structure", field)
    assert check(data).errors[0].chunk == "manifest"


def test_manifests_that_say_nothing_wrong() -> None:
    for value in (
        {"chunks": [{"fourcc": "TIDX", "toc_index": 0}, 7], "shards": "none"},
        {"shards": [{"toc_index": 1, "size_bytes": 400}]},
        {},
    ):
        assert check(model(manifest(**value))).warnings == []


def test_an_index_without_shards_is_one_of_a_set() -> None:
    index = tidx(entry("a", [50], 0, 200, shard_id=5))
    assert only_warning(file([manifest(shards=[]), index])) == ("structure", "shard_id", 96)
    # Where the manifest does not say so, the shard is missed.
    lost = file([manifest(shards=[{"toc_index": 2, "size_bytes": 400}]), index])
    assert ("structure", "shard_id") in {(e.kind, e.field) for e in check(lost).errors}
    assert only_error(file([index]))[:2] == ("structure", "shard_id")
    assert only_error(file([manifest(shards=[]), index, shard(WEIGHTS)]))[1] == "shard_id"


def test_findings_are_bounded() -> None:
    many = [entry("a", [51], 0, 200) for _ in range(3000)]
    found = check(file([tidx(*many), shard(WEIGHTS)]))
    assert len(found.errors) == len(found.warnings) == found.errors.MOST + 1
    assert ReadOptions().max_chunk == 2**30


def test_flags_of_shards_do_not_matter() -> None:
    for flags in (0, CRITICAL, OPTIONAL, 0xFFFF_FFFE):
        data = file([tidx(entry("a", [50], 0, 200)), shard(WEIGHTS, flags=flags)])
        assert check(data).warnings == []
