"""Threads: order, errors, and systems that have no threads to give."""

from __future__ import annotations

import os
import resource

import pytest

from wtxtgit.io import workers
from wtxtgit.io.workers import Pool

WORK = 1 << 30


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_order(threads: int) -> None:
    with Pool(threads, WORK) as pool:
        assert list(pool.ordered((lambda n=n: n) for n in range(100))) == list(range(100))  # type: ignore[misc]


@pytest.mark.usefixtures("no_threads")
def test_where_no_thread_can_start_the_caller_does_the_work() -> None:
    with Pool(4, WORK) as pool:
        assert pool.threads == 1
        assert list(pool.ordered((lambda n=n: n) for n in range(5))) == list(range(5))  # type: ignore[misc]


def test_tiny_pieces_of_work_stay_with_the_caller() -> None:
    with Pool(4, WORK, tasks=WORK) as pool:
        assert pool.threads == 1


@pytest.mark.parametrize(
    ("limit", "threads"),
    [(resource.RLIM_INFINITY, 64), (2**30, 8), (2**28, 2), (2**20, 1), (2**40, 64)],
)
def test_a_limit_on_the_address_space_is_one_on_threads(
    limit: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: range(64))
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (limit, limit))
    assert workers.default_threads() == threads
