"""A linear model that learns in numpy, with snapshots: python examples/train_numpy.py [RING]."""

from __future__ import annotations

import sys

import numpy as np

from wtxtgit.stream import Snapshots

STEPS = 400


def main(ring: str) -> None:
    random = np.random.default_rng(0)
    inputs = random.normal(size=(256, 16)).astype("float32")
    targets = inputs @ random.normal(size=(16, 1)).astype("float32")
    weights = {"layer": {"w": np.zeros((16, 1), "float32"), "b": np.zeros(1, "float32")}}
    layer = weights["layer"]
    with Snapshots(ring, keep=5, full_every=10) as snapshots:
        for step in range(1, STEPS + 1):
            error = inputs @ layer["w"] + layer["b"] - targets
            layer["w"] -= 0.05 * inputs.T @ error / len(inputs)
            layer["b"] -= 0.05 * error.mean(axis=0)
            if step % 50 == 0:
                loss = float((error**2).mean())
                snapshots.publish(weights, audit={"step": step, "loss": loss})
                print(f"step {step}, loss {loss:.4f}")
        snapshots.flush()
        print(snapshots)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/numpy")
