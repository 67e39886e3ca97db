"""The one boundary that turns errors into messages and exit codes.

Messages are one line, `wtxtgit: error: ...`, and a hint where there is one. A
traceback shows only where WTXTGIT_DEBUG is set.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from io import TextIOWrapper
from types import FrameType
from typing import NoReturn

from wtxtgit.cli.environment import WORDS, coloured, has_bars, has_colours
from wtxtgit.errors import EnvironmentFailure, WtxtgitError, escaped, explain, lacking
from wtxtgit.io import progress

BUG = 70
_STDOUT, _STDERR = 1, 2
COLLECTED = (10_000, 10, 100)
"""Objects more, and rounds, after which garbage in cycles is looked for.

There is next to none, and Python's own figures have all that is held of 100,000
tensors walked through so often that it takes a quarter of a command's time.
"""
_TURN = 0.0005
"""Seconds after which a thread may have the interpreter: in Python's own 5 ms, git fills
a pipe many times over, and another thread hashes some MiB, and both would wait."""


class Terminated(BaseException):
    """The process was asked to end; unfinished files are removed first."""


def run(command: Callable[[], int | None]) -> int:
    """Run a command; give its exit code whatever happens in it.

    Garbage is looked for less often meanwhile, and threads take shorter turns.
    """
    progress.how = _shown
    collected, turn = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(*COLLECTED)
    sys.setswitchinterval(_TURN)
    try:
        return _run(command)
    finally:
        gc.set_threshold(*collected)
        sys.setswitchinterval(turn)


def _shown(name: str, total: int | None) -> AbstractContextManager[progress.Progress | None]:
    if not has_bars(sys.stderr):
        return nullcontext()
    # Most commands show nothing.
    from wtxtgit.cli import output

    return output.progress(name, total)


def _run(command: Callable[[], int | None]) -> int:
    closed = _fill_closed_streams()
    if _STDOUT in closed:
        complain("standard output is closed")
        return EnvironmentFailure.exit_code
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # Of children that end while it is ignored, as some parents leave it, no exit code is to be had:
    # any failure of git would look like success.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    received: list[int] = []
    try:
        # Only here: what a signal raises has to be caught below.
        _end_cleanly_on_signals(received)
        code = command() or 0
        # Inside of the boundary: a full disk or a closed pipe may show only here.
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _interrupted(signal.SIGINT)
    except Terminated as end:
        return _interrupted(int(end.args[0]))
    except Exception as error:  # noqa: BLE001 - the last place where a bug can be told
        # Code that is not Python's makes errors of its own of what a signal raises in it.
        return _interrupted(received[0]) if received else _failed(error)
    return code


def _interrupted(number: int) -> int:
    """Report that a signal ended the command; returns the exit code."""
    # Whoever reads our output may be waiting for something else.
    drop_output()
    complain("interrupted" if number == signal.SIGINT else "terminated")
    return 128 + number


def _failed(error: Exception) -> int:
    """Report an error to the user; returns the exit code. Raises it again for debugging."""
    if isinstance(error, WtxtgitError):
        complain(str(error), error.hint)
        return error.exit_code
    if isinstance(error, BrokenPipeError):
        # Whoever read our output has enough of it, as `head` does; of another pipe that is news.
        is_ours = _is_unread(_STDOUT)
        drop_output()
        if is_ours:
            return 128 + signal.SIGPIPE
    failure = lacking(error)
    if failure is not None:
        complain(failure.message, failure.hint)
        _drop_what_fails()
        return failure.exit_code

    if os.environ.get("WTXTGIT_DEBUG"):
        raise error
    complain(explain(error), "please report it, with the output that WTXTGIT_DEBUG=1 gives")
    return BUG


def _is_unread(descriptor: int) -> bool:
    """Whether the reader of a pipe is gone."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _fill_closed_streams() -> set[int]:
    """Open the null device for standard streams that are closed; say which were.

    Otherwise the first file that is opened would get their number, and
    messages would be written into it.
    """
    closed = set()
    for descriptor in (0, _STDOUT, _STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
            closed.add(descriptor)
    if _STDERR in closed:
        sys.stderr = os.fdopen(_STDERR, "w", closefd=False)
    return closed


def complain(message: str, hint: str | None = None) -> None:
    """Print an error on standard error, in one line, and a hint in another."""
    _say("error", message, hint)


def warn(message: str, hint: str | None = None) -> None:
    """Print a warning on standard error, in one line, and a hint in another."""
    _say("warning", message, hint)


def note(message: str, hint: str | None = None) -> None:
    """Print a note on standard error, in one line, and a hint in another."""
    _say("note", message, hint)


def _say(kind: str, message: str, hint: str | None) -> None:
    lines = [(kind, message)] if hint is None else [(kind, message), ("hint", hint)]
    shown = has_colours(sys.stderr)
    text = "".join(
        f"wtxtgit: {coloured(word, WORDS[word]) if shown else word}: {escaped(what)}\n"
        for word, what in lines
    )
    try:
        sys.stderr.write(text.encode("utf-8", "backslashreplace").decode("utf-8"))
        sys.stderr.flush()
    except (OSError, ValueError):
        # Standard error is closed: there is nobody left to tell.
        return


def drop_output() -> None:
    """Discard what is not yet written of standard output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _drop_what_fails() -> None:
    """Keep the interpreter from failing once more when it flushes standard output."""
    try:
        sys.stdout.flush()
    except OSError:
        drop_output()


def _end_cleanly_on_signals(received: list[int]) -> None:
    """Have the first signal end the command, and note it in `received`."""

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        received.append(number)
        # What is under way is taken back now: a second signal would leave half of it.
        for other in ends:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated(number)

    numbers = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
    # Under nohup SIGHUP is ignored, and stays so; so is SIGINT of what a shell starts with "&".
    ends = [n for n in numbers if n is not None and signal.getsignal(n) is not signal.SIG_IGN]
    for number in ends:
        signal.signal(number, end)
