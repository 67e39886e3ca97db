"""The examples do what they say."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.stream.rings import proved
from wtxtgit.stream.state import read_state

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("train_numpy", "layer.w"),
        pytest.param("train_torch", "model.0.weight", marks=pytest.mark.torch),
    ],
)
def test_an_example(name: str, array: str, tmp_path: Path) -> None:
    assert name == "train_numpy" or find_spec("torch"), "make test-torch installs it"
    ring = tmp_path / "ring"
    script = [sys.executable, EXAMPLES / f"{name}.py", ring]
    done = subprocess.run(script, capture_output=True, text=True, check=True, timeout=120)
    weights = proved(ring)
    counts = read_state(ring).counts
    assert counts.emitted + counts.dropped == done.stdout.count("step ")
    last = weights[max(weights)]
    assert array in last
    assert "loss=" in (last.snapshot.audit or "")
    assert f"generation {max(weights)}" in done.stdout
