from __future__ import annotations

from pathlib import Path

import pytest

from tests.remotes.places import NEW, OLD, pushed, text
from tests.store.chunks import added
from wtxtgit.remotes.folder import Folder
from wtxtgit.remotes.payload import push as payload_push
from wtxtgit.remotes.payload.place import TargetPacks
from wtxtgit.store.store import Store


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A store with two versions, the later one as what it differs by."""
    store = Store(tmp_path / "own")
    added(store, OLD)
    added(store, NEW, before=OLD)
    return store.folder


@pytest.fixture
def there(tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with both versions in one pack."""
    monkeypatch.setattr(payload_push, "_LEAST", 2**20)
    remote = tmp_path / "there"
    assert not pushed(own, TargetPacks(Folder(remote)), text(OLD), text(NEW)).lacking
    assert len(list(remote.glob("*.pack"))) == 1
    return remote
