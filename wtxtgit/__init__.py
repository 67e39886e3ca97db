"""Model checkpoints in ordinary git, as deterministic, self-checking text.

The Python interface: `load`, `loads` and `open` read checkpoints of every format, `dump` and
`dumps` write them; `cat`, `verify`, `diff`, `convert` and `salvage` do what commands do. `finalize`
is for pending texts, `encrypt` and `decrypt` are for age files. `wtxtgit.stream` publishes
snapshots of a training.

All of it is loaded when it is first used, so that a filter process starts quickly.
"""

from __future__ import annotations

from wtxtgit.version import __version__

TYPE_CHECKING = False
"""What type checkers take for true, without `typing`: its import is half of a client's start."""
if TYPE_CHECKING:
    from typing import Any

    from wtxtgit.api.encryption import decrypt, encrypt
    from wtxtgit.api.functions import (
        cat,
        convert,
        diff,
        dump,
        dumps,
        finalize,
        load,
        loads,
        open,  # noqa: A004
        salvage,
        verify,
    )
    from wtxtgit.model.array import Meta


__all__ = [
    "Meta",
    "__version__",
    "cat",
    "convert",
    "decrypt",
    "diff",
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
_MODULES = ("errors", "stream")
"""What is there without an import of its own, too."""


def __getattr__(name: str) -> Any:
    if name == "Meta":
        from wtxtgit.model.array import Meta

        return Meta
    if name in ("encrypt", "decrypt"):
        from wtxtgit.api import encryption

        return getattr(encryption, name)
    if name in _MODULES:
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
    if name in __all__:
        from wtxtgit.api import functions

        return getattr(functions, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What completion shows, before any of it is loaded."""
    return [*__all__, *_MODULES, "__doc__"]
