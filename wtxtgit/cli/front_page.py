"""`wtxtgit --help` and `wtxtgit --version`, without click.

People ask for these before all else, and click takes longer to import than
both take together. The page is laid out as click lays out those of the
commands: `click.formatting`, HelpFormatter.
"""

from __future__ import annotations

from shutil import get_terminal_size
from textwrap import wrap

from wtxtgit.cli import boundary
from wtxtgit.cli.commands import ABOUT, MAX_COLUMNS, SECTIONS
from wtxtgit.errors import UsageError
from wtxtgit.version import __version__

VERSION = ("-V", "--version")
HELP = ("-h", "--help")

_OPTIONS = {
    ", ".join(VERSION): "Show the version and exit.",
    ", ".join(HELP): "Show this message and exit.",
}
_MARGIN = 2
"""Columns on the right of the screen that stay empty, and those before what stands in a section."""
_LEAST = 50
_UNWRAPPED = "\b\n"


def is_asked_for(arguments: list[str]) -> bool:
    """Whether these arguments ask for nothing but the first page, or the version."""
    return not arguments or (len(arguments) == 1 and arguments[0] in (*HELP, *VERSION))


def main(arguments: list[str]) -> int:
    """Print what was asked for; gives the exit code."""
    return boundary.run(lambda: _run(arguments))


def _run(arguments: list[str]) -> int:
    asks_version = arguments[:1] and arguments[0] in VERSION
    print(f"wtxtgit {__version__}" if asks_version else page(get_terminal_size().columns))
    return 0 if arguments else UsageError.exit_code


def page(columns: int) -> str:
    """The first page of the help for a screen of so many columns; no newline at its end."""
    width = max(min(columns, MAX_COLUMNS) - _MARGIN, _LEAST)
    paragraphs = [_paragraph(text, width) for text in ABOUT.strip().split("\n\n")]
    sections = {"Options": _OPTIONS} | {
        title: {name: about for name, (_, about) in commands.items()}
        for title, commands in SECTIONS.items()
    }
    parts = ["Usage: wtxtgit [OPTIONS] COMMAND [ARGS]...", *paragraphs]
    parts += [f"{title}:\n{_definitions(rows, width)}" for title, rows in sections.items()]
    return "\n\n".join(parts)


def _paragraph(text: str, width: int) -> str:
    indent = " " * _MARGIN
    if text.startswith(_UNWRAPPED):
        return "\n".join(indent + line for line in text.removeprefix(_UNWRAPPED).split("\n"))
    return "\n".join(indent + line for line in wrap(text, width - _MARGIN))


def _definitions(rows: dict[str, str], width: int) -> str:
    """Terms, and what they mean in a column of its own."""
    first = max(map(len, rows)) + 2
    hanging = "\n" + " " * (_MARGIN + first)
    return "\n".join(
        " " * _MARGIN + term.ljust(first) + hanging.join(wrap(about, width - first - _MARGIN))
        for term, about in rows.items()
    )
