"""FOLD: files whose writer died before the index was written."""

from __future__ import annotations

import json

import pytest

from tests.containers.fold_files import MODEL, NOISE, built, flipped, index_of
from tests.data import fixture
from wtxtgit.containers.any_format import tensors
from wtxtgit.containers.fold import describe
from wtxtgit.errors import FormatError
from wtxtgit.model.tensor import ReadOptions

OPTIONS = ReadOptions()


def unfinalized(compression: str = "none") -> bytes:
    """Three chunks and no index."""
    chunks = [("a", b"STEN", MODEL), ("b", b"JSON", b"{}"), ("c", b"STEN", MODEL)]
    data = built(*chunks, compression=compression)
    last = index_of(data)["chunks"][-1]
    end = last["offset"] + 32 + last["comp_len"]
    return data[:12] + bytes(16) + data[28:end]


def test_the_fixture() -> None:
    data = memoryview(fixture("fold/unfinalized_a.fold"))
    assert describe.is_unfinalized(data)
    found = describe.describe_unfinalized(data, OPTIONS)
    assert json.loads(json.dumps(found.metadata)) == {
        "finalized": False,
        "chunks": [
            {
                "name": "chunk0",
                "ctype": "STEN",
                "flags": 0,
                "offset": 28,
                "comp_len": 2358,
                "uncomp_len": 2358,
                "ecc_len": 0,
                "crc32c": "holds",
            }
        ],
        "rest": {"offset": 2418, "size": 0},
    }
    assert len(list(tensors(found, OPTIONS))) == 7


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_chunks_are_listed_and_opened(compression: str) -> None:
    data = memoryview(unfinalized(compression))
    assert describe.is_unfinalized(data)
    assert [chunk.ctype for chunk, _ in describe.walk(data)] == [b"STEN", b"JSON", b"STEN"]
    listed = list(tensors(describe.describe_unfinalized(data, OPTIONS), OPTIONS))
    assert [(t.name, bytes(t.data)) for t in listed] == [("chunk0/w", NOISE), ("chunk2/w", NOISE)]
    if compression == "none":
        assert [t.offset for t in listed] == [data.obj.index(NOISE), data.obj.rindex(NOISE)]


def test_a_chunk_whose_crc_differs_is_told_and_not_opened() -> None:
    found = describe.describe_unfinalized(memoryview(flipped(unfinalized(), 61)), OPTIONS)
    chunks = found.metadata["chunks"]
    assert isinstance(chunks, list)
    assert [chunk["crc32c"] for chunk in chunks] == ["differs", "holds", "holds"]
    assert [nested.name for nested in found.nested] == ["chunk2"]


@pytest.mark.parametrize("lost", [1, 500, 1080])
def test_a_chunk_that_is_cut_short_is_the_rest(lost: int) -> None:
    data = unfinalized()
    found = describe.describe_unfinalized(memoryview(data[:-lost]), OPTIONS)
    start = data.rindex(b"STEN")
    assert len(found.metadata["chunks"]) == 2  # type: ignore[arg-type]
    assert found.metadata["rest"] == {"offset": start, "size": len(data) - lost - start}


@pytest.mark.parametrize(
    "rest", [b'{"format":"fold","version":"1.2.0"}', b"\0" * 100, b"\xff" * 40]
)
def test_bytes_that_are_no_chunk_end_the_walk(rest: bytes) -> None:
    data = unfinalized()
    assert len(describe.walk(memoryview(data + rest))) == 3


def test_every_truncation_ends_well() -> None:
    data = unfinalized()
    for end in range(28, len(data), 3):
        assert len(describe.walk(memoryview(data[:end]))) <= 3
    for end in range(28):
        assert not describe.is_unfinalized(memoryview(data[:end]))
        with pytest.raises(FormatError, match="cut short"):
            describe.walk(memoryview(data[:end]))


def test_finalized_files_are_not_meant() -> None:
    assert not describe.is_unfinalized(memoryview(built()))
