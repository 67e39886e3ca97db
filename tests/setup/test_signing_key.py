"""Which key signs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from nacl.signing import VerifyKey

from tests.trust.age_files import armored, encrypted
from tests.trust.peers import needs_agent, new_key
from tests.trust.secrets_shown import assert_not_shown
from tests.trust.test_agent import running, ssh_add  # noqa: F401 - a fixture
from wtxtgit.errors import EnvironmentFailure, InputError, UsageError
from wtxtgit.setup import keys
from wtxtgit.setup.keys import KeySources, choose_key
from wtxtgit.trust.keyring import Keyring
from wtxtgit.trust.openssh import KeyFileError, SecretKey, format_secret_key, generate
from wtxtgit.trust.signing import AgentError

WORDS = "two words"


@pytest.fixture
def sources(tmp_path: Path) -> KeySources:
    """A ring without keys, and nothing else."""
    return KeySources(Keyring(tmp_path / "keys"))


def chosen(sources: KeySources) -> str:
    """The fingerprint of the key that is chosen, which really signs."""
    key = choose_key(sources)
    VerifyKey(key.public_key).verify(b"message", key.sign(b"message"))
    return keys.fingerprint(key.public_key)


def fingerprint(key: SecretKey) -> str:
    return keys.fingerprint(key.public_key)


def test_the_order(sources: KeySources, tmp_path: Path) -> None:
    a, b = (keys.new(sources.ring, name, None).fingerprint for name in "ab")
    of_environment = generate("e")
    everything = replace(
        sources, spec="a", content=format_secret_key(of_environment), configured="b"
    )
    assert chosen(everything) == a
    assert chosen(replace(everything, spec=None)) == fingerprint(of_environment)
    assert chosen(replace(everything, spec=None, content=None)) == b
    with pytest.raises(UsageError, match="2 keys exist; name one"):
        choose_key(sources)
    sources.ring.path("a").unlink()
    assert chosen(sources) == b


def test_there_is_no_key(sources: KeySources) -> None:
    with pytest.raises(UsageError, match="no keys") as caught:
        choose_key(sources)
    assert caught.value.hint == "wtxtgit key new makes one"


@pytest.mark.parametrize("field", ["spec", "configured"])
def test_a_file_has_a_slash_and_a_name_has_none(
    sources: KeySources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    monkeypatch.chdir(tmp_path)
    of_ring = keys.new(sources.ring, "key", None).fingerprint
    secret = generate("f")
    (tmp_path / "key").touch(mode=0o600)
    (tmp_path / "key").write_bytes(format_secret_key(secret))

    def named(spec: str) -> KeySources:
        return replace(sources, **{field: spec})  # type: ignore[arg-type]

    assert chosen(named("key")) == of_ring
    for spec in ("./key", str(tmp_path / "key")):
        assert chosen(named(spec)) == fingerprint(secret)
    (tmp_path / "other").touch()
    with pytest.raises(UsageError, match='no key "other"') as caught:
        choose_key(named("other"))
    assert "./other" in str(caught.value.hint)
    with pytest.raises(InputError, match="no such file"):
        choose_key(named("./missing"))
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(EnvironmentFailure, match="others can read"):
        choose_key(named("./key"))


def test_a_passphrase_is_asked_for_where_one_is_needed(sources: KeySources, tmp_path: Path) -> None:
    asked: list[str] = []

    def ask(name: str) -> str:
        asked.append(name)
        return WORDS

    secret = generate("p")
    content = armored(encrypted(format_secret_key(secret), WORDS))
    path = tmp_path / "locked"
    path.touch(mode=0o600)
    path.write_bytes(content)
    sources.ring.add("mine", content, keys.PublicKey(secret.public_key))
    for where in ({"content": content}, {"spec": str(path)}, {"spec": "mine"}, {}):
        told = replace(sources, ask=ask, **where)  # type: ignore[arg-type]
        assert chosen(told) == fingerprint(secret)
        with pytest.raises(KeyFileError, match="protected by a passphrase"):
            choose_key(replace(told, ask=None))
        with pytest.raises(KeyFileError, match="passphrase is wrong") as caught:
            choose_key(replace(told, ask=lambda _: "wrong words"))
        assert "wrong words" not in str(caught.value)
    assert asked == ["WTXTGIT_KEY", str(path), "mine", "mine"]

    open_key = replace(sources, ask=ask, content=format_secret_key(secret))
    assert chosen(open_key) == fingerprint(secret)
    assert len(asked) == 4


def test_nothing_shows_the_secret(sources: KeySources) -> None:
    secret = generate("e")
    content = format_secret_key(secret)
    told = replace(sources, content=content)
    assert_not_shown(secret.seed, repr(told), repr(choose_key(told)), str(choose_key(told)))
    assert content.splitlines()[2].decode() not in repr(told)


@pytest.mark.parametrize("content", [b"x", bytes(70_000), b"-----BEGIN AGE ENCRYPTED FILE-----\n"])
def test_the_environment_holds_no_key(sources: KeySources, content: bytes) -> None:
    with pytest.raises(KeyFileError, match="WTXTGIT_KEY"):
        choose_key(replace(sources, content=content, ask=lambda _: WORDS))


def test_a_public_file_of_another_key_is_noticed(sources: KeySources) -> None:
    for name in "ab":
        keys.new(sources.ring, name, None)
    folder = sources.ring.folder
    (folder / "a.pub").write_bytes((folder / "b.pub").read_bytes())
    with pytest.raises(KeyFileError, match="belongs to another key"):
        choose_key(replace(sources, spec="a"))


@needs_agent
def test_the_keys_of_an_agent(sources: KeySources, running: Path, tmp_path: Path) -> None:  # noqa: F811
    told = replace(sources, agent_socket=running)
    with pytest.raises(AgentError, match="no ed25519 key"):
        choose_key(replace(told, spec="agent:"))
    ssh_add(running, new_key(tmp_path / "a"))
    first = chosen(replace(told, spec="agent:"))
    assert chosen(replace(told, configured=f"agent:{first}")) == first
    ssh_add(running, new_key(tmp_path / "b"))
    with pytest.raises(AgentError, match="2 ed25519 keys"):
        choose_key(replace(told, spec="agent:"))
    assert chosen(replace(told, spec=f"agent:{first}")) == first
    with pytest.raises(AgentError, match="SSH_AUTH_SOCK is not set"):
        choose_key(replace(sources, spec="agent:"))
