"""One process that compares all files of a `git diff`: its clients, and how they find it.

Git starts a diff driver for every file, and starting Python with numpy takes far longer than most
comparisons. So the first driver forks a server (`cli.diff_server`), which has imported all that is
needed and lives as long as that git. Each of the next ones is a client, which imports next to
nothing: it hands its arguments, environment, folder and standard streams over, and ends with the
exit code that it is told. Umask, limits and ignored signals are not handed over: the server and its
clients have those of the same git.

Where anything about this fails, and on other systems than Linux, a driver works by itself.

The server runs what it is asked for, so it is for its own user alone: the socket is in a folder
that nobody else can enter, and both sides ask the system who the other one is. It is no abstract
socket: any container with the same network could reach that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import struct
import sys

MOST = 8 * 1024 * 1024
"""Bytes of a request. Linux starts no program with more than 6 MiB: execve(2)."""
SIZE = struct.Struct("=I")
"""The first message, with the descriptors: how long the request is that follows."""
TAKEN = b"+"
"""The answer when the work begins; until then a client can still do it itself."""
ENDED = struct.Struct("=ci")
"""The last answer: a byte that is not that of `TAKEN`, and the wait status."""
STREAMS = (0, 1, 2)

_TOTAL = "GIT_DIFF_PATH_TOTAL"
"""How many paths a diff has: git(1), GIT_EXTERNAL_DIFF."""
_OWNER = struct.Struct("=iII")
"""Process, user, group: unix(7), SO_PEERCRED."""
_MOST_ANCESTORS = 3
"""Processes in which git is looked for: a shell may stand between."""
_PRIVATE = 0o700
_LOST = 5
"""The exit code of `errors.EnvironmentFailure`."""


def ask(path: str, arguments: list[str]) -> int | None:
    """Have the server at `path` do this driver's work, and return its exit code.

    None where no work was begun: this driver does it itself.
    """
    usual = signal.getsignal(signal.SIGINT)
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        if is_own(server):
            # Ctrl-C reaches the process that compares as well, which says so and ends.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            _send(server, arguments)
            if server.recv(len(TAKEN)) == TAKEN:
                return _exit_code(server)
    signal.signal(signal.SIGINT, usual)
    return None


def _send(server: socket.socket, arguments: list[str]) -> None:
    """Send arguments, environment, streams and folder of this driver; raises OSError."""
    words = [b"%d" % len(arguments), *map(os.fsencode, arguments)]
    request = b"\0".join([*words, *(b"%b=%b" % item for item in os.environb.items())])
    folder = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # type: ignore[attr-defined,unused-ignore]
    try:
        # This fails if a standard stream is closed, which boundary.run reports.
        socket.send_fds(server, [SIZE.pack(len(request))], [*STREAMS, folder])
    finally:
        os.close(folder)
    server.sendall(request)


def _exit_code(server: socket.socket) -> int:
    """Wait for the end; a signal that ended the work ends this process, too."""
    message = received(server, ENDED.size)
    if len(message) < ENDED.size:
        sys.stderr.write("wtxtgit: error: the process that compares the files has ended\n")
        return _LOST
    code = os.waitstatus_to_exitcode(ENDED.unpack(message)[1])
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def received(peer: socket.socket, size: int) -> bytes:
    """Receive so many bytes, or fewer if the other side ended."""
    data = bytearray()
    while len(data) < size and (piece := peer.recv(size - len(data))):
        data += piece
    return bytes(data)


def is_own(peer: socket.socket) -> bool:
    """Whether the other side is a process of this user."""
    owner = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _OWNER.size)  # type: ignore[attr-defined,unused-ignore]
    return bool(_OWNER.unpack(owner)[1] == os.geteuid())


def place() -> tuple[str, int] | None:
    """Return the socket for the git that started this, and that git; None for no server."""
    paths = os.environ.get(_TOTAL, "")
    if sys.platform != "linux" or not paths.isdecimal() or len(paths) > 9 or int(paths) < 2:
        return None
    try:
        git = os.getppid()
        name, parent, start = process_facts(git)
        for _ in range(_MOST_ANCESTORS - 1):
            if name != b"git":
                git = parent
                name, parent, start = process_facts(git)
        folder = _folder()
        # Containers count their processes each for itself, and may share the folder.
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except (OSError, ValueError, IndexError):
        return None
    if name != b"git" or folder is None:
        return None
    return f"{folder}/diff-{namespace}-{git}-{start}", git


def process_facts(number: int) -> tuple[bytes, int, int]:
    """Return name, parent, and start in clock ticks since boot: proc(5), /proc/pid/stat.

    Raises OSError.
    """
    with open(f"/proc/{number}/stat", "rb") as file:
        before, _, after = file.read().rpartition(b")")
    fields = after.split()
    return before.partition(b"(")[2], int(fields[1]), int(fields[19])


def _folder() -> str | None:
    """The folder of sockets, this user's alone; None where there is another thing in its place."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if base.startswith("/") and _is_private(base):
        folder = f"{base}/wtxtgit"
    else:
        temporary = os.environ.get("TMPDIR", "")
        base = temporary if temporary.startswith("/") else "/tmp"  # noqa: S108 - checked below
        folder = f"{base}/wtxtgit-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, _PRIVATE)
    return folder if _is_private(folder) else None


def _is_private(folder: str) -> bool:
    """Whether this is a folder that only this user can enter, and not a link to one."""
    try:
        facts = os.lstat(folder)
    except FileNotFoundError:
        return False
    is_own_folder = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid()
    return is_own_folder and stat.S_IMODE(facts.st_mode) == _PRIVATE
