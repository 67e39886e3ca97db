"""Snapshots of a `transformers.Trainer`, as one of its callbacks."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from wtxtgit.errors import UsageError
from wtxtgit.stream.callbacks.words import numbers
from wtxtgit.stream.snapshots import Snapshots


class TrainerSnapshots(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Publishes the model after each `every` steps, and at the end of the training.

    trainer = Trainer(..., callbacks=[TrainerSnapshots(Snapshots("runs/exp1"), every=500)])

    The caller closes the snapshots.
    """

    def __init__(self, snapshots: Snapshots, *, every: int = 500) -> None:
        if every < 1:
            raise UsageError(f"every is {every}, at least 1 is wanted")
        self._snapshots = snapshots
        self._every = every
        self._last = -1

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if state.global_step % self._every == 0:
            self._publish(state, given["model"])

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if state.global_step != self._last:
            self._publish(state, given["model"])

    def _publish(self, state: Any, model: Any) -> None:
        if state.is_world_process_zero or not self._snapshots.rank.is_alone:
            logs = state.log_history[-1] if state.log_history else None
            self._last = state.global_step
            self._snapshots.publish(model.state_dict(), gen=self._last, audit=numbers(logs))
