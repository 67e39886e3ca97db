from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit import Repo
from wtxtgit.chain import signers
from wtxtgit.git.repository import Repository
from wtxtgit.git.turn import turn
from wtxtgit.setup import track
from wtxtgit.trust.keyring import Keyring
from wtxtgit.trust.openssh import PublicKey, format_public, generate


def add(repo: Repository, name: str) -> None:
    public = PublicKey(generate(name).public_key, name)
    signers.add(repo, name, format_public(public), Keyring(Path("missing")))


def is_waited_for(folder: Path) -> bool:
    """Whether somebody waits for a lock: proc(5), "/proc/locks"."""
    ending = f":{folder.stat().st_ino} 0 EOF"
    lines = Path("/proc/locks").read_text().splitlines()
    return any("-> FLOCK" in line and line.endswith(ending) for line in lines)


@pytest.mark.parametrize(
    ("path", "change", "names"),
    [
        (".gitattributes", lambda repo, name: track.track(repo, [name.encode()]), ("*.a", "*.b")),
        (".wtxt/signers", add, ("a@x", "b@x")),
    ],
    ids=["track", "signers"],
)
def test_what_another_command_writes_meanwhile_stays(
    repo: Repo, path: str, change: Callable[[Repository, str], None], names: tuple[str, str]
) -> None:
    here, other = repo.repository, repo.repository
    first, second = names
    change(here, first)
    with_first = (repo.path / path).read_bytes()
    (repo.path / path).unlink()
    with turn(here):
        waiting = threading.Thread(target=change, args=(other, second))
        waiting.start()
        while not is_waited_for(here.common_dir):
            assert waiting.is_alive()
        repo.write(path, with_first)
    waiting.join()
    content = (repo.path / path).read_text()
    assert first in content
    assert second in content


def test_a_turn_ends_with_an_error(repo: Repo) -> None:
    with pytest.raises(KeyError), turn(repo.repository):
        raise KeyError
    with turn(repo.repository):
        pass
