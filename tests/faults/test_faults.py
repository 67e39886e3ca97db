"""What commands do where the system lacks something: as usual, or one line and exit code 5."""

from __future__ import annotations

import os

import pytest

from tests.faults.trials import FAULTS, Trials, chosen
from tests.faults.world import COMMANDS
from tests.kit.refusals import is_possible

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not is_possible(),
        reason="this system's calls are not known: run it on Linux, x86-64 or arm64",
    ),
]
_TRIED = 30
"""Trials where `WTXTGIT_FAULTS` is not `all`."""


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    return Trials(tmp_path_factory.mktemp("faults"))


def test_commands_under_faults(trials: Trials) -> None:
    most = None if os.environ.get("WTXTGIT_FAULTS") == "all" else _TRIED
    tried = [trials.run(name, fault) for name, fault in chosen(most)]
    assert {"as usual", "refused"} <= {*tried}


@pytest.mark.parametrize(
    "name",
    [
        "add changed.safetensors",
        "status",
        "doctor",
        "verify ../files/large.aero",
        "git add changed.safetensors",
    ],
)
def test_one_thread_does(trials: Trials, name: str) -> None:
    assert trials.run(name, "no threads") == "as usual"


def test_a_filter_says_in_a_line_what_it_lacks(trials: Trials) -> None:
    assert trials.run("git add changed.safetensors", "1 MiB") == "refused"
    # How many it needs depends on the versions of git and Python.
    few = {trials.run("git checkout -q topic", f"{count} descriptors") for count in (8, 9)}
    assert few & {"left as text", "refused"}


@pytest.mark.parametrize("name", ["store use git+origin", "uninstall"])
def test_git_leaves_no_lock_where_files_may_not_grow(trials: Trials, name: str) -> None:
    assert trials.run(name, "files of 0 bytes") == "refused"


@pytest.mark.parametrize(
    "name",
    [name for name in COMMANDS if "--apply" in name or name == "migrate export --everything"],
)
def test_git_leaves_no_object_where_files_may_not_grow(trials: Trials, name: str) -> None:
    assert trials.run(name, "files of 100 bytes") == "refused"


def test_what_the_system_lacks_is_no_damage(trials: Trials) -> None:
    assert trials.run("ring verify ../files/exp1", "4 descriptors") == "refused"


def test_every_command_has_a_line_in_the_table() -> None:
    from wtxtgit.cli.front_page import COMMANDS as LISTED

    tried = {call.line.split()[0] for call in COMMANDS.values()}
    # Git starts these, in the trials of its own commands.
    by_git = {"filter-process", "diff-driver", "merge-driver"}
    assert {*LISTED} - by_git <= tried
    assert len(FAULTS) > 20
