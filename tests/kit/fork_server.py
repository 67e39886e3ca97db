"""Runs commands in processes forked from this one, which has imported all that they need.

A command starts in a few milliseconds that way. The client is `client.c`, which a test or git
starts in the place of Python. Started by `tests.kit.starts`, in a process of its own: `python
fork_server.py SOCKET EXECUTABLE`, with the number of a listening socket, and the client's path,
which takes the place of `sys.executable`. It ends when its standard input does.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import copyreg
import fcntl
import gc
import io
import os
import pkgutil
import resource
import runpy
import selectors
import signal
import socket
import struct
import sys
import threading
import warnings
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

# A script, which has its own folder on the path no more than the package that it belongs to.
_REFUSALS = runpy.run_path(str(Path(__file__).with_name("refusals.py")))
REFUSED, refuse = _REFUSALS["REFUSED"], _REFUSALS["refuse"]
HURRIED = "WTXTGIT_TEST_HURRIED"
"""The variable that has forked commands show their progress at once, not after a second."""
_MOST = 253
"""Descriptors in one message."""
_OWN = 512
"""From this number on descriptors are ours, until they get the number that they had."""

_LATER = (
    *("_strptime", "difflib", "encodings.ascii", "encodings.cp437", "encodings.idna"),
    *("encodings.unicode_escape", "importlib.readers", "importlib.resources.readers", "sqlite3"),
    *("blake3", "jinja2", "msgpack", "nacl.secret", "nacl.signing", "pyrage", "zstandard"),
    *("rich.console", "rich.table", "rich.progress"),
)
"""What commands import when they come to need it. Not pygit2, which looks at the home."""
DASK = b"dask"
"""The program that starts schedulers and workers."""
_EARLY: list[type] = []
"""What Dask has pickled in its own way, which are the errors that are there when it is imported.

In a server of its own none of ours are.
"""
_OF_SERVERS = ("dask.__main__", "distributed.cli.dask_scheduler", "distributed.cli.dask_worker")


@dataclass(frozen=True)
class Request:
    """What a process inherits, and its arguments."""

    is_isolated: bool
    umask: int
    parent: int
    blocked: frozenset[int]
    ignored: frozenset[int]
    limits: tuple[tuple[int, int], ...]
    arguments: tuple[bytes, ...]
    environment: dict[bytes, bytes]
    descriptors: dict[int, int]
    """Numbers that the process has them by, and ours."""
    folder: int

    @property
    def program(self) -> bytes:
        return self.arguments[0].rpartition(b"/")[2]


def _receive(client: socket.socket) -> Request:
    control = _MOST * array.array("i").itemsize
    head, messages, _, _ = client.recvmsg(4, socket.CMSG_SPACE(control), socket.MSG_CMSG_CLOEXEC)
    numbers = array.array("i")
    for _, _, data in messages:
        numbers.frombytes(data)
    if not head:
        raise ConnectionError("the client chose a true start")
    (size,) = struct.unpack("=I", head)
    data = bytearray()
    while len(data) < size:
        piece = client.recv(size - len(data))
        if not piece:
            raise ConnectionError("the client ended while it spoke")
        data += piece
    words = iter(bytes(data).split(b"\0")[:-1])
    kind, umask, parent, blocked, ignored = (next(words) for _ in range(5))
    limits = [(int(soft), int(hard)) for soft, hard in map(bytes.split, iter(words.__next__, b""))]
    *theirs, folder = zip([*map(int, iter(words.__next__, b"")), -1], numbers, strict=True)
    arguments = tuple(next(words) for _ in range(int(next(words))))
    return Request(
        is_isolated=kind == b"isolated",
        umask=int(umask),
        parent=int(parent),
        blocked=_signals(int(blocked)),
        ignored=_signals(int(ignored)),
        limits=tuple(limits),
        arguments=arguments,
        environment=dict(variable.split(b"=", 1) for variable in words),
        descriptors=dict(theirs),
        folder=folder[1],
    )


def _signals(mask: int) -> frozenset[int]:
    return frozenset(number for number in range(1, signal.NSIG) if mask >> number & 1)


def _serve(listening: socket.socket) -> Request:
    """Answer clients; returns in forked processes only, with what each was asked for.

    The end of standard input ends it, and all that it started.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ready = selectors.DefaultSelector()
    ready.register(listening, selectors.EVENT_READ)
    ready.register(sys.stdin.fileno(), selectors.EVENT_READ)
    clients: dict[int, tuple[socket.socket, int]] = {}
    while True:
        for key, _ in ready.select():
            descriptor = key.fd
            if descriptor == listening.fileno():
                client, _address = listening.accept()
                try:
                    request = _receive(client)
                except ConnectionError:
                    client.close()
                    continue
                if "wtxtgit" not in sys.modules:
                    import_all()
                    assert threading.active_count() == 1
                    assert len([*Path("/proc/self/task").iterdir()]) == 1
                is_for_dask = request.program == DASK or b"--scheduler" in request.arguments
                if is_for_dask and "distributed" not in sys.modules:
                    import_cluster()
                    assert len([*Path("/proc/self/task").iterdir()]) == 1
                process = os.fork()
                if process == 0:
                    return request
                for number in (*request.descriptors.values(), request.folder):
                    os.close(number)
                end = os.pidfd_open(process)
                clients[client.fileno()] = client, process
                ready.register(client, selectors.EVENT_READ)
                ready.register(end, selectors.EVENT_READ, (client, process))
            elif key.data is not None:
                client, process = key.data
                _, status = os.waitpid(process, 0)
                ready.unregister(descriptor)
                os.close(descriptor)
                if clients.pop(client.fileno(), None) is not None:
                    ready.unregister(client)
                    # It may have been killed since.
                    with contextlib.suppress(ConnectionError):
                        client.send(struct.pack("=i", status), socket.MSG_NOSIGNAL)
                    client.close()
            # One that has just ended may have left its number to a client that came after it.
            elif descriptor in clients and clients[descriptor][0] is key.fileobj:
                client, process = clients[descriptor]
                # Signals that the client was sent; where there is nothing it was killed.
                numbers = client.recv(64)
                for number in numbers or (signal.SIGKILL,):
                    os.kill(process, number)
                if not numbers:
                    del clients[descriptor]
                    ready.unregister(client)
            elif descriptor == sys.stdin.fileno():
                for _, process in clients.values():
                    os.kill(process, signal.SIGKILL)
                os._exit(0)


def import_all() -> None:
    """Import the whole package: what starts no thread and reads nothing of a home."""
    import wtxtgit

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for module in pkgutil.walk_packages(wtxtgit.__path__, "wtxtgit."):
            # Those need frameworks, and no command has to do with them.
            if not module.name.startswith("wtxtgit.stream.callbacks."):
                import_module(module.name)
        for name in _LATER:
            import_module(name)
    gc.collect()
    gc.freeze()


def import_cluster() -> None:
    """Import what a command on a cluster does, a scheduler and a worker: 0.7 s of CPU.

    What it reads of the environment it reads again in a forked process, but not the files in a
    home: no test has one there.
    """
    from wtxtgit.cluster.client import import_distributed

    known = {*sys.modules}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        import_distributed()
    for name in _OF_SERVERS:
        import_module(name)
    _EARLY.extend(kind for kind in copyreg.dispatch_table if kind.__module__ in known)
    gc.freeze()


def _become(request: Request, executable: str) -> None:
    """Take on all that a fresh process would have inherited."""
    high = {number: _moved(descriptor) for number, descriptor in request.descriptors.items()}
    os.fchdir(request.folder)
    os.closerange(0, _OWN)
    for number, descriptor in high.items():
        os.dup2(descriptor, number, inheritable=True)
    os.closerange(_OWN, _OWN + 2 * _MOST)
    os.umask(request.umask)
    for kind, limits in enumerate(request.limits):
        resource.setrlimit(kind, tuple(_limit(one) for one in limits))
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            ignored = number in request.ignored
            signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
    if signal.SIGINT not in request.ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # As Python itself does it.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, request.blocked)
    # Imported like all else when the first client came.
    from wtxtgit.cli.diff_server import become

    become(request.environment)
    if "distributed" in sys.modules:
        import_module("dask.config").refresh()
    if request.program == DASK:
        for kind in _EARLY:
            copyreg.dispatch_table.pop(kind, None)
        # For a command they are silenced.
        import_module("distributed.config").initialize_logging(import_module("dask.config").config)
        sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    os.getppid = lambda: request.parent
    for kind in os.environ.get(REFUSED, "").split():
        refuse(kind)
    if os.environ.get(HURRIED):
        import_module("wtxtgit.cli.output")._PATIENCE = -1
    sys.executable = executable
    sys.argv = [os.fsdecode(word) for word in request.arguments]
    wanted = os.environ.get("PYTHONWARNINGS")
    if wanted and not request.is_isolated:
        warnings._processoptions(wanted.split(","))
    if os.environ.get("PYTHONUNBUFFERED") and not request.is_isolated:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(line_buffering=True)


def _moved(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _OWN)


def _limit(value: int) -> int:
    return resource.RLIM_INFINITY if value == 2**64 - 1 else value


def _run() -> int:
    """Run the program; gives the exit code that Python would end with."""
    name = "dask" if Path(sys.argv[0]).name == "dask" else "wtxtgit"
    main = import_module(f"{name}.__main__").main

    try:
        code: int = main()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        raise
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException as error:  # noqa: BLE001
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            code = 120
    return code


def main() -> None:
    number, executable = sys.argv[1:]
    # Its threads would not be there in forked processes.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    _become(_serve(socket.socket(fileno=int(number))), executable)
    # Taking all modules down would copy most of the memory that is shared with the server.
    os._exit(_run())


if __name__ == "__main__":
    main()
