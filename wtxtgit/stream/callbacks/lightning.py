"""Snapshots of a Lightning `Trainer`, as one of its callbacks."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback

from wtxtgit.stream.callbacks.steps import StepPublisher
from wtxtgit.stream.snapshots import Snapshots


class LightningSnapshots(Callback):  # type: ignore[misc, unused-ignore]
    """Publishes the module after each `every` steps, and at the end of the training.

    trainer = Trainer(callbacks=[LightningSnapshots(Snapshots("runs/exp1"), every=500)])

    The caller closes the snapshots.
    """

    def __init__(self, snapshots: Snapshots, *, every: int = 500) -> None:
        self._publisher = StepPublisher(snapshots, every)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        # With accumulated gradients one step takes several batches.
        self._publish(trainer, pl_module)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._publish(trainer, pl_module, is_end=True)

    def _publish(self, trainer: Any, module: Any, *, is_end: bool = False) -> None:
        self._publisher.publish(
            trainer.global_step,
            lambda: (module.state_dict(), trainer.callback_metrics),
            is_first=trainer.is_global_zero,
            is_end=is_end,
        )
