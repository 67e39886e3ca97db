"""zstd frames are decoded within a bound, whatever they claim."""

from __future__ import annotations

from hashlib import sha256

import pytest
import zstandard

from wtxtgit.containers import zstd_limits
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
    with pytest.raises(FormatError, match="not readable"):
        decode(streamed(content, window_log=28))


@pytest.mark.parametrize(
    "raw", [b"", b"\x28\xb5\x2f", b"\x27\xb5\x2f\xfd" + bytes(20), b"\x50\x2a\x4d\x18\0\0\0\0"]
)
def test_other_magics_are_refused(raw: bytes) -> None:
    with pytest.raises(FormatError, match="not a zstd frame"):
        decode(raw)
