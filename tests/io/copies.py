"""Bytes behind windows, for tests of what reads files larger than the memory it may map."""

from __future__ import annotations

from wtxtgit.io.view import Windowed


class Copies:
    """Windows that give copies, of just what is asked for and never over `most` bytes at once."""

    def __init__(self, content: bytes, most: int) -> None:
        self.content = content
        self.nbytes = len(content)
        self.most = most

    def window(self, start: int, end: int) -> memoryview:
        assert 0 <= start < end <= self.nbytes
        assert end - start <= self.most, f"{end - start} bytes are mapped at once"
        return memoryview(bytes(self.content[start:end]))


def windowed(content: bytes, most: int = 1 << 40) -> Windowed:
    return Windowed(Copies(content, most))
