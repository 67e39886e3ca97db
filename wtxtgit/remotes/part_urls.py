"""Parts of a set that are missing locally, fetched from where its index says they are.

Anybody can write an index, so it alone causes no request: only URLs below the one that the user has
configured are opened (docs/containers.md, "Sets").
"""

from __future__ import annotations

import re

from wtxtgit.errors import EnvironmentFailure, InputError
from wtxtgit.git.repository import Config
from wtxtgit.io.view import ByteView
from wtxtgit.remotes.urls import is_loopback, member_of, shown_url

KEY = "wtxtgit.partsUrl"
_MOST_URL = 2048
_URL = re.compile(
    # No escapes, queries, credentials or patterns, and no `::`: other software would interpret
    # these, beyond what a comparison of prefixes shows.
    r"(?P<scheme>https?|file|s3|s3a|gs|gcs|az|abfs|abfss|sftp)://"
    r"(?P<host>[A-Za-z0-9._-]*)(?P<port>:[0-9]{1,5})?(?P<path>(?:/[^/\x00-\x20\x7f-\x9f%?#@:*{}\[\]\\]+)*)/?"
)


def read_part(base_url: str, path: str, allowed: str | None) -> ByteView:
    """Return the bytes of a set's file, by its path below `base_url`.

    Raises InputError for a URL that is not below the allowed one, and as `read_url` does.
    """
    if not is_below(base_url, allowed):
        shown = shown_url(base_url[:_MOST_URL])
        raise InputError(f"not fetched from {shown}: git config {KEY} URL allows all below URL")
    return member_of(f"{base_url.rstrip('/')}/index", path)


def is_below(url: str, allowed: str | None) -> bool:
    """Tell whether a URL is the allowed one, or in its folder."""
    if allowed is None or not (_is_plain(url) and _is_plain(allowed)):
        return False
    return f"{url.rstrip('/')}/".startswith(f"{allowed.rstrip('/')}/")


def _is_plain(url: str) -> bool:
    match = _URL.fullmatch(url) if len(url) <= _MOST_URL else None
    if match is None or {".", ".."} & set(match["path"].split("/")):
        return False
    if match["scheme"] == "file":
        return not match["host"] and not match["port"] and len(match["path"]) > 1
    # Without TLS data is only fetched from this machine.
    return bool(match["host"]) and (match["scheme"] != "http" or is_loopback(match["host"]))


def allowed_url() -> str | None:
    """Return the URL below which files may be fetched; None if there is none. Starts git."""
    try:
        return Config(None).get(KEY)
    except EnvironmentFailure:
        # Without git, what needs no git still works.
        return None
