"""Parts of a set from the URL in its index: below what the user allows, and nowhere else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.data import FIXTURES
from tests.kit import Repo
from wtxtgit.checkpoint.members import members
from wtxtgit.errors import InputError
from wtxtgit.remotes import part_urls
from wtxtgit.remotes.part_urls import KEY, is_below

SET = FIXTURES / "aero/aeroset_multi_a"
LISTED = "model.aeroset.json"
AT = "//"
"""Before what only looks like a host."""
ALLOWED = "https://example.com/a"


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        (ALLOWED, ALLOWED),
        (f"{ALLOWED}/", ALLOWED),
        (f"{ALLOWED}/b/c-d", f"{ALLOWED}/"),
        ("s3://bucket/x", "s3://bucket"),
        ("http://127.0.0.1:80/x", "http://127.0.0.1:80"),
        ("file:///srv/models/x", "file:///srv/models"),
    ],
)
def test_what_is_below(url: str, allowed: str) -> None:
    assert is_below(url, allowed)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://example.com",
        "https://example.com/ab",
        f"https:{AT}example.com.evil/a",
        f"{ALLOWED}/../b",
        f"{ALLOWED}/./b",
        f"{ALLOWED}//b",
        f"{ALLOWED}/%2e%2e/b",
        f"{ALLOWED}/\\..\\b",
        f"{ALLOWED}?x=1",
        f"{ALLOWED}#x",
        f"{ALLOWED}/x\n",
        f"{ALLOWED}/\x1b[31m",
        f"simplecache::{ALLOWED}",
        f"{ALLOWED}::file:///etc",
        f"https:{AT}user@example.com/a",
        f"https:{AT}example.com:443/a",
        "http://example.com/a",
        f"HTTPS:{AT}example.com/a",
        "file:///a",
        "/a",
        ALLOWED + "/x" * 2000,
    ],
)
def test_what_is_not(url: str) -> None:
    assert not is_below(url, ALLOWED)


@pytest.mark.parametrize(
    "allowed",
    [None, "", "https://", "http://example.com", "file:///", "file://host/x", "memory://x",
     f"https:{AT}user@example.com", f"https:{AT}example.com?x", "local:///x", "git+https://example.com"],
)  # fmt: skip
def test_what_can_not_be_allowed(allowed: str | None) -> None:
    for url in (allowed or "", f"{allowed}/x", f"{allowed}x"):
        assert not is_below(url, allowed)


@pytest.fixture
def parted(repo: Repo) -> Command:
    """A set whose parts are elsewhere, with its index, in a repository."""
    command = Command(repo.path, repo.path.parent / "home")
    elsewhere, here = command.folder / "elsewhere", command.folder / "here"
    shutil.copytree(SET, elsewhere)
    here.mkdir()
    value = json.loads((SET / LISTED).read_text())
    value["base_url"] = f"file://{elsewhere}"
    (here / LISTED).write_text(json.dumps(value))
    return command


def test_nothing_is_fetched_unless_it_is_allowed(parted: Command, repo: Repo) -> None:
    for allowed in (None, "https://example.com", f"file://{parted.folder}/other"):
        if allowed is not None:
            repo.git("config", KEY, allowed)
        done = parted("verify", "here")
        assert done.code == 1
        assert f"git config {KEY} URL allows all below URL".encode() in done.out


def test_parts_of_an_aeroset(parted: Command, repo: Repo) -> None:
    repo.git("config", KEY, f"file://{parted.folder}")
    assert parted("verify", "here").code == 0
    told = json.loads(parted("diff", "--json", "here", "elsewhere").out)
    assert {tensor["status"] for tensor in told["tensors"]} == {"same"}
    # What is there is what counts, however damaged it is.
    part: Path = sorted((parted.folder / "elsewhere").glob("part-*.aero"))[0]
    (parted.folder / "here" / part.name).write_bytes(b"AERO")
    assert parted("verify", "here").code == 1
    (parted.folder / "here" / part.name).unlink()
    # And nothing else than what the index says is taken.
    part.write_bytes(part.read_bytes()[:-1])
    assert b"sha256" in parted("verify", "here").out


def test_a_url_that_is_no_text_is_no_url(parted: Command) -> None:
    listed = parted.folder / "here" / LISTED
    value = json.loads(listed.read_text())
    listed.write_text(json.dumps(value | {"base_url": "https://example.com/\ud800"}))
    done = parted("verify", "here")
    assert done.code == 1
    assert b"is not a file\n" in done.out


def test_git_is_asked_once_for_a_set(parted: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    allowed_url = part_urls.allowed_url

    def counted() -> str | None:
        asked.append(allowed_url())
        return asked[-1]

    monkeypatch.setattr(part_urls, "allowed_url", counted)
    fetch = members(str(parted.folder / "here" / LISTED)).elsewhere
    assert fetch is not None
    for path in ("a.aero", "b.aero"):
        with pytest.raises(InputError, match="not fetched from"):
            fetch(f"file://{parted.folder}/elsewhere", path)
    assert asked == [None]
