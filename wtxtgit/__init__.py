"""Model checkpoints in ordinary git, as deterministic, self-checking text.

The Python interface: `dump`, `dumps`, `finalize`, `load`, `loads`, `open`, `salvage`, `verify`,
and of age files `encrypt` and `decrypt`. They are loaded when they are first used, so that a
filter process starts quickly.
"""

from __future__ import annotations

from wtxtgit.version import __version__

TYPE_CHECKING = False
"""What type checkers take for true, without `typing`: its import is half of a client's start."""
if TYPE_CHECKING:
    from typing import Any

    from wtxtgit.checkpoint.arrays import (
        dump,
        dumps,
        finalize,
        load,
        loads,
        open,  # noqa: A004
        salvage,
        verify,
    )
    from wtxtgit.checkpoint.encrypt import decrypt, encrypt
    from wtxtgit.model.array import Meta


__all__ = [
    "Meta",
    "__version__",
    "decrypt",
    "dump",
    "dumps",
    "encrypt",
    "finalize",
    "load",
    "loads",
    "open",
    "salvage",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name == "Meta":
        from wtxtgit.model.array import Meta

        return Meta
    if name in ("encrypt", "decrypt"):
        from wtxtgit.checkpoint import encrypt

        return getattr(encrypt, name)
    if name in __all__:
        from wtxtgit.checkpoint import arrays

        return getattr(arrays, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
