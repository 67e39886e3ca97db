"""Trees as git tells them, and crooked ones refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.git.histories import EXECUTABLE, LINK, SUBMODULE, Files, History, new_repo, put_in_place
from tests.kit import Repo
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import run, trees
from wtxtgit.git.trees import (
    MODE_EXECUTABLE,
    MODE_FILE,
    MODE_FOLDER,
    MODE_LINK,
    MODE_SUBMODULE,
    ChosenPaths,
    Standing,
    TreeChange,
    TreeEntry,
    TreeReader,
)

ID = b"\x11" * 20
OTHER = b"\x22" * 20
FILE, FOLDER = b"100644", b"40000"
COMMIT = b"1" * 40


def raw(*entries: tuple[bytes, bytes] | tuple[bytes, bytes, bytes]) -> bytes:
    """A tree's bytes, its entries in this order."""
    return b"".join(b"%b %b\0%b" % (mode, name, *(more or (ID,))) for mode, name, *more in entries)


def written(repo: Repo, content: bytes) -> str:
    options = ("-t", "tree", "-w", "--stdin", "--literally")
    return repo.git("hash-object", *options, stdin=content).decode().strip()


def by_git(repo: Repo, before: str, after: str, *paths: bytes) -> list[TreeChange]:
    """What `git diff-tree` tells, the mechanism that this one stands for."""
    said = run.records(
        repo.git(
            "--literal-pathspecs", "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev",
            "--ignore-submodules=none", before, after, "--", *paths,
        )
    )  # fmt: skip
    found = []
    for about, path in zip(said[::2], said[1::2], strict=True):
        words = about.removeprefix(b":").split(b" ")
        sides = [
            TreeEntry(path, int(mode, 8), oid.decode()) if int(mode, 8) else None
            for mode, oid in zip(words[:2], words[2:4], strict=True)
        ]
        found.append(TreeChange(path, *sides))
    return sorted(found, key=lambda change: change.path)


def listed_by_git(repo: Repo, tree: str) -> dict[bytes, TreeEntry]:
    listed = {}
    for record in run.records(repo.git("ls-tree", "-r", "-z", "--full-tree", tree)):
        about, _, path = record.partition(b"\t")
        mode, _, oid = about.split(b" ")
        listed[path] = TreeEntry(path, int(mode, 8), oid.decode())
    return listed


def test_one_folder(repo: Repo) -> None:
    make = History(repo)
    tree = make.tree({
        b"file": b"1", b"run": (EXECUTABLE, b"2"), b"link": (LINK, b"file"),
        b"sub": (SUBMODULE, COMMIT), b"folder/a": b"1", b"\xff\n": b"1",
    })  # fmt: skip
    one = make.blob(b"1").decode()
    with TreeReader(repo.repository) as reader:
        names = (b"file", b"run", b"link", b"sub", b"folder", b"\xff\n")
        standing = {name: reader.standing(tree, name).entry for name in names}
        found = {name: entry for name, entry in standing.items() if entry is not None}
        assert {name: entry.mode for name, entry in found.items()} == {
            b"file": MODE_FILE, b"run": MODE_EXECUTABLE, b"link": MODE_LINK,
            b"sub": MODE_SUBMODULE, b"folder": MODE_FOLDER, b"\xff\n": MODE_FILE,
        }  # fmt: skip
        assert found[b"file"] == TreeEntry(b"file", MODE_FILE, one)
        assert found[b"sub"].oid == COMMIT.decode()
        assert [name for name, entry in found.items() if entry.is_folder] == [b"folder"]
        assert {name for name, entry in found.items() if entry.is_file} == {
            b"file", b"run", b"\xff\n",
        }  # fmt: skip
        assert reader.listing(found[b"folder"].oid) == {b"a": TreeEntry(b"a", MODE_FILE, one)}
        # Nobody has stored it: git knows it of itself.
        assert reader.listing(make.tree({})) == {}


def test_what_stands_at_a_path(repo: Repo) -> None:
    make = History(repo)
    files: Files = {
        b"file": b"1", b"link": (LINK, b"x"), b"sub": (SUBMODULE, COMMIT),
        b"x/y/link": (LINK, b"z"), b"x/y/a": b"1", b"x-y": b"1",
    }  # fmt: skip
    tree = make.tree(files)
    with TreeReader(repo.repository) as reader:
        listing = reader.listing(tree)
        assert list(listing) == sorted(files)
        for path in files:
            assert reader.standing(tree, path) == Standing(listing[path])
        for path in (b"no", b"x/no", b"no/a", b"x/y/", b"/file", b"x//y", b"", b"x/y/a/", b"."):
            assert reader.standing(tree, path).entry is None
            assert reader.at(tree, [path]) == {}
        folder = reader.standing(tree, b"x/y")
        assert folder.entry is not None
        assert (folder.entry.path, folder.entry.is_folder) == (b"x/y", True)
        for path, above in (
            (b"file/a", b"file"), (b"link/a/b", b"link"), (b"sub/a", b"sub"),
            (b"x/y/link/a", b"x/y/link"), (b"x/y/a/b/c", b"x/y/a"),
        ):  # fmt: skip
            assert reader.standing(tree, path) == Standing(None, above=listing[above])
        asked = [b"x/y/a", b"x/y", b"file", b"file", b"no", b"sub/a", b"sub"]
        assert reader.at(tree, asked) == {
            path: listing[path] for path in (b"file", b"sub", b"x/y/a")
        }


def test_looking_at_a_path_reads_the_folders_on_the_way(repo: Repo) -> None:
    make = History(repo)
    tree = make.tree({b"a/b/c": b"1", b"a/d/e": b"2", b"f/g": b"3"})
    crooked = written(repo, raw((FILE, b"b"), (FILE, b"a")))
    top = written(repo, raw((FOLDER, b"bad", bytes.fromhex(crooked)),
                            (FOLDER, b"good", bytes.fromhex(tree))))  # fmt: skip
    with TreeReader(repo.repository) as reader:
        assert set(reader.at(top, [b"good/a/b/c", b"good/f/x"])) == {b"good/a/b/c"}
        assert reader.between(top, top) == []
        with pytest.raises(EnvironmentFailure, match=f"tree {crooked} has 'a' after 'b'"):
            reader.at(top, [b"bad/a"])
        for ask in (lambda: reader.listing(top), lambda: reader.between(tree, top)):
            with pytest.raises(EnvironmentFailure, match="out of order"):
                ask()


CROOKED: dict[str, tuple[bytes, str]] = {
    "behind": (raw((FILE, b"b"), (FILE, b"a")), "has 'a' after 'b', out of order"),
    "a folder without its slash": (
        raw((FOLDER, b"a"), (FILE, b"a.b")), "has 'a.b' after 'a/', out of order"
    ),
    "a file with a slash": (
        raw((FILE, b"a.b"), (FILE, b"a")), "has 'a' after 'a.b', out of order"
    ),
    "twice": (raw((FILE, b"a"), (FILE, b"a", OTHER)), "has 'a' twice"),
    "a folder twice": (raw((FOLDER, b"a"), (FOLDER, b"a")), "has 'a' twice"),
    "a file beside a folder": (raw((FILE, b"a"), (FOLDER, b"a")), "has 'a' twice"),
    "with others between": (raw((FILE, b"a"), (FILE, b"a.b"), (FOLDER, b"a")), "has 'a' twice"),
    "no name": (raw((FILE, b"")), "has '', which is not a file's name"),
    "a slash": (raw((FILE, b"a/b")), "has 'a/b', which is not a file's name"),
    "here": (raw((FOLDER, b".")), "has '.', which is not a file's name"),
    "above": (raw((FOLDER, b"..")), "has '..', which is not a file's name"),
    "git's folder": (raw((FOLDER, b".git")), "has '.git', which is not a file's name"),
    "git's folder to Windows": (raw((FILE, b".GiT")), "has '.GiT', which is not a file's name"),
    "a mode with a zero": (raw((b"040000", b"a")), "has 'a' with mode '040000'"),
    "a mode of none": (raw((b"100600", b"a")), "has 'a' with mode '100600'"),
    "no mode": (raw((b"", b"a")), "has 'a' with mode ''"),
    "cut in an id": (raw((FILE, b"a"), (FILE, b"b"))[:-1], "has no whole entry at byte 29"),
    "cut in a name": (raw((FILE, b"a")) + b"100644 b", "has no whole entry at byte 29"),
    "more behind": (raw((FILE, b"a")) + b"\n", "has no whole entry at byte 29"),
    "more before": (b"\n" + raw((FILE, b"a")), r"has 'a' with mode '\n100644'"),
    "nothing but noise": (b"noise", "has no whole entry at byte 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", CROOKED)
def test_a_crooked_tree_is_refused(repo: Repo, name: str) -> None:
    content, fault = CROOKED[name]
    tree = written(repo, content)
    good = History(repo).tree({b"a": b"1"})
    asks: list[Callable[[TreeReader], object]] = [
        lambda reader: reader.listing(tree),
        lambda reader: reader.at(tree, [b"a"]),
        lambda reader: reader.standing(tree, b"z"),
        lambda reader: reader.between(good, tree),
        lambda reader: reader.between(tree, good, ChosenPaths.of([b"z"])),
    ]
    with TreeReader(repo.repository) as reader:
        for ask in asks:
            with pytest.raises(EnvironmentFailure) as told:
                ask(reader)
            assert told.value.message == f"tree {tree} {fault}"
            assert told.value.hint == "git fsck --full"
        assert set(reader.listing(good)) == {b"a"}


def test_a_tree_of_another_hash_is_refused(repo: Repo) -> None:
    make = History(repo)
    tree, evil = make.tree({b"a": b"1"}), make.tree({b"a": b"2"})
    put_in_place(repo, tree, b"tree", repo.git("cat-file", "tree", evil))
    with TreeReader(repo.repository) as reader:
        for _ in range(2):
            with pytest.raises(EnvironmentFailure, match=f"tree {tree}: .* have another hash"):
                reader.listing(tree)
        assert set(reader.listing(evil)) == {b"a"}


def test_what_is_no_tree(repo: Repo) -> None:
    make = History(repo)
    blob = make.blob(b"1").decode()
    tree = make.tree({b"a": b"1"})
    with TreeReader(repo.repository) as reader:
        for oid in (blob, "1" * 40):
            with pytest.raises(EnvironmentFailure, match=f"git has no tree {oid}"):
                reader.listing(oid)
            with pytest.raises(EnvironmentFailure, match=f"git has no tree {oid}"):
                reader.between(tree, oid)
        for ask in (reader.listing, lambda oid: reader.between(tree, oid)):
            with pytest.raises(EnvironmentFailure, match="not an object id"):
                ask("HEAD")
        # A folder of which no tree is there, and a file in the place of one.
        for oid in (blob, "1" * 40):
            missing = written(repo, raw((FOLDER, b"a", bytes.fromhex(oid))))
            with pytest.raises(EnvironmentFailure, match=f"git has no tree {oid}"):
                reader.listing(missing)


def test_modes_that_git_takes_for_the_same(repo: Repo) -> None:
    old = written(repo, raw((b"100664", b"a")))
    new = written(repo, raw((FILE, b"a")))
    with TreeReader(repo.repository) as reader:
        assert reader.listing(old) == reader.listing(new)
        assert reader.between(old, new) == by_git(repo, old, new) == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from([FILE, FOLDER, b"120000", b"040000", b"1"]),
            st.one_of(
                st.sampled_from([b"a", b"a.b", b"a0", b"a-", b"", b"..", b".git", b"a/b"]),
                st.binary(max_size=3),
            ),
        ),
        max_size=5,
    ),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 99)),
)
def test_a_tree_is_read_or_its_fault_is_told(
    entries: list[tuple[bytes, bytes]], in_order: bool, cut: int | None
) -> None:
    """The two ways to read a tree, a fast one and one that finds words, agree."""
    if in_order:
        entries.sort(key=lambda entry: entry[1] + b"/" * (entry[0] == FOLDER))
    content = raw(*entries)[:cut]
    fault = trees._fault(content, 20)
    if fault is None:
        folder = trees._parse("1" * 40, content)
        assert raw(*((mode, name, oid) for mode, name, oid in folder.values())) == content
    else:
        with pytest.raises(EnvironmentFailure) as told:
            trees._parse("1" * 40, content)
        assert told.value.message == f"tree {'1' * 40} {fault}"


@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_any_two_trees_are_compared_as_git_does(tmp_path: Path, kind: str) -> None:
    repo = new_repo(tmp_path / "r", kind)
    make = History(repo)
    chance = random.Random(3)  # noqa: S311 - the same in every run
    names = [b"a", b"a.b", b"a0", b"a-", b"b", b"\xff\n", b"a b"]
    paths = [*names, *(one + b"/" + other for one in names for other in names), b"a/b/c/d/e"]
    commit = {"sha1": 40, "sha256": 64}[kind] * b"1"
    made = [make.tree({})]
    for _ in range(25):
        files: dict[bytes, bytes | tuple[int, bytes]] = {}
        for path in chance.sample(paths, chance.randrange(12)):
            if not any(p.startswith(path + b"/") or path.startswith(p + b"/") for p in files):
                what = chance.randrange(6)
                content = b"%d" % chance.randrange(3)
                files[path] = {
                    0: (EXECUTABLE, content), 1: (LINK, content), 2: (SUBMODULE, commit)
                }.get(what, content)  # fmt: skip
        made.append(make.tree(files))
    with TreeReader(repo.repository) as reader:
        for tree in made:
            assert reader.listing(tree) == listed_by_git(repo, tree)
        for _ in range(80):
            before, after = chance.choices(made, k=2)
            assert reader.between(before, after) == by_git(repo, before, after)
            some = chance.sample([*paths, b"a/b/c"], chance.randrange(1, 4))
            assert reader.between(before, after, ChosenPaths.of(some)) == by_git(
                repo, before, after, *some
            )
            assert reader.between(before, after, ChosenPaths.of([])) == []
            everywhere = reader.listing(after)
            assert reader.at(after, some) == {p: everywhere[p] for p in some if p in everywhere}


def test_folders_are_read_once(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    make = History(repo)
    files: dict[bytes, bytes] = {b"x/%d/a" % n: b"1" for n in range(4)}
    made = []
    for number in range(6):
        files[b"x/0/a"] = b"%d" % number
        made.append(make.tree(files))
    asked: list[str] = []
    read = TreeReader.read

    def counted(reader: TreeReader, oid: str, most: int) -> bytes:
        asked.append(oid)
        return read(reader, oid, most)

    monkeypatch.setattr(TreeReader, "read", counted)
    with TreeReader(repo.repository) as reader:
        for before, after in pairwise(made):
            assert [change.path for change in reader.between(before, after)] == [b"x/0/a"]
        # Of each tree three folders, and what did not change never.
        assert len(asked) == len(set(asked)) == 3 * len(made)
    asked.clear()
    monkeypatch.setattr(trees, "_MOST_CACHED", 3)
    with TreeReader(repo.repository) as reader:
        for tree in made:
            assert len(reader.listing(tree)) == 4
            assert len(reader._folders) <= 3
        assert reader._cached_entries == sum(map(len, reader._folders.values()))


def test_folders_deeper_than_the_stack(repo: Repo) -> None:
    make = History(repo)
    path = b"y/" * 1500 + b"end\n"
    deep = make.tree({path: b"1"})
    with TreeReader(repo.repository) as reader:
        assert list(reader.listing(deep)) == [path]
        assert list(reader.at(deep, [path])) == [path]
        assert [change.path for change in reader.between(make.tree({}), deep)] == [path]


def test_paths_of_any_bytes(repo: Repo) -> None:
    make = History(repo)
    names = [b"end\n", b"end\n.wsum", b"x/end\n", b"\xff 100644 a", b"x/:(top)*"]
    before, after = make.tree({b"a": b"1"}), make.tree(dict.fromkeys(names, b"1"))
    with TreeReader(repo.repository) as reader:
        found = reader.between(before, after)
        assert [change.path for change in found] == sorted([b"a", *names])
        assert [change.path for change in found if change.after is None] == [b"a"]
        assert [*reader.at(after, names)] == sorted(names)


def test_trees_that_name_too_much(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = History(repo).tree({b"a": b"1"})
    for _ in range(40):
        # Each has the one before twice: 2 to the 40 paths of some bytes.
        oid = bytes.fromhex(tree)
        tree = written(repo, raw((FOLDER, b"a", oid), (FOLDER, b"b", oid)))
    monkeypatch.setattr(trees, "MOST_ENTRIES", 1000)
    with TreeReader(repo.repository) as reader:
        with pytest.raises(EnvironmentFailure, match="names more than 1000 paths"):
            reader.listing(tree)
        assert set(reader.at(tree, [b"a/b", b"/".join([b"a"] * 41)])) == {b"/".join([b"a"] * 41)}
    monkeypatch.setattr(trees, "DEEPEST", 9)
    with TreeReader(repo.repository) as reader, pytest.raises(EnvironmentFailure, match="9 deep"):
        reader.listing(tree)
