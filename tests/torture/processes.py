"""Processes that are killed: at a call that changes the file system, or after a time.

Run as a program it is wtxtgit, for what git starts: the environment says when it is killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

WHEN = "WTXTGIT_TORTURE"
"""`call N LOG` or `time SECONDS LOG`: when what git starts is killed; it tells so in LOG."""
_CALLS = frozenset({
    "os.rename", "os.link", "os.symlink", "os.remove", "os.mkdir", "os.rmdir", "os.chmod",
    "os.truncate", "os.utime", "fcntl.flock", "subprocess.Popen", "sqlite3.connect",
})  # fmt: skip
"""Python tells of these before they are made: docs.python.org, "Audit events table"."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Be the parent of what a killed process leaves running, so that its end can be waited for."""
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("prctl(PR_SET_CHILD_SUBREAPER) failed")


def count_calls(then: Callable[[int], None]) -> None:
    """Have a function called before each call of this process that changes the file system."""
    count = 0

    def told(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if event in _CALLS or (event == "open" and _is_writing(arguments)):
            count += 1
            then(count)

    sys.addaudithook(told)


def _is_writing(arguments: tuple[object, ...]) -> bool:
    flags = arguments[2]
    return isinstance(flags, int) and bool(flags & _WRITING)


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Ended:
    """How a run ended: its exit code, the calls that it made, and the seconds that it took."""

    def __init__(self, code: int, calls: int, seconds: float) -> None:
        self.code = code
        self.calls = calls
        self.seconds = seconds

    @property
    def is_killed(self) -> bool:
        return self.code == -signal.SIGKILL


def run_forked(
    arguments: Sequence[str],
    folder: Path,
    env: Mapping[str, str],
    *,
    call: int = 0,
    seconds: float | None = None,
    signals: Sequence[int] = (signal.SIGKILL,),
) -> Ended:
    """Run wtxtgit in a fork of this process, killed before its `call`-th call or after a time:
    then it is sent these signals.

    All that it started has ended when this returns.
    """
    read, write = os.pipe()
    begin = time.monotonic()
    child = os.fork()
    if not child:
        code = 70
        try:
            os.close(read)
            # Before the command begins a signal ends it, as it would end Python.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.environ.update(env)
            os.chdir(folder)
            null = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(null, standard)
            made = 0

            def told(count: int) -> None:
                nonlocal made
                made = count
                if count == call:
                    kill_self()

            count_calls(told)
            from wtxtgit.cli.main import main

            code = main(list(arguments))
            os.write(write, str(made).encode())
        finally:
            os._exit(code)
    os.close(write)
    if seconds is not None:
        time.sleep(seconds)
        for number in signals:
            os.kill(child, number)
    told_calls = os.read(read, 20)
    os.close(read)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    took = time.monotonic() - begin
    wait_for_orphans()
    return Ended(code, int(told_calls or b"0"), took)


def wait_for_orphans() -> None:
    """Wait for all processes that the one that was killed had started."""
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        return


def _main() -> int:
    """Be wtxtgit, as git starts it."""
    from wtxtgit.__main__ import main

    kind, _, rest = os.environ.pop(WHEN, "").partition(" ")
    when, _, log = rest.partition(" ")
    if kind == "call":
        made = 0

        def told(count: int) -> None:
            nonlocal made
            made = count
            if count == int(when):
                Path(log).write_text("killed")
                kill_self()

        count_calls(told)
        sys.argv[0] = "wtxtgit"
        try:
            return main()
        finally:
            with open(log, "a") as file:  # noqa: PTH123 - Path would say so to the hook as well
                file.write(f"{made} ")
    if kind == "time":
        child = os.getpid()
        if not os.fork():
            for number in (0, 1, 2):
                os.close(number)
            time.sleep(float(when))
            # It may have ended, and its number be another's.
            if os.getppid() == child:
                Path(log).write_text("killed")
                os.kill(child, signal.SIGKILL)
            os._exit(0)
    sys.argv[0] = "wtxtgit"
    return main()


if __name__ == "__main__":
    sys.exit(_main())
