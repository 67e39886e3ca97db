"""Texts as tests read them: their own arrays, whatever they stand for."""

from __future__ import annotations

from typing import Any

from wtxtgit.text.arrays import Weights, read


def read_text(text: bytes, **given: Any) -> Weights:
    """The arrays of a text that verifies; `given` is as for `read`."""
    return read(memoryview(text), **given)
