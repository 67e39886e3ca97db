from __future__ import annotations

import os
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtxtgit.git.pktline import (
    MAX_PACKET,
    MAX_PAYLOAD,
    PACKETS_A_WRITE,
    EndOfStream,
    ProtocolError,
    Reader,
    Writer,
    widen_pipe,
)


def packets(chunks: list[bytes]) -> bytes:
    stream = BytesIO()
    writer = Writer(stream)
    writer.content(chunks)
    writer.flush_packet()
    return stream.getvalue()


def expected(content: bytes) -> bytes:
    parts = (content[i : i + MAX_PAYLOAD] for i in range(0, len(content), MAX_PAYLOAD))
    return b"".join(b"%04x%b" % (len(part) + 4, part) for part in parts) + b"0000"


@pytest.mark.parametrize(
    "size",
    [
        0,
        1,
        MAX_PAYLOAD - 1,
        MAX_PAYLOAD,
        MAX_PAYLOAD + 1,
        MAX_PAYLOAD * PACKETS_A_WRITE - 1,
        MAX_PAYLOAD * PACKETS_A_WRITE,
        MAX_PAYLOAD * PACKETS_A_WRITE + 1,
        MAX_PAYLOAD * (2 * PACKETS_A_WRITE + 1) + 7,
    ],
)
def test_content_is_cut_into_full_packets(size: int) -> None:
    content = os.urandom(size)
    assert packets([content]) == expected(content)


@given(st.lists(st.integers(0, 200_000), max_size=8))
def test_chunk_sizes_do_not_show(sizes: list[int]) -> None:
    chunks = [bytes([i]) * size for i, size in enumerate(sizes)]
    written = packets(chunks)
    assert written == expected(b"".join(chunks))
    assert b"".join(Reader(BytesIO(written)).content()) == b"".join(chunks)


def test_a_writer_is_used_again_after_a_short_packet() -> None:
    stream = BytesIO()
    writer = Writer(stream)
    big = os.urandom(MAX_PAYLOAD * 2)
    for content in (b"abc", big, b"", big + b"x"):
        writer.content([content])
        writer.flush_packet()
    assert stream.getvalue() == b"".join(map(expected, (b"abc", big, b"", big + b"x")))


def test_content_takes_any_buffer() -> None:
    import array

    numbers = array.array("I", [1, 2, 3])
    assert packets([memoryview(numbers), bytearray(b"x")]) == expected(numbers.tobytes() + b"x")


def test_content_that_raises_leaves_the_writer_in_step() -> None:
    stream = BytesIO()
    writer = Writer(stream)

    def broken():
        yield b"a" * 10
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - raised right above
        writer.content(broken())
    writer.content([b"xyz"])
    assert stream.getvalue() == b"0007xyz"


def test_lines_and_flush() -> None:
    stream = BytesIO()
    writer = Writer(stream)
    writer.line(b"version=2")
    writer.flush_packet()
    assert stream.getvalue() == b"000eversion=2\n0000"
    assert list(Reader(BytesIO(stream.getvalue())).lines()) == [b"version=2"]


def test_a_line_without_lf_is_taken() -> None:
    assert Reader(BytesIO(b"0007abc")).line() == b"abc"


def test_an_empty_packet_is_no_flush() -> None:
    reader = Reader(BytesIO(b"00040000"))
    assert reader.packet() == b""
    assert reader.packet() is None


def test_the_longest_packet() -> None:
    assert Reader(BytesIO(b"fff0" + bytes(MAX_PAYLOAD))).packet() == bytes(MAX_PAYLOAD)


def test_a_long_line_is_refused() -> None:
    with pytest.raises(ProtocolError, match="too long"):
        Writer(BytesIO()).line(bytes(MAX_PAYLOAD))


@pytest.mark.parametrize(
    "packet",
    [b"0001", b"0002", b"0003", b"fff1" + bytes(MAX_PACKET), b"ffff", b"zzzz", b"+00a", b" 00a",
     b"00_a", b"-001", b"00\xff0", b"00", b"000a1234", b"0005"],
)  # fmt: skip
def test_bad_packets_are_refused(packet: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        Reader(BytesIO(packet)).packet()
    assert not isinstance(caught.value, EndOfStream)


def test_the_end_between_packets_is_told_apart() -> None:
    reader = Reader(BytesIO(b"0000"))
    assert reader.packet() is None
    with pytest.raises(EndOfStream):
        reader.packet()


@given(st.binary(max_size=200))
def test_any_input_gives_packets_or_a_protocol_error(data: bytes) -> None:
    reader = Reader(BytesIO(data))
    try:
        while True:
            reader.packet()
    except ProtocolError:
        pass


def test_widen_pipe_never_raises(tmp_path) -> None:
    receive, send = os.pipe()
    widen_pipe(receive)
    with (tmp_path / "file").open("wb") as file:
        widen_pipe(file.fileno())
    os.close(receive)
    os.close(send)
