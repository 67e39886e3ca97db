"""What the system refuses a process, and all that it starts: threads, memory, or root's rights.

Threads are refused by the kernel's filter of calls (seccomp(2)), as it refuses them where a limit
is reached, so that libraries see it as Python does: that limit itself does not hold root. `REFUSED`
in the environment says what a forked command is refused.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
from pathlib import Path

REFUSED = "WTXTGIT_TEST_REFUSED"
# linux/filter.h: load a word, jump if equal, if a bit is set, return.
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
# linux/seccomp.h: struct seccomp_data, of the first argument the lower half.
_NUMBER, _FLAGS = 0, 16
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_CLONE_THREAD = 0x00010000
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
# capabilities(7): CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH; capget(2): the header's version.
_BEYOND_MODES = (1, 2)
_DROP_BOUND = 24
_CAPABILITIES_3 = 0x20080522
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2


def is_possible() -> bool:
    """Whether this system's calls are known here."""
    return os.uname().sysname == "Linux" and platform.machine() in _CLONE


def refuse(what: str) -> None:
    """Refuse this process from now on `threads`, memory beyond some more MiB (`memory:8`),
    or `rights`: what a file's mode forbids its owner is forbidden root, too."""
    kind, _, more = what.partition(":")
    if kind == "threads":
        _refuse_threads()
        return
    if kind == "rights":
        _refuse_rights()
        return
    held = int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    limit = held + int(more) * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _refuse_threads() -> None:
    steps = (
        (_LOAD, 0, 0, _NUMBER),
        # glibc tries clone3 first, whose flags a filter can't see.
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _FAIL | errno.ENOSYS),
        (_EQUAL, 0, 3, _CLONE[platform.machine()]),
        (_LOAD, 0, 0, _FLAGS),
        (_ANY_BIT, 0, 1, _CLONE_THREAD),
        (_RETURN, 0, 0, _FAIL | errno.EAGAIN),
        (_RETURN, 0, 0, _ALLOW),
    )
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    held = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(steps), ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(
        _SET_SECCOMP, _FILTER, program, 0, 0
    ):
        raise OSError(ctypes.get_errno(), "seccomp")


def _refuse_rights() -> None:
    if os.geteuid():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    # Programs that root starts get what is in the bounding set.
    if any(libc.prctl(_DROP_BOUND, number, 0, 0, 0) for number in _BEYOND_MODES):
        raise OSError(ctypes.get_errno(), "prctl(PR_CAPBSET_DROP)")
    header = struct.pack("=Ii", _CAPABILITIES_3, 0)
    held = ctypes.create_string_buffer(24)
    if libc.capget(header, held):
        raise OSError(ctypes.get_errno(), "capget")
    words = list(struct.unpack("=6I", held.raw))
    keep = ~sum(1 << number for number in _BEYOND_MODES) & 0xFFFFFFFF
    words[:3] = [word & keep for word in words[:3]]
    if libc.capset(header, struct.pack("=6I", *words)):
        raise OSError(ctypes.get_errno(), "capset")
