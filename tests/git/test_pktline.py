from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from io import BytesIO, FileIO
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.refusals import is_possible
from wtxtgit.git.filter_protocol import (
    MAX_LINES,
    MAX_PACKET,
    MAX_PAYLOAD,
    PACKETS_A_CALL,
    PIPE_SIZE,
    Buffer,
    EndOfStream,
    PacketReader,
    PacketWriter,
    ProtocolError,
    widen_pipe,
)


def packets(chunks: list[bytes]) -> bytes:
    stream = BytesIO()
    writer = PacketWriter(stream)
    writer.content(chunks)
    writer.flush_packet()
    return stream.getvalue()


def expected(content: bytes) -> bytes:
    parts = (content[i : i + MAX_PAYLOAD] for i in range(0, len(content), MAX_PAYLOAD))
    return b"".join(b"%04x%b" % (len(part) + 4, part) for part in parts) + b"0000"


def received(reader: PacketReader) -> bytes:
    """A content; its pieces hold only until the next one."""
    return b"".join(map(bytes, reader.content()))


def append(found: bytearray, pieces: Iterable[Buffer]) -> None:
    for piece in pieces:
        found += piece


@contextlib.contextmanager
def piped(data: bytes, sizes: list[int]) -> Iterator[FileIO]:
    """The receiving end of a pipe through which data comes in writes of such sizes, in turn."""
    receive, send = os.pipe()

    def write() -> None:
        rest, turn = memoryview(data), 0
        try:
            while rest:
                rest = rest[os.write(send, rest[: sizes[turn % len(sizes)]]) :]
                turn += 1
        except BrokenPipeError:
            pass
        finally:
            os.close(send)

    writer = Thread(target=write)
    writer.start()
    try:
        with FileIO(receive) as stream:
            yield stream
    finally:
        writer.join()


@pytest.mark.parametrize(
    "size",
    [
        0,
        1,
        MAX_PAYLOAD - 1,
        MAX_PAYLOAD,
        MAX_PAYLOAD + 1,
        MAX_PAYLOAD * PACKETS_A_CALL - 1,
        MAX_PAYLOAD * PACKETS_A_CALL,
        MAX_PAYLOAD * PACKETS_A_CALL + 1,
        MAX_PAYLOAD * (2 * PACKETS_A_CALL + 1) + 7,
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
    assert received(PacketReader(BytesIO(written))) == b"".join(chunks)


def test_a_writer_is_used_again_after_a_short_packet() -> None:
    stream = BytesIO()
    writer = PacketWriter(stream)
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
    writer = PacketWriter(stream)

    def broken():
        yield b"a" * 10
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - raised right above
        writer.content(broken())
    writer.content([b"xyz"])
    assert stream.getvalue() == b"0007xyz"


@contextlib.contextmanager
def in_file(data: bytes) -> Iterator[FileIO]:
    with tempfile.TemporaryFile(buffering=0) as file:
        assert isinstance(file, FileIO)
        file.write(data)
        file.seek(0)
        yield file


SIZES = st.lists(
    st.sampled_from([1, 3, 4, 5, 4096, MAX_PAYLOAD, MAX_PACKET, MAX_PACKET + 1, 2**20]),
    min_size=1,
    max_size=5,
).filter(lambda sizes: sum(sizes) > 1000)
CONTENTS = [
    b"",
    b"x",
    os.urandom(MAX_PAYLOAD),
    os.urandom(MAX_PAYLOAD * PACKETS_A_CALL),
    os.urandom(MAX_PAYLOAD * (PACKETS_A_CALL + 3) + 100),
]


@given(SIZES, st.lists(st.sampled_from(CONTENTS), min_size=1, max_size=3))
def test_contents_come_whole_however_the_pipe_gives_them(
    sizes: list[int], contents: list[bytes]
) -> None:
    sent = b"".join(b"0006a\n0000" + packets([content]) for content in contents)
    with piped(sent, sizes) as stream:
        reader = PacketReader(stream)
        for content in contents:
            assert list(reader.lines()) == [b"a"]
            assert received(reader) == content
        with pytest.raises(EndOfStream):
            reader.line()


@given(
    st.lists(st.sampled_from([0, 1, 7, MAX_PAYLOAD - 1, MAX_PAYLOAD]), max_size=40),
    st.booleans(),
)
def test_packets_of_any_sizes_make_a_content(sizes: list[int], upper: bool) -> None:
    """Others than git may send packets that are not full, or their lengths in capitals."""
    header = b"%04X" if upper else b"%04x"
    payloads = [bytes([ix]) * size for ix, size in enumerate(sizes)]
    sent = b"".join(header % (len(payload) + 4) + payload for payload in payloads)
    # What follows the content is left alone.
    after = b"0000" + b"0007abc" + bytes(100)
    with in_file(sent + after) as file:
        for stream in (BytesIO(sent + after), file):
            reader = PacketReader(stream)
            assert received(reader) == b"".join(payloads)
            assert reader.line() == b"abc"


@pytest.mark.parametrize("packets_before", [0, 1, PACKETS_A_CALL - 1, PACKETS_A_CALL])
@pytest.mark.parametrize(
    "bad", [b"", b"f", b"fff", b"fff0", b"fff0" + bytes(100), b"fff1" + bytes(MAX_PACKET), b"0003",
            b"junk" + bytes(MAX_PACKET), b"0010" + b"cut"],
)  # fmt: skip
def test_a_bad_packet_in_the_middle_of_a_content_is_refused(
    packets_before: int, bad: bytes
) -> None:
    good = (b"fff0" + b"x" * MAX_PAYLOAD) * packets_before
    with in_file(good + bad) as file:
        for stream in (BytesIO(good + bad), file):
            before = bytearray()
            with pytest.raises(ProtocolError):
                append(before, PacketReader(stream).content())
            assert before == b"x" * MAX_PAYLOAD * packets_before


@given(st.binary(max_size=200))
def test_any_input_gives_a_content_or_a_protocol_error(data: bytes) -> None:
    with in_file(data) as file, contextlib.suppress(ProtocolError):
        received(PacketReader(file))


@pytest.mark.parametrize("size", [0, 1, MAX_PAYLOAD, MAX_PAYLOAD * PACKETS_A_CALL])
def test_nothing_is_waited_for_after_the_flush(size: int) -> None:
    """Git sends nothing more until it is answered: a read too many would stop both sides."""
    found: list[bytes] = []
    receive, send = os.pipe()
    with FileIO(receive) as stream, FileIO(send, "w") as sender:
        reading = Thread(target=lambda: found.append(received(PacketReader(stream))))
        reading.start()
        rest = memoryview(packets([bytes(size)]))
        while rest:
            rest = rest[sender.write(rest) :]
        reading.join(60)
        waits = reading.is_alive()
        sender.close()
        reading.join()
    assert not waits
    assert found == [bytes(size)]


def test_pieces_of_a_content_are_bounded() -> None:
    sent = packets([bytes(5 * PACKETS_A_CALL * MAX_PAYLOAD)])
    with in_file(sent) as file:
        pieces = [len(piece) for piece in PacketReader(file).content()]
    assert max(pieces) <= PIPE_SIZE
    # They are runs of packets, not single ones.
    assert len(pieces) < 10


def test_lines_and_flush() -> None:
    stream = BytesIO()
    writer = PacketWriter(stream)
    writer.line(b"version=2")
    writer.flush_packet()
    assert stream.getvalue() == b"000eversion=2\n0000"
    assert list(PacketReader(BytesIO(stream.getvalue())).lines()) == [b"version=2"]


def test_very_many_lines_before_a_flush_are_refused() -> None:
    line = b"0005\n"
    assert len(list(PacketReader(BytesIO(line * (MAX_LINES - 1) + b"0000")).lines())) == 999
    with pytest.raises(ProtocolError, match="more than 1000 lines"):
        list(PacketReader(BytesIO(line * 10 * MAX_LINES)).lines())


def test_a_line_without_lf_is_taken() -> None:
    assert PacketReader(BytesIO(b"0007abc")).line() == b"abc"


def test_an_empty_packet_is_no_flush() -> None:
    reader = PacketReader(BytesIO(b"00040000"))
    assert reader.packet() == b""
    assert reader.packet() is None


def test_the_longest_packet() -> None:
    assert PacketReader(BytesIO(b"fff0" + bytes(MAX_PAYLOAD))).packet() == bytes(MAX_PAYLOAD)


def test_a_long_line_is_refused() -> None:
    with pytest.raises(ProtocolError, match="too long"):
        PacketWriter(BytesIO()).line(bytes(MAX_PAYLOAD))


@pytest.mark.parametrize(
    "packet",
    [b"0001", b"0002", b"0003", b"fff1" + bytes(MAX_PACKET), b"ffff", b"zzzz", b"+00a", b" 00a",
     b"00_a", b"-001", b"00\xff0", b"00", b"000a1234", b"0005"],
)  # fmt: skip
def test_bad_packets_are_refused(packet: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        PacketReader(BytesIO(packet)).packet()
    assert not isinstance(caught.value, EndOfStream)


def test_the_end_between_packets_is_told_apart() -> None:
    reader = PacketReader(BytesIO(b"0000"))
    assert reader.packet() is None
    with pytest.raises(EndOfStream):
        reader.packet()


@given(st.binary(max_size=200))
def test_any_input_gives_packets_or_a_protocol_error(data: bytes) -> None:
    reader = PacketReader(BytesIO(data))
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


_LITTLE_ROOM = """
import sys
from io import BytesIO
from tests.kit.refusals import refuse
from wtxtgit.git.filter_protocol import PacketReader
reader = PacketReader(BytesIO(sys.stdin.buffer.read()))
refuse("memory:1")
held = bytearray(400_000)
print(sum(len(piece) for piece in reader.content()))
"""


@pytest.mark.skipif(not is_possible(), reason="this system's calls are not known")
def test_contents_come_where_there_is_little_memory() -> None:
    """Less than the run of packets takes that is read at once elsewhere."""
    content = bytes(3 * MAX_PAYLOAD + 1)
    sent = b"fff0" + content[:MAX_PAYLOAD]
    sent = sent * 3 + b"0005\0" + b"0000"
    done = subprocess.run(
        [sys.executable, "-c", _LITTLE_ROOM], input=sent, capture_output=True, check=True
    )
    assert int(done.stdout) == len(content)
