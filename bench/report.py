"""What was measured, as a record, as tables, and in a page of the documentation."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.measure import MIB, BenchError, Ratio, Row
from bench.start import Imported

PACKAGES = ("numpy", "pybase64", "crc32c", "isal", "blake3", "zstandard", "click")
PEERS = (("git", "version"), ("git-lfs", "version"))
_MARK = re.compile(r"<!-- bench: (?P<part>[^>]*?) -->\n.*?<!-- end -->", re.DOTALL)
"""A place in a page that a part's table takes; "machine" and "imports" are parts too."""


@dataclass(frozen=True)
class Report:
    """One run: on what machine, with what options, what was found."""

    machine: str
    options: dict[str, Any]
    parts: dict[str, list[Row]]
    imports: Imported
    failed: dict[str, str]
    """Why a part has no figures, by its name."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data; a ratio says whether its target is met."""
        record = asdict(self)
        for part, rows in self.parts.items():
            for row, plain in zip(rows, record["parts"][part], strict=True):
                for ratio, entry in zip(row.ratios, plain["ratios"], strict=True):
                    entry["met"] = ratio.is_met
        return record

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Report:
        """The inverse of `as_dict`."""
        parts = {part: [_row(entry) for entry in found] for part, found in record["parts"].items()}
        imports = {name: [(m, ms) for m, ms in found] for name, found in record["imports"].items()}
        return cls(record["machine"], record["options"], parts, imports, record["failed"])

    def about(self) -> str:
        """The machine, and how often on it what was measured."""
        size, big, runs = (self.options[name] for name in ("size", "big", "runs"))
        sizes = f"{size} MiB" + (f" and {big} MiB" if big else "")
        return f"{self.machine}. Files of {sizes}; at least {runs} runs of each."


def _row(entry: dict[str, Any]) -> Row:
    ratios = tuple(Ratio(r["floor"], r["kind"], r["value"], r["target"]) for r in entry["ratios"])
    return Row(**entry | {"ratios": ratios, "times": tuple(entry["times"])})


def machine() -> str:
    """The day, the processor, and the versions of all that takes time."""
    said = [
        f"{os.cpu_count()} cores",
        _processor(),
        platform.system(),
        f"Python {platform.python_version()}",
    ]
    said += [f"{name} {version(name)}" for name in PACKAGES]
    for program, word in PEERS:
        if shutil.which(program) is None:
            said.append(f"no {program}")
            continue
        told = subprocess.run((program, word), capture_output=True, text=True, check=True).stdout
        said.append(told.split("(")[0].strip().replace("/", " "))
    return f"{time.strftime('%Y-%m-%d', time.gmtime())}, " + ", ".join(said)


def _processor() -> str:
    """The processor's name, where the kernel tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def markdown(report: Report) -> str:
    """All parts, each with its table."""
    pieces = [report.about()]
    pieces += [f"## {part}\n\n{table(rows)}" for part, rows in report.parts.items()]
    pieces += [f"## {part}\n\nfailed: {_cell(why)}" for part, why in report.failed.items()]
    if report.imports:
        pieces.append(f"## imports\n\n{import_table(report.imports)}")
    return "\n\n".join(pieces) + "\n"


def table(rows: list[Row]) -> str:
    """Rows of a part as a Markdown table."""
    head = ("", "best s", "median s", "MB/s", "ratio", "memory MiB", "anonymous MiB", "")
    lines = [head, ("---",) * len(head)]
    lines += [
        (
            row.name,
            f"{row.best:.3f}",
            f"{row.median:.3f}",
            "" if row.rate is None else f"{row.rate:.0f}",
            "; ".join(map(said, row.ratios)),
            _mebibytes(row.resident),
            _mebibytes(row.anonymous),
            _about(row),
        )
        for row in rows
    ]
    return "\n".join(f"| {' | '.join(map(_cell, cells))} |" for cells in lines)


def said(ratio: Ratio) -> str:
    """A comparison in words, and what it was to be."""
    value, target = f"{ratio.value:.2f}", ratio.target
    match ratio.kind:
        case "time":
            words, goal = f"{value} of {ratio.floor}", "at most"
        case "rate":
            words, goal = f"{value} of the rate of {ratio.floor}", "at least"
        case "beyond":
            words, goal = f"{value} s per 256 MiB beyond {ratio.floor}", "at most"
    if target is None:
        return words
    return f"{words} ({goal} {target:g}: {'met' if ratio.is_met else 'missed'})"


def import_table(imports: Imported) -> str:
    """The longest imports of each command."""
    lines = ["| | ms, without what they import themselves |", "|---|---|"]
    for name, found in imports.items():
        lines.append(f"| {_cell(name)} | {', '.join(f'{_cell(m)} {ms:.1f}' for m, ms in found)} |")
    return "\n".join(lines)


def tables(report: Report) -> dict[str, str]:
    """What `docs/performance.md` has a place for."""
    found = {part: table(rows) for part, rows in report.parts.items()}
    return found | {"machine": report.about(), "imports": import_table(report.imports)}


def rewritten(page: str, tables: Mapping[str, str]) -> str:
    """The page with every marked place filled anew.

    Raises BenchError for a place that there is no table for, and for a table
    that has no place.
    """
    placed = [match["part"] for match in _MARK.finditer(page)]
    if sorted(placed) != sorted(tables):
        odd = ", ".join(sorted(set(placed) ^ set(tables)))
        raise BenchError(f"the page has places for other parts than were measured: {odd}")
    return _MARK.sub(
        lambda match: f"<!-- bench: {match['part']} -->\n{tables[match['part']]}\n<!-- end -->",
        page,
    )


def _about(row: Row) -> str:
    left = "" if row.stored is None else f"{row.stored / MIB:.0f} MiB under .git"
    return "; ".join(filter(None, (row.note, left)))


def _mebibytes(size: int | None) -> str:
    return "" if size is None else f"{size / MIB:.0f}"


def _cell(text: str) -> str:
    """Text as a table's cell shows it."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
