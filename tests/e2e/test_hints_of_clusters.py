"""Hints about Dask's schedulers and workers, each followed to its end with real processes:
`test_every_hint.py` has the table of all hints.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cluster.processes import Processes, busy, with_write_end
from tests.e2e.hint_worlds import World
from tests.e2e.sealed import ROOT, Sealed, checkpoint
from tests.kit import LAUNCHER
from tests.kit.pasting import HERE
from wtxtgit.cluster import client

pytestmark = pytest.mark.slow

ADDRESS = "--scheduler tcp://HOST:8786, which dask scheduler prints when it starts"
FOLDER = "-o takes a folder that is shared with the workers, or a URL"
CLONE = "--worker-clone is where the workers' clone is; it must have all that this one has"
APART = (
    ADDRESS,
    FOLDER,
    CLONE,
    "dask worker {}",
    "workers usually die for lack of memory: dask worker {} --memory-limit SIZE",
)


@pytest.fixture
def world(pastable: Sealed) -> World:
    found = World(pastable.path)
    found.write(f"{HERE}/x", checkpoint(2.0))
    return found


def hint_of(world: World, *words: str, code: int) -> str:
    """The hint of a command that fails."""
    done = world.said(*words)
    assert done[0] == code, done
    return done[2].splitlines()[-1].removeprefix("wtxtgit: hint: ")


@pytest.mark.parametrize("address", ["the scheduler", "tcp://"])
def test_an_address(world: World, shared: Processes, address: str) -> None:
    hint = hint_of(world, "verify", "x", "--scheduler", address, code=2)
    assert hint == ADDRESS
    option = hint.partition(",")[0].replace("tcp://HOST:8786", shared.address)
    assert world.said("verify", "x", *option.split())[0] == 0


def test_a_worker_in_the_place_of_a_scheduler(world: World, shared: Processes) -> None:
    worker = next(iter(shared.workers))
    assert hint_of(world, "verify", "x", "--scheduler", worker, code=2) == ADDRESS
    assert world.said("verify", "x", "--scheduler", shared.address)[0] == 0


def test_no_workers(world: World, lone: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("verify", "x", "--scheduler", lone.address)
    with monkeypatch.context() as patch:
        patch.setattr(client, "_FIRST_WORKER", 1)
        hint = hint_of(world, *words, code=5)
    assert hint == f"dask worker {lone.address}"
    lone.run(hint)
    assert world.said(*words)[0] == 0


@pytest.mark.parametrize("other", ["shared/", "file://{}/shared/"])
def test_a_folder_of_the_workers_alone(world: World, lone: Processes, other: str) -> None:
    """A worker sees another folder there, as one on another machine would."""
    folder = world.path / HERE
    for name in ("out", "shared"):
        (folder / name).mkdir()
    hides = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
    mounts = f"mount -t tmpfs none {shlex.quote(str(folder / 'out'))}"
    if shutil.which("unshare") is None or subprocess.run([*hides, mounts], check=False).returncode:
        pytest.skip("this system lets no user mount anything")
    lone.add_worker(before=[*hides, f'{mounts} && exec "$@"', "sh"])
    words = ("emit", "x", "--scheduler", lone.address, "-o")
    assert hint_of(world, *words, "out/", code=5) == FOLDER
    code, _, err = world.said(*words, other.format(folder))
    assert (code, err) == (0, "")
    assert [file.name for file in (folder / "shared").iterdir()] == ["x.wtxt"]


@pytest.mark.parametrize("lacks", ["the folder", "a commit"])
def test_a_clone(world: World, shared: Processes, lacks: str) -> None:
    clone = world.path.parent / "clone"
    if lacks == "a commit":
        world.git("clone", "-q", "--bare", "--", str(world.path), str(clone))
    world.generation(2.0)
    words = ("audit", "--trust-root", ROOT, "--no-cache", "--scheduler", shared.address)
    hint = hint_of(world, *words, "--worker-clone", str(clone), code=5)
    assert hint == CLONE
    if lacks == "a commit":
        world.git("push", "-q", str(clone), "HEAD:main")
    else:
        world.git("clone", "-q", "--bare", "--", str(world.path), str(clone))
    assert world.said(*words, "--worker-clone", str(clone))[0] == 0


def test_workers_that_die(world: World, tmp_path: Path) -> None:
    """They are killed while they read a named pipe, as the system does that is out of memory."""
    pipe = world.path / HERE / "pipe"
    os.mkfifo(pipe)
    variables = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    with Processes(tmp_path / "cluster", variables=variables) as cluster:
        cluster.add_worker()
        # So that the run does not end for lack of workers.
        cluster.add_worker()
        words = ("verify", "pipe", "--scheduler", cluster.address)
        given = [*LAUNCHER.arguments, *words]
        with subprocess.Popen(given, cwd=pipe.parent, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            end = with_write_end(pipe)
            (reading,) = busy(cluster.watcher(), lambda tasks: len(tasks) == 1)
            cluster.workers.pop(reading).kill()
            err = process.stderr.read()
            os.close(end)
        assert process.returncode == 5
        told = err.decode().splitlines()[-1].removeprefix("wtxtgit: hint: ")
        why, _, command = told.partition(": ")
        assert why == "workers usually die for lack of memory"
        assert command == f"dask worker {cluster.address} --memory-limit SIZE"
        for left in cluster.workers.values():
            left.kill()
        cluster.run(command.replace("SIZE", "2GiB"))
        pipe.unlink()
        pipe.write_bytes(checkpoint(3.0))
        assert world.said(*words)[0] == 0
