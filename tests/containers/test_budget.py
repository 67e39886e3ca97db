"""Parts that are decoded when they are read: what is held, how often, and what is too much."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pytest

from tests.containers import samples, zip_files
from tests.containers.zip_files import Entry
from tests.fuzz.container_oracle import MIB, peak_of
from wtxtgit.checkpoint import convert
from wtxtgit.containers import any_format, budget
from wtxtgit.containers.budget import DecodedParts
from wtxtgit.containers.fold import write
from wtxtgit.containers.fold.write import ChunkSource, Compression
from wtxtgit.errors import FormatError
from wtxtgit.model.tensor import Decoding, ReadOptions, Tensor


def listed(data: bytes, max_chunk: int = MIB) -> list[Tensor]:
    options = ReadOptions(max_chunk=max_chunk)
    return list(any_format.tensors(any_format.describe(memoryview(data), options), options))


class Counted:
    """Decodes to zeros, and counts how often."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.times = 0

    def __call__(self) -> memoryview:
        self.times += 1
        return memoryview(bytes(self.size))


def test_what_fits_is_decoded_once() -> None:
    parts = DecodedParts(ReadOptions(max_chunk=30))
    made = [Counted(10) for _ in range(3)]
    for _ in range(100):
        for key, part in enumerate(made):
            assert len(parts.open(key, 10, part)) == 10
    assert [part.times for part in made] == [1, 1, 1]


def test_the_part_used_last_stays() -> None:
    parts = DecodedParts(ReadOptions(max_chunk=20))
    made = {key: Counted(10) for key in "abc"}
    for key in "abacab":
        parts.open(key, 10, made[key])
    # c takes b's place, b that of c.
    assert {key: part.times for key, part in made.items()} == {"a": 1, "b": 2, "c": 1}


def test_what_does_not_fit_is_decoded_within_bounds() -> None:
    options = ReadOptions(max_chunk=10)
    parts = DecodedParts(options).of_file(1)
    made = [Counted(10), Counted(10)]

    def alternate() -> None:
        while True:
            parts.open(0, 10, made[0])
            parts.open(1, 10, made[1])

    with pytest.raises(FormatError, match="over 10 bytes in total") as refused:
        alternate()
    assert refused.value.kind == "limit"
    per_pass = options.max_chunk + budget.MOST_RATIO
    assert 10 * sum(part.times for part in made) <= budget.MAX_PASSES * per_pass


def packed_npz(count: int, size: int) -> bytes:
    member = zip_files.npy(np.zeros(size // 8))
    return zip_files.zipped([Entry(b"%d.npy" % n, member, 8) for n in range(count)])


def fold_of(content: bytes, count: int = 1, *, compression: Compression = "zstd") -> bytes:
    """A FOLD file of chunks c0, c1 and so on that all hold the same file."""
    chunks = [
        ChunkSource(f"c{n}", b"STEN", len(content), lambda: iter([content])) for n in range(count)
    ]
    return b"".join(write.build(chunks, compression=compression))


def packed_fold(count: int, size: int) -> bytes:
    """One chunk with a safetensors file for each tensor, compressed."""
    item = {"w": samples.tensor_item("U8", [size], 0, size)}
    return fold_of(samples.safetensors(item, bytes(size)), count)


@pytest.mark.parametrize("made", [packed_npz, packed_fold])
def test_listing_and_keeping_tensors_keeps_nothing_decoded(
    made: Callable[[int, int], bytes],
) -> None:
    data = made(6, MIB - 1024)
    options = ReadOptions(max_chunk=MIB, decoding=Decoding(lambda: 16 * MIB))

    def read() -> None:
        description = any_format.describe(memoryview(data), options)
        kept = convert.sources_of("f", description, options, len(data))
        assert len(kept) == 6
        for source in (*kept, *kept):
            assert sum(len(block) for block in source.blocks()) == source.nbytes > MIB // 2

    read()
    # A new command has all of its limit still.
    options = ReadOptions(max_chunk=MIB, decoding=Decoding(lambda: 16 * MIB))
    assert peak_of(read) < 4 * MIB


@pytest.mark.parametrize("text", [b"{},", b"[],", b"0,", b'"a":0,'])
def test_a_bomb_of_json_in_a_compressed_chunk(text: bytes) -> None:
    start = b'{"a":[' if text[:1] != b'"' else b"{"
    header = start + text * (24 * MIB // len(text))
    content = len(header).to_bytes(8, "little") + header
    data = fold_of(content, 3)
    assert len(data) < 20_000
    options = ReadOptions(max_chunk=32 * MIB)

    def read() -> list[str]:
        description = any_format.describe(memoryview(data), options)
        untold: list[str] = []
        assert list(any_format.tensors(description, options, untold)) == []
        return untold

    told = read()
    assert [line.partition(": header lists more items than")[0] for line in told] == [
        f"chunk 'c{n}'" for n in range(3)
    ]
    # Nothing of it is copied: the chunk stands in a file.
    assert peak_of(read) < 12 * MIB


def test_chunks_of_a_fold_file_decode_to_no_more_than_a_file_may() -> None:
    data = memoryview(packed_fold(20, MIB - 1024))
    found = any_format.check(data, ReadOptions(max_chunk=MIB)).errors
    allowed = budget.most_decoded(len(data), ReadOptions(max_chunk=MIB)) // MIB
    assert [(e.kind, e.field, e.chunk) for e in found] == [
        ("limit", "uncomp_len", f"c{n}") for n in range(allowed, 20)
    ]
    assert any_format.check(data, ReadOptions(max_chunk=20 * MIB)).errors == []


def test_files_of_other_formats_in_chunks_are_named_and_not_looked_into() -> None:
    inner = packed_fold(1, 100)
    data = fold_of(inner, compression="none")
    description = any_format.describe(memoryview(data))
    untold: list[str] = []
    assert list(any_format.tensors(description, untold=untold)) == []
    assert untold == ["chunk 'c0' does not hold a file whose tensors can be read"]


def npz_of(count: int) -> memoryview:
    return memoryview(packed_npz(count, MIB - 1024))


def test_the_limit_of_a_file_is_told_with_its_setting() -> None:
    errors = any_format.check(npz_of(6), ReadOptions(max_chunk=MIB)).errors
    assert [(e.kind, e.chunk) for e in errors] == [("limit", "4.npy"), ("limit", "5.npy")]
    assert "over 4194304 bytes; git config wtxtgit.decodeLimit SIZE allows more" in str(errors[0])


def test_the_setting_counts_in_both_directions() -> None:
    for configured, errors in ((MIB, 5), (6 * MIB, 0), (None, 2)):
        options = ReadOptions(max_chunk=MIB, decoding=Decoding(lambda said=configured: said))
        assert len(any_format.check(npz_of(6), options).errors) == errors


def test_a_file_may_be_a_multiple_of_its_size() -> None:
    options = ReadOptions(decoding=Decoding(lambda: 0))
    assert budget.most_decoded(100, options) == 100 * budget.MOST_RATIO


def test_all_files_of_a_command_have_a_limit_together() -> None:
    options = ReadOptions(max_chunk=MIB, decoding=Decoding())
    found = [len(any_format.check(npz_of(4), options).errors) for _ in range(6)]
    assert found[0] == found[3] == 0
    assert found[-1] > 0
    (error, *_) = any_format.check(npz_of(4), options).errors
    assert error.message.startswith("all files of the command decode to over ")
    assert "wtxtgit.decodeLimit" in error.message
    # What another command decodes does not count.
    assert any_format.check(npz_of(4), ReadOptions(max_chunk=MIB, decoding=Decoding())).errors == []


def test_what_is_not_compressed_costs_nothing() -> None:
    data = zip_files.zipped([Entry(b"a.npy", zip_files.npy(np.zeros(MIB)))])
    options = ReadOptions(decoding=Decoding(lambda: 0))
    assert any_format.check(memoryview(data), options).errors == []
    assert options.decoding is not None
    assert options.decoding.spent == 0


def test_chunks_over_the_limit_are_told_in_one_line() -> None:
    data = packed_fold(7, MIB - 1024)
    options = ReadOptions(max_chunk=MIB)
    refused: list[str] = []
    described = any_format.describe(memoryview(data), options)
    assert len(list(any_format.tensors(described, options, refused=refused))) == 4
    (line,) = any_format.in_one_line(refused)
    assert line.startswith("chunk 'c4': compressed parts of the file decode to over 4194304 bytes")
    assert line.endswith("(and 2 more)")


def test_a_worker_elsewhere_has_the_setting_of_here() -> None:
    sent = pickle.loads(pickle.dumps(ReadOptions(decoding=Decoding(lambda: 7))))  # noqa: S301
    assert sent.decoding.limit == 7
