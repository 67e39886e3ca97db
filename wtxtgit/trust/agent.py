"""The protocol of ssh-agent (draft-miller-ssh-agent): its ed25519 keys, and signatures by them.

`Agent` speaks it over a reader and a writer; `connect` gives one that is
connected. The agent's answers are taken for hostile: bounded, and never
waited for without an end.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.trust.wire import (
    Strings,
    number,
    parse_public_blob,
    parse_signature_blob,
    public_blob,
    string,
)

MAX_ANSWER = 256 * 1024
"""Most bytes of an answer, as OpenSSH bounds it."""

LIST_SECONDS = 10
SIGN_SECONDS = 120
"""A person may have to confirm, or to touch a device."""

FAILURE = 5
REQUEST_IDENTITIES, IDENTITIES_ANSWER = 11, 12
SIGN_REQUEST, SIGN_RESPONSE = 13, 14

_NUMBER_SIZE = 4
_TYPE_SHOWN = 64
_LEAST_IDENTITY = 8
"""Bytes of the shortest identity: two empty strings."""


class AgentError(EnvironmentFailure):
    """There is no agent, it lacks the key, refuses, or talks nonsense."""


@dataclass(frozen=True, slots=True)
class Identity:
    """An ed25519 key that an agent holds: the public key (32 bytes) and its comment."""

    public_key: bytes
    comment: str


@dataclass(frozen=True, slots=True)
class OtherKey:
    """A key of an agent that can't sign here: its public part in SSH's spelling."""

    blob: bytes
    comment: str

    @property
    def kind(self) -> str:
        """The name of its type, or what the agent sends in its place."""
        size = int.from_bytes(self.blob[:_NUMBER_SIZE], "big")
        name = self.blob[_NUMBER_SIZE:][: min(size, _TYPE_SHOWN)]
        return name.decode("ascii", "backslashreplace") or "?"


@dataclass(frozen=True, slots=True)
class Held:
    """What an agent holds, in its order: ed25519 keys, and those that are passed over."""

    keys: tuple[Identity, ...]
    others: tuple[OtherKey, ...]


class Reader(Protocol):
    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""


class Writer(Protocol):
    def write(self, data: bytes, /) -> object:
        """Take all of `data`."""


class Agent:
    """An agent at the other end of a reader and a writer."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self._reader = reader
        self._writer = writer

    def held(self) -> Held:
        """The agent's keys; raises AgentError."""
        answer = self._ask(bytes([REQUEST_IDENTITIES]), IDENTITIES_ANSWER, "to list its keys")
        count = answer.number()
        if count > answer.left // _LEAST_IDENTITY:
            raise _nonsense("claims more keys than it sends")
        found, others = [], []
        for _ in range(count):
            blob, comment = answer.string(), answer.string().decode("utf-8", "backslashreplace")
            key = parse_public_blob(blob)
            if key is not None:
                found.append(Identity(key, comment))
            else:
                others.append(OtherKey(blob, comment))
        if answer.left:
            raise _nonsense("sends more than it claims")
        return Held(tuple(found), tuple(others))

    def sign(self, public_key: bytes, message: bytes) -> bytes:
        """Let the agent sign with a key of its own (32 bytes); gives 64 bytes.

        Raises AgentError. The signature is not checked here.
        """
        flags = number(0)
        request = bytes([SIGN_REQUEST]) + string(public_blob(public_key)) + string(message)
        answer = self._ask(request + flags, SIGN_RESPONSE, "to sign")
        signature = parse_signature_blob(answer.string())
        if signature is None or answer.left:
            raise _nonsense("sends no ed25519 signature")
        return signature

    def _ask(self, request: bytes, wanted: int, what: str) -> Strings:
        self._writer.write(string(request))
        size = int.from_bytes(self._read(4), "big")
        if not 0 < size <= MAX_ANSWER:
            raise _nonsense(f"an answer of {size} bytes")
        answer = self._read(size)
        if answer[0] == FAILURE:
            raise AgentError(f"the ssh-agent refuses {what}")
        if answer[0] != wanted:
            raise _nonsense(f"an answer of type {answer[0]}")
        return Strings(answer[1:], lambda: _nonsense("an answer that is cut short"))

    def _read(self, size: int) -> bytes:
        held = bytearray()
        while len(held) < size:
            piece = self._reader.read(size - len(held))
            if not piece:
                raise _nonsense("ends in the middle of an answer")
            held += piece
        return bytes(held)


@contextmanager
def connect(path: Path | None, seconds: float) -> Iterator[Agent]:
    """Connect to the agent whose socket is `path`, for so many seconds in all.

    Raises AgentError where there is none, also for what goes wrong with the
    connection later.
    """
    if path is None:
        raise AgentError(
            "no ssh-agent: SSH_AUTH_SOCK is not set", hint='eval "$(ssh-agent)" starts one'
        )
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            stream = _Stream(connection, seconds)
            connection.connect(str(path))
            yield Agent(stream, stream)
    except TimeoutError:
        raise AgentError(f"the ssh-agent gave no answer in {seconds:g} s") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise AgentError(f"the ssh-agent of SSH_AUTH_SOCK can't be reached: {reason}") from error


class _Stream:
    """A socket that gives up at one moment, however slowly bytes trickle in."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._end = time.monotonic() + seconds
        self._connection.settimeout(seconds)

    def read(self, size: int, /) -> bytes:
        self._hurry()
        return self._connection.recv(size)

    def write(self, data: bytes, /) -> None:
        self._hurry()
        self._connection.sendall(data)

    def _hurry(self) -> None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)


def _nonsense(what: str) -> AgentError:
    return AgentError(f"the ssh-agent is not understood: {what}")
