"""How Sphinx makes a site of the pages: `make site`, where a broken link is an error."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import indent

import click
from sphinx.application import Sphinx

from wtxtgit.cli.main import cli
from wtxtgit.version import __version__

project = "wtxtgit"
version = release = __version__
project_copyright = "the wtxtgit authors, Apache License 2.0"

extensions = ["myst_parser"]
# The pages link to one another and to the README as they lie in the repository.
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**"]
exclude_patterns = ["docs/site/**", ".venv/**", "build/**"]

# Anchors as forges make them of headings, which links on the pages are to.
myst_heading_anchors = 4

html_theme = "furo"
html_title = "wtxtgit"
html_copy_source = False
html_show_sphinx = False
templates_path = ["templates"]
html_additional_pages = {"index": "redirect.html"}


def _helps(context: click.Context) -> Iterator[tuple[str, str]]:
    """Each command as it is called, and its help."""
    yield context.command_path, context.get_help()
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            if command := context.command.get_command(context, name):
                yield from _helps(click.Context(command, parent=context, info_name=name))


def _add_commands(_: Sphinx, page: str, source: list[str]) -> None:
    """The page of the commands gets their help, as a terminal shows it."""
    if page != "docs/commands":
        return
    for call, told in _helps(click.Context(cli, info_name="wtxtgit", terminal_width=80)):
        source[0] += (
            f"\n{call}\n{'-' * len(call)}\n\n.. code-block:: text\n\n{indent(told, '   ')}\n"
        )


def setup(app: Sphinx) -> None:
    app.connect("source-read", _add_commands)
