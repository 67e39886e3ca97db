"""Callbacks with the frameworks that they are for; `make test-trainers` installs these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.stream.rings import proved
from wtxtgit.stream import Snapshots

# What these frameworks warn of among themselves is not ours.
pytestmark = [pytest.mark.trainers, pytest.mark.filterwarnings("default")]


def test_torch_tensors_of_all_kinds(tmp_path: Path) -> None:
    import torch

    tied = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    state = {
        "f32": tied,
        "tied": tied,
        "turned": tied.T,
        "bf16": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "f8": torch.tensor([1.5, -2.0]).to(torch.float8_e4m3fn),
        "bool": torch.tensor([True, False]),
        "scalar": torch.tensor(3, dtype=torch.int64),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "none": torch.zeros(0, 4),
    }
    with Snapshots(tmp_path / "ring") as snapshots:
        snapshots.publish(state)
    weights = proved(tmp_path / "ring")[0]
    assert np.array_equal(weights["turned"], tied.T.numpy())
    assert np.array_equal(weights["tied"], tied.numpy())
    assert np.array_equal(weights["conjugate"], [1 - 2j])
    assert weights["scalar"] == 3
    assert weights["none"].shape == (0, 4)
    descrs = {one.name: one.dtype for one in weights.snapshot.layout.extents}  # type: ignore[union-attr]
    assert descrs["bf16"] == "bfloat16"
    assert descrs["f8"] == "float8_e4m3fn"
    bits = state["bf16"].view(torch.int16).numpy().view("<u2")
    assert weights["bf16"].tobytes() == bits.tobytes()


@pytest.mark.parametrize("kind", ["sparse", "meta"])
def test_tensors_without_plain_memory_are_refused(kind: str, tmp_path: Path) -> None:
    import torch

    from wtxtgit.errors import UsageError

    tensor = torch.eye(2).to_sparse() if kind == "sparse" else torch.ones(2, device="meta")
    with Snapshots(tmp_path / "ring") as snapshots, pytest.raises(UsageError, match='"w" is a'):
        snapshots.publish({"w": tensor})


def test_transformers(tmp_path: Path) -> None:
    import torch
    from transformers import Trainer, TrainingArguments

    from wtxtgit.stream.callbacks.transformers import TrainerSnapshots

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            return {"loss": ((self.layer(x) - labels) ** 2).mean()}

    data = [{"x": torch.randn(4), "labels": torch.randn(1)} for _ in range(20)]
    model = Model()
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "out"),
        max_steps=5,
        per_device_train_batch_size=2,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    with Snapshots(tmp_path / "ring", policy="all") as snapshots:
        callbacks = [TrainerSnapshots(snapshots, every=2)]
        Trainer(model=model, args=arguments, train_dataset=data, callbacks=callbacks).train()
    weights = proved(tmp_path / "ring")
    assert list(weights) == [2, 4, 5]
    assert np.array_equal(weights[5]["layer.weight"], model.layer.weight.detach().numpy())
    assert "loss=" in weights[4].snapshot.audit  # type: ignore[operator]


def test_lightning(tmp_path: Path) -> None:
    import torch
    from lightning.pytorch import LightningModule, Trainer

    from wtxtgit.stream.callbacks.lightning import LightningSnapshots

    class Model(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            loss = self.layer(batch).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    model = Model()
    data = torch.utils.data.DataLoader(torch.randn(20, 4), batch_size=2)
    with Snapshots(tmp_path / "ring", policy="all") as snapshots:
        Trainer(
            max_steps=5,
            callbacks=[LightningSnapshots(snapshots, every=2)],
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        ).fit(model, data)
    weights = proved(tmp_path / "ring")
    assert list(weights) == [2, 4, 5]
    assert np.array_equal(weights[5]["layer.weight"], model.layer.weight.detach().numpy())
    assert "loss=" in weights[4].snapshot.audit  # type: ignore[operator]


def test_keras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    import keras

    from wtxtgit.stream.callbacks.keras import KerasSnapshots

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    inputs = np.random.default_rng(0).normal(size=(20, 4)).astype("float32")
    with Snapshots(tmp_path / "ring", policy="all") as snapshots:
        callbacks = [KerasSnapshots(snapshots, every=4)]
        model.fit(inputs, inputs[:, :1], batch_size=2, verbose=0, callbacks=callbacks)
    weights = proved(tmp_path / "ring")
    assert list(weights) == [4, 8, 10]
    (name,) = [name for name in weights[10] if name.endswith("kernel")]
    assert np.array_equal(weights[10][name], np.asarray(model.get_weights()[0]))
    assert "loss=" in weights[10].snapshot.audit  # type: ignore[operator]
