"""What changed decides how many mutants run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.changes import (
    AUDIT,
    CONTAINERS,
    LIMITS,
    MUTANTS,
    PAGES,
    PRODUCT,
    ROOT,
    SAMPLED,
    SHARED,
    TEXT,
    TRUST,
    _concerns,
    is_chosen,
    share,
    told,
    why_all,
)


@pytest.mark.parametrize(
    ("path", "packages"),
    [
        ("wtxtgit/containers/fold/read.py", {"fold"}),
        ("wtxtgit/containers/json_limits.py", {"fold", "npy"}),
        ("wtxtgit/containers/shared/module.py", {"fold", "npy"}),
        ("wtxtgit/model/tensor.py", {"fold", "npy"}),
        ("wtxtgit/model/ledger.py", set()),
        ("tests/fuzz/guided/files.py", set()),
        ("tests/fuzz/mutations.py", {"fold", "npy"}),
        ("tests/fuzz/test_salvage.py", {"fold", "npy"}),
        ("tests/fuzz/test_limits_elsewhere.py", set()),
        ("tests/fuzz/many.py", set()),
        ("wtxtgit/trust/state.py", set()),
        ("wtxtgit/text/armor.py", set()),
        ("docs/containers.md", set()),
    ],
)
def test_a_change_concerns_the_formats_that_go_through_it(path: str, packages: set[str]) -> None:
    assert {package for package in ("fold", "npy") if _concerns(path, package)} == packages


@pytest.mark.parametrize(
    ("path", "rooms"),
    [
        ("wtxtgit/text/armor.py", {TEXT, TRUST, AUDIT}),
        ("wtxtgit/model/ledger.py", {TEXT, TRUST, AUDIT}),
        ("wtxtgit/trust/state.py", {TRUST, AUDIT}),
        ("wtxtgit/chain/judge.py", {AUDIT}),
        ("wtxtgit/git/trees.py", {AUDIT}),
        ("tests/trust/naive.py", {TRUST}),
        ("tests/fuzz/mutations.py", {TEXT}),
        ("wtxtgit/containers/fold/read.py", set()),
        ("docs/spec/trust.md", set()),
    ],
)
def test_a_change_concerns_the_rooms_that_hang_on_it(path: str, rooms: set[str]) -> None:
    assert {room for room in (TEXT, TRUST, AUDIT) if _concerns(path, room)} == rooms


def test_what_all_formats_use_is_known() -> None:
    """What a process has loaded that imports all of them, and the version aside nothing else."""
    code = (
        "import pkgutil, sys, wtxtgit.containers as room; from importlib import import_module\n"
        "for one in pkgutil.walk_packages(room.__path__, room.__name__ + '.'):\n"
        "    import_module(one.name)\n"
        "found = [m.__file__ for name, m in sys.modules.items() if name.startswith('wtxtgit.')]\n"
        "print(*found, sep='\\0')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    used = {Path(path).relative_to(ROOT).as_posix() for path in done.stdout.strip().split("\0")}
    used = {path for path in used if not path.startswith(CONTAINERS)}
    used -= {"wtxtgit/version.py"}
    assert used == {path for path in SHARED if path.startswith("wtxtgit/") and path[-1] != "/"}


def test_of_sampled_cases_one_of_a_few_runs_where_nothing_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = [f"tests/a.py::test[{n}]" for n in range(1000)]
    for asked, least, most in (("all", 1000, 1000), ("sample", 150, 250)):
        monkeypatch.setenv(MUTANTS, asked)
        why_all.cache_clear()
        assert least <= sum(is_chosen(LIMITS, case) for case in cases) <= most
    why_all.cache_clear()
    assert {room for room in SAMPLED if _concerns("wtxtgit/text/verify.py", room)} == {
        LIMITS,
        PRODUCT,
    }
    assert {room for room in SAMPLED if _concerns("wtxtgit/report/html/page.js", room)} == {
        PAGES,
        PRODUCT,
    }
    assert not any(_concerns("docs/git.md", room) for room in SAMPLED)


def test_a_variable_decides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for asked, count in (("all", 20), ("sample", 2)):
        monkeypatch.setenv(MUTANTS, asked)
        why_all.cache_clear()
        assert share("fold", 20) == count
    assert told(["fold", "npy"]) == ["mutants: a tenth (nothing changed) of fold, npy"]
    why_all.cache_clear()
