"""Keys that sign: their secret is either in memory or held by an ssh-agent.

`Agent` speaks the agent's protocol (draft-miller-ssh-agent) over a read and a write function;
`connect` yields a connected one. The agent's answers are treated as hostile: they are bounded, and
waiting for them ends.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.trust.keyring import is_protected, unprotect
from wtxtgit.trust.openssh import (
    KeyFileError,
    SecretKey,
    Strings,
    blob_fingerprint,
    fingerprint,
    number,
    parse_public_blob,
    parse_secret_key,
    parse_signature_blob,
    public_blob,
    string,
    why_no_key,
)

AskPassphrase = Callable[[str], str]
"""Asks the user for the passphrase of the key with this name, and returns it."""
_TYPES_SHOWN = 8
MAX_ANSWER = 256 * 1024
"""Most bytes of an answer, as in OpenSSH."""
LIST_SECONDS = 10
SIGN_SECONDS = 120
"""Seconds for a signature: a person may have to confirm, or to touch a device."""
FAILURE = 5
REQUEST_IDENTITIES, IDENTITIES_ANSWER = 11, 12
SIGN_REQUEST, SIGN_RESPONSE = 13, 14
_NUMBER_SIZE = 4
_TYPE_SHOWN = 64
_LEAST_IDENTITY = 8
"""Bytes of the shortest identity: two empty strings."""


class SigningKey(Protocol):
    """A key that can sign; messages call it `name`."""

    @property
    def name(self) -> str: ...

    @property
    def public_key(self) -> bytes:
        """The public key, 32 bytes."""

    def sign(self, message: bytes) -> bytes:
        """Return the ed25519 signature, 64 bytes.

        Raises AgentError if an agent fails or refuses.
        """


@dataclass(frozen=True, slots=True)
class SeedKey:
    """A key whose secret is in memory."""

    name: str
    secret: SecretKey = field(repr=False)

    @property
    def public_key(self) -> bytes:
        return self.secret.public_key

    def sign(self, message: bytes) -> bytes:
        from nacl.signing import SigningKey as Ed25519

        return bytes(Ed25519(self.secret.seed).sign(message).signature)


@dataclass(frozen=True, slots=True)
class AgentKey:
    """A key held by the ssh-agent that listens at `socket`."""

    name: str
    public_key: bytes
    socket: Path

    def sign(self, message: bytes) -> bytes:
        from nacl.exceptions import BadSignatureError
        from nacl.signing import VerifyKey

        # The agent may ask its user to confirm, so signing may take longer than listing.
        with connect(self.socket, SIGN_SECONDS) as connected:
            signature = connected.sign(self.public_key, message)
        try:
            # A wrong signature of the agent must not become part of a record that nobody accepts.
            VerifyKey(self.public_key).verify(message, signature)
        except BadSignatureError:
            raise AgentError(f"{self.name}: the ssh-agent's signature is not valid") from None
        return signature


def seed_key(content: bytes, name: str, ask: AskPassphrase | None) -> SeedKey:
    """Return the key in the content of a secret file, decrypted if it has a passphrase.

    `ask` is called only if there is a passphrase; None means that nobody can be asked. Raises
    KeyFileError, and whatever `ask` raises.
    """
    if is_protected(content):
        # In hooks of graphical clients there is no terminal on which to ask.
        if ask is None:
            raise KeyFileError(f"{name}: the key is protected by a passphrase")
        content = unprotect(content, ask(name), name)
    return SeedKey(name, parse_secret_key(content, name))


def agent_key(socket: Path | None, wanted: str | None) -> AgentKey:
    """Return the ssh-agent's key with the fingerprint `wanted`, or its only ed25519 key.

    Raises AgentError, which explains why keys of other types can't be used.
    """
    with connect(socket, LIST_SECONDS) as connected:
        identities = connected.list_keys()
    keys = {fingerprint(key.public_key): key.public_key for key in identities.keys}
    if wanted is None:
        if not keys:
            unusable = ", ".join(sorted({other.kind for other in identities.others})[:_TYPES_SHOWN])
            raise AgentError(
                "the ssh-agent holds no ed25519 key" + (f", only {unusable}" if unusable else ""),
                hint="ssh-add FILE adds a key",
            )
        if len(keys) > 1:
            raise AgentError(
                f"the ssh-agent holds {len(keys)} ed25519 keys; choose one",
                hint="ssh-add -l lists fingerprints; agent:SHA256:... chooses a key",
            )
        (wanted,) = keys
    # If the agent has that key, but of another type, the error says why it can't be used.
    for other in identities.others:
        if blob_fingerprint(other.blob) == wanted:
            raise AgentError(f"agent:{wanted}: {why_no_key(other.kind)}")
    if wanted not in keys or socket is None:
        raise AgentError(
            f"the ssh-agent does not hold the ed25519 key {wanted}", hint="ssh-add FILE adds a key"
        )
    return AgentKey(f"agent:{wanted}", keys[wanted], socket)


class AgentError(EnvironmentFailure):
    """There is no agent, or it lacks the key, refuses, or sends invalid answers."""


@dataclass(frozen=True, slots=True)
class Identity:
    """An ed25519 key in an agent: the public key (32 bytes) and its comment."""

    public_key: bytes
    comment: str


@dataclass(frozen=True, slots=True)
class OtherKey:
    """A key in an agent that can't sign here; `blob` is its public part in SSH's encoding."""

    blob: bytes
    comment: str

    @property
    def kind(self) -> str:
        """The name of its type, or whatever the agent sends in its place."""
        size = int.from_bytes(self.blob[:_NUMBER_SIZE], "big")
        name = self.blob[_NUMBER_SIZE:][: min(size, _TYPE_SHOWN)]
        return name.decode("ascii", "backslashreplace") or "?"


@dataclass(frozen=True, slots=True)
class AgentKeys:
    """The keys in an agent, in its order: ed25519 keys, and others."""

    keys: tuple[Identity, ...]
    others: tuple[OtherKey, ...]


class Agent:
    """An agent at the other end of a connection.

    `read` returns at most the given number of bytes, none at the end; `write` writes everything.
    """

    def __init__(self, read: Callable[[int], bytes], write: Callable[[bytes], object]) -> None:
        self._receive = read
        self._send = write

    def list_keys(self) -> AgentKeys:
        """List the agent's keys; raises AgentError."""
        answer = self._ask(bytes([REQUEST_IDENTITIES]), IDENTITIES_ANSWER, "to list its keys")
        count = answer.number()
        # Before the loop, which must not run as often as an unchecked number says.
        if count > answer.left // _LEAST_IDENTITY:
            raise _unexpected("claims more keys than it sends")
        keys, others = [], []
        for _ in range(count):
            blob, comment = answer.string(), answer.string().decode("utf-8", "backslashreplace")
            key = parse_public_blob(blob)
            if key is not None:
                keys.append(Identity(key, comment))
            else:
                others.append(OtherKey(blob, comment))
        if answer.left:
            raise _unexpected("sends more than it claims")
        return AgentKeys(tuple(keys), tuple(others))

    def sign(self, public_key: bytes, message: bytes) -> bytes:
        """Have the agent sign with one of its keys (32 bytes); returns 64 bytes.

        Raises AgentError. The signature is not checked here.
        """
        flags = number(0)
        request = bytes([SIGN_REQUEST]) + string(public_blob(public_key)) + string(message)
        answer = self._ask(request + flags, SIGN_RESPONSE, "to sign")
        signature = parse_signature_blob(answer.string())
        if signature is None or answer.left:
            raise _unexpected("sends no ed25519 signature")
        return signature

    def _ask(self, request: bytes, wanted: int, what: str) -> Strings:
        self._send(string(request))
        size = int.from_bytes(self._read(4), "big")
        # The agent chooses the size: nothing is allocated before it is bounded.
        if not 0 < size <= MAX_ANSWER:
            raise _unexpected(f"an answer of {size} bytes")
        answer = self._read(size)
        if answer[0] == FAILURE:
            raise AgentError(f"the ssh-agent refuses {what}")
        if answer[0] != wanted:
            raise _unexpected(f"an answer of type {answer[0]}")
        return Strings(answer[1:], lambda: _unexpected("an answer that is cut short"))

    def _read(self, size: int) -> bytes:
        content = bytearray()
        while len(content) < size:
            piece = self._receive(size - len(content))
            if not piece:
                raise _unexpected("ends in the middle of an answer")
            content += piece
        return bytes(content)


@contextmanager
def connect(path: Path | None, seconds: float) -> Iterator[Agent]:
    """Connect to the agent whose socket is `path`; the whole exchange may take `seconds`.

    Raises AgentError if there is no agent, and if the connection fails later.
    """
    if path is None:
        raise AgentError(
            "no ssh-agent: SSH_AUTH_SOCK is not set", hint='eval "$(ssh-agent)" starts one'
        )
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            stream = _TimedSocket(connection, seconds)
            connection.connect(str(path))
            yield Agent(stream.read, stream.write)
    except TimeoutError:
        raise AgentError(f"the ssh-agent gave no answer in {seconds:g} s") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise AgentError(f"the ssh-agent of SSH_AUTH_SOCK can't be reached: {reason}") from error


class _TimedSocket:
    """A socket with a deadline for everything, however slowly bytes trickle in."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._end = time.monotonic() + seconds
        self._connection.settimeout(seconds)

    def read(self, size: int, /) -> bytes:
        self._apply_deadline()
        return self._connection.recv(size)

    def write(self, data: bytes, /) -> None:
        self._apply_deadline()
        self._connection.sendall(data)

    def _apply_deadline(self) -> None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        # The time that is left in total: single bytes must not restart the clock.
        self._connection.settimeout(left)


def _unexpected(what: str) -> AgentError:
    return AgentError(f"unexpected answer from the ssh-agent: {what}")
