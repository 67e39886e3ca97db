"""What git calls to show a diff: `diff-driver`.

A diff that can't be made is told in a line among the others: git would end
with the first file whose driver fails. Started for every file, so nothing
heavy is imported for those that are not compared; click never is.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from wtxtgit.cli import boundary, environment
from wtxtgit.cli.diff_table import print_changes
from wtxtgit.cli.output import file_size, print_line, print_table, progress
from wtxtgit.errors import UsageError, counted, expected, explain
from wtxtgit.git.external_diff import DiffFile, Pair, Unmerged, parse
from wtxtgit.report.figures import size

if TYPE_CHECKING:
    from wtxtgit.comparison.driver import Inventory
    from wtxtgit.report.diff import DiffReport

_HINT = "hint: --no-ext-diff shows it as text"


def main(arguments: list[str]) -> int:
    """Show one diff; `arguments` start with the command's name."""
    return boundary.run(lambda: _run(arguments[1:]))


def _run(words: list[str]) -> int:
    arguments = words[1:] if words[:1] == ["--"] else words
    pair = parse([os.fsencode(word) for word in arguments])
    try:
        if isinstance(pair, Unmerged):
            # In git's own words.
            print_line(f"* Unmerged path {os.fsdecode(pair.path)}")
        else:
            _show(pair)
        sys.stdout.flush()
    except BrokenPipeError:
        # A pager that was left before the end is no failure.
        boundary.drop_output()
    return 0


def _show(pair: Pair) -> None:
    if not environment.is_first_path():
        print_line()
    try:
        if pair.is_same:
            _print_header(pair)
            print_line("the content is identical")
        elif any(side.kind != "file" for side in _sides(pair)):
            _print_header(pair)
            print_line("not compared")
            print_line(_HINT)
        else:
            _compare(pair)
    except BrokenPipeError:
        raise
    except Exception as error:  # git would not show the files after this one
        if expected(error) is None and os.environ.get("WTXTGIT_DEBUG"):
            raise
        _print_failed(pair, explain(error))


def _compare(pair: Pair) -> None:
    from wtxtgit.comparison.driver import Inventory, compare_pair
    from wtxtgit.model.tensor import ReadOptions

    notes = []
    try:
        threads = environment.threads()
    except UsageError as error:
        threads = None
        notes.append(error.message)
    with progress("comparing", None) as advance:
        options = ReadOptions(decoding=environment.decoding())
        comparison = compare_pair(pair, options, threads=threads, progress=advance)
    if isinstance(comparison, Inventory):
        _print_header(pair, comparison.format, size(comparison.size))
        _print_inventory(comparison)
    else:
        _print_header(pair, _formats(comparison))
        print_changes(comparison)
    for note in notes:
        print_line(f"note: {note}")


def _print_header(pair: Pair, *facts: str) -> None:
    """Print the path, whether it was added, changed or removed, and a change of its mode."""
    path = os.fsdecode(pair.path)
    if pair.new_path is not None:
        path += f" -> {os.fsdecode(pair.new_path)}"
    facts_shown = [_status(pair), *facts]
    old, new = pair.old, pair.new
    if old is not None and new is not None and old.mode != new.mode:
        facts_shown.append(f"mode {old.mode:06o} -> {new.mode:06o}")
    facts_shown += [
        kind for kind in dict.fromkeys(side.kind for side in _sides(pair)) if kind != "file"
    ]
    print_line(f"diff --wtxt {path}: {', '.join(facts_shown)}")


def _status(pair: Pair) -> str:
    if pair.old is None:
        return "added"
    if pair.new is None:
        return "removed"
    if pair.relation is None:
        return "changed"
    alike = "" if pair.similarity is None else f" (similarity {pair.similarity}%)"
    return f"{pair.relation}{alike}"


def _formats(report: DiffReport) -> str:
    if report.a_format == report.b_format:
        return report.a_format
    return f"{report.a_format} -> {report.b_format}"


def _print_inventory(inventory: Inventory) -> None:
    elements = counted(inventory.elements, "parameter")
    print_line(f"{counted(inventory.tensors, 'tensor')}, {elements}")
    for note in inventory.notes:
        print_line(f"note: {note}")
    if inventory.dtypes:
        print_line()
        print_table(
            ("dtype", "tensors", "parameters", "size"),
            [(t.dtype, str(t.tensors), str(t.elements), size(t.nbytes)) for t in inventory.dtypes],
            right=("tensors", "parameters", "size"),
        )


def _print_failed(pair: Pair, reason: str) -> None:
    """Print why there is no diff, in its place."""
    _print_header(pair, " -> ".join(size(file_size(side.file)) for side in _sides(pair)))
    print_line(f"not {'compared' if pair.old and pair.new else 'listed'}: {reason}")
    print_line(_HINT)


def _sides(pair: Pair) -> list[DiffFile]:
    return [side for side in (pair.old, pair.new) if side is not None]
