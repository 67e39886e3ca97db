from __future__ import annotations

import subprocess
import sys
from io import BytesIO

import pytest

from wtxtgit.git.filter_protocol import (
    CAN_DELAY,
    LIST,
    MAX_PAYLOAD,
    FilterProcess,
    PacketReader,
    PacketWriter,
    ProtocolError,
    Request,
    check_greeting,
    greeting,
)


def line(text: bytes) -> bytes:
    return b"%04x%b\n" % (len(text) + 5, text)


def lines(*texts: bytes) -> bytes:
    return b"".join(map(line, texts)) + b"0000"


def content(data: bytes) -> bytes:
    parts = [data[i : i + MAX_PAYLOAD] for i in range(0, len(data), MAX_PAYLOAD)]
    return b"".join(b"%04x%b" % (len(part) + 4, part) for part in parts) + b"0000"


def request(command: bytes, path: bytes, data: bytes, *keys: bytes) -> bytes:
    return lines(b"command=" + command, b"pathname=" + path, *keys) + content(data)


def conversation(sent: bytes) -> tuple[FilterProcess, BytesIO]:
    answered = BytesIO()
    return FilterProcess(PacketReader(BytesIO(sent)), PacketWriter(answered)), answered


def test_handshake() -> None:
    process, answered = conversation(
        lines(b"git-filter-client", b"version=2")
        + lines(b"capability=clean", b"capability=smudge", b"capability=delay")
    )
    process.handshake()
    assert answered.getvalue() == lines(b"git-filter-server", b"version=2") + lines(
        b"capability=clean", b"capability=smudge", b"capability=delay"
    )


def test_handshake_takes_up_only_what_is_offered() -> None:
    process, answered = conversation(
        lines(b"git-filter-client", b"version=2", b"version=3") + lines(b"capability=smudge")
    )
    process.handshake()
    assert answered.getvalue().endswith(line(b"version=2") + b"0000" + lines(b"capability=smudge"))


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"0000",
        lines(b"git-lfs-client", b"version=2"),
        lines(b"version=2", b"git-filter-client"),
        lines(b"git-filter-client", b"version=1"),
        lines(b"git-filter-client"),
        lines(b"git-filter-client", b"version=2") + b"junk",
    ],
)
def test_a_bad_handshake_is_refused(sent: bytes) -> None:
    process, _ = conversation(sent)
    with pytest.raises(ProtocolError):
        process.handshake()


def test_our_own_greeting_is_answered() -> None:
    process, answered = conversation(greeting())
    process.handshake()
    assert list(process.requests()) == []
    check_greeting(PacketReader(BytesIO(answered.getvalue())))


def test_an_answer_without_smudge_is_refused() -> None:
    answer = lines(b"git-filter-server", b"version=2") + lines(b"capability=clean")
    with pytest.raises(ProtocolError, match="smudge"):
        check_greeting(PacketReader(BytesIO(answer)))


def test_requests() -> None:
    path = b"dir/a=b \xff\n\x1b.fold"
    process, answered = conversation(
        request(b"smudge", path, b"text", b"ref=refs/heads/main", b"blob=" + b"0" * 40)
        + request(b"clean", b"-x", b"")
    )
    seen: list[tuple[Request, bytes]] = []
    for asked in process.requests():
        data = b"".join(asked.content)
        seen.append((asked, data))
        process.success([data.upper()])
    (first, text), (second, nothing) = seen
    assert (first.command, first.pathname, text) == ("smudge", path, b"text")
    assert first.keys == {"ref": b"refs/heads/main", "blob": b"0" * 40}
    assert (second.command, second.pathname, nothing) == ("clean", b"-x", b"")
    assert answered.getvalue() == (
        lines(b"status=success") + content(b"TEXT") + b"0000"
        + lines(b"status=success") + b"0000" + b"0000"
    )  # fmt: skip


@pytest.mark.parametrize("unread", [b"unread", bytes(3 * 2**20)])
def test_unread_content_is_drained(unread: bytes) -> None:
    process, answered = conversation(
        request(b"clean", b"a", unread) + request(b"clean", b"b", b"second")
    )
    names = []
    for asked in process.requests():
        names.append(asked.pathname)
        process.error()
    assert names == [b"a", b"b"]
    assert answered.getvalue() == lines(b"status=error") * 2


def test_an_error_while_content_is_made_is_told_late() -> None:
    process, answered = conversation(
        request(b"smudge", b"a", b"x") + request(b"smudge", b"b", b"y")
    )
    asked = process.requests()
    next(asked)

    def broken():
        yield b"part"
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        process.success(broken())
    second = next(asked)
    process.success(second.content)
    replies = PacketReader(BytesIO(answered.getvalue()))
    assert list(replies.lines()) == [b"status=success"]
    list(replies.content())
    assert list(replies.lines()) == [b"status=error"]
    assert list(replies.lines()) == [b"status=success"]


@pytest.mark.parametrize(
    "sent",
    [
        b"0000",
        lines(b"command=list_available_blobs"),
        lines(b"command=clean"),
        lines(b"pathname=a"),
        lines(b"command=clean", b"pathname"),
        lines(b"command=clean", b"command=clean", b"pathname=a"),
        line(b"command=clean"),
        line(b"command=clean") + line(b"pathname=a"),
    ],
)
def test_bad_requests_are_refused(sent: bytes) -> None:
    process, _ = conversation(sent)
    with pytest.raises(ProtocolError):
        list(process.requests())


def test_content_cut_short_is_refused() -> None:
    process, _ = conversation(request(b"clean", b"a", b"data")[:-6])
    with pytest.raises(ProtocolError):
        list(process.requests())


def test_only_the_standard_library_is_loaded() -> None:
    code = (
        "import sys, wtxtgit.git.filter_protocol; "
        "print([m for m in ('numpy', 'click', 'rich', 'pygit2', 'subprocess') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


def test_what_is_delayed_is_asked_for_again() -> None:
    process, answered = conversation(
        lines(b"git-filter-client", b"version=2")
        + lines(b"capability=smudge", b"capability=delay")
        + request(b"smudge", b"a", b"text", b"can-delay=1")
        + lines(b"command=list_available_blobs")
        + request(b"smudge", b"a", b"")
        + lines(b"command=list_available_blobs")
    )
    process.handshake()
    answered.truncate(0)
    answered.seek(0)
    requests = process.requests()
    first = next(requests)
    assert (first.command, first.pathname, CAN_DELAY in first.keys) == ("smudge", b"a", True)
    process.delayed()
    assert next(requests).command == LIST
    process.available([b"a"])
    again = next(requests)
    assert (again.pathname, b"".join(again.content), CAN_DELAY in again.keys) == (b"a", b"", False)
    process.success([b"file"])
    assert next(requests).command == LIST
    process.available([])
    assert list(requests) == []
    assert answered.getvalue() == (
        lines(b"status=delayed")
        + lines(b"pathname=a") + lines(b"status=success")
        + lines(b"status=success") + content(b"file") + b"0000"
        + b"0000" + lines(b"status=success")
    )  # fmt: skip
