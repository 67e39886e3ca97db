"""Man pages of all commands, from their help: `make man`, for the packages that are released.

Of the generators for click the one that is kept, click-man, escapes nothing: a line of help that
begins with a dot is a request to troff, and examples run together.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from docs.site.commands import contexts
from wtxtgit.cli.front_page import ABOUT, SECTIONS
from wtxtgit.version import __version__

_UNWRAPPED = "\b\n"
"""How a paragraph begins that keeps its lines, as click has it."""


def pages() -> Iterator[tuple[str, str]]:
    """The name of each page, and the page."""
    for context in contexts():
        name = context.command_path.replace(" ", "-")
        yield f"{name}.1", "\n".join(_lines(context, name)) + "\n"


def _lines(context: click.Context, name: str) -> Iterator[str]:
    command = context.command
    is_front = context.parent is None
    about, *paragraphs = inspect.cleandoc(ABOUT if is_front else command.help or "").split("\n\n")
    short = " ".join(about.split()).removesuffix(".")
    yield f'.TH "{name.upper()}" 1 "" "wtxtgit {__version__}" "wtxtgit"'
    yield from (".SH NAME", f"{_escaped(name)} \\- {_escaped(short)}")
    pieces = " ".join(command.collect_usage_pieces(context))
    yield from (".SH SYNOPSIS", f".B {_escaped(context.command_path)}", _text(pieces))
    if paragraphs:
        yield ".SH DESCRIPTION"
        yield from _paragraphs(paragraphs)
    records = filter(None, (one.get_help_record(context) for one in command.get_params(context)))
    options = [(term, told) for term, told in records if term.startswith("-")]
    yield ".SH OPTIONS"
    yield from _terms(options)
    if is_front:
        for title, listed in SECTIONS.items():
            yield f".SH {_escaped(title.upper())}"
            yield from _terms((_page(f"wtxtgit-{one}"), told) for one, (_, told) in listed.items())
    elif isinstance(command, click.Group):
        yield ".SH COMMANDS"
        for below in command.list_commands(context):
            one = command.get_command(context, below)
            told = one.get_short_help_str(200) if one else ""
            yield from _terms([(_page(f"{name}-{below}"), told)])
    yield from (".SH SEE ALSO", _text(_page("wtxtgit") if not is_front else _page("git")))


def _page(name: str) -> str:
    return f"{name}(1)"


def _paragraphs(paragraphs: list[str]) -> Iterator[str]:
    for paragraph in paragraphs:
        yield ".PP"
        if paragraph.startswith(_UNWRAPPED):
            yield from (".nf", ".RS 4")
            yield from map(_text, paragraph.removeprefix(_UNWRAPPED).splitlines())
            yield from (".RE", ".fi")
        else:
            yield _text(" ".join(paragraph.split()))


def _terms(rows: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> Iterator[str]:
    for term, told in rows:
        yield from (".TP", f".B {_escaped(term)}", _text(" ".join(told.split())))


def _text(line: str) -> str:
    """A line that is none of troff's requests."""
    escaped = _escaped(line)
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _escaped(text: str) -> str:
    return re.sub(r"-", r"\\-", text.replace("\\", "\\e")).replace('"', r"\(dq")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob("*.1"):
        left.unlink()
    for name, page in pages():
        (folder / name).write_text(page)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
