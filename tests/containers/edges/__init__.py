"""The files of `tests/data/files.json`: places at which two readers of containers could differ."""

from __future__ import annotations

from tests.containers.edges import aero, fold, gguf, mlcp, npy, safetensors, torch, zips
from tests.containers.edges.pieces import Case

_FORMATS = (safetensors, fold, aero, mlcp, gguf, npy, zips, torch)


def made() -> dict[str, Case]:
    """All cases by name."""
    found = [case for module in _FORMATS for case in module.made()]
    assert len(dict(found)) == len(found)
    return dict(found)
