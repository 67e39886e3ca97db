"""Texts in a file's metadata that files of other formats can hold as well."""

from __future__ import annotations

from wtxtgit.containers.cursor import MAX_QUOTED, quoted


def texts(value: object) -> dict[str, str]:
    """The members of a JSON object that are texts; nothing of anything else.

    A lone surrogate, which JSON can spell, is in no text.
    """
    if not isinstance(value, dict):
        return {}
    return {
        key: member
        for key, member in value.items()
        if isinstance(member, str) and is_text(key) and is_text(member)
    }


def is_text(text: str) -> bool:
    """Whether a string out of JSON can be written as UTF-8."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def shown_key(key: str) -> str:
    """A key of the input as reports show it."""
    return key if len(key) <= MAX_QUOTED and key.isprintable() else quoted(key)
