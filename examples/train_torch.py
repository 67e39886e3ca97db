"""A small network that learns in torch, with snapshots: python examples/train_torch.py [RING]."""

from __future__ import annotations

import sys

import torch

from wtxtgit.stream import Snapshots

STEPS = 200


def main(ring: str) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(256, 16)
    targets = inputs.square().sum(dim=1, keepdim=True)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with Snapshots(ring, keep=5) as snapshots:
        for step in range(1, STEPS + 1):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                snapshots.publish(
                    {"model": model.state_dict(), "optimizer": optimizer.state_dict()["state"]},
                    audit={"step": step, "loss": loss.item()},
                )
                print(f"step {step}, loss {loss.item():.4f}")
        snapshots.flush()
        print(snapshots)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/torch")
