"""Hints about places that servers give, each followed to its end: `test_every_hint.py` has the
table of all hints.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.stores import HTTP
from tests.e2e.hint_worlds import Row, Words, World, follow
from tests.e2e.sealed import MODEL as SEALED
from tests.e2e.sealed import Sealed
from tests.e2e.test_hints_of_remotes import (
    FOLDER,
    THERE,
    bare,
    committed,
    no_url_of_a_store,
    with_two_clones,
)
from tests.kit.pasting import paste
from tests.remotes import servers
from tests.remotes.behaviour import SECRET
from tests.remotes.servers import USER
from tests.remotes.test_registry import PROGRAM, guarded
from tests.remotes.test_s3 import bucket, credentials, server

__all__ = ["bucket", "credentials", "guarded", "server"]
pytestmark = [pytest.mark.slow, pytest.mark.remote]

ADDRESS, SERVED = "ADDRESS", "SERVED"
"""Variables that have a server's HOST:PORT, and the folder of which it gives the files."""
CREDENTIALS = "leave them out, and git asks its helpers for them: git help credentials"
EXAMPLES = (
    "it may be git+REMOTE, lfs, oci://HOST/NAME, file:///FOLDER, s3://BUCKET/FOLDER or "
    "another URL of fsspec, or https://HOST/FOLDER, which is read-only"
)
APART = (CREDENTIALS, EXAMPLES)
"""Those that have tests of their own below."""


@pytest.fixture
def world(pastable: Sealed) -> World:
    return World(pastable.path)


@pytest.fixture
def folder_that_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    folder = tmp_path / "served"
    folder.mkdir()
    monkeypatch.setenv(SERVED, str(folder))
    with servers.files(folder) as host:
        yield host


def nothing_was_sent_there(world: World) -> Words:
    with_two_clones(world)
    world.git("config", "wtxtgit.store", f"{HTTP}{os.environ[ADDRESS]}")
    return ["fetch"]


def registry_that_asks_who(world: World) -> Words:
    committed(world)
    assert world.said("store", "use", f"oci://{os.environ[ADDRESS]}/models/private")[0] == 0
    return ["push"]


@contextmanager
def repositories(world: World) -> Iterator[str]:
    """Serve the repositories beside this one for who says the password; gives `HOST:PORT`."""
    world.git("clone", "-q", "--bare", "--", str(world.path), str(bare(world)))
    world.git("-C", str(bare(world)), "config", "http.receivepack", "true")
    with servers.git_backend(world.path.parent, asks_who=True) as host:
        yield host


FOLLOWED = [
    (
        (
            "whoever committed it has to run wtxtgit store use URL, of the folder that it serves, "
            "then wtxtgit push, in the clone that has the data"
        ),
        Row(
            nothing_was_sent_there,
            among_work=False,
            meant={"URL": f'"file://${SERVED}"'},
            where=THERE,
        ),
    ),
    (
        "docker login {}, or oras login {}",
        # It asks for these at the terminal.
        Row(
            registry_that_asks_who,
            meant={"docker login": f"echo {SECRET} | docker login -u {USER} --password-stdin"},
        ),
    ),
]


SERVERS = {
    nothing_was_sent_there: "folder_that_is_served",
    registry_that_asks_who: "guarded",
}


@pytest.mark.parametrize(("hint", "row"), FOLLOWED, ids=[row.make.__name__ for _, row in FOLLOWED])
def test_it_ends_what_it_speaks_of(
    hint: str,
    row: Row,
    world: World,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if row.make is registry_that_asks_who:
        for program in (PROGRAM, shutil.which("docker")):
            if program is None:
                pytest.skip("docker-registry and docker are not installed")
    monkeypatch.setenv(ADDRESS, request.getfixturevalue(SERVERS[row.make]))
    follow(world, hint, row)


def without_password(world: World, words: Words) -> None:
    """Follow the hint of a command whose URL has a password: a helper of git knows it instead."""
    code, _, err = world.said(*words)
    assert (code, SECRET in err) == (2, False)
    assert err.endswith(f"contains credentials\nwtxtgit: hint: {CREDENTIALS}\n")
    (url,) = (word for word in words if SECRET in word)
    host = re.search(r"@([0-9.:]+)/", url)
    assert host
    paste(world, "git config --global credential.helper store")
    told = f"protocol=http\nhost={host[1]}\nusername={USER}\npassword={SECRET}\n"
    paste(world, f"printf '{told}' | git credential approve")
    others = [word.replace(f"{USER}:{SECRET}@", "") for word in words]
    code, _, err = world.said(*others)
    assert (code, err) == (0, "")


def test_a_store_whose_url_has_a_password(world: World) -> None:
    committed(world)
    with repositories(world) as host:
        without_password(world, ["store", "use", f"git+{HTTP}{USER}:{SECRET}@{host}/bare"])
        code, out, err = world.said("push")
    assert (code, err) == (0, "")
    assert "1 pack" in out


def test_a_repository_whose_url_has_a_password(world: World) -> None:
    with repositories(world) as host:
        url = f"git+{HTTP}{USER}:{SECRET}@{host}/bare#main:{SEALED}"
        without_password(world, ["verify", url])


@pytest.mark.parametrize("example", ["git+REMOTE", "file:///FOLDER", "s3://BUCKET/FOLDER"])
def test_each_example_of_a_store(world: World, bucket: str, example: str) -> None:
    """`lfs` is one that `test_hints_of_lfs.py` uses."""
    committed(world)
    world.git("clone", "-q", "--bare", "--", str(world.path), str(bare(world)))
    world.git("remote", "add", "origin", bare(world).as_uri())
    _, _, err = world.said(*no_url_of_a_store(world))
    assert f"hint: {EXAMPLES}\n" in err
    assert example in EXAMPLES
    meant = {"REMOTE": "origin", "file:///FOLDER": FOLDER, "BUCKET/FOLDER": f"{bucket}/models"}
    url = next(example.replace(name, told) for name, told in meant.items() if name in example)
    paste(world, f'wtxtgit store use "{url}"')
    code, out, err = world.said("push")
    assert (code, err) == (0, "")
    assert "1 pack" in out
