"""Memory that comes and goes in blocks of some MiB."""

from __future__ import annotations

from functools import cache

_KEPT_BLOCK = 24 * 1024 * 1024
"""Under glibc's upper bound of 32 MiB, beyond which nothing is learnt from a block."""


@cache
def keep_freed_memory() -> None:
    """Let the C library keep blocks of some MiB that are freed, for the next ones.

    Blocks of text come and go by the hundred; by default each one is given
    back to the system and its pages are zeroed again, which costs as much as
    a SHA-256 pass. glibc raises its bound when a larger block is freed:
    mallopt(3), "M_MMAP_THRESHOLD". Elsewhere this does nothing.
    """
    block = bytearray(_KEPT_BLOCK)
    del block
