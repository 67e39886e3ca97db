"""Snapshots of a Keras model's `fit`, as one of its callbacks."""

from __future__ import annotations

from keras import callbacks

from wtxtgit.stream.callbacks.steps import Logs, StepPublisher
from wtxtgit.stream.snapshots import Snapshots


class KerasSnapshots(callbacks.Callback):  # type: ignore[misc, unused-ignore]
    """Publishes the weights after each `every` batches, and at the end of the training.

    model.fit(..., callbacks=[KerasSnapshots(Snapshots("runs/exp1"), every=500)])

    The caller closes the snapshots.
    """

    def __init__(self, snapshots: Snapshots, *, every: int = 500) -> None:
        super().__init__()
        self._publisher = StepPublisher(snapshots, every)
        self._step = 0

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        # Keras counts batches from 0 in each epoch.
        self._step += 1
        self._publish(logs)

    def on_train_end(self, logs: Logs = None) -> None:
        self._publish(logs, is_end=True)

    def _publish(self, logs: Logs, *, is_end: bool = False) -> None:
        self._publisher.publish(
            self._step,
            lambda: ({weight.path: weight for weight in self.model.weights}, logs),
            is_end=is_end,
        )
