"""Streams of pieces: zlib inflates them, and they are inflated as zlib does."""

from __future__ import annotations

import os
import tempfile
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtxtgit.git.store import deflate
from wtxtgit.git.store.inflate import Damaged, inflated
from wtxtgit.git.store.zlib_stream import Plain, ZlibStream

_BYTES = st.one_of(st.binary(max_size=300), st.sampled_from([b"", deflate.FLUSH * 40, bytes(9000)]))


@dataclass(frozen=True)
class Part:
    """A span of a content."""

    data: bytes
    is_late: bool = False

    @property
    def size(self) -> int:
        return len(self.data)


def stream_of(parts: list[Part], order: list[int] | None = None, lead: bytes = b"") -> bytes:
    """The zlib stream of parts that arrive in an order."""
    with tempfile.TemporaryFile() as file:
        file.write(b"....")
        file.flush()
        stream = ZlibStream(file.fileno(), 4, parts, lead)
        for number in order or range(len(parts)):
            stream.place(number, memoryview(parts[number].data))
        end = stream.finish()
        file.seek(4)
        content = file.read()
    assert end == 4 + len(content)
    return content


def read(
    stream: bytes, nbytes: int, threads: int, before: bytes = b"-", after: bytes = b""
) -> bytes:
    with tempfile.TemporaryFile() as file:
        file.write(before + stream + after)
        file.flush()
        return b"".join(inflated(file.fileno(), len(before), nbytes, threads))


@given(_BYTES, _BYTES)
def test_a_joined_adler32_is_that_of_the_whole(first: bytes, second: bytes) -> None:
    joined = deflate.joined_adler32(zlib.adler32(first), zlib.adler32(second), len(second))
    assert joined == zlib.adler32(first + second)


@given(st.data())
def test_spans_in_any_order_make_one_stream(data: st.DataObject) -> None:
    parts = data.draw(st.lists(st.builds(Part, _BYTES, st.booleans()), max_size=8))
    order = data.draw(st.permutations(range(len(parts))))
    lead = data.draw(_BYTES)
    whole = lead + b"".join(part.data for part in parts)
    stream = stream_of(parts, order, lead)
    assert zlib.decompress(stream) == whole
    assert read(stream, len(whole), 2, after=b"\0\0\xff\xff more") == whole


@given(st.data())
def test_stored_blocks_have_the_size_that_is_told(data: st.DataObject) -> None:
    size = data.draw(st.sampled_from([0, 1, 65534, 65535, 65536, 131070, 131071]))
    made = deflate.stored(bytes(size))
    assert len(made) == deflate.stored_size(size)
    assert zlib.decompress(made + deflate.END, deflate.RAW) == bytes(size)


def test_threads_place_spans_side_by_side() -> None:
    parts = [Part(os.urandom(5000) * 20, is_late=number % 7 == 0) for number in range(40)]
    with tempfile.TemporaryFile() as file:
        stream = ZlibStream(file.fileno(), 0, parts)

        def some(first: int) -> None:
            for number in range(first, len(parts), 4):
                stream.place(number, memoryview(parts[number].data))

        threads = [threading.Thread(target=some, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stream.finish()
        file.seek(0)
        assert zlib.decompress(file.read()) == b"".join(part.data for part in parts)


def test_a_span_that_is_missing_is_told() -> None:
    for parts in ([Part(b"a")], [Part(b"a", is_late=True)]):
        with tempfile.TemporaryFile() as file, pytest.raises(AssertionError):
            ZlibStream(file.fileno(), 0, parts).finish()


STREAMS: dict[str, Callable[[bytes], bytes]] = {
    "zlib's": lambda whole: zlib.compress(whole, 1),
    "stored": lambda whole: zlib.compress(whole, 0),
    "pieces": lambda whole: stream_of(
        [Part(whole[a:b]) for a, b in pairwise(range(0, len(whole) + 70_001, 70_000))]
    ),
    "marks inside": lambda whole: stream_of([Part(whole, is_late=True)]),
}


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize(
    "whole", [b"", b"a", bytes(40 << 20), deflate.FLUSH * 70_000, os.urandom(300_000)], ids=len
)
def test_any_stream_is_inflated(whole: bytes, name: str, threads: int) -> None:
    assert read(STREAMS[name](whole), len(whole), threads, after=b"PACK") == whole


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


def test_a_plain_content_is_cut_into_its_spans() -> None:
    data = os.urandom(2 * Plain.SPAN + 7)
    content = Plain(memoryview(data))
    assert [span.size for span in content.spans] == [Plain.SPAN, Plain.SPAN, 7]
    placed: dict[int, bytes] = {}
    content.render(lambda number, piece: placed.update({number: bytes(piece)}))
    assert b"".join(placed[number] for number in range(3)) == data == b"".join(content.stream())
