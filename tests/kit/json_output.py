"""What `--json` prints is held against `docs/schemas`, wherever a test asks for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
_REPORTED = (0, 1, 3, 4)
"""Exit codes of commands that came to their end."""


@cache
def validator(name: str) -> Draft202012Validator:
    # The one in Rust: a test may print a hundred thousand objects.
    from jsonschema_rs import Draft202012Validator

    file = SCHEMAS / f"{name}.json"
    assert file.is_file(), f"{file.name} is not there: tests/docs/schemas.py, make schemas"
    return Draft202012Validator(json.loads(file.read_text()))


def schema_name(words: Sequence[str]) -> str:
    """The name of the schema of a call: its command, of a group with the one in it."""
    name, *rest = words
    of_group = f"{name}-{rest[0]}" if rest else name
    return of_group if (SCHEMAS / f"{of_group}.json").is_file() else name


def assert_as_specified(words: Sequence[str], code: int, out: bytes | None) -> None:
    """What a call of wtxtgit with `words` printed is as its schema says, where that is JSON."""
    before = words[: words.index("--")] if "--" in words else words
    if "--json" in before and out and code in _REPORTED:
        validator(schema_name(words)).validate(json.loads(out))
