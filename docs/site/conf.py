"""How Sphinx makes a site of the pages: `make site`, where a broken link is an error."""

from __future__ import annotations

from textwrap import indent

from sphinx.application import Sphinx

from docs.site.commands import contexts
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
html_static_path = ["static"]
html_css_files = ["site.css"]
html_additional_pages = {"index": "redirect.html"}


def _add_commands(_: Sphinx, page: str, source: list[str]) -> None:
    """The page of the commands gets their help, as a terminal shows it."""
    if page != "docs/commands":
        return
    for context in contexts():
        heading = f"{context.command_path}\n{'-' * len(context.command_path)}"
        told = indent(context.get_help(), "   ")
        source[0] += f"\n{heading}\n\n.. code-block:: text\n\n{told}\n"


def setup(app: Sphinx) -> None:
    app.connect("source-read", _add_commands)
