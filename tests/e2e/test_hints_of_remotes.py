"""Hints about remotes that are git's or folders, each followed to its end: `test_every_hint.py` has
the table of all hints.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.hint_worlds import LISTS, OPTION, Row, Words, World, follow
from tests.e2e.sealed import Sealed, checkpoint
from tests.e2e.test_told_hints import DETACHED
from tests.kit import Repo
from tests.kit.pasting import HERE
from tests.store.chunks import damage

pytestmark = pytest.mark.slow

THERE = "../their clone"
"""The clone of somebody who has all data."""
FOLDER = "file://$(realpath ../..)/data"
MODEL = f"{HERE}/{DETACHED}"
NAMES_STORE = '[store]\n\turl = "{}"\n'


@pytest.fixture
def world(pastable: Sealed) -> World:
    return World(pastable.path)


def bare(world: World) -> Path:
    return world.path.parent / "bare"


def store(world: World) -> Path:
    return world.path / ".git" / "wtxt" / "store"


def there(world: World) -> Path:
    return world.path.parent / "data"


def committed(world: World, *, seed: int = 0) -> None:
    """Commit a detached text, whose data are here alone."""
    assert world.said("install", "--local")[0] == 0
    assert world.said("track", "--detached", "*.npz")[0] == 0
    np.savez(world.path / MODEL, w=np.arange(40_000.0) + seed)
    world.add(HERE)
    world.commit("detached")
    world.settle(MODEL)


def with_two_clones(world: World) -> None:
    """Have the commits at the remote, the data in another clone alone; nothing is fetched here."""
    committed(world)
    world.git("clone", "-q", "--bare", "--", str(world.path), str(bare(world)))
    world.git("remote", "add", "origin", bare(world).as_uri())
    world.git("config", "wtxtgit.fetch", "false")
    shutil.copytree(world.path, world.path / THERE)
    shutil.rmtree(store(world))


def not_sent(world: World) -> Words:
    with_two_clones(world)
    return ["fetch"]


def not_sent_to_a_checkout(world: World) -> Words:
    with_two_clones(world)
    world.git("config", "wtxtgit.fetch", "true")
    (world.path / MODEL).unlink()
    return ["git", "checkout", "--", DETACHED]


def damaged_there(world: World) -> None:
    """Have data in a folder, and damaged there."""
    with_two_clones(world)
    for clone in (world, Repo(world.path / THERE)):
        clone.git("config", "wtxtgit.store", there(world).as_uri())
    Repo(world.path / THERE).wtxtgit("push")
    (pack,) = there(world).glob("*.pack")
    damage(pack, pack.stat().st_size // 2)


def damaged_at_the_remote(world: World) -> Words:
    damaged_there(world)
    return ["fetch"]


def damaged_where_it_is_fetched_from(world: World) -> Words:
    damaged_there(world)
    world.git("config", "wtxtgit.fetch", "true")
    return ["restore", f"HEAD:{MODEL}", "-o", "x.npz"]


def far_from_an_export(world: World) -> Words:
    """Two commits lack their data; that of the first one is told of."""
    committed(world)
    committed(world, seed=1)
    world.git("clone", "-q", "--bare", "--", str(world.path), str(bare(world)))
    world.git("remote", "add", "origin", bare(world).as_uri())
    assert world.said("push")[0] == 0
    world.git("config", "wtxtgit.fetch", "false")
    shutil.rmtree(store(world))
    return ["migrate", "export", "--everything"]


def left_as_text(world: World) -> Words:
    with_two_clones(world)
    world.git("config", "--remove-section", "filter.wtxt-detached")
    (world.path / MODEL).unlink()
    world.git("checkout", "--", MODEL)
    return ["install", "--local"]


def no_remote(world: World) -> Words:
    committed(world)
    return ["push"]


def no_git_remote(world: World) -> Words:
    committed(world)
    assert world.said("store", "use", there(world).as_uri())[0] == 0
    assert world.said("push")[0] == 0
    world.git("clone", "-q", "--bare", "--", str(world.path), str(bare(world)))
    return ["store", "prune", "--remote"]


def no_remote_for_lfs(world: World) -> Words:
    committed(world)
    assert world.said("store", "use", "lfs")[0] == 0
    return ["push"]


def named_by_the_tree(world: World, url: str) -> Words:
    committed(world)
    world.write(".wtxt/store", NAMES_STORE.format(url))
    return ["push"]


def remote_of_the_tree_alone(world: World) -> Words:
    for name in ("origin", "other"):
        folder = world.path.parent / name
        world.git("init", "-q", "--bare", "--", str(folder))
        world.git("remote", "add", name, folder.as_uri())
    return named_by_the_tree(world, "git+other")


def folder_of_the_tree(world: World) -> Words:
    return named_by_the_tree(world, "file:///nowhere")


def served_folder_of_the_tree(world: World) -> Words:
    return named_by_the_tree(world, "https://example.com/store")


def only_read_here(world: World) -> Words:
    committed(world)
    there(world).mkdir()
    (there(world) / "packs.txt").touch()
    assert world.said("store", "use", "SERVED")[0] == 0
    return ["push"]


def no_url_of_a_store(world: World) -> Words:
    return ["store", "use", "/a/folder"]


def some_refs_stay(world: World) -> Words:
    assert world.said("install", "--local")[0] == 0
    world.write(f"{HERE}/x.npz", checkpoint(2.0))
    world.add(HERE)
    world.commit("a binary")
    world.git("branch", "topic")
    return ["migrate", "import", "--include", "*.npz"]


FOLLOWED = [
    (
        (
            "whoever committed it has to run wtxtgit push, in the clone that has the data; data of "
            "another fork comes once git remote add NAME URL names that"
        ),
        Row(not_sent, among_work=False, where=THERE),
    ),
    (
        (
            "whoever committed it has to run wtxtgit push, in the clone that has the data; data of "
            "another fork comes once git remote add NAME URL names that"
        ),
        Row(not_sent_to_a_checkout, where=THERE),
    ),
    (
        "wtxtgit push --check, in a clone that has the data, sends it again",
        Row(damaged_at_the_remote, where=THERE),
    ),
    (
        "wtxtgit push --check, in a clone that has the data, sends it again",
        Row(damaged_where_it_is_fetched_from, among_work=False, where=THERE),
    ),
    (
        "wtxtgit status shows which lack their data; wtxtgit verify PATH shows damage",
        Row(left_as_text, LISTS),
    ),
    ("wtxtgit store use URL names one", Row(no_remote, meant={"URL": f'"{FOLDER}"'})),
    (
        (
            "wtxtgit fetch $(git rev-list --all -- {}) -- {} fetches its data for all commits; no "
            "ref was moved"
        ),
        Row(far_from_an_export, among_work=False),
    ),
    (
        "git remote add NAME URL",
        Row(no_git_remote, meant={"NAME": "origin", "URL": "../bare"}),
    ),
    (
        "git remote add origin URL",
        # A server that is no git-lfs server is what is told of next.
        Row(no_remote_for_lfs, meant={"URL": "../bare"}, then=2),
    ),
    ("wtxtgit store use {}", Row(remote_of_the_tree_alone)),
    ("wtxtgit store use URL", Row(folder_of_the_tree, meant={"URL": f'"{FOLDER}"'})),
    (
        "wtxtgit store use URL, of the folder that it serves",
        Row(served_folder_of_the_tree, meant={"URL": f'"{FOLDER}"'}),
    ),
    (
        "--everything rewrites all branches and tags",
        Row(some_refs_stay, OPTION, among_work=False),
    ),
]


@pytest.mark.parametrize(("hint", "row"), FOLLOWED, ids=[row.make.__name__ for _, row in FOLLOWED])
def test_it_ends_what_it_speaks_of(hint: str, row: Row, world: World) -> None:
    follow(world, hint, row)
