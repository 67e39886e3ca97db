"""Snapshots of a Keras model's `fit`, as one of its callbacks."""

from __future__ import annotations

from typing import Any

from keras import callbacks

from wtxtgit.errors import UsageError
from wtxtgit.stream.callbacks.words import numbers
from wtxtgit.stream.snapshots import Snapshots


class KerasSnapshots(callbacks.Callback):  # type: ignore[misc, unused-ignore]
    """Publishes the weights after each `every` batches, and at the end of the training.

    model.fit(..., callbacks=[KerasSnapshots(Snapshots("runs/exp1"), every=500)])

    The caller closes the snapshots.
    """

    def __init__(self, snapshots: Snapshots, *, every: int = 500) -> None:
        super().__init__()
        if every < 1:
            raise UsageError(f"every is {every}, at least 1 is wanted")
        self._snapshots = snapshots
        self._every = every
        self._step = 0
        self._last = -1

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        # Batches are counted anew in each epoch.
        self._step += 1
        if self._step % self._every == 0:
            self._publish(logs)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._step != self._last:
            self._publish(logs)

    def _publish(self, logs: dict[str, Any] | None) -> None:
        self._last = self._step
        weights = {weight.path: weight for weight in self.model.weights}
        self._snapshots.publish(weights, gen=self._last, audit=numbers(logs))
