"""The process that compares all files of a `git diff`; `cli.diff_helper` says why there is one."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
from importlib import import_module
from typing import Any, NoReturn

from wtxtgit.cli.diff_helper import (
    ENDED,
    MOST,
    SIZE,
    STREAMS,
    TAKEN,
    is_own,
    process_facts,
    received,
)

_MOST_AT_ONCE = 16
"""Clients that are answered at the same time: git starts one driver after the other."""


def start(path: str, git: int, arguments: list[str]) -> None:
    """Fork a server that listens at `path` while the process `git` lives, where that can be.

    `arguments` are those of this driver. To be called before anything is done with
    standard streams, signals and threads.
    """
    if os.environ.get("GIT_DIFF_PATH_COUNTER") == os.environ.get("GIT_DIFF_PATH_TOTAL"):
        return  # after the last file nobody would ask
    try:
        _import_all(arguments)
        # Threads are not there in a forked process, and locks that they held stay locked.
        if len(os.listdir("/proc/self/task")) > 1 or None in (sys.stdin, sys.stdout, sys.stderr):
            return
        # Git waits for this process, so its number can't be another one's by now.
        end = os.pidfd_open(git)  # type: ignore[attr-defined,unused-ignore]
        with socket.socket(socket.AF_UNIX) as listening:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # of a server that was killed
            listening.bind(path)
            listening.listen(_MOST_AT_ONCE)
            if os.fork() == 0:
                _run(listening, end, path)
        os.close(end)
    except Exception:  # noqa: BLE001 - the driver meets what is wrong, and tells of it
        return


def _import_all(arguments: list[str]) -> None:
    """Import what comparisons need; of the formats only that of the first file."""
    from wtxtgit.containers.registry import by_ending

    for module in ("wtxtgit.cli.diff_driver", "wtxtgit.comparison.driver", "wtxtgit.report.tables"):
        import_module(module)
    file_format = by_ending(os.path.splitext(arguments[2])[1])
    if file_format is not None:
        file_format.read()


def _run(listening: socket.socket, git: int, path: str) -> NoReturn:
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for number in STREAMS:
            os.dup2(null, number)
        # Whoever reads from a pipe of git's waits until nobody can write to it.
        _close_all_but(listening.fileno(), git)
        os.chdir("/")
        _remove_stale(path)
        # Else the first collection in each forked process would copy all objects.
        gc.freeze()
        _serve(listening, git)
    finally:
        os.unlink(path)
        os._exit(0)


def _serve(listening: socket.socket, git: int) -> None:
    """Answer clients until git has ended and all are answered."""
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    listening.setblocking(False)
    ready = select.poll()
    # Listening comes first: no client gets a descriptor that another event of the same round means.
    ready.register(listening, select.POLLIN)
    ready.register(git, select.POLLIN)
    work: dict[int, tuple[int, socket.socket]] = {}
    """Processes that work, and their clients, by the processes' descriptors."""
    workers: dict[int, int] = {}
    """The processes by the clients' descriptors."""
    is_over = False
    while work or not is_over:
        for descriptor, _ in ready.poll():
            if descriptor == git:
                is_over = True
                ready.unregister(git)
                ready.unregister(listening)
                listening.close()
            elif descriptor in work:
                process, client = work.pop(descriptor)
                _, status = os.waitpid(process, 0)
                ready.unregister(descriptor)
                os.close(descriptor)
                if workers.pop(client.fileno(), None) is not None:
                    ready.unregister(client)
                with contextlib.suppress(OSError):
                    client.sendall(ENDED.pack(b"=", status))
                client.close()
            elif descriptor in workers:
                # The driver was killed: so is what works for it.
                os.kill(workers.pop(descriptor), signal.SIGTERM)
                ready.unregister(descriptor)
            elif begun := _begin(listening, usual, is_full=len(work) == _MOST_AT_ONCE):
                end, process, client = begun
                work[end] = process, client
                workers[client.fileno()] = process
                ready.register(end, select.POLLIN)
                ready.register(client, 0)


def _begin(
    listening: socket.socket, interrupt: Any, *, is_full: bool
) -> tuple[int, int, socket.socket] | None:
    """Fork a process for the next client: its descriptor and number, and the client.

    None for a client that is turned away, and does its work itself.
    """
    with contextlib.suppress(OSError), contextlib.ExitStack() as until:
        client, _ = listening.accept()
        until.enter_context(client)
        if is_own(client) and not is_full:
            process = os.fork()
            if process == 0:
                signal.signal(signal.SIGINT, interrupt)
                _answer(client)
            end = os.pidfd_open(process)  # type: ignore[attr-defined,unused-ignore]
            until.pop_all()
            return end, process, client
    return None


def _answer(client: socket.socket) -> NoReturn:
    """Do the work of a driver, in a process of its own."""
    code = 1
    try:
        arguments = _take_on(client)
        from wtxtgit.cli import diff_driver

        client.sendall(TAKEN)
        code = diff_driver.main(arguments)
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 - this process must not go on as a server
        sys.excepthook(*sys.exc_info())
    finally:
        # Python's own end would touch, and so copy, all memory that is shared with the server.
        os._exit(code)


def _take_on(client: socket.socket) -> list[str]:
    """Take over streams, environment and folder of the driver, and return its arguments.

    Raises OSError or ValueError for what is no request.
    """
    head, descriptors, _, _ = socket.recv_fds(
        client,
        SIZE.size,
        len(STREAMS) + 1,
        socket.MSG_CMSG_CLOEXEC,  # type: ignore[attr-defined,unused-ignore]
    )
    size = int.from_bytes(head, sys.byteorder) if len(head) == SIZE.size else MOST + 1
    request = received(client, size) if size <= MOST else b""
    if len(request) != size:
        raise ConnectionError("incomplete request")
    *streams, folder = descriptors
    for number, descriptor in zip(STREAMS, streams, strict=True):
        os.dup2(descriptor, number)
    os.fchdir(folder)
    _close_all_but(client.fileno())
    count, *words = request.split(b"\0")
    variables = (word.split(b"=", 1) for word in words[int(count) :])
    become(dict(variables))
    return [os.fsdecode(word) for word in words[: int(count)]]


def become(environment: dict[bytes, bytes]) -> None:
    """Set the environment, and make Python's standard streams of the descriptors 0 to 2."""
    os.environb.clear()
    os.environb.update(environment)
    sys.stdin = sys.__stdin__ = _stream(0, "r", sys.stdin)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, "w", sys.stdout)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "w", sys.stderr)  # type: ignore[misc]


def _stream(descriptor: int, mode: str, before: Any) -> Any:
    """A stream as Python makes it at its start; None for a descriptor that is closed."""
    # Standard error is written line by line, wherever it leads.
    buffering = 1 if descriptor == 2 else -1
    try:
        return open(
            descriptor, mode, buffering, before.encoding, before.errors, "\n", closefd=False
        )
    except OSError:
        return None


def _close_all_but(*kept: int) -> None:
    """Close all descriptors but those of standard streams and these."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in {*STREAMS, *kept}:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _remove_stale(path: str) -> None:
    """Remove sockets of servers that were killed: those whose git has ended."""
    folder, _, own = path.rpartition("/")
    space = own.split("-")[1]
    for name in os.listdir(folder):
        with contextlib.suppress(OSError, ValueError):
            kind, other_space, git, start = name.split("-")
            if (kind, other_space) == ("diff", space) and not _lives(int(git), int(start)):
                os.unlink(f"{folder}/{name}")


def _lives(process: int, start: int) -> bool:
    try:
        return process_facts(process)[2] == start
    except FileNotFoundError:
        return False
