"""Snapshots while training: taken without slowing the loop, kept in a ring, sent to targets.

from wtxtgit.stream import Snapshots, targets
with Snapshots("runs/exp1", keep=20, to=[targets.Folder("/backup/exp1")]) as snapshots:
    snapshots.publish(model.state_dict(), gen=step, audit={"loss": loss})
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from wtxtgit.stream import targets
    from wtxtgit.stream.snapshots import Snapshots

__all__ = ["Snapshots", "targets"]


def __getattr__(name: str) -> Any:
    # Imported on demand: the worker imports this package too, and needs none of these.
    if name == "Snapshots":
        return import_module("wtxtgit.stream.snapshots").Snapshots
    if name == "targets":
        return import_module("wtxtgit.stream.targets")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return what completion shows, before any of it is loaded."""
    return [*__all__, "__doc__"]
