"""Snapshots of a `transformers.Trainer`, as one of its callbacks."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from wtxtgit.stream.callbacks.steps import StepPublisher
from wtxtgit.stream.snapshots import Snapshots


class TrainerSnapshots(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Publishes the model after each `every` steps, and at the end of the training.

    trainer = Trainer(..., callbacks=[TrainerSnapshots(Snapshots("runs/exp1"), every=500)])

    The caller closes the snapshots.
    """

    def __init__(self, snapshots: Snapshots, *, every: int = 500) -> None:
        self._publisher = StepPublisher(snapshots, every)

    def on_step_end(self, args: Any, state: Any, control: Any, **arguments: Any) -> None:
        self._publish(state, arguments["model"])

    def on_train_end(self, args: Any, state: Any, control: Any, **arguments: Any) -> None:
        self._publish(state, arguments["model"], is_end=True)

    def _publish(self, state: Any, model: Any, *, is_end: bool = False) -> None:
        self._publisher.publish(
            state.global_step,
            lambda: (model.state_dict(), state.log_history[-1] if state.log_history else None),
            is_first=state.is_world_process_zero,
            is_end=is_end,
        )
