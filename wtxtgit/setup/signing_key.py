"""Which key signs: named by an option, by the environment, by git's config, or the only one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from wtxtgit.errors import UsageError
from wtxtgit.io.files import failures, shown
from wtxtgit.setup.keys import only_name
from wtxtgit.trust.keyring import Keyring, read_secret_file
from wtxtgit.trust.keys import MAX_KEY_FILE, KeyFileError
from wtxtgit.trust.signing import AskPassphrase, SeedKey, SigningKey, agent_key, seed_key

CONFIG_KEY = "wtxtgit.signingKey"
VARIABLE = "WTXTGIT_KEY"
AGENT = "agent:"


@dataclass(frozen=True, slots=True)
class KeySources:
    """All that may say which key signs, strongest first.

    `spec` is what an option says: the name of a key of the ring, a path (with
    a slash in it), `agent:` and a fingerprint, or `agent:` alone. `content`
    is that of a secret file, out of the environment; `configured` is git's
    config, spelled as `spec`. `ask` gets the key's name and gives its
    passphrase.
    """

    ring: Keyring
    spec: str | None = None
    content: bytes | None = field(default=None, repr=False)
    configured: str | None = None
    agent_socket: Path | None = None
    ask: AskPassphrase | None = None


def choose_key(sources: KeySources) -> SigningKey:
    """The key that signs.

    Raises UsageError where none is meant or it is not there, KeyFileError for
    a file that is no key or stays closed, AgentError, and EnvironmentFailure
    for files that others may read.
    """
    if sources.spec is not None:
        return _named(sources, sources.spec)
    if sources.content is not None:
        if len(sources.content) > MAX_KEY_FILE:
            raise KeyFileError(f"{VARIABLE}: over {MAX_KEY_FILE} bytes, too large for a key")
        return seed_key(sources.content, VARIABLE, sources.ask)
    if sources.configured is not None:
        return _named(sources, sources.configured)
    with failures(sources.ring.folder):
        name = only_name(sources.ring)
    return _of_ring(sources, name)


def key_of_file(path: Path, ask: AskPassphrase | None) -> SeedKey:
    """The key of a secret file; errors as those of `choose_key`."""
    with failures(path):
        content = read_secret_file(path)
    return seed_key(content, shown(path), ask)


def _named(sources: KeySources, spec: str) -> SigningKey:
    if spec.startswith(AGENT):
        return agent_key(sources.agent_socket, spec.removeprefix(AGENT) or None)
    if "/" in spec:
        return key_of_file(Path(spec), sources.ask)
    return _of_ring(sources, spec)


def _of_ring(sources: KeySources, name: str) -> SeedKey:
    ring = sources.ring
    with failures(ring.folder):
        if name not in ring.names():
            raise UsageError(
                f'there is no key "{name}"',
                hint=f"wtxtgit key list names all; a file is given with a slash, as ./{name}",
            )
        public = ring.public(name)
        key = seed_key(ring.secret(name), name, sources.ask)
    if key.public_key != public.key:
        raise KeyFileError(f"{name}: its .pub file is of another key")
    return key
