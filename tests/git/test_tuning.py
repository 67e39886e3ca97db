from __future__ import annotations

import pytest

from tests.kit import Repo
from wtxtgit.setup import sizes

KEY = sizes.BIG_FILE_THRESHOLD


def config(repo: Repo) -> bytes:
    return (repo.path / ".git/config").read_bytes()


def value(repo: Repo) -> list[bytes]:
    return repo.git("config", "--get-all", KEY, ok=(0, 1)).splitlines()


@pytest.mark.parametrize("before", [(), ("512k",), ("512k", "1m")])
def test_what_was_there_is_put_back(repo: Repo, before: tuple[str, ...]) -> None:
    for word in before:
        repo.git("config", "--add", KEY, word)
    was = config(repo)
    sizes.set_values({KEY: "1g", sizes.WINDOW_MEMORY: "256m"}, cwd=repo.path)
    assert value(repo) == [b"1g"]
    sizes.set_values({KEY: "2g"}, cwd=repo.path)
    assert value(repo) == [b"2g"]
    assert sizes.restore_values(cwd=repo.path) == (KEY, sizes.WINDOW_MEMORY)
    assert value(repo) == [word.encode() for word in before]
    assert sorted(config(repo).splitlines()) == sorted(was.splitlines())
    assert sizes.restore_values(cwd=repo.path) == ()


def test_a_value_that_somebody_changed_stays(repo: Repo) -> None:
    sizes.set_values({KEY: "1g"}, cwd=repo.path)
    repo.git("config", KEY, "3g")
    assert sizes.restore_values(cwd=repo.path) == ()
    assert value(repo) == [b"3g"]
    assert b"wtxtgit" not in config(repo)


def test_a_value_that_was_changed_between_is_what_was_before(repo: Repo) -> None:
    sizes.set_values({KEY: "1g"}, cwd=repo.path)
    repo.git("config", KEY, "3g")
    sizes.set_values({KEY: "4g"}, cwd=repo.path)
    sizes.restore_values(cwd=repo.path)
    assert value(repo) == [b"3g"]


def test_notes_about_other_keys_set_nothing(repo: Repo) -> None:
    repo.git("config", "wtxtgit.core.fsmonitor.set", "x")
    repo.git("config", "wtxtgit.core.fsmonitor.before", "y")
    assert sizes.restore_values(cwd=repo.path) == ()
    assert repo.git("config", "core.fsmonitor", ok=(1,)) == b""


def test_a_linked_worktree_has_the_settings_of_all(repo: Repo) -> None:
    repo.commit()
    repo.git("worktree", "add", "-q", "../linked")
    sizes.set_values({KEY: "1g"}, cwd=repo.path.parent / "linked")
    assert value(repo) == [b"1g"]
    sizes.restore_values(cwd=repo.path)
    assert value(repo) == []
