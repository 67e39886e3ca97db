"""What progress is told."""

from __future__ import annotations


class Told:
    """A `Progress` that keeps what it is told."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.expected = 0
        self.files = 0

    def __call__(self, count: int) -> None:
        self.counts.append(count)

    def expect(self, size: int | None, files: int = 0) -> None:
        self.expected += size or 0
        self.files += files

    def finish_file(self) -> None:
        self.files -= 1
