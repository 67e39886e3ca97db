"""FOLD: chunks and metadata exchanged, all else as it was, all hashes anew."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import struct
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.containers import resealing
from tests.containers.fold_files import (
    AES_KEY,
    HMAC_KEY,
    MODEL,
    NOISE,
    built,
    checked,
    edited,
    flipped,
    index_of,
    model_file,
)
from tests.containers.resealing import content, file_of, opened, own
from tests.containers.samples import manifest_entries
from tests.data import fixture
from wtxtgit.containers.fold import payloads, reseal
from wtxtgit.containers.fold.read import Fold
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import MAX_CHUNK, NewContent, PlacedEntry, ReadOptions

ENTRIES = [
    entry
    for entry in manifest_entries()
    if entry["format"] == "FOLD" and "unfinalized" not in entry["file"]
]
FILES = [entry["file"] for entry in ENTRIES]
GOOD = [entry["file"] for entry in ENTRIES if entry["valid"]]
OPTIONS = ReadOptions(MAX_CHUNK, AES_KEY, HMAC_KEY)
NO_KEYS = ReadOptions()
ENCRYPTED = "fold/encrypted_high_a.fold"
FLIPPED = "fold/none_rs16_flipped_a.fold"
INDEX_LEN_AT = slice(20, 28)


def resealed(
    container: Fold,
    placed: Sequence[PlacedEntry],
    values: Mapping[str, object] | None = None,
    options: ReadOptions = OPTIONS,
) -> bytes:
    return resealing.resealed(container, placed, values, options)


def held_by(data: bytes, options: ReadOptions = OPTIONS) -> list[tuple[str, bytes]]:
    found = reseal.entries(opened(data), options)
    return [(entry.name, file_of(entry)) for entry in found]


def with_content(data: bytes, contents: dict[int, bytes], **options: Any) -> bytes:
    """The file with other content in some of its chunks."""
    container = opened(data)
    return resealed(container, own(container, len(container.chunks), contents), **options)


def spaced(data: bytes, trailing: bytes = b"") -> bytes:
    """The same chunks with gaps between them, an index that is spelled otherwise, a tail."""
    container = opened(data)
    index, body = index_of(data), b""
    for chunk, entry in zip(container.chunks, index["chunks"], strict=True):
        body += b"gap"
        entry["offset"] = 28 + len(body)
        body += data[chunk.offset : chunk.end]
    if "merkle_root" in index:
        index["merkle_root"] = payloads.merkle_root(
            (entry["name"], entry["offset"], entry["sha256"]) for entry in index["chunks"]
        )
    index = {**index, "created_at_unix": 1.5, "further": {"\u00fc": [1]}}
    text = json.dumps(index, indent=1).replace("1.5", "15.0e-1").encode()
    start = 28 + len(body)
    return struct.pack(">8sIQQ", b"FOLDv1\0\0", 28, start, len(text)) + body + text + trailing


def without_digits(text: bytes) -> bytes:
    """A text in which no hash is told from another one."""
    return re.sub(rb'[0-9a-f]{64}|("crc32c": ?)[0-9]+', rb"\1", text)


@pytest.mark.parametrize("path", FILES)
def test_what_stays_as_it_is_stays_byte_for_byte(path: str) -> None:
    data = fixture(path)
    container = opened(data)
    for options in (OPTIONS, NO_KEYS, ReadOptions(0)):
        assert resealed(container, own(container, len(container.chunks)), None, options) == data


@pytest.mark.parametrize("path", GOOD)
def test_entries_are_the_chunks(path: str) -> None:
    container = opened(fixture(path))
    found = reseal.entries(container, OPTIONS)
    assert [entry.name for entry in found] == [chunk.name for chunk in container.chunks]
    for entry, chunk in zip(found, container.chunks, strict=True):
        assert file_of(entry) == bytes(payloads.payload(container.data, chunk, OPTIONS))
        assert entry.tensor is None
        assert entry.form in {entry.form}
        if entry.stored is not None:
            assert entry.stored == container.data[chunk.payload_start : chunk.payload_end]
        assert (entry.stored is None) == (path == FLIPPED and chunk is container.chunks[0])


@pytest.mark.parametrize(
    "path",
    [
        "fold/none_rs16_a.fold",
        "fold/none_rs16_flipped_a.fold",
        "fold/none_rs64_emptychunk_a.fold",
        "fold/merkle_high_a.fold",
        "fold/hmac_a.fold",
        "fold/unicode_names_a.fold",
        "fold/duplicate_names_a.fold",
        "fold/nan_json_a.fold",
        "fold/trust_block_high_a.fold",
    ],
)
def test_the_same_content_gives_the_same_file(path: str) -> None:
    data = fixture(path)
    contents = dict(enumerate(raw for _, raw in held_by(data)))
    whole = fixture("fold/none_rs16_a.fold") if path == FLIPPED else data
    assert with_content(data, contents) == whole


@pytest.mark.parametrize("key", [None, HMAC_KEY])
@pytest.mark.parametrize("ecc", [0, 16])
@pytest.mark.parametrize("merkle", [False, True])
def test_content_of_the_same_length_is_patched_in(
    key: bytes | None, ecc: int, merkle: bool
) -> None:
    chunks = [("a", b"BLOB", NOISE), ("b", b"STEN", MODEL), ("c", b"BLOB", NOISE)]
    data = built(*chunks, ecc=ecc, merkle=merkle, integrity_key=key)
    for before in (data, spaced(data)):
        after = with_content(before, {1: MODEL[::-1]})
        findings = checked(after, integrity_key=key)
        # Bytes in no chunk stay, and are told.
        assert {p.field for p in findings.errors} == ({"offset"} if before != data else set())
        assert findings.authenticated is (None if key is None else True)
        assert held_by(after) == [("a", NOISE), ("b", MODEL[::-1]), ("c", NOISE)]
        chunk, start = opened(before).chunks[1], opened(before).index_start
        assert after[28 : chunk.offset] == before[28 : chunk.offset]
        assert after[chunk.end : start] == before[chunk.end : start]
        assert without_digits(after[start:]) == without_digits(before[start:])
        old, new = index_of(before), index_of(after)
        assert [old["chunks"][n] == new["chunks"][n] for n in range(3)] == [True, False, True]
        assert ("merkle_root" in new) is merkle
        if merkle:
            assert old["merkle_root"] != new["merkle_root"]


def test_an_index_that_gets_longer_moves_what_is_behind_it() -> None:
    before = spaced(built(("c", b"BLOB", bytes(9))), b"tail")
    lengths = set()
    for n in range(40):
        after = with_content(before, {0: b"%09d" % n})
        start = opened(after).index_start
        assert start == opened(before).index_start
        assert after.endswith(b"\n}tail")
        lengths.add(len(after))
        assert len(after) == start + int.from_bytes(after[INDEX_LEN_AT], "big") + 4
        # Bytes in no chunk are told, as they were before, and nothing else.
        assert [p.field for p in checked(after).errors] == ["offset", "index_len"]
    assert len(lengths) > 1


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("ecc", [0, 32])
def test_content_of_another_length_moves_what_is_behind_it(compression: str, ecc: int) -> None:
    options: dict[str, Any] = {"compression": compression, "ecc": ecc, "merkle": True}
    chunks = [("a", b"BLOB", NOISE), ("b", b"BLOB", b"x" * 300), ("c", b"STEN", MODEL)]
    data = built(*chunks, metadata={"k": [1]}, **options)
    for new in (b"", b"y", NOISE * 3):
        chunks[1] = ("b", b"BLOB", new)
        after = with_content(data, {1: new})
        assert after == built(*chunks, metadata={"k": [1]}, **options)
        assert checked(after) == Findings()
    # Gaps have no place where chunks move.
    assert len(with_content(spaced(data), {1: b"y"})) < len(spaced(data)) - 9


def test_chunks_of_other_files_keep_their_bytes_and_their_records() -> None:
    mine = built(("a", b"BLOB", b"1"), ("b", b"BLOB", b"2"), ecc=16)
    other = edited(
        built(("z", b"STEN", MODEL), ("b", b"BLOB", NOISE), compression="zstd", ecc=32),
        lambda index: index["chunks"][0].update(further={"x": 1}),
    )
    a, b = opened(mine), opened(other)
    placed = [PlacedEntry(a, 1), PlacedEntry(b, 0), PlacedEntry(b, 1), PlacedEntry(a, 0)]
    after = resealed(a, placed)
    assert checked(after, integrity_key=HMAC_KEY).errors == []
    assert held_by(after) == [("b", b"2"), ("z", MODEL), ("b", NOISE), ("a", b"1")]
    found = opened(after)
    for chunk, one in zip(found.chunks, placed, strict=True):
        source = a if one.source is a else b
        taken = source.chunks[one.number]
        raw = source.data[taken.offset : taken.end]
        assert found.data[chunk.offset : chunk.end] == raw
        assert {**taken.entry, "offset": chunk.offset} == chunk.entry
    assert found.chunks[1].entry["further"] == {"x": 1}
    assert index_of(after)["metadata"]["chunk_hashes"]["b"] == found.chunks[2].entry["sha256"]


def test_content_in_the_form_of_a_chunk_of_another_file() -> None:
    a = opened(model_file())
    keyed = model_file(compression="zstd", ecc=64, integrity_key=HMAC_KEY)
    b = opened(edited(keyed, lambda index: index["chunks"][0].update(further={"x": 1})))
    after = resealed(a, [PlacedEntry(b, 0, content(NOISE)), PlacedEntry(a, 1)])
    chunk = opened(after).chunks[0]
    assert (chunk.name, chunk.flags, chunk.ecc_algo) == ("torch_state", 1, "rs(64)")
    assert chunk.entry["further"] == {"x": 1}
    digest = hashlib.sha256(after[chunk.payload_start : chunk.payload_end]).hexdigest()
    keyed = hmac.new(HMAC_KEY, digest.encode(), "sha256").hexdigest()
    assert chunk.entry["sha256"] == f"hmac-sha256:{keyed}"
    assert checked(after, integrity_key=HMAC_KEY).errors == []
    assert held_by(after)[0] == ("torch_state", NOISE)


def test_files_without_chunks() -> None:
    data = built(("a", b"BLOB", b"1"), merkle=True)
    after = resealed(opened(data), [])
    assert checked(after) == Findings()
    assert held_by(after) == []
    assert index_of(after)["merkle_root"] is None
    empty = opened(fixture("fold/zero_chunks_a.fold"))
    again = resealed(empty, [PlacedEntry(opened(data), 0)])
    assert checked(again) == Findings()
    assert held_by(again) == [("a", b"1")]


def test_names_that_are_there_twice() -> None:
    container = opened(fixture("fold/duplicate_names_a.fold"))
    first, other, second = (raw for _, raw in held_by(bytes(container.data)))
    for n in (0, 2):
        after = with_content(bytes(container.data), {n: b'{"n":9}'})
        wanted = [first, other, second]
        wanted[n] = b'{"n":9}'
        assert [raw for _, raw in held_by(after)] == wanted
        assert checked(after).errors == []
    swapped = resealed(container, [PlacedEntry(container, n) for n in (2, 1, 0)])
    assert [raw for _, raw in held_by(swapped)] == [second, other, first]
    assert checked(swapped).errors == []


@settings(max_examples=40)
@given(st.data())
def test_any_chunks_of_any_files(data: st.DataObject) -> None:
    files = []
    for key in (None, HMAC_KEY):
        chunks = data.draw(
            st.lists(st.tuples(st.sampled_from("abc"), st.just(b"BLOB"), st.binary(max_size=300)))
        )
        made = built(
            *chunks,
            compression=data.draw(st.sampled_from(["none", "zstd"])),
            ecc=data.draw(st.sampled_from([0, 1, 16])),
            merkle=data.draw(st.booleans()),
            integrity_key=key,
        )
        files.append((opened(made), chunks))
    listed = [(one, n) for one, chunks in files for n in range(len(chunks))]
    places = st.tuples(st.sampled_from(listed), st.none() | st.binary(max_size=300))
    drawn = data.draw(st.lists(places, max_size=4, unique_by=lambda p: id(p[0]))) if listed else []
    known = {id(one): chunks for one, chunks in files}
    placed, wanted = [], []
    for (one, n), new in drawn:
        name, _, old = known[id(one)][n]
        placed.append(PlacedEntry(one, n, None if new is None else content(new)))
        wanted.append((name, old if new is None else new))
    values = data.draw(st.none() | st.dictionaries(st.text("xyz"), st.integers(-9, 9) | st.none()))
    after = resealed(files[0][0], placed, values)
    assert checked(after, integrity_key=HMAC_KEY).errors == []
    assert held_by(after) == wanted
    assert reseal.values(opened(after), OPTIONS) == (values or {})


def test_values_are_the_metadata_of_a_person() -> None:
    found = reseal.values(opened(fixture("fold/neuron_signed_high_a.fold")), OPTIONS)
    assert list(found) == ["model_type", "tags", "expression", "reproducibility", "protection"]
    broken = edited(model_file(), lambda index: index.update(metadata=[1]))
    assert reseal.values(opened(broken), OPTIONS) == {}


def test_values_that_are_changed() -> None:
    before = fixture("fold/neuron_signed_high_a.fold")
    container = opened(before)
    values = reseal.values(container, OPTIONS)
    del values["tags"]
    values |= {"protection": "off", "e": {"\u00fc": [None, 1.5]}, "chunk_hashes": 7, "signature": 1}
    after = resealed(container, own(container, len(container.chunks)), values)
    assert checked(after).errors == []
    assert after[28 : container.index_start] == before[28 : container.index_start]
    old, new = index_of(before)["metadata"], index_of(after)["metadata"]
    assert list(new) == [*(key for key in old if key != "tags"), "e"]
    assert (new["protection"], new["e"]) == ("off", {"\u00fc": [None, 1.5]})
    assert new["manifest_hash"] != old["manifest_hash"]
    for key in ("signature", "security_level", "security_features", "chunk_hashes"):
        assert new[key] == old[key]
    for refused in ({"k": b"raw"}, {"k": 2**70}, {"k": "\ud800"}):
        with pytest.raises(FormatError):
            reseal.reseal(container, [], refused, OPTIONS)


def test_the_skeleton_has_the_last_word_on_the_rest() -> None:
    mine = opened(model_file(created_at_unix=5.5, metadata={"security_level": "high", "k": 1}))
    other = opened(model_file(created_at_unix=7, metadata={"security_level": "basic", "k": 2}))
    new = index_of(resealed(mine, own(other, 2), reseal.values(other, OPTIONS)))
    assert new["created_at_unix"] == 5.5
    assert (new["metadata"]["security_level"], new["metadata"]["k"]) == ("high", 2)


def test_forms_say_all_but_the_content() -> None:
    def forms(data: bytes) -> list[object]:
        return [entry.form for entry in reseal.entries(opened(data), OPTIONS)]

    plain = forms(model_file())
    assert plain == forms(built(("x", b"STEN", b"1"), ("y", b"JSON", b"22")))
    assert forms(spaced(model_file())) == plain
    for other in (
        model_file(compression="zstd"),
        model_file(ecc=16),
        model_file(integrity_key=HMAC_KEY),
        built(("x", b"BLOB", b"1"), ("y", b"BLOB", b"22")),
        edited(model_file(), lambda index: [c.update(k={"a": [1]}) for c in index["chunks"]]),
    ):
        assert all(a != b for a, b in zip(forms(other), plain, strict=True))
    keyed = reseal.entries(opened(fixture(ENCRYPTED)), OPTIONS)
    assert len({entry.form for entry in keyed}) == len(keyed)


def test_encrypted_chunks_get_no_content_without_their_key() -> None:
    container = opened(fixture(ENCRYPTED))
    locked = reseal.entries(container, NO_KEYS)
    assert {entry.unread for entry in locked} == {"encrypted"}
    assert all(entry.stored is not None and entry.file is None for entry in locked)
    wrong = reseal.entries(container, ReadOptions(decryption_key=bytes(32)))
    with pytest.raises(FormatError, match="decrypted"):
        file_of(wrong[0])
    contents = held_by(fixture(ENCRYPTED))
    after = resealed(
        container, [PlacedEntry(container, 1), PlacedEntry(container, 0)], None, NO_KEYS
    )
    assert held_by(after) == contents[::-1]
    assert checked(after, decryption_key=AES_KEY).errors == []
    with pytest.raises(FormatError, match="encrypted") as caught:
        reseal.reseal(container, [PlacedEntry(container, 0, content(b"x"))], None, NO_KEYS)
    assert caught.value.field == "encrypted"
    placed = [PlacedEntry(container, 0, content(b"x")), PlacedEntry(container, 1)]
    with_key = resealed(container, placed, None, OPTIONS)
    assert held_by(with_key) == [("msg", b"x"), contents[1]]
    nonces = [[c.entry["nonce_hex"] for c in one.chunks] for one in (container, opened(with_key))]
    assert [a == b for a, b in zip(*nonces, strict=True)] == [False, True]


def test_hmacs_need_their_key() -> None:
    data = fixture("fold/hmac_a.fold")
    container = opened(data)
    assert checked(with_content(data, {0: b"new"}), integrity_key=HMAC_KEY).authenticated is True
    for placed in ([PlacedEntry(container, 0, content(b"new")), PlacedEntry(container, 1)], []):
        with pytest.raises(FormatError, match="key") as caught:
            reseal.reseal(container, placed, None, NO_KEYS)
        assert caught.value.field == "sha256"
    with pytest.raises(FormatError, match="manifest_hash"):
        reseal.reseal(container, [], None, ReadOptions(integrity_key=b"another"))


def test_what_is_mended_is_told_and_kept_as_it_is() -> None:
    data, whole = fixture(FLIPPED), fixture("fold/none_rs16_a.fold")
    assert held_by(data) == held_by(whole)
    container = opened(data)
    assert reseal.entries(container, OPTIONS)[0].stored is None
    moved = resealed(container, [PlacedEntry(container, 1), PlacedEntry(container, 0)])
    assert held_by(moved) == held_by(whole)[::-1]
    assert [p.kind for p in checked(moved).warnings] == ["ecc"]
    for n, one in enumerate(opened(moved).chunks):
        old = container.chunks[1 - n]
        assert moved[one.offset : one.end] == data[old.offset : old.end]


def test_damage_is_not_resealed() -> None:
    plain = model_file()
    damaged = flipped(plain, 70)
    found = reseal.entries(opened(damaged), OPTIONS)
    assert [(entry.unread, entry.file is None) for entry in found] == [
        ("damaged", True),
        (None, False),
    ]
    cases: list[tuple[bytes, str]] = [
        (damaged, "comp_payload"),
        (edited(plain, lambda index: index["metadata"].update(manifest_hash="x")), "manifest_hash"),
        (edited(plain, lambda index: index["metadata"].update(chunk_hashes={})), "chunk_hashes"),
        (edited(plain, lambda index: index.update(merkle_root="x")), "merkle_root"),
        (edited(plain, lambda index: index["chunks"][0].update(crc32c=1)), "crc32c"),
        (edited(plain, lambda index: index["chunks"][0].update(ecc_algo="x")), "ecc_algo"),
        (edited(plain, lambda index: index["chunks"][0].pop("sha256")), "chunk_hashes"),
    ]
    good = opened(plain)
    for data, field in cases:
        bad = opened(data)
        for container, placed in (
            (bad, [PlacedEntry(bad, 0, content(b"new")), PlacedEntry(bad, 1)]),
            (bad, [PlacedEntry(bad, 1), PlacedEntry(bad, 0)]),
            (good, [PlacedEntry(good, 1), PlacedEntry(bad, 0)]),
        ):
            with pytest.raises(FormatError) as caught:
                reseal.reseal(container, placed, None, OPTIONS)
            assert caught.value.field == field
    # The skeleton's own hashes are made anew even where none of its chunks stay.
    with pytest.raises(FormatError):
        reseal.reseal(opened(cases[1][0]), own(good, 2), None, OPTIONS)


def test_metadata_that_are_none() -> None:
    data = edited(model_file(), lambda index: index.update(metadata=[1]))
    container = opened(data)
    with pytest.raises(FormatError, match="not an object"):
        reseal.reseal(container, own(container, 2), {"a": 1}, OPTIONS)


def test_payloads_that_can_not_be_opened_say_why() -> None:
    def unread(data: bytes, options: ReadOptions = OPTIONS) -> str | None:
        return reseal.entries(opened(data), options)[0].unread

    plain = bytearray(model_file())
    plain[35] = 7
    assert unread(bytes(plain)) == "flags are 7, of which some are unknown"
    plain[35] = 0
    plain[43] ^= 1
    assert "uncomp_len" in str(unread(bytes(plain)))
    assert "over 100" in str(unread(model_file(), ReadOptions(100)))
    assert unread(model_file()) is None


def test_limits_hold_for_what_is_given() -> None:
    container = opened(built(("c", b"BLOB", b"x")))
    assert resealed(container, [PlacedEntry(container, 0, content(bytes(9)))], None, ReadOptions(9))
    with pytest.raises(FormatError, match="over 8") as caught:
        reseal.reseal(
            container, [PlacedEntry(container, 0, content(bytes(9)))], None, ReadOptions(8)
        )
    assert (caught.value.kind, caught.value.field) == ("limit", "uncomp_len")
    large = opened(built(("c", b"BLOB", bytes(9)), ("d", b"BLOB", b"")))
    with pytest.raises(FormatError, match="over 8"):
        reseal.reseal(large, [PlacedEntry(large, 0)], None, ReadOptions(8))


def test_content_that_is_not_as_long_as_it_says() -> None:
    container = opened(model_file())
    for wrong in (b"", b"ab", b"abcd"):
        given = NewContent(3, lambda raw=wrong: iter([raw]))  # type: ignore[misc]
        with pytest.raises(FormatError, match="bytes, not 3"):
            reseal.reseal(container, [PlacedEntry(container, 0, given)], None, OPTIONS)


@pytest.mark.parametrize("ecc", [0, 254])
def test_chunks_that_overlap_too_much(ecc: int) -> None:
    data = built(("c", b"BLOB", bytes(3000)), ecc=ecc)
    bomb = opened(edited(data, lambda index: index["chunks"].extend(index["chunks"] * 20)))
    for run in (
        lambda: reseal.entries(bomb, OPTIONS),
        lambda: resealed(bomb, [*own(bomb, 20)]),
        lambda: resealed(bomb, [*own(bomb, 20), PlacedEntry(bomb, 20, content(b"x"))]),
    ):
        with pytest.raises(FormatError, match="overlap") as caught:
            run()
        assert (caught.value.kind, caught.value.field) == ("limit", "offset")


def test_chunks_that_share_bytes_are_taken_apart() -> None:
    data = built(("c", b"BLOB", NOISE))

    def twice(index: dict[str, Any]) -> None:
        index["chunks"].append({**index["chunks"][0], "name": "d"})
        del index["metadata"]["chunk_hashes"], index["metadata"]["manifest_hash"]

    shared = edited(data, twice)
    after = with_content(shared, {0: NOISE[::-1]})
    assert held_by(after) == [("c", NOISE[::-1]), ("d", NOISE)]
    assert checked(after) == Findings()
    both = with_content(shared, {0: NOISE[::-1], 1: bytes(1000)})
    assert held_by(both) == [("c", NOISE[::-1]), ("d", bytes(1000))]


def test_a_chunk_inside_of_another_one_stays() -> None:
    inner = built(("d", b"BLOB", b"1"))
    chunk = opened(inner).chunks[0]
    data = built(("c", b"BLOB", inner[28 : chunk.end]))

    def twice(index: dict[str, Any]) -> None:
        index["chunks"].append({**chunk.entry, "offset": opened(data).chunks[0].payload_start})
        del index["metadata"]["chunk_hashes"], index["metadata"]["manifest_hash"]

    nested = edited(data, twice)
    for n in (0, 1):
        wanted = held_by(nested)
        wanted[n] = (wanted[n][0], b"2" * len(wanted[n][1]))
        after = with_content(nested, {n: wanted[n][1]})
        assert held_by(after) == wanted
        assert checked(after) == Findings()


def inside(data: bytes) -> bytes:
    """The file with a copy of its index, in front of the chunks, as the one that counts."""
    index = index_of(data)
    for entry in index["chunks"]:
        entry["offset"] += 4096
    text = json.dumps(index).encode()
    chunks = data[28 : opened(data).index_start]
    head = struct.pack(">8sIQQ", b"FOLDv1\0\0", 28, 28, len(text))
    return head + text.ljust(4096, b"\0") + chunks


def test_an_index_in_front_of_its_chunks() -> None:
    data = inside(built(("c", b"BLOB", bytes(9)), ("d", b"BLOB", b"")))
    seen = set()
    for n in range(40):
        after = with_content(data, {0: b"%09d" % n})
        assert held_by(after) == [("c", b"%09d" % n), ("d", b"")]
        assert checked(after).errors == []
        # It stands there still only where it is as long as it was.
        is_kept = len(after) == len(data)
        assert opened(after).index_start == 28 if is_kept else opened(after).index_start > 28
        seen.add(is_kept)
    assert seen == {True, False}


def test_a_chunk_whose_parity_reaches_into_the_index_is_laid_out_anew() -> None:
    data = built(("a", b"BLOB", b"1"), ("b", b"BLOB", b"2"))
    start = opened(data).index_start
    overlapping = bytearray(
        edited(data, lambda i: i["chunks"][1].update(ecc_algo="rs(9)", ecc_len=9))
    )
    overlapping[start - 5 : start - 1] = struct.pack(">I", 9)
    before = bytes(overlapping)
    assert opened(before).chunks[1].end == start + 9
    for n in (0, 1):
        after = with_content(before, {n: b"3"})
        wanted = [("a", b"1"), ("b", b"2")]
        wanted[n] = (wanted[n][0], b"3")
        assert held_by(after) == wanted
        assert checked(after).errors == []
        assert opened(after).index_start == start + 9


def test_large_content_comes_in_pieces_and_is_not_held() -> None:
    block = bytes(2**21)
    data = built(("c", b"BLOB", b"x"), ("d", b"BLOB", bytes(2**22)))
    container = opened(data)
    given = NewContent(2**25, lambda: iter([block] * 16))
    tracemalloc.start()
    pieces = reseal.reseal(
        container, [PlacedEntry(container, 0, given), PlacedEntry(container, 1)], None, OPTIONS
    )
    sizes = [len(piece) for piece in pieces]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert max(sizes) <= 2**20
    assert sum(sizes) > 2**25 + 2**22
    assert peak < 2**23


def test_nothing_is_given_before_all_is_known() -> None:
    container = opened(model_file())
    asked = []

    def blocks() -> Iterator[Buffer]:
        asked.append(1)
        yield b"ab"

    reseal.reseal(container, [PlacedEntry(container, 0, NewContent(2, blocks))], None, OPTIONS)
    assert asked == [1]


def rest_of(data: bytes) -> dict[str, object]:
    return reseal.rest(opened(data), OPTIONS)


def test_the_rest_is_what_else_the_index_says() -> None:
    data = model_file()

    def with_key(key: str, value: object) -> bytes:
        return edited(data, lambda index: index.update({key: value}))

    def with_metadata(key: str, value: object) -> bytes:
        return edited(data, lambda index: index["metadata"].update({key: value}))

    plain = rest_of(data)
    again = edited(data, lambda index: index.update({"created_at_unix": 1.5}))
    assert rest_of(again) == rest_of(with_metadata("note", "a value")) == plain
    # A gap that is not zeros is told, the spelling of the index is not.
    assert rest_of(spaced(data)).keys() - plain.keys() == {"/further", "gaps"}
    found = [
        rest_of(with_key("run", {"id": 1})),
        rest_of(with_key("run", {"id": 2})),
        rest_of(with_key("trust_block", "{}")),
        rest_of(with_key("metadata/signature", {"value": "00"})),
        rest_of(with_metadata("signature", {"value": "00"})),
        rest_of(with_metadata("security_level", "other")),
        rest_of(with_metadata("security_features", {})),
        rest_of(with_metadata("sharding", {"shards": 2})),
        rest_of(data + b"behind"),
        rest_of(with_key("merkle_root", "00")),
        rest_of(edited(data, lambda index: index["metadata"].pop("manifest_hash"))),
    ]
    assert plain not in found
    assert all(found.count(one) == 1 for one in found)
    assert rest_of(data + bytes(9)) == plain


@pytest.mark.parametrize("file", GOOD)
def test_the_rest_stays_where_content_changes(file: str) -> None:
    container = opened(fixture(file))
    assert rest_of(resealed(container, own(container, len(container.chunks)))) == rest_of(
        fixture(file)
    )


def test_other_content_is_no_rest() -> None:
    data = model_file()
    assert rest_of(with_content(data, {1: b'{"a":2, "longer": true}'})) == rest_of(data)
