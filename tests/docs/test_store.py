"""docs/store.md: its commands, in a repository with a store."""

from __future__ import annotations

import pytest

from tests.docs.pages import blocks
from tests.docs.shell import assert_as_shown, run, steps
from tests.kit import Repo
from tests.store.chunks import added, packs, weights
from wtxtgit.store.store import Store

PAGE = "docs/store.md"


@pytest.mark.slow
def test_its_commands(repo: Repo) -> None:
    store = Store(repo.path / ".git/wtxt/store")
    for chunk in weights(2):
        added(store, [chunk])
    repo.commit()
    repo.git("init", "-q", "--bare", "../origin.git")
    repo.git("remote", "add", "origin", "../origin.git")
    repo.git("push", "-q", "origin", "HEAD")
    done = run(steps(*blocks(PAGE, "console")), repo.path)
    assert_as_shown(done)
    assert len(packs(store)) == 1
