"""zstd frames are decoded within a bound, whatever they claim."""

from __future__ import annotations

from hashlib import sha256

import pytest
import zstandard

from wtxtgit.containers import zstd_limits
from wtxtgit.containers.zstd_limits import Frame
from wtxtgit.errors import FormatError

NOISE = b"".join(sha256(bytes([n])).digest() for n in range(28))


def decode(raw: bytes, limit: int = 1000) -> bytes:
    return zstd_limits.decode(memoryview(raw), limit, "tidx")


def streamed(content: bytes, **options: int) -> bytes:
    """A frame that does not state its size."""
    parameters = zstandard.ZstdCompressionParameters(**options)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return packer.compress(content) + packer.flush()


def test_frames_with_and_without_a_size() -> None:
    content = NOISE
    assert decode(zstandard.compress(content)) == content
    assert decode(streamed(content)) == content
    assert decode(zstandard.compress(b"")) == b""


def test_bytes_after_the_first_frame_are_ignored() -> None:
    frame = zstandard.compress(b"one")
    assert decode(frame + b"rest" * 1000) == b"one"
    assert decode(frame + frame) == b"one"


def test_the_limit_is_exact() -> None:
    assert len(decode(streamed(bytes(1000)))) == 1000
    with pytest.raises(FormatError, match="over 1000 bytes") as caught:
        decode(streamed(bytes(1001)))
    assert caught.value.kind == "limit"


def test_a_bomb_is_left_early() -> None:
    bomb = zstandard.compress(bytes(500 * 2**20))
    with pytest.raises(FormatError, match="over"):
        decode(bomb, 2**20)


def test_a_truncated_frame_is_refused_at_any_byte() -> None:
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(NOISE)
    for end in range(len(frame)):
        with pytest.raises(FormatError):
            decode(frame[:end])


def test_large_windows_are_refused() -> None:
    content = b"a" * 100
    assert decode(streamed(content, window_log=27)) == content
    with pytest.raises(FormatError, match="decompressed"):
        decode(streamed(content, window_log=28))


def blocks(raw: bytes, limit: int = 10**9) -> list[bytes]:
    return list(Frame(memoryview(raw), "payload", offset=100).content(limit))


@pytest.mark.parametrize("size", [0, 1, 1000, 128 * 1024, 2**20, 5 * 2**20 + 1])
@pytest.mark.parametrize("checksum", [False, True])
def test_frames_come_in_bounded_pieces(size: int, checksum: bool) -> None:
    content = (NOISE * (size // len(NOISE) + 1))[: size // 2]
    content += bytes(size - len(content))
    packer = zstandard.ZstdCompressor(write_checksum=checksum)
    for raw, stated in ((packer.compress(content), size), (streamed(content), None if size else 0)):
        frame = Frame(memoryview(raw + b"rest"), "payload")
        pieces = list(frame.content(size))
        assert b"".join(pieces) == content
        assert max(map(len, pieces)) <= 2 * 2**20
        assert (frame.content_size, frame.end) == (stated, len(raw))


def test_frames_of_runs_come_in_bounded_pieces() -> None:
    """4 bytes of a frame that stand for 128 KiB each."""
    run = (2**17 << 3 | 1 << 1).to_bytes(3, "little") + b"a"
    raw = b"\x28\xb5\x2f\xfd\x00\x88" + run * 100 + (1).to_bytes(3, "little")
    pieces = blocks(raw)
    assert sum(map(len, pieces)) == 100 * 2**17
    assert max(map(len, pieces)) <= 2 * 2**20
    with pytest.raises(FormatError, match="over") as caught:
        blocks(raw, 2**20)
    assert (caught.value.kind, caught.value.offset, caught.value.field) == (
        "limit",
        100,
        "payload",
    )


def test_a_truncated_frame_says_where_it_ends() -> None:
    raw = zstandard.ZstdCompressor(write_checksum=True).compress(NOISE)
    for end in range(len(raw)):
        with pytest.raises(FormatError) as caught:
            blocks(raw[:end])
        assert caught.value.kind == "structure"
        assert caught.value.offset in (100, 100 + end)


def test_a_wrong_checksum_is_found() -> None:
    raw = zstandard.ZstdCompressor(write_checksum=True).compress(NOISE)
    with pytest.raises(FormatError, match="decompressed"):
        blocks(raw[:-1] + bytes([raw[-1] ^ 1]))


def test_windows_are_looked_at_even_of_a_whole_frame() -> None:
    raw = b"\x28\xb5\x2f\xfd\x80\x90\x02\0\0\0" + (2 << 3 | 1).to_bytes(3, "little") + b"ab"
    assert blocks(raw[:5] + b"\x88" + raw[6:]) == [b"ab"]
    with pytest.raises(FormatError, match="window") as caught:
        blocks(raw)
    assert caught.value.kind == "limit"


@pytest.mark.parametrize(
    "raw", [b"", b"\x28\xb5\x2f", b"\x27\xb5\x2f\xfd" + bytes(20), b"\x50\x2a\x4d\x18\0\0\0\0"]
)
def test_other_magics_are_refused(raw: bytes) -> None:
    with pytest.raises(FormatError, match="not a zstd frame"):
        decode(raw)
