"""Keys that sign, whether their secret is at hand or with an ssh-agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from wtxtgit.trust import agent
from wtxtgit.trust.agent import AgentError
from wtxtgit.trust.key_types import why_no_key
from wtxtgit.trust.keys import (
    KeyFileError,
    SecretKey,
    blob_fingerprint,
    fingerprint,
    parse_secret_key,
)
from wtxtgit.trust.passphrase import is_protected, unprotect

AskPassphrase = Callable[[str], str]
"""Asks for the passphrase of the key that goes by this name."""
_TYPES_SHOWN = 8


class SigningKey(Protocol):
    """A key that can sign; `name` is how messages call it."""

    @property
    def name(self) -> str: ...

    @property
    def public_key(self) -> bytes:
        """32 bytes."""

    def sign(self, message: bytes) -> bytes:
        """The ed25519 signature, 64 bytes; raises AgentError where an agent is asked in vain."""


@dataclass(frozen=True, slots=True)
class SeedKey:
    """A key whose secret is at hand."""

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
    """A key that an ssh-agent holds, which listens at `socket`."""

    name: str
    public_key: bytes
    socket: Path

    def sign(self, message: bytes) -> bytes:
        from nacl.exceptions import BadSignatureError
        from nacl.signing import VerifyKey

        with agent.connect(self.socket, agent.SIGN_SECONDS) as connected:
            signature = connected.sign(self.public_key, message)
        try:
            VerifyKey(self.public_key).verify(message, signature)
        except BadSignatureError:
            raise AgentError(f"{self.name}: the ssh-agent's signature does not hold") from None
        return signature


def seed_key(content: bytes, name: str, ask: AskPassphrase | None) -> SeedKey:
    """The key of a secret file's content, whether behind a passphrase or not.

    `ask` is called only for one that is; None says that nobody can be asked.
    Raises KeyFileError, and whatever `ask` raises.
    """
    if is_protected(content):
        if ask is None:
            raise KeyFileError(f"{name}: the key is protected by a passphrase")
        content = unprotect(content, ask(name), name)
    return SeedKey(name, parse_secret_key(content, name))


def agent_key(socket: Path | None, wanted: str | None) -> AgentKey:
    """The key of an ssh-agent with the fingerprint `wanted`, or its only ed25519 key.

    Raises AgentError, which says of keys of other types why they are passed
    over.
    """
    with agent.connect(socket, agent.LIST_SECONDS) as connected:
        found = connected.held()
    held = {fingerprint(key.public_key): key.public_key for key in found.keys}
    if wanted is None:
        if not held:
            passed = ", ".join(sorted({other.kind for other in found.others})[:_TYPES_SHOWN])
            raise AgentError(
                "the ssh-agent holds no ed25519 key" + (f", only {passed}" if passed else ""),
                hint="ssh-add FILE adds a key",
            )
        if len(held) > 1:
            raise AgentError(
                f"the ssh-agent holds {len(held)} ed25519 keys, and one is wanted",
                hint="ssh-add -l lists fingerprints, agent:SHA256:... takes one",
            )
        (wanted,) = held
    for other in found.others:
        if blob_fingerprint(other.blob) == wanted:
            raise AgentError(f"agent:{wanted}: {why_no_key(other.kind)}")
    if wanted not in held or socket is None:
        raise AgentError(
            f"the ssh-agent does not hold the ed25519 key {wanted}", hint="ssh-add FILE adds a key"
        )
    return AgentKey(f"agent:{wanted}", held[wanted], socket)
