"""Which key a command takes, given its options, the environment and git's config."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit import Repo
from wtxtgit.cli import environment
from wtxtgit.cli.keys import keyring, signing_key
from wtxtgit.errors import UsageError
from wtxtgit.git import run
from wtxtgit.setup import keys
from wtxtgit.trust.openssh import format_secret_key, generate


@pytest.fixture(autouse=True)
def two_keys() -> None:
    for name in "ab":
        keys.new(keyring(), name, None)


def name_of(key: str | None = None, cwd: Path | None = None) -> str:
    return signing_key(key, None, cwd).name


def test_gits_config_names_a_key(repo: Repo, home: Path) -> None:
    with pytest.raises(UsageError, match="2 keys"):
        name_of(cwd=repo.path)
    repo.git("config", "--global", "wtxtgit.signingKey", "a")
    assert name_of(cwd=repo.path) == "a"
    repo.git("config", "wtxtgit.signingKey", "b")
    assert name_of(cwd=repo.path) == "b"
    assert name_of("a", repo.path) == "a"


def test_a_home_in_gits_config(repo: Repo, home: Path) -> None:
    (home / "key").touch(mode=0o600)
    (home / "key").write_bytes(format_secret_key(generate("x")))
    repo.git("config", "wtxtgit.signingKey", "~/key")
    assert name_of(cwd=repo.path) == str(home / "key")


def test_the_environment_holds_a_key_and_programs_do_not_get_it(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = format_secret_key(generate("x")).decode()
    repo.git("config", "wtxtgit.signingKey", "b")
    monkeypatch.setenv("WTXTGIT_KEY", content)
    assert name_of("a", repo.path) == "a"
    assert "WTXTGIT_KEY" not in run.environment()
    monkeypatch.setenv("WTXTGIT_KEY", content)
    assert name_of(cwd=repo.path) == "WTXTGIT_KEY"
    assert "WTXTGIT_KEY" not in os.environ
    monkeypatch.setenv("WTXTGIT_KEY", "")
    assert name_of(cwd=repo.path) == "b"


def test_the_agents_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    assert environment.path(keys.AGENT_SOCKET) == Path("/run/agent")
    monkeypatch.setenv("SSH_AUTH_SOCK", "")
    assert environment.path(keys.AGENT_SOCKET) is None
