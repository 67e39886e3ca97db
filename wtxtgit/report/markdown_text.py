"""Pieces of GitHub-flavoured Markdown, in which nothing of a repository is structure.

Whatever comes out of one is spelled in character references, which no parser
takes for structure (CommonMark, section "Entity and numeric character
references"). GitHub looks for more in the text that comes out: people, teams,
issues, addresses. A space without width is put into what it would find. A
commit's id may become a link to a commit of the same repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from wtxtgit.errors import clipped
from wtxtgit.report.escaping import escaped

MOST_CHARACTERS = 200
"""Of a path, a principal or another name."""
_PLAIN = frozenset(" -0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_BREAK = "\u200b"
_FOUND = re.compile(r"(?i)(?<=[@#])|(?<=(?<![a-z0-9])GH)(?=-[0-9])|(?<=www)(?=\.)|(?<=:)(?=//)")
"""Where GitHub's mentions, references (`#1`, `GH-1`), e-mail addresses and URLs are broken."""


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Give the lines of a table; cells are Markdown."""
    yield ""
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def code(name: str, most: int = MOST_CHARACTERS) -> str:
    """Spell a name, its middle left out where it is long."""
    # An element, not backticks: in those no character can be spelled otherwise.
    return f"<code>{text(clipped(escaped(name), most))}</code>" if name else ""


def text(words: str) -> str:
    """Spell any text."""
    return "".join(map(_spelled, _FOUND.sub(_BREAK, escaped(words))))


def _spelled(c: str) -> str:
    return c if c in _PLAIN or (not c.isascii() and c != _BREAK) else f"&#{ord(c)};"
