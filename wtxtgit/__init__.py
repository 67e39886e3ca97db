"""Model checkpoints in ordinary git, as deterministic, self-checking text.

The Python interface: `dump`, `dumps`, `load`, `loads`, `open`, `verify`. They are
loaded when they are first used, so that a filter process starts quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wtxtgit.version import __version__

if TYPE_CHECKING:
    from wtxtgit.checkpoint.arrays import dump, dumps, load, loads, open, verify  # noqa: A004
    from wtxtgit.model.array import Meta


__all__ = ["Meta", "__version__", "dump", "dumps", "load", "loads", "open", "verify"]


def __getattr__(name: str) -> Any:
    if name == "Meta":
        from wtxtgit.model.array import Meta

        return Meta
    if name in __all__:
        from wtxtgit.checkpoint import arrays

        return getattr(arrays, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
