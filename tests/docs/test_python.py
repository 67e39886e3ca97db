"""docs/python.md: its program, and its tables."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import wtxtgit
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
