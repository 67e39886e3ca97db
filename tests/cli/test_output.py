"""Tables on a terminal and in a pipe."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence

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
    return shown(monkeypatch, 60, ("name", "size"), rows, screen)


def shown(
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    screen: io.StringIO,
    split: int | None = None,
) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", screen)
    print_table(columns, rows, right=("size", "file", "min", "max"), split=split)
    return re.sub("\x1b\\[[0-9;]*m", "", screen.getvalue())


STATES = ("state", "format", "file", "size", "path")
FILES = [
    ("ok", "safetensors", "176 KiB", "249 KiB", "model.safetensors"),
    ("raw-binary", "npz", "161 KiB", "230 KiB", "runs/2026-11/checkpoints/model-00001.npz"),
]


def test_a_narrow_terminal_folds_paths_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 72, STATES, FILES, Terminal()).splitlines()
    assert max(map(len, lines)) <= 72
    assert [line.split() for line in lines[2:]] == [
        ["ok", "safetensors", "176", "KiB", "249", "KiB", "model.safetensors"],
        ["raw-binary", "npz", "161", "KiB", "230", "KiB", "runs/2026-11/checkpoints/"],
        ["model-00001.npz"],
    ]


def test_a_very_narrow_terminal_gets_rows_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 40, STATES, FILES, Terminal()).splitlines()
    assert lines[:7] == [
        "state   ok",
        "format  safetensors",
        "file    176 KiB",
        "size    249 KiB",
        "path    model.safetensors",
        "",
        "state   raw-binary",
    ]
    assert lines[-2:] == ["path    runs/2026-11/checkpoints/model-", "        00001.npz"]


@pytest.mark.parametrize(("width", "blocks"), [(80, 1), (44, 2), (30, 2)])
def test_values_follow_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, width: int, blocks: int
) -> None:
    columns = ("tensor", "shape", "min", "max")
    rows = [("layers.0.q_proj.weight", "512 x 64", "-4.08", "4.44")] * 2
    told = shown(monkeypatch, width, columns, rows, Terminal(), split=2)
    assert max(map(len, told.splitlines())) <= width
    assert len(told.split("\n\n")) == blocks
    assert told.count("-4.08") == told.count("4.44") == 2
    assert "…" not in told
    assert ("tensor  layers.0.q_proj.weight" in told) == (width == 30)


def test_a_pipe_gets_every_character(monkeypatch: pytest.MonkeyPatch) -> None:
    assert NAME in printed(monkeypatch, [(NAME, "1")], io.StringIO())


def test_a_terminal_gets_the_ends_of_endless_words(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = printed(monkeypatch, [(f"a{NAME}z and more", "1"), ("short", "2")], Terminal())
    assert max(map(len, shown.splitlines())) <= 60
    joined = "".join(line[:56].strip() for line in shown.splitlines())
    assert re.search(r"an{99}\.\.\.n{99}z", joined)
    assert shown.split()[-4:-2] == ["and", "more"]
    assert len(shown) < 1000


def test_very_many_rows_are_printed_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"row{number}", str(number)) for number in range(30_000)]
    lines = printed(monkeypatch, rows, Terminal()).splitlines()
    assert len(lines) == 30_001
    assert lines[-1] == "row29999  29999"


def test_one_endless_name_leaves_thousands_of_rows_readable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [(NAME, "0"), *((f"row{number}", str(number)) for number in range(3000))]
    lines = printed(monkeypatch, rows, Terminal()).splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[-1].split() == ["row2999", "2999"]


def test_columns_in_which_nothing_stands_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    columns, rows = ("part", "what", "size"), [("_header", "", "72 B")]
    seen = shown(monkeypatch, 60, columns, rows, Terminal())
    assert [line.split() for line in seen.splitlines()[::2]] == [
        ["part", "size"],
        ["_header", "72", "B"],
    ]
    # Where a program may count them, all are there.
    assert "what" in shown(monkeypatch, 60, columns, rows, io.StringIO())


def test_no_single_column_follows_in_a_table_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = ("layer", "norm", "change", "zeros", "NaN")
    rows = [("model.layers.0", "2.5 -> 7.5", "up to 12%", "up to 3%", "12/0")]
    told = shown(monkeypatch, 40, columns, rows, Terminal(), split=1)
    assert [block.split("\n")[0].split() for block in told.split("\n\n")] == [
        ["layer", "norm", "change"],
        ["layer", "zeros", "NaN"],
    ]


def test_a_list_that_takes_many_tables_is_told_line_by_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns = ("name", *(f"value{n}" for n in range(8)))
    rows = [("layers.0", *["1234567890"] * 8)]
    told = shown(monkeypatch, 36, columns, rows, Terminal(), split=1)
    assert told.splitlines()[0].split() == ["name", "layers.0"]
    assert len(told.splitlines()) == 9


@pytest.mark.parametrize("width", [40, 70])
def test_what_is_to_be_copied_is_not_folded(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    row = ("alice", "SHA256:" + "x" * 43, "0123456789abcdef")
    print_table(("key", "fingerprint", "keyid"), [row], whole=("fingerprint",))
    assert row[1] in screen.getvalue()


def test_a_bar_makes_room_for_one_within(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
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
    assert "30 B of 100 B" in screen.getvalue()[len(before) :]


@pytest.mark.parametrize("width", [30, 40, 80, 200])
def test_a_bar_takes_one_line(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(output, "_PATIENCE", -1)
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with output.progress(f"restoring {NAME}\x1b[2J", 3 << 30) as advance:
        assert advance is not None
        advance(1 << 30)
    shown = screen.getvalue().split("\x1b[?25h")[0]
    assert "\x1b[2J" not in shown
    lines = re.split("[\r\n]", re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", shown))
    assert max(map(len, lines)) <= width
    told = "1 GiB of 3 GiB" if width >= 80 else "1 GiB"
    assert any("rest" in line and told in line for line in lines)
    assert any(" left" in line for line in lines) == (width >= 80)
