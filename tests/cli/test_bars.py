"""What long commands show while they work: on a terminal a bar that ends as the work does and then
is gone, and elsewhere nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.world import MODEL, Call, World, environment, make, model
from tests.kit.fork_server import HURRIED
from tests.kit.starts import BIN, FOLDER
from tests.kit.terminal import on_a_terminal, screens
from wtxtgit.cli.front_page import COMMANDS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        FOLDER == BIN, reason="without a C compiler all starts are true ones: apt install gcc"
    ),
]
_SIZE = r"[\d,.]+ [KMGT]?i?B"
_BYTES = re.compile(rf"({_SIZE}) of ({_SIZE})")
_COUNT = re.compile(r"\b([\d,]+) of ([\d,]+) [a-z]+")
_FIGURES = re.compile(rf"( left|{_SIZE}|{_SIZE}/s)$")

LONG = [
    Call("migrate info"),
    Call("migrate import --include *.safetensors --everything", folder="raw"),
    Call("migrate import --include *.safetensors --detached", folder="raw"),
    Call("migrate export --everything", folder="detached"),
    Call("add changed.safetensors"),
    Call("add changed.safetensors small.fold"),
    Call("checkout"),
    Call("status"),
    Call("inspect changed.safetensors"),
    Call("inspect HEAD~1:model.safetensors"),
    Call("verify ../files/model.wtxt"),
    Call("verify small.fold"),
    Call("verify ../files/model.wtxt small.fold changed.safetensors"),
    Call("verify model.safetensors.wsum"),
    Call("diff ../files/1.safetensors changed.safetensors"),
    Call("diff HEAD~1:model.safetensors changed.safetensors"),
    Call("review root..HEAD"),
    Call("history model.safetensors"),
    Call(
        "merge-file :1:small.fold :2:small.fold :3:small.fold --strategy ours -o ../files/out.fold",
        folder="merging",
    ),
    Call("resolve small.fold --strategy ours", folder="merging"),
    Call("emit changed.safetensors -o ../files/out.wtxt"),
    Call("restore ../files/model.wtxt -o ../files/out"),
    Call("attach ../files/model.wtxt -o ../files/out"),
    Call("detach ../files/model.wtxt -o ../files/out"),
    Call("finalize ../files/pending.wtxt"),
    Call("convert small.fold ../files/out.safetensors"),
    Call("repack ../files/1.fold --compression none -o ../files/out.fold"),
    Call("recover ../files/damaged.wtxt -o ../files/out"),
    Call("recover ../files/flipped.fold -o ../files/out.safetensors"),
    Call("recover --ecc ../files/flipped.fold"),
    Call("delta make ../files/1.safetensors changed.safetensors -o ../files/out.wtxtdelta"),
    Call("delta apply ../files/1.safetensors ../files/model.wtxtdelta -o ../files/out"),
    Call("encrypt changed.safetensors -R ../files/recipients -o ../files/out.wtxt.age"),
    Call("decrypt ../files/old.wtxt.age -i ../files/identity -o ../files/out.wtxt"),
    Call("rekey ../files/old.wtxt.age -R ../files/both -i ../files/identity"),
    Call("taridx build ../files/train_0.tar -o ../files/out.taridx"),
    Call("taridx verify ../files/train.taridx"),
    Call("fetch", folder="lacking"),
    Call("push", folder="detached"),
    Call("store verify"),
    Call("store repack"),
    Call("store import --from-lfs refs/lfs/tree"),
    Call("ring verify ../files/exp1"),
    Call("ring push ../files/exp1 --to ../files/sent"),
    Call("pull ../files/exp1 -o ../files/out.safetensors"),
    Call("seal --key alice", folder="staged"),
    Call("check --staged", folder="staged", finds=True),
    Call("audit --trust-root root"),
    Call("log model.safetensors topic"),
    Call("log model.safetensors", folder="raw"),
    Call("ls-files"),
    Call("ls-files HEAD~1"),
    Call("doctor"),
    Call("taridx cat ../files/train.taridx a.txt"),
    Call("hook pre-commit", folder="staged", finds=True),
    Call("hook pre-push origin", stdin="pushed"),
    Call("release root --trust-root root --key alice -o ../files/out.sig"),
    Call("git --no-pager diff HEAD~1 -- model.safetensors"),
    Call("git merge -q --no-edit topic", folder="apart", finds=True),
]
UNKNOWN = [
    Call("cat changed.safetensors w -o ../files/out.npy"),
    Call("reseal ../files/aeroset"),
    Call("git add changed.safetensors"),
    Call("git checkout -q topic"),
]
"""Commands that learn only bit by bit how much there is to do."""
SHORT = {
    *("install", "uninstall", "track", "untrack", "key", "signers"),
    # One file for git, which shows its own progress where it runs them.
    *("filter-process", "clean", "smudge", "diff-driver", "merge-driver"),
}
"""Commands that read no checkpoint as a whole, or that git starts."""


def test_every_command_is_here() -> None:
    tried = {call.line.split()[0] for call in (*LONG, *UNKNOWN)} - {"git"}
    assert {*COMMANDS} == tried | SHORT
    assert tried.isdisjoint(SHORT)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bars") / "template"
    make(folder)
    text = bytearray((folder / "files/model.wtxt").read_bytes())
    text[-70_000] = ord("A") if text[-70_000] != ord("A") else ord("B")
    (folder / "files/damaged.wtxt").write_bytes(text)
    # Both sides change the same file, and a driver merges it.
    world = World(folder)
    shutil.copytree(folder / "merging", folder / "apart")
    world.git("merge", "--abort", folder="apart")
    tip = world.git("rev-parse", "HEAD").decode().strip()
    pushed = f"refs/heads/main {tip} refs/heads/main {'0' * 40}\n"
    (folder / "files/pushed").write_text(pushed)
    world.git("init", "-q", "--bare", "../origin.git")
    world.git("remote", "add", "origin", "../origin.git")
    return folder


@pytest.fixture
def world(template: Path, tmp_path: Path) -> Iterator[World]:
    folder = tmp_path / "world"
    shutil.copytree(template, folder, symlinks=True)
    yield World(folder)
    shutil.rmtree(folder)


def run(
    world: World, call: Call, outputs: str = "both", **env: str
) -> tuple[int, bytes, list[str], list[str]]:
    """Exit code, standard output if not shown, each state of a shown line, and what is left."""
    given = world.folder / "files" / call.stdin if call.stdin else Path(os.devnull)
    with given.open("rb") as stdin:
        code, out, told = on_a_terminal(
            call.argv,
            env={
                **environment(world.folder / "home"),
                **{"TERM": "xterm", "COLUMNS": "120", HURRIED: "1", "NO_COLOR": "1"},
                **env,
            },
            cwd=world.folder / call.folder,
            stdin=stdin,
            outputs=outputs,
        )
    return code, out, *screens(told)


def bars(shown: list[str]) -> list[str]:
    return [line for line in shown if "━" in line or _FIGURES.search(line)]


@pytest.mark.parametrize("call", LONG, ids=lambda call: call.line)
def test_a_bar_ends_with_the_work(world: World, call: Call) -> None:
    if call.line in ("checkout", "status"):
        (world.folder / call.folder / MODEL).unlink()
    if call.line == "status":
        (world.folder / call.folder / MODEL).write_bytes(model(5))
    code, _, shown, left = run(world, call, outputs="error")
    assert code == (1 if call.finds else 0), left
    seen = bars(shown)
    assert seen, left
    last = seen[-1]
    done = [*_BYTES.findall(last), *_COUNT.findall(last)]
    assert done, last
    assert all(one == whole for one, whole in done), last
    assert not bars(left), left
    assert all(line.startswith("wtxtgit: ") for line in left), left
    assert max(map(len, seen)) <= 120


@pytest.mark.parametrize("call", UNKNOWN, ids=lambda call: call.line)
def test_work_of_unknown_size_is_counted(world: World, call: Call) -> None:
    code, _, shown, left = run(world, call, outputs="error")
    assert code == 0, left
    assert re.search(_SIZE, bars(shown)[-1]), shown
    assert not bars(left), left


_FEW = ["verify ../files/model.wtxt", "add changed.safetensors", "audit --trust-root root"]


@pytest.mark.parametrize("line", _FEW)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_bar_fits_any_width(world: World, line: str, width: int) -> None:
    _, _, shown, left = run(world, Call(line), COLUMNS=str(width))
    assert max(map(len, bars(shown))) <= width
    assert _BYTES.search(bars(shown)[-1])
    assert not bars(left)


@pytest.mark.parametrize("line", _FEW)
def test_a_terminal_that_cannot_move_its_cursor_gets_none(world: World, line: str) -> None:
    for term in ("dumb", "unknown"):
        _, _, shown, left = run(world, Call(line), TERM=term)
        assert not bars(shown)
        assert [one.rstrip() for one in shown if one.strip()] == left


@pytest.mark.parametrize("line", [*_FEW, "store verify"])
def test_a_pipe_gets_none(world: World, line: str) -> None:
    process = world.start(Call(line), {HURRIED: "1", "TERM": "xterm"})
    for output in process.communicate(timeout=60):
        assert b"\r" not in output
        assert b"\x1b" not in output


@pytest.mark.parametrize("line", ["status", "verify small.fold", "audit --trust-root root"])
def test_json_is_json_alone(world: World, line: str) -> None:
    _, out, shown, left = run(world, Call(f"{line} --json"), outputs="error")
    assert json.loads(out)
    assert bars(shown)
    assert not left


def test_a_second_has_to_pass(world: World) -> None:
    _, _, shown, _ = run(world, Call("verify small.fold"), **{HURRIED: ""})
    assert not bars(shown)
