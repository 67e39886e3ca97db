"""Distributed checkpoints as torch itself writes them: small ones, in `tests/data/distributed`.

`python -m tests.containers.distributed_files FOLDER` makes them, with torch 2.13 and safetensors,
and says in `FOLDER/expected.json` what torch has in them. Two ranks are two processes (gloo).
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

WORLD = 2
VALUES = {"opt.step": 3, "opt.lr": 0.5, "opt.name": "adam", "opt.betas": [0.9]}


def _module(path: str) -> Any:
    """A module of torch, which is there in some environments alone."""
    return import_module(f"torch{path}")


def plain_state() -> dict[str, Any]:
    """What one process saves."""
    torch = _module("")
    return {
        "model": {
            "w": torch.arange(35.0).reshape(7, 5),
            "b": torch.arange(3, dtype=torch.bfloat16),
            "n": torch.tensor(7),
            "empty": torch.zeros(0, 4),
            # Its items lie columns first in the file, too.
            "turned": torch.arange(6.0).reshape(2, 3).t(),
        },
        "opt": {"step": 3, "lr": 0.5, "name": "adam", "betas": [0.9]},
    }


def sharded_state() -> dict[str, Any]:
    """What each of several processes saves, of which they have parts."""
    torch = _module("")
    pieces = _module(".distributed.tensor")
    mesh = _module(".distributed.device_mesh").init_device_mesh("cpu", (WORLD,))

    def spread(values: Any, kind: Any) -> Any:
        return pieces.distribute_tensor(values, mesh, [kind])

    return {
        "rows": spread(torch.arange(35.0).reshape(7, 5), pieces.Shard(0)),
        "columns": spread(torch.arange(24, dtype=torch.bfloat16).reshape(4, 6), pieces.Shard(1)),
        "deep": spread(torch.arange(30, dtype=torch.uint8).reshape(2, 3, 5), pieces.Shard(2)),
        "same": spread(torch.arange(3), pieces.Replicate()),
    }


def facts(state: dict[str, Any], before: str = "") -> dict[str, list[Any]]:
    """Dtype, shape and SHA-256 of each tensor, by its name in the checkpoint."""
    torch = _module("")
    found: dict[str, list[Any]] = {}
    for key, value in state.items():
        if isinstance(value, dict):
            found |= facts(value, f"{before}{key}.")
        elif isinstance(value, torch.Tensor):
            whole = getattr(value, "full_tensor", lambda held=value: held)().contiguous()
            raw = bytes(whole.reshape(-1).view(torch.uint8).numpy()) if whole.numel() else b""
            dtype = str(whole.dtype).removeprefix("torch.")
            found[before + key] = [dtype, list(whole.shape), sha256(raw).hexdigest()]
    return found


def _save_rank(rank: int) -> None:
    dist, dcp = _module(".distributed"), _module(".distributed.checkpoint")
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", f"file://{Path('meet').resolve()}", rank=rank, world_size=WORLD)
    state = sharded_state()
    expected = facts(state)
    # Where they are saved is written down: names, and no paths of a machine.
    dcp.save({**state, "opt": {"step": 3}}, checkpoint_id="ranks")
    dcp.save(state, storage_writer=dcp.HuggingFaceStorageWriter("hf", save_distributed=True))
    if rank == 0:
        Path("sharded.json").write_text(json.dumps(expected))
    dist.destroy_process_group()


def make(root: Path) -> None:
    """Make all of them in a folder."""
    dcp, mp = _module(".distributed.checkpoint"), _module(".multiprocessing")
    formats = _module(".distributed.checkpoint.filesystem").SerializationFormat
    warnings.simplefilter("ignore")
    here = Path.cwd()
    root.mkdir(parents=True, exist_ok=True)
    os.chdir(root)
    try:
        state = plain_state()
        dcp.save(state, checkpoint_id="single", no_dist=True)
        kind = formats.SAFETENSORS
        # Safetensors hold no strides, and so no such tensor.
        state["model"]["turned"] = state["model"]["turned"].contiguous()
        writer = dcp.FileSystemWriter("in_safetensors", serialization_format=kind)
        dcp.save(state, storage_writer=writer, no_dist=True)
        writer = dcp.FileSystemWriter("files", single_file_per_rank=False)
        dcp.save({"a": state["model"]["w"], "step": 3}, storage_writer=writer, no_dist=True)
        mp.start_processes(_save_rank, (), WORLD, start_method="fork")
        sharded = json.loads(Path("sharded.json").read_text())
        Path("sharded.json").unlink()
        Path("meet").unlink(missing_ok=True)
    finally:
        os.chdir(here)
    plain = facts(plain_state())
    expected = {
        "single": plain,
        "in_safetensors": plain,
        "files": {"a": plain["model.w"]},
        "ranks": sharded,
        "hf": sharded,
    }
    (root / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
