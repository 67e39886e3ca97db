"""Running the git program.

This is the only module that starts git: by absolute path, never through a shell, with bytes in and
out. Callers ask for NUL-separated output and put `--` before paths.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import IO, NamedTuple, cast

from wtxtgit.errors import EnvironmentFailure, lacking
from wtxtgit.io.view import Buffer
from wtxtgit.io.workers import signals_later

MIN_VERSION = (2, 31)
"""The first git with `rev-parse --path-format` and `GIT_CONFIG_COUNT`."""

_PASSED_NAMES = frozenset(
    f"GIT_{name}"
    for name in (
        # which repository, index and objects; git sets these for a hook
        "DIR", "WORK_TREE", "COMMON_DIR", "INDEX_FILE", "OBJECT_DIRECTORY",
        "ALTERNATE_OBJECT_DIRECTORIES", "QUARANTINE_PATH", "NAMESPACE", "SHALLOW_FILE",
        "NO_REPLACE_OBJECTS", "REPLACE_REF_BASE", "CEILING_DIRECTORIES",
        "DISCOVERY_ACROSS_FILESYSTEM", "EXEC_PATH",
        # configuration
        "CONFIG_GLOBAL", "CONFIG_SYSTEM", "CONFIG_NOSYSTEM", "CONFIG_PARAMETERS", "CONFIG_COUNT",
        "ATTR_NOSYSTEM", "ATTR_SOURCE",
        # a partial clone fetches what it misses
        "SSH", "SSH_COMMAND", "SSH_VARIANT", "ALLOW_PROTOCOL", "PROTOCOL", "ASKPASS",
        "TERMINAL_PROMPT", "NO_LAZY_FETCH",
    )
)  # fmt: skip
_PASSED_GROUPS = tuple(
    f"GIT_{start}"
    for start in (
        "CONFIG_KEY_", "CONFIG_VALUE_", "SSL_", "HTTP_", "PROXY_",
        # who commits, and what is traced
        "AUTHOR_", "COMMITTER_", "TRACE",
    )
)  # fmt: skip
"""The `GIT_*` variables that pass on, as names and by how they start.

The others could change what a command prints. This is no regular expression, because compiling one
takes longer than importing everything else here.
"""

_RELATIVE_TO_PROCESS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
"""Variables with relative paths, which change their meaning if git runs in another folder."""

_STDERR_SHOWN = 4_000
_MOMENT = 1
"""Seconds that git gets to end by itself when this process has to end."""
_MOST_ARGUMENT = 96 * 1024
_MOST_ARGUMENTS = 512 * 1024
"""Most bytes of a path, and of all paths, in git's arguments.

Linux accepts 128 KiB for one argument and mostly 2 MiB for all, including the environment
(execve(2)); other systems accept less in all.
"""

Environment = Mapping[str, str | None]
"""Variables to set for git, and with None to unset."""

TRUE_OBJECTS: Environment = {"GIT_NO_REPLACE_OBJECTS": "1"}
"""For reading objects by id: an object that replaces another one must not be returned."""


LOCKED = "wtxtgit doctor --fix removes the lock, if no process holds it"
"""What helps if git was killed while it wrote a file."""


class GitFailure(EnvironmentFailure):
    """Git exited with a code that means failure."""

    def __init__(self, arguments: Sequence[str | bytes], code: int, stderr: bytes) -> None:
        # After an empty line comes long advice.
        message = stderr[-_STDERR_SHOWN:].strip().partition(b"\n\n")[0]
        words = message.decode("utf-8", "backslashreplace")
        command = " ".join(_shown(argument) for argument in arguments)
        # Of a file here that git locks to write it; the rest may be in the user's language.
        here = (line for line in stderr.splitlines() if not line.startswith(b"remote:"))
        hint = LOCKED if any(b".lock'" in line for line in here) else None
        ended = f"git {command} ended with {code}"
        super().__init__(f"{ended}: {words}" if words else ended, hint=hint)
        self.code = code
        self.stderr = stderr


class Result(NamedTuple):
    """Exit code and output of a git command."""

    code: int
    stdout: bytes
    stderr: bytes


@cache
def executable() -> str:
    """Return git's absolute path; relative entries of PATH are ignored."""
    for entry in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(entry, "git")  # noqa: PTH118 - Path would drop a "." that tells more
        # A relative entry would be a folder of the work tree, which is not trusted.
        if os.path.isabs(entry) and os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH117, PTH113
            return path
    raise EnvironmentFailure("git is not on PATH", hint="install git 2.31 or later")


def environment(extra: Environment | None = None) -> dict[str, str]:
    """Build git's environment: ours without the `GIT_*` variables that we do not know.

    `extra` is applied last; None removes a variable.
    """
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name in _PASSED_NAMES or name.startswith(_PASSED_GROUPS)
    }
    # Git may be started in another folder than this process was.
    for name in _RELATIVE_TO_PROCESS:
        if name in env:
            env[name] = str(Path(env[name]).absolute())
    # Commands that only read must not take index.lock to write back what they found.
    env["GIT_OPTIONAL_LOCKS"] = "0"
    for name, value in (extra or {}).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


def with_config(values: Mapping[str, str]) -> dict[str, str]:
    """Return variables that add configuration to what the environment has already."""
    first = int(os.environ.get("GIT_CONFIG_COUNT") or 0)
    env = {"GIT_CONFIG_COUNT": str(first + len(values))}
    for number, (key, value) in enumerate(values.items(), first):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env


def call(
    *arguments: str | bytes,
    cwd: Path | None = None,
    stdin: Buffer = b"",
    env: Environment | None = None,
    ok: Iterable[int] = (0,),
) -> Result:
    """Run git to its end; raises GitFailure unless its exit code is one of `ok`."""
    at_once = bool(memoryview(stdin).nbytes)
    with _start(arguments, cwd, env, stderr=subprocess.PIPE, at_once=at_once) as process:
        try:
            # It takes any buffer, as `subprocess.run` does, which hands it on.
            stdout, stderr = process.communicate(cast("bytes", stdin))
        except OSError as error:
            raise _not_started(error) from error
        except BaseException:
            _end(process, at_once=at_once)
            raise
    # What git said on stderr goes into the error: there is nothing else to go by.
    if process.returncode not in ok:
        raise GitFailure(arguments, process.returncode, stderr)
    return Result(process.returncode, stdout, stderr)


def _start(
    arguments: Sequence[str | bytes],
    cwd: Path | None,
    env: Environment | None,
    *,
    stderr: int,
    at_once: bool,
) -> subprocess.Popen[bytes]:
    """Start git with pipes; if a signal interrupts this, the started process is ended too."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # The system then keeps no exit codes, and any failure of git would look like success.
        raise EnvironmentFailure("git can't be started: this program ignores SIGCHLD")
    process = None
    try:
        with signals_later():
            process = subprocess.Popen(
                [executable(), *arguments],
                cwd=cwd,
                env=environment(env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=1 << 16,
                # Python ignores SIGXFSZ and SIGPIPE, and git inherits that: if SIGXFSZ killed it,
                # where a file may not grow further, it would leave its locks behind.
                restore_signals=False,
            )
    except OSError as error:
        raise _not_started(error) from error
    except BaseException:
        if process is not None:
            with process:
                _end(process, at_once=at_once)
        raise
    return process


def _not_started(error: OSError) -> EnvironmentFailure:
    return EnvironmentFailure(f"git can't be started: {lacking(error)}")


def _end(process: subprocess.Popen[bytes], *, at_once: bool) -> None:
    """End a git process whose result is no longer needed, and wait for it.

    Git removes its locks when it is terminated (if it were killed they would stay), except a lock
    that it is creating at that moment. So it gets a moment to end by itself, as most do, unless it
    reads input (`at_once`) and could mistake a part of it for the whole.
    """
    try:
        if not at_once:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_MOMENT)
    finally:
        process.terminate()
        # Wait, since it may still be writing to what will be removed. Without this, leaving the
        # context makes subprocess wait for a quarter of a second after SIGINT.
        process.wait()


def git(
    *arguments: str | bytes,
    cwd: Path | None = None,
    stdin: Buffer = b"",
    env: Environment | None = None,
) -> bytes:
    """Run git and return its output; raises GitFailure."""
    return call(*arguments, cwd=cwd, stdin=stdin, env=env).stdout


def records(output: bytes) -> list[bytes]:
    """Split NUL-terminated output into records."""
    return output.split(b"\0")[:-1]


def joined(items: Iterable[bytes]) -> bytes:
    """Join items as input for a command with `-z --stdin`."""
    return b"".join(item + b"\0" for item in items)


def fit(paths: Sequence[bytes]) -> bool:
    """Tell whether these paths fit on git's command line.

    Those of a tree may be too long or too many.
    """
    longest = max(map(len, paths), default=0)
    return longest <= _MOST_ARGUMENT and sum(map(_argument_size, paths)) <= _MOST_ARGUMENTS


def batches(paths: Iterable[bytes], most: int = _MOST_ARGUMENTS) -> Iterator[list[bytes]]:
    """Split paths into lists that take at most `most` bytes as arguments.

    A longer path is in a list of its own.
    """
    batch: list[bytes] = []
    room = most
    for path in paths:
        room -= _argument_size(path)
        if batch and room < 0:
            yield batch
            batch, room = [], most - _argument_size(path)
        batch.append(path)
    if batch:
        yield batch


class GitStream:
    """A running git command whose output, and perhaps input, is used meanwhile; a context manager.

    Leaving it closes the pipes and waits; a command that still had output then dies of SIGPIPE,
    which is no failure. `code` is the exit code once it has ended.
    """

    def __init__(
        self, *arguments: str | bytes, cwd: Path | None = None, env: Environment | None = None
    ) -> None:
        self._process = _start(arguments, cwd, env, stderr=subprocess.DEVNULL, at_once=True)
        assert self._process.stdin is not None  # noqa: S101
        assert self._process.stdout is not None  # noqa: S101
        self._stdin: IO[bytes] = self._process.stdin
        self.stdout = cast(BufferedReader, self._process.stdout)
        self.code: int | None = None

    def ask(self, question: bytes) -> None:
        """Write a whole question; if the command has ended, its answer will be empty."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(question)
            self._stdin.flush()

    def __enter__(self) -> GitStream:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stdout.close()
            with contextlib.suppress(BrokenPipeError):
                self._stdin.close()
            self.code = self._process.wait()
        except BaseException:
            _end(self._process, at_once=True)
            raise


def version() -> tuple[int, ...]:
    """Return git's version as numbers, such as (2, 39, 5)."""
    output = git("version").decode("ascii", "replace")
    numbers = re.search(r"\d+(?:\.\d+)+", output)
    if numbers is None:
        raise EnvironmentFailure(f"git version says {output.strip()!r}")
    return tuple(int(part) for part in numbers[0].split("."))


def _argument_size(path: bytes) -> int:
    """Return the bytes that an argument takes, including NUL and the pointer to it."""
    return len(path) + 9


def _shown(argument: str | bytes) -> str:
    text = os.fsdecode(argument)
    return text if re.fullmatch(r"[\w./:=@%+,-]+", text, re.ASCII) else ascii(text)
