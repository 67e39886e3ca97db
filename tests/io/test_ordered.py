"""A crew: tasks start in order, the caller takes part, nothing hangs on an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Event, get_ident
from typing import Any, NoReturn

import pytest

from wtxtgit.io.workers import Crew


def run(tasks: Sequence[Callable[[], object]], threads: int) -> None:
    with Crew(tasks, threads) as crew:
        crew.need(len(tasks) - 1)
        crew.finish()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_task_is_done_once(threads: int) -> None:
    done: list[int] = []
    with Crew([lambda n=n: done.append(n) for n in range(100)], threads) as crew:  # type: ignore[misc]
        crew.need(30)
        assert 30 in done
        crew.finish()
    assert sorted(done) == list(range(100))


def test_the_caller_alone_does_them_in_order() -> None:
    done: list[int] = []
    with Crew([lambda n=n: done.append(n) for n in range(10)], 1) as crew:  # type: ignore[misc]
        crew.need(4)
        assert done == [0, 1, 2, 3, 4]
        crew.finish()
    assert done == list(range(10))


def test_the_caller_works_while_it_waits() -> None:
    """The first task ends only when the second was done, by another thread."""
    second = Event()
    with Crew([second.wait, second.set], 2) as crew:
        crew.need(0)
        crew.finish()


def test_the_caller_waits_for_what_others_do() -> None:
    release, caller = Event(), get_ident()

    def held() -> None:
        if get_ident() != caller:
            release.wait()

    with Crew([held, release.set], 2) as crew:
        crew.need(0)
        crew.need(1)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("number", [0, 7, 19])
def test_an_error_ends_the_work(threads: int, number: int) -> None:
    def fail() -> NoReturn:
        raise MemoryError("no room")

    tasks: list[Any] = [int] * 20
    tasks[number] = fail
    with pytest.raises(MemoryError, match="no room"):
        run(tasks, threads)


def test_an_error_of_the_caller_stops_the_others() -> None:
    is_started, done, crews = Event(), list[int](), list[Crew]()

    def first() -> None:
        is_started.set()
        while True:
            crews[0].check()

    def interrupted() -> None:
        with Crew([int, first, *[partial(done.append, 1)] * 1000], 1) as crew:
            crew.help()
            raise KeyboardInterrupt

    def interrupted_beside() -> None:
        tasks: list[Callable[[], object]] = [first, *[partial(done.append, 1)] * 1000]
        crews.append(Crew(tasks, 2))
        with crews[0]:
            is_started.wait()
            raise KeyboardInterrupt

    for case in (interrupted, interrupted_beside):
        with pytest.raises(KeyboardInterrupt):
            case()
    assert not done
    assert not crews[0].help()


@pytest.mark.usefixtures("no_threads")
def test_where_no_thread_can_start_the_caller_does_the_work() -> None:
    done: list[int] = []
    with Crew([lambda n=n: done.append(n) for n in range(5)], 4) as crew:  # type: ignore[misc]
        crew.finish()
    assert done == list(range(5))
