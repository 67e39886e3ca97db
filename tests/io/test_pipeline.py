"""A pipeline: chains get every result once and in order, and nothing hangs, whatever fails."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from functools import partial
from threading import Barrier, Event, Lock, active_count, current_thread, get_ident, main_thread
from typing import Any, NoReturn

import pytest

from wtxtgit.io import workers
from wtxtgit.io.workers import Pipeline

THREADS = pytest.mark.parametrize("threads", [1, 2, 5])


def fail(*_: object) -> NoReturn:
    raise MemoryError("no room")


def same(number: int) -> int:
    return number


@THREADS
def test_every_chain_gets_every_result_in_order(threads: int) -> None:
    first: list[int] = []
    second: list[int] = []
    Pipeline((partial(same, n) for n in range(300)), (first.append, second.append), threads).run()
    assert first == second == list(range(300))


@THREADS
def test_no_tasks_at_all(threads: int) -> None:
    found: list[int] = []
    Pipeline[int]((), (found.append,), threads).run()
    assert found == []


@THREADS
def test_what_follows_the_last_result_is_given_to_nobody(threads: int) -> None:
    first: list[int] = []
    second: list[int] = []
    Pipeline(
        (partial(same, n) for n in range(300)),
        (first.append, second.append),
        threads,
        is_last=lambda n: n in (17, 20),
    ).run()
    assert first == second == list(range(18))


def test_an_earlier_last_result_that_comes_later_counts() -> None:
    """Task 1 says that it is the last one before task 0, which is meant, has ended."""
    second_ended = Event()

    def task(number: int) -> int:
        if number == 0:
            second_ended.wait()
        return number

    def is_last(number: int) -> bool:
        if number == 1:
            second_ended.set()
        return True

    found: list[int] = []
    Pipeline((partial(task, n) for n in range(9)), (found.append,), 2, is_last=is_last).run()
    assert found == [0]


def test_the_first_chain_is_the_callers() -> None:
    caller, seen = get_ident(), set()
    Pipeline((partial(same, n) for n in range(300)), (lambda _: seen.add(get_ident()), id), 5).run()
    assert seen == {caller}


def test_a_task_runs_beside_a_chain() -> None:
    """The chain that follows result 0 ends only when task 1 runs meanwhile."""
    together = Barrier(2)

    def task(number: int) -> int:
        if number:
            together.wait()
        return number

    def follow(number: int) -> None:
        if not number:
            together.wait()

    Pipeline((partial(task, n) for n in range(2)), (follow,), 2).run()


@THREADS
def test_a_chain_runs_once_at_a_time(threads: int) -> None:
    lock = Lock()

    def follow(_: int) -> None:
        assert lock.acquire(blocking=False)
        lock.release()

    Pipeline((partial(same, n) for n in range(300)), (follow, follow), threads).run()


@THREADS
def test_results_are_not_made_far_ahead(threads: int) -> None:
    ahead = 0
    most = 0
    lock = Lock()

    def task() -> None:
        nonlocal ahead, most
        with lock:
            ahead += 1
            most = max(most, ahead)

    def follow(_: None) -> None:
        nonlocal ahead
        with lock:
            ahead -= 1

    Pipeline((task for _ in range(500)), (follow,), threads).run()
    assert 0 < most <= 6 * threads


@THREADS
@pytest.mark.parametrize("failing", ["task", "first chain", "second chain", "tasks"])
def test_an_error_ends_all_and_comes_out(threads: int, failing: str) -> None:
    followed: list[int] = []

    def tasks() -> Iterator[Any]:
        for number in range(500):
            if number == 100 and failing == "tasks":
                fail()
            yield fail if number == 100 and failing == "task" else partial(same, number)

    def chain(name: str, number: int) -> None:
        followed.append(number)
        if number == 100 and failing == name:
            fail()

    chains = (partial(chain, "first chain"), partial(chain, "second chain"))
    with pytest.raises(MemoryError, match="no room"):
        Pipeline(tasks(), chains, threads).run()
    assert len(followed) < 500


@pytest.mark.usefixtures("no_threads")
def test_where_no_thread_can_start_the_caller_does_the_work() -> None:
    found: list[int] = []
    Pipeline((partial(same, n) for n in range(9)), (found.append,), 4).run()
    assert found == list(range(9))


def test_a_signal_before_the_caller_takes_part_ends_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody would follow the first chain, and the others would wait for it for ever."""

    class Interrupted(concurrent.futures.ThreadPoolExecutor):
        left = 5

        def submit(self, *args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
            return super().submit(*args, **kwargs)

    monkeypatch.setattr(concurrent.futures, "ThreadPoolExecutor", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        Pipeline((partial(same, n) for n in range(900)), (id, id), 4).run()


def test_a_signal_while_threads_start_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(Barrier):
        def wait(self, timeout: float | None = None) -> int:
            if current_thread() is main_thread():
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(workers, "Barrier", Interrupted)
    before = active_count()
    with pytest.raises(KeyboardInterrupt):
        workers.started(3)
    assert active_count() == before
