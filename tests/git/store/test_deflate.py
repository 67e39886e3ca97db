"""Streams of pieces: zlib inflates them, and they are inflated as zlib does."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import seeded
from wtxtgit.git.store import streams
from wtxtgit.git.store.streams import Damaged, PlainContent, deflated, inflated

_BYTES = st.one_of(st.binary(max_size=300), st.sampled_from([b"", streams.FLUSH * 40, bytes(9000)]))


@dataclass(frozen=True)
class Pieces:
    """A content in these pieces."""

    pieces: list[bytes]

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))

    def stream(self) -> list[bytes]:
        return self.pieces


def stream_of(pieces: list[bytes], lead: bytes = b"", threads: int = 2) -> bytes:
    """The zlib stream of pieces, all of which pass by."""
    put: list[bytes] = []
    assert list(deflated(Pieces(pieces), put.append, threads, lead)) == pieces
    return b"".join(put)


def read(
    stream: bytes, nbytes: int, threads: int, before: bytes = b"-", after: bytes = b""
) -> bytes:
    with tempfile.TemporaryFile() as file:
        file.write(before + stream + after)
        file.flush()
        return b"".join(inflated(file.fileno(), len(before), nbytes, threads))


@given(_BYTES, _BYTES)
def test_a_joined_adler32_is_that_of_the_whole(first: bytes, second: bytes) -> None:
    joined = streams.joined_adler32(zlib.adler32(first), zlib.adler32(second), len(second))
    assert joined == zlib.adler32(first + second)


@given(st.lists(_BYTES, max_size=8), _BYTES, st.integers(1, 3))
def test_pieces_make_one_stream(pieces: list[bytes], lead: bytes, threads: int) -> None:
    whole = lead + b"".join(pieces)
    stream = stream_of(pieces, lead, threads)
    assert zlib.decompress(stream) == whole
    assert read(stream, len(whole), threads, after=b"\0\0\xff\xff more") == whole


def test_threads_do_not_change_a_stream() -> None:
    pieces = [os.urandom(1000) * (1 + number % 300) for number in range(60)]
    assert len({stream_of(pieces, b"lead", threads) for threads in (1, 2, 5)}) == 1


def test_a_stream_that_is_not_taken_has_no_end() -> None:
    put: list[bytes] = []
    giving = deflated(Pieces([bytes(100_000)] * 30), put.append, 2)
    next(giving)
    giving.close()  # type: ignore[attr-defined]
    assert not zlib.decompressobj().decompress(b"".join(put)).startswith(bytes(3_000_000))


@pytest.mark.parametrize("size", [0, 1, 65534, 65535, 65536, 131070, 131071])
def test_stored_blocks_hold_any_number_of_bytes(size: int) -> None:
    data = os.urandom(size)
    assert zlib.decompress(streams.stored_blocks(data) + streams.END, streams.RAW) == data


STREAMS: dict[str, Callable[[bytes], bytes]] = {
    "zlib's": lambda whole: zlib.compress(whole, 1),
    "stored": lambda whole: zlib.compress(whole, 0),
    "pieces": lambda whole: stream_of(
        [whole[start : start + 70_000] for start in range(0, len(whole), 70_000)]
    ),
    "marks inside": lambda whole: stream_of([], lead=whole),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize(
    "whole", [b"", b"a", bytes(40 << 20), streams.FLUSH * 70_000, os.urandom(300_000)], ids=len
)
def test_any_stream_is_inflated(whole: bytes, name: str) -> None:
    stream = STREAMS[name](whole)
    for threads in (1, 2, 3):
        assert read(stream, len(whole), threads, after=b"PACK") == whole, threads


@pytest.mark.parametrize("threads", [1, 2])
def test_damage_is_found(threads: int) -> None:
    whole = b"".join(b"%d," % number for number in range(50_000))
    good = STREAMS["pieces"](whole)
    for damaged in (
        good[:-1],
        good[: len(good) // 2],
        good[:1],
        b"",
        b"\x78\x02" + good[2:],
        b"\x79\x20" + good[2:],
        good[:-1] + bytes([good[-1] ^ 1]),
        good[:1000] + b"\xff" * 20 + good[1020:],
    ):
        with pytest.raises(Damaged):
            read(damaged, len(whole), threads)
    for nbytes in (len(whole) - 1, len(whole) + 1, 0):
        with pytest.raises(Damaged):
            read(good, nbytes, threads)


def test_a_plain_content_gives_its_bytes() -> None:
    data = os.urandom(2_500_000)
    content = PlainContent(memoryview(data))
    assert content.size == len(data)
    assert b"".join(content.stream()) == data


@pytest.mark.parametrize("after", [b"", b"PACK" * 500_000])
@pytest.mark.parametrize("seed", [1, 50])
def test_pieces_of_all_lengths_are_inflated_side_by_side(
    seed: int, after: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One long deflated piece leads to skipping many short ones, more than are inflated at once.
    # That of the second seed holds what looks like the mark between pieces.
    noise = seeded(f"noise {seed}")
    pieces = [noise.randbytes(1 << 20), *[bytes(1 << 20)] * 70, noise.randbytes(70_000), b"end"]
    stream = stream_of(pieces)
    monkeypatch.setattr(streams, "_inflate_serially", None)
    whole = b"".join(pieces)
    assert read(stream, len(whole), 2, after=after) == whole
    with pytest.raises(Damaged):
        read(stream[:-1], len(whole), 2)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("mode", [zlib.Z_SYNC_FLUSH, zlib.Z_PARTIAL_FLUSH, zlib.Z_FULL_FLUSH])
def test_pieces_may_refer_to_those_before_them(mode: int, threads: int) -> None:
    """Who flushes need not forget: what follows such a mark is no stream of its own."""
    line = seeded("line").randbytes(20_000)
    pieces = [line * 3, *[line] * 40, seeded("end").randbytes(100_000), line]
    deflater = zlib.compressobj(6)
    stream = b"".join(deflater.compress(piece) + deflater.flush(mode) for piece in pieces)
    whole = b"".join(pieces)
    assert read(stream + deflater.flush(), len(whole), threads, after=b"more" * 9000) == whole


def test_marks_alone_are_no_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    inflate_one = streams._inflate
    monkeypatch.setattr(
        streams, "_inflate", lambda *given: begun.append(given) or inflate_one(*given)
    )
    empty = b"\0" + streams.FLUSH
    stream = stream_of([b"text" * 1000])
    head, rest = stream[:2], stream[2:]
    whole = b"text" * 1000
    assert read(head + empty * 100_000 + rest, len(whole), 2) == whole
    assert len(begun) < 100


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("level", [1, 6])
def test_a_small_stream_of_very_many_bytes(level: int, threads: int) -> None:
    """The codec has taken all of the stream long before it has given the last byte."""
    size = 40 * 1024 * 1024 + 14
    assert read(zlib.compress(bytes(size), level), size, threads) == bytes(size)
