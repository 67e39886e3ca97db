"""docs/python.md: its program, and its tables."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wtxtgit
from tests.data import FIXTURES
from tests.docs.pages import blocks, spans, tables

PAGE = "docs/python.md"


def execute(page: str, section: str | None = None) -> dict[str, Any]:
    """Run a page's Python in order, in one namespace; lines are those of the page."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page, "python", section):
        code = "\n" * (block.line - 1) + block.text
        exec(compile(code, page, "exec", dont_inherit=True), namespace)  # noqa: S102
    return namespace


def test_the_examples_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    left = execute(PAGE)
    assert len(blocks(PAGE, "python")) >= 7
    assert {file.name for file in tmp_path.iterdir()} == {
        "model.safetensors",
        "next.safetensors",
        "next.npz",
        "step-100.wtxt",
        "step-100.wtxt.age",
        "forged.wtxt",
        "step-200.wtxt",
        "signed.wtxt",
    }
    assert left["report"].ok


OF_OTHER_TOOLS = {
    "model.fold": "fold/neuron_none_rs16_a.fold",
    "damaged.fold": "fold/none_rs16_flipped_a.fold",
    "secret.fold": "fold/encrypted_high_a.fold",
    "model.aero": "aero/ihsh_phsh_a.aero",
    "set": "aero/aeroset_multi_a",
    "train.taridx": "taridx/pair_v1/train.taridx",
    "train_000.tar": "taridx/pair_v1/train_000.tar",
    "train_001.tar": "taridx/pair_v1/train_001.tar",
}


def test_each_row_about_other_tools_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, source in OF_OTHER_TOOLS.items():
        path = FIXTURES / source
        (shutil.copytree if path.is_dir() else shutil.copy)(path, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    namespace = {
        "wtxtgit": wtxtgit,
        "arrays": {"w": np.ones((64, 64), "f4"), "b": np.zeros(3, "f4")},
        "key": bytes(range(32)),
    }
    for table in tables(PAGE, "Coming from other tools"):
        for row in table:
            calls = [span for span in spans(row[1]) if "wtxtgit." in span]
            assert calls or "wtxtgit " in row[1], row
            for call in calls:
                result = eval(call, namespace)  # noqa: S307
                assert getattr(result, "ok", True), call
                assert not isinstance(result, bytes) or result, call
    listed = {path.name for path in tmp_path.iterdir()}
    for made in ("new.fold", "new.aero", "big.aeroset.json", "inline.checkpoint"):
        assert made in listed
    assert any(name.startswith("ranks") and name.endswith(".shard") for name in listed)


def test_all_names_are_listed() -> None:
    listed = {spans(row[0])[0].partition("(")[0] for row in tables(PAGE, "Python interface")[0]}
    assert listed == set(wtxtgit.__all__) - {"__version__"}


def _named(functions: set[str], of: str) -> set[str]:
    """The functions that a row is of: `A, B` or `all but A and B`."""
    if of.startswith("all but "):
        return functions - set(of.removeprefix("all but ").split(" and "))
    return set(of.split(", "))


def test_all_options_are_listed() -> None:
    functions = set(wtxtgit.__all__) - {"__version__", "Meta", "encrypt", "decrypt"}
    listed: dict[str, set[str]] = {name: set() for name in functions}
    for argument, of, _ in tables(PAGE, "Options")[0]:
        named = _named(functions, of)
        assert named <= functions
        for name in named:
            listed[name].update(spans(argument))
    taken = {
        name: {
            parameter.name
            for parameter in inspect.signature(getattr(wtxtgit, name)).parameters.values()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }
        for name in functions
    }
    assert listed == taken
