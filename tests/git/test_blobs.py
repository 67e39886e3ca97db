from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bench.memory import memory
from tests.git.histories import History, new_repo, put_in_place
from tests.kit import Repo
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import blobs, run
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.history import CommitReader

MISSING = "0" * 40


def stored(repo: Repo, content: bytes) -> str:
    return History(repo).blob(content).decode()


@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_blobs_of_all_sizes(tmp_path: Path, kind: str) -> None:
    repo = new_repo(tmp_path / "r", kind)
    contents = [b"", b"\n", b"x" * 5, os.urandom(70_000), os.urandom(3 << 20)]
    oids = [stored(repo, content) for content in contents]
    with BlobReader(repo.repository) as reader:
        for oid, content in zip(oids, contents, strict=True):
            assert reader.size(oid) == len(content)
            assert reader.read(oid, len(content)) == content
            assert b"".join(reader.chunks(oid)) == content
    assert blobs.sizes(repo.repository, oids) == dict(zip(oids, map(len, contents), strict=True))


def test_one_process_reads_many(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    oids = [stored(repo, b"%d" % i) for i in range(20)]
    repository = repo.repository
    started = []

    class Counted(run.GitStream):
        def __init__(self, *arguments: str | bytes, **options: object) -> None:
            started.append(arguments)
            super().__init__(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(run, "GitStream", Counted)
    with BlobReader(repository) as reader:
        for oid in oids:
            assert b"".join(reader.chunks(oid)) == reader.read(oid, 2)
    assert [arguments[-2:] for arguments in started] == [("cat-file", "--batch")]


def test_git_does_not_hold_a_large_blob(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is whole in a pack; a delta has to be put together in memory."""
    # Git takes longest to look for what to compress.
    repo.git("config", "core.compression", "0")
    oid = stored(repo, os.urandom(32 << 20))
    repo.git("pack-objects", "-q", ".git/objects/pack/pack", stdin=oid.encode())
    repo.git("prune-packed", "-q")
    pids = []

    class Started(run.GitStream):
        def __init__(self, *arguments: str | bytes, **options: object) -> None:
            super().__init__(*arguments, **options)  # type: ignore[arg-type]
            pids.append(self._process.pid)

    monkeypatch.setattr(run, "GitStream", Started)
    with BlobReader(repo.repository) as reader:
        chunks = reader.chunks(oid)
        next(chunks)
        (pid,) = pids
        assert memory(pid)["RssAnon"] < 16 << 20
        assert sum(map(len, chunks)) > 30 << 20


def test_a_blob_over_the_limit_is_not_read(repo: Repo) -> None:
    big, small = stored(repo, bytes(4 << 20)), stored(repo, b"small")
    with BlobReader(repo.repository) as reader:
        with pytest.raises(
            EnvironmentFailure, match="has 4194304 bytes, over the limit of 4194303"
        ):
            reader.read(big, (4 << 20) - 1)
        assert reader.read(small, 5) == b"small"
        with pytest.raises(EnvironmentFailure, match="over the limit of 4"):
            reader.read(small, 4)


def test_reading_goes_on_after_half_a_blob(repo: Repo) -> None:
    big, small = stored(repo, b"ab" * (4 << 20)), stored(repo, b"small")
    with BlobReader(repo.repository) as reader:
        pieces = reader.chunks(big)
        first = next(pieces)
        # Between two pieces another blob may be read.
        assert reader.read(small, 5) == b"small"
        assert first + b"".join(pieces) == b"ab" * (4 << 20)
        dropped = reader.chunks(big)
        next(dropped)
        dropped.close()
        assert reader.read(small, 5) == b"small"


def test_what_is_no_blob(repo: Repo) -> None:
    tree = History(repo).tree({b"a": b"a"})
    small = stored(repo, b"small")
    with BlobReader(repo.repository) as reader:
        for oid in (MISSING, tree):
            for ask in (
                reader.size,
                lambda oid: reader.read(oid, 9),
                lambda o: [*reader.chunks(o)],
            ):
                with pytest.raises(EnvironmentFailure, match=f"git has no blob {oid}"):
                    ask(oid)
        for name in ("HEAD", "", small[:10], f"{small}\n{small}", "é" * 40, small.upper() + "F"):
            with pytest.raises(EnvironmentFailure, match="is not an object id"):
                reader.read(name, 9)
        assert reader.read(small, 5) == b"small"
    for oid in (MISSING, tree):
        with pytest.raises(EnvironmentFailure, match=f"git has no blob {oid}"):
            blobs.sizes(repo.repository, [small, oid])


def test_a_damaged_blob_is_told(repo: Repo) -> None:
    oid, small = stored(repo, os.urandom(1 << 20)), stored(repo, b"small")
    file = repo.path / ".git/objects" / oid[:2] / oid[2:]
    content = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(content[: len(content) // 2])
    with BlobReader(repo.repository) as reader:
        with pytest.raises(EnvironmentFailure):
            reader.read(oid, 1 << 20)
        with pytest.raises(EnvironmentFailure):
            list(reader.chunks(oid))
        assert reader.read(small, 5) == b"small"


@pytest.mark.parametrize("kind", ["sha1", "sha256"])
@pytest.mark.parametrize("other", [b"evil", b"", b"e" * (3 << 20)])
def test_bytes_of_another_hash_are_refused(tmp_path: Path, kind: str, other: bytes) -> None:
    repo = new_repo(tmp_path / "r", kind)
    oid, small = stored(repo, b"honest"), stored(repo, b"small")
    put_in_place(repo, oid, b"blob", other)
    assert repo.git("cat-file", "blob", oid) == other
    with BlobReader(repo.repository) as reader:
        with pytest.raises(EnvironmentFailure, match=f"blob {oid}: .* have another hash") as told:
            reader.read(oid, 4 << 20)
        assert told.value.hint == "git fsck --full"
        taken = []
        with pytest.raises(EnvironmentFailure, match="have another hash"):
            taken.extend(reader.chunks(oid))
        # The last block is not given: whoever counts bytes does not get them all, either.
        assert len(b"".join(taken)) < len(other) or not other
        assert reader.read(small, 5) == b"small"


def test_a_commit_of_another_hash_is_refused(repo: Repo) -> None:
    make = History(repo)
    oid, evil = make.commit({b"a": b"1"}), make.commit({b"a": b"2"})
    put_in_place(repo, oid, b"commit", repo.git("cat-file", "commit", evil))
    with (
        CommitReader(repo.repository) as reader,
        pytest.raises(EnvironmentFailure, match=f"commit {oid}: .* have another hash"),
    ):
        reader.commit(oid)


def test_a_replaced_blob_is_read_as_it_is(repo: Repo) -> None:
    oid, other = stored(repo, b"true"), stored(repo, b"other")
    repo.git("replace", oid, other)
    assert repo.git("cat-file", "blob", oid) == b"other"
    with BlobReader(repo.repository) as reader:
        assert (reader.size(oid), reader.read(oid, 9)) == (4, b"true")
    assert blobs.sizes(repo.repository, [oid]) == {oid: 4}


def test_a_partial_clone_fetches_what_it_misses(repo: Repo) -> None:
    repo.git("config", "uploadpack.allowFilter", "true")
    repo.git("config", "uploadpack.allowAnySHA1InWant", "true")
    repo.write("a", b"content")
    repo.add()
    repo.commit()
    oid = repo.git("rev-parse", "HEAD:a").decode().strip()
    url = f"file://{repo.path}"
    repo.git("clone", "-q", "--no-checkout", "--filter=blob:none", url, "../partial")
    partial = Repo(repo.path.parent / "partial")
    with BlobReader(partial.repository) as reader:
        assert reader.read(oid, 9) == b"content"
    repo.git("clone", "-q", "--no-checkout", "--filter=blob:none", url, "../alone")
    shutil.rmtree(repo.path)
    with (
        BlobReader(Repo(partial.path.parent / "alone").repository) as reader,
        pytest.raises(EnvironmentFailure, match="git has no blob"),
    ):
        reader.read(oid, 9)
