"""The command in an environment of its own, as a process where that makes a difference."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.kit.json_output import assert_as_specified
from tests.kit.starts import PYTHON, TRUE_START
from wtxtgit.__main__ import PLUMBING
from wtxtgit.cli.main import main

Argument = str | Path


def environment(home: Path) -> dict[str, str]:
    """Nothing of the caller's but what a process needs to run."""
    return {
        "HOME": str(home),
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "XDG_CONFIG_HOME": str(home / ".config"),
        "PYTHONWARNINGS": "error",
        "PYTHONDONTWRITEBYTECODE": "1",
        **({TRUE_START: "1"} if TRUE_START in os.environ else {}),
    }


@dataclass(frozen=True)
class Done:
    code: int
    out: bytes
    err: str

    def complaint(self) -> str:
        """The one error that was told, of one line and at most one hint."""
        assert "Traceback" not in self.err
        lines = self.err.splitlines()
        assert 1 <= len(lines) <= 2, self.err
        assert all(line.startswith("wtxtgit: ") for line in lines), self.err
        assert lines[0].startswith("wtxtgit: error: ")
        assert all(line.startswith("wtxtgit: hint: ") for line in lines[1:])
        assert self.err.endswith("\n")
        return lines[0].removeprefix("wtxtgit: error: ")


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """A command sets handlers of signals for its process."""
    handlers = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


class Command:
    """`wtxtgit` in a folder; what it is given decides all that it does.

    A call runs in this process, which takes a tenth of the time, unless it is
    one of those that git makes, or is given what only a process can have.
    """

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self._home = home

    def argv(self, *arguments: Argument) -> list[str]:
        return [PYTHON, "-m", "wtxtgit", *map(str, arguments)]

    def options(self, env: Mapping[str, str] | None = None) -> dict[str, Any]:
        return {"cwd": self.folder, "env": {**environment(self._home), **(env or {})}}

    def __call__(
        self,
        *arguments: Argument,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] | None = None,
        **more: Any,
    ) -> Done:
        by_git = str(arguments[0]) in PLUMBING if arguments else False
        if not (stdin or env or prefix or more or by_git):
            return self._here(*map(str, arguments))
        argv = self.argv(*arguments) if prefix is None else [*prefix, *map(str, arguments)]
        more.setdefault("stdout", subprocess.PIPE)
        done = subprocess.run(
            argv,
            input=stdin,
            stderr=subprocess.PIPE,
            check=False,
            timeout=120,
            **self.options(env),
            **more,
        )
        assert_as_specified([*map(str, arguments)], done.returncode, done.stdout)
        return Done(done.returncode, done.stdout or b"", done.stderr.decode())

    def _here(self, *arguments: str) -> Done:
        with (
            # Files, since some output goes past Python's streams.
            tempfile.TemporaryFile("w+", encoding="utf-8") as given,
            tempfile.TemporaryFile("w+", encoding="utf-8") as out,
            tempfile.TemporaryFile("w+", encoding="utf-8") as err,
            patch.dict(os.environ, environment(self._home), clear=True),
            patch.object(sys, "stdin", given),
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            _handlers_kept(),
        ):
            code = main(list(arguments))
            told = []
            for stream in (out, err):
                stream.flush()
                stream.seek(0)
                told.append(stream.buffer.read())
            assert_as_specified(arguments, code, told[0])
            return Done(code, told[0], told[1].decode())

    def start(self, *arguments: Argument, **more: Any) -> subprocess.Popen[bytes]:
        def receptive() -> None:
            # A shell starts background jobs with SIGINT ignored, nohup all with SIGHUP:
            # children inherit that.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)

        return subprocess.Popen(
            self.argv(*arguments),
            stderr=subprocess.PIPE,
            preexec_fn=receptive,
            **self.options(),
            **more,
        )

    def names(self) -> list[str]:
        """What is in the folder."""
        return sorted(path.name for path in self.folder.iterdir())
