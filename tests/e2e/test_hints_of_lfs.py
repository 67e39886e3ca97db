"""Hints about git-lfs, each followed to its end with git-lfs itself: `test_every_hint.py` has the
table of all hints.
"""

from __future__ import annotations

import os
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from tests.e2e.hint_worlds import DOCTOR, INSTEAD, OPTION, Row, Words, World, follow
from tests.e2e.sealed import Sealed, checkpoint
from tests.kit import Repo
from tests.kit.pasting import HERE, paste
from tests.remotes.lfs_server import Server, server, started
from wtxtgit.text.grammar import LFS_MAGIC, is_text

__all__ = ["server", "started"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.remote,
    pytest.mark.skipif(
        shutil.which("git-lfs") is None, reason="git-lfs is not installed: make bench-deps"
    ),
]

URL = "LFS_URL"
"""The variable that has the address of the server."""
NAMES = ("it s.npz", "another.npz")
LFS = "*.npz filter=lfs diff=lfs merge=lfs -text\n"


@pytest.fixture
def world(pastable: Sealed, server: Server, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv(URL, server.url)
    return World(pastable.path)


def author(world: World) -> Path:
    """The clone of who has git-lfs, beside the one in which hints are followed."""
    return world.path.parent / "author"


def origin(world: World) -> Path:
    return world.path.parent / "bare"


def versions(number: int) -> dict[str, bytes]:
    return {name: checkpoint(float(number), place) for place, name in enumerate(NAMES)}


def cloned(world: World, *, commits: int = 1, is_served: bool = False, folder: str = ".") -> None:
    """Clone a history whose files git-lfs has pushed, without git-lfs: they stand as pointers.

    They are in the folder of the remote, which only git-lfs itself can read, or on a server. The
    attributes are those of a folder.
    """
    if is_served:
        world.git("config", "--global", "lfs.url", os.environ[URL])
    world.git("clone", "-q", "--bare", "--", str(world.path), str(origin(world)))
    world.git("clone", "-q", "--", origin(world).as_uri(), str(author(world)))
    theirs = Repo(author(world))
    theirs.git("lfs", "install", "--local")
    (theirs.path / HERE).mkdir()
    with (theirs.path / folder / ".gitattributes").open("a") as file:
        file.write(LFS)
    for number in range(commits):
        for name, content in versions(number).items():
            theirs.write(f"{HERE}/{name}", content)
        theirs.add()
        theirs.commit(f"commit {number}")
    theirs.git("push", "-q", "origin", "HEAD:main")
    shutil.rmtree(world.path)
    Repo(world.path.parent).git("clone", "-q", origin(world).as_uri(), world.path)
    for name in NAMES:
        assert (world.path / HERE / name).read_bytes().startswith(LFS_MAGIC)
    assert world.said("install", "--local")[0] == 0


def fetched(world: World) -> None:
    """Clone such a history, whose objects git-lfs has fetched."""
    cloned(world)
    world.git("lfs", "fetch")


def attributes_say_text(world: World, *, is_served: bool = True) -> None:
    cloned(world, is_served=is_served)
    assert world.said("track", "*.npz")[0] == 0
    world.add()
    world.commit("track")


def committed_as_pointers(world: World) -> Words:
    attributes_say_text(world)
    return DOCTOR


def tracked_pointers(world: World) -> Words:
    cloned(world, is_served=True)
    return ["track", "*.npz"]


def pointer_that_nobody_seals(world: World) -> Words:
    attributes_say_text(world)
    return ["seal", "--staged", "--key", "alice", "--", NAMES[0]]


def objects_that_only_git_lfs_can_fetch(world: World) -> Words:
    attributes_say_text(world, is_served=False)
    return ["fetch"]


def pointers_of_earlier_commits(world: World) -> Words:
    cloned(world, commits=2, is_served=True, folder=HERE)
    return ["track", "*.npz"]


def a_pointer_in_a_commit(world: World) -> Words:
    cloned(world)
    return ["inspect", f"HEAD:{HERE}/{NAMES[0]}"]


def a_pointer_in_a_folder(world: World) -> Words:
    cloned(world)
    return ["inspect", NAMES[0]]


def import_of_pointers(world: World) -> Words:
    fetched(world)
    return ["migrate", "import", "--include", "*.npz"]


def import_of_nothing(world: World) -> Words:
    fetched(world)
    return ["migrate", "import"]


def import_of_objects_that_are_elsewhere(world: World) -> Words:
    cloned(world, commits=2)
    return ["migrate", "import", "--from-lfs"]


def objects_to_import_that_are_elsewhere(world: World) -> Words:
    cloned(world, commits=2)
    return ["store", "import", "--from-lfs", "--all"]


def damaged_object(world: World) -> Words:
    """One that HEAD does not have, which `git lfs fsck` does not look at."""
    cloned(world, commits=2)
    world.git("lfs", "fetch", "--all")
    digest = sha256(versions(0)[NAMES[0]]).hexdigest()
    (there,) = (world.path / ".git/lfs/objects").rglob(digest)
    content = there.read_bytes()
    # git-lfs may have linked the file that the remote has.
    there.unlink()
    there.write_bytes(content[::-1])
    return ["store", "import", "--from-lfs", "--all"]


def imported(world: World) -> None:
    fetched(world)
    assert world.said("migrate", "import", "--from-lfs")[0] == 0


def export_without_git_lfs(world: World) -> Words:
    imported(world)
    return ["migrate", "export", "--to-lfs"]


def export_with_hooks(world: World) -> Words:
    """git-lfs sets up its filter, and then says how to merge its hooks with those here."""
    imported(world)
    assert world.said("install", "--local", "--hooks")[0] == 0
    return ["migrate", "export", "--to-lfs"]


def export_that_a_line_of_lfs_matches(world: World) -> Words:
    cloned(world)
    assert world.said("track", "*.npz")[0] == 0
    for name, content in versions(3).items():
        world.write(f"{HERE}/{name}", content)
    world.add()
    world.commit("texts")
    world.git("lfs", "install", "--local")
    return ["migrate", "export"]


def a_remote_has_the_old_commits(world: World) -> Words:
    fetched(world)
    return ["migrate", "import", "--everything", "--from-lfs"]


def server_that_is_not_known(world: World) -> Words:
    cloned(world)
    assert world.said("track", "--detached", "*.npz")[0] == 0
    (world.path / HERE / NAMES[0]).write_bytes(checkpoint(5.0) * 1000)
    world.add()
    world.commit("detached")
    assert world.said("store", "use", "lfs")[0] == 0
    return ["push"]


FOLLOWED = [
    ("wtxtgit fetch, then git add --renormalize -- {}", Row(committed_as_pointers)),
    (
        "{} stages the files as text for the next commit",
        Row(tracked_pointers),
    ),
    ("wtxtgit fetch fetches the file, then git add -- {}", Row(pointer_that_nobody_seals)),
    ("git lfs fetch --all", Row(objects_that_only_git_lfs_can_fetch)),
    ("git lfs fetch --all", Row(import_of_objects_that_are_elsewhere)),
    ("git lfs fetch --all", Row(objects_to_import_that_are_elsewhere)),
    (
        (
            "git add -- .gitattributes, then git commit, then wtxtgit migrate import --from-lfs {} "
            "converts earlier commits too"
        ),
        Row(pointers_of_earlier_commits),
    ),
    ("git show {} | git lfs smudge > FILE writes the file", Row(a_pointer_in_a_commit, INSTEAD)),
    (
        "git lfs install, then git lfs pull; wtxtgit fetch, if wtxtgit tracks it",
        Row(a_pointer_in_a_folder),
    ),
    (
        "--from-lfs converts the files that they point to",
        Row(import_of_pointers, OPTION),
    ),
    (
        "--include PATTERN selects files, --from-lfs all files of git-lfs",
        Row(import_of_nothing, OPTION, meant={"--include PATTERN selects files, ": ""}),
    ),
    ("mv -i -- {} {}.damaged, then git lfs fetch --all", Row(damaged_object)),
    ("git lfs install", Row(export_without_git_lfs)),
    ("git lfs install", Row(export_with_hooks, ends=(2,))),
    (
        "--to-lfs turns the files into git-lfs pointers",
        Row(export_that_a_line_of_lfs_matches, OPTION),
    ),
    ("git config lfs.url URL", Row(server_that_is_not_known, meant={"URL": f'"${URL}"'})),
    (
        "git push --force-with-lease --all -- {} moves its branches",
        Row(a_remote_has_the_old_commits),
    ),
]


@pytest.mark.parametrize(("hint", "row"), FOLLOWED, ids=[row.make.__name__ for _, row in FOLLOWED])
def test_it_ends_what_it_speaks_of(hint: str, row: Row, world: World) -> None:
    follow(world, hint, row)


def test_what_is_written_is_the_file(world: World) -> None:
    follow(world, *next(one for one in FOLLOWED if one[1].make is a_pointer_in_a_commit))
    assert (world.path / HERE / "file").read_bytes() == versions(0)[NAMES[0]]


def test_the_branches_of_the_remote_have_moved(world: World) -> None:
    follow(world, *next(one for one in FOLLOWED if one[1].make is a_remote_has_the_old_commits))
    theirs = Repo(origin(world))
    assert is_text(theirs.blob(f"{HERE}/{NAMES[0]}", "main"))
    assert theirs.git("rev-parse", "main") == world.git("rev-parse", "main")


def test_earlier_commits_are_converted(world: World) -> None:
    follow(world, *next(one for one in FOLLOWED if one[1].make is pointers_of_earlier_commits))
    for revision in ("HEAD", "HEAD~1", "HEAD~2"):
        assert is_text(world.blob(f"{HERE}/{NAMES[0]}", revision))


def test_a_changed_file_is_no_pointer(world: World) -> None:
    """Nor is another one looked for where a path was named."""
    attributes_say_text(world)
    (world.path / HERE / NAMES[0]).write_bytes(b"changed")
    assert world.said("fetch", NAMES[0])[0] == 0
    assert (world.path / HERE / NAMES[0]).read_bytes() == b"changed"
    assert (world.path / HERE / NAMES[1]).read_bytes().startswith(b"version ")
    told = world.said("fetch", "--dry-run")
    assert (told[0], told[1]) == (0, "")
    assert "1 object would be fetched from git-lfs" in told[2]
    told = world.said("fetch")
    assert told[:2] == (
        0,
        "1 file of git-lfs written; git add stores it as text\n0 files written\n",
    )
    assert (world.path / HERE / NAMES[1]).read_bytes() == versions(0)[NAMES[1]]
    assert (world.path / HERE / NAMES[0]).read_bytes() == b"changed"


def test_a_pointer_that_wtxtgit_tracks(world: World) -> None:
    attributes_say_text(world)
    words = ("inspect", NAMES[0])
    code, _, err = world.said(*words)
    assert (code, err.rstrip().endswith("wtxtgit fetch, if wtxtgit tracks it")) == (3, True)
    paste(world, "wtxtgit fetch")
    assert world.said(*words)[0] == 0


def test_nothing_is_written_through_a_link(world: World) -> None:
    attributes_say_text(world)
    outside = world.path.parent / "outside"
    (world.path / HERE).rename(outside)
    (world.path / HERE).symlink_to(outside)
    world.call("fetch", ok=(5,))
    for name in NAMES:
        assert (outside / name).read_bytes().startswith(LFS_MAGIC)
