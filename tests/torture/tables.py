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


def keep(part: str, table: Table, command: str) -> None:
    """Put a table and the command that made it in their place in the page."""
    begin, end = f"<!-- {part} -->\n", f"<!-- end of {part} -->\n"
    before, found, rest = PAGE.read_text().partition(begin)
    assert found, f"{PAGE.name} has no place for {part}"
    after = rest.partition(end)[2]
    made = f"`{command}`:\n\n{table.markdown()}"
    PAGE.write_text(f"{before}{begin}\n{made}\n{end}{after}")
