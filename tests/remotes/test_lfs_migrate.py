"""An import whose objects are on a git-lfs server: giftless."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from tests.kit import Repo, safetensors
from tests.remotes.lfs_server import Server, server, started
from wtxtgit.remotes.lfs_batch import LfsServer
from wtxtgit.remotes.lfs_pointer import LfsObject, format_pointer
from wtxtgit.remotes.target import Outgoing
from wtxtgit.text.grammar import is_text

__all__ = ["server", "started"]
pytestmark = pytest.mark.remote
NAME = "m.safetensors"
IMPORT = ("migrate", "import", "--from-lfs", "--everything")
CONTENTS = [safetensors(float(number), 1.0) for number in range(4)]


@pytest.fixture
def pointers(repo: Repo, driver: None, server: Server) -> Repo:
    """A history of pointers whose objects are on the server alone."""
    repo.git("remote", "add", "origin", (repo.path.parent / "bare.git").as_uri())
    repo.git("config", "lfs.url", server.url)
    for key in ("clean", "smudge"):
        repo.git("config", f"filter.lfs.{key}", "cat")
    repo.write(".gitattributes", "*.safetensors filter=lfs diff=lfs merge=lfs -text\n")
    files = []
    for number, content in enumerate(CONTENTS):
        digest = sha256(content).hexdigest()
        files.append(Outgoing(f"{number}", memoryview(content), digest))
        repo.write(NAME, format_pointer(LfsObject(digest, len(content))))
        repo.add()
        repo.commit(f"commit {number}")
    LfsServer(repo.repository, "origin", "origin").upload(files)
    server.gate.asked.clear()
    return repo


def placed(server: Server, content: bytes) -> Path:
    """Where the server has an object."""
    (found,) = (path for path in server.paths() if path.name == sha256(content).hexdigest())
    return found


def test_objects_that_are_not_here_are_fetched_in_one_go(pointers: Repo, server: Server) -> None:
    said = pointers.wtxtgit(*IMPORT).stdout.decode()
    assert "4 of 4 commits rewritten: 4 versions of 1 file" in said
    assert server.count("POST") == 1
    assert server.count("GET") == len(CONTENTS)
    assert is_text(pointers.blob(NAME, "HEAD"))
    assert (pointers.path / NAME).read_bytes() == CONTENTS[-1]
    assert pointers.status() == b""


def test_a_dry_run_asks_nobody_and_tells_what_would_be_fetched(
    pointers: Repo, server: Server
) -> None:
    said = pointers.wtxtgit(*IMPORT, "--dry-run")
    assert server.gate.asked == []
    assert b"4 objects would be fetched from git-lfs" in said.stderr


@pytest.mark.parametrize("harm", ["missing", "another", "longer"])
def test_what_can_not_be_had_is_named_and_nothing_changes(
    pointers: Repo, server: Server, harm: str
) -> None:
    before = pointers.git("for-each-ref"), pointers.git("count-objects")
    there = placed(server, CONTENTS[1])
    content = there.read_bytes()
    if harm == "missing":
        there.unlink()
    else:
        there.write_bytes(content[::-1] if harm == "another" else content + b"x")
    done = pointers.wtxtgit(*IMPORT, "--json", ok=(5,))
    told = json.loads(done.stdout)
    digest = sha256(CONTENTS[1]).hexdigest()
    assert [lack["object"] for lack in told["lacking"]] == [digest]
    said = done.stderr.decode()
    assert f"{NAME}: object {digest[:12]}" in said
    assert "1 object of git-lfs missing; nothing was changed" in said
    assert (pointers.git("for-each-ref"), pointers.git("count-objects")) == before
    # The others are here by now, and are not asked for again.
    there.write_bytes(content)
    server.gate.asked.clear()
    pointers.wtxtgit(*IMPORT)
    assert server.count("GET") == 1


def test_a_server_that_says_no_is_told_with_what_lacks(pointers: Repo, server: Server) -> None:
    server.gate.is_closed = True
    said = pointers.wtxtgit(*IMPORT, ok=(5,), env={"GIT_TERMINAL_PROMPT": "0"}).stderr.decode()
    assert "4 objects of git-lfs missing; nothing was changed" in said
    assert "origin" in said
    assert said.count(f"{NAME}: ") == len(CONTENTS)
