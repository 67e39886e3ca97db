"""A repository of somebody hostile: nothing in it runs, no link in it is written through."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.faults.world import COMMANDS, Call, World, environment, make
from tests.kit.starts import BIN

pytestmark = pytest.mark.slow

MODULES = (
    *("numpy", "click", "json", "blake3", "sqlite3", "rich", "zstandard", "tempfile", "subprocess"),
    *("sitecustomize", "usercustomize", "pybase64", "crc32c", "isal", "msgpack", "jinja2", "nacl"),
    *("pyrage", "wtxt", "random", "shutil", "struct", "gc", "signal", "pathlib", "threading"),
)
PROGRAMS = ("git", "ssh-agent", "ssh-keygen", "sh", "less", "python", "python3", "wtxtgit")
STARTS = {
    "python -m": (str(BIN / "python"), "-m", "wtxtgit"),
    "script": (str(BIN / "wtxtgit"),),
    "git-wtxt": (str(BIN / "git-wtxt"),),
}
TARGETS = {
    "install --local --hooks": ("model.safetensors", "small.fold"),
    "track *.gguf": (".gitattributes",),
    "untrack *.fold": (".gitattributes",),
    "checkout model.safetensors": ("model.safetensors",),
    "checkout topic -- small.fold": ("small.fold",),
    "git checkout -q topic": ("small.fold",),
    "git merge -q --no-edit topic": ("small.fold",),
    "resolve small.fold --strategy ours": ("small.fold", "small.fold.wsum"),
    "seal --key alice": ("model.safetensors.wsum", ".wtxt", ".wtxt/signers.wsum"),
    "seal --staged --key alice": ("model.safetensors.wsum", ".wtxt", ".wtxt/signers.wsum"),
    "signers add bob@example.com ../files/openssh.pub": (".wtxt", ".wtxt/signers"),
    "signers threshold 1": (".wtxt", ".wtxt/signers"),
    "recover --ecc ../files/flipped.fold": ("../files/flipped.fold",),
    **{
        name: (call.line.rpartition(" ")[2],)
        for name, call in COMMANDS.items()
        if "../files/out" in call.line
    },
}
"""What commands write, as seen from the repository that they run in."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "template"
    make(folder)
    return folder


@pytest.fixture
def world(template: Path, tmp_path: Path) -> World:
    return World(Path(shutil.copytree(template, tmp_path / "world", symlinks=True)))


@pytest.mark.true_start
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_nothing_in_the_current_folder_runs(start: tuple[str, ...], world: World) -> None:
    marker, repo = world.folder / "marker", world.folder / "repo"
    evil = f"open({os.fspath(marker)!r}, 'a').write(__name__ + '\\n')\n"
    for name in MODULES:
        (repo / f"{name}.py").write_text(evil)
    for name in PROGRAMS:
        (repo / name).write_text(f"#!/bin/sh\necho {name} >> '{marker}'\n")
        (repo / name).chmod(0o755)
    env = environment(world.folder / "home")
    env["PATH"] = f".:{env['PATH']}:."
    for line in (
        "--help",
        "status",
        "seal --key alice",
        "emit changed.safetensors -o ../files/out.wtxt",
        "inspect changed.safetensors",
        "review root..HEAD --format html -o ../files/out.html",
        "verify small.fold",
    ):
        done = subprocess.run(
            (*start, *line.split()), cwd=repo, env=env, capture_output=True, check=False
        )
        assert done.returncode == 0, (line, done.stderr)
        assert not marker.exists(), (line, marker.read_text())


def test_a_module_in_the_current_folder_would_run(world: World) -> None:
    """The test above sees something."""
    repo = world.folder / "repo"
    (repo / "numpy.py").write_text("raise SystemExit(99)")
    done = subprocess.run((str(BIN / "python"), "-c", "import numpy"), cwd=repo, check=False)
    assert done.returncode == 99


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("name", "target"), [(name, target) for name, targets in TARGETS.items() for target in targets]
)
def test_no_link_is_written_through(name: str, target: str, world: World) -> None:
    call = COMMANDS.get(name) or Call(name)
    outside, link = world.folder / "outside", world.folder / call.folder / target
    outside.mkdir()
    victim = outside / "victim"
    if link.exists():
        link.rename(victim)
    else:
        victim.write_bytes(b"somebody's")
    link.symlink_to(victim)
    before = contents(outside)
    process = world.start(call)
    _, err = process.communicate()
    assert contents(outside) == before
    assert process.returncode in (0, 1, 2, 3, 4, 5)
    assert b"Traceback" not in err
