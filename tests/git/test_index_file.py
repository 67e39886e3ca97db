"""Index entries that git takes for its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.git.histories import new_repo
from tests.kit import Repo
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import held
from wtxtgit.git.index_file import StagedFile, refresh_stats, stage_files

NAMES = [
    b"a",
    b"dir/b",
    b"dir/b.c",
    b"\xff\xfe",
    b"new\nline",
    b"n" * 250,
    b"d" * 200 + b"/" + b"f" * 250,
]
OLD = 10**9


def written(repo: Repo, name: bytes, content: bytes = b"x\n", mode: int = 0o100644) -> StagedFile:
    """A file of the work tree that git has not been told of, older than any index."""
    file = repo.write(name, content)
    os.utime(file, (OLD, OLD))
    oid = repo.git("hash-object", "-w", "--stdin", stdin=content).decode().strip()
    return StagedFile(name, mode, oid, file.stat())


def debug(repo: Repo) -> bytes:
    return repo.git("ls-files", "--stage", "--debug", "-z")


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_entries_are_those_of_git_add(tmp_path: Path, kind: str, version: int) -> None:
    repo = new_repo(tmp_path / "r", kind)
    repo.git("config", "index.version", str(version))
    repo.write("there", "before")
    repo.write("meant", "to be added")
    repo.add("there")
    repo.git("add", "-N", "meant")
    files = [written(repo, name) for name in NAMES]
    stage_files(repo.repository, files)
    ours = debug(repo)
    assert repo.git("diff-files").count(b"\n") == 1
    repo.git("rm", "-q", "--cached", "--", *NAMES)
    repo.add(*NAMES)
    assert debug(repo) == ours
    assert repo.git("fsck", "--no-dangling") == b""
    assert not (repo.path / ".git/index.lock").exists()
    assert not list((repo.path / ".git").glob("wtxtgit-index-*"))


def reads(repo: Repo) -> Path:
    """Count what git cleans, in a file."""
    mark = repo.path.parent / "mark"
    script = f"import sys;open('{mark}','a').write('.');sys.stdout.write(sys.stdin.read())"
    repo.git("config", "filter.told.clean", f'{sys.executable} -c "{script}"')
    repo.write(".gitattributes", "* filter=told\n.git* -filter\n")
    repo.add(".gitattributes")
    return mark


def test_git_does_not_read_what_was_staged(repo: Repo) -> None:
    mark = reads(repo)
    stage_files(repo.repository, [written(repo, b"a"), written(repo, b"b")])
    repo.commit()
    assert repo.status() == b""
    assert not mark.exists()


def test_what_was_written_meanwhile_is_told(repo: Repo) -> None:
    file = written(repo, b"a")
    repo.write("a", "y\n")
    stage_files(repo.repository, [file])
    assert repo.status() == b"AM a\0"


def test_a_file_as_young_as_the_index_is_read_again(repo: Repo) -> None:
    """Git's own rule: its time does not tell whether it was written since."""
    file = written(repo, b"a")
    stage_files(repo.repository, [file])
    moment = (repo.path / ".git/index").stat().st_mtime_ns
    # Of the same size and time as what is staged, as if written in the same second.
    young = repo.path / "a"
    os.utime(young, ns=(moment, moment))
    stage_files(repo.repository, [StagedFile(b"a", 0o100644, file.oid, young.stat())])
    inode = young.stat().st_ino
    young.write_bytes(b"y\n")
    assert young.stat().st_ino == inode
    os.utime(young, ns=(moment, moment))
    os.utime(repo.path / ".git/index", ns=(moment, moment))
    assert repo.status() == b"AM a\0"
    # Another index is younger: the entry must not look like one that can be trusted.
    other = written(repo, b"b")
    stage_files(repo.repository, [other])
    assert repo.status().startswith(b"AM a\0")
    os.utime(repo.path / ".git/index", ns=(moment, moment))
    assert refresh_stats(repo.repository, [other])
    assert repo.status().startswith(b"AM a\0")


def test_refreshing_spares_reading(repo: Repo) -> None:
    mark = reads(repo)
    stage_files(repo.repository, [written(repo, b"a")])
    os.utime(repo.path / "a", (OLD + 5, OLD + 5))
    status = (repo.path / "a").stat()
    oid = repo.git("rev-parse", ":a").decode().strip()
    other = StagedFile(b"a", 0o100644, "1" * 40, status)
    assert refresh_stats(repo.repository, [other, StagedFile(b"gone", 0o100644, oid, status)])
    assert repo.git("diff-files", "--name-only") == b"a\n"
    assert refresh_stats(repo.repository, [StagedFile(b"a", 0o100644, oid, status)])
    assert repo.git("diff-files") == b""
    repo.status()
    assert not mark.exists()


def test_a_lock_is_respected(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(repo, b"a")
    stage_files(repo.repository, [file])
    before = debug(repo)
    lock = repo.path / ".git/index.lock"
    lock.write_text("another's")
    with pytest.raises(EnvironmentFailure, match=r"index\.lock exists"):
        stage_files(repo.repository, [written(repo, b"b")])
    assert not refresh_stats(repo.repository, [file])
    assert lock.read_text() == "another's"
    lock.unlink()
    monkeypatch.setenv("GIT_OPTIONAL_LOCKS", "0")
    assert not refresh_stats(repo.repository, [file])
    assert debug(repo) == before


def test_the_lock_of_one_that_was_killed_goes_where_nothing_is_to_be_refreshed(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage_files(repo.repository, [written(repo, b"a")])
    lock = repo.path / ".git/index.lock"
    lock.write_bytes(held._OURS)
    monkeypatch.setenv("GIT_OPTIONAL_LOCKS", "0")
    assert refresh_stats(repo.repository, [])
    assert lock.exists()
    monkeypatch.delenv("GIT_OPTIONAL_LOCKS")
    assert refresh_stats(repo.repository, [])
    assert not lock.exists()


def test_a_failure_leaves_the_index_as_it_was(repo: Repo) -> None:
    stage_files(repo.repository, [written(repo, b"a")])
    index = repo.path / ".git/index"
    whole = index.read_bytes()
    outside = StagedFile(b"../out", 0o100644, "1" * 40, (repo.path / "a").stat())
    for content, file in ((whole, outside), (whole[:50], written(repo, b"b"))):
        index.write_bytes(content)
        with pytest.raises(EnvironmentFailure):
            stage_files(repo.repository, [file])
        assert index.read_bytes() == content
        assert [path.name for path in (repo.path / ".git").glob("*index*")] == ["index"]


def test_an_index_of_another_name(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    written(repo, b"a")
    repo.add()
    before = debug(repo)
    monkeypatch.setenv("GIT_INDEX_FILE", ".git/other")
    stage_files(repo.repository, [written(repo, b"b")])
    assert debug(repo).split(b"\t")[1].startswith(b"b\0")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert debug(repo) == before


def test_a_conflict_ends(repo: Repo) -> None:
    file = written(repo, b"a")
    lines = "".join(f"100644 {file.oid} {stage}\ta\n" for stage in (1, 2, 3))
    repo.git("update-index", "--index-info", stdin=lines.encode())
    stage_files(repo.repository, [file])
    assert repo.git("ls-files", "-u") == b""
    assert repo.git("diff-files") == b""


def test_a_split_index_is_joined(repo: Repo) -> None:
    repo.git("config", "core.splitIndex", "true")
    for name in (b"a", b"b", b"c"):
        written(repo, name)
    repo.add()
    repo.commit()
    assert list((repo.path / ".git").glob("sharedindex.*"))
    changed = written(repo, b"b", b"changed\n")
    stage_files(repo.repository, [changed, written(repo, b"d")])
    assert repo.git("diff-files") == b""
    assert repo.status() == b"M  b\0A  d\0"
    repo.git("update-index", "--split-index")
    assert refresh_stats(repo.repository, [changed])
    assert repo.git("diff-files") == b""
    assert repo.git("fsck", "--no-dangling") == b""


@pytest.mark.parametrize(
    "settings",
    [
        ("core.untrackedCache=true",),
        ("core.fsmonitor=true",),
        ("index.skipHash=true",),
        ("feature.manyFiles=true",),
        ("index.threads=2",),
    ],
)
def test_other_kinds_of_index(repo: Repo, settings: tuple[str, ...]) -> None:
    for setting in settings:
        repo.git("config", *setting.split("="))
    if settings == ("core.fsmonitor=true",):
        # No daemon is started here; the extension is.
        repo.git("config", "core.fsmonitor", "false")
    for number in range(30):
        written(repo, b"dir%d/file" % (number % 3) + b"%d" % number)
    repo.add()
    repo.status()
    files = [written(repo, b"dir1/new"), written(repo, b"dir0/file0", b"changed\n")]
    stage_files(repo.repository, files)
    assert refresh_stats(repo.repository, files)
    assert repo.git("diff-files") == b""
    assert repo.git("rev-parse", ":dir0/file0").decode().strip() == files[1].oid
    repo.commit()
    assert repo.status() == b""
    assert repo.git("fsck", "--no-dangling") == b""


def test_a_sparse_index(repo: Repo) -> None:
    for number in range(12):
        repo.write(f"dir{number % 3}/file{number}", str(number))
    repo.write("top", "x")
    repo.add()
    repo.commit()
    repo.git("sparse-checkout", "init", "--cone", "--sparse-index")
    repo.git("sparse-checkout", "set", "dir1")
    files = [written(repo, b"dir1/file1", b"changed\n"), written(repo, b"top", b"too\n")]
    stage_files(repo.repository, files)
    assert repo.git("diff-files") == b""
    assert repo.status() == b"M  dir1/file1\0M  top\0"
    os.utime(repo.path / "top", (OLD + 9, OLD + 9))
    status = (repo.path / "top").stat()
    assert refresh_stats(repo.repository, [StagedFile(b"top", 0o100644, files[1].oid, status)])
    assert repo.git("diff-files") == b""
    repo.commit()
    assert repo.git("ls-tree", "-r", "--name-only", "HEAD").count(b"\n") == 13


def test_what_is_no_index_is_told(repo: Repo) -> None:
    file = written(repo, b"a")
    stage_files(repo.repository, [file])
    index = repo.path / ".git/index"
    whole = index.read_bytes()
    for damaged in (
        b"",
        b"DIRC",
        b"XXXX" + whole[4:],
        whole[:40],
        whole[:11] + b"\xff" + whole[12:],
    ):
        index.write_bytes(damaged)
        assert not refresh_stats(repo.repository, [file])
        assert index.read_bytes() == damaged
