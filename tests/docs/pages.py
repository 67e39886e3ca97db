"""The documents as data: fenced blocks, tables, headings, links, spans of code."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"```([a-z]*)$")
_HEADING = re.compile(r"(#+) (.+)$")
_SPAN = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+)\)")
_CELLS = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is that of its first line of content, from 1."""

    page: str
    section: str
    language: str
    line: int
    text: str


@dataclass(frozen=True)
class Line:
    """A line outside of blocks."""

    page: str
    section: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.number}"

    @property
    def spans(self) -> list[str]:
        return _SPAN.findall(self.text)

    @property
    def links(self) -> list[str]:
        return _LINK.findall(_SPAN.sub("", self.text))

    @property
    def cells(self) -> list[str]:
        """The cells of a table's row, as they are spelled; nothing for other lines."""
        if not self.text.startswith("|") or set(self.text) <= set("|- "):
            return []
        return [cell.strip() for cell in _CELLS.split(self.text)[1:-1]]


@cache
def tracked_files() -> tuple[Path, ...]:
    """The files of the repository, those that are missing at the moment aside."""
    command = ["git", "-c", "safe.directory=*", "-C", ROOT, "ls-files", "-z"]
    listed = subprocess.run(command, capture_output=True, check=True).stdout
    files = (ROOT / name.decode() for name in listed.split(b"\0") if name)
    return tuple(file for file in files if file.is_file())


def page_names() -> list[str]:
    found = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")]
    return sorted({str(file.relative_to(ROOT)) for file in found})


@cache
def _parsed(page: str) -> tuple[tuple[Line, ...], tuple[Block, ...]]:
    lines, blocks = [], []
    section, language, start = "", None, 0
    content: list[str] = []
    for number, text in enumerate((ROOT / page).read_text("utf-8").splitlines(), 1):
        fence = _FENCE.match(text)
        if language is None and fence:
            language, start, content = fence[1], number + 1, []
        elif text == "```" and language is not None:
            held = "".join(f"{line}\n" for line in content)
            blocks.append(Block(page, section, language, start, held))
            language = None
        elif language is not None:
            content.append(text)
        else:
            if heading := _HEADING.match(text):
                section = heading[2]
            lines.append(Line(page, section, number, text))
    assert language is None, f"{page}: the block of line {start} has no end"
    return tuple(lines), tuple(blocks)


def lines(page: str, section: str | None = None) -> list[Line]:
    return [line for line in _parsed(page)[0] if section in (None, line.section)]


def blocks(page: str, language: str | None = None, section: str | None = None) -> list[Block]:
    found = [
        block
        for block in _parsed(page)[1]
        if language in (None, block.language) and section in (None, block.section)
    ]
    assert found, f"{page} has no such block: {language}, {section}"
    return found


def tables(page: str, section: str) -> list[list[list[str]]]:
    """The tables of a section: rows of cells, the heads left out."""
    found: list[list[list[str]]] = [[]]
    for line in lines(page, section):
        if line.cells:
            found[-1].append(line.cells)
        elif not line.text.startswith("|") and found[-1]:
            found.append([])
    found = [table[1:] for table in found if table]
    assert found, f"{page} has no table in {section}"
    return found


def spans(cell: str) -> list[str]:
    return _SPAN.findall(cell)


def anchors(page: str) -> Iterator[str]:
    """The anchors that forges make of a page's headings."""
    seen: dict[str, int] = {}
    for line in lines(page):
        heading = _HEADING.match(line.text)
        if not heading:
            continue
        slug = re.sub(r"[^\w\- ]", "", heading[2].lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        yield f"{slug}-{count}" if count else slug


def prose(page: str, section: str | None = None) -> str:
    """A page's prose, or that of a section, as one line."""
    return " ".join(" ".join(line.text for line in lines(page, section)).split())
