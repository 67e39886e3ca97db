"""How Sphinx makes a site of the pages: `make site`. Each warning is an error there, broken links too."""

from __future__ import annotations

from wtxtgit.version import __version__

project = "wtxtgit"
version = release = __version__
project_copyright = "the wtxtgit authors, Apache License 2.0"

extensions = ["myst_parser", "sphinx_click"]
# The pages link to one another and to the README as they lie in the repository.
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**"]
exclude_patterns = ["docs/site/**", ".venv/**", "build/**"]
suppress_warnings: list[str] = []

# Anchors as forges make them of headings, which links on the pages are to.
myst_heading_anchors = 4
myst_links_external_new_tab = False

html_theme = "furo"
html_title = "wtxtgit"
html_copy_source = False
html_show_sphinx = False
templates_path = ["templates"]
html_additional_pages = {"index": "redirect.html"}
