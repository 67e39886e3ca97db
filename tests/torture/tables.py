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


def keep(part: str, table: Table, command: str, *, is_whole: bool = True) -> None:
    """Put a table and the command that made it in their place in the page.

    One that is not whole has other rows of the same names, and rows that the page lacks.
    """
    begin, end = f"<!-- {part} -->\n", f"<!-- end of {part} -->\n"
    before, found, rest = PAGE.read_text().partition(begin)
    assert found, f"{PAGE.name} has no place for {part}"
    there, _, after = rest.partition(end)
    made = f"`{command}`:\n\n{table.markdown()}"
    if not is_whole and "\n|" in there:
        made = _with_rows(there.strip(), table) + "\n"
    PAGE.write_text(f"{before}{begin}\n{made}\n{end}{after}")


def _with_rows(there: str, table: Table) -> str:
    """A table of the page with these rows."""
    rows = {row[0]: f"| {' | '.join(row)} |" for row in table.rows}
    lines = [rows.pop(line[2:].partition(" | ")[0], line) for line in there.split("\n")]
    return "\n".join([*lines, *rows.values()])
