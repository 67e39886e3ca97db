"""Workers: each result once and in order, and nothing hangs, whatever fails."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from threading import Barrier, Event, Lock, active_count, get_ident
from typing import Any, NoReturn

import pytest

from wtxtgit.io import workers
from wtxtgit.io.workers import Workers, in_background, worthwhile

WORK = 1 << 30
THREADS = pytest.mark.parametrize("threads", [1, 2, 5])


def fail(*_: object) -> NoReturn:
    raise MemoryError("no room")


def same(number: int) -> int:
    return number


def results(tasks: Iterable[Callable[[], Any]], threads: int, **options: Any) -> list[Any]:
    with Workers(tasks, threads, **options) as found:
        return list(found)


@THREADS
def test_the_caller_and_every_follower_get_every_result_in_order(threads: int) -> None:
    first: list[int] = []
    second: list[int] = []
    tasks = (partial(same, n) for n in range(300))
    found = results(tasks, threads, followers=(first.append, second.append))
    assert found == first == second == list(range(300))


@THREADS
@pytest.mark.parametrize("ahead", [None, 0])
def test_no_tasks_at_all(threads: int, ahead: int | None) -> None:
    followed: list[int] = []
    assert results((), threads, followers=(followed.append,), ahead=ahead) == followed == []


@THREADS
def test_what_follows_the_last_result_is_given_to_nobody(threads: int) -> None:
    followed: list[int] = []
    tasks = (partial(same, n) for n in range(300))
    found = results(tasks, threads, followers=(followed.append,), is_last=lambda n: n in (17, 20))
    assert found == followed == list(range(18))


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

    assert results((partial(task, n) for n in range(9)), 2, is_last=is_last) == [0]


def test_the_caller_works_while_it_waits() -> None:
    """The first task ends only when the second was done, by another thread."""
    second = Event()
    assert results([second.wait, second.set], 2) == [True, None]


def test_the_caller_waits_for_what_others_do() -> None:
    release, caller = Event(), get_ident()

    def held() -> int:
        if get_ident() != caller:
            release.wait()
        return 1

    assert results([held, release.set], 2) == [1, None]


def test_a_task_runs_while_the_caller_has_a_result() -> None:
    together = Barrier(2)

    def task(number: int) -> int:
        if number:
            together.wait()
        return number

    with Workers((partial(task, n) for n in range(2)), 2) as found:
        for number in found:
            if not number:
                together.wait()


def test_the_next_task_is_waited_for_while_others_run() -> None:
    """The first task ends only when the second was asked for, and that is given only then."""
    asked, ended = Event(), Event()

    def tasks() -> Iterator[Callable[[], object]]:
        yield asked.wait
        asked.set()
        ended.wait()
        yield int

    with Workers(tasks(), 3) as found:
        for _ in found:
            ended.set()


@THREADS
def test_a_follower_runs_once_at_a_time(threads: int) -> None:
    def follow(lock: Lock, _: int) -> None:  # type: ignore[valid-type]
        assert lock.acquire(blocking=False)  # type: ignore[attr-defined]
        lock.release()  # type: ignore[attr-defined]

    followers = (partial(follow, Lock()), partial(follow, Lock()))
    results((partial(same, n) for n in range(300)), threads, followers=followers)


@THREADS
@pytest.mark.parametrize("ahead", [None, 1, 500])
def test_results_are_not_made_far_ahead(threads: int, ahead: int | None) -> None:
    waiting = most = 0
    lock = Lock()

    def task() -> None:
        nonlocal waiting, most
        with lock:
            waiting += 1
            most = max(most, waiting)

    with Workers((task for _ in range(500)), threads, ahead=ahead) as found:
        for _ in found:
            with lock:
                waiting -= 1
    assert 0 < most <= (ahead or 3 * threads)


@THREADS
@pytest.mark.parametrize("failing", ["task", "caller", "follower", "tasks"])
def test_an_error_ends_all_and_comes_out(threads: int, failing: str) -> None:
    followed: list[int] = []
    before = active_count()

    def tasks() -> Iterator[Any]:
        for number in range(500):
            if number == 100 and failing == "tasks":
                fail()
            yield fail if number == 100 and failing == "task" else partial(same, number)

    def take(name: str, number: int) -> None:
        followed.append(number)
        if number == 100 and failing == name:
            fail()

    def run() -> None:
        with Workers(tasks(), threads, followers=(partial(take, "follower"),)) as found:
            for number in found:
                take("caller", number)

    with pytest.raises(MemoryError, match="no room"):
        run()
    assert len(followed) < 500
    assert active_count() == before


def test_an_error_of_another_thread_is_seen_by_a_caller_that_asks() -> None:
    failed = Event()

    def task() -> NoReturn:
        failed.set()
        fail()

    def run() -> None:
        with Workers([int, task], 2) as found:
            for _ in found:
                failed.wait()
                while True:
                    found.check()

    with pytest.raises(MemoryError, match="no room"):
        run()


def test_a_caller_that_leaves_stops_the_others() -> None:
    is_started, done = Event(), list[int]()

    def run(is_error: bool) -> None:
        with Workers([int, is_started.set, *[partial(done.append, 1)] * 1000], 2, ahead=2) as found:
            for _ in found:
                is_started.wait()
                if is_error:
                    raise KeyboardInterrupt
                break

    before = active_count()
    run(is_error=False)
    with pytest.raises(KeyboardInterrupt):
        run(is_error=True)
    assert not done
    assert active_count() == before


@pytest.mark.usefixtures("no_threads")
def test_where_no_thread_can_start_the_caller_does_the_work() -> None:
    followed: list[int] = []
    tasks = (partial(same, n) for n in range(9))
    assert results(tasks, 4, followers=(followed.append,)) == followed == list(range(9))
    assert in_background(int) is None


def test_a_signal_while_threads_start_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(workers.Thread):
        left = 3

        def start(self) -> None:
            Interrupted.left -= 1
            if not Interrupted.left:
                raise KeyboardInterrupt
            super().start()

    monkeypatch.setattr(workers, "Thread", Interrupted)
    before = active_count()
    with pytest.raises(KeyboardInterrupt):
        results((partial(same, n) for n in range(900)), 4)
    assert active_count() == before


def test_errors_in_the_background_are_nobodys() -> None:
    done = Event()
    threads = [in_background(fail), in_background(done.set)]
    for thread in threads:
        assert thread is not None
        thread.join()
    assert done.is_set()


def test_little_work_and_tiny_pieces_stay_with_the_caller() -> None:
    assert worthwhile(4, WORK) == worthwhile(4, WORK, tasks=64) == 4
    assert worthwhile(4, 1000) == worthwhile(4, WORK, tasks=WORK) == 1


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


UNDER_A_LIMIT = """
import resource, threading
from wtxtgit.io.workers import Workers

resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
met = threading.Barrier(3)
with Workers([lambda: met.wait() + len(bytearray(100_000))] * 3, 3) as work:
    assert len(list(work)) == 3
for line in open("/proc/self/maps"):
    start, end = (int(word, 16) for word in line.split()[0].split("-"))
    assert " ---p " not in line or end - start < 2**24, line
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="there is no /proc here: run it on Linux"
)
def test_under_a_limit_threads_reserve_no_heaps() -> None:
    subprocess.run([sys.executable, "-c", UNDER_A_LIMIT], check=True)
