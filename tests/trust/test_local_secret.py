from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from wtxtgit.trust.local_secret import SECRET_SIZE, local_secret


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "wtxtgit" / "facts.key"


def test_it_is_made_once(file: Path) -> None:
    made = local_secret(file)
    assert made is not None
    assert len(made) == SECRET_SIZE
    assert local_secret(file) == made
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_it_is_not_made_where_it_is_only_asked_for(file: Path) -> None:
    assert local_secret(file, make=False) is None
    assert not file.parent.parent.exists()
    made = local_secret(file)
    assert local_secret(file, make=False) == made


def test_two_are_different(tmp_path: Path) -> None:
    assert local_secret(tmp_path / "a") != local_secret(tmp_path / "b")


def test_many_at_once_get_the_same(file: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: local_secret(file), range(40)))
    assert len(found) == 1
    assert None not in found


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33])
def test_a_file_of_another_length_is_none(file: Path, content: bytes) -> None:
    local_secret(file)
    file.write_bytes(content)
    assert local_secret(file) is None
    assert file.read_bytes() == content


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_may_read_is_none(file: Path, mode: int) -> None:
    local_secret(file)
    file.chmod(mode)
    assert local_secret(file) is None


@pytest.mark.parametrize("mode", [0o770, 0o1777])
def test_a_folder_that_others_may_write_has_none(file: Path, mode: int) -> None:
    made = local_secret(file)
    file.parent.chmod(mode)
    assert local_secret(file) is None
    file.unlink()
    assert local_secret(file) is None
    assert not file.exists()
    file.parent.chmod(0o700)
    assert local_secret(file) not in (made, None)


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_no_file_is_none(file: Path, kind: str) -> None:
    local_secret(file)
    real = file.rename(file.with_name("real"))
    if kind == "link":
        file.symlink_to(real)
    elif kind == "folder":
        file.mkdir()
    else:
        os.mkfifo(file, 0o600)
    assert local_secret(file) is None


def test_a_file_in_the_folders_place(file: Path) -> None:
    file.parent.parent.mkdir()
    file.parent.write_bytes(b"")
    assert local_secret(file) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away: run it as root")
def test_what_belongs_to_somebody_else_is_none(file: Path) -> None:
    made = local_secret(file)
    os.chown(file, 12345, -1)
    assert local_secret(file) is None
    os.chown(file, 0, -1)
    os.chown(file.parent, 12345, -1)
    assert local_secret(file) is None
    os.chown(file.parent, 0, -1)
    assert local_secret(file) == made
