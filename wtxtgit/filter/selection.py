"""Which tracked files a checkout smudges: `wtxtgit.smudgeInclude` and `smudgeExclude`.

Both are lists of patterns with commas between, as git-lfs has them for its
fetching. A pattern without a slash matches a name at any depth, one with a
slash a path from the top; a folder that matches stands for all in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from wtxtgit.git import config

INCLUDE = "wtxtgit.smudgeInclude"
EXCLUDE = "wtxtgit.smudgeExclude"


@cache
def selection() -> Callable[[bytes], bool]:
    """The selection that this repository's config makes, read once."""
    return select(_patterns(INCLUDE), _patterns(EXCLUDE))


def select(include: list[str], exclude: list[str]) -> Callable[[bytes], bool]:
    """A function that tells whether a path (from the top) is to be smudged."""
    wanted = [_compile(pattern) for pattern in include]
    unwanted = [_compile(pattern) for pattern in exclude]

    def selected(path: bytes) -> bool:
        name = path.decode("utf-8", "surrogateescape")
        if wanted and not any(pattern.match(name) for pattern in wanted):
            return False
        return not any(pattern.match(name) for pattern in unwanted)

    return selected


def _patterns(key: str) -> list[str]:
    value = config.effective(key) or ""
    return [pattern for part in value.split(",") if (pattern := part.strip())]


def _compile(pattern: str) -> re.Pattern[str]:
    anchored = "/" in pattern.rstrip("/")
    body = pattern.strip("/")
    out = [] if anchored else ["(?:.*/)?"]
    i = 0
    while i < len(body):
        if body.startswith("**/", i):
            out.append("(?:.*/)?")
            i += 3
        elif body.startswith("**", i):
            out.append(".*")
            i += 2
        else:
            out.append({"*": "[^/]*", "?": "[^/]"}.get(body[i], re.escape(body[i])))
            i += 1
    return re.compile("".join(out) + "(?:/.*)?$", re.DOTALL)
