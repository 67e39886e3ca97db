"""The user's keys: creating, importing and listing them, and choosing the one that signs.

The key that signs is named by an option, by the environment, or by git's config, or it is the only
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure, UsageError, WtxtgitError
from wtxtgit.io.files import failures, shown, user_folder
from wtxtgit.model.plain import JsonObject
from wtxtgit.text.digest import keyid
from wtxtgit.trust.keyring import (
    Keyring,
    check_name,
    is_name,
    is_protected,
    protect,
    read_secret_file,
    unprotect,
)
from wtxtgit.trust.openssh import (
    MAX_KEY_FILE,
    KeyFileError,
    PublicKey,
    SecretKey,
    fingerprint,
    format_public,
    format_secret_key,
    generate,
    parse_secret_key,
)
from wtxtgit.trust.signing import AskPassphrase, SeedKey, SigningKey, agent_key, seed_key

_MOST_NAMED = 8
"""Names of keys that a hint lists."""


@dataclass(frozen=True, slots=True)
class KeyFacts(JsonObject):
    """What may be shown of a key; `public` is its line as in a `.pub` file.

    `protected` tells whether it has a passphrase, None if the secret file can't be read.
    """

    name: str
    public: str
    fingerprint: str
    keyid: str
    protected: bool | None


def new(ring: Keyring, name: str, passphrase: str | None) -> KeyFacts:
    """Create a key, without a passphrase if that is None; raises UsageError if the name is taken.

    A key whose creation was interrupted is completed instead, if this is its passphrase.
    """
    check_free(ring, name)
    return _finish(ring, name, passphrase) or _add(ring, name, generate(name), passphrase)


def check_free(ring: Keyring, name: str) -> None:
    """Raise UsageError if no key can have this name, or one has it already.

    To be called before a passphrase is asked for.
    """
    check_name(name)
    with failures(ring.folder):
        if name in ring.names():
            raise UsageError(
                f'a key "{name}" already exists', hint="--name gives the key another name"
            )


def import_key(ring: Keyring, path: Path, name: str, passphrase: str | None) -> KeyFacts:
    """Copy an OpenSSH private key file into the ring, after checking its content.

    A copy that was interrupted is completed instead, if this is its passphrase.
    """
    check_free(ring, name)
    key = read_importable(path)
    return _finish(ring, name, passphrase, key) or _add(ring, name, key, passphrase)


def read_importable(path: Path) -> SecretKey:
    """Read the key of an unencrypted OpenSSH private key file.

    Raises KeyFileError for any other file.
    """
    with failures(path):
        content = read_secret_file(path)
    # The .pub file would be missing, and nobody would be asked for the passphrase.
    if is_protected(content):
        raise KeyFileError(
            f"{shown(path)}: already a wtxtgit key: copy it together with its .pub file"
        )
    return parse_secret_key(content, shown(path))


def name_for(path: Path) -> str:
    """Return the name that a key gets from its imported file.

    Raises UsageError if that can't be one.
    """
    if not is_name(path.name):
        raise UsageError(f"cannot name the key after {shown(path)}", hint="--name NAME gives one")
    return path.name


def list_keys(ring: Keyring) -> tuple[KeyFacts, ...]:
    """Return all keys of the ring, by name."""
    with failures(ring.folder):
        return tuple(_facts(ring, name) for name in ring.names())


def show(ring: Keyring, name: str | None) -> KeyFacts:
    """Return one key, the only one if no name is given.

    Raises UsageError if there is no such key.
    """
    with failures(ring.folder):
        return _facts(ring, only_name(ring) if name is None else name)


def only_name(ring: Keyring, *, signs: bool = False) -> str:
    """Return the name of the only key; raises UsageError if there are none or several.

    `signs` tells whether an option names the key to sign with.
    """
    names = ring.names()
    if not names:
        raise UsageError("no keys", hint="wtxtgit key new makes one")
    if len(names) > 1:
        shown_names = ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
        raise UsageError(
            f"{len(names)} keys exist; name one",
            hint=f"git config wtxtgit.signingKey NAME keeps one of {shown_names}; "
            "--key NAME names it once"
            if signs
            else "wtxtgit key list lists them",
        )
    return names[0]


def _add(ring: Keyring, name: str, key: SecretKey, passphrase: str | None) -> KeyFacts:
    # OpenSSH's own format, so the key is usable without wtxtgit.
    content = format_secret_key(key)
    if passphrase is not None:
        content = protect(content, passphrase)
    public = PublicKey(key.public_key, key.comment or name)
    with failures(ring.folder):
        ring.add(name, content, public)
    return _describe(name, public, passphrase is not None)


def _finish(
    ring: Keyring, name: str, passphrase: str | None, wanted: SecretKey | None = None
) -> KeyFacts | None:
    """Complete a key whose creation was interrupted.

    Returns None if there is none, the passphrase does not open it, or it is not the key `wanted`.
    Without `wanted` any such key will do, as nobody has seen it yet. An existing secret is never
    overwritten.
    """
    with failures(ring.folder):
        secret = ring.unfinished(name)
        if secret is None or is_protected(secret) != (passphrase is not None):
            return None
        try:
            if passphrase is not None:
                secret = unprotect(secret, passphrase, name)
            key = parse_secret_key(secret, name)
        except KeyFileError:
            return None
        if wanted is not None and key.public_key != wanted.public_key:
            return None
        public = PublicKey(key.public_key, key.comment or name)
        ring.finish(name, public)
    return _describe(name, public, passphrase is not None)


def _facts(ring: Keyring, name: str) -> KeyFacts:
    public = ring.public(name)
    protected: bool | None
    try:
        protected = is_protected(ring.secret(name))
    except (WtxtgitError, OSError):
        # Signing with the key reports the reason; the public half is usable anyway.
        protected = None
    return _describe(name, public, protected)


def _describe(name: str, public: PublicKey, protected: bool | None) -> KeyFacts:
    key = public.key
    return KeyFacts(name, format_public(public), fingerprint(key), keyid(key), protected)


CONFIG_KEY = "wtxtgit.signingKey"
VARIABLE = "WTXTGIT_KEY"
AGENT = "agent:"
AGENT_SOCKET = "SSH_AUTH_SOCK"
"""The environment variable with the socket of an ssh-agent."""


def users_keyring(environment: Mapping[str, str]) -> Keyring:
    """Return the user's keys: those in `wtxtgit/keys` in the folder of configurations.

    Raises EnvironmentFailure if there is no home folder.
    """
    folder = user_folder("XDG_CONFIG_HOME", ".config", environment)
    if folder is None:
        raise EnvironmentFailure("no folder for keys: HOME is not set")
    return Keyring(folder / "keys")


@dataclass(frozen=True, slots=True)
class KeySources:
    """Everything that may say which key signs, strongest first.

    `spec` is the value of an option: the name of a key in the ring, a path (with a slash in it),
    `agent:` and a fingerprint, or `agent:` alone. `content` is that of a secret file, given in the
    environment; `configured` is the value in git's config, spelled like `spec`. `ask` is called
    with the key's name and returns its passphrase.
    """

    ring: Keyring
    spec: str | None = None
    content: bytes | None = field(default=None, repr=False)
    configured: str | None = None
    agent_socket: Path | None = None
    ask: AskPassphrase | None = None


def choose_key(sources: KeySources) -> SigningKey:
    """Return the key that signs.

    Raises UsageError if no key is named or it does not exist, KeyFileError for a file that is not a
    key or can't be opened, AgentError, and EnvironmentFailure for files that others may read.
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
        name = only_name(sources.ring, signs=True)
    return _of_ring(sources, name)


def named_key(spec: str, environment: Mapping[str, str]) -> SigningKey:
    """Return the key that a program names, spelled like `spec` of KeySources.

    Nobody is asked for a passphrase.
    """
    socket = environment.get(AGENT_SOCKET)
    agent = Path(socket) if socket else None
    return choose_key(KeySources(users_keyring(environment), spec, agent_socket=agent))


def key_of_file(path: Path, ask: AskPassphrase | None) -> SeedKey:
    """Return the key in a secret file; raises what `choose_key` raises for one."""
    with failures(path):
        content = read_secret_file(path)
    return seed_key(content, shown(path), ask)


def _named(sources: KeySources, spec: str) -> SigningKey:
    if spec.startswith(AGENT):
        return agent_key(sources.agent_socket, spec.removeprefix(AGENT) or None)
    # The name of a key never has a slash, so a path is never taken for one.
    if "/" in spec:
        return key_of_file(Path(spec), sources.ask)
    return _of_ring(sources, spec)


def _of_ring(sources: KeySources, name: str) -> SeedKey:
    ring = sources.ring
    with failures(ring.folder):
        if name not in ring.names():
            raise UsageError(
                f'no key "{name}"',
                hint=f"wtxtgit key list lists them; a file is given with a slash, as ./{name}",
            )
        public = ring.public(name)
        key = seed_key(ring.secret(name), name, sources.ask)
    # Otherwise signatures would carry a keyid that no list of signers has for this name.
    if key.public_key != public.key:
        raise KeyFileError(f"{name}: its .pub file belongs to another key")
    return key
