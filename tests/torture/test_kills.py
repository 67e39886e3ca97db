"""A few of the kills of `make torture`, and that the harness sees what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.changes import PRODUCT
from tests.torture import errors, tables
from tests.torture.tables import Table

ROOT = Path(__file__).parents[2]


def torture(*arguments: str) -> subprocess.CompletedProcess[str]:
    # A process of its own: it waits for all that is left of what it kills.
    command = [sys.executable, "-m", "tests.torture", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.sampled(PRODUCT)
def test_what_is_killed_leaves_nothing_and_is_done_by_the_next_run() -> None:
    few = ("add", "checkout", "key new", "seal --staged", "store prune", "fetch: git")
    done = torture("kills", "--tries", "3", "--only", *few)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("| 3 |") == len(few)


@pytest.mark.slow
@pytest.mark.sampled(PRODUCT)
def test_what_fails_for_want_of_space_or_of_a_sector_loses_nothing() -> None:
    if errors.library() is None:
        pytest.skip("there is no C compiler to make a disk that fails")
    few = ("push: folder", "fetch: git", "store prune: git as remote")
    done = torture("errors", "--tries", "4", "--only", *few)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("| 4 |") == len(few)


@pytest.mark.slow
@pytest.mark.sampled(PRODUCT)
def test_a_training_that_is_killed_loses_nothing_that_it_was_told_it_has() -> None:
    done = torture("snapshots", "--tries", "3")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.sampled(PRODUCT)
def test_two_at_once_interrupted_and_without_what_they_need() -> None:
    done = torture("races", "--tries", "2", "--only", "seal --staged", "track")
    assert done.returncode == 0, done.stdout + done.stderr
    done = torture("signals", "--tries", "2", "--only", "add", "seal --staged")
    assert done.returncode == 0, done.stdout + done.stderr
    done = torture("faults", "--tries", "4", "--only", "a read-only repository")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| a read-only repository | 4 |" in done.stdout


def test_tables_stand_in_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- kills -->\nold\n<!-- end of kills -->\nb\n")
    monkeypatch.setattr(tables, "PAGE", page)

    def kept(command: str, *rows: tuple[str, str], is_by_row: bool = True) -> str:
        tables.keep("kills", Table(("x", "y"), rows, []), command, is_by_row=is_by_row)
        head, _, there = page.read_text().partition("a\n<!-- kills -->\n")
        assert head == ""
        there, _, tail = there.partition("<!-- end of kills -->\n")
        assert tail == "b\n"
        return there.replace("| x | y |\n| --- | --- |\n", "")

    assert kept("make", ("1", "2"), ("3", "4")) == "\n`make`:\n\n| 1 | 2 |\n| 3 | 4 |\n\n"
    # The same command has done more, and something anew.
    more = "\n`make`:\n\n| 1 | 7 |\n| 3 | 4 |\n| 5 | 6 |\n\n"
    assert kept("make", ("1", "7"), ("5", "6")) == more
    # What another one prints is no row of it.
    both = "\n`make`:\n\n| 1 | 7 |\n| 5 | 6 |\n\n`make less`:\n\n| 3 | 8 |\n\n"
    assert kept("make less", ("3", "8")) == both
    assert kept("make", ("9", "9"), is_by_row=False) == "\n`make`:\n\n| 9 | 9 |\n\n"
