"""Self-contained pages: they need no network and no other file. All use one template, `page.html`.

Whatever comes from a repository becomes text of the page, never markup: each expression of the
template is cleaned (`escaped`) and then HTML-escaped, all attributes are quoted, and none of it
gets into the script or the style sheet. A policy (CSP 3, section "Hash-source") allows only this
script and this style sheet, by their hashes.
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
    """Render a template with the data that it shows; a pure function of both."""
    style, script = _source("page.css"), _source("page.js")
    return (
        _environment()
        .get_template(template)
        .render(
            page=view,
            # Not from a repository: both are files of this package.
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
    """Prepare a value for output; only Markup, which is always ours, stays as it is."""
    # Jinja escapes markup; this removes characters that control a terminal or the direction of
    # text.
    return value if isinstance(value, Markup) or not isinstance(value, str) else escaped(value)


def _breakable(name: str) -> Markup:
    """Return a name that may be wrapped after the dots and slashes between its parts."""
    # The character references that escape() makes contain neither.
    safe = str(escape(escaped(name)))
    return Markup(_PART_END.sub(r"\g<0><wbr>", safe))  # noqa: S704


def _source(name: str) -> str:
    return (files("wtxtgit.report.html") / "templates" / name).read_text("utf-8")


def _hash(source: str) -> str:
    """Return the hash of the text between two tags, as CSP 3 spells it."""
    return f"sha256-{b64encode(sha256(source.encode()).digest()).decode()}"
