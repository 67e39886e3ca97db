"""Values of a distributed checkpoint that are not tensors, so far as they are plain data.

Step counts, learning rates and the like are each pickled separately. Spec: `docs/spec/torch.md`,
"Distributed checkpoints".
"""

from __future__ import annotations

import math

from wtxtgit.containers import json_text
from wtxtgit.containers.torch.listing import MAX_TAG
from wtxtgit.containers.torch.pickle_read import Dict, List, Pickle

MAX_ITEMS = 64
"""The most parts of a value that is shown; a longer one is only described."""
_LONGEST = 2**63
OTHER = object()
"""Stands for a value that is not shown."""


def plain(pickle: Pickle) -> object:
    """Return the value as plain data that JSON has; OTHER if it is anything else, or long."""
    try:
        return _Plain().value(pickle.root)
    except _NotPlainError:
        return OTHER


class _NotPlainError(Exception):
    """The value is not short plain data."""


class _Plain:
    def __init__(self) -> None:
        self._left = MAX_ITEMS

    def value(self, value: object) -> object:
        # Every part is counted, so the walk over a value that contains itself ends, too.
        self._left -= 1
        if self._left < 0:
            raise _NotPlainError
        match value:
            case None | bool():
                return value
            case int() if -_LONGEST <= value < _LONGEST:
                return value
            case float():
                return value if math.isfinite(value) else str(value)
            case str() if len(value) <= MAX_TAG and json_text.is_text(value):
                return value
            case tuple():
                return list(map(self.value, value))
            case List():
                return list(map(self.value, value.items))
            case Dict():
                return {self._key(key): self.value(held) for key, held in value.pairs}
        raise _NotPlainError

    def _key(self, key: object) -> str:
        if isinstance(key, str) and len(key) <= MAX_TAG and json_text.is_text(key):
            return key
        if type(key) is int and -_LONGEST <= key < _LONGEST:
            return str(key)
        raise _NotPlainError
