"""Writing large files: how much at a time."""

from __future__ import annotations

import os

from wtxtgit.io.view import Buffer

WRITE_STEP = 64 * 1024
"""Bytes of a large new file that are best written at a time.

Linux keeps what is written in blocks of memory as large as the write. Large
ones are seldom those that were used a moment ago; where a virtual machine's
host has to give them anew, writing was measured to take 2 to 10 times as long.
"""


def write_on(descriptor: int, content: Buffer, step: int = WRITE_STEP) -> None:
    """Write all of a content where a file or pipe is at; raises OSError."""
    view = memoryview(content)
    while view.nbytes:
        view = view[os.write(descriptor, view[:step]) :]


def write_at(descriptor: int, content: Buffer, offset: int) -> None:
    """Write all of a content to a place in a file; raises OSError."""
    view = memoryview(content)
    while view.nbytes:
        written = os.pwrite(descriptor, view[:WRITE_STEP], offset)
        view, offset = view[written:], offset + written
