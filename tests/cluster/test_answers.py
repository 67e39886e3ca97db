"""What goes between processes: errors, and answers to tasks."""

from __future__ import annotations

import pickle

import pytest

from tests.cluster import tasks
from wtxtgit.cluster.client import answer
from wtxtgit.cluster.tasks import _split
from wtxtgit.errors import (
    EnvironmentFailure,
    FormatError,
    InputError,
    TextError,
    UsageError,
    WtxtgitError,
)
from wtxtgit.git.run import GitFailure

ERRORS = [
    InputError("no such file", hint="look elsewhere"),
    UsageError("m"),
    TextError("syntax", "no line", line=3, array="a", chunk=1, hint="h"),
    FormatError("too long", kind="limit", offset=7, field="length"),
    GitFailure(["cat-file", b"blob"], 128, b"fatal: \xff"),
    EnvironmentFailure("x" * 1000),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_are_the_same_in_another_process(error: WtxtgitError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert type(again) is type(error)
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_an_answer_counts_what_is_done() -> None:
    assert (answer(tasks.double, 4).value, answer(tasks.double, 4).done) == (8, 4)


def test_errors_are_answers() -> None:
    found = answer(tasks.refuse, 4)
    assert (type(found.error), found.value) == (FormatError, None)


def test_bugs_are_not() -> None:
    with pytest.raises(KeyError):
        answer(tasks.fail, 4)


@pytest.mark.parametrize(
    ("count", "most", "wanted"),
    [(3, 4, [1, 1, 1]), (4, 4, [1] * 4), (9, 4, [3, 3, 3]), (10, 4, [3, 3, 3, 1])],
)
def test_files_of_a_set_in_tasks(count: int, most: int, wanted: list[int]) -> None:
    paths = tuple(map(str, range(count)))
    found = _split(paths, most)
    assert [len(part) for part in found] == wanted
    assert tuple(path for part in found for path in part) == paths
