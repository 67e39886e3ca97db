"""Options that commands share which read containers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from wtxtgit.errors import InputError
from wtxtgit.model.reading import MAX_CHUNK, ReadOptions

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}
_SIZE = re.compile(r"([0-9]{1,18})([KMG]I?)?B?", re.IGNORECASE)
_KEY_BYTES = 32
_MAX_KEY_FILE = 4096

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Size(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A number of bytes: 1048576, 64MiB, 1GiB, 100MB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(value.strip())
        count = 0 if match is None else int(match[1]) * _UNITS[(match[2] or "").upper()]
        if count < 1:
            self.fail(f"'{value}' is no size, such as 64MiB", param, ctx)
        return count


class Target(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A path, as the system spells it, or a URL as it is."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from wtxtgit.remotes.urls import is_url

        return str(value) if is_url(str(value)) else str(Path(value))


max_chunk_option = click.option(
    "--max-chunk",
    type=Size(),
    default=MAX_CHUNK,
    metavar="SIZE",
    help="Most bytes that a chunk may have or decode to; 1GiB if not given.",
)


def reading_options(command: _Command) -> _Command:
    """Add --key and --max-chunk to a command, as `key` and `max_chunk`."""
    key = click.option(
        "--key",
        type=click.Path(path_type=Path, readable=False),
        metavar="F",
        help="File with the AES-256 key of encrypted FOLD chunks: 32 bytes, or 64 hex digits.",
    )
    return key(max_chunk_option(command))


def rewriting_options(command: _Command) -> _Command:
    """Add --hmac-key and --max-chunk to a command that writes a container again."""
    key = click.option(
        "--hmac-key",
        type=click.Path(path_type=Path, readable=False),
        metavar="F",
        help="File with the key of FOLD hashes that are HMACs, as it is.",
    )
    return key(max_chunk_option(command))


def read_options(key: Path | None, max_chunk: int) -> ReadOptions:
    """What --key and --max-chunk say; raises InputError for a key file that holds none."""
    if key is None:
        return ReadOptions(max_chunk)
    from wtxtgit.io.files import read_small, shown

    content = read_small(key, _MAX_KEY_FILE, "a key")
    if len(content) == _KEY_BYTES:
        return ReadOptions(max_chunk, content)
    digits = content.strip()
    if re.fullmatch(rb"[0-9A-Fa-f]{64}", digits) is None:
        raise InputError(f"{shown(key)}: no key of 32 bytes or 64 hex digits")
    return ReadOptions(max_chunk, bytes.fromhex(digits.decode()))
