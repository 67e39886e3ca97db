"""What the callbacks of all frameworks share: publish after so many steps, and at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from wtxtgit.errors import UsageError
from wtxtgit.stream.snapshots import Snapshots

Logs: TypeAlias = Mapping[str, Any] | None


class StepPublisher:
    """Publishes after each `every` steps, and at the end if there were more; each step once."""

    def __init__(self, snapshots: Snapshots, every: int) -> None:
        if every < 1:
            raise UsageError(f"every is {every}, but must be at least 1")
        self._snapshots = snapshots
        self._every = every
        self._last = -1

    def publish(
        self,
        step: int,
        get: Callable[[], tuple[Any, Logs]],
        *,
        is_first: bool = True,
        is_end: bool = False,
    ) -> None:
        """Publish the arrays and logged values that `get` returns, if this step is due.

        `is_first` marks the rank that publishes for all, unless each rank takes its own snapshots.
        """
        is_due = is_end or step % self._every == 0
        if is_due and step != self._last and (is_first or not self._snapshots.rank.is_alone):
            arrays, logs = get()
            self._last = step
            self._snapshots.publish(arrays, gen=step, audit=_numbers(logs))


def _numbers(logs: Logs) -> dict[str, float]:
    """Return the logged values that are numbers, with names that are valid in an audit line."""
    numbers = {}
    for name, value in (logs or {}).items():
        try:
            numbers[str(name).replace(" ", "_")] = float(value)
        except (TypeError, ValueError, RuntimeError):
            continue  # a report, a table, a tensor of many
    return numbers
