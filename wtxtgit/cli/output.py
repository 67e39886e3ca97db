"""Output of commands: lines, tables and JSON on standard output, progress on standard error.

On a terminal tables fold long cells to its width, and endless words lose their
middle. In a pipe, and where there are very many rows, tables are plain aligned
text; in a pipe it keeps every character. A pager shows such text as it is, so
that tables wider than its screen are split.
"""

from __future__ import annotations

import math
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from json.encoder import encode_basestring_ascii as quoted
from pathlib import Path
from threading import Lock, Timer
from typing import Any

from wtxtgit.cli import environment
from wtxtgit.cli.environment import (
    BAD,
    BOLD,
    LOOK,
    WORDS,
    coloured,
    has_bars,
    has_colours,
    with_first_word,
)
from wtxtgit.errors import clipped, counted, escaped
from wtxtgit.io.progress import Progress
from wtxtgit.model.plain import JsonObject

_LEAST_NAME = 24
"""The least width of a column of names: a narrower table is split."""
_GAP = 3
"""Characters between two columns, when deciding whether a table is split."""
_MOST_PADDED = 200
"""Characters up to which a column is padded."""
_MOST_FOLDED = 20_000
"""The most rows of a table that is folded on a terminal: nobody reads more there."""
_MOST_WORD = 200
"""The most characters of a word that are shown on a screen."""
_ENDLESS = re.compile(rf"\S{{{_MOST_WORD + 1},}}")
_PIECES = 1 << 16
"""Pieces that are kept until they are written."""
_PATIENCE = 1.0
"""Seconds before a bar is shown."""
_FIGURES, _SPEED = 46, 12
"""Characters beside a bar: bytes of all bytes, bytes per second, time left; of these the second."""
_TICK = 1e-3
"""The least time, in seconds, by which a rate is taken."""
_LEAST_LABEL = 12
_SHORTEST_BAR, _LONGEST_BAR = 10, 40


def print_json(value: object) -> None:
    """Print plain data as JSON, strictly: numbers that JSON lacks become strings."""
    write_json(value, sys.stdout.write)


def is_printed(report: object, as_json: bool) -> bool:
    """Print a report as JSON if `as_json`; returns whether it did."""
    if as_json:
        print_json(report)
    return as_json


def print_line(text: str = "") -> None:
    """Print one line; control characters are escaped, and its first word may have a colour."""
    line = escaped(text)
    print(with_first_word(line) if has_colours(sys.stdout) else line)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    split: int | None = None,
) -> None:
    """Print rows under `columns`; those named in `right` are aligned to the right.

    On a screen, columns in which nothing stands are left out. Where it is too
    narrow for all columns, those from number `split` on follow in tables of
    their own, as many to each as fit, with the first column again; what is
    in the columns named in `whole` is not folded.
    """
    # Before widths are taken: what is escaped is longer.
    cells = [[escaped(cell) for cell in row] for row in rows]
    is_terminal = sys.stdout.isatty()
    is_shown = is_terminal or environment.pager_in_use()
    if is_shown:
        cells = [[_ENDLESS.sub(_clipped, cell) for cell in row] for row in cells]
        filled = [n for n in range(len(columns)) if n == 0 or any(row[n] for row in cells)]
        split = None if split is None else sum(n < split for n in filled)
        columns = [columns[n] for n in filled]
        split = None if split == len(columns) else split
        cells = [[row[n] for n in filled] for row in cells]
    if is_terminal and len(rows) <= _MOST_FOLDED:
        # In a pipe nobody needs it.
        from wtxtgit.cli.terminal_table import print_folded

        print_folded(
            columns,
            cells,
            right=right,
            whole=whole,
            split=split,
            room=_screen(),
            titles=BOLD if has_colours(sys.stdout) else None,
            colour_of=_colours_of(columns),
        )
        return
    # Lines of the longest names are wrapped by who shows them.
    name = max(_LEAST_NAME, _screen() // 2)
    if split is None or not is_shown or _width(columns, cells, name) <= _screen():
        _print_plain(columns, cells, right)
        return
    _print_plain(columns[:split], [row[:split] for row in cells], right)
    for group in _groups(columns, cells, split, name):
        print_line()
        values = [[row[0], *(row[n] for n in group)] for row in cells]
        _print_plain([columns[0], *(columns[n] for n in group)], values, right)


def _clipped(word: re.Match[str]) -> str:
    return clipped(word[0], _MOST_WORD)


def _screen() -> int:
    """Return the width of the terminal, or of the one that a pager writes to."""
    return shutil.get_terminal_size().columns


def _width(columns: Sequence[str], rows: list[list[str]], name: int) -> int:
    """Characters of the widest line, `name` of them at most for the first column."""
    table = [list(columns), *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
    widths[0] = min(widths[0], name)
    return sum(widths) + _GAP * len(columns)


def _groups(
    columns: Sequence[str], rows: list[list[str]], first: int, name: int
) -> list[list[int]]:
    """The columns from number `first` on, as many together as the screen has room for."""
    room = _screen()
    groups: list[list[int]] = []
    for n in range(first, len(columns)):
        wider = [0, *groups[-1], n] if groups else []
        cells = [[row[i] for i in wider] for row in rows]
        if wider and _width([columns[i] for i in wider], cells, name) <= room:
            groups[-1].append(n)
        else:
            groups.append([n])
    return groups


def _print_plain(columns: Sequence[str], rows: list[list[str]], right: Sequence[str]) -> None:
    table = [list(columns), *rows]
    # One endless name must not pad every line.
    widths = [min(max(len(row[i]) for row in table), _MOST_PADDED) for i in range(len(columns))]
    colour_of = _colours_of(columns)
    for n, row in enumerate(table):
        aligned = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for cell, width, name in zip(row, widths, columns, strict=True)
        ]
        aligned[-1] = aligned[-1].rstrip()
        # After cells are padded: colours take no room.
        if n:
            aligned = [coloured(cell, colour_of(c, cell)) for c, cell in enumerate(aligned)]
        print("  ".join(aligned).rstrip())


def _colours_of(columns: Sequence[str]) -> Callable[[int, str], str | None]:
    """Return what gives the colour of a cell; None if colours are off."""
    if not has_colours(sys.stdout):
        return lambda _column, _cell: None
    severe: frozenset[str] = frozenset()
    if "risk" in columns:
        from wtxtgit.report.review import SEVERE

        severe = frozenset(map(str, SEVERE))

    def colour_of(column: int, cell: str) -> str | None:
        word = cell.strip()
        if columns[column] == "risk" and word:
            return BAD if word in severe else LOOK
        return WORDS.get(word)

    return colour_of


def write_json(value: object, write: Callable[[str], object]) -> None:
    """Spell plain data as strict JSON; raises TypeError for data that is not plain.

    Numbers that JSON lacks become strings, bytes become hex.
    """
    pieces: list[str] = []

    def put(lead: str, item: object, newline: str) -> None:
        spell = _SPELL.get(type(item))
        if spell is not None:
            pieces.append(lead + spell(item))
        elif isinstance(item, dict | JsonObject):
            pieces.append(lead)
            put_object(item.items() if isinstance(item, dict) else item.entries(), newline)
        elif isinstance(item, Sequence) and not isinstance(item, str | bytes):
            pieces.append(lead)
            put_array(item, newline)
        else:
            pieces.append(lead + _spelled(item))

    def put_object(items: Iterable[tuple[object, object]], newline: str) -> None:
        inner = newline + "  "
        lead = "{" + inner
        for key, item in items:
            put(f"{lead}{quoted(str(key))}: ", item, inner)
            lead = "," + inner
        pieces.append("{}" if lead[0] == "{" else newline + "}")
        drain()

    def put_array(items: Sequence[object], newline: str) -> None:
        inner = newline + "  "
        lead = "[" + inner
        for item in items:
            put(lead, item, inner)
            lead = "," + inner
        pieces.append(newline + "]" if items else "[]")
        drain()

    def drain() -> None:
        if len(pieces) >= _PIECES:
            write("".join(pieces))
            pieces.clear()

    put("", value, "\n")
    pieces.append("\n")
    write("".join(pieces))


def _spelled(item: object) -> str:
    """Spell what holds nothing else, by the base of its type; raises TypeError."""
    for kind, spell in _SPELL.items():
        if isinstance(item, kind):
            return spell(item)
    raise TypeError(f"{type(item).__name__} is not plain data")


def _number(item: float) -> str:
    return float.__repr__(item) if math.isfinite(item) else quoted(str(item))


_SPELL: dict[type, Callable[[Any], str]] = {
    str: quoted,
    type(None): lambda _: "null",
    bool: lambda item: "true" if item else "false",
    int: int.__repr__,
    float: _number,
    bytes: lambda item: quoted(item.hex()),
}
"""How a value of each type is spelled, a subclass before its base."""


@contextmanager
def progress(
    label: str, total: int | None, files: int = 0, *, noun: str = "file", waits: bool = False
) -> Iterator[Progress | None]:
    """Yield a function that takes counts of bytes done; None if no bar is shown.

    `total` is None or 0 where the work itself will tell how much it is, or nobody
    can. Of `files`, or what `noun` calls them, the bar tells how many are done.
    It appears with the first count after a second; with `waits` even without one,
    drawn by a thread. That is for work which can't be forked meanwhile, and of
    which no part, such as git at a remote, asks for a password.
    """
    if not has_bars(sys.stderr):
        yield None
        return
    bar = _Bar(label, total or None, files, noun)
    # Two would write over one another: the outer one shows again when this one is done.
    outer = _bars[-1:]
    for other in outer:
        other.hide()
    _bars.append(bar)
    try:
        with bar.awaited() if waits else nullcontext():
            yield bar
    finally:
        bar.hide()
        _bars.remove(bar)
        for other in outer:
            other.unhide()


@contextmanager
def no_progress() -> Iterator[None]:
    """Hide the bar while something is asked or printed."""
    shown = _bars[-1:]
    for bar in shown:
        bar.hide()
    try:
        yield
    finally:
        for bar in shown:
            bar.unhide()


def are_here(*names: str) -> bool:
    """Whether none of the files is a URL, for which a password may be asked."""
    return not any("://" in name for name in names)


def file_size(path: Path) -> int:
    """Return a file's size in bytes, 0 if it is not known."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


class _Bar:
    def __init__(self, label: str, total: int | None, files: int, noun: str) -> None:
        self._label = label
        self._total = total
        self._is_known = total is not None
        self._done = 0
        self._files = files
        self._files_done = 0
        self._noun = noun
        self._goes_by_files = False
        self._lock = Lock()
        self._since = time.monotonic()
        self._show: Callable[[], None] | None = None
        self._stop: Callable[[], None] | None = None
        self._is_hidden = False

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Show the bar after a while, even if nothing is counted."""
        timer = Timer(max(_PATIENCE, 0), self, (0,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def __call__(self, count: int, /) -> None:
        # Files that are written side by side tell from threads.
        with self._lock:
            self._done += count
            self._update()

    def expect(self, size: int | None, files: int = 0) -> None:
        with self._lock:
            self._files += files
            self._goes_by_files |= size is None
            if size is not None and not self._is_known:
                self._total = size + (self._total or 0)
            self._update()

    def finish_file(self) -> None:
        with self._lock:
            self._files_done += 1
            self._update()

    def hide(self) -> None:
        """Show nothing for now."""
        with self._lock:
            self._is_hidden = True
            if self._stop is not None:
                self._stop()
            self._show = self._stop = None

    def unhide(self) -> None:
        """Show again, with the next count."""
        with self._lock:
            self._is_hidden = False

    def _update(self) -> None:
        is_due = time.monotonic() - self._since >= _PATIENCE
        if self._show is None and is_due and not self._is_hidden:
            self._start()
        if self._show is not None:
            self._show()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
        from rich.text import Text

        class Figures(ProgressColumn):
            """Redrawn even if nothing is counted, since time goes on."""

            def render(self, task: Task) -> Text:
                return Text(figures_text())

        console = Console(stderr=True)
        label = clipped(escaped(self._label), max(console.width * 5 // 8, _LEAST_LABEL))
        room = console.width - len(label) - 1
        columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False)]
        figures = _FIGURES + len(self._file_count(self._files)) + len(", ")
        for needed in (figures, figures - _SPEED):
            if (bar := min(room - needed - 1, _LONGEST_BAR)) >= _SHORTEST_BAR:
                columns.append(BarColumn(bar, "bright_black", "green", "green"))
                room -= bar + 1
                break
        figures_text = partial(self._figures, room)
        columns.append(Figures())
        # What a command prints is for its reader; messages stand above the bar.
        shown = Progress(*columns, console=console, transient=True, redirect_stdout=False)
        done, total = self._share()
        task = shown.add_task(label, total=total, completed=done)
        # What git left on the line goes.
        sys.stderr.write("\r" + " " * (console.width - 1) + "\r")
        shown.start()

        def show() -> None:
            done, total = self._share()
            shown.update(task, total=total, completed=done)

        self._show, self._stop = show, shown.stop

    def _share(self) -> tuple[int, int | None]:
        """Return how much of how much is done: in bytes, or in files if the total is unknown."""
        if self._is_by_files:
            return self._files_done, self._files
        return self._done, self._total

    @property
    def _is_by_files(self) -> bool:
        return self._goes_by_files and self._files > 1 and not self._is_known

    def _file_count(self, done: int) -> str:
        return f"{done:,} of {counted(self._files, self._noun)}" if self._files > 1 else ""

    def _figures(self, room: int) -> str:
        """Return files, bytes, bytes per second and time left: as many as there is room for."""
        from wtxtgit.report.figures import size

        passed = max(time.monotonic() - self._since, _TICK)
        files, done = self._file_count(self._files_done), size(self._done)
        speed, most, left = f"{size(int(self._done / passed))}/s", done, ""
        share, whole = self._share()
        if whole and not self._is_by_files:
            most = f"{done} of {size(max(whole, share))}"
        if whole and share:
            left = f"{_clock(passed * max(whole - share, 0) / share)} left"
        if self._done:
            choices = [(files, most, speed, left), (files, most, left), (most, left), (most,)]
            choices += [(files,), (done,)]
        else:
            # Nothing was counted, or can be: that work goes on shows in the time.
            choices = [(files, left or _clock(passed)), (_clock(passed),)]
        lines = [", ".join(filter(None, choice)) for choice in choices]
        return next((line for line in lines if line and len(line) <= room), lines[-1])


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


_bars: list[_Bar] = []
"""The bars that are shown, the innermost last."""
