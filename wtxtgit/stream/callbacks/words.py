"""What a framework logs, as words of the audit line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def numbers(logs: Mapping[str, Any] | None) -> dict[str, float]:
    """Those of the logged values that are numbers, by names that an audit line can hold."""
    found = {}
    for name, value in (logs or {}).items():
        try:
            found[str(name).replace(" ", "_")] = float(value)
        except (TypeError, ValueError, RuntimeError):
            continue  # a report, a table, a tensor of many
    return found
