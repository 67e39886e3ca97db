"""Work that a signal interrupts, as a command's own handler does: by an exception, once."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

CALLS = ("link", "rename", "unlink", "fchmod", "fsync", "open", "mkdir")
"""What changes a file system on the way; after each a process may be killed, or interrupted."""


def interrupted(work: Callable[[], object], when: int) -> bool:
    """Do work that a signal interrupts after so many calls; tells whether it came to that."""
    count = 0

    def then_interrupted(true: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            nonlocal count
            result = true(*arguments, **options)
            count += 1
            if count == when:
                raise KeyboardInterrupt
            return result

        return call

    with pytest.MonkeyPatch.context() as patched:
        for name in CALLS:
            patched.setattr(os, name, then_interrupted(getattr(os, name)))
        try:
            work()
        except KeyboardInterrupt:
            return True
    return False
