"""Folders as targets: on this machine, in memory, in S3."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.stores import HTTP
from tests.remotes.behaviour import (
    SECRET,
    RangedTests,
    TargetTests,
    fetched,
    file,
    names,
    refused,
)
from wtxtgit.errors import RemoteRefused, RemoteUnavailable
from wtxtgit.io import files as io_files
from wtxtgit.remotes.folder import Folder


class TestOnDisk(RangedTests, TargetTests):
    @pytest.fixture
    def target(self, tmp_path: Path) -> Folder:
        return Folder(tmp_path / "not" / "yet")

    def test_folders_within(self, target: Folder) -> None:
        target.put([file("packs/ab/1"), file("packs/ac/2"), file("other/ab")])
        assert names(target, "packs/a") == ["packs/ab/1", "packs/ac/2"]
        assert names(target, "packs/ab/") == ["packs/ab/1"]
        with pytest.raises(RemoteRefused):
            target.put([file("packs/ab/1/below")])
        with pytest.raises(RemoteRefused):
            target.put([file("packs/ab")])

    def test_what_others_put_there(self, target: Folder, tmp_path: Path) -> None:
        target.put([file("x")])
        root = tmp_path / "not" / "yet"
        (root / ".wtxtgit-0123456789abcdef").write_bytes(b"half")
        (root / "a b").write_bytes(b"")
        (root / "link").symlink_to(tmp_path / "gone")
        assert names(target) == ["x"]

    def test_a_folder_that_can_not_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(RemoteRefused):
            Folder(tmp_path / "file").put([file("x")])

    def test_a_full_disk_is_worth_another_try(
        self, target: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(io_files.os, "fsync", full)
        with pytest.raises(RemoteUnavailable, match="no space left"):
            target.put([file("x")])
        monkeypatch.undo()
        assert names(target) == []
        assert list(target.put([file("x")])) == ["x"]

    def test_two_writers_of_one_name(self, target: Folder, tmp_path: Path) -> None:
        start = threading.Barrier(8)
        outcomes: list[object] = []

        def write(number: int) -> None:
            other = Folder(tmp_path / "not" / "yet")
            start.wait()
            try:
                outcomes.append(tuple(other.put([file("same"), file("x", b"%d" % (number % 2))])))
            except RemoteRefused as error:
                outcomes.append(type(error))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        kept = bytes(target.get("x"))
        assert len(outcomes) == 8
        # Those that had another content were told; those that had the same one were not.
        assert outcomes.count(RemoteRefused) == 4, outcomes
        assert kept in (b"0", b"1")
        assert names(target) == ["same", "x"]

    def test_without_fsspec(self, target: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "fsspec.core", None)
        target.put([file("x")])
        assert fetched(target, "x") == bytes(file("x").content)


class TestInMemory(RangedTests, TargetTests):
    @pytest.fixture
    def target(self) -> Iterator[Folder]:
        import fsspec

        yield Folder("memory://run/1")
        fsspec.filesystem("memory").store.clear()


def test_a_file_url_is_a_folder_of_this_machine(tmp_path: Path) -> None:
    Folder(f"file://{tmp_path}/x").put([file("y")])
    assert (tmp_path / "x" / "y").is_file()


def test_a_store_that_can_not_be_reached() -> None:
    target = Folder(f"{HTTP}user:{SECRET}@127.0.0.1:1/x?token={SECRET}")
    assert SECRET not in repr(target)
    with pytest.raises(RemoteUnavailable) as raised:
        target.put([file("x")])
    refused(raised.value)
