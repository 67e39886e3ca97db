"""Files in the making: whenever their process is killed, nothing of them stays in sight."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit import Repo
from tests.kit.interrupts import CALLS, interrupted
from wtxtgit.git.index_file import StagedFile, stage_files
from wtxtgit.io import temporary
from wtxtgit.io.files import create_file, replace_file
from wtxtgit.io.temporary import (
    aside_folder,
    left_behind,
    leftovers,
    new_folder,
    remove,
    temporary_folder,
)
from wtxtgit.io.view import write_all


def killed(work: Callable[[], object], when: int) -> bool:
    """Do work in a process that is killed after so many calls; tells whether it came to that."""
    child = os.fork()
    if not child:
        count = 0

        def then_killed(true: Callable[..., object]) -> Callable[..., object]:
            def call(*arguments: object, **options: object) -> object:
                nonlocal count
                try:
                    return true(*arguments, **options)
                finally:
                    count += 1
                    if count == when:
                        os.kill(os.getpid(), signal.SIGKILL)

            return call

        for name in CALLS:
            setattr(os, name, then_killed(getattr(os, name)))
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def put(path: Path, content: bytes) -> None:
    replace_file(path, lambda descriptor: write_all(descriptor, (content,)))


@pytest.fixture(params=["nameless", "named"])
def _kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With files that have no name, and as on a file system without."""
    if request.param == "named":
        monkeypatch.setattr(temporary, "_UNNAMED", 0)


@pytest.mark.usefixtures("_kind")
@pytest.mark.parametrize("is_there", [True, False])
def test_nothing_stays_in_a_work_tree(repo: Repo, is_there: bool) -> None:
    file = repo.path / "sub/file"
    file.parent.mkdir()
    for when in range(1, 40):
        file.unlink(missing_ok=True)
        if is_there:
            file.write_bytes(b"old")
        is_killed = killed(lambda: put(file, b"new"), when)
        names = [path.name for path in file.parent.iterdir()]
        assert names == ["file"] or (not is_there and names == [])
        if names:
            assert file.read_bytes() in ((b"new",) if not is_there else (b"old", b"new"))
        if not is_killed:
            break
    assert when > 4
    # What has a name is git's to ignore, and gone with the next one.
    assert repo.git("status", "--porcelain", "--ignored", "-uall") == b"?? sub/file\n"
    file.write_bytes(b"old")
    put(file, b"new")
    aside = aside_folder(repo.path / ".git")
    assert not aside.exists() or list(aside.iterdir()) == []


def make_folder(near: Path) -> None:
    with new_folder(near):
        pass


def stage(repo: Repo) -> None:
    status = (repo.path / "sub/file").stat()
    oid = repo.git("hash-object", "-w", "sub/file").decode().strip()
    stage_files(repo.repository, [StagedFile(b"sub/file", 0o100644, oid, status)])


@pytest.mark.usefixtures("_kind")
@pytest.mark.parametrize("what", ["file", "folder", "index"])
def test_what_is_interrupted_leaves_nothing(repo: Repo, what: str) -> None:
    file = repo.write("sub/file", b"old")
    stage(repo)
    work = {
        "file": lambda: put(file, b"new"),
        "folder": lambda: make_folder(file.parent),
        "index": lambda: stage(repo),
    }[what]
    aside = aside_folder(repo.path / ".git")
    for when in range(1, 60):
        is_interrupted = interrupted(work, when)
        assert [path.name for path in file.parent.iterdir()] == ["file"]
        assert not aside.exists() or list(aside.iterdir()) == [], when
        assert not list((repo.path / ".git").glob("*.lock"))
        if not is_interrupted:
            break
    assert when > 4


@pytest.mark.usefixtures("_kind")
def test_outside_of_a_repository_the_next_one_sweeps(tmp_path: Path) -> None:
    file = tmp_path / "file"
    left = 0
    for when in range(1, 40):
        file.write_bytes(b"old")
        is_killed = killed(lambda: put(file, b"new"), when)
        left += len(leftovers(tmp_path))
        if not is_killed:
            break
    assert left
    put(file, b"new")
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.usefixtures("_kind")
def test_a_new_file_takes_nobodys_place(tmp_path: Path) -> None:
    file = tmp_path / "file"
    create_file(file, b"first", 0o600)
    with pytest.raises(FileExistsError):
        create_file(file, b"second", 0o600)
    assert file.read_bytes() == b"first"
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_no_second_copy_of_a_secret_stays(tmp_path: Path) -> None:
    for when in range(1, 40):
        folder = tmp_path / str(when)
        folder.mkdir()
        if not killed(lambda to=folder / "key": create_file(to, b"secret", 0o600), when):  # type: ignore[misc]
            break
        assert {path.name for path in folder.iterdir()} <= {"key"}
    assert when > 3


def test_what_is_being_written_is_left_alone(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "_UNNAMED", 0)
    first, second = repo.path / "first", repo.path / "second"
    aside = aside_folder(repo.path / ".git")

    def write(descriptor: int) -> None:
        put(second, b"second")
        assert leftovers(aside) == []
        assert len(list(aside.iterdir())) == 1
        write_all(descriptor, (b"first",))

    replace_file(first, write)
    assert (first.read_bytes(), second.read_bytes()) == (b"first", b"second")


def test_files_of_users_are_no_leftovers(repo: Repo) -> None:
    aside = aside_folder(repo.path / ".git")
    aside.mkdir(parents=True)
    names = (
        ".wtxtgit-",
        ".wtxtgit-short",
        ".wtxtgit-0123456789abcdeF",
        "x.wtxtgit-0123456789abcdef",
    )
    for name in names:
        (aside / name).write_bytes(b"x")
    (aside / ".wtxtgit-0123456789abcdef").symlink_to(repo.path)
    file = repo.write("file", b"old")
    put(file, b"new")
    assert {path.name for path in aside.iterdir()} == {*names, ".wtxtgit-0123456789abcdef"}
    assert not left_behind(aside / ".wtxtgit-0123456789abcdef")


def test_git_s_folder_is_found_from_linked_work_trees_and_submodules(repo: Repo) -> None:
    repo.commit()
    repo.git("worktree", "add", "-q", "../linked")
    repo.git("submodule", "--quiet", "add", str(repo.path), "sub/module")
    git = repo.path / ".git"
    assert temporary.folder_of_git(repo.path / "..") is None
    assert temporary.folder_of_git(repo.path / "sub") == git
    assert temporary.folder_of_git(git / "objects") == git
    assert temporary.folder_of_git(repo.path / "../linked") == git
    assert temporary.folder_of_git(repo.path / "sub/module") == git / "modules/sub/module"
    (repo.path / "sub/.git").write_text("gitdir: nowhere\n")
    assert temporary.folder_of_git(repo.path / "sub") == git


def test_a_link_in_git_s_folder_leads_nowhere(repo: Repo, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (repo.path / ".git/wtxtgit").symlink_to(outside)
    put(repo.write("file", b"old"), b"new")
    assert list(outside.iterdir()) == []
    assert repo.status() == b"?? file\0"


def test_a_folder_that_is_mounted_elsewhere(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one file system, but what is linked or moved has to stay within one mount."""
    true = os.link
    aside = aside_folder(repo.path / ".git")

    def link(source: str, name: bytes, **options: int) -> None:
        if os.path.samestat(os.fstat(options["dst_dir_fd"]), aside.stat()):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        true(source, name, **options)  # type: ignore[arg-type]

    file = repo.write("file", b"old")
    aside.mkdir(parents=True)
    monkeypatch.setattr(os, "link", link)
    put(file, b"new")
    assert file.read_bytes() == b"new"
    assert repo.status() == b"?? file\0"


def test_a_folder_in_the_making_goes(repo: Repo) -> None:
    with new_folder(repo.path) as folder:
        (folder / "file").write_bytes(b"x")
        assert not left_behind(folder)
        assert repo.status() == b""
    assert not folder.exists()
    assert killed(lambda: new_folder(repo.path).__enter__(), 6)
    (left,) = leftovers(aside_folder(repo.path / ".git"))
    with new_folder(repo.path):
        assert not left.exists()


def test_a_folder_among_temporary_files(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """In no repository's folder, wherever temporary files are: git is started in some of them."""
    place = repo.path / "tmp"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    when = left = 0
    while killed(lambda: temporary_folder().__enter__(), when := when + 1):
        left += len(leftovers(place))
    assert left
    with temporary_folder() as folder, temporary_folder() as other:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert sorted(place.iterdir()) == sorted([folder, other])
    assert list(place.iterdir()) == []


def test_what_others_put_among_temporary_files_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it read: removing folders that are nested deeply enough ends in a RecursionError."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / ".wtxtgit-0123456789abcdef/inner").mkdir(parents=True)
    (tmp_path / ".wtxtgit-settings").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with temporary_folder() as folder:
        there = sorted(path.name for path in tmp_path.iterdir())
        assert there == sorted([".wtxtgit-0123456789abcdef", ".wtxtgit-settings", folder.name])
    monkeypatch.undo()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with temporary_folder() as folder:
        assert {path.name for path in tmp_path.iterdir()} == {".wtxtgit-settings", folder.name}


def test_what_can_t_be_removed_is_told(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    file = repo.write(".wtxtgit-0123456789abcdef", b"left")

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "as of a read-only folder", os.fspath(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(PermissionError):
        remove(file)
    put(repo.path / "sub.txt", b"goes on")
    monkeypatch.undo()
    assert remove(file)
