"""FOLD: what a check says of files of the original writers, and of each thing that is wrong."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from contextlib import suppress
from hashlib import sha256
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

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
    told,
    with_index,
)
from tests.containers.samples import manifest_entries
from tests.data import fixture
from wtxtgit.containers import any_format, registry
from wtxtgit.containers.fold import check as fold_check
from wtxtgit.containers.fold import describe, payloads, read, repack
from wtxtgit.errors import FormatError
from wtxtgit.model.tensor import ReadOptions

ENTRIES = [entry for entry in manifest_entries() if entry["format"] == "FOLD"]
KEYS = {"decryption_key": AES_KEY, "integrity_key": HMAC_KEY}
WARNED = {
    "duplicate_chunk_names": ("manifest", "chunk_hashes"),
    "ecc_recoverable_damage": ("ecc", "ecc_payload"),
    "ecc_broken_parity_old_writer": ("ecc", "ecc_payload"),
    "crc32c_field_is_zlib_crc32": ("crc32c", "crc32c"),
    "invalid_json_chunk": ("structure", "comp_payload"),
    "nan_in_json_chunk": ("structure", "comp_payload"),
}
"""Quirks of which a warning tells."""
PLAIN = model_file()
FIRST = 28
"""Where the first chunk stands."""
PAYLOAD = FIRST + 32
SECOND = PAYLOAD + len(MODEL)


def test_there_are_fixtures() -> None:
    assert len(ENTRIES) > 40
    assert {quirk for entry in ENTRIES for quirk in entry["quirks"]} >= WARNED.keys()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e["file"])
def test_each_file_of_the_original_writers(entry: dict[str, Any]) -> None:
    found = checked(fixture(entry["file"]), **KEYS)
    assert (not found.errors) == entry["valid"], found.errors
    expected = {WARNED[quirk] for quirk in entry["quirks"] if quirk in WARNED}
    assert {(problem.kind, problem.field) for problem in found.warnings} == expected


def test_a_file_that_was_not_finalized() -> None:
    [error] = checked(fixture("fold/unfinalized_a.fold")).errors
    assert (error.kind, error.offset, error.field) == ("structure", 12, "index_off")
    assert "not finalized" in error.message


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("ecc", [0, 16])
def test_any_byte_of_a_payload_that_is_wrong_is_found(compression: str, ecc: int) -> None:
    data = built(("c", b"BLOB", NOISE), compression=compression, ecc=ecc)
    comp_len = index_of(data)["chunks"][0]["comp_len"]
    for at in range(PAYLOAD, PAYLOAD + comp_len, 41):
        found = checked(flipped(data, at))
        if ecc:
            assert not found.errors
            assert told(found.warnings) == [("ecc", "ecc_payload", PAYLOAD, "c")]
        else:
            assert told(found.errors) == [
                ("sha256", "sha256", PAYLOAD, "c"),
                ("crc32c", "crc32c", PAYLOAD, "c"),
            ]


@pytest.mark.parametrize(
    ("field", "at", "also"),
    [
        ("ctype", 0, []),
        ("flags", 7, [("flags", 4)]),
        ("uncomp_len", 15, [("uncomp_len", 8)]),
        ("crc32c", 27, [("crc32c", 32)]),
    ],
)
def test_headers_and_index_must_agree(field: str, at: int, also: list[tuple[str, int]]) -> None:
    found = checked(flipped(PLAIN, FIRST + at, mask=0x02))
    start = {"ctype": 0, "flags": 4, "uncomp_len": 8, "crc32c": 24}[field]
    expected = {(field, FIRST + start)} | {(name, FIRST + place) for name, place in also}
    assert {(p.field, p.offset) for p in found.errors} == expected
    assert {p.chunk for p in found.errors} == {"torch_state"}


def test_a_json_chunk_with_a_key_twice() -> None:
    found = checked(built(("notes", b"JSON", b'{"a":{"b":1,"b":2}}')))
    assert found.errors == []
    (warning,) = found.warnings
    assert warning.message == "content has an object with a key twice; readers may use either"


@pytest.mark.parametrize(
    ("field", "value", "offset"),
    [
        ("ctype", "JSON", 0),
        ("ctype", None, 0),
        ("flags", 1, 4),
        ("flags", False, 4),
        ("uncomp_len", 1, 8),
        ("comp_len", 1, 16),
        ("comp_len", float(len(MODEL)), 16),
        ("crc32c", 1, 24),
        ("crc32c", "1", 24),
        ("ecc_len", 16, 28),
        ("header_len", 28, 0),
        ("header_len", None, 0),
    ],
)
def test_what_the_index_has_wrong(field: str, value: object, offset: int) -> None:
    data = edited(PLAIN, lambda index: index["chunks"][0].update({field: value}))
    assert told(checked(data).errors) == [("structure", field, FIRST + offset, "torch_state")]


@pytest.mark.parametrize("value", [None, 1, "md5:00", "sha256:", "0" * 63, "0" * 64 + "\n"])
def test_hashes_that_are_none(value: object) -> None:
    data = edited(PLAIN, lambda index: index["chunks"][0].update({"sha256": value}))
    assert ("structure", "sha256", FIRST, "torch_state") in told(checked(data).errors)


def test_a_wrong_hash_in_the_index() -> None:
    def change(index: dict[str, Any]) -> None:
        wrong = "sha256:" + "0" * 64
        index["chunks"][0]["sha256"] = index["metadata"]["chunk_hashes"]["torch_state"] = wrong

    assert told(checked(edited(PLAIN, change)).errors)[1:] == [
        ("sha256", "sha256", PAYLOAD, "torch_state")
    ]


@pytest.mark.parametrize("form", ["", "sha256:"])
def test_forms_of_a_hash(form: str) -> None:
    def change(index: dict[str, Any]) -> None:
        del index["metadata"]["chunk_hashes"], index["metadata"]["manifest_hash"]
        for chunk in index["chunks"]:
            chunk["sha256"] = chunk["sha256"].replace("sha256:", form)

    assert checked(edited(PLAIN, change)) == fold_check.Findings()


@pytest.mark.parametrize(
    ("algorithm", "field"),
    [
        ("rs(16)", "ecc_len"),
        ("rs(0)", "ecc_algo"),
        ("rs(255)", "ecc_algo"),
        ("rs(016)", "ecc_algo"),
        ("raptorq", "ecc_algo"),
        (None, "ecc_algo"),
        (["rs(16)"], "ecc_algo"),
    ],
)
def test_parity_algorithms(algorithm: object, field: str) -> None:
    data = edited(PLAIN, lambda index: index["chunks"][0].update({"ecc_algo": algorithm}))
    assert told(checked(data).errors) == [("structure", field, FIRST + 28, "torch_state")]


@pytest.mark.parametrize(
    ("change", "kind", "field", "chunk"),
    [
        (lambda m: m["chunk_hashes"].update(notes="sha256:" + "0" * 64), "manifest", None, "notes"),
        (lambda m: m["chunk_hashes"].pop("notes"), "manifest", None, "notes"),
        (lambda m: m["chunk_hashes"].update(lost="sha256:"), "manifest", None, "lost"),
        (lambda m: m.update(chunk_hashes=[]), "manifest", None, None),
    ],
)
def test_chunk_hashes(change: Any, kind: str, field: str, chunk: str | None) -> None:
    def edit(index: dict[str, Any]) -> None:
        change(index["metadata"])
        del index["metadata"]["manifest_hash"]

    data = edited(PLAIN, edit)
    start = data.index(b'{"format"')
    # The hash over the metadata would tell as well, so it is taken out: which is told, too.
    assert told(checked(data).errors) == [
        (kind, "chunk_hashes", start, chunk),
        ("manifest", "manifest_hash", start, None),
    ]


@pytest.mark.parametrize("value", ["sha256:" + "0" * 64, "", 1, None, {}])
def test_a_wrong_manifest_hash(value: object) -> None:
    data = edited(PLAIN, lambda index: index["metadata"].update(manifest_hash=value))
    start = data.index(b'{"format"')
    assert told(checked(data).errors) == [("manifest", "manifest_hash", start, None)]


def test_hashes_that_are_missing() -> None:
    def old(index: dict[str, Any]) -> None:
        del index["metadata"]["chunk_hashes"], index["metadata"]["manifest_hash"]

    assert checked(edited(PLAIN, old)) == fold_check.Findings()
    found = checked(edited(PLAIN, lambda index: index["metadata"].pop("manifest_hash")))
    assert [(p.kind, p.field) for p in found.errors] == [("manifest", "manifest_hash")]
    data = fixture("fold/merkle_high_a.fold")
    found = checked(edited(data, lambda index: index.pop("merkle_root")))
    assert [(p.kind, p.field) for p in found.errors] == [("merkle", "merkle_root")]


def test_metadata_that_was_changed() -> None:
    data = edited(PLAIN, lambda index: index["metadata"].update(owner="x"))
    assert [p.kind for p in checked(data).errors] == ["manifest"]


@pytest.mark.parametrize("value", [None, [], "x"])
def test_metadata_that_is_none(value: object) -> None:
    data = edited(PLAIN, lambda index: index.update(metadata=value))
    start = data.index(b'{"format"')
    assert told(checked(data).errors) == [("structure", "metadata", start, None)]


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "é", "", "b\n"], list("abcdefg")])
def test_merkle_roots(names: list[str]) -> None:
    data = built(*((name, b"BLOB", name.encode()) for name in names), merkle=True)
    assert checked(data) == fold_check.Findings()
    wrong = edited(data, lambda index: index.update(merkle_root="0" * 64))
    start = wrong.index(b'{"format"')
    assert told(checked(wrong).errors) == [("merkle", "merkle_root", start, None)]


@pytest.mark.parametrize("block", [1, "", "[]", "{", '{"a":1', "\ud800"])
def test_trust_blocks(block: object) -> None:
    data = built(("c", b"BLOB", b"x"))
    index = index_of(data)
    good = with_index(data, {**index, "trust_block": '{"version":1}'})
    # It signs nothing that the file has.
    found = checked(good)
    assert (found.errors, [p.kind for p in found.warnings]) == ([], ["signature"])
    raw = good.replace(b'"{\\"version\\":1}"', _json(block).ljust(len(b'"{\\"version\\":1}"')))
    found = checked(raw)
    assert [(p.kind, p.field) for p in found.errors] == [("structure", "trust_block")]


def _json(value: object) -> bytes:
    import json

    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("format", "mind"), ("format", None), ("format", ["fold"])],
        *[("version", 1.2), ("version", None), ("version", "1.2"), ("version", "1.2.0 ")],
        *[("created_at_unix", None), ("created_at_unix", "0"), ("created_at_unix", True)],
    ],
)
def test_an_index_without_what_each_writer_puts_there(key: str, value: object) -> None:
    for data in (
        edited(PLAIN, lambda index: index.update({key: value})),
        edited(PLAIN, lambda index: index.pop(key)),
    ):
        found = checked(data)
        assert [(p.kind, p.field) for p in found.errors] == [("structure", key)]
        assert found.warnings == []


def test_a_later_version_is_a_warning() -> None:
    found = checked(edited(PLAIN, lambda index: index.update(version="2.0.0")))
    assert found.errors == []
    assert [(p.kind, p.field) for p in found.warnings] == [("structure", "version")]


def test_a_key_that_is_there_twice_hides_a_value() -> None:
    start = PLAIN.index(b'{"format"')
    text = PLAIN[start:].replace(b'{"name":"notes"', b'{"name":"x","name":"notes"')
    data = PLAIN[:20] + len(text).to_bytes(8, "big") + PLAIN[28:start] + text
    assert told(checked(data).errors) == [("structure", "index", start, None)]


@pytest.mark.parametrize(("hidden", "is_lost"), [(b"tail", True), (bytes(4), False)])
def test_bytes_in_no_chunk_are_lost_unless_they_are_zeros(hidden: bytes, is_lost: bool) -> None:
    found = checked(PLAIN + hidden)
    told_of, silent = (found.errors, found.warnings)[:: 1 if is_lost else -1]
    assert told(told_of) == [("structure", "index_len", len(PLAIN), None)]
    assert silent == []


def test_a_chunk_that_the_index_does_not_list_is_lost() -> None:
    def drop(index: dict[str, Any]) -> None:
        del (
            index["chunks"][0],
            index["metadata"]["chunk_hashes"],
            index["metadata"]["manifest_hash"],
        )

    found = checked(edited(PLAIN, drop))
    assert told(found.errors) == [("structure", "offset", FIRST, "notes")]


def test_a_chunk_that_is_listed_twice() -> None:
    def repeat(index: dict[str, Any]) -> None:
        index["chunks"].append(index["chunks"][0])

    found = checked(edited(PLAIN, repeat))
    assert told(found.errors) == [("structure", "offset", FIRST, "torch_state")]


def test_parts_that_overlap_are_a_warning() -> None:
    inner = built(("b", b"BLOB", b"inner"))[FIRST : FIRST + 37]
    data = built(("a", b"BLOB", inner))

    def add(index: dict[str, Any]) -> None:
        own = index_of(built(("b", b"BLOB", b"inner")))
        index["chunks"].append(own["chunks"][0] | {"offset": PAYLOAD})
        del index["metadata"]["chunk_hashes"], index["metadata"]["manifest_hash"]

    found = checked(edited(data, add))
    assert found.errors == []
    assert told(found.warnings) == [("structure", "offset", PAYLOAD, "b")]


def test_chunks_that_overlap_too_much_are_not_all_read() -> None:
    data = built(("c", b"BLOB", bytes(100_000)))

    def repeat(index: dict[str, Any]) -> None:
        index["chunks"] *= 20

    found = checked(edited(data, repeat))
    limits = [p for p in found.errors if p.kind == "limit"]
    assert len(limits) == 16
    assert {(p.field, p.offset, p.chunk) for p in limits} == {("offset", FIRST, "c")}


def test_a_zlib_crc_counts_only_if_the_hash_holds() -> None:
    crc = zlib.crc32(MODEL)

    def change(index: dict[str, Any]) -> None:
        index["chunks"][0]["crc32c"] = crc

    raw = bytearray(edited(PLAIN, change))
    raw[FIRST + 24 : FIRST + 28] = crc.to_bytes(4, "big")
    found = checked(bytes(raw))
    assert found.errors == []
    assert told(found.warnings) == [("crc32c", "crc32c", FIRST + 24, "torch_state")]
    found = checked(flipped(bytes(raw), PAYLOAD + 500))
    assert [p.kind for p in found.errors] == ["sha256", "crc32c"]


def test_hmacs_with_the_key_without_it_and_with_another() -> None:
    data = fixture("fold/hmac_a.fold")
    found = checked(data, integrity_key=HMAC_KEY)
    assert (found.errors, found.warnings, found.authenticated) == ([], [], True)
    found = checked(data)
    assert found.errors == []
    assert found.authenticated is None
    assert [(p.kind, p.field) for p in found.warnings] == [("hmac", "sha256")]
    assert "3 hashes" in found.warnings[0].message
    found = checked(data, integrity_key=b"wrong")
    assert found.authenticated is False
    assert [p.kind for p in found.errors] == ["manifest", "hmac", "hmac"]


def test_without_the_key_the_crc_is_checked() -> None:
    data = model_file(integrity_key=b"k")
    assert checked(data, integrity_key=b"k").authenticated is True
    assert told(checked(flipped(data, PAYLOAD + 3)).errors) == [
        ("crc32c", "crc32c", PAYLOAD, "torch_state")
    ]


def test_a_file_with_a_plain_hash_among_hmacs_is_not_authenticated() -> None:
    data = model_file(integrity_key=b"k")

    def change(index: dict[str, Any]) -> None:
        index["chunks"][0]["sha256"] = "sha256:" + sha256(MODEL).hexdigest()
        del index["metadata"]["chunk_hashes"], index["metadata"]["manifest_hash"]

    found = checked(edited(data, change), integrity_key=b"k")
    assert found.errors == []
    assert found.authenticated is False


def test_encrypted_chunks_with_the_key_without_it_and_with_another() -> None:
    data = fixture("fold/encrypted_high_a.fold")
    assert checked(data, decryption_key=AES_KEY) == fold_check.Findings()
    found = checked(data)
    assert found.errors == []
    assert [(p.kind, p.field) for p in found.warnings] == [("structure", "encrypted")]
    assert "2 encrypted chunks" in found.warnings[0].message
    for key, field in ((bytes(32), "comp_payload"), (bytes(16), "encrypted")):
        assert told(checked(data, decryption_key=key).errors) == [
            ("structure", field, 60, "msg"),
            ("structure", field, 91 + 32, "torch_state"),
        ]


@pytest.mark.parametrize("nonce", [None, "", "00", "zz" * 12, " " * 24, 5])
def test_nonces(nonce: object) -> None:
    data = fixture("fold/encrypted_high_a.fold")
    changed = edited(data, lambda index: index["chunks"][0].update(nonce_hex=nonce))
    assert told(checked(changed, decryption_key=AES_KEY).errors) == [
        ("structure", "nonce_hex", FIRST, "msg")
    ]


def test_encrypted_chunks_of_a_wrong_length_and_another_aad() -> None:
    data = fixture("fold/encrypted_high_a.fold")
    raw = bytearray(data)
    raw[FIRST + 8 : FIRST + 16] = (14).to_bytes(8, "big")
    errors = told(checked(bytes(raw)).errors)
    assert ("structure", "comp_len", FIRST + 16, "msg") in errors
    found = checked(edited(data, lambda index: index["chunks"][0].update(aad="x")), **KEYS)
    assert told(found.errors) == [("structure", "aad", FIRST, "msg")]


@pytest.mark.parametrize(("limit", "count"), [(1073, 1), (1072, 1), (6, 2)])
def test_limits(limit: int, count: int) -> None:
    assert len(MODEL) > limit
    found = checked(PLAIN, max_chunk=limit)
    assert told(found.errors)[0] == ("limit", "comp_len", FIRST + 16, "torch_state")
    assert len(found.errors) == count
    assert checked(PLAIN, max_chunk=len(MODEL)) == fold_check.Findings()


def test_the_decoded_length_has_the_limit_too() -> None:
    data = built(("c", b"BLOB", bytes(5000)), compression="zstd")
    assert told(checked(data, max_chunk=4999).errors) == [("limit", "uncomp_len", FIRST + 8, "c")]
    assert checked(data, max_chunk=5000) == fold_check.Findings()


def restored(payload: bytes, uncomp_len: int, ctype: bytes = b"BLOB") -> bytes:
    """A file whose one chunk has this stored payload, with right hashes."""
    data = built(("c", ctype, payload))

    def change(index: dict[str, Any]) -> None:
        index["chunks"][0].update(flags=1, uncomp_len=uncomp_len)

    raw = bytearray(edited(data, change))
    struct.pack_into(">IQ", raw, FIRST + 4, 1, uncomp_len)
    return bytes(raw)


FRAME = zstandard.compress(NOISE)


@pytest.mark.parametrize(
    ("payload", "uncomp_len", "field", "offset"),
    [
        (b"", 0, "comp_payload", 60),
        (b"no frame", 8, "comp_payload", 60),
        (FRAME[:-1], 1000, "comp_payload", 60 + len(FRAME) - 1),
        (FRAME + b"x", 1000, "comp_payload", 60 + len(FRAME)),
        (FRAME + FRAME, 2000, "uncomp_len", 36),
        (FRAME, 999, "uncomp_len", 36),
        (FRAME, 1001, "uncomp_len", 36),
        (flipped(FRAME, 5), 1000, None, None),
    ],
)
def test_frames_that_are_not_what_the_header_says(
    payload: bytes, uncomp_len: int, field: str | None, offset: int | None
) -> None:
    [error] = checked(restored(payload, uncomp_len)).errors
    assert error.kind == "structure"
    if field is not None:
        assert (error.field, error.offset, error.chunk) == (field, offset, "c")


def test_a_frame_that_asks_for_a_large_window() -> None:
    frame = bytearray(
        zstandard.ZstdCompressor(
            compression_params=zstandard.ZstdCompressionParameters(window_log=27)
        ).compress(bytes(2**18))
    )
    assert not checked(restored(bytes(frame), 2**18)).errors
    streamed = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=28)
    ).compressobj()
    large = streamed.compress(NOISE) + streamed.flush()
    assert told(checked(restored(large, 1000)).errors) == [("limit", "comp_payload", 60, "c")]


@pytest.mark.parametrize("claimed", [2**20, 2**40 - 1])
def test_a_bomb_is_left_in_bounded_memory(claimed: int) -> None:
    bomb = zstandard.compress(bytes(2**29))
    data = restored(bomb, claimed)
    tracemalloc.start()
    [error] = checked(data, max_chunk=2**21).errors
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.field == "uncomp_len"
    assert error.kind == ("limit" if claimed > 2**21 else "structure")
    assert peak < 2**24


@pytest.mark.parametrize(
    ("content", "warned"),
    [
        (b"", True),
        (b"{", True),
        (b"\xff", True),
        (b"NaN", True),
        (b'{"a":-Infinity}', True),
        (b'"NaN"', False),
        (b'["Infinity"]', False),
        (b"1e999", False),
        (b"[" * 100 + b"]" * 100, True),
    ],
)
def test_json_chunks_hold_whatever_they_like(content: bytes, warned: bool) -> None:
    for compression in ("none", "zstd"):
        found = checked(built(("c", b"JSON", content), compression=compression))
        assert found.errors == []
        assert bool(found.warnings) == warned
        assert {(p.field, p.offset, p.chunk) for p in found.warnings} <= {("comp_payload", 60, "c")}
    assert not checked(built(("c", b"BLOB", content))).warnings


def test_damage_beyond_parity_is_told_with_the_hashes() -> None:
    data = built(("c", b"BLOB", NOISE), ecc=16)
    found = checked(flipped(data, *range(PAYLOAD + 300, PAYLOAD + 309)))
    end = PAYLOAD + len(NOISE)
    assert told(found.errors) == [
        ("ecc", "ecc_payload", end, "c"),
        ("sha256", "sha256", PAYLOAD, "c"),
        ("crc32c", "crc32c", PAYLOAD, "c"),
    ]
    assert "1 of 1 damaged blocks" in found.errors[0].message


def test_damaged_parity_is_a_warning() -> None:
    data = built(("c", b"BLOB", NOISE), ecc=16)
    found = checked(flipped(data, PAYLOAD + len(NOISE) + 3))
    assert found.errors == []
    assert told(found.warnings) == [("ecc", "ecc_payload", PAYLOAD + len(NOISE), "c")]


def test_parity_that_fits_a_payload_with_a_wrong_hash_is_not_blamed() -> None:
    data = built(("c", b"BLOB", NOISE), ecc=16)

    def change(index: dict[str, Any]) -> None:
        del index["metadata"]["chunk_hashes"], index["metadata"]["manifest_hash"]
        index["chunks"][0]["sha256"] = "0" * 64

    assert [p.kind for p in checked(edited(data, change)).errors] == ["sha256"]


def test_damaged_blocks_are_tried_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    data = built(("c", b"BLOB", NOISE), ecc=16)
    damaged = flipped(data, PAYLOAD, PAYLOAD + 300)
    assert not checked(damaged).errors
    monkeypatch.setattr(payloads, "MAX_MENDED_BLOCKS", 1)
    assert [p.kind for p in checked(damaged).errors] == ["ecc", "sha256", "crc32c"]


SMALL = model_file(compression="zstd", ecc=16)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_check_raises_nothing_and_no_flip_of_a_bit_is_lost(draw: st.DataObject) -> None:
    at = draw.draw(st.integers(0, len(SMALL) - 1))
    changed = flipped(SMALL, at, mask=1 << draw.draw(st.integers(0, 7)))
    found = checked(changed)
    # A time may be any, and 1.0.0 is a version as well; all else is held by something.
    free = b'"version":"1.2.0","created_at_unix":0'
    start = SMALL.index(free)
    if not start <= at < start + len(free):
        assert found.errors or found.warnings


SEEDS = [entry["file"] for entry in ENTRIES if entry["size"] < 5000]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A fixture with a few bytes or numbers changed, or a part left out."""
    data = bytearray(fixture(draw(st.sampled_from(SEEDS))))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data) - 1))
        kind = draw(st.sampled_from(["byte", "number", "cut"]))
        if kind == "byte":
            data[at] = draw(st.integers(0, 255))
        elif kind == "number":
            width = draw(st.sampled_from([4, 8]))
            value = draw(st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]))
            data[at : at + width] = (value % 256**width).to_bytes(width, "big")
        else:
            del data[at : at + draw(st.integers(1, 10))]
    return bytes(data)


@settings(max_examples=400, deadline=None)
@given(mutated())
def test_no_mutated_file_raises_anything_else(data: bytes) -> None:
    view, options = memoryview(data), ReadOptions(2**20, AES_KEY, HMAC_KEY)
    any_format.check(view, options)
    if registry.detect(view) != "fold":
        return
    with suppress(FormatError):
        describe.describe_unfinalized(view, options)
    try:
        held = read.read(view)
    except FormatError:
        return
    for action in (
        lambda: list(any_format.tensors(describe.describe(held, options), options)),
        lambda: list(repack.repair(view, options)[0]),
        lambda: list(repack.repack(held, "zstd", options)),
    ):
        with suppress(FormatError):
            action()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_check_raises_nothing_for_any_index(draw: st.DataObject) -> None:
    value = st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats()
        | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        max_leaves=5,
    )
    index = index_of(SMALL)
    where = draw.draw(st.sampled_from([index, index["metadata"], *index["chunks"]]))
    where[
        draw.draw(st.sampled_from(sorted(where)) | st.sampled_from(["encrypted", "trust_block"]))
    ] = draw.draw(value)
    try:
        data = with_index(SMALL, index)
    except UnicodeEncodeError:
        return
    checked(data, **KEYS)
