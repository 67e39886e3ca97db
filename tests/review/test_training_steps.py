"""What torch saves after some more steps of training, which is no reason for any flag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit import Repo
from tests.review.repos import reviews
from wtxtgit.report.review import Risk

pytestmark = pytest.mark.torch

FORMS = {"zip.pt": True, "legacy.pt": False}


@pytest.fixture(name="torch")
def _torch() -> Any:
    # It takes seconds to import, so those alone wait for it who run these tests.
    return pytest.importorskip("torch", reason="torch is not installed: make torch-deps")


def saved(torch: Any, folder: Path, steps: int) -> dict[str, bytes]:
    """Model, optimizer and what else a training script saves, under the name of the step."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.LayerNorm(32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    losses = []
    for _ in range(steps):
        loss = model(torch.randn(8, 16)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    value = {
        "model": model.state_dict(),
        "parameters": list(model.parameters()),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "step": steps,
        "losses": losses,
    }
    made = {}
    for name, is_zip in FORMS.items():
        path = folder / f"step-{steps}.pt"
        torch.save(value, path, _use_new_zipfile_serialization=is_zip)
        made[name] = path.read_bytes()
    return made


def test_no_flag(torch: Any, repo: Repo, tmp_path: Path) -> None:
    # Small numbers are pickled in other ways than large ones.
    before, after = saved(torch, tmp_path, 250), saved(torch, tmp_path, 260)
    found = reviews(repo, {name: (before[name], after[name]) for name in FORMS})
    assert {name: one.flags for name, one in found.items()} == dict.fromkeys(FORMS, ())


def test_what_a_tensor_is_besides_its_values(torch: Any, repo: Repo, tmp_path: Path) -> None:
    def of(weight: float, *, is_trained: bool) -> bytes:
        path = tmp_path / "model.pt"
        values = torch.full((50,), weight)
        torch.save({"w": torch.nn.Parameter(values, requires_grad=is_trained)}, path)
        return path.read_bytes()

    found = reviews(repo, {"a.pt": (of(1.0, is_trained=True), of(2.0, is_trained=False))})
    assert Risk.PART in {flag.risk for flag in found["a.pt"].flags}
