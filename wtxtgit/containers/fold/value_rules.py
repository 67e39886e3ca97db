"""Merge rules for values that every writer of a FOLD file makes anew.

pyfolds writes the time, counters and measurements of the model to each file, so they always differ
between two sides, although they do not concern the rows of the model. Hyperparameters have no
rules. Spec: `docs/spec/fold.md`, "Resealing".
"""

from __future__ import annotations

import math
import re

LATER, LARGER, MEASURED = "later", "larger", "measured"
"""The later one of two times, the larger one of two counts, ours of two measurements."""

_TIME = re.compile(r"(^|_)(created|updated|saved|written)_at|timestamp|(^|_)time(_|$)|(^|_)unix$")
_COUNT = re.compile(
    r"(^|_)(steps?|epochs?|iterations?|counts?|switches|rebuilds|updates|generations?)(_id)?$"
)
_MEASUREMENTS = frozenset({"metrics", "telemetry", "history"})
"""Chunks with what was measured of the model when it was written."""
_MEASURED_IN = frozenset({"metadata", "llm_manifest"})
_MEASURED = ("expression",)
_FIXED = "hyperparameters"


def ruled(
    chunk: str | None, pointer: str, ours: object, theirs: object
) -> tuple[object, str] | None:
    """Return the value to take, and a word for the reason; None if no rule applies."""
    keys = pointer.split("/")[1:]
    if not keys or _FIXED in keys:
        return None
    if _TIME.search(keys[-1]) and (latest := _largest(ours, theirs)) is not None:
        return latest, LATER
    if _COUNT.search(keys[-1]) and type(ours) is int and type(theirs) is int:
        return max(ours, theirs), LARGER
    is_measured = chunk in _MEASUREMENTS
    if chunk is None or chunk in _MEASURED_IN:
        is_measured = keys[0] in _MEASURED
    return (ours, MEASURED) if is_measured else None


def _largest(ours: object, theirs: object) -> object | None:
    """Return the larger of two numbers of one type, or of two texts that start with a date."""
    if type(ours) is not type(theirs):
        return None
    if isinstance(ours, int | float) and isinstance(theirs, int | float):
        is_number = not isinstance(ours, bool) and math.isfinite(ours) and math.isfinite(theirs)
        return max(ours, theirs) if is_number else None
    if isinstance(ours, str) and isinstance(theirs, str):
        # Dates of one spelling compare as texts; with different lengths they can't be compared.
        is_date = all(re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) for text in (ours, theirs))
        return max(ours, theirs) if is_date and len(ours) == len(theirs) else None
    return None
