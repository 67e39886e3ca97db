"""`wtxtgit review` as text: what it lists beside the changed tensors."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kit import Repo, text_of
from tests.review.repos import MODEL, file, started, weights

pytestmark = pytest.mark.slow


def test_what_came_went_and_metadata(repo: Repo) -> None:
    started(repo)
    old = weights(layers=2)
    repo.write(MODEL, text_of(file(old, {"step": "20"})))
    repo.add()
    repo.commit()
    repo.git("branch", "-f", "main")
    new = {name: value for name, value in old.items() if name != "layers.0.k"}
    new["layers.1.q"] = old["layers.1.q"].reshape(25, 40)
    new |= {f"more.{n}.w": np.full(3, n, "f4") for n in range(30)}
    repo.write(MODEL, text_of(file(new, {"step": "5"})))
    repo.add()
    repo.commit()
    done = repo.wtxtgit("review", "main...topic")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    cells = [line.split() for line in lines]
    assert ["removed", "layers.0.k", "f32", "40", "x", "25"] in cells
    assert ["added", "more.18.w", "f32", "3"] in cells
    assert "and 11 more such tensors; --json has them" in lines
    assert 'metadata /__metadata__/step: "20" -> "5"' in lines
    assert ["layers.1", "\u2013", "\u2013", "1", "of", "2", "\u2013"] in cells
    assert ["layers.0", "\u2013", "\u2013", "0", "of", "2,", "+0/-1", "\u2013"] in cells
    assert any("40 x 25 -> 25 x 40" in line for line in lines if line.startswith("shape-changed"))
