"""The memory that a call takes of the system, in a process of its own."""

from __future__ import annotations

import mmap
import os
import resource
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

STATM = Path("/proc/self/statm")
PAGE = mmap.PAGESIZE


def growth_of(call: Callable[[], object]) -> int:
    """By how many bytes a forked process that runs this grows at most; it has to end well.

    Pages of files that are mapped count as well.
    """
    told, tells = os.pipe()
    process = os.fork()
    if process == 0:
        code = 70
        try:
            before = int(STATM.read_text("ascii").split()[1]) * PAGE
            call()
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            os.write(tells, b"%d" % max(0, most - before))
            code = 0
        except BaseException:  # noqa: BLE001 - nothing of the parent may go on in this process
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(code)
    os.close(tells)
    with os.fdopen(told, "rb") as answer:
        growth = answer.read()
    _, status = os.waitpid(process, 0)
    assert status == 0, f"the process ended with {status}"
    return int(growth)


def made(make: Callable[[], bytes]) -> memoryview:
    """Bytes as those of a large file are at hand: mapped, and of none of this process's memory.

    They are made in another one: memory that this one had before would not grow it again.
    """
    descriptor = os.memfd_create("input")
    try:
        growth_of(lambda: _write(descriptor, make()))
        return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
