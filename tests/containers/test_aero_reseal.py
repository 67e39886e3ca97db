"""AERO: a file written again with other tensors or metadata."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import repeat
from typing import Any

import msgpack
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.containers.aero_files import (
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
    model,
    pages,
    phsh,
    read_strictly,
    shard,
    tidx,
)
from tests.containers.resealing import OPTIONS, content, inverted, opened, refused, resealed
from tests.containers.sources import models, source
from tests.data import FIXTURES, entries, fixture
from wtxtgit.containers import any_format
from wtxtgit.containers.aero import reseal as aero
from wtxtgit.containers.aero import write
from wtxtgit.containers.aero.read import Aero
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import Entry, NewContent, PlacedEntry, ReadOptions, TensorSource

FILES = sorted((FIXTURES / "aero").rglob("*.aero"))
SOUND = [item["file"] for item in entries() if item["format"] == "AERO"]
SOUND = [name for name in SOUND if not check(fixture(name)).errors]
NUMBERS = {element: number for element, number in write.DTYPES.items() if number in {1, 5, 12}}
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "tags": st.dictionaries(st.sampled_from(["model_name", "x"]), st.text("é", max_size=3)),
        "max_shard": st.integers(1, 100),
        "ihsh": st.booleans(),
        "phsh": st.integers(1, 100),
        "tensor_hash": st.booleans(),
        "compress_metadata": st.booleans(),
    },
)


def own(container: Aero, contents: Mapping[int, bytes] | None = None) -> list[PlacedEntry]:
    """All tensors of a file, some with new bytes."""
    new = {number: content(raw) for number, raw in (contents or {}).items()}
    return [PlacedEntry(container, n, new.get(n)) for n in range(len(container.entries))]


def held(data: bytes) -> list[tuple[str, str, tuple[int, ...], bytes]]:
    found = any_format.describe(memoryview(data)).tensors
    return [(t.name, t.dtype, t.shape, bytes(t.data)) for t in found]


def facts(container: Aero) -> list[tuple[str, object, tuple[int, ...], bytes]]:
    return [
        (one.name, one.form, one.tensor.shape, bytes(one.tensor.data))
        for one in aero.entries(container, OPTIONS)
        if one.tensor is not None
    ]


def values_of(container: Aero) -> dict[str, Any]:
    return aero.values(container, OPTIONS)


def index_of(data: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = msgpack.unpackb(read_strictly(data).chunks[b"TIDX", "tensors"])[
        "tensors"
    ]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_without_a_change_a_file_stays(path: Any) -> None:
    data = path.read_bytes()
    container = opened(data)
    assert resealed(container, own(container)) == data
    assert resealed(container, own(container), values_of(container)) == data


@pytest.mark.parametrize("name", SOUND)
def test_each_tensor_of_files_of_the_original_writer(name: str) -> None:
    data = fixture(name)
    container = opened(data)
    before = facts(container)
    for number, (_, _, _, raw) in enumerate(before):
        made = resealed(container, own(container, {number: inverted(raw)}))
        assert check(made).errors == []
        after = list(before)
        after[number] = (*before[number][:3], inverted(raw))
        assert facts(opened(made)) == after
        assert made[52:68] == data[52:68]
        assert brief(check(made).warnings) == brief(check(data).warnings)
    same = resealed(container, own(container, {n: t[3] for n, t in enumerate(before)}))
    # Another version of zstd compresses to other bytes.
    assert same == data or any(chunk.flags == 3 for chunk in container.chunks)


@pytest.mark.parametrize("name", SOUND)
def test_tensors_of_the_original_writer_go_and_come(name: str) -> None:
    data = fixture(name)
    container = opened(data)
    before = facts(container)
    for number in range(len(before)):
        fewer = resealed(container, [p for p in own(container) if p.number != number])
        assert check(fewer).errors == []
        left = opened(fewer)
        assert facts(left) == before[:number] + before[number + 1 :]
        placed = own(left)
        placed.insert(number, PlacedEntry(container, number))
        back = resealed(left, placed)
        assert check(back).errors == []
        assert facts(opened(back)) == before


@st.composite
def edits(draw: st.DrawFn) -> tuple[list[tuple[bool, int, bool]], bytes, bytes, dict[str, Any]]:
    """Two files, and which tensors of which are written, with new bytes or not."""
    options = [draw(SETTINGS) for _ in range(2)]
    tensors = [draw(models(list(NUMBERS))) for _ in range(2)]
    ours, theirs = (
        b"".join(write.build(held, **more)) for held, more in zip(tensors, options, strict=True)
    )
    every = [(side, n) for side in (False, True) for n in range(len(tensors[side]))]
    names = {(side, n): tensors[side][n].name for side, n in every}
    chosen = draw(st.permutations(every))[: draw(st.integers(0, len(every)))]
    unique = {names[one]: one for one in chosen}.values()
    return [(*one, draw(st.booleans())) for one in unique], ours, theirs, options[0]


@given(edits())
@settings(max_examples=60)
def test_all_that_can_be_done_with_two_files(
    case: tuple[list[tuple[bool, int, bool]], bytes, bytes, dict[str, Any]],
) -> None:
    chosen, *files, options = case
    sides = [opened(data) for data in files]
    placed, expected = [], []
    for side, number, is_new in chosen:
        name, dtype, shape, raw = held(files[side])[number]
        if is_new:
            raw = inverted(raw)
        placed.append(PlacedEntry(sides[side], number, content(raw) if is_new else None))
        expected.append((name, dtype, shape, raw))
    values = values_of(sides[1])
    for wanted in (None, values):
        made = resealed(sides[0], placed, wanted)
        found = check(made)
        assert (found.errors, found.warnings) == ([], [])
        reading = read_strictly(made)
        assert held(made) == expected
        assert reading.uuid == files[0][52:68]
        assert ((b"IHSH", "control.integrity") in reading.chunks) == options.get("ihsh", False)
        if wanted is not None:
            assert values_of(opened(made)) == values
        manifest = msgpack.unpackb(reading.chunks[b"MMSG", "manifest"])
        sizes = [len(raw) for (kind, _), raw in reading.chunks.items() if kind == b"WTSH"]
        assert [one["size_bytes"] for one in manifest["shards"]] == sizes
        assert sum(one["tensor_count"] for one in manifest["shards"]) == len(expected)
        kinds = [kind.decode() for kind, _ in reading.chunks]
        assert [kinds[one["toc_index"]] for one in manifest["chunks"]] == [
            one["fourcc"] for one in manifest["chunks"]
        ]
        assert sorted(kinds) == sorted(one["fourcc"] for one in manifest["chunks"])


def test_a_change_is_written_in_its_place() -> None:
    notes = [
        phsh("weights.shard0", 64, pages(WEIGHTS, 64)),
        Chunk(b"NOTE", b"n", b"abc", digest=bytes(32)),
    ]
    # Bytes behind all chunks, as no writer leaves them.
    data = model(*notes, ihsh=True) + bytes(4)
    container = opened(data)
    made = resealed(container, own(container, {1: bytes(200)}))
    assert len(made) == len(data)
    assert check(made).errors == []
    start = data.index(WEIGHTS)
    assert made[start : start + 400] == WEIGHTS[:200] + bytes(200)
    weights, hashes = TOC + 80 * 2, TOC + 80 * 3
    paged = container.chunks[3]
    others = {*range(start + 200, start + 400), *range(paged.offset, paged.end)}
    others |= {*range(weights + 48, weights + 80), *range(hashes + 48, hashes + 80)}
    assert {n for n in range(len(data)) if made[n] != data[n]} <= others
    # The pages before the tensor stay.
    after = msgpack.unpackb(made[paged.offset : paged.end])["digests"]
    assert after == pages(WEIGHTS[:200] + bytes(200), 64)


def test_a_chunk_without_a_hash_gets_none() -> None:
    plain = shard(WEIGHTS, digest=bytes(32))
    for index in (tidx(HASHED), tidx(HASHED, digest=bytes(32), flags=5)):
        data = file([index, plain, phsh("weights.shard0", 400, [digest(WEIGHTS)])])
        container = opened(data)
        made = resealed(container, own(container, {0: bytes(400)}))
        assert brief(check(made).warnings) == brief(check(data).warnings)
        assert check(made).errors == []
        assert [chunk.digest == bytes(32) for chunk in opened(made).chunks] == [
            chunk.digest == bytes(32) for chunk in container.chunks
        ]


HASHED = entry("a", [100], 0, 400, hash_b3=digest(WEIGHTS).hex())
"""A tensor that is a whole shard, with its hash."""


def test_hashes_of_tensors() -> None:
    unhashed = entry("b", [50], 0, 200, shard_id=1)
    empty = entry("c", [50], 200, 200, shard_id=1, hash_b3="")
    data = file([tidx(HASHED, unhashed, empty), shard(WEIGHTS), shard(WEIGHTS, 1)])
    container = opened(data)
    made = resealed(container, own(container, {0: bytes(400), 1: bytes(200), 2: bytes(200)}))
    assert len(made) == len(data)
    assert index_of_any(made) == [HASHED | {"hash_b3": digest(bytes(400)).hex()}, unhashed, empty]
    assert check(made).errors == []


def index_of_any(data: bytes) -> list[dict[str, Any]]:
    """The tensors in an index whose other hashes may not be there."""
    chunk = next(chunk for chunk in opened(data).chunks if chunk.fourcc == b"TIDX")
    raw = data[chunk.offset : chunk.end]
    if chunk.is_compressed:
        raw = zstandard.decompress(raw)
    found: list[dict[str, Any]] = msgpack.unpackb(raw, strict_map_key=False)["tensors"]
    return found


def odd(fields: list[tuple[bytes, bytes]]) -> bytes:
    """A map of these packed keys and values, its length spelled with four bytes."""
    return b"\xdf" + len(fields).to_bytes(4, "big") + b"".join(map(b"".join, fields))


def wide(text: str) -> bytes:
    return b"\xdb" + len(text).to_bytes(4, "big") + text.encode()


def test_the_spelling_of_the_index_is_kept() -> None:
    name, packed = b"\xd9\x01a", msgpack.packb
    fields = [
        # An older value of a key, keys that are no strings, an extension, a timestamp.
        (packed("hash_b3"), packed("old")),
        (packed(5), packed([1, {"x": b"y"}])),
        (packed(["k"]), b"\xd6\x07abcd"),
        (packed(b"hash_b3"), b"\xd6\xff\0\0\0\0"),
        (wide("name"), name),
        (packed("dtype"), b"\xcf" + (1).to_bytes(8, "big")),
        (packed("shape"), b"\xdc\0\x01" + packed(100)),
        (packed("shard_id"), b"\xd3" + bytes(8)),
        (packed("data_off"), b"\xce" + bytes(4)),
        (packed("data_len"), packed(400)),
        (wide("hash_b3"), wide(digest(WEIGHTS).hex())),
        (packed("nan"), packed(float("nan"))),
    ]
    more = (packed("b"), packed({"tensors": 1}))
    raw = odd([(wide("tensors"), b"\xdd\0\0\0\x01" + odd(fields)), more]) + b"rest"
    data = file([Chunk(b"TIDX", b"tensors", raw), shard(WEIGHTS)])
    assert check(data).errors == []
    container = opened(data)
    made = resealed(container, own(container, {0: bytes(400)}))
    assert check(made).errors == []
    hashed = packed(digest(bytes(400)).hex())
    changed_fields = [*fields[1:10], (wide("hash_b3"), hashed), fields[11]]
    expected = odd([(wide("tensors"), b"\xdd\0\0\0\x01" + odd(changed_fields)), more]) + b"rest"
    # One key less is another count, which is spelled as usual.
    expected = expected.replace(b"\xdf\0\0\0\x0b", b"\x8b", 1)
    chunk = opened(made).chunks[0]
    assert made[chunk.offset : chunk.end] == expected
    # In another file, at another place.
    other = opened(file([tidx(entry("z", [2], 0, 8)), shard(bytes(8))]))
    moved = resealed(other, [PlacedEntry(other, 0), PlacedEntry(container, 0)])
    chunk = opened(moved).chunks[0]
    placed = [*fields[:8], (packed("data_off"), packed(16)), *fields[9:]]
    assert odd(placed) in moved[chunk.offset : chunk.end]
    assert check(moved).errors == []
    forms = [facts(opened(one))[-1][1] for one in (data, made, moved)]
    assert forms[0] == forms[1] == forms[2]


def test_a_compressed_shard() -> None:
    index = tidx(entry("a", [50], 0, 200), entry("b", [50], 200, 200))
    chunks = [index, shard(WEIGHTS, flags=3), phsh("weights.shard0", 100, pages(WEIGHTS, 100))]
    data = file([*chunks, shard(WEIGHTS, 1)], ihsh=True)
    container = opened(data)
    listed = aero.entries(container, OPTIONS)
    assert [one.stored for one in listed] == [None, None]
    for made, expected in (
        (resealed(container, own(container, {1: bytes(200)})), [WEIGHTS[:200], bytes(200)]),
        (resealed(container, own(container)[:1]), [WEIGHTS[:200]]),
        (resealed(container, []), []),
    ):
        found = check(made)
        assert found.errors == []
        assert [tensor[3] for tensor in held(made)] == expected
        assert opened(made).chunks[2].flags == 3
    error = refused(container, own(container)[:1], options=ReadOptions(max_chunk=399))
    assert error.kind == "limit"
    other = opened(model())
    placed = [PlacedEntry(other, 0, content(bytes(200))), PlacedEntry(container, 1)]
    assert [tensor[3] for tensor in held(resealed(other, placed))] == [bytes(200), WEIGHTS[200:]]


def test_a_compressed_shard_far_larger_than_its_file() -> None:
    size = 2**22
    index = tidx(
        entry("a", [size // 8], 0, size // 2), entry("b", [size // 8], size // 2, size // 2)
    )
    container = opened(file([index, shard(bytes(size), flags=3)]))
    made = resealed(container, own(container, {1: bytes([1]) * (size // 2)}))
    assert len(made) < 2**16
    assert [tensor[3][:1] for tensor in held(made)] == [b"\0", b"\1"]


def test_a_content_that_is_compressed_to_as_many_bytes() -> None:
    container = opened(model(Chunk(b"NOTE", b"n", b"a" * 300, 1)))
    made = resealed(container, own(container), {"chunks": {"NOTE:0x1:n": b"a" * 301}})
    before, after = container.chunks[2], opened(made).chunks[2]
    assert (before.length, before.ulen + 1) == (after.length, after.ulen)
    assert check(made).errors == []


def test_an_entry_of_another_file_with_new_bytes_alone() -> None:
    """It is the file's own one: all else of the file stays."""
    container, other = (opened(fixture(f"aero/pair_ihsh_phsh_v{n}.aero")) for n in (1, 2))
    made = resealed(container, own(other))
    assert made == bytes(other.data)
    one = opened(model())
    two = opened(
        file(
            [
                tidx(entry("b", [5, 10], 16, 200, hash_b3=digest(bytes(200)).hex())),
                shard(bytes(216)),
            ]
        )
    )
    made = resealed(one, [PlacedEntry(one, 0), PlacedEntry(two, 0)])
    assert made == resealed(one, own(one, {1: bytes(200)}))


def test_which_shard_a_tensor_goes_to() -> None:
    def sides(*numbers: int) -> Aero:
        held = [entry(f"{len(numbers)}.{n}", [1], 0, 4, shard_id=n) for n in numbers]
        return opened(file([tidx(*held), *(shard(b"abc%d" % n, n) for n in numbers)]))

    ours, theirs = sides(0, 2), sides(0, 1, 2)
    made = resealed(ours, [*own(theirs), *own(ours)])
    assert [one["shard_id"] for one in index_of(made)] == [0, 2, 2, 0, 2]
    assert [one["data_off"] for one in index_of(made)] == [0, 0, 16, 16, 32]
    assert check(made).errors == []
    assert {t[0]: t[3] for t in held(made)} == {
        **{t[0]: t[3] for t in held(bytes(ours.data))},
        **{t[0]: t[3] for t in held(bytes(theirs.data))},
    }


def test_a_file_without_shards_gets_one() -> None:
    empty, full = (
        opened(b"".join(write.build_model(tensors, {})))
        for tensors in ([], [source("a", "f32", (3,)), source("b", "u8", (2,))])
    )
    made = resealed(empty, own(full))
    assert brief([*check(made).errors, *check(made).warnings]) == []
    assert held(made) == held(bytes(full.data))
    told = msgpack.unpackb(read_strictly(made).chunks[b"MMSG", "manifest"])
    assert told["shards"] == [
        {"shard_id": 0, "toc_index": 3, "size_bytes": 18, "tensor_count": 2, "mmap_critical": True}
    ]
    assert read_strictly(resealed(opened(made), [])).tensors == {}
    none = opened(file([]))
    assert resealed(none, []) == bytes(none.data)
    assert refused(none, own(full)).field == "entries"


def test_the_index_of_a_set() -> None:
    folder = FIXTURES / "aero/aeroset_from_sharded_a"
    container, part = (
        opened((folder / f"{name}.aero").read_bytes()) for name in ("index", "part-000")
    )
    listed = aero.entries(container, OPTIONS)
    assert all(one.tensor is not None and one.tensor.absent for one in listed)
    assert all(one.stored is None for one in listed)
    fewer = resealed(container, own(container)[1:])
    assert check(fewer).errors == []
    back = resealed(opened(fewer), [PlacedEntry(container, 0), *own(opened(fewer))])
    assert index_of_any(back) == index_of_any(bytes(container.data))
    assert "no bytes" in refused(container, own(container, {0: bytes(40)})).message
    # A tensor that is there can't stand among those that are not, nor the other way round.
    assert refused(opened(fewer), [*own(opened(fewer)), PlacedEntry(part, 0)]).field == "entries"
    assert refused(part, [PlacedEntry(container, 0)]).field == "entries"


def test_where_an_absent_tensor_stands_is_part_of_its_form() -> None:
    forms = set()
    for more in ({}, {"data_off": 4}, {"shard_id": 2}, {"hash_b3": "0" * 64}):
        data = file([tidx(entry("a", [1], 0, 4) | more)])
        forms.add(facts(opened(data))[0][1])
    assert len(forms) == 4


def test_further_keys_go_with_an_entry() -> None:
    params = {"quant_id": 3, "quant_params": {"ggml_type": 2, "x": [1, b"y"]}, "flags": 9}
    theirs = opened(file([tidx(entry("q", [8], 0, 20, dtype=0x8000, **params)), shard(bytes(20))]))
    ours = opened(model())
    made = resealed(ours, [*own(ours), PlacedEntry(theirs, 0, content(b"x" * 20))])
    assert index_of(made)[2] == entry("q", [8], 416, 20, dtype=0x8000, **params)
    forms = {
        facts(opened(file([tidx(one), shard(bytes(20))])))[0][1]
        for one in (
            entry("q", [8], 0, 20, dtype=0x8000, **params),
            entry("q", [8], 0, 20, dtype=0x8000),
            entry("q", [8], 0, 20, dtype=5),
            entry("q", [8], 0, 20, dtype=5, flags=True),
            entry("q", [8], 0, 20, dtype=5, flags=1),
        )
    }
    assert len(forms) == 5


def test_the_form_does_not_say_where_or_what() -> None:
    data = model()
    moved = file(
        [tidx(entry("b", [5, 10], 0, 200, hash_b3=digest(bytes(200)).hex())), shard(bytes(200))]
    )
    assert facts(opened(data))[1][1] == facts(opened(moved))[0][1]


def test_a_retyped_tensor() -> None:
    ours = opened(model(ihsh=True))
    theirs = opened(file([tidx(entry("a", [25], 0, 200, dtype=3)), shard(bytes(200))]))
    made = resealed(ours, [PlacedEntry(theirs, 0), PlacedEntry(ours, 1)])
    assert held(made) == [("a", "f64", (25,), bytes(200)), ("b", "f32", (5, 10), WEIGHTS[200:])]
    assert brief([*check(made).errors, *check(made).warnings]) == []


def test_dimensions_in_another_order() -> None:
    gguf = Chunk(b"MJSN", b"j", b'{"source_format":"gguf"}')
    reversed_one = opened(model(gguf))
    listed = aero.entries(reversed_one, OPTIONS)
    assert [one.tensor.order for one in listed if one.tensor] == ["reversed"] * 2
    plain = opened(model())
    only_shapes = "dimensions"
    assert only_shapes in refused(plain, own(reversed_one)).message
    assert only_shapes in refused(reversed_one, own(plain)).message
    assert only_shapes in refused(reversed_one, own(reversed_one), {}).message
    assert only_shapes in refused(reversed_one, own(reversed_one), {"MJSN": b"{"}).message
    # One dimension has no order.
    made = resealed(plain, [PlacedEntry(reversed_one, 0)])
    assert [tensor[:3] for tensor in held(made)] == [("a", "f32", (50,))]


MANIFEST = {
    "format": {"name": "AERO", "version": [0, 1]},
    "model": {"name": "m", "architecture": "a"},
    "chunks": [
        {"role": "json", "fourcc": "MJSN", "toc_index": 2},
        {"role": "manifest", "fourcc": "MMSG", "toc_index": 3, "more": 1},
        {"role": "?", "fourcc": "NOTE", "toc_index": 4},
        5,
        {"toc_index": 900},
    ],
    "shards": [{"shard_id": 0, "toc_index": 1, "size_bytes": 400, "tensor_count": 2}],
    "mine": b"\0",
}


def told(**more: Any) -> bytes:
    chunks = [
        Chunk(b"MJSN", b"meta.json", b'{"b": 1, "a": [1.5, NaN]}'),
        Chunk(b"MMSG", b"manifest", msgpack.packb(MANIFEST), 1),
        Chunk(b"NOTE", b"n", b"abc", 8),
    ]
    return model(*chunks, **more)


def test_the_values() -> None:
    found = values_of(opened(told(ihsh=True)))
    assert found["MMSG"] == {key: MANIFEST[key] for key in ("format", "model", "mine")}
    assert found["chunks"] == {"NOTE:0x8:n": b"abc"}
    assert list(found["MJSN"]) == ["b", "a"]
    assert values_of(opened(model(ihsh=True))) == {"chunks": {}}


def test_values_that_are_changed() -> None:
    data = told()
    container = opened(data)
    wanted = values_of(container)
    wanted["MJSN"] = {"a": 1, "é": None}
    wanted["MMSG"] = {"model": {"name": "other"}, "format": MANIFEST["format"], "x": 1}
    wanted["chunks"] = {"NOTE:0x8:n": b"changed", "MORE:0x1:": b"compressed" * 9}
    made = resealed(container, own(container), wanted)
    assert check(made).errors == []
    reading = read_strictly(made)
    assert values_of(opened(made)) == wanted
    assert held(made) == held(data)
    assert reading.chunks[b"MJSN", "meta.json"] == b'{"a":1,"\\u00e9":null}'
    assert reading.chunks[b"MORE", ""] == b"compressed" * 9
    assert opened(made).chunks[-1].is_compressed
    manifest = msgpack.unpackb(reading.chunks[b"MMSG", "manifest"])
    assert manifest["chunks"] == MANIFEST["chunks"]
    assert manifest["shards"] == MANIFEST["shards"]


def test_values_of_a_file_without_tensors() -> None:
    container = opened(fixture("aero/low_no_tidx_a.aero"))
    assert aero.entries(container, OPTIONS) == []
    made = resealed(container, [], {"MJSN": {"only": "other"}, "MMSG": {"x": 1}})
    reading = opened(made)
    assert values_of(reading) == {"MJSN": {"only": "other"}, "MMSG": {"x": 1}, "chunks": {}}
    assert check(made).errors == []


def test_1_is_not_true() -> None:
    container = opened(model(Chunk(b"MJSN", b"j", b'{"a":1}')))
    made = resealed(container, own(container), {"MJSN": {"a": True}})
    assert read_strictly(made).chunks[b"MJSN", "j"] == b'{"a":true}'
    container = opened(told())
    wanted = values_of(container)
    wanted["MMSG"]["format"]["version"] = [False, True]
    found = values_of(opened(resealed(container, own(container), wanted)))["MMSG"]
    assert found["format"]["version"][1] is True


def test_chunks_that_values_have_no_more() -> None:
    data = told()
    container = opened(data)
    wanted = values_of(container)
    del wanted["MJSN"]
    wanted["chunks"] = {}
    made = resealed(container, own(container), wanted)
    reading = read_strictly(made)
    assert [kind for kind, _ in reading.chunks] == [b"TIDX", b"WTSH", b"MMSG"]
    manifest = msgpack.unpackb(reading.chunks[b"MMSG", "manifest"])
    assert manifest["chunks"] == [
        {"role": "manifest", "fourcc": "MMSG", "toc_index": 2, "more": 1},
        5,
        {"toc_index": 900},
    ]
    assert manifest["shards"] == MANIFEST["shards"]
    none = resealed(container, own(container), {})
    assert [kind for kind, _ in read_strictly(none).chunks] == [b"TIDX", b"WTSH"]
    # And back again, behind the others.
    back = resealed(opened(none), own(opened(none)), values_of(container))
    assert values_of(opened(back)) | {"MJSN": 0} == values_of(container) | {"MJSN": 0}
    assert check(back).errors == []


def test_the_manifest_follows_the_shards() -> None:
    container = opened(told())
    made = resealed(container, own(container)[:1])
    manifest = msgpack.unpackb(read_strictly(made).chunks[b"MMSG", "manifest"])
    assert manifest["shards"] == [
        {"shard_id": 0, "toc_index": 1, "size_bytes": 200, "tensor_count": 1}
    ]
    assert manifest["chunks"] == MANIFEST["chunks"]
    # What lists no chunks goes on listing none.
    none = msgpack.packb({"chunks": [], "shards": [], "x": 1}) + b"rest"
    quiet = opened(file([tidx(), Chunk(b"MMSG", b"m", none)]))
    full = opened(model())
    made = resealed(quiet, own(full))
    assert read_strictly(made).chunks[b"MMSG", "m"] == none
    made = resealed(quiet, [], {"MMSG": {"x": 2}})
    assert read_strictly(made).chunks[b"MMSG", "m"] == none.replace(b"x\1", b"x\2")
    # Without lists in it there is nothing to be brought up to date.
    bare = opened(model(Chunk(b"MMSG", b"m", msgpack.packb({"shards": 1, "chunks": {}}))))
    made = resealed(bare, own(bare)[:1])
    assert read_strictly(made).chunks[b"MMSG", "m"] == msgpack.packb({"shards": 1, "chunks": {}})


@pytest.mark.parametrize(
    ("fourcc", "raw"),
    [
        (b"MJSN", b"[1]"),
        (b"MJSN", b"{"),
        (b"MJSN", b'{"a":1,"a":2}'),
        (b"MMSG", b"\xc1"),
        (b"MMSG", msgpack.packb([1])),
    ],
)
def test_metadata_that_are_no_object_are_bytes(fourcc: bytes, raw: bytes) -> None:
    container = opened(model(Chunk(fourcc, b"m", raw)))
    key = fourcc.decode()
    assert values_of(container)[key] == raw
    made = resealed(container, own(container), {key: b"other"})
    assert read_strictly(made).chunks[fourcc, "m"] == b"other"
    made = resealed(container, own(container), {key: {"a": "b"}})
    assert values_of(opened(made))[key] == {"a": "b"}
    made = resealed(container, own(container)[:1])
    assert read_strictly(made).chunks[fourcc, "m"] == raw


@pytest.mark.parametrize(
    "values",
    [
        {"MJSN": 5},
        {"MJSN": {"a": b"b"}},
        {"MMSG": 5},
        {"MMSG": {"a": object()}},
        {"MMSG": {"a": 2**64}},
        {"chunks": {"NOTE:0x8:n": "blake3:00"}},
        {"chunks": {"NEXT:0x8:n": 5}},
    ],
)
def test_values_that_can_not_be_written(values: dict[str, object]) -> None:
    container = opened(told())
    assert refused(container, own(container), values_of(container) | values).field in {
        "MJSN",
        "MMSG",
        "chunks",
    }


def test_unknown_chunks_that_are_no_values() -> None:
    large = [Chunk(b"LARG", b"l", bytes(2**16 + more), 1) for more in (0, 1)]
    odd_ones = [
        Chunk(b"\xff\xfeX ", b"", b"a"),
        Chunk(b"NOTE", b"a\0b", b"a"),
        Chunk(b"NOTE", b"n" * 256, b"a"),
        *[Chunk(b"NOTE", b"n", b"a")] * 2,
    ]
    small, big = (opened(model(one, *odd_ones)) for one in large)
    assert values_of(small)["chunks"] == {"LARG:0x1:l": bytes(2**16), "NOTE:0x0:n": b"a"}
    named = {"LARG:0x1:l": "blake3:" + digest(bytes(2**16 + 1)).hex(), "NOTE:0x0:n": b"a"}
    assert values_of(big)["chunks"] == named
    made = resealed(big, own(big), {"chunks": named | {"NOTE:0x0:n": b"c"}})
    assert [chunk.name_len for chunk in opened(made).chunks] == [
        chunk.name_len for chunk in big.chunks
    ]
    assert values_of(opened(made))["chunks"] == named | {"NOTE:0x0:n": b"c"}
    assert "too large" in refused(small, own(small), values_of(big)).message
    assert resealed(big, own(big), values_of(small)) != bytes(big.data)
    many = [Chunk(b"NOTE", b"%d" % n, bytes(2**16), 1) for n in range(257)]
    with pytest.raises(FormatError) as caught:
        values_of(opened(model(*many)))
    assert caught.value.kind == "limit"


def tied(*more: dict[str, Any], **options: Any) -> Aero:
    """Two tensors of the same bytes, one of some of them, one of others."""
    held = [entry("a", [50], 0, 200), entry("b", [50], 0, 200), entry("c", [10], 180, 40)]
    held += [entry("d", [10], 220, 40), *more]
    return opened(file([tidx(*held), shard(WEIGHTS)], **options))


def test_tensors_that_share_bytes_are_given_the_same() -> None:
    container = tied(ihsh=True)
    new = bytes(180) + WEIGHTS[180:200]
    made = resealed(container, own(container, {0: new, 1: new}))
    assert [tensor[3] for tensor in held(made)][:2] == [new, new]
    assert len(made) == len(container.data)
    made = resealed(container, own(container, {0: bytes(200), 1: bytes(200), 2: bytes(40)}))
    assert [tensor[3] for tensor in held(made)] == [
        bytes(200),
        bytes(200),
        bytes(40),
        WEIGHTS[220:260],
    ]
    for contents in (
        {0: bytes(200)},
        {0: bytes(200), 1: WEIGHTS[:200]},
        {0: bytes(200), 1: bytes(200)},
        {2: bytes(40)},
        {0: new, 1: new, 2: bytes(40)},
    ):
        for placed in (own(container, contents), own(container, contents)[:3]):
            assert "shares bytes" in refused(container, placed).message
    # What is the same as before is no change.
    assert resealed(container, own(container, {0: WEIGHTS[:200]})) == bytes(container.data)


def test_tensors_that_share_bytes_go_on_doing_so() -> None:
    container = tied(entry("e", [0], 900, 0))
    placed = own(container)
    made = resealed(container, [placed[3], placed[4], placed[2], placed[1], placed[0]][:4])
    assert [(one["name"], one["data_off"]) for one in index_of(made)] == [
        ("d", 0),
        ("e", 48),
        ("c", 48 + 180),
        ("b", 48),
    ]
    assert held(made) == [held(bytes(container.data))[n] for n in (3, 4, 2, 1)]


def test_many_tensors_of_the_same_bytes() -> None:
    """Neither the file nor the time grow with how often bytes are shared."""
    size = 2**20
    many = [entry(f"t{n}", [size // 4], 0, size) for n in range(100)]
    container = opened(file([tidx(*many), shard(bytes(size))]))
    fewer = resealed(container, own(container)[1:])
    assert len(fewer) < len(container.data)
    contents = dict.fromkeys(range(100), bytes([1]) * size)
    assert refused(container, own(container, contents)).kind == "limit"
    steps = [entry(f"t{n}", [size // 4 - 100], n, size - 400) for n in range(100)]
    container = opened(file([tidx(*steps), shard(bytes(size))]))
    fewer = resealed(container, own(container)[1:])
    assert len(fewer) < len(container.data)
    contents = dict.fromkeys(range(100), bytes(size - 400))
    assert refused(container, own(container, contents)).kind == "limit"


def test_chunks_that_share_bytes_are_taken_apart() -> None:
    index = tidx(
        entry("a", [50], 0, 200), entry("b", [50], 200, 200), entry("c", [50], 0, 200, shard_id=1)
    )
    data = file([index, shard(WEIGHTS), shard(WEIGHTS, 1, offset=0)])
    start = data.index(WEIGHTS)
    data = file([index, shard(WEIGHTS), shard(WEIGHTS, 1, offset=start)])
    container = opened(data)
    assert check(data).errors == []
    made = resealed(container, own(container, {0: bytes(200)}))
    assert [tensor[3] for tensor in held(made)] == [bytes(200), WEIGHTS[200:], WEIGHTS[:200]]
    assert read_strictly(made).tensors["c"][2] == WEIGHTS[:200]


def test_a_seal_over_weights() -> None:
    data = model(ihsh=True)
    start, first = data.index(WEIGHTS), opened(data).chunks[0]
    zeroed = bytearray(data)
    for place in range(3):
        zeroed[TOC + 80 * place + 48 : TOC + 80 * place + 80] = bytes(32)
    spans = [[0, first.offset], [start, start + 10]]
    seal = integrity(digest(b"".join(zeroed[a:b] for a, b in spans)), spans)
    data = data[: first.offset] + seal + data[first.end :]
    data = changed(data, TOC + 48, "32s", digest(seal))
    assert check(data).errors == []
    container = opened(data)
    read_strictly(resealed(container, own(container, {0: bytes(200)})))


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (model(flags=1), "file_flags"),
        (model(Chunk(b"NOTE", b"n", b"abc", digest=digest(b""))), "blake3_256"),
        (changed(model(ihsh=True), 52, "B", 0xEE), "digest"),
        (file([tidx(HASHED | {"hash_b3": "0" * 64}), shard(WEIGHTS)]), "hash_b3"),
        (model(phsh("weights.shard0", 400, [digest(b"")])), "digests"),
        # What no check looks at.
        (model(phsh("weights.shard0", 400, [digest(WEIGHTS)], flags=9)), "chunk_flags"),
        (model(*[phsh("weights.shard0", 400, [digest(WEIGHTS)])] * 2), "shard_name"),
        (model(Chunk(b"IHSH", b"i", msgpack.packb({"algo": "x"}))), "algo"),
    ],
)
def test_damage_is_not_hashed_anew(data: bytes, field: str) -> None:
    container, sound = opened(data), opened(file([tidx(entry("z", [1], 0, 4)), shard(b"abcd")]))
    new = {0: bytes(container.entries[0].data_len)}
    assert refused(container, own(container, new)).field == field
    assert refused(container, [*own(container), PlacedEntry(sound, 0)]).field == field
    if check(data).errors:
        assert refused(sound, [*own(sound), PlacedEntry(container, 0)]).field == field


def test_what_is_refused() -> None:
    container = opened(model())
    placed = own(container)
    assert "were given" in refused(container, own(container, {0: bytes(199)})).message
    assert "are named" in refused(container, [*placed, placed[0]]).message
    for blocks in ([bytes(199)], [bytes(201)], [bytes(100), bytes(101)], []):
        fickle = NewContent(200, lambda blocks=blocks: iter(blocks))  # type: ignore[misc]
        assert "gives" in refused(container, [PlacedEntry(container, 0, fickle), placed[1]]).message
    endless = NewContent(200, lambda: repeat(bytes(150)))
    assert "gives" in refused(container, [PlacedEntry(container, 0, endless), placed[1]]).message
    keys = {f"k{n}": 0 for n in range(10_000)}
    wide_one = opened(file([tidx(entry("a", [1], 0, 4) | keys), shard(b"abcd")]))
    with pytest.raises(FormatError) as caught:
        aero.entries(wide_one, OPTIONS)
    assert caught.value.kind == "limit"
    tiny = model(phsh("weights.shard0", 1, pages(WEIGHTS, 1)))
    more = opened(file([tidx(entry("z", [10**6], 0, 10**6, dtype=5)), shard(bytes(10**6))]))
    assert refused(opened(tiny), [*own(opened(tiny)), PlacedEntry(more, 0)]).kind == "limit"


def test_names_that_are_there_twice() -> None:
    twice = [entry("a", [1], 0, 4)] * 2
    container = opened(file([tidx(*twice), shard(b"abcd")]))
    assert resealed(container, own(container)) == bytes(container.data)
    assert "are named" in refused(container, [*own(container), own(container)[0]]).message
    other = opened(file([tidx(entry("a", [1], 0, 4)), shard(b"wxyz")]))
    placed = [PlacedEntry(container, 0), PlacedEntry(other, 0)]
    assert "are named" in refused(container, placed).message
    # Of two tensors of a name readers find one: a file that hides one is no version to merge.
    hidden = opened(file([tidx(twice[0], entry("a", [1], 4, 4)), shard(b"abcdefgh")]))
    assert "appears twice" in refused(hidden, own(hidden, {1: b"1234"})).message


def test_tensors_come_in_blocks() -> None:
    size, calls = 8 * 2**20, 0

    def blocks() -> Iterator[Buffer]:
        nonlocal calls
        calls += 1
        yield from (bytes([n]) * 2**20 for n in range(8))

    tensors = [TensorSource(name, "u8", (size,), size, blocks) for name in "ab"]
    container = opened(b"".join(write.build(tensors, phsh=2**16, tensor_hash=True, ihsh=True)))
    calls = 0
    new = NewContent(size, lambda: (bytes(block)[::-1] for block in blocks()))
    for placed in (
        [PlacedEntry(container, 0, new), PlacedEntry(container, 1)],
        [PlacedEntry(container, 1, new)],
    ):
        calls = 0
        pieces = list(aero.reseal(container, placed, None, OPTIONS))
        assert calls == 2
        assert max(map(len, pieces)) <= 4 * 2**20
        assert check(b"".join(pieces)).errors == []


CHUNKS = [
    tidx(entry("a", [50], 0, 200), entry("b", [50], 200, 200), entry("c", [1], 0, 4, shard_id=1)),
    shard(WEIGHTS),
    phsh("weights.shard0", 100, pages(WEIGHTS, 100)),
    shard(WEIGHTS, 1, flags=3),
    Chunk(b"MMSG", b"manifest", msgpack.packb(MANIFEST)),
    Chunk(b"MJSN", b"meta.json", b'{"a":1}'),
]


@given(st.data())
def test_hostile_files(data: st.DataObject) -> None:
    """Whatever a file says, what is written from it is sound, or it is refused."""
    bases = (
        told(ihsh=True),
        file([tidx(HASHED), shard(WEIGHTS, flags=3)]),
        bytes(tied().data),
        # Without hashes, so that what is changed is found later or not at all.
        file([replace(chunk, digest=bytes(32)) for chunk in CHUNKS]),
    )
    raw = bytearray(data.draw(st.sampled_from(bases)))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        container = opened(bytes(raw))
        listed: list[Entry] = aero.entries(container, OPTIONS)
        found = values_of(container)
    except FormatError:
        return
    attempts: list[Callable[[], bytes]] = [
        lambda: resealed(container, own(container)[1:]),
        lambda: resealed(container, own(container), found | {"MJSN": {"x": "y"}}),
        lambda: resealed(
            container,
            own(container, {n: bytes(t.tensor.nbytes) for n, t in enumerate(listed) if t.tensor}),
        ),
    ]
    for attempt in attempts:
        try:
            made = attempt()
        except FormatError:
            continue
        # Without tensors to be changed even a damaged file stays.
        assert made == bytes(raw) or check(made).errors == []


def test_the_rest_is_what_neither_tensors_nor_values_tell() -> None:
    def rest(data: bytes) -> dict[str, object]:
        return aero.rest(opened(data), OPTIONS)

    note = Chunk(b"NOTE", b"n", b"a value", 8)
    mjsn = Chunk(b"MJSN", b"meta.json", b'{"a":1}')
    plain = model()
    assert rest(plain) == {}
    assert rest(model(uuid=bytes(16))) == rest(model(note, mjsn)) == {}
    spaced_out = [tidx(entry("a", [50], 0, 200), entry("b", [5, 10], 208, 200))]
    gap = WEIGHTS[:200] + b"%s" + WEIGHTS[200:]
    assert rest(file([*spaced_out, shard(gap.replace(b"%s", bytes(8)))])) == {}
    sealed = rest(model(ihsh=True))
    paged = [phsh("weights.shard0", size, pages(WEIGHTS, size)) for size in (64, 128)]
    found = [
        rest(model(reserved=b"x")),
        rest(changed(plain, 96 + 4, "<I", 1)),
        rest(plain + b"behind"),
        rest(plain + b"otherwise"),
        rest(model(replace(mjsn, flags=8))),
        rest(model(replace(mjsn, name=b"other"))),
        rest(model(mjsn, replace(mjsn, content=b"{}"))),
        rest(model(mjsn, replace(mjsn, content=b"[]"))),
        rest(model(replace(note, fourcc=b"\xff\xff\xff\xff"))),
        rest(model(replace(note, reserved=1))),
        rest(model(shard(b"no tensors", 1))),
        rest(model(shard(b"of others", 1))),
        rest(model(shard(b"second"))),
        rest(model(paged[0])),
        rest(model(paged[1])),
        rest(file([*spaced_out, shard(gap.replace(b"%s", b"strange!"))])),
        rest(file([*spaced_out, shard(gap.replace(b"%s", b"stranger"), flags=3)])),
        rest(file([tidx(entry("a", [50], 0, 200), flags=5), shard(WEIGHTS[:200])])),
        sealed,
    ]
    assert {} not in found
    assert all(found.count(one) == 1 for one in found)


def test_further_keys_of_chunks_are_rest() -> None:
    def rest(*chunks: Chunk) -> dict[str, object]:
        return aero.rest(opened(file([*chunks, shard(WEIGHTS)])), OPTIONS)

    def packed_as(fourcc: bytes, name: bytes, value: object, flags: int = 0) -> Chunk:
        return Chunk(fourcc, name, msgpack.packb(value), flags)

    lists: dict[str, Any] = {"chunks": [{"role": "tensors", "toc_index": 0}], "shards": [{}]}
    listed = {"chunks": [{"role": "tensors", "toc_index": 0, "more": 1}], "shards": [{}]}
    one = {"name": "a", "dtype": 1, "shape": [1], "shard_id": 0, "data_off": 0, "data_len": 400}
    seal = {"algo": "other", "covered_ranges": [], "digest": b""}
    found = [
        rest(packed_as(b"MMSG", b"manifest", lists | {"model": 1})),
        rest(packed_as(b"MMSG", b"manifest", listed)),
        rest(packed_as(b"MMSG", b"manifest", {"chunks": [], "shards": [{}]})),
        rest(packed_as(b"MMSG", b"manifest", {"shards": [{}]})),
        rest(packed_as(b"TIDX", b"tensors", {"tensors": [one], "k": 1}, 4)),
        rest(packed_as(b"TIDX", b"tensors", {"tensors": [one], "k": 2}, 4)),
        rest(packed_as(b"TIDX", b"tensors", {"tensors": [one | {"hash_b3": digest(WEIGHTS)}]}, 4)),
        rest(packed_as(b"IHSH", b"control.integrity", seal, 8)),
        rest(packed_as(b"IHSH", b"control.integrity", seal | {"k": 1}, 8)),
    ]
    assert all(found.count(one) == 1 for one in found)


@pytest.mark.parametrize("name", SOUND)
def test_the_rest_stays_where_tensors_change(name: str) -> None:
    container = opened(fixture(name))
    number = next((n for n, t in enumerate(container.tensors) if t.end > t.start), None)
    if number is None:
        return
    tensor = container.tensors[number]
    raw = inverted(bytes(container.data[tensor.start : tensor.end]))
    try:
        data = resealed(container, own(container, {number: raw}))
    except FormatError:
        return
    assert aero.rest(opened(data), OPTIONS) == aero.rest(container, OPTIONS)


def test_chunks_that_share_bytes_are_not_hashed_over_and_over() -> None:
    content = bytes(2**20) + b"x"

    def sharing(count: int) -> Aero:
        """Shards without tensors at the same bytes."""
        places = [replace(shard(content, n), stored=b"") for n in range(1, count)]
        data = file([tidx(), shard(content), *places])
        at = struct.pack("<QQ", data.index(content), len(content))
        for n in range(2, count + 1):
            start = TOC + 80 * n + 8
            data = data[:start] + at + data[start + len(at) :]
        return opened(data)

    assert len(aero.rest(sharing(4), OPTIONS)) == 4
    with pytest.raises(FormatError) as caught:
        aero.rest(sharing(20), OPTIONS)
    assert caught.value.kind == "limit"
