"""Objects that we write, read by git; and those that git writes, read by us."""

from __future__ import annotations

import os
import stat
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.git.histories import new_repo, put_in_place
from tests.git.store import two_faced
from tests.kit import Repo
from wtxtgit.chain.reader import Facts
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.store.files import PackedObject, PackIndex, format_index
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.git.store.streams import PlainContent, inflated
from wtxtgit.git.store.writing import PackWriter, stored

CONTENTS = [b"", b"a", b"text\n" * 30_000, os.urandom(2_500_000), bytes(3_000_000)]


@pytest.fixture(params=["sha1", "sha256"])
def anywhere(tmp_path: Path, request: pytest.FixtureRequest) -> Repo:
    """An empty repository of either kind."""
    return new_repo(tmp_path / "r", request.param)


def plain(content: bytes) -> PlainContent:
    return PlainContent(memoryview(content))


def pack(repo: Repo, contents: list[bytes], expected: int | None = None) -> list[str]:
    store = ObjectStore(repo.repository)
    with PackWriter(store, len(contents) if expected is None else expected, 2) as writer:
        oids = [writer.add(plain(content)) for content in contents]
        writer.finish()
    return oids


def packs(repo: Repo) -> list[Path]:
    return sorted((repo.path / ".git/objects/pack").iterdir())


def fsck(repo: Repo) -> None:
    said = repo.git("fsck", "--full", "--strict", "--no-dangling")
    assert said == b""
    for path in packs(repo):
        if path.suffix == ".idx":
            repo.git("verify-pack", path)


def test_git_reads_a_pack(anywhere: Repo) -> None:
    oids = pack(anywhere, CONTENTS)
    for oid, content in zip(oids, CONTENTS, strict=True):
        assert anywhere.git("cat-file", "blob", oid) == content
        assert anywhere.git("hash-object", "--stdin", stdin=content).decode().strip() == oid
    fsck(anywhere)
    # Git seeks no deltas between objects of one pack.
    assert [path.suffix for path in packs(anywhere)] == [".idx", ".pack"] * 4
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o444 for path in packs(anywhere))


def test_git_indexes_a_pack_as_we_do(anywhere: Repo, tmp_path: Path) -> None:
    pack(anywhere, CONTENTS)
    index, content, *_ = packs(anywhere)
    made = tmp_path / "made.idx"
    anywhere.git("index-pack", "--index-version=2", "--no-rev-index", "-o", made, content)
    assert made.read_bytes() == index.read_bytes()


def test_what_is_there_is_not_packed_again(anywhere: Repo) -> None:
    loose = anywhere.git("hash-object", "-w", "--stdin", stdin=CONTENTS[3]).decode().strip()
    oids = pack(anywhere, [CONTENTS[2], CONTENTS[3], CONTENTS[2], CONTENTS[4]])
    assert oids[0] == oids[2]
    assert oids[1] == loose
    indexes = [path.read_bytes() for path in packs(anywhere) if path.suffix == ".idx"]
    listed = [
        line for index in indexes for line in anywhere.git("show-index", stdin=index).split(b"\n")
    ]
    assert sorted(line.split()[1].decode() for line in listed if line) == sorted([oids[0], oids[3]])
    fsck(anywhere)


def test_a_gc_makes_deltas_of_what_one_command_wrote(repo: Repo) -> None:
    noise = os.urandom(200_000)
    oids = pack(repo, [noise + b"%d" % number for number in range(9)])
    tree = "".join(f"100644 blob {oid}\t{number}\n" for number, oid in enumerate(oids))
    made = repo.git("mktree", stdin=tree.encode()).decode().strip()
    repo.git("update-ref", "HEAD", repo.git("commit-tree", "-m", "all", made).decode().strip())
    repo.git("gc", "-q", "--prune=now")
    (size,) = (path.stat().st_size for path in packs(repo) if path.suffix == ".pack")
    assert size < 1.1 * len(noise)


def test_a_pack_of_nothing_is_none(anywhere: Repo) -> None:
    pack(anywhere, CONTENTS)
    before = packs(anywhere)
    pack(anywhere, CONTENTS)
    pack(anywhere, [], expected=1)
    assert packs(anywhere) == before


def test_nothing_is_left_of_a_pack_that_fails(repo: Repo) -> None:
    class Failing(PlainContent):
        def stream(self) -> Iterator[memoryview]:
            raise EnvironmentFailure("the file is gone")

    store = ObjectStore(repo.repository)
    with PackWriter(store, 2, 2) as writer:
        writer.add(plain(b"one"))
        with pytest.raises(EnvironmentFailure):
            writer.add(Failing(memoryview(b"two")))
    assert packs(repo) == []


def test_a_store_that_takes_nothing_is_told(repo: Repo) -> None:
    folder = repo.path / ".git/objects/pack"
    folder.rmdir()
    folder.write_text("in the way")
    with (
        pytest.raises(EnvironmentFailure, match=r"pack: can't be written"),
        PackWriter(ObjectStore(repo.repository), 1, 1),
    ):
        pass


def test_git_finds_a_loose_object(anywhere: Repo) -> None:
    store = ObjectStore(anywhere.repository)
    for content in CONTENTS:
        assert b"".join(stored(store, plain(content), 2)) == content
        oid = anywhere.git("hash-object", "--stdin", stdin=content).decode().strip()
        file = anywhere.path / ".git/objects" / oid[:2] / oid[2:]
        written = file.stat()
        assert anywhere.git("cat-file", "blob", oid) == content
        assert stat.S_IMODE(written.st_mode) == 0o444
        # Once there, it stays as it is.
        assert b"".join(stored(store, plain(content), 2)) == content
        assert file.stat().st_ino == written.st_ino
    fsck(anywhere)
    assert not list((anywhere.path / ".git/objects").glob("tmp_*"))


def test_what_is_not_taken_is_no_object(repo: Repo) -> None:
    giving = stored(ObjectStore(repo.repository), plain(CONTENTS[3]), 2)
    next(giving)
    giving.close()  # type: ignore[attr-defined]
    assert repo.git("count-objects").split()[0] == b"0"
    assert not list((repo.path / ".git/objects").glob("tmp_*"))


def test_a_full_store_gives_the_bytes_all_the_same(repo: Repo) -> None:
    store = ObjectStore(repo.repository)
    objects = repo.path / ".git/objects"
    objects.rename(repo.path / ".git/elsewhere")
    assert b"".join(stored(store, plain(CONTENTS[3]), 2)) == CONTENTS[3]


def test_a_content_that_fails_halfway_is_no_success(repo: Repo) -> None:
    class Failing(PlainContent):
        def stream(self) -> Iterator[memoryview]:
            yield memoryview(b"half")
            raise EnvironmentFailure("the file is gone")

    giving = stored(ObjectStore(repo.repository), Failing(memoryview(b"halves")), 2)
    assert next(giving) == b"half"
    with pytest.raises(EnvironmentFailure):
        next(giving)
    assert repo.git("count-objects").split()[0] == b"0"


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_we_read_what_git_has(anywhere: Repo, threads: int) -> None:
    versions = [b"".join(b"%d %d\n" % (n, n == v) for n in range(20_000)) for v in range(5)]
    written = {}
    for number, content in enumerate([*CONTENTS, *versions]):
        anywhere.write("file", content)
        anywhere.add()
        anywhere.commit(str(number))
        written[anywhere.git("rev-parse", ":file").decode().strip()] = content

    def check() -> None:
        with ObjectStore(anywhere.repository) as store:
            for oid, content in written.items():
                assert store.find(oid) is not None
                assert b"".join(store.blob(oid, threads)) == content
                assert store.size(oid) == len(content)

    check()
    anywhere.git("gc", "-q")
    assert anywhere.git("count-objects").split()[0] == b"0"
    check()


def test_what_is_borrowed_is_found(repo: Repo) -> None:
    oids = pack(repo, [b"lent out"])
    repo.write("file", "x")
    repo.add()
    repo.commit()
    borrower = repo.clone("borrower", "--shared")
    last = borrower.clone("last", "--shared")
    store = ObjectStore(last.repository)
    assert len(store.places.borrowed) == 2
    assert b"".join(store.blob(oids[0])) == b"lent out"
    # So it is not written again.
    assert pack(last, [b"lent out"]) == oids
    assert packs(last) == []


def test_a_quarantine_takes_what_is_new(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a hook of a push: git names another folder for objects."""
    old = pack(repo, [b"old"])
    objects = repo.path / ".git/objects"
    quarantine = tmp_path / "quarantine"
    quarantine.mkdir()
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(quarantine))
    monkeypatch.setenv("GIT_ALTERNATE_OBJECT_DIRECTORIES", str(objects))
    store = ObjectStore(repo.repository)
    assert b"".join(store.blob(old[0])) == b"old"
    before = sorted(objects.rglob("*"))
    (new,) = pack(repo, [b"new"])
    assert sorted(objects.rglob("*")) == before
    assert repo.git("cat-file", "blob", new) == b"new"
    assert len(list((quarantine / "pack").iterdir())) == 2


@pytest.mark.parametrize(
    ("value", "mode", "folder"),
    [("group", 0o440, 0o070), ("all", 0o444, 0o075), ("0660", 0o440, 0o070), ("umask", 0o400, 0)],
)
def test_a_shared_repository_is_shared(repo: Repo, value: str, mode: int, folder: int) -> None:
    repo.git("config", "core.sharedRepository", value)
    before = os.umask(0o077)
    try:
        content = plain(b"shared")
        assert b"".join(stored(ObjectStore(repo.repository), content, 2)) == b"shared"
        pack(repo, [b"packed"])
        oid = repo.git("hash-object", "--stdin", stdin=b"shared").decode().strip()
    finally:
        os.umask(before)
    file = repo.path / ".git/objects" / oid[:2] / oid[2:]
    assert stat.S_IMODE(file.stat().st_mode) == mode
    assert stat.S_IMODE(file.parent.stat().st_mode) & 0o077 == folder
    assert {stat.S_IMODE(path.stat().st_mode) for path in packs(repo)} == {mode}


def test_a_damaged_object_is_told(repo: Repo) -> None:
    (oid,) = pack(repo, [b"armor " * 400_000])
    path = packs(repo)[1]
    path.chmod(0o644)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x55
    path.write_bytes(content)
    with pytest.raises(EnvironmentFailure, match=f"blob {oid} can't be read"):
        list(ObjectStore(repo.repository).blob(oid, 2))


def test_an_object_that_is_nowhere_is_told(repo: Repo) -> None:
    with pytest.raises(EnvironmentFailure, match="has no blob"):
        list(ObjectStore(repo.repository).blob("1" * 40))
    with pytest.raises(EnvironmentFailure, match="not an object id"):
        ObjectStore(repo.repository).find("HEAD")


def test_a_tree_is_no_blob(repo: Repo) -> None:
    repo.write("a", "a")
    repo.add()
    repo.commit()
    tree = repo.git("rev-parse", "HEAD^{tree}").decode().strip()
    with pytest.raises(EnvironmentFailure, match="has no blob"):
        list(ObjectStore(repo.repository).blob(tree))
    repo.git("gc", "-q")
    with pytest.raises(EnvironmentFailure, match="has no blob"):
        list(ObjectStore(repo.repository).blob(tree))


def test_offsets_beyond_two_gigabytes(repo: Repo, tmp_path: Path) -> None:
    store = ObjectStore(repo.repository)
    objects = [
        PackedObject(bytes([n]) * 20, offset, n) for n, offset in enumerate((12, 2**31, 2**40))
    ]
    path = tmp_path / "far.idx"
    path.write_bytes(format_index(objects[::-1], bytes(20), store.places))
    index = PackIndex(path, 20)
    assert [index.offset(packed.oid) for packed in objects] == [12, 2**31, 2**40]
    assert index.offset(b"\xff" * 20) is None
    listed = repo.git("show-index", stdin=path.read_bytes()).split()
    assert [int(listed[n]) for n in (0, 3, 6)] == [12, 2**31, 2**40]


@pytest.mark.slow
def test_an_index_that_is_damaged_finds_nothing_that_is_not_there(repo: Repo) -> None:
    """Every count and offset of it may be anything."""
    oids = pack(repo, CONTENTS)
    index, *_ = packs(repo)
    index.chmod(0o644)
    whole = index.read_bytes()
    its_first = repo.git("show-index", stdin=whole).split()[1].decode()
    places = [0, 7, *range(8, 1032, 256), 1028, len(whole) - 60, len(whole) // 2]
    for place in places:
        for value in (b"\xff\xff\xff\xff", bytes(4), struct.pack(">I", 2**31)):
            index.write_bytes(whole[:place] + value + whole[place + 4 :])
            store = ObjectStore(repo.repository)
            for oid in oids:
                # What is there is found, elsewhere, or not.
                location = store.find(oid)
                assert location is None or location.path.suffix == ".pack"
    for size in (0, 1, 1000, 1032, len(whole) - 1):
        index.write_bytes(whole[:size])
        assert ObjectStore(repo.repository).find(its_first) is None


def test_an_index_without_its_pack_has_nothing(repo: Repo) -> None:
    (oid,) = pack(repo, [b"gone"])
    packs(repo)[1].unlink()
    assert ObjectStore(repo.repository).find(oid) is None
    assert pack(repo, [b"gone"]) == [oid]
    assert repo.git("cat-file", "blob", oid) == b"gone"


def test_pipes_in_the_store_do_not_block(repo: Repo) -> None:
    (oid,) = pack(repo, [b"there"])
    objects = repo.path / ".git/objects"
    os.mkfifo(objects / "pack" / f"pack-{'0' * 40}.idx")
    os.mkfifo(objects / "info" / "alternates")
    assert b"".join(ObjectStore(repo.repository).blob(oid)) == b"there"


def two_faced_blob() -> two_faced.TwoFaced:
    """A loose blob's stream, with the heads of both contents in them."""
    content = b"text of a checkpoint\n" * 1000
    size = len(two_faced.make(b"blob 00000\0" + content).to_zlib) - len(b"blob 00000\0")
    return two_faced.make(b"blob %d\0" % size + content)


@pytest.mark.slow
def test_a_stream_that_zlib_reads_otherwise_is_refused(anywhere: Repo) -> None:
    """Git, its fsck and a reader of pieces see nothing wrong with it."""
    made = two_faced_blob()
    head, _, honest = made.to_zlib.partition(b"\0")
    _, _, other = made.in_pieces.partition(b"\0")
    oid = anywhere.git("hash-object", "--stdin", stdin=honest).decode().strip()
    file = anywhere.path / ".git/objects" / oid[:2] / oid[2:]
    file.parent.mkdir()
    file.write_bytes(made.stream)
    assert anywhere.git("cat-file", "blob", oid) == honest
    fsck(anywhere)
    with tempfile.TemporaryFile() as stream:
        stream.write(made.stream)
        stream.flush()
        size = len(made.in_pieces)
        assert b"".join(inflated(stream.fileno(), 0, size, 2)) == made.in_pieces
    with ObjectStore(anywhere.repository) as store:
        taken = []
        with pytest.raises(EnvironmentFailure, match=f"blob {oid}: .* have another hash") as told:
            taken.extend(store.blob(oid, 2))
        assert told.value.hint == "git fsck --full"
        assert len(b"".join(taken)) < len(other)
        assert b"".join(store.blob(oid, 1)) == honest
    with BlobReader(anywhere.repository) as reader:
        assert b"".join(reader.chunks(oid)) == honest
    assert int(head.split()[1]) == len(honest) == len(other)


@pytest.mark.slow
def test_a_stream_whose_pieces_have_the_hash_is_not_what_git_gives(anywhere: Repo) -> None:
    made = two_faced_blob()
    _, _, wanted = made.in_pieces.partition(b"\0")
    oid = anywhere.git("hash-object", "--stdin", stdin=wanted).decode().strip()
    file = anywhere.path / ".git/objects" / oid[:2] / oid[2:]
    file.parent.mkdir()
    file.write_bytes(made.stream)
    with ObjectStore(anywhere.repository) as store:
        assert b"".join(store.blob(oid, 2)) == wanted
        with pytest.raises(EnvironmentFailure, match="have another hash"):
            list(store.blob(oid, 1))
    with (
        BlobReader(anywhere.repository) as reader,
        pytest.raises(EnvironmentFailure, match="have another hash"),
    ):
        list(reader.chunks(oid))
    with pytest.raises(EnvironmentFailure, match="have another hash"):
        Facts(anywhere.repository, 2).of([oid])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_loose_object_ends_with_its_stream(repo: Repo, threads: int) -> None:
    content = os.urandom(100_000)
    oid = repo.git("hash-object", "-w", "--stdin", stdin=content).decode().strip()
    file = repo.path / ".git/objects" / oid[:2] / oid[2:]
    stream = file.read_bytes()
    file.chmod(0o644)
    for damaged in (stream + b"\0", stream + stream, stream[:-1], stream[:-4]):
        file.write_bytes(damaged)
        with pytest.raises(EnvironmentFailure, match=f"blob {oid} can't be read"):
            list(ObjectStore(repo.repository).blob(oid, threads))
    file.write_bytes(stream)
    assert b"".join(ObjectStore(repo.repository).blob(oid, threads)) == content


@pytest.mark.parametrize("threads", [1, 2])
def test_an_object_under_another_name_is_refused(repo: Repo, tmp_path: Path, threads: int) -> None:
    other = new_repo(tmp_path / "other")
    (oid,) = pack(repo, [b"honest " * 9000])
    pack(other, [b"evil!! " * 9000])
    index, packed = packs(repo)
    packed.chmod(0o644)
    packed.write_bytes(packs(other)[1].read_bytes())
    with pytest.raises(EnvironmentFailure, match=f"blob {oid}: .* have another hash"):
        list(ObjectStore(repo.repository).blob(oid, threads))
    index.unlink()
    put_in_place(repo, oid, b"blob", b"evil")
    with pytest.raises(EnvironmentFailure, match=f"blob {oid}: .* have another hash"):
        list(ObjectStore(repo.repository).blob(oid, threads))
