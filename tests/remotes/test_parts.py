"""Stores that show a part of a file while it is written, as SFTP and SMB do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.remotes.behaviour import TEXT, TargetTests, fetched, file, names
from wtxtgit.errors import RemoteUnavailable
from wtxtgit.remotes.folder import Folder


class Other(MemoryFileSystem):
    """A store whose transfers break off where `breaks` says so."""

    protocol = "other"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    breaks = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("other://", "memory://")))

    def put_file(self, lpath: str, rpath: str, *args: Any, **options: Any) -> None:
        super().put_file(lpath, rpath, *args, **options)
        if type(self).breaks:
            self.pipe(rpath, TEXT[:3])
            raise ConnectionError


@pytest.fixture
def target() -> Iterator[Folder]:
    fsspec.register_implementation("other", Other, clobber=True)
    Other.breaks = False
    yield Folder("other://run/1")
    Other.store.clear()
    Other.pseudo_dirs[:] = [""]


class TestSuchAStore(TargetTests):
    @pytest.fixture
    def target(self, target: Folder) -> Folder:
        return target


def test_a_transfer_that_breaks_off(target: Folder) -> None:
    target.put([file("x", b"old")])
    Other.breaks = True
    for name in ("x", "a/y"):
        with pytest.raises(RemoteUnavailable, match="ConnectionError"):
            target.put([file(name)], replace=True)
    assert names(target) == ["x"]
    assert fetched(target, "x", b"old") == b"old"
    Other.breaks = False
    assert list(target.put([file("x"), file("a/y")], replace=True)) == ["x", "a/y"]
    assert names(target) == ["a/y", "x"]
    assert not [name for name in Other.store if name.endswith(".part")]
