"""Whether git mirrors what it pushes, which it does not tell its hook.

`git push --mirror` deletes all that the remote alone has, and names no such ref to the hook (git's
transport.c, run_pre_push_hook()). Only the arguments of git tell: see proc(5) and ps(1).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from os import getppid
from pathlib import Path

from wtxtgit.cli.diff_helper import process_facts

_MOST_ANCESTORS = 16
"""Hooks may be started by other hooks and by programs that manage them."""
_PS = "/bin/ps"


def is_mirror() -> bool:
    """Tell whether the git that waits for this hook was called with `push --mirror`."""
    for arguments in _ancestors():
        name = arguments[0].rpartition("/")[2]
        if name.startswith("git") and "push" in (name.removeprefix("git-"), *arguments):
            # Git takes any beginning of an option that no other has.
            options = (word for word in arguments if word.startswith("--m"))
            return any("--mirror".startswith(word) for word in options)
    return False


def _ancestors() -> Iterator[list[str]]:
    """Yield the arguments of the processes above this one, the nearest first."""
    number = getppid()
    with suppress(OSError, ValueError, IndexError):
        for _ in range(_MOST_ANCESTORS):
            if sys.platform == "linux":
                listed = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
                arguments = [word.decode("utf-8", "replace") for word in listed[:-1]]
                number = process_facts(number)[1]
            else:
                command = (_PS, "-o", "ppid=", "-o", "args=", "-p", str(number))
                parent, *arguments = (
                    subprocess.check_output(command).decode("utf-8", "replace").split()
                )
                number = int(parent)
            if arguments:
                yield arguments
