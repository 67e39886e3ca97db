"""Tables on a terminal and in a pipe."""

from __future__ import annotations

import io
import re
import sys

import pytest

from wtxtgit.cli import output
from wtxtgit.cli.output import print_table

NAME = "n" * 4096


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(
    monkeypatch: pytest.MonkeyPatch, rows: list[tuple[str, str]], screen: io.StringIO
) -> str:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", screen)
    print_table(("name", "size"), rows, right=("size",))
    return re.sub("\x1b\\[[0-9;]*m", "", screen.getvalue())


def test_a_pipe_gets_every_character(monkeypatch: pytest.MonkeyPatch) -> None:
    assert NAME in printed(monkeypatch, [(NAME, "1")], io.StringIO())


def test_a_terminal_gets_the_ends_of_endless_words(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = printed(monkeypatch, [(f"a{NAME}z and more", "1"), ("short", "2")], Terminal())
    assert max(map(len, shown.splitlines())) <= 60
    joined = "".join(line[:56].strip() for line in shown.splitlines())
    assert re.search(r"an{99}\.\.\.n{99}z", joined)
    assert "and more" in shown
    assert len(shown) < 1000


def test_very_many_rows_are_printed_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"row{number}", str(number)) for number in range(10_000)]
    lines = printed(monkeypatch, rows, Terminal()).splitlines()
    assert len(lines) == 10_001
    assert lines[-1] == "row9999  9999"


def test_a_bar_makes_room_for_one_within(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_PATIENCE", -1)
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with output.progress("comparing", 100) as compared:
        assert compared is not None
        compared(10)
        with output.progress("fetch", None) as fetched:
            assert fetched is not None
            before = screen.getvalue()
            compared(10)
            fetched(5)
            while_fetching = screen.getvalue()[len(before) :]
        before = screen.getvalue()
        compared(10)
    assert "fetch" in while_fetching
    assert "comparing" not in while_fetching
    assert "30/100 bytes" in screen.getvalue()[len(before) :]
