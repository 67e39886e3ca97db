"""What a part has found, as a table of `docs/reliability.md`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/reliability.md"


@dataclass(frozen=True)
class Table:
    """Rows of a part, the heads of their columns, and what was found broken, in words."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    broken: Sequence[str]

    def markdown(self) -> str:
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def keep(part: str, table: Table, command: str, *, is_by_row: bool = False) -> None:
    """Put a table and the command that prints it in their place in the page.

    Where rows do not depend on each other, only those of the same names are replaced; those that
    one command prints, its options included, stand in one table.
    """
    begin, end = f"<!-- {part} -->\n", f"<!-- end of {part} -->\n"
    before, found, rest = PAGE.read_text().partition(begin)
    assert found, f"{PAGE.name} has no place for {part}"
    there, _, after = rest.partition(end)
    rows = {row[0]: row for row in table.rows}
    tables = _tables(there) if is_by_row else {}
    for lines in tables.values():
        for name in rows.keys() & lines.keys():
            # It keeps its place where it is of the same command.
            if lines is not tables.get(command):
                del lines[name]
    tables[command] = tables.get(command, {}) | rows
    shown = [
        f"`{made}`:\n\n{Table(table.head, [*lines.values()], ()).markdown()}"
        for made, lines in tables.items()
        if lines
    ]
    PAGE.write_text("".join((before, begin, "\n", "\n".join(shown), "\n", end, after)))


def _tables(text: str) -> dict[str, dict[str, Sequence[str]]]:
    """The tables of a part: by command, and of each the rows by their names."""
    tables = {}
    for table in text.split("\n`")[1:]:
        command, _, lines = table.partition("`:\n\n")
        # Behind the two lines of its head.
        rows = [line[2:-2].split(" | ") for line in lines.strip().split("\n")[2:]]
        tables[command] = {row[0]: row for row in rows}
    return tables
