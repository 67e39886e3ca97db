"""Commands on the host of a remote, by ssh."""

from __future__ import annotations

import pytest

from tests.kit import Repo
from wtxtgit.git.ssh import SshPlace, answer, place_of_url

START = "ssh:" + "//"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (f"{START}git@host.example:22/o/r.git", SshPlace("git@host.example", 22, "/o/r.git")),
        (f"{START}host/o/r", SshPlace("host", None, "/o/r")),
        ("git@host.example:o/r.git", SshPlace("git@host.example", None, "o/r.git")),
        ("host:/o/r", SshPlace("host", None, "/o/r")),
        (f"{START}host:port/o", None),
        ("https://example.com/o/r", None),
        ("file:///o/r", None),
        ("/o/r", None),
        ("../o/r", None),
    ],
)
def test_places(url: str, place: SshPlace | None) -> None:
    assert place_of_url(url) == place


@pytest.mark.parametrize(
    "place",
    [
        SshPlace("-oProxyCommand=x", None, "o/r"),
        SshPlace("git@-x", None, "o/r"),
        SshPlace("host;x", None, "o/r"),
        SshPlace("host", None, "o/r;touch ran"),
        SshPlace("host", None, "$(x)"),
        SshPlace("host", None, "-x"),
        SshPlace("host", None, "o/r\nx"),
        SshPlace("host", None, ""),
    ],
)
def test_what_could_be_another_command_is_not_asked(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, place: SshPlace
) -> None:
    monkeypatch.setenv("GIT_SSH_COMMAND", "echo")
    assert answer(repo.repository, place, "some-word", "upload") is None


def test_answers(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    place = SshPlace("git@host", 22, "o/r")
    monkeypatch.delenv("GIT_SSH_COMMAND", raising=False)
    monkeypatch.setenv("GIT_SSH", "echo")
    asked = b"-p 22 git@host some-word o/r upload\n"
    assert answer(repo.repository, place, "some-word", "upload") == asked
    repo.git("config", "core.sshCommand", "printf '%s|' 'a b'")
    asked = b"a b|-p|22|git@host|some-word o/r|"
    assert answer(repo.repository, place, "some-word") == asked
    for failing in ("false", "cat /dev/zero | head -c 70000; :", "/no/such/program"):
        monkeypatch.setenv("GIT_SSH_COMMAND", failing)
        assert answer(repo.repository, place, "some-word") is None
