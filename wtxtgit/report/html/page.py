"""Pages that need nothing else: no network, no other file. Each is of one template, `page.html`.

Whatever comes out of a repository is text of the page, never markup: each
expression of the template is made harmless (`escaped`) and then escaped, all
attributes are quoted, none of it gets into the script or the style sheet. A
policy (CSP 3, section "Hash-source") allows this script and this style sheet,
by their hashes, and nothing else.
"""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from wtxtgit.errors import escaped
from wtxtgit.report.html.tensors import Shown

if TYPE_CHECKING:
    from jinja2 import Environment

_PART_END = re.compile(r"[./_:]+")


def rendered(template: str, view: Shown) -> str:
    """The page that a template makes of what it shows, the same for the same."""
    style, script = _source("page.css"), _source("page.js")
    return (
        _environment()
        .get_template(template)
        .render(
            page=view,
            # Both are files of this package.
            style=Markup(style),  # noqa: S704
            script=Markup(script),  # noqa: S704
            style_hash=_hash(style),
            script_hash=_hash(script),
        )
    )


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = _breakable
    return environment


def _shown(value: object) -> object:
    """A leaf of the page. Markup is ours."""
    # Markup is escaped by Jinja; this takes out what controls a terminal or the order of
    # letters.
    return value if isinstance(value, Markup) or not isinstance(value, str) else escaped(value)


def _breakable(name: str) -> Markup:
    """A name that breaks after the dots and slashes between its parts."""
    # The references that escape() makes have none of these.
    safe = str(escape(escaped(name)))
    return Markup(_PART_END.sub(r"\g<0><wbr>", safe))  # noqa: S704


def _source(name: str) -> str:
    return (files("wtxtgit.report.html") / "templates" / name).read_text("utf-8")


def _hash(source: str) -> str:
    """A hash of what stands between the tags (CSP 3)."""
    return f"sha256-{b64encode(sha256(source.encode()).digest()).decode()}"
