"""The lines that only a delta has, parsed and formatted.

`docs/spec/delta.md`, section "Lines". All others are spelled as in a text, and
so are the conventions of these functions: those of `text.grammar`.
"""

from __future__ import annotations

import re

from wtxtgit.io.view import Buffer

MAGIC = b"WTXT-DELTA "
"""What makes an input a delta, of whatever version."""
VERSION = b"WTXT-DELTA 2 "
LAST_LINE = b"enddelta\n"

_FIRST = re.compile(re.escape(VERSION) + rb"base_sha256_all=([0-9a-f]{64})\n")
_NAME = rb"([A-Za-z0-9_]+)\n"
_PLAIN_ARRAY = re.compile(rb"arr name=" + _NAME)
_REMOVED = re.compile(rb"del name=" + _NAME)


def parse_first(text: Buffer, pos: int) -> tuple[bytes, int] | None:
    """The sha256_all of the base that the first line names."""
    if (m := _FIRST.match(text, pos)) is None:
        return None
    return bytes.fromhex(m[1].decode("ascii")), m.end()


def format_first(base: bytes) -> bytes:
    return VERSION + b"base_sha256_all=%b\n" % base.hex().encode("ascii")


def parse_plain_array(text: Buffer, pos: int) -> tuple[str, int] | None:
    """The name on the `arr` line of a plain delta, which has no other field."""
    if (m := _PLAIN_ARRAY.match(text, pos)) is None:
        return None
    return m[1].decode("ascii"), m.end()


def format_plain_array(name: str) -> bytes:
    return b"arr name=%b\n" % name.encode("ascii")


def parse_removed(text: Buffer, pos: int) -> tuple[str, int] | None:
    if (m := _REMOVED.match(text, pos)) is None:
        return None
    return m[1].decode("ascii"), m.end()


def format_removed(name: str) -> bytes:
    return b"del name=%b\n" % name.encode("ascii")
