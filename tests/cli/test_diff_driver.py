"""`wtxtgit diff-driver`: what is printed for git's arguments, and that nothing makes it fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import wtxtgit as api
from tests.cli.command import Command, Done
from tests.kit import safetensors
from tests.kit.terminal import on_a_terminal

A, B, NULL = "a" * 40, "b" * 40, "0" * 40
ABSENT = ("/dev/null", ".", ".")


@pytest.fixture
def sides(wtxtgit: Command) -> tuple[Path, Path]:
    old, new = wtxtgit.folder / "old", wtxtgit.folder / "new"
    old.write_bytes(safetensors(1.0, 2.0))
    new.write_bytes(safetensors(1.0, -2.0))
    return old, new


def shown(wtxtgit: Command, *arguments: str | Path, **more: object) -> str:
    """Call it as git does; it has to end well, in silence."""
    done: Done = wtxtgit("diff-driver", "--", *arguments, **more)  # type: ignore[arg-type]
    assert (done.code, done.err) == (0, ""), done
    return done.out.decode()


CHANGED = """\
diff --wtxt m: changed, safetensors
1 tensor: 1 changed; 1 element, L2 4 (179% of the changed tensors)

tensor  relative  elements    rows  L2  max     cosine         mean         std  flips
w           179%       50%  1 of 2: 1   4    4  -0.600000  1.5 -> -0.5  0.5 -> 1.5      1
"""


def test_a_change(wtxtgit: Command, sides: tuple[Path, Path]) -> None:
    old, new = sides
    told = shown(wtxtgit, "m", old, A, "100644", new, NULL, "100644")
    assert [line.split() for line in told.splitlines()] == [
        line.split() for line in CHANGED.splitlines()
    ]
    _, _, rest = told.partition("\n")
    _, _, as_command = wtxtgit("diff", old, new).out.decode().partition("\n")
    assert rest == as_command, "but for its first line it is what `wtxtgit diff` prints"


def test_one_side(wtxtgit: Command, sides: tuple[Path, Path]) -> None:
    said = "safetensors, 72 B\n1 tensor, 2 parameters\n\ndtype  tensors  parameters  size\n"
    said += "f32          1           2   8 B\n"
    old, _ = sides
    assert len(old.read_bytes()) == 72
    added = shown(wtxtgit, "m", *ABSENT, old, A, "100644")
    assert added == f"diff --wtxt m: added, {said}"
    removed = shown(wtxtgit, "m", old, A, "100644", *ABSENT)
    assert removed == f"diff --wtxt m: removed, {said}"


def test_a_rename(wtxtgit: Command, sides: tuple[Path, Path]) -> None:
    old, new = sides
    header = "similarity index 90%\nrename from m\nrename to n\nindex aa..bb 100644\n"
    told = shown(wtxtgit, "m", old, A, "100644", new, B, "100755", "n", header)
    assert told.splitlines()[0] == (
        "diff --wtxt m -> n: renamed (similarity 90%), safetensors, mode 100644 -> 100755"
    )


def test_of_one_object_nothing_is_read(wtxtgit: Command) -> None:
    told = shown(wtxtgit, "m", "gone", A, "100644", "gone", A, "100755")
    assert told == "diff --wtxt m: changed, mode 100644 -> 100755\nthe content is identical\n"


def test_what_is_not_compared_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom wtxtgit.cli.diff_driver import main\n"
        f"main(['diff-driver', '--', 'm', 'x', '{A}', '100644', 'y', '{A}', '100755'])\n"
        "print([m for m in ('numpy', 'click', 'rich', 'subprocess') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.endswith(b"\n[]\n")


def test_an_unmerged_path(wtxtgit: Command) -> None:
    assert shown(wtxtgit, "a b") == "* Unmerged path a b\n"


def test_paths_cannot_control_a_terminal_or_be_options(wtxtgit: Command) -> None:
    assert shown(wtxtgit, "x\x1b[31m\ny") == "* Unmerged path x\\x1b[31m\\x0ay\n"
    assert shown(wtxtgit, os.fsdecode(b"\xff\xe9")) == "* Unmerged path \\xff\\xe9\n"
    assert shown(wtxtgit, "--help") == "* Unmerged path --help\n"
    assert shown(wtxtgit, "--") == "* Unmerged path --\n"


@pytest.mark.parametrize(("mode", "kind"), [("120000", "symbolic link"), ("160000", "submodule")])
def test_what_is_no_file(wtxtgit: Command, sides: tuple[Path, Path], mode: str, kind: str) -> None:
    told = shown(wtxtgit, "m", *ABSENT, sides[0], A, mode)
    assert told.splitlines()[:2] == [f"diff --wtxt m: added, {kind}", "not compared"]
    told = shown(wtxtgit, "m", sides[0], A, "100644", sides[1], B, mode)
    assert told.splitlines()[0] == f"diff --wtxt m: changed, mode 100644 -> {mode}, {kind}"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "after: not a known checkpoint: file is empty"),
        (b"junk", "after: not a known checkpoint: file has no known magic"),
        (b"WTXT 1\njunk\n", "after: line 2: "),
        (safetensors(1.0)[:-1], "after: "),
        (None, "after: no such file or directory"),
    ],
)
def test_what_can_not_be_compared_is_a_line(
    content: bytes | None, reason: str, wtxtgit: Command, sides: tuple[Path, Path]
) -> None:
    old, bad = sides[0], wtxtgit.folder / "bad"
    if content is not None:
        bad.write_bytes(content)
    lines = shown(wtxtgit, "m", old, A, "100644", bad, B, "100644").splitlines()
    assert lines[0] == f"diff --wtxt m: changed, 72 B -> {len(content or b'')} B"
    assert lines[1].startswith(f"not compared: {reason}")
    assert lines[2:] == ["hint: --no-ext-diff shows it as text"]
    alone = shown(wtxtgit, "m", bad, A, "100644", *ABSENT).splitlines()
    assert alone[1].startswith(f"not listed: {reason.replace('after', 'm')}")


def test_a_bug_is_a_line(wtxtgit: Command, sides: tuple[Path, Path]) -> None:
    code = (
        "import sys, wtxtgit.comparison.driver as ops\nfrom wtxtgit.cli.diff_driver import main\n"
        "ops.compare_pair = None\nsys.exit(main(['diff-driver', *sys.argv[1:]]))"
    )
    argv = [sys.executable, "-c", code, "--", "m", sides[0], A, "100644", sides[1], B, "100644"]
    done = subprocess.run(argv, capture_output=True, check=True, text=True)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[1].startswith("not compared: this is a bug in wtxtgit: TypeError: ")
    told = subprocess.run(
        argv, capture_output=True, check=False, env={**os.environ, "WTXTGIT_DEBUG": "1"}
    )
    assert told.returncode != 0
    assert b"Traceback" in told.stderr


def test_out_of_memory_is_a_line(wtxtgit: Command, sides: tuple[Path, Path]) -> None:
    code = (
        "import sys, wtxtgit.comparison.driver as ops\nfrom wtxtgit.cli.diff_driver import main\n"
        "def none(*_, **__): raise MemoryError\n"
        "ops.compare_pair = none\nsys.exit(main(['diff-driver', *sys.argv[1:]]))"
    )
    argv = [sys.executable, "-c", code, "--", "m", sides[0], A, "100644", sides[1], B, "100644"]
    done = subprocess.run(argv, capture_output=True, check=True, text=True)
    assert done.stdout.splitlines()[1] == "not compared: out of memory"


def test_a_wrong_number_of_threads_is_a_note(wtxtgit: Command, sides: tuple[Path, Path]) -> None:
    old, new = sides
    given = {"WTXTGIT_THREADS": "many"}
    told = shown(wtxtgit, "m", old, A, "100644", new, B, "100644", env=given)
    assert "w           179%" in told
    assert told.splitlines()[-1].startswith('note: WTXTGIT_THREADS is "many", ')


def test_files_after_the_first_stand_apart(wtxtgit: Command) -> None:
    given = {"GIT_DIFF_PATH_COUNTER": "2", "GIT_DIFF_PATH_TOTAL": "3"}
    same = ("m", "x", A, "100644", "x", A, "100755")
    assert shown(wtxtgit, *same, env=given).startswith("\ndiff --wtxt m: ")
    given["GIT_DIFF_PATH_COUNTER"] = "1"
    assert shown(wtxtgit, *same, env=given).startswith("diff --wtxt m: ")


def test_a_pager_that_was_left(wtxtgit: Command, sides: tuple[Path, Path]) -> None:
    old, new = sides
    reader, writer = os.pipe()
    os.close(reader)
    done = wtxtgit("diff-driver", "--", "m", old, A, "100644", new, B, "100644", stdout=writer)
    os.close(writer)
    assert (done.code, done.err) == (0, "")


def test_arguments_that_are_not_gits(wtxtgit: Command) -> None:
    done = wtxtgit("diff-driver", "--", "m", "x", A)
    assert (done.code, done.out) == (2, b"")
    assert "external diff" in done.complaint()


def wide_pair(folder: Path) -> tuple[Path, Path]:
    name = "model_layers_0_self_attn_q_proj_weight"
    values = np.linspace(-1, 1, 64).reshape(16, 4)
    for file, factor in (("old", 1.0), ("new", -1.1)):
        api.dump({name: values * factor}, folder / file)
    return folder / "old", folder / "new"


@pytest.mark.parametrize(("columns", "tables"), [(80, 4), (100, 3), (200, 1)])
def test_a_pager_of_any_width(columns: int, tables: int, wtxtgit: Command) -> None:
    old, new = wide_pair(wtxtgit.folder)
    given = {"GIT_PAGER_IN_USE": "true", "COLUMNS": str(columns)}
    arguments = ("m", old, A, "100644", new, B, "100644")
    told = shown(wtxtgit, *arguments, env=given)
    assert told.isascii()
    assert not re.search("[\x00-\x09\x0b-\x1f]", told)
    # What is said of a flag is not cut.
    lines = [line for line in told.splitlines() if "  " in line and "negated" not in line]
    assert sum(line.startswith("tensor ") for line in lines) == tables
    assert max(map(len, lines)) <= columns
    plain = shown(wtxtgit, *arguments, env={"COLUMNS": str(columns)})
    assert set(plain.split()) == set(told.split())
    assert sum(line.startswith("tensor ") for line in plain.splitlines()) == 1


def test_on_a_terminal(wtxtgit: Command, sides: tuple[Path, Path]) -> None:
    old, new = sides
    argv = wtxtgit.argv("diff-driver", "--", "m", old, A, "100644", new, B, "100644")
    given = {**wtxtgit.options()["env"], "COLUMNS": "100", "TERM": "xterm"}
    code, _, told = on_a_terminal([*map(str, argv)], env=given, cwd=old.parent)
    assert code == 0
    assert "─" in told
    assert "diff --wtxt m: changed, safetensors\r\n" in told
