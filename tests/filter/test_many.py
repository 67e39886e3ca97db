"""Many files of one filter process: each is safe before git has its answer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.test_detached import ATTRIBUTES
from tests.kit import Repo, safetensors
from wtxtgit.filter.payload import keeping
from wtxtgit.filter.process import FilterSettings, serve
from wtxtgit.git.filter_protocol import Request
from wtxtgit.io.view import Buffer
from wtxtgit.store.place import store_of
from wtxtgit.store.store import Store
from wtxtgit.text.index import index

CONTENTS = [safetensors(*range(first, 30_000 + first), name="w") for first in range(6)]


class Git:
    """Asks for clean of all contents, and looks at the store whenever it has an answer."""

    def __init__(self, folder: Path, synced: set[int]) -> None:
        self._folder = folder
        self._synced = synced
        self.answers: list[bytes] = []

    def handshake(self) -> None:
        pass

    def requests(self) -> Iterator[Request]:
        for number, content in enumerate(CONTENTS):
            yield Request("clean", b"%d.safetensors" % number, {}, iter((content,)))

    def success(self, content: Iterable[Buffer]) -> None:
        self.answers.append(b"".join(map(bytes, content)))
        store = Store(self._folder)
        names = {
            name for answer in self.answers for name in index(memoryview(answer)).payload_names
        }
        assert store.has(names) == names
        packs = self._folder / "packs"
        # The folder anew for each, since it got another name.
        self._synced.remove(packs.stat().st_ino)
        assert {pack.stat().st_ino for pack in packs.glob("*.pack")} <= self._synced


def test_payload_is_on_disk_before_git_has_the_answer(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.write(".gitattributes", ATTRIBUTES)
    here = repo.repository
    folder = store_of(here).folder
    synced: set[int] = set()
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", noted)
    git = Git(folder, synced)
    settings = FilterSettings(keeping=lambda _path: keeping(here))
    serve(git, settings, partial(pytest.fail))  # type: ignore[arg-type]
    assert len(git.answers) == len(CONTENTS)
    assert len(list((folder / "packs").iterdir())) == len(CONTENTS)
    store_of(here).join_small()
    assert len(list((folder / "packs").iterdir())) == 1
    fresh = Store(folder)
    for answer in git.answers:
        names = [*index(memoryview(answer)).payload_names]
        assert fresh.has(names) == set(names)
