"""A Dask cluster of real processes on loopback, in an environment of its own."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.cli.command import environment
from tests.kit.starts import BIN, DASK

ROOT = Path(__file__).parents[2]
_LOCAL = ("--host", "127.0.0.1", "--no-dashboard", "--port", "0")


@dataclass
class Server:
    """A scheduler or worker that runs, and what it said so far."""

    process: subprocess.Popen[str]
    address: str
    pid: int
    """That of the server itself, of which `process` may be a client."""

    def kill(self) -> None:
        """End it as the system does that is out of memory."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Processes:
    """A scheduler and workers; a context manager that ends them all."""

    folder: Path
    options: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    workers: dict[str, Server] = field(default_factory=dict)
    _count: int = 0
    _until: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        self.scheduler = self._start("Scheduler at", "scheduler", *_LOCAL)
        return self

    def __exit__(self, *_: object) -> None:
        self._until.close()

    @property
    def address(self) -> str:
        return self.scheduler.address

    def add_worker(self, *options: str, before: Sequence[str] = ()) -> Server:
        """Start a worker of one thread, by what is put `before`; gives it when it is registered."""
        number = str(len(self.workers))
        found = self._start(
            "Start worker at",
            *("worker", self.address, "--no-nanny", "--nthreads", "1", *_LOCAL[:3]),
            *("--local-directory", str(self.folder / number), *options),
            until="Registered to",
            before=before,
        )
        self.workers[found.address] = found
        return found

    def run(self, command: str) -> Server:
        """Start a worker as a command for a shell says, and wait until it is registered."""
        return self._start("Start worker at", *shlex.split(command)[1:], until="Registered to")

    def watcher(self) -> Any:
        """A client that looks what the scheduler does."""
        import distributed

        client: Any = distributed.Client(self.address, set_as_default=False)
        self._until.callback(client.close)
        return client

    def _start(
        self, said: str, *arguments: str, until: str | None = None, before: Sequence[str] = ()
    ) -> Server:
        self.folder.mkdir(exist_ok=True)
        variables = environment(self.folder)
        # Of Dask's own warnings none is ours.
        del variables["PYTHONWARNINGS"]
        self._count += 1
        file = self.folder / f"{self._count}.pid"
        # Not forked from another process: that would not be within what is put before.
        program = [*before, BIN / "dask"] if before else [DASK]
        process = subprocess.Popen(
            [*program, *arguments, *self.options, "--pid-file", file],
            cwd=self.folder,
            env={**variables, "PYTHONPATH": str(ROOT), **self.variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        address, told = "", []
        assert process.stderr is not None
        for line in process.stderr:
            told.append(line)
            if match := re.search(rf"{said}: +(\S+)", line):
                address = match[1]
            if address and (until is None or until in line):
                drain = threading.Thread(target=process.stderr.read)
                drain.start()
                self._until.callback(self._end, process, drain)
                return Server(process, address, int(file.read_text()))
        process.wait()
        process.stderr.close()
        raise AssertionError("".join(told))

    @staticmethod
    def _end(process: subprocess.Popen[str], drain: threading.Thread) -> None:
        process.kill()
        process.wait()
        drain.join()
        assert process.stderr is not None
        process.stderr.close()


def busy(client: Any, is_enough: Callable[[dict[str, Any]], bool]) -> list[str]:
    """Ask the scheduler, again and again, until what workers are at is enough; gives those."""
    while True:
        found = {address: keys for address, keys in client.processing().items() if keys}
        if is_enough(found):
            return list(found)


def with_write_end(pipe: Path) -> int:
    """Open a named pipe for writing, as soon as somebody has opened it for reading."""
    return os.open(pipe, os.O_WRONLY)
