"""Snapshots of a Lightning `Trainer`, as one of its callbacks."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback

from wtxtgit.errors import UsageError
from wtxtgit.stream.callbacks.words import numbers
from wtxtgit.stream.snapshots import Snapshots


class LightningSnapshots(Callback):  # type: ignore[misc, unused-ignore]
    """Publishes the module after each `every` steps, and at the end of the training.

    trainer = Trainer(callbacks=[LightningSnapshots(Snapshots("runs/exp1"), every=500)])

    The caller closes the snapshots.
    """

    def __init__(self, snapshots: Snapshots, *, every: int = 500) -> None:
        if every < 1:
            raise UsageError(f"every is {every}, at least 1 is wanted")
        self._snapshots = snapshots
        self._every = every
        self._last = -1

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        # With gradients that are gathered over batches a step takes several of them.
        step = trainer.global_step
        if step % self._every == 0 and step != self._last:
            self._publish(trainer, pl_module)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.global_step != self._last:
            self._publish(trainer, pl_module)

    def _publish(self, trainer: Any, module: Any) -> None:
        if trainer.is_global_zero or not self._snapshots.rank.is_alone:
            self._last = trainer.global_step
            audit = numbers(trainer.callback_metrics)
            self._snapshots.publish(module.state_dict(), gen=self._last, audit=audit)
